#include <gtest/gtest.h>

#include <cmath>
#include <string_view>
#include <thread>

#include "api/c_calls.h"

// A wrong argument of the C interface comes back as a status and a message.
namespace keel {
namespace {

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
    const bool about_dtype = std::string_view(message).find("dtype") != std::string_view::npos;
    EXPECT_EQ(call(), about_dtype ? KEEL_WRONG_DTYPE : KEEL_INVALID_ARGUMENT) << message;
    EXPECT_EQ(keel_last_status(), about_dtype ? KEEL_WRONG_DTYPE : KEEL_INVALID_ARGUMENT) << message;
    EXPECT_STREQ(keel_last_error(), message);
  }
}

TEST(CErrors, ErrorsOfAttention) {
  expect_messages<CForward>({
      {"[attention] q: expected a view, got null", [](CForward& c) { c.null[0] = true; }},
      {"[attention] k: expected a view, got null", [](CForward& c) { c.null[1] = true; }},
      {"[attention] v: expected a view, got null", [](CForward& c) { c.null[2] = true; }},
      {"[attention] out: expected a view, got null", [](CForward& c) { c.null[3] = true; }},
      {"[attention] k: expected d_k 8 as in q, got 7", [](CForward& c) { c.k.shape[3] = 7; }},
      {"[attention] q: expected dtype f64, f32, f16 or bf16, got unknown", [](CForward& c) { c.q.dtype = 6; }},
      {"[attention] q: expected dtype f64, f32, f16 or bf16, got unknown", [](CForward& c) { c.q.dtype = 257; }},
      {"[attention] k: expected a known dtype, got code 255", [](CForward& c) { c.k.dtype = -1; }},
      {"[attention] order: expected fixed or free, got code 2", [](CForward& c) { c.options.order = 2; }},
      {"[attention] order: expected fixed or free, got code 255", [](CForward& c) { c.options.order = -1; }},
      {"[attention] causal: expected none, top_left or bottom_right, got code 255",
       [](CForward& c) { c.options.causal = 257; }},
      {"[attention] causal: expected none, top_left or bottom_right, got code 3",
       [](CForward& c) { c.options.causal = 3; }},
      {"[attention] scale: expected a finite number, got inf",
       [](CForward& c) { c.options.has_scale = 1, c.options.scale = HUGE_VAL; }},
      {"[attention] has_scale: expected 1 with scale 0.5, got 0", [](CForward& c) { c.options.scale = 0.5; }},
      {"[attention] has_scale: expected 1 with scale nan, got 0", [](CForward& c) { c.options.scale = std::nan(""); }},
      {"[attention] has_scale: expected 0 or 1, got 2", [](CForward& c) { c.options.has_scale = 2; }},
      {"[attention] softcap: expected a positive finite number, got -1", [](CForward& c) { c.options.softcap = -1.0; }},
      {"[attention] softcap: expected a positive finite number, got nan",
       [](CForward& c) { c.options.softcap = std::nan(""); }},
      {"[attention] q_lengths: expected a pointer to 2 values, got null",
       [](CForward& c) { c.options.q_lengths = list(nullptr, 2); }},
      {"[attention] q_lengths: expected one length per batch entry (2), got 1",
       [](CForward& c) { c.options.q_lengths = list(c.list_data.data(), 1); }},
      {"[attention] k_lengths: expected one length per batch entry (2), got -1",
       [](CForward& c) { c.options.k_lengths = list(c.list_data.data(), -1); }},
      {"[attention] k_lengths: expected dtype i64, got f32",
       [](CForward& c) { c.options.k_lengths = heads(c.list_data.data(), 2); }},
      {"[attention] k_lengths: expected 1 dimension, and 0 for the other sizes, got shape (2, 1, 1, 0)",
       [](CForward& c) {
         c.options.k_lengths = rows(c.list_data.data(), {2, 1, 1}, KEEL_I64);
       }},
      {"[attention] k_offsets: expected as many offsets as in q_offsets (-9223372036854775808), got 0",
       [](CForward& c) { c.options.q_offsets = list(nullptr, INT64_MIN); }},
      {"[attention] k_offsets: expected as many offsets as in q_offsets (0), got 1",
       [](CForward& c) { c.options.k_offsets = list(nullptr, 1); }},
      {"[attention] window.left: expected at least 0 (or kUnbounded), got -1",
       [](CForward& c) { c.options.has_window = 1, c.options.window_left = -1; }},
      {"[attention] window.right: expected at least 0 (or kUnbounded), got -2",
       [](CForward& c) { c.options.has_window = 1, c.options.window_right = -2; }},
      {"[attention] has_window: expected 1 with window_left 3 and window_right 0, got 0",
       [](CForward& c) { c.options.window_left = 3; }},
      {"[attention] has_window: expected 1 with window_left 0 and window_right 9223372036854775807, got 0",
       [](CForward& c) { c.options.window_right = KEEL_UNBOUNDED; }},
      {"[attention] has_window: expected 0 or 1, got -1", [](CForward& c) { c.options.has_window = -1; }},
      {"[attention] origin.query: expected a position from 0 to 2^40, got -1",
       [](CForward& c) { c.options.origin.query = -1; }},
      {"[attention] origin.n_k: expected 0, or from origin.key + 5 = 12 to 2^40, got 11",
       [](CForward& c) {
         c.options.origin = {0, 7, 0, 11};
       }},
      {"[attention] dropout: expected from 0 to 1, got 7", [](CForward& c) { c.options.dropout = 7; }},
      {"[attention] threads: expected at least 0, got -3", [](CForward& c) { c.options.threads = -3; }},
      {"[attention] heads: expected a pointer to a count of at least 0, got count 8 at null",
       [](CForward& c) { c.outputs.heads_count = 8; }},
      {"[attention] heads: expected a pointer to a count of at least 0, got count -8",
       [](CForward& c) { c.ask_for_heads(-8, c.head_list.data()); }},
      {"[attention] heads: expected 2 entries × 4 heads, got 9223372036854775807",
       [](CForward& c) { c.ask_for_heads(INT64_MAX, c.head_list.data()); }},
      {"[attention] heads: expected 2 entries × 4 heads, got 1099511627776",  // more than there is memory for
       [](CForward& c) { c.ask_for_heads(INT64_C(1) << 40, c.head_list.data()); }},
      {"[attention] heads: expected its own memory, got memory that overlaps out",
       [](CForward& c) { c.use_as_heads(c.blocks[3]); }},
      {"[attention] heads: expected its own memory, got memory that overlaps k",
       [](CForward& c) { c.use_as_heads(c.blocks[1]); }},
      {"[attention] heads: expected its own memory, got memory that overlaps lse",
       [](CForward& c) { c.outputs.lse = rows(c.more[0].data()), c.use_as_heads(c.more[0]); }},
      {"[attention] heads: expected 2 entries × 4 heads, got 7",
       [](CForward& c) { c.ask_for_heads(7, c.head_list.data()); }},
      {"[attention] lse: expected shape (B, H_q, N_q) = (2, 4, 3), got (2, 4, 2)",
       [](CForward& c) {
         c.outputs.lse = rows(c.more[0].data(), {2, 4, 2});
       }},
      {"[attention] saturation_threshold: expected from 0 to 1, got -1",
       [](CForward& c) { c.outputs.saturation_threshold = -1; }},
      {"[attention] heads_size: expected 48, the sizeof(keel_head_statistics) of this version, got 0",
       [](CForward& c) { c.ask_for_heads(8, c.head_list.data()), c.outputs.heads_size = 0; }},
      {"[attention] heads_size: expected 48, the sizeof(keel_head_statistics) of this version, got 56",
       [](CForward& c) { c.ask_for_heads(8, c.head_list.data()), c.outputs.heads_size = 56; }},
      {"[attention] lse: expected 3 dimensions, and 0 for the other sizes, got shape (2, 4, 3, 6)",
       [](CForward& c) { c.outputs.lse = tensor(c.more[0].data(), kOutShape); }},
      {"[attention] k.reserved: expected 0, got 7", [](CForward& c) { c.k.reserved[0] = 7; }},
      {"[attention] mask.reserved: expected 0, got 1", [](CForward& c) { c.options.mask.reserved[4] = 1; }},
      {"[attention] entropy.reserved: expected 0, got 1", [](CForward& c) { c.outputs.entropy.reserved[2] = 1; }},
      {"[attention] v: expected an array on cpu like the first tensor, got one on cuda:1",
       [](CForward& c) {
         c.v.device = {KEEL_CUDA, 1};
       }},
      {"[attention] q: expected sizes from 0 to 2^40, got shape (-1, 0, 0, 0)",
       [](CForward& c) { c.q = keel_make_view(c.blocks[0].data(), KEEL_F32, 5, kQShape.data()); }},
      {"[attention] k: expected sizes from 0 to 2^40, got shape (-1, 0, 0, 0)",
       [](CForward& c) { c.k = keel_make_view(c.blocks[0].data(), KEEL_F32, -1, kQShape.data()); }},
  });
}

