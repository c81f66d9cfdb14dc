// The kernels for bf16 on every matrix unit of this machine, and on emulated tiles.
#include <gtest/gtest.h>
#include <tbb/global_control.h>

#include <cstring>

#include "conformance/expect.h"
#include "conformance/generator.h"
#include "conformance/random.h"
#include "conformance/slices.h"
#include "conformance/table.h"
#include "cpu/emulated_tiles.h"
#include "cpu/forced.h"
#include "cpu/on_target.h"
#include "cpu/unit.h"

namespace keel {
namespace {

using conformance::Case;
using conformance::Instance;

std::vector<const cpu::UnitKernels*> units() {
  std::vector<const cpu::UnitKernels*> all = cpu::emulated_tiles();
  for (const MatrixUnitState& state : machine().units) {
    if (state.why_not.empty()) all.push_back(&cpu::unit_kernels(state.unit));
  }
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
      conformance::expect_gradients_match_oracle(instance, forced_backward(forced));
    }
  }
}

// A case of the table in bf16.
Case in_bf16(Case c) {
  c.dtype = DType::bf16;
  return c;
}

TEST(MatrixUnits, TableMatchesTheOracle) {
  for (const Case& c : conformance::table()) expect_on_every_unit(Instance(in_bf16(c)));
}

