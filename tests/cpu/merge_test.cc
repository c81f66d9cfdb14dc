// merge() against the oracle: random parts on every SIMD target, and the same bits for any division among threads.
#include "cpu/merge.h"

#include <gtest/gtest.h>
#include <hwy/targets.h>
#include <tbb/global_control.h>

#include <array>
#include <cmath>
#include <optional>
#include <string>
#include <vector>

#include "api/backends.h"
#include "conformance/array.h"
#include "conformance/dense.h"
#include "conformance/generator.h"
#include "conformance/tolerance.h"
#include "cpu/on_target.h"
#include "plan/plan.h"
#include "reference/reference.h"
#include "runtime/parallel.h"

namespace keel {
namespace {

using conformance::Array;
using conformance::Dense;
using conformance::Generator;
using conformance::Placement;
using Shape4 = std::array<std::int64_t, 4>;
using Shape3 = std::array<std::int64_t, 3>;

// What rows have, counts last.
struct Statistic {
  const char* name;
  RowView Partial::*part;
  MutableRowView Outputs::*result;
};
constexpr Statistic kStatistics[] = {{"lse", &Partial::lse, &Outputs::lse},
                                     {"max_logit", &Partial::max_logit, &Outputs::max_logit},
                                     {"entropy", &Partial::entropy, &Outputs::entropy},
                                     {"max_weight", &Partial::max_weight, &Outputs::max_weight},
                                     {"logit_mean", &Partial::logit_mean, &Outputs::logit_mean},
                                     {"logit_var", &Partial::logit_var, &Outputs::logit_var},
                                     {"visible", &Partial::visible, &Outputs::visible},
                                     {"logit_count", &Partial::logit_count, &Outputs::logit_count}};
constexpr std::size_t kCount = std::size(kStatistics), kMean = 4, kVar = 5, kVisible = 6, kLogitCount = 7;

bool is_count(std::size_t statistic) { return statistic >= kVisible; }

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

// A random call: parts with special values here and there, a result in memory of its own or in that of parts.
class Call {
 public:
  explicit Call(std::uint64_t seed) : random_(seed, 0x3E6), placement_(random_.pick(kPlacements)) {
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

  MergeProblem problem() const {
    std::vector<Partial> parts;
    for (const Part& part : parts_) {
      Partial& views = parts.emplace_back();
      views.out = part.out.tensor();
      for (std::size_t s = 0; s < kCount; ++s) views.*kStatistics[s].part = part.rows[s].rows_or_none();
    }
    Outputs outputs;
    for (std::size_t s = 0; s < kCount; ++s) {
      if (wanted_[s]) outputs.*kStatistics[s].result = result(s).rows();
    }
    return make_merge_problem(parts, out().tensor(), outputs, 0);
  }

  // Every byte of the results, and of the parts, which must stay as they are where no result is in place.
  std::string bytes() const {
    std::string all = out_.exists() ? out_.contents() : "";
    for (const Array& row : rows_) all += row.exists() ? row.contents() : "";
    for (const Part& part : parts_) {
      all += part.out.contents();
      for (const Array& row : part.rows) all += row.exists() ? row.contents() : "";
    }
    return all;
  }

  std::string outside_writes() const {
    std::string found = out().outside_writes();
    for (std::size_t s = 0; s < kCount; ++s) found += wanted_[s] ? result(s).outside_writes() : "";
    return found;
  }

  const Array& out() const { return out_place_ ? parts_[*out_place_].out : out_; }
  const Array& result(std::size_t s) const { return row_place_[s] ? parts_[*row_place_[s]].rows[s] : rows_[s]; }
  bool wants(std::size_t s) const { return wanted_[s]; }

 private:
  struct Part {
    Array out;
    std::array<Array, kCount> rows;
  };
  static constexpr Placement kPlacements[] = {Placement::aligned, Placement::shifted, Placement::before_page,
                                              Placement::after_page};
  static constexpr DType kFloats[] = {DType::f64, DType::f32, DType::f32, DType::f16, DType::bf16};

  Array tensor(DType dtype, unsigned char paint) {
    return Array::with_strides<4>(dtype, shape_, random_strides(random_, shape_), paint, placement_);
  }
  Array row(std::size_t s, unsigned char paint) {
    const Shape3 shape = {shape_[0], shape_[1], shape_[2]};
    return Array::with_strides<3>(is_count(s) ? DType::i64 : side_, shape, random_strides(random_, shape), paint,
                                  placement_);
  }

  double special(double value, double chance) {
    return random_.chance(chance) ? random_.pick({std::nan(""), HUGE_VAL, -HUGE_VAL}) : value;
  }

  // An infinite out times a weight that no float can hold is NaN in f32 and infinite in f64, so there are such only
  // where lse differ little.
  void fill(Part& part) {
    DType dtype = random_.chance(0.7) ? dtype_ : side_;
    if (dtype_ == DType::f32 && random_.chance(0.3)) dtype = random_.pick({DType::f16, DType::bf16});
    part.out = tensor(dtype, Array::kNan);
    part.out.fill([&](auto...) { return special(random_.normal(), spread_ == 1.0 ? 2e-3 : 0.0); });
    const bool moments = wanted_[kMean] || wanted_[kVar];
    for (std::size_t s = 0; s < kCount; ++s) {
      const bool needed = s == 0 || wanted_[s] || (moments && (s == kMean || s == kLogitCount));
      if (needed || random_.chance(0.3)) part.rows[s] = row(s, Array::kNan);
    }
    part.rows[0].fill([&](auto...) {
      if (random_.chance(0.2)) return -HUGE_VAL;
      return special(random_.chance(0.02) ? -1e30 : spread_ * random_.normal(), 0.02);
    });
    const auto numbers = [&](std::size_t s, bool infinite, auto make) {
      if (!part.rows[s].exists()) return;
      part.rows[s].fill([&](auto...) {
        const double value = special(make(), 0.02);
        return std::isinf(value) && !infinite ? NAN : value;
      });
    };
    numbers(1, true, [&] { return 5.0 * random_.normal(); });
    numbers(2, false, [&] { return std::fabs(random_.normal()); });
    numbers(3, false, [&] { return random_.uniform(); });
    numbers(kMean, true, [&] { return 5.0 * random_.normal(); });
    numbers(kVar, true, [&] { return std::fabs(5.0 * random_.normal()); });
    for (const std::size_t counts : {kVisible, kLogitCount}) {
      if (!part.rows[counts].exists()) continue;
      part.rows[counts].fill(
          [&](auto...) { return static_cast<double>(random_.chance(0.1) ? 0 : random_.integer(1, 5000)); });
    }
  }

  void place_results() {
    const auto any = [&] { return static_cast<std::size_t>(random_.integer(0, std::ssize(parts_) - 1)); };
    const bool in_place = random_.chance(0.5);
    if (const std::size_t p = any(); in_place && parts_[p].out.dtype() == dtype_) out_place_ = p;
    if (!out_place_) out_ = tensor(dtype_, Array::kMark);
    for (std::size_t s = 0; s < kCount; ++s) {
      if (!wanted_[s]) continue;
      if (in_place && random_.chance(0.8)) row_place_[s] = any();
      if (!row_place_[s]) rows_[s] = row(s, Array::kMark);
    }
  }

  Generator random_;
  Placement placement_;
  Shape4 shape_{};
  DType dtype_, side_;
  double spread_;  // of lse
  std::array<bool, kCount> wanted_{};
  std::vector<Part> parts_;
  Array out_;
  std::array<Array, kCount> rows_;
  std::optional<std::size_t> out_place_;
  std::array<std::optional<std::size_t>, kCount> row_place_;
};

// What the oracle says, in float64.
struct Expected {
  Dense out, size;  // size: of the terms that out is a sum of
  std::array<Dense, kCount> rows;
};

Expected expected(const Call& call) {
  MergeProblem problem = call.problem();
  const Shape4 shape = problem.out.shape;
  Expected e{Dense(shape), Dense(shape), {}};
  problem.out = e.out.tensor();
  for (std::size_t s = 0; s < kCount; ++s) {
    e.rows[s] = Dense({shape[0], shape[1], shape[2], 1});
    if (call.wants(s)) problem.outputs.*kStatistics[s].result = e.rows[s].rows();
  }
  reference::merge(problem);
  std::vector<Dense> sizes;
  for (Partial& part : problem.parts) {
    Dense& size = sizes.emplace_back(conformance::read(part.out));
    for (double& x : size.values) x = std::fabs(x);
  }
  for (std::size_t p = 0; p < sizes.size(); ++p) problem.parts[p].out = sizes[p].tensor();
  problem.out = e.size.tensor();
  problem.outputs = {};
  reference::merge(problem);
  return e;
}

bool is_special(double want, double got) {
  EXPECT_EQ(std::isnan(want), std::isnan(got)) << "expected " << want << ", got " << got;
  if (std::isinf(want) || std::isinf(got)) {
    EXPECT_EQ(want, got);
  }
  return !std::isfinite(want) || !std::isfinite(got);
}

// A few roundings of each term, and the one of storing. In float64 a weight exp(x) has an error of x roundings; where
// results are f32 it has none that counts.
void expect_near(const Call& call, const Expected& e) {
  const MergeProblem problem = call.problem();
  const DType dtype = call.out().dtype();
  const conformance::Tolerance t = conformance::tolerance_of(dtype);
  const Dense out = conformance::read(call.out().tensor());
  const auto terms = static_cast<double>(problem.parts.size()) + 6.0 + (dtype == DType::f64 ? 750.0 : 0.0);
  const double least = dtype == DType::f64 ? 1e-300 : dtype == DType::f16 ? 0x1p-25 : 1e-36;
  for (std::size_t at = 0; at < out.values.size(); ++at) {
    const double want = e.out.values[at], got = out.values[at];
    if (is_special(want, got)) continue;
    const double allowed = terms * t.eps * e.size.values[at] + t.storage * std::fabs(want) + least;
    ASSERT_LE(std::fabs(got - want), allowed) << "out at " << at << ": expected " << want << ", got " << got;
  }
  for (std::size_t s = 0; s < kCount; ++s) {
    if (!call.wants(s)) continue;
    SCOPED_TRACE(kStatistics[s].name);
    const Dense got = conformance::read(call.result(s).rows());
    for (std::size_t at = 0; at < got.values.size(); ++at) {
      const double want = e.rows[s].values[at];
      if (is_special(want, got.values[at])) continue;
      const double allowed = is_count(s) ? 0.0 : 64.0 * t.eps * (1.0 + std::fabs(want));
      ASSERT_LE(std::fabs(got.values[at] - want), allowed) << "at " << at << ": expected " << want;
    }
  }
}

TEST(MergeOnEveryTarget, RandomPartsMatchTheOracle) {
  for (std::uint64_t seed = 0; seed < random_problems(400); ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    const Expected e = expected(Call(seed));
    for (const std::int64_t target : machine().target_bits) {
      SCOPED_TRACE(hwy::TargetName(target));
      const Call call(seed);
      const MergeProblem problem = call.problem();
      make_plan(problem, backends(), {.resources = resources(), .forced = {.target = target}}).execute();
      expect_near(call, e);
      EXPECT_EQ(call.outside_writes(), "");
    }
    if (testing::Test::HasFailure()) return;
  }
}

TEST(MergeOnEveryTarget, SameBitsForAnyNumberOfThreads) {
  const tbb::global_control seven(tbb::global_control::max_allowed_parallelism, 7);  // whatever this machine has
  for (std::uint64_t seed = 0; seed < random_problems(100); ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    for (const std::int64_t target : machine().target_bits) {
      const auto bytes = [&](int threads, std::int64_t row_block) {
        const Call call(seed);
        MergeProblem problem = call.problem();
        problem.threads = threads;
        const Forced forced = {.target = target, .tiles = {.row_block = row_block}, .share_small = true};
        make_plan(problem, backends(), {.resources = resources(), .forced = forced}).execute();
        return call.bytes();
      };
      const std::string one = bytes(1, 1 << 20);
      for (const int threads : {1, 2, 3, 7}) {
        EXPECT_EQ(bytes(threads, 5) == one, true) << threads << " threads";
        EXPECT_EQ(bytes(threads, 37) == one, true) << threads << " threads";
      }
    }
  }
}

// A call that is large enough for the planner itself to share it, through the interface.
TEST(MergePlan, SharesOnlyLargeCalls) {
  std::vector<float> values(1 << 22), lse(1 << 16);
  const auto plan = [&](std::int64_t rows, int threads) {
    const Partial part = {.out = view(const_cast<const float*>(values.data()), {1, 1, rows, 64}),
                          .lse = row_view(const_cast<const float*>(lse.data()), {1, 1, rows})};
    std::vector<float> out(static_cast<std::size_t>(rows) * 64);
    Machine four = machine();
    four.threads = 4;
    return make_plan(make_merge_problem({{part}}, view(out.data(), {1, 1, rows, 64}), {}, threads), backends(),
                     {.resources = {.machine = &four}});
  };
  EXPECT_EQ(plan(16, 0).threads, 1);
  EXPECT_EQ(plan(16, 3).threads, 1);
  EXPECT_EQ(plan(1 << 16, 0).threads, 4);
  EXPECT_EQ(plan(1 << 16, 3).threads, 3);
  EXPECT_EQ(plan(1 << 16, 1).threads, 1);
  EXPECT_GE(plan(1 << 16, 0).tasks, 4);  // for all of them
}

}  // namespace
}  // namespace keel
