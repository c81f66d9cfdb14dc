#include "conformance/slices.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <vector>

#include "conformance/blocks.h"
#include "conformance/dense.h"
#include "conformance/generator.h"
#include "conformance/merge.h"
#include "core/element.h"
#include "core/slice.h"
#include "reference/row.h"

namespace keel::conformance {
namespace {

struct Cut {
  std::int64_t begin, end;
};

// [0, n) in one to three slices, some of which may be empty.
std::vector<Cut> cuts(Generator& random, std::int64_t n) {
  std::vector<std::int64_t> at = {0, n};
  for (std::int64_t more = random.integer(0, 2); more > 0; --more) at.push_back(random.integer(0, n));
  std::sort(at.begin(), at.end());
  std::vector<Cut> result;
  for (std::size_t i = 0; i + 1 < at.size(); ++i) result.push_back({at[i], at[i + 1]});
  return result;
}

template <std::size_t Rank, class Pointer>
BasicView<Rank, Pointer> slice(const BasicView<Rank, Pointer>& x, std::size_t dimension, const Cut& cut,
                               std::int64_t full) {
  return keel::slice(x, dimension, cut.begin, cut.end, full);
}

// Memory of a call's results, in the type that sums are kept in.
struct Part {
  std::vector<std::vector<std::byte>> memory;
  MutableTensorView out;
  Outputs outputs;

  template <std::size_t Rank>
  BasicView<Rank, void*> array(DType dtype, const std::array<std::int64_t, Rank>& shape) {
    std::int64_t count = 1;
    for (const std::int64_t n : shape) count *= n;
    auto& bytes = memory.emplace_back(static_cast<std::size_t>(count * size_of(dtype) + 8));
    return {bytes.data(), dtype, shape, contiguous_strides(shape)};
  }
};

// Everything that merging may need.
Part make_part(const MutableTensorView& out) {
  Part part;
  const DType sums = accumulation_dtype(out.dtype);
  const std::array<std::int64_t, 3> rows = {out.shape[0], out.shape[1], out.shape[2]};
  part.out = part.array(sums, out.shape);
  for (std::size_t s = 0; s < kRowStatisticCount; ++s) {
    part.outputs.*kRowStatistics[s].result = part.array(is_count(s) ? DType::i64 : sums, rows);
  }
  return part;
}

Partial partial_of(const Part& part) {
  Partial views{.out = part.out};
  for (const RowStatistic& x : kRowStatistics) views.*x.part = part.outputs.*x.result;
  return views;
}

// A sink belongs to no key. It is a part of its own, for the rows that see any key.
Part sink_part(const MutableTensorView& out, const HeadView& sinks, const std::vector<Part>& parts) {
  Part part = make_part(out);
  for (const RowStatistic& x : kRowStatistics) {
    const MutableRowView& view = part.outputs.*x.result;
    const bool lse = x.result == &Outputs::lse;
    const double none = lse || x.result == &Outputs::max_logit ? -INFINITY : 0.0;
    for (std::int64_t b = 0; b < out.shape[0]; ++b) {
      for (std::int64_t h = 0; h < out.shape[1]; ++h) {
        for (std::int64_t i = 0; i < out.shape[2]; ++i) {
          const bool seen = std::any_of(parts.begin(), parts.end(),
                                        [&](const Part& each) { return load_at(each.outputs.visible, b, h, i) > 0; });
          store_at(view, lse && seen ? load_at(sinks, h) : none, b, h, i);
        }
      }
    }
  }
  return part;
}

Options slice_of(const Options& options, const Cut& queries, const Cut& keys, std::int64_t n_q, std::int64_t n_k) {
  Options o = options;
  o.origin = {.query = queries.begin, .key = keys.begin, .n_q = n_q, .n_k = n_k};
  o.scale_tensor = slice(o.scale_tensor, 2, queries, n_q);
  o.mask = slice(slice(o.mask, 2, queries, n_q), 3, keys, n_k);
  o.bias = slice(slice(o.bias, 2, queries, n_q), 3, keys, n_k);
  return o;
}

// The slice of a block mask, which belongs to the rows and keys that are there.
Blocks blocks_of(const BlockMask* mask, const Cut& queries, const Cut& keys) {
  if (mask == nullptr) return {};
  const auto visible = [&](std::int64_t b, std::int64_t h, std::int64_t i, std::int64_t j) {
    return reference::listed(*mask, b, h, queries.begin + i, keys.begin + j);
  };
  const auto [batch, heads, _] = mask->offsets.shape;
  return {
      {{batch, heads, queries.end - queries.begin, keys.end - keys.begin}, 8, 24, false}, visible, Placement::aligned};
}

// A call whose out and row statistics are computed slice by slice.
struct SlicedCall {
  const Forward& attend;
  const Merge& join;
  const TensorView &q, &k, &v;
  const MutableTensorView& out;
  const Options& options;
  const Outputs& outputs;