TEST(MatrixUnits, RandomProblemsMatchTheOracle) {
  for (std::uint64_t seed = 0; seed < random_problems(); ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    expect_on_every_unit(Instance(in_bf16(conformance::random_case(seed))));
    expect_on_every_unit(Instance(in_bf16(conformance::random_case_with_masking_bias(seed))));
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
  if (!instance.description().gradients) return bytes;
  const conformance::GradientMemory gradients = instance.gradient_memory();
  run_forced(instance.backward_inputs(), gradients.gradients(), options, forced);
  for (const conformance::Array* array :
       {&gradients.dq, &gradients.dk, &gradients.dv, &gradients.dbias, &gradients.dscale, &gradients.dsinks}) {
    bytes += array->contents();
  }
  return bytes;
}

TEST(MatrixUnits, SameBitsForAnyNumberOfThreads) {
  const tbb::global_control many(tbb::global_control::max_allowed_parallelism, 16);
  for (const cpu::UnitKernels* unit : units()) {
    for (const Case& c : conformance::table()) {
      const Instance instance(in_bf16(c));
      const Forced forced = {.tiles = {32, 64, 64}, .share_small = true, .unit = unit};
      const std::string expected = bytes_of(instance, 1, forced);
      for (const int threads : {2, 3, 7, 16}) {
        EXPECT_EQ(bytes_of(instance, threads, forced) == expected, true)
            << unit->name << ": " << c.name << " with " << threads << " threads";
      }
    }
  }
}

// A row alone, as decoding computes it, against the same row among others.
TEST(MatrixUnits, RowsDoNotDependOnTheOthers) {
  constexpr std::int64_t n = 333, heads = 6, kv_heads = 2;
  for (const cpu::UnitKernels* unit : units()) {
    for (const std::int64_t d : {64, 48, 10}) {
      std::vector<BFloat16> q(heads * n * d), k(kv_heads * n * d), v(kv_heads * n * d), out(heads * n * d),
          row(heads * d);
      conformance::Generator random(11);
      for (auto* x : {&q, &k, &v}) {
        for (BFloat16& value : *x) value = to_bfloat16(random.normal());
      }
      const Forced forced = {.unit = unit};
      run_forced(view(q.data(), {1, heads, n, d}), view(k.data(), {1, kv_heads, n, d}),
                 view(v.data(), {1, kv_heads, n, d}), view(out.data(), {1, heads, n, d}),
                 {.causal = Causal::bottom_right}, {}, forced);
      for (const std::int64_t i : {std::int64_t{0}, std::int64_t{5}, std::int64_t{254}, std::int64_t{255}, n - 1}) {
        const std::int64_t keys = i + 1;
        TensorView qi = view(const_cast<const BFloat16*>(q.data()) + i * d, {1, heads, 1, d});
        qi.strides = {heads * n * d, n * d, d, 1};
        TensorView ki = view(const_cast<const BFloat16*>(k.data()), {1, kv_heads, keys, d});
        TensorView vi = view(const_cast<const BFloat16*>(v.data()), {1, kv_heads, keys, d});
        ki.strides = vi.strides = {kv_heads * n * d, n * d, d, 1};
        run_forced(qi, ki, vi, view(row.data(), {1, heads, 1, d}), {}, {}, forced);
        for (std::int64_t h = 0; h < heads; ++h) {
          EXPECT_EQ(std::memcmp(row.data() + h * d, out.data() + (h * n + i) * d, d * sizeof(BFloat16)), 0)
              << unit->name << ", d " << d << ": row " << i << " of head " << h;
        }
      }
    }
  }
}

// Nearly all weight is that of one key, first in one block and then, with larger scores, in later ones: sums of weights
// are little more than 1, and values close to the largest float must not overflow on the way.
TEST(MatrixUnits, LargeValuesDoNotOverflow) {
  constexpr std::int64_t rows = 40, keys = 1300, d = 32;
  const float value = to_float(to_bfloat16(3e38f));
  for (const double step : {2.5, 3.0, 5.0, 90.0}) {
    std::vector<BFloat16> q(rows * d), k(keys * d), v(keys * d, to_bfloat16(value)), out(rows * d);
    for (std::int64_t i = 0; i < rows; ++i) q[i * d] = to_bfloat16(1);
    for (std::int64_t j = 0; j < keys; ++j) k[j * d] = to_bfloat16(-300);
    double score = 0;
    for (const std::int64_t j : {5, 300, 700, 1200}) k[j * d] = to_bfloat16(score), score += step;
    for (const cpu::UnitKernels* unit : units()) {
      run_forced(view(q.data(), {1, 1, rows, d}), view(k.data(), {1, 1, keys, d}), view(v.data(), {1, 1, keys, d}),
                 view(out.data(), {1, 1, rows, d}), {.scale = 1.0}, {}, {.unit = unit});
      for (const BFloat16 x : out) {
        ASSERT_NEAR(to_float(x) / value, 1.0f, 0x1p-7f) << unit->name << ", scores " << step << " apart";
      }
    }
  }
}

// What the tests say of the emulation is then true of the hardware.
TEST(MatrixUnits, EmulatedTilesHaveTheBitsOfTheHardware) {
  const bool has_amx = machine().bf16_unit == MatrixUnit::amx;
  if (!has_amx) GTEST_SKIP() << "no AMX here";
  for (const Case& c : conformance::table()) {
    const Instance instance(in_bf16(c));
    const auto bytes = [&](const cpu::UnitKernels* unit) {
      return bytes_of(instance, 1, {.tiles = {96, 64, 128}, .unit = unit});
    };
    EXPECT_EQ(bytes(cpu::emulated_tiles().back()) == bytes(&cpu::unit_kernels(MatrixUnit::amx)), true) << c.name;
  }
}

TEST(MatrixUnits, OnlyMultiplyBf16) {
  const auto text = [&](DType dtype) {
    std::vector<std::byte> memory(64 * 8), result(64 * 8);
    const TensorView x = {memory.data(), dtype, {1, 1, 8, 8}, {64, 64, 8, 1}};
    const MutableTensorView out = {result.data(), dtype, {1, 1, 8, 8}, {64, 64, 8, 1}};
    return describe(make_plan(make_problem(x, x, x, out, {}, {}), backends(),
                              {.resources = resources(), .forced = {.unit = units().front()}}),
                    {});
  };
  EXPECT_NE(text(DType::bf16).find("products by emulated tiles"), std::string::npos);
  for (const DType dtype : {DType::f16, DType::f32, DType::f64}) {
    EXPECT_EQ(text(dtype).find("products by"), std::string::npos) << name_of(dtype);
  }
}

}  // namespace
}  // namespace keel
