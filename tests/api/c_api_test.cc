#include "keel/c_api.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <thread>
#include <vector>

#include "core/valid_call.h"

// The C interface gives what the C++ one gives, and its errors come as a status and a message.
namespace keel {
namespace {

keel_view tensor(const void* data, const Sizes4& shape, keel_dtype dtype = KEEL_F32) {
  return keel_make_view(data, dtype, 4, shape.data());
}
keel_view rows(const void* data, const Sizes3& shape = kRowShape, keel_dtype dtype = KEEL_F32) {
  return keel_make_view(data, dtype, 3, shape.data());
}
keel_view heads(const void* data, std::int64_t count = kHq) { return keel_make_view(data, KEEL_F32, 1, &count); }

// A valid call of each function; a test spoils one thing.
struct CForward {
  Block blocks[4], more[12];
  keel_view q = tensor(blocks[0].data(), kQShape), k = tensor(blocks[1].data(), kKShape),
            v = tensor(blocks[2].data(), kVShape), out = tensor(blocks[3].data(), kOutShape);
  keel_options options;
  keel_outputs outputs;
  std::vector<std::int64_t> list = {1, 2};
  std::vector<keel_head_statistics> head_list = std::vector<keel_head_statistics>(kB * kHq);
  bool null[4] = {};

  CForward() {
    keel_options_init(&options);
    keel_outputs_init(&outputs);
  }
  void use_as_heads(Block& block) {
    outputs.heads = reinterpret_cast<keel_head_statistics*>(block.data());
    outputs.heads_count = std::ssize(head_list);
  }
  keel_status operator()() {
    return keel_attention(null[0] ? nullptr : &q, null[1] ? nullptr : &k, null[2] ? nullptr : &v,
                          null[3] ? nullptr : &out, &options, &outputs);
  }
};

struct CBackward {
  Block blocks[7], more[6], bias, sinks;
  keel_backward_inputs inputs = {tensor(blocks[0].data(), kQShape),
                                 tensor(blocks[1].data(), kKShape),
                                 tensor(blocks[2].data(), kVShape),
                                 tensor(blocks[3].data(), kOutShape),
                                 rows(blocks[4].data()),
                                 tensor(blocks[5].data(), kOutShape),
                                 rows(blocks[6].data())};
  keel_gradients gradients = {tensor(more[0].data(), kQShape),
                              tensor(more[1].data(), kKShape),
                              tensor(more[2].data(), kVShape),
                              tensor(more[3].data(), kScoreShape),
                              rows(more[4].data()),
                              heads(more[5].data())};
  keel_options options;
  bool no_inputs = false, no_gradients = false;

  CBackward() {
    keel_options_init(&options);
    options.bias = tensor(bias.data(), kScoreShape);
    options.sinks = heads(sinks.data());
  }
  keel_status operator()() {
    return keel_attention_backward(no_inputs ? nullptr : &inputs, no_gradients ? nullptr : &gradients, &options);
  }
};

struct CMerge {
  Block blocks[2][9], out_block, row_blocks[8];
  keel_partial parts[2] = {part(blocks[0]), part(blocks[1])};
  keel_view out = tensor(out_block.data(), kOutShape);
  keel_outputs outputs;
  std::int64_t count = 2;
  int threads = 0;
  bool no_parts = false, no_out = false, no_outputs = false;

  CMerge() {
    keel_outputs_init(&outputs);
    keel_view* const views[] = {&outputs.lse,        &outputs.max_logit, &outputs.entropy, &outputs.max_weight,
                                &outputs.logit_mean, &outputs.logit_var, &outputs.visible, &outputs.logit_count};
    for (int i = 0; i < 8; ++i) *views[i] = rows(row_blocks[i].data());
    outputs.visible.dtype = outputs.logit_count.dtype = KEEL_I64;
  }

  static keel_partial part(Block* block) {
    keel_partial p{};
    p.out = tensor(block[0].data(), kOutShape);
    keel_view* const views[] = {&p.lse,        &p.max_logit, &p.entropy, &p.max_weight,
                                &p.logit_mean, &p.logit_var, &p.visible, &p.logit_count};
    for (int i = 0; i < 8; ++i) *views[i] = rows(block[i + 1].data());
    p.visible.dtype = p.logit_count.dtype = KEEL_I64;
    return p;
  }