  // Some queries over all keys.
  void run(Generator& random, const Cut& queries) const {
    const std::int64_t n_q = q.shape[2], n_k = k.shape[2];
    const MutableTensorView rows = slice(out, 2, queries, n_q);
    std::vector<Part> parts;
    for (const Cut& keys : cuts(random, n_k)) {
      Options o = slice_of(options, queries, keys, n_q, n_k);
      const Blocks blocks = blocks_of(options.block_mask, queries, keys);
      o.block_mask = blocks.mask();
      o.sinks = {};
      parts.push_back(make_part(rows));
      attend(slice(q, 2, queries, n_q), slice(k, 2, keys, n_k), slice(v, 2, keys, n_k), parts.back().out, o,
             parts.back().outputs);
    }
    if (options.sinks.given()) parts.push_back(sink_part(rows, options.sinks, parts));
    std::vector<Partial> list;
    for (const Part& part : parts) list.push_back(partial_of(part));
    Outputs wanted;
    for (const RowStatistic& x : kRowStatistics) wanted.*x.result = slice(outputs.*x.result, 2, queries, n_q);
    join(list, rows, wanted);
  }
};

}  // namespace

Forward sliced_attention(std::uint64_t seed, const Forward& attend, const Merge& join) {
  return [seed, attend, join](const TensorView& q, const TensorView& k, const TensorView& v,
                              const MutableTensorView& out, const Options& options, const Outputs& outputs) {
    Generator random(seed);
    const SlicedCall call = {attend, join, q, k, v, out, options, outputs};
    for (const Cut& queries : cuts(random, q.shape[2])) call.run(random, queries);
    if (!outputs.weights.given() && outputs.heads.empty() && !outputs.key_sums.given() && !outputs.scores.given()) {
      return;
    }
    Part whole = make_part(out);
    attend(q, k, v, whole.out, options,
           {.weights = outputs.weights,
            .heads = outputs.heads,
            .saturation_threshold = outputs.saturation_threshold,
            .key_sums = outputs.key_sums,
            .key_sum_rows = outputs.key_sum_rows,
            .scores = outputs.scores,
            .score_stage = outputs.score_stage});
  };
}

Backward sliced_backward(std::uint64_t seed, const Backward& backward) {
  return [seed, backward](const BackwardInputs& in, const Gradients& gradients, const Options& options) {
    Generator random(seed);
    const std::int64_t n_q = in.q.shape[2], n_k = in.k.shape[2];
    Part sums;  // of the gradients, from 0 on
    const auto zeros = [&](const auto& like) {
      auto view = like;
      if (like.given()) view = sums.array(accumulation_dtype(in.q.dtype), like.shape);
      for (std::size_t i = 0; i < like.strides.size(); ++i) {
        if (like.strides[i] == 0) view.strides[i] = 0;  // summed over there too
      }
      return view;
    };
    const Gradients all = {.dq = zeros(gradients.dq),
                           .dk = zeros(gradients.dk),
                           .dv = zeros(gradients.dv),
                           .dbias = zeros(gradients.dbias),
                           .dscale = zeros(gradients.dscale),
                           .dsinks = zeros(gradients.dsinks),
                           .drelative_bias = zeros(gradients.drelative_bias),
                           .accumulate = true};
    for (const Cut& queries : cuts(random, n_q)) {
      const auto rows = [&](const auto& x) { return slice(x, 2, queries, n_q); };
      bool first = true;
      for (const Cut& keys : cuts(random, n_k)) {
        const auto columns = [&](const auto& x) { return slice(x, 2, keys, n_k); };
        Gradients g = {.dq = rows(all.dq),
                       .dk = columns(all.dk),
                       .dv = columns(all.dv),
                       .dbias = slice(rows(all.dbias), 3, keys, n_k),
                       .dscale = rows(all.dscale),
                       .dsinks = first ? all.dsinks : MutableHeadView{},
                       .drelative_bias = all.drelative_bias,
                       .accumulate = true};
        Options o = slice_of(options, queries, keys, n_q, n_k);
        const Blocks blocks = blocks_of(options.block_mask, queries, keys);
        o.block_mask = blocks.mask();
        backward({.q = rows(in.q),
                  .k = columns(in.k),
                  .v = columns(in.v),
                  .out = rows(in.out),
                  .lse = rows(in.lse),
                  .dout = rows(in.dout),
                  .dlse = rows(in.dlse)},
                 g, o);
        first = false;
      }
    }
    // Rounded to the caller's arrays once.
    copy(all.dq, gradients.dq);
    copy(all.dk, gradients.dk);
    copy(all.dv, gradients.dv);
    copy(all.dbias, gradients.dbias);
    copy(all.dscale, gradients.dscale);
    copy(all.dsinks, gradients.dsinks);
    copy(all.drelative_bias, gradients.drelative_bias);
  };
}

}  // namespace keel::conformance
