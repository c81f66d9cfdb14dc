#pragma once

#include <cstdint>
#include <span>
#include <string_view>

namespace keel::lab {

// Random numbers as a function of (seed, stream, position) alone, by Philox: the same in any order, on any
// thread.
class Random {
 public:
  // Streams of different names or repeats are independent.
  Random(std::uint64_t seed, std::string_view stream, std::uint64_t repeat = 0);

  // Successive calls continue the stream.
  void normal(std::span<double> values, double sd = 1.0, double mean = 0.0);

 private:
  std::uint64_t seed_;
  std::uint64_t stream_;
  std::uint64_t at_ = 0;
};

}  // namespace keel::lab
