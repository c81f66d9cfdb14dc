#pragma once

#include "core/problem.h"
#include "core/slice.h"
#include "ring/rows.h"
#include "runtime/machine.h"

namespace keel::ring {

// Whether a rank computes on one thread: by portions of one head, what is added to a result finds it in the
// second-level cache. Several threads share all heads.
inline bool is_on_one_thread(const Options& o) { return (o.threads > 0 ? o.threads : machine().threads) == 1; }

// What is computed at a time: one key-value head of one batch entry after the other, with the query heads that share
// it; or everything at once, which dropout needs, as its random numbers depend on the head's number.
class Portions {
 public:
  Portions(const Problem& p, bool everything)
      : batch_(p.batch),
        kv_heads_(p.kv_heads),
        group_(p.kv_heads > 0 ? p.q_heads / p.kv_heads : 0),
        entries_(everything ? p.batch : 1),
        heads_(everything ? p.kv_heads : 1) {}

  std::int64_t count() const { return batch_ > 0 && kv_heads_ > 0 ? batch_ / entries_ * per_entry() : 0; }
  // Of a portion:
  std::int64_t entries() const { return entries_; }
  std::int64_t kv_heads() const { return heads_; }
  std::int64_t q_heads() const { return heads_ * group_; }

  // What portion `at` takes of something with all entries and all key-value heads.
  template <std::size_t Rank, class Pointer>
  BasicView<Rank, Pointer> of_keys(const BasicView<Rank, Pointer>& x, std::int64_t at) const {
    return take(x, at, kv_heads_, heads_);
  }

  // The same where there are query heads.
  template <std::size_t Rank, class Pointer>
  BasicView<Rank, Pointer> of_queries(const BasicView<Rank, Pointer>& x, std::int64_t at) const {
    return take(x, at, kv_heads_ * group_, q_heads());
  }
  RowResults of_queries(const RowResults& x, std::int64_t at) const {
    RowResults part{of_queries(x.out, at), {}};
    for (const RowStatistic& s : kRowStatistics) part.outputs.*s.result = of_queries(x.outputs.*s.result, at);
    return part;
  }
  Options of_queries(Options o, std::int64_t at) const {
    const std::int64_t entry = first_entry(at), head = at % per_entry() * q_heads();
    const auto of_entries = [&](const ListView& x) {
      return x.empty() ? x : ListView(slice<1, const void*>(x, 0, entry, entry + entries_, batch_));
    };
    o.scale_tensor = of_queries(o.scale_tensor, at);
    o.mask = of_queries(o.mask, at);
    o.bias = of_queries(o.bias, at);
    o.alibi = of_queries(o.alibi, at);
    o.sinks = slice(o.sinks, 0, head, head + q_heads(), kv_heads_ * group_);
    o.q_lengths = of_entries(o.q_lengths);
    o.k_lengths = of_entries(o.k_lengths);
    return o;
  }

 private:
  std::int64_t per_entry() const { return heads_ > 0 ? kv_heads_ / heads_ : 1; }
  std::int64_t first_entry(std::int64_t at) const { return at / per_entry() * entries_; }

  template <std::size_t Rank, class Pointer>
  BasicView<Rank, Pointer> take(const BasicView<Rank, Pointer>& x, std::int64_t at, std::int64_t all,
                                std::int64_t heads) const {
    const std::int64_t entry = first_entry(at), head = at % per_entry() * heads;
    return slice(slice(x, 0, entry, entry + entries_, batch_), 1, head, head + heads, all);
  }

  std::int64_t batch_, kv_heads_, group_;  // of all; query heads per key-value head
  std::int64_t entries_, heads_;
};

}  // namespace keel::ring
