// Random merges.
#include <cmath>

#include "conformance/merge.h"

namespace keel::conformance {
namespace {

using Shape4 = std::array<std::int64_t, 4>;
using Shape3 = std::array<std::int64_t, 3>;

constexpr Placement kPlacements[] = {Placement::aligned, Placement::shifted, Placement::before_page,
                                     Placement::after_page};
constexpr DType kFloats[] = {DType::f64, DType::f32, DType::f32, DType::f16, DType::bf16};

Shape4 random_strides(Generator& random, const Shape4& s) {
  switch (random.integer(0, 4)) {
    case 0:
      return {s[2] * s[1] * s[3], s[3], s[1] * s[3], 1};  // BNHD
    case 1:
      return {s[1] * (s[2] * (s[3] + 3) + 5) + 7, s[2] * (s[3] + 3) + 5, s[3] + 3, 1};  // gaps
    case 2:
      return {s[1] * s[3] * s[2], s[3] * s[2], 1, s[2]};  // transposed
    case 3:
      return {-s[1] * s[2] * s[3], -s[2] * s[3], -s[3], -1};
    default:
      return contiguous_strides(s);
  }
}

Shape3 random_strides(Generator& random, const Shape3& s) {
  switch (random.integer(0, 2)) {
    case 0:
      return {s[1] * (2 * s[2] + 1) + 3, 2 * s[2] + 1, 2};
    case 1:
      return {1, s[0], s[0] * s[1]};
    default:
      return contiguous_strides(s);
  }
}

}  // namespace

MergeInstance::MergeInstance(Generator random)
    : random_(random), values_(random_.next()), placement_(random_.pick(kPlacements)) {
  const std::int64_t widths[] = {1, 3, 16, 40, 64, 65, 128, random_.integer(1, 140)};
  shape_ = {random_.integer(0, 2), random_.integer(1, 3), random_.integer(0, 90), random_.pick(widths)};
  dtype_ = random_.pick(kFloats);
  side_ = accumulation_dtype(dtype_);
  spread_ = random_.pick({1.0, 30.0, 1000.0});
  for (bool& wanted : wanted_) wanted = random_.chance(0.6);
  parts_.resize(static_cast<std::size_t>(random_.chance(0.5) ? 2 : random_.integer(1, 6)));
  for (Part& part : parts_) fill(part);
  place_results();
}

MergeProblem MergeInstance::problem() const {
  std::vector<Partial> parts;
  for (const Part& part : parts_) {
    Partial& views = parts.emplace_back();
    views.out = part.out.tensor();
    for (std::size_t s = 0; s < kRowStatisticCount; ++s) views.*kRowStatistics[s].part = part.rows[s].rows_or_none();
  }
  Outputs outputs;
  for (std::size_t s = 0; s < kRowStatisticCount; ++s) {
    if (wanted_[s]) outputs.*kRowStatistics[s].result = result(s).rows();
  }
  return make_merge_problem(parts, out().tensor(), outputs, 0);
}

std::string MergeInstance::bytes() const {
  std::string all = out_.exists() ? out_.contents() : "";
  for (const Array& row : rows_) all += row.exists() ? row.contents() : "";
  for (const Part& part : parts_) {
    all += part.out.contents();
    for (const Array& row : part.rows) all += row.exists() ? row.contents() : "";
  }
  return all;
}

std::string MergeInstance::outside_writes() const {
  std::string found = out().outside_writes();
  for (std::size_t s = 0; s < kRowStatisticCount; ++s) found += wanted_[s] ? result(s).outside_writes() : "";
  return found;
}

Array MergeInstance::tensor(DType dtype, unsigned char paint) {
  return Array::with_strides<4>(dtype, shape_, random_strides(random_, shape_), paint, placement_);
}

Array MergeInstance::row(std::size_t s, unsigned char paint) {
  const Shape3 shape = {shape_[0], shape_[1], shape_[2]};
  return Array::with_strides<3>(is_count(s) ? DType::i64 : side_, shape, random_strides(random_, shape), paint,
                                placement_);
}

double MergeInstance::special(double value, double chance) {
  return values_.chance(chance) ? values_.pick({std::nan(""), HUGE_VAL, -HUGE_VAL}) : value;
}

// An infinite out times a weight that no float can hold is NaN in f32 and infinite in f64, so there are such only
// where lse differ little.
void MergeInstance::fill(Part& part) {
  DType dtype = random_.chance(0.7) ? dtype_ : side_;
  if (dtype_ == DType::f32 && random_.chance(0.3)) dtype = random_.pick({DType::f16, DType::bf16});
  part.out = tensor(dtype, Array::kNan);
  part.out.fill([&](auto...) { return special(values_.normal(), spread_ == 1.0 ? 2e-3 : 0.0); });
  const bool moments = wanted_[kLogitMean] || wanted_[kLogitVar];
  for (std::size_t s = 0; s < kRowStatisticCount; ++s) {
    const bool needed = s == 0 || wanted_[s] || (moments && (s == kLogitMean || s == kLogitCount));
    if (needed || random_.chance(0.3)) part.rows[s] = row(s, Array::kNan);
  }
  part.rows[0].fill([&](auto...) {
    if (values_.chance(0.2)) return -HUGE_VAL;
    return special(values_.chance(0.02) ? -1e30 : spread_ * values_.normal(), 0.02);
  });
  const auto numbers = [&](std::size_t s, bool infinite, auto make) {
    if (!part.rows[s].exists()) return;
    part.rows[s].fill([&](auto...) {
      const double value = special(make(), 0.02);
      return std::isinf(value) && !infinite ? NAN : value;
    });
  };
  numbers(1, true, [&] { return 5.0 * values_.normal(); });
  numbers(2, false, [&] { return std::fabs(values_.normal()); });
  numbers(3, false, [&] { return values_.uniform(); });
  numbers(kLogitMean, true, [&] { return 5.0 * values_.normal(); });
  numbers(kLogitVar, true, [&] { return std::fabs(5.0 * values_.normal()); });
  for (const std::size_t counts : {kVisible, kLogitCount}) {
    if (!part.rows[counts].exists()) continue;
    part.rows[counts].fill(
        [&](auto...) { return static_cast<double>(values_.chance(0.1) ? 0 : values_.integer(1, 5000)); });
  }
}

void MergeInstance::place_results() {
  const auto any = [&] { return static_cast<std::size_t>(random_.integer(0, std::ssize(parts_) - 1)); };
  const bool in_place = random_.chance(0.5);
  if (const std::size_t p = any(); in_place && parts_[p].out.dtype() == dtype_) out_place_ = p;
  if (!out_place_) out_ = tensor(dtype_, Array::kMark);
  for (std::size_t s = 0; s < kRowStatisticCount; ++s) {
    if (!wanted_[s]) continue;
    if (in_place && random_.chance(0.8)) row_place_[s] = any();
    if (!row_place_[s]) rows_[s] = row(s, Array::kMark);
  }
}

}  // namespace keel::conformance
