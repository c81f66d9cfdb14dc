#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string_view>

#include "core/valid_call.h"

// Every message that Problem can raise, in full. One row a refusal in src/core/problem.cc, backward_problem.cc and
// checker.h.
namespace keel {
namespace {

constexpr std::int64_t kHuge = std::int64_t{1} << 40;

template <class Call>
struct Spoilt {
  const char* message;
  void (*spoil)(Call&);
};

// The call works as it stands, and each row of the table makes it fail with that message and nothing written.
template <class Call, std::size_t N>
void expect_messages(const Spoilt<Call> (&table)[N]) {
  EXPECT_NO_THROW(Call()());
  for (const auto& [message, spoil] : table) {
    Call call;
    spoil(call);
    try {
      call();
      ADD_FAILURE() << "expected the error: " << message;
    } catch (const Error& error) {
      EXPECT_STREQ(error.what(), message);
      const bool about_dtype = std::string_view(message).find("dtype") != std::string_view::npos;
      EXPECT_EQ(error.code(), about_dtype ? ErrorCode::wrong_dtype : ErrorCode::invalid_argument) << message;
    }
  }
}

using F = ForwardCall;
using B = BackwardCall;
using M = MergeCall;
using J = JvpCall;
using D = DoubleCall;

TEST(Errors, OfTheTensors) {
  expect_messages<F>({
      {"[attention] q: expected dtype f64, f32, f16 or bf16, got i64", [](F& f) { f.q.dtype = DType::i64; }},
      {"[attention] q: expected dtype f64, f32, f16 or bf16, got bool", [](F& f) { f.q.dtype = DType::boolean; }},
      {"[attention] q: expected dtype f64, f32, f16 or bf16, got unknown",
       [](F& f) { f.q.dtype = static_cast<DType>(77); }},
      {"[attention] q: expected sizes from 0 to 2^40, got shape (2, -4, 3, 8)", [](F& f) { f.q.shape[1] = -4; }},
      {"[attention] k: expected sizes from 0 to 2^40, got shape (2, 2, 1099511627777, 8)",
       [](F& f) { f.k.shape[2] = kHuge + 1; }},
      {"[attention] v: expected sizes from 0 to 2^40, got shape (2, 2, 5, -9223372036854775808)",
       [](F& f) { f.v.shape[3] = std::numeric_limits<std::int64_t>::min(); }},
      {"[attention] k: expected a known dtype, got code 77", [](F& f) { f.k.dtype = static_cast<DType>(77); }},
      {"[attention] v: expected a known dtype, got code 255", [](F& f) { f.v.dtype = static_cast<DType>(255); }},
      {"[attention] k: expected at most 2^56 elements, got shape (2, 2, 1099511627776, 1099511627776)",
       [](F& f) { f.k.shape[2] = f.k.shape[3] = kHuge, f.k.strides = {}; }},
      {"[attention] q: expected elements within 2^60 bytes, got shape (2, 4, 3, 8) with strides "
       "(1152921504606846976, 24, 8, 1)",
       [](F& f) { f.q.strides[0] = std::int64_t{1} << 60; }},
      {"[attention] k: expected elements within 2^60 bytes, got shape (2, 2, 5, 8) with strides "
       "(80, 40, 8, -9223372036854775808)",
       [](F& f) { f.k.strides[3] = std::numeric_limits<std::int64_t>::min(); }},
      {"[attention] k: expected elements within 2^60 bytes, got shape (2, 2, 0, 8) with strides "
       "(9223372036854775807, 40, 8, 1)",
       [](F& f) { f.k.shape[2] = 0, f.k.strides[0] = std::numeric_limits<std::int64_t>::max(); }},
      {"[attention] q: expected a pointer to data of shape (2, 4, 3, 8), got null", [](F& f) { f.q.data = nullptr; }},
      {"[attention] k: expected a pointer to data of shape (2, 2, 5, 8), got null", [](F& f) { f.k.data = nullptr; }},
      {"[attention] v: expected a pointer to data of shape (2, 2, 5, 6), got null", [](F& f) { f.v.data = nullptr; }},
      {"[attention] v: expected data aligned to the 4 bytes of f32, got an address 3 bytes past that",
       [](F& f) { f.v.data = static_cast<const char*>(f.v.data) + 3; }},
      {"[attention] k: expected dtype f32, got f16", [](F& f) { f.k.dtype = DType::f16; }},
      {"[attention] v: expected dtype f32, got bf16", [](F& f) { f.v.dtype = DType::bf16; }},
      {"[attention] q: expected a head size d_k of at least 1, got 0", [](F& f) { f.q.shape[3] = 0; }},
      {"[attention] v: expected a head size d_v of at least 1, got 0", [](F& f) { f.v.shape[3] = 0; }},
      {"[attention] k: expected batch 2 as in q, got 1", [](F& f) { f.k.shape[0] = 1; }},
      {"[attention] k: expected d_k 8 as in q, got 7", [](F& f) { f.k.shape[3] = 7; }},
      {"[attention] v: expected batch 2 as in q, got 1", [](F& f) { f.v.shape[0] = 1; }},
      {"[attention] v: expected 2 heads as in k, got 1", [](F& f) { f.v.shape[1] = 1; }},
      {"[attention] v: expected n_k 5 as in k, got 4", [](F& f) { f.v.shape[2] = 4; }},
      {"[attention] k: expected a number of heads that divides the 3 of q, got 2", [](F& f) { f.q.shape[1] = 3; }},
      {"[attention] k: expected a number of heads that divides the 4 of q, got 0",
       [](F& f) { f.k.shape[1] = f.v.shape[1] = 0; }},
  });
}

TEST(Errors, OfTheOrigin) {
  expect_messages<F>({
      {"[attention] origin.query: expected a position from 0 to 2^40, got -1",
       [](F& f) { f.options.origin.query = -1; }},
      {"[attention] origin.key: expected a position from 0 to 2^40, got 1099511627777",
       [](F& f) { f.options.origin.key = kHuge + 1; }},
      {"[attention] origin.n_q: expected 0, or from origin.query + 3 = 7 to 2^40, got 6",
       [](F& f) { f.options.origin = {.query = 4, .n_q = 6}; }},
      {"[attention] origin.n_k: expected 0, or from origin.key + 5 = 5 to 2^40, got 1099511627777",
       [](F& f) { f.options.origin.n_k = kHuge + 1; }},
      {"[attention] q_lengths: expected lengths from 0 to 7, got 8",
       [](F& f) {
         f.options.origin.query = 4, f.first = {8, 1}, f.options.q_lengths = f.first;
       }},
      {"[attention] k_lengths: expected lengths from 0 to 9, got 10",
       [](F& f) {
         f.options.origin = {.key = 2, .n_k = 9}, f.first = {9, 10}, f.options.k_lengths = f.first;
       }},
  });
}

TEST(Errors, OfLengthsAndOffsets) {
  expect_messages<F>({
      {"[attention] q_lengths: expected a pointer to 2 values, got null",
       [](F& f) {
         f.options.q_lengths = {static_cast<const std::int64_t*>(nullptr), 2};
       }},
      {"[attention] k_lengths: expected a pointer to 2 values, got null",
       [](F& f) {
         f.options.k_lengths = {static_cast<const std::int64_t*>(nullptr), 2};
       }},
      {"[attention] q_lengths: expected one length per batch entry (2), got 3",
       [](F& f) {
         f.first = {1, 2, 3}, f.options.q_lengths = f.first;
       }},
      {"[attention] k_lengths: expected one length per batch entry (2), got 1",
       [](F& f) { f.first = {1}, f.options.k_lengths = f.first; }},
      {"[attention] k_starts: expected one length per batch entry (2), got 1",
       [](F& f) { f.first = {1}, f.options.k_starts = f.first; }},
      {"[attention] k_starts: expected lengths from 0 to 5, got 6",
       [](F& f) {
         f.first = {0, 6}, f.options.k_starts = f.first;
       }},
      {"[attention] k_starts: expected none with k_offsets, got 1",
       [](F& f) { f.pack(), f.offsets = {1}, f.options.k_starts = f.offsets; }},
      {"[attention] q_lengths: expected lengths from 0 to 3, got 4",
       [](F& f) {
         f.first = {3, 4}, f.options.q_lengths = f.first;
       }},
      {"[attention] k_lengths: expected lengths from 0 to 5, got -1",
       [](F& f) {
         f.first = {5, -1}, f.options.k_lengths = f.first;
       }},
      {"[attention] k_offsets: expected as many offsets as in q_offsets (4), got 3",
       [](F& f) { f.pack(), f.options.k_offsets = std::span(f.second).first(3); }},
      {"[attention] k_offsets: expected as many offsets as in q_offsets (4), got 0",
       [](F& f) { f.pack(), f.options.k_offsets = {}; }},
      {"[attention] k_offsets: expected as many offsets as in q_offsets (0), got 4",
       [](F& f) { f.pack(), f.options.q_offsets = {}; }},
      {"[attention] q_lengths: expected none with q_offsets, got 1",
       [](F& f) { f.pack(), f.options.q_lengths = std::span(f.first).first(1); }},
      {"[attention] k_lengths: expected none with k_offsets, got 1",
       [](F& f) { f.pack(), f.options.k_lengths = std::span(f.first).first(1); }},
      {"[attention] q_offsets: expected batch 1 for a packed batch, got 2",
       [](F& f) {
         f.first = {0, 3}, f.second = {0, 5}, f.options.q_offsets = f.first, f.options.k_offsets = f.second;
       }},
      {"[attention] q_offsets: expected a pointer to 4 values, got null",
       [](F& f) {
         f.pack(), f.options.q_offsets = {static_cast<const std::int64_t*>(nullptr), 4};
       }},
      {"[attention] k_offsets: expected a pointer to 4 values, got null",
       [](F& f) {
         f.pack(), f.options.k_offsets = {static_cast<const std::int64_t*>(nullptr), 4};
       }},
      {"[attention] q_offsets: expected the first offset to be 0, got 1", [](F& f) { f.pack(), f.first[0] = 1; }},
      {"[attention] k_offsets: expected the first offset to be 0, got -1", [](F& f) { f.pack(), f.second[0] = -1; }},
      {"[attention] q_offsets: expected non-decreasing offsets, got 1 after 2", [](F& f) { f.pack(), f.first[1] = 2; }},
      {"[attention] k_offsets: expected non-decreasing offsets, got 1 after 2",
       [](F& f) { f.pack(), f.second[2] = 1; }},
      {"[attention] q_offsets: expected the last offset to be the number of rows 3, got 2",
       [](F& f) { f.pack(), f.first[3] = 2; }},
      {"[attention] k_offsets: expected the last offset to be the number of rows 5, got 6",
       [](F& f) { f.pack(), f.second[3] = 6; }},
  });
}

TEST(Errors, OfTheScale) {
  expect_messages<F>({
      {"[attention] scale: expected a finite number, got nan", [](F& f) { f.options.scale = std::nan(""); }},
      {"[attention] scale: expected a finite number, got -inf", [](F& f) { f.options.scale = -HUGE_VAL; }},
      {"[attention] scale_tensor: expected none with the number scale, got both",
       [](F& f) { f.options.scale = 0.5, f.options.scale_tensor = f.more[0].rows(); }},
      {"[attention] scale_tensor: expected dtype f64, f32, f16 or bf16, got i64",
       [](F& f) { f.options.scale_tensor = f.more[0].rows(kRowShape, DType::i64); }},
      {"[attention] scale_tensor: expected a pointer to data of shape (2, 4, 3), got null",
       [](F& f) { f.options.scale_tensor = f.more[0].rows(), f.options.scale_tensor.data = nullptr; }},
      {"[attention] scale_tensor: expected shape (B, H_q, N_q) = (2, 4, 3), or 1 in any dimension, got (2, 2, 3)",
       [](F& f) {
         f.options.scale_tensor = f.more[0].rows({2, 2, 3});
       }},
  });
}

TEST(Errors, OfTheMasks) {
  expect_messages<F>({
      {"[attention] mask: expected dtype bool, got f32", [](F& f) { f.options.mask = f.more[0].tensor(kScoreShape); }},
      {"[attention] mask: expected a pointer to data of shape (2, 4, 3, 5), got null",
       [](F& f) {
         f.options.mask = {nullptr, DType::boolean, kScoreShape, {60, 15, 5, 1}};
       }},
      {"[attention] mask: expected shape (B, H_q, N_q, N_k) = (2, 4, 3, 5), or 1 in any dimension, got (2, 2, 3, 5)",
       [](F& f) {
         f.options.mask = f.more[0].tensor({2, 2, 3, 5}, DType::boolean);
       }},
      {"[attention] mask: expected shape (B, H_q, N_q, N_k) = (2, 4, 3, 5), or 1 in any dimension, got (1, 1, 3, 0)",
       [](F& f) {
         f.options.mask = f.more[0].tensor({1, 1, 3, 0}, DType::boolean);
       }},
      {"[attention] bias: expected dtype f32, got f64",
       [](F& f) { f.options.bias = f.more[0].tensor(kScoreShape, DType::f64); }},
      {"[attention] bias: expected dtype bf16 or f32, got f16",
       [](F& f) {
         f.q.dtype = f.k.dtype = f.v.dtype = f.out.dtype = DType::bf16;
         f.options.bias = f.more[0].tensor(kScoreShape, DType::f16);
       }},
      {"[attention] bias: expected sizes from 0 to 2^40, got shape (-1, 1, 1, 1)",
       [](F& f) {
         f.options.bias = f.more[0].tensor({-1, 1, 1, 1});
       }},
      {"[attention] bias: expected shape (B, H_q, N_q, N_k) = (2, 4, 3, 5), or 1 in any dimension, got (1, 1, 5, 3)",
       [](F& f) {
         f.options.bias = f.more[0].tensor({1, 1, 5, 3});
       }},
      {"[attention] order: expected fixed or free, got code 2", [](F& f) { f.options.order = static_cast<Order>(2); }},
      {"[attention] causal: expected none, top_left or bottom_right, got code 3",
       [](F& f) { f.options.causal = static_cast<Causal>(3); }},
      {"[attention] window.left: expected at least 0 (or kUnbounded), got -1",
       [](F& f) { f.options.window.left = -1; }},
      {"[attention] window.right: expected at least 0 (or kUnbounded), got -7",
       [](F& f) { f.options.window.right = -7; }},
  });
}

// A call with a block mask, which works as it stands.
struct Tiled : ForwardCall {
  Tiled() { options.block_mask = &block_mask; }
};

TEST(Errors, OfABlockMask) {
  using T = Tiled;
  expect_messages<T>({
      {"[attention] block_mask.offsets: expected dtype i64, got f32",
       [](T& t) { t.block_mask.offsets.dtype = DType::f32; }},
      {"[attention] block_mask.blocks: expected dtype i64, got bool",
       [](T& t) { t.block_mask.blocks.dtype = DType::boolean; }},
      {"[attention] block_mask.tiles: expected dtype bool, got f32",
       [](T& t) { t.block_mask.tiles.dtype = DType::f32; }},
      {"[attention] block_mask.offsets: expected a pointer to data of shape (1, 1, 3), got null",
       [](T& t) { t.block_mask.offsets.data = nullptr; }},
      {"[attention] block_mask.tiles: expected tiles of at least 1 row and 1 key, got shape (1, 2, 0)",
       [](T& t) { t.block_mask.tiles.shape[2] = 0; }},
      {"[attention] block_mask.blocks: expected shape (L, 2), got (3, 1)",
       [](T& t) { t.block_mask.blocks.shape[1] = 1; }},
      {"[attention] block_mask.offsets: expected shape (B, H_q, X + 1) = (2, 4, 3) with X = ⌈3/2⌉ blocks of queries, "
       "or "
       "1 for B or H_q, got (1, 2, 3)",
       [](T& t) { t.block_mask.offsets.shape[1] = 2, t.block_mask.offsets.strides[1] = 0; }},
      {"[attention] block_mask.offsets: expected shape (B, H_q, X + 1) = (2, 4, 4) with X = ⌈3/1⌉ blocks of queries, "
       "or "
       "1 for B or H_q, got (1, 1, 3)",
       [](T& t) { t.block_mask.tiles.shape[1] = 1; }},
      {"[attention] block_mask.offsets: expected non-decreasing offsets from 0 to 3, got -1 after 0",
       [](T& t) { t.offsets[0] = -1; }},
      {"[attention] block_mask.offsets: expected non-decreasing offsets from 0 to 3, got 4 after 1",
       [](T& t) { t.offsets[2] = 4; }},
      {"[attention] block_mask.offsets: expected non-decreasing offsets from 0 to 3, got 0 after 1",
       [](T& t) { t.offsets[2] = 0; }},
      {"[attention] block_mask.blocks: expected blocks of keys that ascend from 0 to 1, got -1 in entry 0",
       [](T& t) { t.blocks[0] = -1; }},
      {"[attention] block_mask.blocks: expected blocks of keys that ascend from 1 to 1, got 0 in entry 2",
       [](T& t) { t.blocks[4] = 0; }},
      {"[attention] block_mask.blocks: expected blocks of keys that ascend from 1 to 1, got 2 in entry 2",
       [](T& t) { t.blocks[4] = 2; }},
      {"[attention] block_mask.blocks: expected a tile from 0 to 0, or -1 for a full one, got -2 in entry 0",
       [](T& t) { t.blocks[1] = -2; }},
      {"[attention] block_mask.blocks: expected a tile from 0 to 0, or -1 for a full one, got 1 in entry 2",
       [](T& t) { t.blocks[5] = 1; }},
      {"[attention] out: expected its own memory, got memory that overlaps block_mask.tiles",
       [](T& t) { t.block_mask.tiles.data = t.out.data; }},
  });
}

TEST(Errors, OfARelativeBias) {
  expect_messages<F>({
      {"[attention] relative_bias: expected dtype f32, got i64",
       [](F& f) {
         f.options.relative_bias = {f.more[0].data(), DType::i64, {4, 3}, {3, 1}};
       }},
      {"[attention] relative_bias: expected shape (4, 2R + 1) or (1, 2R + 1), one value per distance, got (4, 2)",
       [](F& f) {
         f.options.relative_bias = table_view(f.more[0].data(), {4, 2});
       }},
      {"[attention] relative_bias: expected shape (4, 2R + 1) or (1, 2R + 1), one value per distance, got (2, 3)",
       [](F& f) {
         f.options.relative_bias = table_view(f.more[0].data(), {2, 3});
       }},
  });
  expect_messages<B>({
      {"[attention_backward] drelative_bias: expected none without a relative_bias, got a view",
       [](B& b) {
         b.gradients.drelative_bias = table_view(b.more.data(), {4, 3});
       }},
      {"[attention_backward] drelative_bias: expected shape (H_q, 2R + 1) = (4, 3), or 1 for H_q, and elements of "
       "their "
       "own, got (4, 5) with strides (5, 1)",
       [](B& b) {
         b.options.relative_bias = table_view(b.bias_block.data(), {4, 3});
         b.gradients.drelative_bias = table_view(b.more.data(), {4, 5});
       }},
      {"[attention_backward] drelative_bias: expected dtype f32, got bool",
       [](B& b) {
         b.options.relative_bias = table_view(b.bias_block.data(), {4, 3});
         b.gradients.drelative_bias = {b.more.data(), DType::boolean, {4, 3}, {3, 1}};
       }},
  });
}

TEST(Errors, OfTheOtherOptions) {
  expect_messages<F>({
      {"[attention] softcap: expected a positive finite number, got 0", [](F& f) { f.options.softcap = 0.0; }},
      {"[attention] softcap: expected a positive finite number, got -2", [](F& f) { f.options.softcap = -2.0; }},
      {"[attention] softcap: expected a positive finite number, got nan",
       [](F& f) { f.options.softcap = std::nan(""); }},
      {"[attention] softcap: expected a positive finite number, got inf", [](F& f) { f.options.softcap = HUGE_VAL; }},
      {"[attention] alibi: expected dtype f64, f32, f16 or bf16, got bool",
       [](F& f) { f.options.alibi = f.more[0].heads(kHq, DType::boolean); }},
      {"[attention] alibi: expected shape (H_q) = (4) or (B, H_q) = (2, 4), got (2)",
       [](F& f) { f.options.alibi = f.more[0].heads(2); }},
      {"[attention] alibi: expected shape (H_q) = (4) or (B, H_q) = (2, 4), got (3, 4)",
       [](F& f) {
         f.options.alibi = table_view(f.more[0].data(), {3, 4});
       }},
      {"[attention] alibi: expected a pointer to data of shape (1, 4), got null",
       [](F& f) { f.options.alibi = f.more[0].heads(), f.options.alibi.data = nullptr; }},
      {"[attention] sinks: expected dtype f64, f32, f16 or bf16, got i64",
       [](F& f) { f.options.sinks = f.more[0].heads(kHq, DType::i64); }},
      {"[attention] sinks: expected shape (H_q) = (4), got (5)", [](F& f) { f.options.sinks = f.more[0].heads(5); }},
      {"[attention] dropout: expected from 0 to 1, got -0.25", [](F& f) { f.options.dropout = -0.25; }},
      {"[attention] dropout: expected from 0 to 1, got 1.5", [](F& f) { f.options.dropout = 1.5; }},
      {"[attention] dropout: expected from 0 to 1, got nan", [](F& f) { f.options.dropout = std::nan(""); }},
      {"[attention] dropout: expected sizes of at most 2^32 with dropout, got q (2, 4, 3, 8), k (2, 2, 4294967297, 8) "
       "of 3 and 4294967297 rows in total",
       [](F& f) {
         f.options.dropout = 0.5;
         f.k.shape[2] = f.v.shape[2] = (std::int64_t{1} << 32) + 1;
         f.k.strides[2] = f.v.strides[2] = 0;
       }},
      {"[attention] threads: expected at least 0, got -1", [](F& f) { f.options.threads = -1; }},
  });
}

TEST(Errors, OfTheOutputs) {
  expect_messages<F>({
      {"[attention] out: expected dtype f32, got f64", [](F& f) { f.out.dtype = DType::f64; }},
      {"[attention] out: expected shape (B, H_q, N_q, d_v) = (2, 4, 3, 6), got (2, 4, 3, 8)",
       [](F& f) {
         f.out = f.out_block.tensor({2, 4, 3, 8});
       }},
      {"[attention] out: expected sizes from 0 to 2^40, got shape (2, 4, 3, -6)", [](F& f) { f.out.shape[3] = -6; }},
      {"[attention] out: expected a pointer to data of shape (2, 4, 3, 6), got null",
       [](F& f) { f.out.data = nullptr; }},
      {"[attention] out: expected shape (B, H_q, N_q, d_v) = (2, 4, 3, 6), got none", [](F& f) { f.out = {}; }},
      {"[attention] out: expected strides that keep elements apart, got (72, 18, 5, 1) for shape (2, 4, 3, 6)",
       [](F& f) { f.out.strides[2] = 5; }},
      {"[attention] out: expected strides that keep elements apart, got (72, 0, 6, 1) for shape (2, 4, 3, 6)",
       [](F& f) { f.out.strides[1] = 0; }},
      {"[attention] lse: expected dtype f32, got f64",
       [](F& f) { f.outputs.lse = f.more[0].rows(kRowShape, DType::f64); }},
      {"[attention] lse: expected shape (B, H_q, N_q) = (2, 4, 3), got (2, 4, 1)",
       [](F& f) {
         f.outputs.lse = f.more[0].rows({2, 4, 1});
       }},
      {"[attention] lse: expected strides that keep elements apart, got (0, 3, 1) for shape (2, 4, 3)",
       [](F& f) { f.outputs.lse = f.more[0].rows(), f.outputs.lse.strides[0] = 0; }},
      {"[attention] max_logit: expected dtype f32, got bf16",
       [](F& f) { f.outputs.max_logit = f.more[0].rows(kRowShape, DType::bf16); }},
      {"[attention] entropy: expected shape (B, H_q, N_q) = (2, 4, 3), got (1, 1, 1)",
       [](F& f) {
         f.outputs.entropy = f.more[0].rows({1, 1, 1});
       }},
      {"[attention] max_weight: expected dtype f32, got f16",
       [](F& f) { f.outputs.max_weight = f.more[0].rows(kRowShape, DType::f16); }},
      {"[attention] logit_mean: expected a pointer to data of shape (2, 4, 3), got null",
       [](F& f) { f.outputs.logit_mean = f.more[0].rows(), f.outputs.logit_mean.data = nullptr; }},
      {"[attention] logit_var: expected dtype f32, got i64",
       [](F& f) { f.outputs.logit_var = f.more[0].rows(kRowShape, DType::i64); }},
      {"[attention] visible: expected dtype i64, got f32", [](F& f) { f.outputs.visible = f.more[0].rows(); }},
      {"[attention] logit_count: expected dtype i64, got f32", [](F& f) { f.outputs.logit_count = f.more[0].rows(); }},
      {"[attention] weights: expected dtype f32, got f64",
       [](F& f) { f.outputs.weights = f.more[0].tensor(kScoreShape, DType::f64); }},
      {"[attention] weights: expected shape (B, H_q, N_q, N_k) = (2, 4, 3, 5), got (2, 1, 3, 5)",
       [](F& f) {
         f.outputs.weights = f.more[0].tensor({2, 1, 3, 5});
       }},
      {"[attention] heads: expected 2 entries × 4 heads, got 7",
       [](F& f) { f.outputs.heads = std::span(f.head_list).first(7); }},
      {"[attention] heads: expected a pointer to 8 values, got null",
       [](F& f) {
         f.outputs.heads = {static_cast<HeadStatistics*>(nullptr), 8};
       }},
      {"[attention] heads: expected 3 entries × 4 heads, got 8", [](F& f) { f.pack(), f.outputs.heads = f.head_list; }},
      {"[attention] key_sums: expected dtype f32, got f64",
       [](F& f) {
         f.outputs.key_sums = f.more[0].rows({kB, kHq, kNk}, DType::f64);
       }},
      {"[attention] key_sums: expected shape (B, H_q, N_k) = (2, 4, 5), got (2, 4, 3)",
       [](F& f) { f.outputs.key_sums = f.more[0].rows(); }},
      {"[attention] scores: expected dtype f32, got f64",
       [](F& f) { f.outputs.scores = f.more[0].tensor(kScoreShape, DType::f64); }},
      {"[attention] scores: expected shape (B, H_q, N_q, N_k) = (2, 4, 3, 5), got (2, 4, 3, 1)",
       [](F& f) {
         f.outputs.scores = f.more[0].tensor({2, 4, 3, 1});
       }},
      {"[attention] score_stage: expected raw, capped or masked, got code 3",
       [](F& f) { f.outputs.score_stage = static_cast<ScoreStage>(3); }},
      {"[attention] key_sum_rows: expected at least 0, got -1", [](F& f) { f.outputs.key_sum_rows = -1; }},
      {"[attention] saturation_threshold: expected from 0 to 1, got 1.25",
       [](F& f) { f.outputs.saturation_threshold = 1.25; }},
      {"[attention] saturation_threshold: expected from 0 to 1, got nan",
       [](F& f) { f.outputs.saturation_threshold = std::nan(""); }},
  });
}

TEST(Errors, OfSharedMemory) {
  expect_messages<F>({
      {"[attention] out: expected its own memory, got memory that overlaps q",
       [](F& f) { f.out.data = const_cast<void*>(f.q.data); }},
      {"[attention] out: expected its own memory, got memory that overlaps k",
       [](F& f) { f.out.data = f.k_block.data() + 2 * 2 * 5 * 8 - 1; }},
      {"[attention] lse: expected its own memory, got memory that overlaps out",
       [](F& f) { f.outputs.lse = f.out_block.rows(); }},
      {"[attention] entropy: expected its own memory, got memory that overlaps lse",
       [](F& f) { f.outputs.lse = f.outputs.entropy = f.more[0].rows(); }},
      {"[attention] key_sums: expected its own memory, got memory that overlaps k",
       [](F& f) {
         f.outputs.key_sums = f.k_block.rows({kB, kHq, kNk});
       }},
      {"[attention] scores: expected its own memory, got memory that overlaps weights",
       [](F& f) { f.outputs.scores = f.outputs.weights = f.more[0].tensor(kScoreShape); }},
      {"[attention] weights: expected its own memory, got memory that overlaps bias",
       [](F& f) { f.options.bias = f.outputs.weights = f.more[0].tensor(kScoreShape); }},
      {"[attention] out: expected its own memory, got memory that overlaps mask",
       [](F& f) {
         f.options.mask = f.out_block.tensor({1, 1, 1, 1}, DType::boolean);
       }},
      {"[attention] out: expected its own memory, got memory that overlaps sinks",
       [](F& f) { f.options.sinks = f.out_block.heads(); }},
      {"[attention] visible: expected its own memory, got memory that overlaps k_lengths",
       [](F& f) {
         f.first.assign(24, 1);
         f.options.k_lengths = std::span(f.first).first(2);
         f.outputs.visible = row_view(f.first.data(), kRowShape);
       }},
      {"[attention] out: expected its own memory, got memory that overlaps q_offsets",
       [](F& f) {
         f.pack();
         auto* const offsets = reinterpret_cast<std::int64_t*>(f.out_block.data() + 4);
         std::copy(f.first.begin(), f.first.end(), offsets);
         f.options.q_offsets = {offsets, 4};
       }},
      {"[attention] heads: expected its own memory, got memory that overlaps lse",
       [](F& f) {
         f.outputs.heads = f.head_list;
         f.outputs.lse = {f.head_list.data(), DType::f32, kRowShape, contiguous_strides(kRowShape)};
       }},
  });
}

TEST(Errors, OfTheBackwardPass) {
  expect_messages<B>({
      {"[attention_backward] q: expected dtype f64, f32, f16 or bf16, got bool",
       [](B& b) { b.inputs.q.dtype = DType::boolean; }},
      {"[attention_backward] dropout: expected from 0 to 1, got 2", [](B& b) { b.options.dropout = 2.0; }},
      {"[attention_backward] out: expected dtype f32, got f16", [](B& b) { b.inputs.out.dtype = DType::f16; }},
      {"[attention_backward] out: expected a pointer to data of shape (2, 4, 3, 6), got null",
       [](B& b) { b.inputs.out.data = nullptr; }},
      {"[attention_backward] out: expected shape (B, H_q, N_q, d_v) = (2, 4, 3, 6), got none",
       [](B& b) { b.inputs.out = {}; }},
      {"[attention_backward] lse: expected dtype f32, got f64", [](B& b) { b.inputs.lse.dtype = DType::f64; }},
      {"[attention_backward] lse: expected shape (B, H_q, N_q) = (2, 4, 3), got (2, 4, 1)",
       [](B& b) { b.inputs.lse.shape[2] = 1; }},
      {"[attention_backward] lse: expected shape (B, H_q, N_q) = (2, 4, 3), got none", [](B& b) { b.inputs.lse = {}; }},
      {"[attention_backward] dout: expected dtype f32, got bf16", [](B& b) { b.inputs.dout.dtype = DType::bf16; }},
      {"[attention_backward] dout: expected shape (B, H_q, N_q, d_v) = (2, 4, 3, 6), got (2, 4, 3, 5)",
       [](B& b) { b.inputs.dout.shape[3] = 5; }},
      {"[attention_backward] dlse: expected dtype f32, got i64", [](B& b) { b.inputs.dlse.dtype = DType::i64; }},
      {"[attention_backward] dlse: expected shape (B, H_q, N_q) = (2, 4, 3), got (1, 4, 3)",
       [](B& b) { b.inputs.dlse.shape[0] = 1; }},
      {"[attention_backward] dq: expected dtype f32, got f64", [](B& b) { b.gradients.dq.dtype = DType::f64; }},
      {"[attention_backward] dq: expected shape of q = (2, 4, 3, 8), got (2, 4, 3, 7)",
       [](B& b) { b.gradients.dq.shape[3] = 7; }},
      {"[attention_backward] dk: expected shape of k = (2, 2, 5, 8), got (2, 4, 5, 8)",
       [](B& b) {
         b.gradients.dk = b.gradient_blocks[1].tensor({2, 4, 5, 8});
       }},
      {"[attention_backward] dv: expected shape of v = (2, 2, 5, 6), got (2, 2, 4, 6)",
       [](B& b) { b.gradients.dv.shape[2] = 4; }},
      {"[attention_backward] dk: expected strides that keep elements apart, got (80, 0, 8, 1) for shape (2, 2, 5, 8)",
       [](B& b) { b.gradients.dk.strides[1] = 0; }},
      {"[attention_backward] dbias: expected none without a bias, got a view", [](B& b) { b.options.bias = {}; }},
      {"[attention_backward] dbias: expected dtype f32, got f16", [](B& b) { b.gradients.dbias.dtype = DType::f16; }},
      {"[attention_backward] dbias: expected shape (B, H_q, N_q, N_k) = (2, 4, 3, 5), or 1 in any dimension, got "
       "(2, 2, 3, 5)",
       [](B& b) { b.gradients.dbias.shape[1] = 2; }},
      {"[attention_backward] dbias: expected strides that keep elements apart, got (60, 15, 3, 1) for shape "
       "(2, 4, 3, 5)",
       [](B& b) { b.gradients.dbias.strides[2] = 3; }},
      {"[attention_backward] dscale: expected dtype f64, f32, f16 or bf16, got i64",
       [](B& b) { b.gradients.dscale.dtype = DType::i64; }},
      {"[attention_backward] dscale: expected shape (B, H_q, N_q) = (2, 4, 3), or 1 in any dimension, got (2, 4, 2)",
       [](B& b) { b.gradients.dscale.shape[2] = 2; }},
      {"[attention_backward] dscale: expected a pointer to data of shape (2, 4, 3), got null",
       [](B& b) { b.gradients.dscale.data = nullptr; }},
      {"[attention_backward] dsinks: expected none without sinks, got a view", [](B& b) { b.options.sinks = {}; }},
      {"[attention_backward] dsinks: expected dtype f64, f32, f16 or bf16, got bool",
       [](B& b) { b.gradients.dsinks.dtype = DType::boolean; }},
      {"[attention_backward] dsinks: expected shape (H_q) = (4), got (2)",
       [](B& b) { b.gradients.dsinks.shape[0] = 2; }},
      {"[attention_backward] dsinks: expected strides that keep elements apart, got (0) for shape (4)",
       [](B& b) { b.gradients.dsinks.strides[0] = 0; }},
      {"[attention_backward] dq: expected its own memory, got memory that overlaps q",
       [](B& b) { b.gradients.dq.data = const_cast<void*>(b.inputs.q.data); }},
      {"[attention_backward] dv: expected its own memory, got memory that overlaps dk",
       [](B& b) { b.gradients.dv.data = b.gradients.dk.data; }},
      {"[attention_backward] dbias: expected its own memory, got memory that overlaps bias",
       [](B& b) { b.gradients.dbias.data = const_cast<void*>(b.options.bias.data); }},
  });
}

TEST(Errors, OfTheTangents) {
  expect_messages<J>({
      {"[attention_jvp] k: expected d_k 8 as in q, got 7", [](J& j) { j.inputs.k.shape[3] = 7; }},
      {"[attention_jvp] out: expected shape (B, H_q, N_q, d_v) = (2, 4, 3, 6), got (2, 4, 3, 5)",
       [](J& j) { j.inputs.out.shape[3] = 5; }},
      {"[attention_jvp] lse: expected dtype f32, got f64", [](J& j) { j.inputs.lse.dtype = DType::f64; }},
      {"[attention_jvp] tq: expected dtype f32, got f64", [](J& j) { j.tangents.tq.dtype = DType::f64; }},
      {"[attention_jvp] tk: expected shape of k = (2, 2, 5, 8), got (2, 2, 4, 8)",
       [](J& j) { j.tangents.tk.shape[2] = 4; }},
      {"[attention_jvp] tv: expected a pointer to data of shape (2, 2, 5, 6), got null",
       [](J& j) { j.tangents.tv.data = nullptr; }},
      {"[attention_jvp] tbias: expected none without a bias, got a view", [](J& j) { j.options.bias = {}; }},
      {"[attention_jvp] tbias: expected dtype f32, got f16", [](J& j) { j.tangents.tbias.dtype = DType::f16; }},
      {"[attention_jvp] tbias: expected shape (B, H_q, N_q, N_k) = (2, 4, 3, 5), or 1 in any dimension, got "
       "(2, 2, 3, 5)",
       [](J& j) { j.tangents.tbias.shape[1] = 2; }},
      {"[attention_jvp] tscale: expected dtype f64, f32, f16 or bf16, got i64",
       [](J& j) { j.tangents.tscale.dtype = DType::i64; }},
      {"[attention_jvp] tscale: expected shape (B, H_q, N_q) = (2, 4, 3), or 1 in any dimension, got (2, 4, 2)",
       [](J& j) { j.tangents.tscale.shape[2] = 2; }},
      {"[attention_jvp] tsinks: expected none without sinks, got a view", [](J& j) { j.options.sinks = {}; }},
      {"[attention_jvp] tsinks: expected shape (H_q) = (4), got (2)", [](J& j) { j.tangents.tsinks.shape[0] = 2; }},
      {"[attention_jvp] tout: expected dtype f32, got bf16", [](J& j) { j.outputs.tout.dtype = DType::bf16; }},
      {"[attention_jvp] tout: expected strides that keep elements apart, got (72, 18, 0, 1) for shape (2, 4, 3, 6)",
       [](J& j) { j.outputs.tout.strides[2] = 0; }},
      {"[attention_jvp] tlse: expected shape (B, H_q, N_q) = (2, 4, 3), got (2, 4, 2)",
       [](J& j) { j.outputs.tlse.shape[2] = 2; }},
      {"[attention_jvp] tout: expected its own memory, got memory that overlaps out",
       [](J& j) { j.outputs.tout.data = const_cast<void*>(j.inputs.out.data); }},
  });
}

TEST(Errors, OfDoubleBackward) {
  expect_messages<D>({
      {"[attention_double_backward] dout: expected dtype f32, got i64", [](D& d) { d.inputs.dout.dtype = DType::i64; }},
      {"[attention_double_backward] tq: expected shape of q = (2, 4, 3, 8), got (2, 4, 3, 6)",
       [](D& d) { d.tangents.tq.shape[3] = 6; }},
      {"[attention_double_backward] dk: expected shape of k = (2, 2, 5, 8), got (2, 2, 5, 7)",
       [](D& d) { d.gradients.dk.shape[3] = 7; }},
      {"[attention_double_backward] drelative_bias: expected none, as second derivatives of a relative_bias are not "
       "computed, got a view",
       [](D& d) {
         d.options.relative_bias = {d.inputs.q.data, DType::f32, {4, 3}, {3, 1}};
         d.gradients.drelative_bias = {d.tangent_block.data(), DType::f32, {4, 3}, {3, 1}};
       }},
      {"[attention_double_backward] ddout: expected shape (B, H_q, N_q, d_v) = (2, 4, 3, 6), got (2, 4, 3, 5)",
       [](D& d) { d.second.ddout.shape[3] = 5; }},
      {"[attention_double_backward] ddlse: expected dtype f32, got f64",
       [](D& d) { d.second.ddlse.dtype = DType::f64; }},
      {"[attention_double_backward] origin: expected all keys here, got 5 from 2 of 9",
       [](D& d) { d.options.origin = {.key = 2, .n_k = 9}; }},
      {"[attention_double_backward] ddout: expected its own memory, got memory that overlaps dout",
       [](D& d) { d.second.ddout.data = const_cast<void*>(d.inputs.dout.data); }},
  });
}

// A gradient that is summed over a dimension has memory even where the problem has no row.
TEST(Errors, OfASummedGradientWithoutRows) {
  BackwardCall b;
  b.inputs.q.shape[2] = b.inputs.out.shape[2] = b.inputs.lse.shape[2] = b.inputs.dout.shape[2] = 0;
  b.inputs.dlse = {};
  b.gradients = {.dscale = b.gradient_blocks[4].rows({1, 4, 1})};
  b.options = {};
  EXPECT_NO_THROW(b());
  b.gradients.dscale.data = nullptr;
  try {
    b();
    ADD_FAILURE();
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(), "[attention_backward] dscale: expected a pointer to data of shape (1, 4, 1), got null");
  }
}

TEST(Errors, OfMerge) {
  expect_messages<M>({
      {"[merge] parts: expected at least one, got none", [](M& m) { m.parts.clear(); }},
      {"[merge] out: expected dtype f64, f32, f16 or bf16, got i64", [](M& m) { m.out.dtype = DType::i64; }},
      {"[merge] out: expected strides that keep elements apart, got (72, 18, 6, 0) for shape (2, 4, 3, 6)",
       [](M& m) { m.out.strides[3] = 0; }},
      {"[merge] parts[1].out: expected dtype f32 or f16 or bf16, got f64",
       [](M& m) { m.parts[1].out.dtype = DType::f64; }},
      {"[merge] parts[0].out: expected dtype bf16 or f32, got f16",
       [](M& m) { m.out.dtype = DType::bf16, m.parts[0].out.dtype = DType::f16; }},
      {"[merge] parts[0].out: expected a pointer to data of shape (2, 4, 3, 6), got null",
       [](M& m) { m.parts[0].out.data = nullptr; }},
      {"[merge] parts[1].out: expected shape of out = (2, 4, 3, 6), got (2, 4, 3, 5)",
       [](M& m) { m.parts[1].out.shape[3] = 5; }},
      {"[merge] parts[1].lse: expected dtype f32, got f64", [](M& m) { m.parts[1].lse.dtype = DType::f64; }},
      {"[merge] parts[0].lse: expected shape (B, H, N_q) = (2, 4, 3), got (2, 4, 1)",
       [](M& m) { m.parts[0].lse.shape[2] = 1; }},
      {"[merge] parts[0].lse: expected shape (B, H, N_q) = (2, 4, 3), got none", [](M& m) { m.parts[0].lse = {}; }},
      {"[merge] parts[1].visible: expected dtype i64, got f32", [](M& m) { m.parts[1].visible.dtype = DType::f32; }},
      {"[merge] parts[0].entropy: expected shape (B, H, N_q) = (2, 4, 3), got (2, 4, 2)",
       [](M& m) { m.outputs.entropy = {}, m.parts[0].entropy.shape[2] = 2; }},  // given, if not needed
      {"[merge] lse: expected dtype f32, got f16", [](M& m) { m.outputs.lse.dtype = DType::f16; }},
      {"[merge] lse: expected shape (B, H, N_q) = (2, 4, 3), got (2, 3, 4)",
       [](M& m) {
         m.outputs.lse = m.row_blocks[0].rows({2, 3, 4});
       }},
      {"[merge] visible: expected dtype i64, got f64", [](M& m) { m.outputs.visible.dtype = DType::f64; }},
      {"[merge] weights: expected none, as weights cannot be merged, got shape (2, 4, 3, 5)",
       [](M& m) { m.outputs.weights = m.part_blocks[0][0].tensor(kScoreShape); }},
      {"[merge] scores: expected none, as they cannot be merged, got shape (2, 4, 3, 5)",
       [](M& m) { m.outputs.scores = m.part_blocks[0][0].tensor(kScoreShape); }},
      {"[merge] key_sums: expected none, as they cannot be merged, got shape (2, 4, 5)",
       [](M& m) {
         m.outputs.key_sums = m.part_blocks[0][0].rows({kB, kHq, kNk});
       }},
      {"[merge] heads: expected none, as they cannot be merged, got 8", [](M& m) { m.outputs.heads = m.heads; }},
      {"[merge] threads: expected at least 0, got -2", [](M& m) { m.threads = -2; }},
  });
}

TEST(Errors, OfStatisticsThatAPartOfAMergeLacks) {
  expect_messages<M>({
      {"[merge] parts[1].max_logit: expected a view, as max_logit is requested, got none",
       [](M& m) { m.parts[1].max_logit = {}; }},
      {"[merge] parts[0].entropy: expected a view, as entropy is requested, got none",
       [](M& m) { m.parts[0].entropy = {}; }},
      {"[merge] parts[1].max_weight: expected a view, as max_weight is requested, got none",
       [](M& m) { m.parts[1].max_weight = {}; }},
      {"[merge] parts[1].logit_mean: expected a view, as logit_mean is requested, got none",
       [](M& m) { m.parts[1].logit_mean = {}; }},
      {"[merge] parts[1].logit_mean: expected a view, as logit_var is requested, got none",
       [](M& m) { m.outputs.logit_mean = {}, m.parts[1].logit_mean = {}; }},
      {"[merge] parts[0].logit_var: expected a view, as logit_var is requested, got none",
       [](M& m) { m.parts[0].logit_var = {}; }},
      {"[merge] parts[0].visible: expected a view, as visible is requested, got none",
       [](M& m) { m.parts[0].visible = {}; }},
      {"[merge] parts[0].logit_count: expected a view, as logit_count is requested, got none",
       [](M& m) { m.parts[0].logit_count = {}; }},
      {"[merge] parts[0].logit_count: expected a view, as logit_mean is requested, got none",
       [](M& m) { m.outputs.logit_count = {}, m.parts[0].logit_count = {}; }},
      {"[merge] parts[0].logit_count: expected a view, as logit_var is requested, got none",
       [](M& m) { m.outputs.logit_count = m.outputs.logit_mean = {}, m.parts[0].logit_count = {}; }},
  });
  M m;
  m.outputs = {};
  for (Partial& part : m.parts) part = {.out = part.out, .lse = part.lse};
  EXPECT_NO_THROW(m());
}

TEST(Errors, OfMergeInPlaceOfAnythingButTheSameViewOfAPart) {
  expect_messages<M>({
      {"[merge] out: expected its own memory, got memory that overlaps parts[1].out",
       [](M& m) { m.parts[1].out.data = m.out_block.data() + 1; }},
      {"[merge] out: expected its own memory, got memory that overlaps parts[1].out",
       [](M& m) {
         m.parts[1].out.data = m.out.data;
         m.parts[1].out.strides = {72, 18, 1, 3};
       }},
      {"[merge] out: expected its own memory, got memory that overlaps parts[0].out",
       [](M& m) {
         m.parts[0].out.data = m.out.data;
         m.parts[0].out.dtype = DType::bf16;
       }},
      {"[merge] lse: expected its own memory, got memory that overlaps parts[0].entropy",
       [](M& m) { m.outputs.lse.data = m.part_blocks[0][3].data(); }},
      {"[merge] entropy: expected its own memory, got memory that overlaps parts[1].entropy",
       [](M& m) { m.outputs.entropy.data = m.part_blocks[1][3].data() + 2; }},
      {"[merge] lse: expected its own memory, got memory that overlaps out",
       [](M& m) { m.outputs.lse.data = m.out.data; }},
  });
  M m;
  m.out.data = m.part_blocks[1][0].data();
  m.outputs.lse.data = m.part_blocks[1][1].data();
  m.outputs.visible.data = m.part_blocks[0][7].data();
  EXPECT_NO_THROW(m());
}

TEST(Errors, OfExplainAreThoseOfAttentionWithoutThePointers) {
  ForwardCall f;
  f.q.data = f.k.data = f.v.data = nullptr;
  f.out.data = nullptr;
  EXPECT_NO_THROW(explain(f.q, f.k, f.v, f.out, f.options, f.outputs));
  f.k.shape[3] = 7;
  try {
    static_cast<void>(explain(f.q, f.k, f.v, f.out, f.options, f.outputs));
    ADD_FAILURE();
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(), "[attention] k: expected d_k 8 as in q, got 7");
  }
}

TEST(Errors, OfExplainIncludeListsThatCannotBeRead) {
  ForwardCall f;
  const std::int64_t values[3] = {};
  f.options.k_lengths = {values, static_cast<std::size_t>(f.q.shape[0])};
  EXPECT_NO_THROW(explain(f.q, f.k, f.v, f.out, f.options, f.outputs));
  f.options.k_lengths.data = reinterpret_cast<const std::byte*>(values) + 1;
  try {
    static_cast<void>(explain(f.q, f.k, f.v, f.out, f.options, f.outputs));
    ADD_FAILURE();
  } catch (const Error& error) {
    EXPECT_STREQ(
        error.what(),
        "[attention] k_lengths: expected data aligned to the 8 bytes of i64, got an address 1 bytes past that");
  }
}

TEST(Errors, LeaveTheOutputsUntouched) {
  ForwardCall f;
  for (std::int64_t i = 0; i < 1024; ++i) f.out_block.data()[i] = 42.0f;
  f.options.threads = -1;
  EXPECT_THROW(f(), Error);
  for (std::int64_t i = 0; i < 1024; ++i) EXPECT_EQ(f.out_block.data()[i], 42.0f);
}

}  // namespace
}  // namespace keel
