#pragma once

#include <cstddef>
#include <vector>

#include "cpu/plan.h"

namespace keel::cpu {

// key_sums of a call: the constructor gives the call memory for what the first pass must store per row, and add(),
// after that pass, runs the second.
class KeySums {
 public:
  KeySums(const ForwardPlan& plan, ForwardCall& call);
  void add() const;

  static std::int64_t bytes(const ForwardCall& call);  // of memory that grows with the rows

 private:
  const ForwardPlan& plan_;
  const ForwardCall& call_;
  std::vector<std::byte> memory_;
};

}  // namespace keel::cpu
