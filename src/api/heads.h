#pragma once

#include <cstddef>
#include <vector>

#include "core/problem.h"

namespace keel {

// The per-head statistics, made of the rows'. Where the caller asked for heads but not for the rows they need, the
// constructor puts views of its own memory into the problem's outputs.
class HeadRows {
 public:
  explicit HeadRows(Problem& problem);
  void reduce(const Problem& problem) const;

 private:
  std::vector<std::byte> memory_;
};

}  // namespace keel
