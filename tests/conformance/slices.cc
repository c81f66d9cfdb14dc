#include "conformance/slices.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <vector>

#include "conformance/generator.h"
#include "core/element.h"

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

// Rows [cut) along a dimension; what is broadcast there stays as it is.
template <std::size_t Rank, class Pointer>
BasicView<Rank, Pointer> slice(BasicView<Rank, Pointer> x, std::size_t dimension, const Cut& cut, std::int64_t full) {
  if (!x.given() || (x.shape[dimension] == 1 && full != 1)) return x;
  using Byte = std::conditional_t<std::is_same_v<Pointer, void*>, std::byte, const std::byte>;
  if (x.data != nullptr && cut.begin < cut.end) {
    x.data = static_cast<Byte*>(x.data) + cut.begin * x.strides[dimension] * size_of(x.dtype);
  }
  x.shape[dimension] = cut.end - cut.begin;
  return x;
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

using RowOutput = MutableRowView Outputs::*;
constexpr RowOutput kRowOutputs[] = {&Outputs::lse,        &Outputs::max_logit,  &Outputs::entropy,
                                     &Outputs::max_weight, &Outputs::logit_mean, &Outputs::logit_var,
                                     &Outputs::visible,    &Outputs::logit_count};

bool is_count(RowOutput x) { return x == &Outputs::visible || x == &Outputs::logit_count; }

template <std::size_t Rank>
void copy(const BasicView<Rank, void*>& from, const BasicView<Rank, void*>& to) {
  std::int64_t count = to.given() ? 1 : 0;
  for (const std::int64_t n : to.shape) count *= n;
  for (std::int64_t i = 0; i < count; ++i) {
    std::int64_t left = i, source = 0, target = 0;
    for (std::size_t d = Rank; d-- > 0; left /= to.shape[d]) {
      source += left % to.shape[d] * from.strides[d];
      target += left % to.shape[d] * to.strides[d];
    }
    store(to.data, to.dtype, target, load(from.data, from.dtype, source));
  }
}

// Everything that merging may need.
Part make_part(const MutableTensorView& out) {
  Part part;
  const DType sums = accumulation_dtype(out.dtype);
  const std::array<std::int64_t, 3> rows = {out.shape[0], out.shape[1], out.shape[2]};
  part.out = part.array(sums, out.shape);
  for (const RowOutput x : kRowOutputs) part.outputs.*x = part.array(is_count(x) ? DType::i64 : sums, rows);
  return part;
}

Partial partial_of(const Part& part) {
  const Outputs& o = part.outputs;
  return {.out = part.out,
          .lse = o.lse,
          .max_logit = o.max_logit,
          .entropy = o.entropy,
          .max_weight = o.max_weight,
          .logit_mean = o.logit_mean,
          .logit_var = o.logit_var,
          .visible = o.visible,
          .logit_count = o.logit_count};
}

// A sink belongs to no key. It is a part of its own, for the rows that see any key.
Part sink_part(const MutableTensorView& out, const HeadView& sinks, const std::vector<Part>& parts) {
  Part part = make_part(out);
  for (const RowOutput x : kRowOutputs) {
    const MutableRowView& view = part.outputs.*x;
    for (std::int64_t b = 0; b < out.shape[0]; ++b) {
      for (std::int64_t h = 0; h < out.shape[1]; ++h) {
        for (std::int64_t i = 0; i < out.shape[2]; ++i) {
          const bool seen = std::any_of(parts.begin(), parts.end(),
                                        [&](const Part& each) { return load_at(each.outputs.visible, b, h, i) > 0; });
          const double none = x == &Outputs::lse || x == &Outputs::max_logit ? -INFINITY : 0.0;
          store_at(view, x == &Outputs::lse && seen ? load_at(sinks, h) : none, b, h, i);
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

// out and row statistics of some queries over all keys, slice by slice.
void attend_in_slices(Generator& random, const TensorView& q, const TensorView& k, const TensorView& v,
                      const MutableTensorView& out, const Options& options, const Outputs& outputs,
                      const Cut& queries) {
  const std::int64_t n_q = q.shape[2], n_k = k.shape[2];
  const MutableTensorView rows = slice(out, 2, queries, n_q);
  std::vector<Part> parts;
  for (const Cut& keys : cuts(random, n_k)) {
    Options o = slice_of(options, queries, keys, n_q, n_k);
    o.sinks = {};
    parts.push_back(make_part(rows));
    attention(slice(q, 2, queries, n_q), slice(k, 2, keys, n_k), slice(v, 2, keys, n_k), parts.back().out, o,
              parts.back().outputs);
  }
  if (options.sinks.given()) parts.push_back(sink_part(rows, options.sinks, parts));
  std::vector<Partial> list;
  for (const Part& part : parts) list.push_back(partial_of(part));
  Outputs wanted;
  for (const RowOutput x : kRowOutputs) wanted.*x = slice(outputs.*x, 2, queries, n_q);
  merge(list, rows, wanted);
}

}  // namespace

Forward sliced_attention(std::uint64_t seed) {
  return [seed](const TensorView& q, const TensorView& k, const TensorView& v, const MutableTensorView& out,
                const Options& options, const Outputs& outputs) {
    Generator random(seed);
    const std::int64_t n_q = q.shape[2];
    for (const Cut& queries : cuts(random, n_q)) attend_in_slices(random, q, k, v, out, options, outputs, queries);
    if (!outputs.weights.given() && outputs.heads.empty() && !outputs.key_sums.given()) return;
    Part whole = make_part(out);
    attention(q, k, v, whole.out, options,
              {.weights = outputs.weights,
               .heads = outputs.heads,
               .saturation_threshold = outputs.saturation_threshold,
               .key_sums = outputs.key_sums,
               .key_sum_rows = outputs.key_sum_rows});
  };
}

Backward sliced_backward(std::uint64_t seed) {
  return [seed](const BackwardInputs& in, const Gradients& gradients, const Options& options) {
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
                       .accumulate = true};
        attention_backward({.q = rows(in.q),
                            .k = columns(in.k),
                            .v = columns(in.v),
                            .out = rows(in.out),
                            .lse = rows(in.lse),
                            .dout = rows(in.dout),
                            .dlse = rows(in.dlse)},
                           g, slice_of(options, queries, keys, n_q, n_k));
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
  };
}

}  // namespace keel::conformance
