#include "core/message.h"
#include "keel/ring.h"

namespace keel::ring {
namespace {

// Part `which` of `count`; the sizes of parts differ by at most one. (n·which could overflow, and n % count cannot.)
Rows part_of(std::int64_t n, std::int64_t count, std::int64_t which) {
  const auto begin = [&](std::int64_t x) { return n / count * x + n % count * x / count; };
  return {begin(which), begin(which + 1)};
}

}  // namespace

Shard shard(std::int64_t n, int size, int rank, Layout layout) {
  if (n < 0) throw Error(ErrorCode::invalid_argument, concat("[shard] n: expected at least 0, got ", n));
  if (size < 1) throw Error(ErrorCode::invalid_argument, concat("[shard] size: expected at least 1, got ", size));
  if (rank < 0 || rank >= size) {
    throw Error(ErrorCode::invalid_argument, concat("[shard] rank: expected from 0 to ", size - 1, ", got ", rank));
  }
  if (layout == Layout::contiguous) {
    const Rows only = part_of(n, size, rank);
    return {{only, {only.end, only.end}}};
  }
  if (layout != Layout::zigzag) {
    throw Error(ErrorCode::invalid_argument,
                concat("[shard] layout: expected contiguous or zigzag, got code ", static_cast<int>(layout)));
  }
  const std::int64_t parts = 2 * static_cast<std::int64_t>(size);
  const Rows front = part_of(n, parts, rank), back = part_of(n, parts, parts - 1 - rank);
  if (front.end == back.begin) return {{{{front.begin, back.end}, {back.end, back.end}}}};  // one stretch
  return {{front, back}};
}

}  // namespace keel::ring
