#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "core/call.h"
#include "keel/attention.h"

namespace keel::cpu {

// The per-head statistics that a caller requested: entries × H_q of them, or none.
struct HeadOutputs {
  std::span<HeadStatistics> heads;
  double saturation_threshold = 0;
};

// Computes them from the rows'. If the caller requested heads but not the rows they need, the constructor gives the
// call its own memory for those.
class HeadRows {
 public:
  HeadRows(Call& call, const HeadOutputs& wanted);
  void reduce(int threads) const;

  static std::int64_t bytes(const Call& call, const HeadOutputs& wanted);

 private:
  const Call& call_;
  HeadOutputs wanted_;
  std::vector<std::byte> memory_;
};

}  // namespace keel::cpu
