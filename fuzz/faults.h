#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "conformance/generator.h"

// What arguments_fuzz tries. Each function draws a call, has it served on every SIMD target of this machine, and
// returns what is wrong with that: a result further from the oracle's than the tests allow, memory written that is not
// the call's, a wrong argument that was taken, an exception other than keel::Error. "" where nothing is.
namespace keel::fuzz {

// attention() and attention_backward() on a valid problem, whole or slice by slice.
std::string problem_fault(conformance::Generator& random);

// merge() of valid parts.
std::string merge_fault(conformance::Generator& random);

// Any of them, and explain(), with arguments of which some may be wrong.
std::string argument_fault(conformance::Generator& random);

// One of these, drawn from `bytes`.
std::string fault_of(std::span<const std::uint8_t> bytes);

}  // namespace keel::fuzz
