#include "fuzz/faults.h"

#include <exception>

namespace keel::fuzz {

std::string fault_of(std::span<const std::uint8_t> bytes) {
  conformance::Generator random(bytes);
  try {
    switch (random.integer(0, 7)) {
      case 0:
        return merge_fault(random);
      case 1:
      case 2:
      case 3:
        return problem_fault(random);
      default:
        return argument_fault(random);
    }
  } catch (const std::exception& error) {
    return std::string("raised ") + error.what();
  }
}

}  // namespace keel::fuzz
