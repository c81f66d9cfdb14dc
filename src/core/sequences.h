#pragma once

#include <algorithm>
#include <cstdint>

#include "keel/view.h"

namespace keel {

// One sequence of a call: a batch entry, or a packed one. Rows are rows of the tensors.
struct Entry {
  std::int64_t batch = 0;                           // its index along B
  std::int64_t q_begin = 0, q_rows = 0, q_len = 0;  // owns q_rows rows from q_begin; those from q_len on are padding
  std::int64_t k_begin = 0, k_len = 0;
  std::int64_t k_start = 0;                     // keys before it are padding
  std::int64_t q_position = 0, k_position = 0;  // of its first row and first key, in the whole sequence
  std::int64_t diagonal = 0;                    // query i has its diagonal at key i + diagonal
};

// The first of the rows that key_sums counts, the last `rows` of an entry; 0 counts them all.
constexpr std::int64_t first_summed_row(const Entry& entry, std::int64_t rows) {
  return rows == 0 ? 0 : std::max<std::int64_t>(entry.q_len - rows, 0);
}

// Keys [begin, end) of an entry, counted from its first.
struct KeyRange {
  std::int64_t begin = 0, end = 0;
};

// How the rows and keys of a call divide into entries, and which keys a row may see by position. The tensors hold rows
// [first_query, first_query + n_q) and keys [first_key, first_key + n_k) of a whole of whole_q rows and whole_k keys,
// to which the lists refer. Lists on a device are read only there: call entry() only where the lists can be read.
struct Sequences {
  std::int64_t batch = 0, n_q = 0, n_k = 0;
  std::int64_t first_query = 0, first_key = 0, whole_q = 0, whole_k = 0;
  ListView q_lengths, k_lengths, q_offsets, k_offsets, k_starts;
  bool top_left = false;                                           // else the diagonal ends at the last query and key
  std::int64_t window_left = INT64_MAX, window_right = INT64_MAX;  // around the diagonal; right is 0 if causal

  constexpr bool packed() const { return !q_offsets.empty(); }
  constexpr std::int64_t entries() const { return packed() ? q_offsets.size() - 1 : batch; }
  constexpr bool has_all_keys() const { return n_k == whole_k; }

  constexpr Entry entry(std::int64_t e) const {
    const Part q = part(e, q_lengths, q_offsets, first_query, n_q, whole_q);
    const Part k = part(e, k_lengths, k_offsets, first_key, n_k, whole_k);
    return {.batch = packed() ? 0 : e,
            .q_begin = q.begin,
            .q_rows = packed() ? q.length : n_q,
            .q_len = q.length,
            .k_begin = k.begin,
            .k_len = k.length,
            .k_start = k_starts.empty() ? 0 : std::clamp<std::int64_t>(k_starts[e] - first_key, 0, k.length),
            .q_position = q.position,
            .k_position = k.position,
            .diagonal = (top_left ? 0 : k.whole - q.whole) + q.position - k.position};
  }

  // A window's side, for sums: positions are below 2^41, so more means nothing, and nothing overflows.
  static constexpr std::int64_t bounded(std::int64_t side) { return std::min(side, std::int64_t{1} << 43); }

  // The keys that causal mask, window and lengths leave to query i of the entry; empty for padding rows.
  constexpr KeyRange key_range(const Entry& entry, std::int64_t i) const {
    if (i >= entry.q_len) return {0, 0};
    const std::int64_t at = i + entry.diagonal;
    const std::int64_t begin = std::max<std::int64_t>(at - bounded(window_left), entry.k_start);
    const std::int64_t end = std::min<std::int64_t>(at + bounded(window_right) + 1, entry.k_len);
    if (begin >= end) return {0, 0};
    return {begin, end};
  }

 private:
  // An entry's share of the rows here: `length` from `begin`, the first at `position` of the entry's `whole`.
  struct Part {
    std::int64_t begin, length, position, whole;
  };
  constexpr Part part(std::int64_t e, const ListView& lengths, const ListView& offsets, std::int64_t first,
                      std::int64_t rows, std::int64_t whole_rows) const {
    if (!packed()) {
      const std::int64_t whole = lengths.empty() ? whole_rows : lengths[e];
      return {0, std::clamp<std::int64_t>(whole - first, 0, rows), first, whole};
    }
    const std::int64_t begin = std::clamp<std::int64_t>(offsets[e] - first, 0, rows);
    const std::int64_t end = std::clamp<std::int64_t>(offsets[e + 1] - first, 0, rows);
    return {begin, end - begin, std::max<std::int64_t>(first - offsets[e], 0), offsets[e + 1] - offsets[e]};
  }
};

}  // namespace keel
