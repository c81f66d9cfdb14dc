#pragma once

#include "core/slice.h"
#include "ring/copy.h"

namespace keel::ring {

// This rank's queries: a stretch of them stands together in the whole, and from row `first` on in its arrays.
struct Queries {
  Rows rows;
  std::int64_t first = 0;
  std::int64_t of = 0;  // rows in the arrays

  template <std::size_t Rank, class Pointer>
  BasicView<Rank, Pointer> of_rows(const BasicView<Rank, Pointer>& x) const {
    return slice(x, 2, first, first + rows.size(), of);
  }
};
inline std::array<Queries, 2> stretches(const Shard& shard) {
  return {{{shard.parts[0], 0, shard.size()}, {shard.parts[1], shard.parts[0].size(), shard.size()}}};
}

// Columns `keys` of something that has all keys of the whole.
template <class Pointer>
BasicView<4, Pointer> of_keys(const BasicView<4, Pointer>& x, const Rows& keys, std::int64_t n_k) {
  return slice(x, 3, keys.begin, keys.end, n_k);
}

// The options of a call for some queries and some keys, sinks aside, which belong to no key.
inline Options slice_options(const Options& options, const Sharding& s, const Queries& queries, const Rows& keys) {
  Options o = options;
  o.origin = {.query = queries.rows.begin, .key = keys.begin, .n_q = s.n_q, .n_k = s.n_k};
  o.scale_tensor = queries.of_rows(o.scale_tensor);
  o.mask = of_keys(queries.of_rows(o.mask), keys, s.n_k);
  o.bias = of_keys(queries.of_rows(o.bias), keys, s.n_k);
  o.sinks = {};
  return o;
}

// This rank's block, where the caller has it.
inline Block own_block(const Shard& keys, const TensorView& k, const TensorView& v) {
  const std::int64_t cut = keys.parts[0].size(), n = keys.size();
  return {
      keys.parts, {slice(k, 2, 0, cut, n), slice(k, 2, cut, n, n)}, {slice(v, 2, 0, cut, n), slice(v, 2, cut, n, n)}};
}

// Rows [keys) of stretch x of a block.
inline TensorView of_block(const Block& block, const TensorView& x, std::size_t stretch, const Rows& keys) {
  const Rows& all = block.rows[stretch];
  return slice(x, 2, keys.begin - all.begin, keys.end - all.begin, all.size());
}

}  // namespace keel::ring
