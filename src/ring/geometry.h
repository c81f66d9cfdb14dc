#pragma once

#include <array>

#include "core/sequences.h"
#include "keel/ring.h"

namespace keel::ring {

// The keys of each stretch of a shard that someone needs.
using Needs = std::array<Rows, 2>;

// Who has which rows, and which keys a rank needs from another: a function of what all ranks have in common, so that
// sender and receiver agree without a word.
class Geometry {
 public:
  Geometry(const Sharding& sharding, int size, std::int64_t batch, const Options& options);

  const Sharding& sharding() const { return sharding_; }
  int size() const { return size_; }
  Shard queries(int rank) const;  // all of them where they are not divided
  Shard keys(int rank) const { return shard(sharding_.n_k, size_, rank, sharding_.layout); }

  // A slice of the whole: some queries and some keys.
  Sequences slice(const Rows& queries, const Rows& keys) const;

  // The smallest stretch of `keys` that has all which `queries` may see by their positions.
  Rows visible(const Rows& queries, const Rows& keys) const;

  // Of the keys of rank `owner`, those that queries of `rank` may see.
  Needs needs(int rank, int owner) const;

  // The keys that a rank collects in ordered mode: from a place where a block of keys begins in one process, so that
  // sums keep their order.
  Rows collected(int rank) const;
  Needs to_collect(int rank, int owner) const;

 private:
  Sequences whole_;
  Sharding sharding_;
  int size_;
};

}  // namespace keel::ring
