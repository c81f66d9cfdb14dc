#include "ring/geometry.h"

#include <algorithm>

namespace keel::ring {
namespace {

// A multiple of every chunk of keys that a kernel may sum up apart (src/cpu/plan.cc).
constexpr std::int64_t kKeyGranule = 4096;

Rows hull(const Rows& a, const Rows& b) {
  if (a.size() <= 0) return b;
  if (b.size() <= 0) return a;
  return {std::min(a.begin, b.begin), std::max(a.end, b.end)};
}

Rows meet(const Rows& a, const Rows& b) {
  const Rows both = {std::max(a.begin, b.begin), std::min(a.end, b.end)};
  return both.size() > 0 ? both : Rows{};
}

}  // namespace

Geometry::Geometry(const Sharding& sharding, int size, std::int64_t batch, const Options& o)
    : whole_{.batch = batch,
             .n_q = sharding.n_q,
             .n_k = sharding.n_k,
             .whole_q = sharding.n_q,
             .whole_k = sharding.n_k,
             .q_lengths = o.q_lengths,
             .k_lengths = o.k_lengths,
             .q_offsets = o.q_offsets,
             .k_offsets = o.k_offsets,
             .k_starts = {},  // refused
             .top_left = o.causal == Causal::top_left,
             .window_left = o.window.left,
             .window_right = o.causal == Causal::none ? o.window.right : 0},
      sharding_(sharding),
      size_(size) {}

Shard Geometry::queries(int rank) const {
  if (sharding_.mode == Mode::decode) return {{{{0, sharding_.n_q}, {sharding_.n_q, sharding_.n_q}}}};
  return shard(sharding_.n_q, size_, rank, sharding_.layout);
}

Sequences Geometry::slice(const Rows& queries, const Rows& keys) const {
  Sequences part = whole_;
  part.first_query = queries.begin;
  part.n_q = queries.size();
  part.first_key = keys.begin;
  part.n_k = keys.size();
  return part;
}

Rows Geometry::visible(const Rows& queries, const Rows& keys) const {
  const Sequences part = slice(queries, keys);
  Rows all;
  for (std::int64_t e = 0; e < part.entries(); ++e) {
    const Entry entry = part.entry(e);
    if (entry.q_len == 0) continue;
    // Both ends of the keys that a row sees move on with the row.
    const std::int64_t begin = std::max<std::int64_t>(entry.diagonal - Sequences::bounded(part.window_left), 0);
    const std::int64_t end =
        std::min<std::int64_t>(entry.q_len + entry.diagonal + Sequences::bounded(part.window_right), entry.k_len);
    if (begin >= end) continue;
    all = hull(all, {keys.begin + entry.k_begin + begin, keys.begin + entry.k_begin + end});
  }
  return all;
}

Needs Geometry::needs(int rank, int owner) const {
  const Shard q = queries(rank), k = keys(owner);
  Needs needs;
  for (std::size_t x = 0; x < needs.size(); ++x) {
    for (const Rows& rows : q.parts) needs[x] = hull(needs[x], visible(rows, k.parts[x]));
  }
  return needs;
}

Rows Geometry::collected(int rank) const {
  Rows all;
  for (const Rows& rows : queries(rank).parts) all = hull(all, visible(rows, {0, sharding_.n_k}));
  if (all.size() == 0) return {};
  if (!whole_.packed()) return {all.begin / kKeyGranule * kKeyGranule, all.end};
  std::int64_t begin = 0;  // where the entry of the first key begins
  for (std::int64_t e = 0; e < whole_.entries(); ++e) {
    if (whole_.k_offsets[e] <= all.begin) begin = whole_.k_offsets[e];
  }
  return {begin, all.end};
}

Needs Geometry::to_collect(int rank, int owner) const {
  const Rows wanted = collected(rank);
  const Shard k = keys(owner);
  return {meet(k.parts[0], wanted), meet(k.parts[1], wanted)};
}

}  // namespace keel::ring
