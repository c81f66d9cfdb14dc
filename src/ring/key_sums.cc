#include <algorithm>

#include "core/element.h"
#include "cpu/zero.h"
#include "ring/forward.h"

namespace keel::ring {
namespace {

// Every group-th head from `first` on; what has one head for all stays as it is.
template <std::size_t Rank, class Pointer>
BasicView<Rank, Pointer> every(BasicView<Rank, Pointer> x, std::size_t dimension, std::int64_t first,
                               std::int64_t group, std::int64_t heads) {
  if (!x.given() || (x.shape[dimension] == 1 && heads != 1)) return x;
  x = slice(x, dimension, first, heads, heads);
  x.shape[dimension] = heads / group;
  x.strides[dimension] *= group;
  return x;
}

}  // namespace

KeySumsPass::KeySumsPass(const ForwardCall& call)
    : call_(call),
      sent_(call.block_shape()),
      returned_{call.problem.batch, call.problem.q_heads, 1, 0, accumulation_dtype(call.problem.dtype)} {
  sent_.d_v = 0;
  store(&one_, returned_.dtype, 0, 1.0);
  if (call.geometry.sharding().mode != Mode::decode) {
    tour_.emplace(call.link, call.geometry, sent_, returned_, call.options.threads);
  } else {
    own_.resize(static_cast<std::size_t>(returned_.bytes(call.keys().parts)));
  }
  find_rows();
}

// All rows at once, or the last ones of each entry.
void KeySumsPass::find_rows() {
  const std::int64_t count = call_.outputs.key_sum_rows, batch = call_.problem.batch;
  for (const Queries& part : stretches(call_.queries())) {
    if (count == 0) {
      if (part.rows.size() > 0) counted_.push_back({0, batch, part});
      continue;
    }
    const Sequences here = call_.geometry.slice(part.rows, {});
    const Sequences whole = call_.geometry.slice({0, call_.geometry.sharding().n_q}, {});
    for (std::int64_t e = 0; e < here.entries(); ++e) {
      const Entry entry = here.entry(e);
      const std::int64_t first = std::max<std::int64_t>(first_summed_row(whole.entry(e), count) - entry.q_position, 0);
      if (first >= entry.q_len) continue;
      const std::int64_t begin = entry.q_begin + first, end = entry.q_begin + entry.q_len;
      counted_.push_back({entry.batch,
                          entry.batch + 1,
                          {{part.rows.begin + begin, part.rows.begin + end}, part.first + begin, part.of}});
    }
  }
}

void KeySumsPass::compute(const Block& block, void* sums) const {
  const auto to = returned_.views<void*>(block.rows, sums);
  for (std::size_t x = 0; x < block.rows.size(); ++x) {
    if (block.rows[x].size() > 0) cpu::zero(to[2 * x]);
    for (const Counted& rows : counted_) {
      const Rows keys = call_.geometry.visible(rows.queries.rows, block.rows[x]);
      if (keys.size() == 0) continue;
      const Rows& all = block.rows[x];
      compute(rows, keys, of_block(block, block.k[x], x, keys),
              slice(to[2 * x], 2, keys.begin - all.begin, keys.end - all.begin, all.size()));
    }
  }
}

void KeySumsPass::compute(const Counted& rows, const Rows& keys, const TensorView& k,
                          const MutableTensorView& to) const {
  const Problem& p = call_.problem;
  const std::int64_t group = p.kv_heads > 0 ? p.q_heads / p.kv_heads : 1, batch = rows.end - rows.begin;
  const auto entries = [&](const auto& x) { return slice(x, 0, rows.begin, rows.end, p.batch); };
  const auto lengths = [&](const ListView& x) {
    return x.empty() ? x : ListView(slice<1, const void*>(x, 0, rows.begin, rows.end, p.batch));
  };
  for (std::int64_t g = 0; g < group; ++g) {
    const auto mine = [&](const auto& x) { return every(entries(x), 1, g, group, p.q_heads); };
    Options o = slice_options(call_.options, call_.geometry.sharding(), rows.queries, keys);
    o.dropout = 0.0;
    o.scale_tensor = mine(o.scale_tensor);
    o.mask = mine(o.mask);
    o.bias = mine(o.bias);
    o.alibi = mine(o.alibi);
    o.q_lengths = lengths(o.q_lengths);
    o.k_lengths = lengths(o.k_lengths);
    const double zero = 0.0;
    const std::array<std::int64_t, 4> shape = {batch, p.kv_heads, rows.queries.rows.size(), 1};
    keel::attention_backward({.q = mine(rows.queries.of_rows(call_.tensors.q)),
                              .k = entries(k),
                              .v = {&zero, p.dtype, {batch, p.kv_heads, keys.size(), 1}, {}},
                              .out = {&zero, returned_.dtype, shape, {}},
                              .lse = mine(rows.queries.of_rows(lse_)),
                              .dout = {&one_, returned_.dtype, shape, {}}},
                             {.dv = mine(to), .accumulate = true}, o);
  }
}

void KeySumsPass::add(const Needs& rows, const void* sums) const {
  const auto from = returned_.views<const void*>(rows, sums);
  const Shard keys = call_.keys();
  const MutableRowView& to = call_.outputs.key_sums;
  std::int64_t first = 0;
  for (std::size_t x = 0; x < rows.size(); ++x) {
    const std::int64_t begin = first + rows[x].begin - keys.parts[x].begin;
    if (rows[x].size() > 0) {
      ring::add(from[2 * x], as_tensor(slice(to, 2, begin, begin + rows[x].size(), keys.size())),
                call_.options.threads);
    }
    first += keys.parts[x].size();
  }
}

void KeySumsPass::run(const RowResults& rows) {
  lse_ = rows.outputs.lse;
  call_.link.attempt([&] { cpu::zero(call_.outputs.key_sums); });
  const Block own = own_block(call_.keys(), call_.tensors.k, call_.tensors.v);
  if (tour_) {
    tour_->run(
        own, [&](int, const Block& block, void* sums) { compute(block, sums); },
        [&](const Needs& needs, const void* sums) { add(needs, sums); });
    return;
  }
  call_.link.attempt([&] {
    compute(own, own_.data());
    add(own.rows, own_.data());
  });
}

}  // namespace keel::ring