  keel_status operator()() {
    return keel_merge(no_parts ? nullptr : parts, count, no_out ? nullptr : &out, no_outputs ? nullptr : &outputs,
                      threads);
  }
};

template <class Call>
struct Spoilt {
  const char* message;
  void (*spoil)(Call&);
};

template <class Call, std::size_t N>
void expect_messages(const Spoilt<Call> (&table)[N]) {
  EXPECT_EQ(Call()(), KEEL_OK) << keel_last_error();
  EXPECT_STREQ(keel_last_error(), "");
  for (const auto& [message, spoil] : table) {
    Call call;
    spoil(call);
    EXPECT_EQ(call(), KEEL_INVALID_ARGUMENT) << message;
    EXPECT_STREQ(keel_last_error(), message);
  }
}

// A code that no enumerator has, as a C program can pass it.
template <class Enum>
void set_code(Enum& target, std::uint32_t code) {
  static_assert(sizeof(Enum) == sizeof(code));
  std::memcpy(&target, &code, sizeof(code));
}

TEST(CApi, ErrorsOfAttention) {
  expect_messages<CForward>({
      {"[attention] q: expected a view, got null", [](CForward& c) { c.null[0] = true; }},
      {"[attention] k: expected a view, got null", [](CForward& c) { c.null[1] = true; }},
      {"[attention] v: expected a view, got null", [](CForward& c) { c.null[2] = true; }},
      {"[attention] out: expected a view, got null", [](CForward& c) { c.null[3] = true; }},
      {"[attention] k: expected d_k 8 as in q, got 7", [](CForward& c) { c.k.shape[3] = 7; }},
      {"[attention] q: expected dtype f64, f32, f16 or bf16, got unknown", [](CForward& c) { set_code(c.q.dtype, 6); }},
      {"[attention] q: expected dtype f64, f32, f16 or bf16, got unknown",
       [](CForward& c) { set_code(c.q.dtype, 257); }},
      {"[attention] k: expected a known dtype, got code 255", [](CForward& c) { set_code(c.k.dtype, 0x80000001u); }},
      {"[attention] causal: expected none, top_left or bottom_right, got code 255",
       [](CForward& c) { set_code(c.options.causal, 257); }},
      {"[attention] causal: expected none, top_left or bottom_right, got code 3",
       [](CForward& c) { set_code(c.options.causal, 3); }},
      {"[attention] scale: expected a finite number, got inf", [](CForward& c) { c.options.scale = HUGE_VAL; }},
      {"[attention] softcap: expected a positive finite number, got -1", [](CForward& c) { c.options.softcap = -1.0; }},
      {"[attention] softcap: expected a positive finite number, got nan",
       [](CForward& c) { c.options.softcap = std::nan(""); }},
      {"[attention] q_lengths: expected a pointer to a count of at least 0, got count 2 at null",
       [](CForward& c) { c.options.q_lengths_count = 2; }},
      {"[attention] k_lengths: expected a pointer to a count of at least 0, got count -1",
       [](CForward& c) { c.options.k_lengths = c.list.data(), c.options.k_lengths_count = -1; }},
      {"[attention] q_offsets: expected a pointer to a count of at least 0, got count -9223372036854775808 at null",
       [](CForward& c) { c.options.q_offsets_count = INT64_MIN; }},
      {"[attention] k_offsets: expected a pointer to a count of at least 0, got count 1 at null",
       [](CForward& c) { c.options.k_offsets_count = 1; }},
      {"[attention] q_lengths: expected one length per batch entry (2), got 1",
       [](CForward& c) { c.options.q_lengths = c.list.data(), c.options.q_lengths_count = 1; }},
      {"[attention] window.left: expected at least 0 (or kUnbounded), got -1",
       [](CForward& c) { c.options.window_left = -1; }},
      {"[attention] window.right: expected at least 0 (or kUnbounded), got -2",
       [](CForward& c) { c.options.window_right = -2; }},
      {"[attention] dropout: expected from 0 to 1, got 7", [](CForward& c) { c.options.dropout = 7; }},
      {"[attention] threads: expected at least 0, got -3", [](CForward& c) { c.options.threads = -3; }},
      {"[attention] heads: expected a pointer to a count of at least 0, got count 8 at null",
       [](CForward& c) { c.outputs.heads_count = 8; }},
      {"[attention] heads: expected a pointer to a count of at least 0, got count -8",
       [](CForward& c) { c.outputs.heads = c.head_list.data(), c.outputs.heads_count = -8; }},
      {"[attention] heads: expected 2 entries × 4 heads, got 9223372036854775807",
       [](CForward& c) { c.outputs.heads = c.head_list.data(), c.outputs.heads_count = INT64_MAX; }},
      {"[attention] heads: expected 2 entries × 4 heads, got 1099511627776",  // more than there is memory for
       [](CForward& c) { c.outputs.heads = c.head_list.data(), c.outputs.heads_count = INT64_C(1) << 40; }},
      {"[attention] heads: expected memory of its own, got one that overlaps out",
       [](CForward& c) { c.use_as_heads(c.blocks[3]); }},
      {"[attention] heads: expected memory of its own, got one that overlaps k",
       [](CForward& c) { c.use_as_heads(c.blocks[1]); }},
      {"[attention] heads: expected memory of its own, got one that overlaps lse",
       [](CForward& c) { c.outputs.lse = rows(c.more[0].data()), c.use_as_heads(c.more[0]); }},
      {"[attention] heads: expected 2 entries × 4 heads, got 7",
       [](CForward& c) { c.outputs.heads = c.head_list.data(), c.outputs.heads_count = 7; }},
      {"[attention] lse: expected shape (B, H_q, N_q) = (2, 4, 3), got (2, 4, 2)",
       [](CForward& c) {
         c.outputs.lse = rows(c.more[0].data(), {2, 4, 2});
       }},
      {"[attention] saturation_threshold: expected from 0 to 1, got -1",
       [](CForward& c) { c.outputs.saturation_threshold = -1; }},
      {"[attention] q: expected sizes from 0 to 2^40, got shape (-1, 0, 0, 0)",
       [](CForward& c) { c.q = keel_make_view(c.blocks[0].data(), KEEL_F32, 5, kQShape.data()); }},
      {"[attention] k: expected sizes from 0 to 2^40, got shape (-1, 0, 0, 0)",
       [](CForward& c) { c.k = keel_make_view(c.blocks[0].data(), KEEL_F32, -1, kQShape.data()); }},
  });
}

TEST(CApi, ErrorsOfTheBackwardPass) {
  expect_messages<CBackward>({
      {"[attention_backward] inputs: expected a structure, got null", [](CBackward& c) { c.no_inputs = true; }},
      {"[attention_backward] gradients: expected a structure, got null", [](CBackward& c) { c.no_gradients = true; }},
      {"[attention_backward] q_lengths: expected a pointer to a count of at least 0, got count 1 at null",
       [](CBackward& c) { c.options.q_lengths_count = 1; }},
      {"[attention_backward] dsinks: expected none without sinks, got a view",
       [](CBackward& c) { c.options.sinks = {}; }},
      {"[attention_backward] dbias: expected none without a bias, got a view",
       [](CBackward& c) { c.options.bias = {}; }},
      {"[attention_backward] dq: expected memory of its own, got one that overlaps q",
       [](CBackward& c) { c.gradients.dq = c.inputs.q; }},
  });
}

TEST(CApi, ErrorsOfMerge) {
  expect_messages<CMerge>({
      {"[merge] parts: expected a pointer to a count of at least 0, got count 2 at null",
       [](CMerge& c) { c.no_parts = true; }},
      {"[merge] parts: expected a pointer to a count of at least 0, got count -2", [](CMerge& c) { c.count = -2; }},
      {"[merge] parts: expected at least one, got none", [](CMerge& c) { c.count = 0; }},
      {"[merge] parts: expected at least one, got none", [](CMerge& c) { c.count = 0, c.no_parts = true; }},
      {"[merge] out: expected a view, got null", [](CMerge& c) { c.no_out = true; }},
      {"[merge] lse: expected dtype f32, got f64", [](CMerge& c) { c.outputs.lse.dtype = KEEL_F64; }},
      {"[merge] parts[1].logit_var: expected dtype f32, got f64",
       [](CMerge& c) { c.parts[1].logit_var.dtype = KEEL_F64; }},
      {"[merge] parts[0].max_weight: expected a view, as max_weight is asked for, got none",
       [](CMerge& c) { c.parts[0].max_weight = {}; }},
      {"[merge] heads: expected a pointer to a count of at least 0, got count 8 at null",
       [](CMerge& c) { c.outputs.heads_count = 8; }},
      {"[merge] threads: expected at least 0, got -1", [](CMerge& c) { c.threads = -1; }},
  });
  CMerge without_outputs;
  without_outputs.no_outputs = true;
  EXPECT_EQ(without_outputs(), KEEL_OK);
}

TEST(CApi, LastErrorIsOfThisThreadAndGoesWithTheNextCall) {
  CForward wrong, right;
  wrong.options.threads = -1;
  EXPECT_EQ(wrong(), KEEL_INVALID_ARGUMENT);
  std::thread([&] {
    EXPECT_STREQ(keel_last_error(), "");
    EXPECT_EQ(right(), KEEL_OK);
  }).join();
  EXPECT_STREQ(keel_last_error(), "[attention] threads: expected at least 0, got -1");
  EXPECT_EQ(right(), KEEL_OK);
  EXPECT_STREQ(keel_last_error(), "");
}

TEST(CApi, OptionsAndOutputsMayBeNull) {
  CForward c;
  EXPECT_EQ(keel_attention(&c.q, &c.k, &c.v, &c.out, nullptr, nullptr), KEEL_OK);
  CBackward b;
  b.gradients.dbias = {};
  b.gradients.dsinks = {};
  EXPECT_EQ(keel_attention_backward(&b.inputs, &b.gradients, nullptr), KEEL_OK);
}

TEST(CApi, ViewsGetTheStridesOfCOrder) {
  const keel_view four = tensor(nullptr, {2, 3, 4, 5});
  EXPECT_EQ(four.strides[0], 60);
  EXPECT_EQ(four.strides[1], 20);
  EXPECT_EQ(four.strides[2], 5);
  EXPECT_EQ(four.strides[3], 1);
  const keel_view three = rows(nullptr, {2, 3, 4}, KEEL_I64);
  EXPECT_EQ(three.strides[0], 12);
  EXPECT_EQ(three.strides[2], 1);
  EXPECT_EQ(three.dtype, KEEL_I64);
  const std::int64_t huge[4] = {2, INT64_MAX, INT64_MAX, 3};
  EXPECT_EQ(keel_make_view(nullptr, KEEL_F32, 4, huge).shape[1], INT64_MAX);
}

// Every option and output has the same effect in both languages.
TEST(CApi, GivesWhatTheCppInterfaceGives) {
  CForward c;
  ForwardCall f;
  int n = 0;
  for (Block* block : {&c.blocks[0], &c.blocks[1], &c.blocks[2], &c.more[0], &c.more[1], &c.more[2], &c.more[3]}) {
    for (int i = 0; i < 1024; ++i) block->data()[i] = std::sin(static_cast<float>(n++));
  }
  auto* const mask = reinterpret_cast<std::uint8_t*>(c.more[4].data());
  for (int i = 0; i < 120; ++i) mask[i] = i % 4 != 0;
  std::vector<std::int64_t> q_lengths = {3, 2}, k_lengths = {5, 4};

  c.options.scale_tensor = rows(c.more[0].data());
  c.options.softcap = 2.5;
  c.options.mask = tensor(mask, kScoreShape, KEEL_BOOL);
  c.options.bias = tensor(c.more[1].data(), kScoreShape);
  c.options.causal = KEEL_CAUSAL_BOTTOM_RIGHT;
  c.options.window_left = 3;
  c.options.q_lengths = q_lengths.data();
  c.options.k_lengths = k_lengths.data();
  c.options.q_lengths_count = c.options.k_lengths_count = 2;
  c.options.alibi = heads(c.more[2].data());
  c.options.sinks = heads(c.more[3].data());
  c.options.dropout = 0.3;
  c.options.seed = 77;
  c.options.threads = 1;
  keel_view* const c_rows[] = {&c.outputs.lse,        &c.outputs.max_logit,  &c.outputs.entropy,
                               &c.outputs.max_weight, &c.outputs.logit_mean, &c.outputs.logit_var};
  for (int i = 0; i < 6; ++i) *c_rows[i] = rows(c.more[5 + i].data());
  Block weights, visible, logit_count, key_sums;
  c.outputs.weights = tensor(weights.data(), kScoreShape);
  c.outputs.visible = rows(visible.memory.data(), kRowShape, KEEL_I64);
  c.outputs.logit_count = rows(logit_count.memory.data(), kRowShape, KEEL_I64);
  c.outputs.key_sums = rows(key_sums.data(), {kB, kHq, kNk});
  c.outputs.key_sum_rows = 2;
  c.outputs.heads = c.head_list.data();
  c.outputs.heads_count = std::ssize(c.head_list);
  c.outputs.saturation_threshold = 0.4;
  ASSERT_EQ(c(), KEEL_OK) << keel_last_error();

  f.q = c.blocks[0].tensor(kQShape);
  f.k = c.blocks[1].tensor(kKShape);
  f.v = c.blocks[2].tensor(kVShape);
  f.options = {.scale_tensor = c.more[0].rows(),
               .softcap = 2.5,
               .mask = c.more[4].tensor(kScoreShape, DType::boolean),
               .bias = c.more[1].tensor(kScoreShape),
               .causal = Causal::bottom_right,
               .window = {.left = 3},
               .q_lengths = q_lengths,
               .k_lengths = k_lengths,
               .alibi = c.more[2].heads(),
               .sinks = c.more[3].heads(),
               .dropout = 0.3,
               .seed = 77,
               .threads = 1};
  Block f_rows[6], f_weights, f_visible, f_logit_count, f_key_sums;
  f.outputs = {.lse = f_rows[0].rows(),
               .max_logit = f_rows[1].rows(),
               .entropy = f_rows[2].rows(),
               .max_weight = f_rows[3].rows(),
               .logit_mean = f_rows[4].rows(),
               .logit_var = f_rows[5].rows(),
               .visible = f_visible.rows(kRowShape, DType::i64),
               .logit_count = f_logit_count.rows(kRowShape, DType::i64),
               .weights = f_weights.tensor(kScoreShape),
               .heads = f.head_list,
               .saturation_threshold = 0.4,
               .key_sums = f_key_sums.rows({kB, kHq, kNk}),
               .key_sum_rows = 2};
  f();
  EXPECT_EQ(c.blocks[3].memory, f.out_block.memory);
  for (int i = 0; i < 6; ++i)
    EXPECT_EQ(std::memcmp(c.more[5 + i].data(), f_rows[i].data(), 24 * sizeof(float)), 0) << i;
  EXPECT_EQ(weights.memory, f_weights.memory);
  EXPECT_EQ(key_sums.memory, f_key_sums.memory);
  EXPECT_NE(key_sums.memory, Block().memory);
  EXPECT_EQ(std::memcmp(visible.data(), f_visible.data(), 24 * 8), 0);
  EXPECT_EQ(std::memcmp(logit_count.data(), f_logit_count.data(), 24 * 8), 0);
  for (std::size_t i = 0; i < c.head_list.size(); ++i) {
    EXPECT_EQ(c.head_list[i].max_logit, f.head_list[i].max_logit);
    EXPECT_EQ(c.head_list[i].mean_entropy, f.head_list[i].mean_entropy);
    EXPECT_EQ(c.head_list[i].min_entropy, f.head_list[i].min_entropy);
    EXPECT_EQ(c.head_list[i].normalised_entropy, f.head_list[i].normalised_entropy);
    EXPECT_EQ(c.head_list[i].saturated, f.head_list[i].saturated);
    EXPECT_EQ(c.head_list[i].rows, f.head_list[i].rows);
  }
}

TEST(CApi, BackwardAndMergeGiveWhatTheCppInterfaceGives) {
  CBackward c;
  BackwardCall b;
  int n = 0;
  for (int i = 0; i < 7; ++i) {
    for (int at = 0; at < 1024; ++at) {
      c.blocks[i].data()[at] = b.blocks[i].data()[at] = std::sin(static_cast<float>(n++));
    }
  }
  ASSERT_EQ(c(), KEEL_OK);
  b();
  for (int i = 0; i < 6; ++i) EXPECT_EQ(c.more[i].memory, b.gradient_blocks[i].memory) << i;

  CMerge m;
  MergeCall cpp;
  for (int p = 0; p < 2; ++p) {
    for (int i = 0; i < 7; ++i) {
      for (int at = 0; at < 144; ++at) {
        m.blocks[p][i].data()[at] = cpp.part_blocks[p][i].data()[at] = std::cos(static_cast<float>(n++));
      }
    }
    for (int at = 0; at < 24; ++at) {
      for (const int i : {7, 8}) {
        m.blocks[p][i].memory[at] = cpp.part_blocks[p][i].memory[at] = std::bit_cast<double>(std::int64_t{at + p + i});
      }
    }
  }
  ASSERT_EQ(m(), KEEL_OK);
  cpp();
  EXPECT_EQ(m.out_block.memory, cpp.out_block.memory);
  for (int i = 0; i < 8; ++i) EXPECT_EQ(m.row_blocks[i].memory, cpp.row_blocks[i].memory) << i;
}

TEST(CApi, VersionsAgree) { EXPECT_STREQ(keel_version(), version()); }

}  // namespace
}  // namespace keel