TEST(CErrors, ErrorsOfTheBackwardPass) {
  expect_messages<CBackward>({
      {"[attention_backward] inputs: expected a structure, got null", [](CBackward& c) { c.no_inputs = true; }},
      {"[attention_backward] gradients: expected a structure, got null", [](CBackward& c) { c.no_gradients = true; }},
      {"[attention_backward] q_lengths: expected a pointer to 2 values, got null",
       [](CBackward& c) { c.options.q_lengths = list(nullptr, 2); }},
      {"[attention_backward] accumulate: expected 0 or 1, got 2", [](CBackward& c) { c.gradients.accumulate = 2; }},
      {"[attention_backward] dout.reserved: expected 0, got 9", [](CBackward& c) { c.inputs.dout.reserved[3] = 9; }},
      {"[attention_backward] dv.reserved: expected 0, got 9", [](CBackward& c) { c.gradients.dv.reserved[1] = 9; }},
      {"[attention_backward] dsinks: expected 1 dimension, and 0 for the other sizes, got shape (2, 4, 3, 0)",
       [](CBackward& c) { c.gradients.dsinks = c.gradients.dscale; }},
      {"[attention_backward] dsinks: expected none without sinks, got a view",
       [](CBackward& c) { c.options.sinks = {}; }},
      {"[attention_backward] dbias: expected none without a bias, got a view",
       [](CBackward& c) { c.options.bias = {}; }},
      {"[attention_backward] dq: expected its own memory, got memory that overlaps q",
       [](CBackward& c) { c.gradients.dq = c.inputs.q; }},
  });
}

