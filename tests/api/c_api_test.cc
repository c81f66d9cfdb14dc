#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <string>
#include <vector>

#include "api/c_calls.h"

// The C interface gives what the C++ one gives.
namespace keel {
namespace {

TEST(CApi, OptionsAndOutputsMayBeNull) {
  CForward c;
  EXPECT_EQ(keel_attention(&c.q, &c.k, &c.v, &c.out, nullptr, nullptr), KEEL_OK);
  CBackward b;
  b.gradients.dbias = {};
  b.gradients.dsinks = {};
  EXPECT_EQ(keel_attention_backward(&b.inputs, &b.gradients, nullptr), KEEL_OK);
}

// Values of which every block has others.
void fill(Block& block, int seed) {
  for (std::int64_t i = 0; i < 1024; ++i) block.data()[i] = std::sin(static_cast<float>(i + 100 * seed));
}

TEST(CApi, DerivativesAlongTangentsAreThoseOfTheCppInterface) {
  CJvp c;
  JvpCall j;
  for (int i = 0; i < 5; ++i) fill(c.blocks[i], i), fill(j.blocks[i], i);
  for (int i = 0; i < 6; ++i) fill(c.more[i], 5 + i), fill(j.tangent_blocks[i], 5 + i);
  ASSERT_EQ(c(), KEEL_OK) << keel_last_error();
  j();
  EXPECT_EQ(c.out.memory, j.out_block.memory);
  EXPECT_EQ(c.lse.memory, j.lse_block.memory);
  EXPECT_NE(c.out.data()[0], 0.0f);

  CDouble two;
  DoubleCall d;
  for (int i = 0; i < 7; ++i) fill(two.blocks[i], i), fill(d.blocks[i], i);
  fill(two.more_blocks[0], 9), fill(d.tangent_block, 9);
  ASSERT_EQ(two(), KEEL_OK) << keel_last_error();
  d();
  for (int i = 0; i < 6; ++i) EXPECT_EQ(two.more[i].memory, d.gradient_blocks[i].memory) << i;
  EXPECT_EQ(two.more_blocks[1].memory, d.out_block.memory);
  EXPECT_EQ(two.more_blocks[2].memory, d.lse_block.memory);
  EXPECT_NE(two.more[0].data()[0], 0.0f);
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

// What a call with every option and output needs, besides the arrays that both languages' calls bring along.
struct Everything {
  std::vector<std::int64_t> q_lengths = {4, 3}, k_lengths = {7, 5};
  Block rows[6], weights, visible, logit_count, key_sums, scores;
};

void fill(CForward& c) {
  int n = 0;
  for (Block* block : {&c.blocks[0], &c.blocks[1], &c.blocks[2], &c.more[0], &c.more[1], &c.more[2], &c.more[3]}) {
    for (int i = 0; i < 1024; ++i) block->data()[i] = std::sin(static_cast<float>(n++));
  }
  auto* const mask = reinterpret_cast<std::uint8_t*>(c.more[4].data());
  for (int i = 0; i < 120; ++i) mask[i] = i % 4 != 0;
}

void ask_for_everything(CForward& c, Everything& to) {
  c.options.scale_tensor = rows(c.more[0].data());
  c.options.softcap = 2.5;
  c.options.mask = tensor(c.more[4].data(), kScoreShape, KEEL_BOOL);
  c.options.bias = tensor(c.more[1].data(), kScoreShape);
  c.options.causal = KEEL_CAUSAL_BOTTOM_RIGHT;
  c.options.has_window = 1;
  c.options.window_left = 3;
  c.options.window_right = KEEL_UNBOUNDED;
  c.options.origin = {1, 2, 6, 9};
  c.options.q_lengths = list(to.q_lengths.data(), 2);
  c.options.k_lengths = list(to.k_lengths.data(), 2);
  const std::int64_t slopes[] = {kB, kHq};
  c.options.alibi = keel_make_view(c.more[2].data(), KEEL_F32, 2, slopes);
  c.options.sinks = heads(c.more[3].data());
  c.options.dropout = 0.3;
  c.options.seed = 77;
  c.options.threads = 1;
  keel_view* const of_rows[] = {&c.outputs.lse,        &c.outputs.max_logit,  &c.outputs.entropy,
                                &c.outputs.max_weight, &c.outputs.logit_mean, &c.outputs.logit_var};
  for (int i = 0; i < 6; ++i) *of_rows[i] = rows(to.rows[i].data());
  c.outputs.weights = tensor(to.weights.data(), kScoreShape);
  c.outputs.visible = rows(to.visible.memory.data(), kRowShape, KEEL_I64);
  c.outputs.logit_count = rows(to.logit_count.memory.data(), kRowShape, KEEL_I64);
  c.outputs.key_sums = rows(to.key_sums.data(), {kB, kHq, kNk});
  c.outputs.key_sum_rows = 2;
  c.outputs.scores = tensor(to.scores.data(), kScoreShape);
  c.outputs.score_stage = KEEL_SCORES_CAPPED;
  c.ask_for_heads(std::ssize(c.head_list), c.head_list.data());
  c.outputs.saturation_threshold = 0.4;
}

// The same in C++, on the inputs of c.
void ask_for_everything(ForwardCall& f, CForward& c, Everything& to) {
  f.q = c.blocks[0].tensor(kQShape);
  f.k = c.blocks[1].tensor(kKShape);
  f.v = c.blocks[2].tensor(kVShape);
  f.options = {.scale_tensor = c.more[0].rows(),
               .softcap = 2.5,
               .mask = c.more[4].tensor(kScoreShape, DType::boolean),
               .bias = c.more[1].tensor(kScoreShape),
               .causal = Causal::bottom_right,
               .window = {.left = 3},
               .origin = {.query = 1, .key = 2, .n_q = 6, .n_k = 9},
               .q_lengths = to.q_lengths,
               .k_lengths = to.k_lengths,
               .alibi = table_view(c.more[2].data(), {kB, kHq}),
               .sinks = c.more[3].heads(),
               .dropout = 0.3,
               .seed = 77,
               .threads = 1};
  f.outputs = {.lse = to.rows[0].rows(),
               .max_logit = to.rows[1].rows(),
               .entropy = to.rows[2].rows(),
               .max_weight = to.rows[3].rows(),
               .logit_mean = to.rows[4].rows(),
               .logit_var = to.rows[5].rows(),
               .visible = to.visible.rows(kRowShape, DType::i64),
               .logit_count = to.logit_count.rows(kRowShape, DType::i64),
               .weights = to.weights.tensor(kScoreShape),
               .heads = f.head_list,
               .saturation_threshold = 0.4,
               .key_sums = to.key_sums.rows({kB, kHq, kNk}),
               .key_sum_rows = 2,
               .scores = to.scores.tensor(kScoreShape),
               .score_stage = ScoreStage::capped};
}

// Every option and output has the same effect in both languages.
TEST(CApi, GivesWhatTheCppInterfaceGives) {
  CForward c;
  ForwardCall f;
  Everything in_c, in_cpp;
  fill(c);
  ask_for_everything(c, in_c);
  ASSERT_EQ(c(), KEEL_OK) << keel_last_error();
  ask_for_everything(f, c, in_cpp);
  f();
  EXPECT_EQ(c.blocks[3].memory, f.out_block.memory);
  for (int i = 0; i < 6; ++i) {
    EXPECT_EQ(std::memcmp(in_c.rows[i].data(), in_cpp.rows[i].data(), 24 * sizeof(float)), 0) << i;
  }
  EXPECT_EQ(in_c.weights.memory, in_cpp.weights.memory);
  EXPECT_EQ(in_c.scores.memory, in_cpp.scores.memory);
  EXPECT_NE(in_c.scores.memory, Block().memory);
  EXPECT_EQ(in_c.key_sums.memory, in_cpp.key_sums.memory);
  EXPECT_NE(in_c.key_sums.memory, Block().memory);
  EXPECT_EQ(std::memcmp(in_c.visible.data(), in_cpp.visible.data(), 24 * 8), 0);
  EXPECT_EQ(std::memcmp(in_c.logit_count.data(), in_cpp.logit_count.data(), 24 * 8), 0);
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
  std::fill(m.out_block.memory.begin(), m.out_block.memory.end(), 0);
  ASSERT_EQ(keel_merge_on_stream(m.parts, m.count, &m.out, &m.outputs, nullptr), KEEL_OK);
  EXPECT_EQ(m.out_block.memory, cpp.out_block.memory);
}

TEST(CApi, GradientsAreAddedToWhatIsThere) {
  CBackward once, twice;
  for (CBackward* c : {&once, &twice}) {
    for (int i = 0; i < 7; ++i) {
      for (int at = 0; at < 1024; ++at) c->blocks[i].data()[at] = std::sin(static_cast<float>(at + 100 * i));
    }
  }
  ASSERT_EQ(once(), KEEL_OK);
  ASSERT_EQ(twice(), KEEL_OK);
  twice.gradients.accumulate = 1;
  ASSERT_EQ(twice(), KEEL_OK);
  for (int i = 0; i < 6; ++i) {
    for (int at = 0; at < 4; ++at) EXPECT_EQ(twice.more[i].data()[at], 2 * once.more[i].data()[at]) << i;
  }
}

TEST(CApi, ViewsNameTheirDevice) {
  CForward c;
  for (keel_view* view : {&c.q, &c.k, &c.v, &c.out}) view->device = {KEEL_EXTENSION, 3};
  EXPECT_EQ(c(), KEEL_UNSUPPORTED);
  EXPECT_STREQ(keel_last_error(),
               "[attention] expected arrays on a device that a backend serves, got them on extension:3");
  CForward lists;
  lists.options.k_lengths = list(lists.list_data.data(), 2);
  lists.options.k_lengths.device = {KEEL_CUDA, 3};
  EXPECT_EQ(lists(), KEEL_INVALID_ARGUMENT);
  EXPECT_STREQ(keel_last_error(),
               "[attention] k_lengths: expected an array on cpu like the first tensor, got one on cuda:3");
}

TEST(CApi, ExplainsWithoutReadingData) {
  CForward c;
  c.options.causal = KEEL_CAUSAL_TOP_LEFT;
  for (keel_view* view : {&c.q, &c.k, &c.v, &c.out}) view->data = nullptr;
  const char* const text = keel_explain(&c.q, &c.k, &c.v, &c.out, &c.options, &c.outputs);
  ASSERT_NE(text, nullptr) << keel_last_error();
  Block block;
  EXPECT_EQ(text, explain(block.tensor(kQShape), block.tensor(kKShape), block.tensor(kVShape), block.tensor(kOutShape),
                          {.causal = Causal::top_left}));

  CBackward b;
  const BackwardCall cpp;
  const char* const backward = keel_explain_backward(&b.inputs, &b.gradients, &b.options);
  ASSERT_NE(backward, nullptr) << keel_last_error();
  EXPECT_EQ(backward, explain(cpp.inputs, cpp.gradients, cpp.options));
}

TEST(CApi, ExplainsNothingOfACallThatIsRefused) {
  CForward c;
  c.options.threads = -1;
  EXPECT_EQ(keel_explain(&c.q, &c.k, &c.v, &c.out, &c.options, nullptr), nullptr);
  EXPECT_EQ(keel_last_status(), KEEL_INVALID_ARGUMENT);
  EXPECT_STREQ(keel_last_error(), "[attention] threads: expected at least 0, got -1");
  EXPECT_EQ(keel_explain_backward(nullptr, nullptr, nullptr), nullptr);
  EXPECT_STREQ(keel_last_error(), "[attention_backward] inputs: expected a structure, got null");
  for (keel_view* view : {&c.q, &c.k, &c.v, &c.out}) view->device = {KEEL_EXTENSION, 0};
  EXPECT_EQ(keel_explain(&c.q, &c.k, &c.v, &c.out, nullptr, nullptr), nullptr);
  EXPECT_EQ(keel_last_status(), KEEL_UNSUPPORTED);
}

int team_calls = 0;

TEST(CApi, ATeamComputesFromTheMomentItIsNamed) {
  constexpr std::int64_t kLength = 256, kSize = 64;
  std::vector<float> x(4 * kLength * kSize, 0.5f), result(x.size());
  const keel_view in = tensor(x.data(), {1, 4, kLength, kSize}), out = tensor(result.data(), {1, 4, kLength, kSize});
  keel_options options;
  KEEL_INIT(&options);
  options.threads = 2;
  const auto run = [](void (*work)(void*), void* data, unsigned, unsigned) {
    ++team_calls;
    work(data);
  };
  const auto size = [] { return 2; };
  ASSERT_EQ(keel_use_team(run, size), KEEL_OK);
  EXPECT_EQ(keel_attention(&in, &in, &in, &out, &options, nullptr), KEEL_OK);
  EXPECT_EQ(team_calls, 1);
  EXPECT_EQ(keel_use_team(run, nullptr), KEEL_INVALID_ARGUMENT);
  EXPECT_STREQ(keel_last_error(), "[use_team] size: expected a function together with run, got null");
  EXPECT_EQ(keel_use_team(nullptr, size), KEEL_INVALID_ARGUMENT);
  EXPECT_STREQ(keel_last_error(), "[use_team] run: expected a function together with size, got null");
  ASSERT_EQ(keel_use_team(nullptr, nullptr), KEEL_OK);
  EXPECT_EQ(keel_attention(&in, &in, &in, &out, &options, nullptr), KEEL_OK);
  EXPECT_EQ(team_calls, 1);
}

TEST(CApi, VersionsAgree) { EXPECT_STREQ(keel_version(), version()); }

}  // namespace
}  // namespace keel
