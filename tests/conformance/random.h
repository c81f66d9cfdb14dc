#pragma once

#include "conformance/case.h"
#include "conformance/generator.h"

namespace keel::conformance {

// A valid problem drawn from all features, the same for the same seed everywhere. At most about `work` multiplications
// in the scores, so that the oracle stays quick.
Case random_case(std::uint64_t seed, std::int64_t work = 200'000);

// One that the matrix units of a GPU serve: 16 bits, head sizes that are multiples of 8 up to 256, rows without gaps.
Case random_case_for_matrix_units(std::uint64_t seed, std::int64_t work = 4'000'000);

// The same by the numbers of a generator, the seed of its values among them.
Case random_case(Generator& random, std::int64_t work);

// One whose bias masks keys, by −inf or by a number so low that it does as well, or has +inf; with every statistic.
Case random_case_with_masking_bias(std::uint64_t seed, std::int64_t work = 200'000);

}  // namespace keel::conformance
