#pragma once

#include <array>
#include <vector>

#include "keel/attention.h"

// Calls that are valid as they stand; a test spoils one thing and reads the message.
namespace keel {

using Sizes4 = std::array<std::int64_t, 4>;
using Sizes3 = std::array<std::int64_t, 3>;

constexpr std::int64_t kB = 2, kHq = 4, kHkv = 2, kNq = 3, kNk = 5, kDk = 8, kDv = 6;
constexpr Sizes4 kQShape = {kB, kHq, kNq, kDk}, kKShape = {kB, kHkv, kNk, kDk}, kVShape = {kB, kHkv, kNk, kDv},
                 kOutShape = {kB, kHq, kNq, kDv}, kScoreShape = {kB, kHq, kNq, kNk};
constexpr Sizes3 kRowShape = {kB, kHq, kNq};

// Memory for views of f32 (or less) of any of these shapes.
struct Block {
  std::vector<double> memory = std::vector<double>(512);

  float* data() { return reinterpret_cast<float*>(memory.data()); }
  MutableTensorView tensor(const Sizes4& shape, DType dtype = DType::f32) {
    return {memory.data(), dtype, shape, contiguous_strides(shape)};
  }
  MutableRowView rows(const Sizes3& shape = kRowShape, DType dtype = DType::f32) {
    return {memory.data(), dtype, shape, contiguous_strides(shape)};
  }
  MutableHeadView heads(std::int64_t count = kHq, DType dtype = DType::f32) {
    return {memory.data(), dtype, {count}, {1}};
  }
};

struct ForwardCall {
  Block q_block, k_block, v_block, out_block, more[8];  // more: for options and outputs a test adds
  std::vector<HeadStatistics> head_list = std::vector<HeadStatistics>(kB * kHq);
  TensorView q = q_block.tensor(kQShape), k = k_block.tensor(kKShape), v = v_block.tensor(kVShape);
  MutableTensorView out = out_block.tensor(kOutShape);
  Options options;
  Outputs outputs;
  std::vector<std::int64_t> first, second;  // for lengths and offsets

  // A block mask of tiles of 2 rows by 3 keys for all heads, one of them stored.
  std::vector<std::int64_t> offsets = {0, 1, 3}, blocks = {0, -1, 0, -1, 1, 0};
  std::vector<std::uint8_t> tiles = std::vector<std::uint8_t>(6, 1);
  BlockMask block_mask = {.offsets = {offsets.data(), DType::i64, {1, 1, 3}, {3, 3, 1}},
                          .blocks = {blocks.data(), DType::i64, {3, 2}, {2, 1}},
                          .tiles = {tiles.data(), DType::boolean, {1, 2, 3}, {6, 3, 1}}};
  ForwardCall() = default;
  ForwardCall(const ForwardCall&) = delete;

  void operator()() const { attention(q, k, v, out, options, outputs); }

  // A packed call of batch 1 with three entries.
  void pack() {
    q = q_block.tensor({1, kHq, kNq, kDk});
    k = k_block.tensor({1, kHkv, kNk, kDk});
    v = v_block.tensor({1, kHkv, kNk, kDv});
    out = out_block.tensor({1, kHq, kNq, kDv});
    first = {0, 1, 1, kNq};
    second = {0, 2, 4, kNk};
    options.q_offsets = first;
    options.k_offsets = second;
  }
};

struct BackwardCall {
  Block blocks[7], gradient_blocks[6], bias_block, sink_block, more;
  BackwardInputs inputs = {.q = blocks[0].tensor(kQShape),
                           .k = blocks[1].tensor(kKShape),
                           .v = blocks[2].tensor(kVShape),
                           .out = blocks[3].tensor(kOutShape),
                           .lse = blocks[4].rows(),
                           .dout = blocks[5].tensor(kOutShape),
                           .dlse = blocks[6].rows()};
  Gradients gradients = {.dq = gradient_blocks[0].tensor(kQShape),
                         .dk = gradient_blocks[1].tensor(kKShape),
                         .dv = gradient_blocks[2].tensor(kVShape),
                         .dbias = gradient_blocks[3].tensor(kScoreShape),
                         .dscale = gradient_blocks[4].rows(),
                         .dsinks = gradient_blocks[5].heads()};
  Options options = {.bias = bias_block.tensor(kScoreShape), .sinks = sink_block.heads()};

  void operator()() const { attention_backward(inputs, gradients, options); }
};

struct JvpCall {
  Block blocks[5], tangent_blocks[6], out_block, lse_block, bias_block, sink_block;
  JvpInputs inputs = {.q = blocks[0].tensor(kQShape),
                      .k = blocks[1].tensor(kKShape),
                      .v = blocks[2].tensor(kVShape),
                      .out = blocks[3].tensor(kOutShape),
                      .lse = blocks[4].rows()};
  Tangents tangents = {.tq = tangent_blocks[0].tensor(kQShape),
                       .tk = tangent_blocks[1].tensor(kKShape),
                       .tv = tangent_blocks[2].tensor(kVShape),
                       .tbias = tangent_blocks[3].tensor(kScoreShape),
                       .tscale = tangent_blocks[4].rows(),
                       .tsinks = tangent_blocks[5].heads()};
  JvpOutputs outputs = {.tout = out_block.tensor(kOutShape), .tlse = lse_block.rows()};
  Options options = {.bias = bias_block.tensor(kScoreShape), .sinks = sink_block.heads()};

  void operator()() const { attention_jvp(inputs, tangents, outputs, options); }
};

struct DoubleCall : BackwardCall {
  Block tangent_block, out_block, lse_block;
  Tangents tangents = {.tq = tangent_block.tensor(kQShape)};
  DoubleGradients second = {.ddout = out_block.tensor(kOutShape), .ddlse = lse_block.rows()};

  void operator()() {
    second.gradients = gradients;
    attention_double_backward(inputs, tangents, second, options);
  }
};

struct MergeCall {
  Block part_blocks[2][9], out_block, row_blocks[8];
  std::vector<Partial> parts = {part(0), part(1)};
  MutableTensorView out = out_block.tensor(kOutShape);
  Outputs outputs = {.lse = row_blocks[0].rows(),
                     .max_logit = row_blocks[1].rows(),
                     .entropy = row_blocks[2].rows(),
                     .max_weight = row_blocks[3].rows(),
                     .logit_mean = row_blocks[4].rows(),
                     .logit_var = row_blocks[5].rows(),
                     .visible = row_blocks[6].rows(kRowShape, DType::i64),
                     .logit_count = row_blocks[7].rows(kRowShape, DType::i64)};
  int threads = 0;
  std::vector<HeadStatistics> heads = std::vector<HeadStatistics>(kB * kHq);  // for a test that asks for them

  void operator()() const { merge(parts, out, outputs, threads); }

 private:
  Partial part(int i) {
    Block* const blocks = part_blocks[i];
    return {.out = blocks[0].tensor(kOutShape),
            .lse = blocks[1].rows(),
            .max_logit = blocks[2].rows(),
            .entropy = blocks[3].rows(),
            .max_weight = blocks[4].rows(),
            .logit_mean = blocks[5].rows(),
            .logit_var = blocks[6].rows(),
            .visible = blocks[7].rows(kRowShape, DType::i64),
            .logit_count = blocks[8].rows(kRowShape, DType::i64)};
  }
};

}  // namespace keel
