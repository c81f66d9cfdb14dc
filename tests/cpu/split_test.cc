// The kernels for f32 in three parts of bf16, on AMX where this machine has it and on emulated tiles.
#include <gtest/gtest.h>
#include <tbb/global_control.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <limits>

#include "conformance/expect.h"
#include "conformance/generator.h"
#include "conformance/random.h"
#include "conformance/table.h"
#include "cpu/emulated_tiles.h"
#include "cpu/forced.h"
#include "cpu/on_target.h"
#include "cpu/plan.h"
#include "cpu/unit.h"

namespace keel {
namespace {

using conformance::Case;
using conformance::Instance;

std::vector<const cpu::UnitKernels*> units() {
  std::vector<const cpu::UnitKernels*> all = cpu::emulated_tiles(DType::f32);
  if (machine().bf16_unit == MatrixUnit::amx) all.push_back(&cpu::split_kernels());
  return all;
}

// As planned; with small tiles, which cross every boundary, whole and split.
void expect_on_every_unit(const Instance& instance) {
  for (const cpu::UnitKernels* unit : units()) {
    SCOPED_TRACE(unit->name);
    for (const Forced& forced :
         {Forced{.unit = unit}, Forced{.tiles = {96, 64, 128}, .split_keys = false, .unit = unit},
          Forced{.tiles = {32, 64, 64}, .split_keys = true, .share_small = true, .unit = unit}}) {
      conformance::expect_matches_oracle(instance, forced_forward(forced));
    }
  }
}

Case in_f32(Case c) {
  c.dtype = DType::f32;
  return c;
}

TEST(SplitFloats, TableMatchesTheOracle) {
  for (const Case& c : conformance::table()) expect_on_every_unit(Instance(in_f32(c)));
}

TEST(SplitFloats, RandomProblemsMatchTheOracle) {
  for (std::uint64_t seed = 0; seed < random_problems(); ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    expect_on_every_unit(Instance(in_f32(conformance::random_case(seed))));
    expect_on_every_unit(Instance(in_f32(conformance::random_case_with_masking_bias(seed))));
  }
}

std::string bytes_of(const Instance& instance, int threads, const Forced& forced) {
  Options options = instance.options();
  options.threads = threads;
  conformance::ForwardMemory memory = instance.forward_memory();
  run_forced(instance.q(), instance.k(), instance.v(), memory.out_view(), options, memory.outputs(), forced);
  std::string bytes;
  for (const conformance::Array* array :
       {&memory.out, &memory.lse, &memory.max_logit, &memory.entropy, &memory.max_weight, &memory.logit_mean,
        &memory.logit_var, &memory.visible, &memory.logit_count, &memory.weights, &memory.key_sums, &memory.scores}) {
    bytes += array->contents();
  }
  return bytes;
}

TEST(SplitFloats, SameBitsForAnyNumberOfThreads) {
  const tbb::global_control many(tbb::global_control::max_allowed_parallelism, 16);
  for (const cpu::UnitKernels* unit : units()) {
    for (const Case& c : conformance::table()) {
      const Instance instance(in_f32(c));
      const Forced forced = {.tiles = {32, 64, 64}, .share_small = true, .unit = unit};
      const std::string expected = bytes_of(instance, 1, forced);
      for (const int threads : {2, 3, 7, 16}) {
        EXPECT_EQ(bytes_of(instance, threads, forced) == expected, true)
            << unit->name << ": " << c.name << " with " << threads << " threads";
      }
    }
  }
}

// What the tests say of the emulation is then true of the hardware.
TEST(SplitFloats, EmulatedTilesHaveTheBitsOfTheHardware) {
  if (machine().bf16_unit != MatrixUnit::amx) GTEST_SKIP() << "no AMX here";
  for (const Case& c : conformance::table()) {
    const Instance instance(in_f32(c));
    const auto bytes = [&](const cpu::UnitKernels* unit) {
      return bytes_of(instance, 1, {.tiles = {96, 64, 128}, .unit = unit});
    };
    EXPECT_EQ(bytes(cpu::emulated_tiles(DType::f32).back()) == bytes(&cpu::split_kernels()), true) << c.name;
  }
}

// Self-attention of one head, and its output.
struct Head {
  Head(std::int64_t rows, std::int64_t size) : n(rows), d(size), q(n * d), k(n * d), v(n * d) {
    conformance::Generator random(11);
    for (auto* x : {&q, &k, &v}) {
      for (float& value : *x) value = static_cast<float>(random.normal());
    }
  }
  std::vector<float> attend(const cpu::UnitKernels* unit, const Options& options = {}) const {
    std::vector<float> out(static_cast<std::size_t>(n * d));
    const auto of = [&](const std::vector<float>& x) { return view(x.data(), {1, 1, n, d}); };
    run_forced(of(q), of(k), of(v), view(out.data(), {1, 1, n, d}), options, {}, {.unit = unit});
    return out;
  }

