#pragma once

#include <vector>

#include "lab/record.h"

namespace keel::test {

// Every experiment, run once for all tests of this program: quick sizes, short training, kRepeats repeats, seed 7,
// all threads.
inline constexpr std::size_t kRepeats = 2;
const std::vector<lab::Record>& everything();
const lab::Measurements& measurements();

// One experiment with these settings.
lab::Record run(const std::string& name, const lab::Settings& settings);

}  // namespace keel::test