TEST(CErrors, ErrorsOfTangents) {
  expect_messages<CJvp>({
      {"[attention_jvp] inputs: expected a structure, got null", [](CJvp& c) { c.no_inputs = true; }},
      {"[attention_jvp] tangents: expected a structure, got null", [](CJvp& c) { c.no_tangents = true; }},
      {"[attention_jvp] outputs: expected a structure, got null", [](CJvp& c) { c.no_outputs = true; }},
      {"[attention_jvp] accumulate: expected 0 or 1, got 2", [](CJvp& c) { c.outputs.accumulate = 2; }},
      {"[attention_jvp] tv.reserved: expected 0, got 9", [](CJvp& c) { c.tangents.tv.reserved[1] = 9; }},
      {"[attention_jvp] tbias: expected none without a bias, got a view", [](CJvp& c) { c.options.bias = {}; }},
  });
  expect_messages<CDouble>({
      {"[attention_double_backward] inputs: expected a structure, got null", [](CDouble& c) { c.no_inputs = true; }},
      {"[attention_double_backward] tangents: expected a structure, got null",
       [](CDouble& c) { c.no_tangents = true; }},
      {"[attention_double_backward] gradients: expected a structure, got null", [](CDouble& c) { c.no_second = true; }},
      {"[attention_double_backward] ddlse.reserved: expected 0, got 9",
       [](CDouble& c) { c.second.ddlse.reserved[1] = 9; }},
      {"[attention_double_backward] dq: expected its own memory, got memory that overlaps q",
       [](CDouble& c) { c.second.dq = c.inputs.q; }},
  });
}

TEST(CErrors, ErrorsOfMerge) {
  expect_messages<CMerge>({
      {"[merge] parts: expected a pointer to a count of at least 0, got count 2 at null",
       [](CMerge& c) { c.no_parts = true; }},
      {"[merge] parts: expected a pointer to a count of at least 0, got count -2", [](CMerge& c) { c.count = -2; }},
      {"[merge] parts: expected at least one, got none", [](CMerge& c) { c.count = 0; }},
      {"[merge] parts: expected at least one, got none", [](CMerge& c) { c.count = 0, c.no_parts = true; }},
      {"[merge] out: expected a view, got null", [](CMerge& c) { c.no_out = true; }},
      {"[merge] parts[1].visible.reserved: expected 0, got 3", [](CMerge& c) { c.parts[1].visible.reserved[0] = 3; }},
      {"[merge] parts[0].lse: expected 3 dimensions, and 0 for the other sizes, got shape (2, 4, 3, 6)",
       [](CMerge& c) { c.parts[0].lse = c.parts[0].out; }},
      {"[merge] lse: expected dtype f32, got f64", [](CMerge& c) { c.outputs.lse.dtype = KEEL_F64; }},
      {"[merge] parts[1].logit_var: expected dtype f32, got f64",
       [](CMerge& c) { c.parts[1].logit_var.dtype = KEEL_F64; }},
      {"[merge] parts[0].max_weight: expected a view, as max_weight is requested, got none",
       [](CMerge& c) { c.parts[0].max_weight = {}; }},
      {"[merge] heads: expected a pointer to a count of at least 0, got count 8 at null",
       [](CMerge& c) { c.outputs.heads_count = 8; }},
      {"[merge] threads: expected at least 0, got -1", [](CMerge& c) { c.threads = -1; }},
  });
  CMerge without_outputs;
  without_outputs.no_outputs = true;
  EXPECT_EQ(without_outputs(), KEEL_OK);
}

TEST(CErrors, LastErrorIsOfThisThreadAndGoesWithTheNextCall) {
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

}  // namespace
}  // namespace keel