  std::int64_t n, d;
  std::vector<float> q, k, v;
};

double difference(const std::vector<float>& a, const std::vector<float>& b) {
  double error = 0, whole = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    error += (double{a[i]} - double{b[i]}) * (double{a[i]} - double{b[i]});
    whole += double{b[i]} * double{b[i]};
  }
  return std::sqrt(error / whole);
}

// Two kernels of f32 differ by their rounding; parts of 16 bits in all would differ by 1e-5.
TEST(SplitFloats, AreAsAccurateAsFloats) {
  for (const std::int64_t d : {64, 128}) {
    const Head head(300, d);
    const std::vector<float> expected = head.attend(nullptr);
    for (const cpu::UnitKernels* unit : units()) EXPECT_LE(difference(head.attend(unit), expected), 6e-7) << d;
  }
}

constexpr float kInfinity = std::numeric_limits<float>::infinity(), kNaN = std::numeric_limits<float>::quiet_NaN();

// Rows that are not split: the others must keep their bits, and these be what they are without the unit.
TEST(SplitFloats, RowsThatAreNotSplitAreComputedApart) {
  const Head usual(100, 40);
  for (const cpu::UnitKernels* unit : units()) {
    const std::vector<float> expected = usual.attend(unit, {.causal = Causal::top_left});
    for (const float factor : {0x1p50f, 0x1p-60f, 0x1p-130f, kInfinity, kNaN}) {
      for (std::vector<float> Head::*which : {&Head::q, &Head::k, &Head::v}) {
        Head head = usual;
        constexpr std::int64_t row = 70;
        for (std::int64_t c = 0; c < head.d; ++c) (head.*which)[row * head.d + c] *= factor;
        const std::vector<float> out = head.attend(unit, {.causal = Causal::top_left}),
                                 plain = head.attend(nullptr, {.causal = Causal::top_left});
        EXPECT_EQ(std::memcmp(out.data(), expected.data(), row * head.d * sizeof(float)), 0)
            << "rows that do not see it, " << factor;
        if (which == &Head::q) {
          const auto after = static_cast<std::size_t>((row + 1) * head.d);
          EXPECT_TRUE(std::equal(out.begin() + after, out.end(), expected.begin() + after)) << factor;
        }
        for (std::int64_t i = row; i < head.n; ++i) {
          double error = 0, whole = 0;
          for (std::int64_t c = 0; c < head.d; ++c) {
            const float a = out[i * head.d + c], b = plain[i * head.d + c];
            ASSERT_EQ(std::isnan(a), std::isnan(b)) << "row " << i << ", " << factor;
            if (std::isnan(b) || a == b) continue;
            error += (double{a} - b) * (double{a} - b);
            whole += double{b} * b;
          }
          EXPECT_LE(std::sqrt(error), 2e-6 * std::sqrt(whole)) << "row " << i << ", " << factor;
        }
      }
    }
  }
}

// However few they are.
TEST(SplitFloats, RowsHaveTheSameBitsAloneAndAmongOthers) {
  const Head head(70, 64);
  for (const cpu::UnitKernels* unit : units()) {
    const std::vector<float> expected = head.attend(unit);
    for (const std::int64_t rows : {1, 6, 7, 33}) {
      for (std::int64_t first = 0; first + rows <= head.n; first += 13) {
        std::vector<float> out(static_cast<std::size_t>(rows * head.d));
        const auto of = [&](const std::vector<float>& x) { return view(x.data(), {1, 1, head.n, head.d}); };
        run_forced(view(head.q.data() + first * head.d, {1, 1, rows, head.d}), of(head.k), of(head.v),
                   view(out.data(), {1, 1, rows, head.d}), {}, {}, {.unit = unit});
        EXPECT_EQ(std::memcmp(out.data(), expected.data() + first * head.d, out.size() * sizeof(float)), 0)
            << rows << " rows from " << first;
      }
    }
  }
}

// The rule knows no numbers of rows and keys, or rows would not have the same bits in a slice.
TEST(SplitFloats, AreChosenOnRequestByMachineAndHeadSizesAlone) {
  Machine with = machine(), without = machine();
  with.bf16_unit = MatrixUnit::amx;
  without.bf16_unit = MatrixUnit::avx512_bf16;
  const auto splits = [](DType dtype, std::int64_t n_q, std::int64_t n_k, std::int64_t d, bool request,
                         const Machine& machine) {
    const auto described = [&](std::int64_t n) {
      const std::array<std::int64_t, 4> shape = {1, 1, n, d};
      return TensorView{nullptr, dtype, shape, contiguous_strides(shape)};
    };
    const TensorView q = described(n_q), k = described(n_k);
    const MutableTensorView out = {nullptr, dtype, q.shape, q.strides};
    return cpu::splits_floats(make_problem(q, k, k, out, {.split_products = request}, {}, Pointers::ignored), machine);
  };
  for (const std::int64_t n_q : {1, 6, 7, 5000}) {
    for (const std::int64_t n_k : {1, 300, 5000}) {
      EXPECT_TRUE(splits(DType::f32, n_q, n_k, 64, true, with));
      EXPECT_TRUE(splits(DType::f32, n_q, n_k, 128, true, with));
      EXPECT_FALSE(splits(DType::f32, n_q, n_k, 128, false, with)) << "not requested";
      EXPECT_FALSE(splits(DType::f32, n_q, n_k, 63, true, with));
      EXPECT_FALSE(splits(DType::f32, n_q, n_k, 128, true, without));
      EXPECT_FALSE(splits(DType::bf16, n_q, n_k, 128, true, with));
      EXPECT_FALSE(splits(DType::f64, n_q, n_k, 128, true, with));
    }
  }
}

TEST(SplitFloats, APlanSaysWhyProductsAreNotSplit) {
  Machine machine = keel::machine();
  const auto text = [&](std::int64_t d, bool request) {
    const std::array<std::int64_t, 4> shape = {1, 1, 50, d};
    const TensorView x = {nullptr, DType::f32, shape, contiguous_strides(shape)};
    const Problem problem = make_problem(x, x, x, {nullptr, x.dtype, x.shape, x.strides}, {.split_products = request},
                                         {}, Pointers::ignored);
    std::vector<std::string> reasons;
    const Plan plan = make_plan(problem, backends(), {.resources = {.machine = &machine}, .reasons = &reasons});
    return describe(plan, reasons);
  };
  machine.bf16_unit = MatrixUnit::amx;
  EXPECT_NE(text(32, true).find("products are not split: d_k + d_v is 64"), std::string::npos) << text(32, true);
  EXPECT_EQ(text(64, false).find("split"), std::string::npos) << text(64, false);
  machine.bf16_unit = {};
  EXPECT_NE(text(64, true).find("products are not split: amx is not there"), std::string::npos) << text(64, true);
}

}  // namespace
}  // namespace keel
