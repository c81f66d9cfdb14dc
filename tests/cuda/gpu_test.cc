// The CUDA backend on a GPU, against the oracle; skipped where there is none.
#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <stdexcept>
#include <string>
#include <vector>

#include "conformance/expect.h"
#include "conformance/generator.h"
#include "conformance/random.h"
#include "conformance/slices.h"
#include "conformance/table.h"
#include "cuda/on_gpu.h"

namespace keel::test {
namespace {

using conformance::BiasKind;
using conformance::expect_gradients_match_oracle;
using conformance::expect_matches_oracle;
using conformance::MaskKind;

// What only the CPU serves is refused.
struct Instance : conformance::Instance {
  explicit Instance(const conformance::Case& c) : conformance::Instance(for_any_backend(c)) {}
};

// How many random problems there are: KEEL_RANDOM_PROBLEMS, for long runs, or enough for every day.
std::uint64_t random_problems(std::uint64_t enough) {
  const char* const asked = std::getenv("KEEL_RANDOM_PROBLEMS");
  return asked != nullptr ? std::strtoull(asked, nullptr, 10) : enough;
}

// Calls visit(i) for i < count; KEEL_SHARE=a/n takes every n-th from the a-th on, for runs side by side.
template <class Visit>
void each_of(std::uint64_t count, const Visit& visit) {
  unsigned long long first = 0, step = 1;
  const char* const share = std::getenv("KEEL_SHARE");
  if (share != nullptr && (std::sscanf(share, "%llu/%llu", &first, &step) != 2 || first >= step)) {
    throw std::invalid_argument(std::string("KEEL_SHARE: expected a/n with a < n, got ") + share);
  }
  for (std::uint64_t i = first; i < count; i += step) {
    SCOPED_TRACE("number " + std::to_string(i));
    visit(i);
  }
}

// Those of the table.
template <class Visit>
void each_case(const Visit& visit) {
  const auto& cases = conformance::table();
  each_of(cases.size(), [&](std::uint64_t i) { visit(Instance(cases[i])); });
}

class Gpu : public testing::Test {
 protected:
  void SetUp() override {
    if (!has_gpu()) GTEST_SKIP() << "no GPU";
  }
  void TearDown() override {
    for (const auto& [kernel, calls] : kernels_) std::printf("%s: %d calls\n", kernel.c_str(), calls);
  }

  // By the plain kernel, and as planned; with lists on the GPU and on the CPU.
  void expect_both(const Instance& instance) {
    expect_matches_oracle(instance, forward_on_gpu({.plain = true, .kernels = &kernels_}));
    expect_matches_oracle(instance, forward_on_gpu({.lists_there = false, .kernels = &kernels_}));
  }

  void expect_both_gradients(const Instance& instance) {
    expect_gradients_match_oracle(instance, backward_on_gpu({.plain = true, .kernels = &kernels_}));
    expect_gradients_match_oracle(instance, backward_on_gpu({.lists_there = false, .kernels = &kernels_}));
  }

  std::map<std::string, int> kernels_;
};

TEST_F(Gpu, TableMatchesTheOracle) {
  each_case([&](const Instance& instance) { expect_both(instance); });
}

TEST_F(Gpu, RandomProblemsMatchTheOracle) {
  each_of(random_problems(200), [&](std::uint64_t seed) { expect_both(Instance(conformance::random_case(seed))); });
}

TEST_F(Gpu, RandomProblemsForMatrixUnitsMatchTheOracle) {
  each_of(random_problems(400), [&](std::uint64_t seed) {
    const Instance instance(conformance::random_case_for_matrix_units(seed));
    expect_matches_oracle(instance, forward_on_gpu({.lists_there = seed % 2 == 0, .kernels = &kernels_}));
  });
}

TEST_F(Gpu, ArraysAtAnyAddressMatchTheOracle) {
  each_of(40, [&](std::uint64_t seed) {
    const Instance instance(conformance::random_case_for_matrix_units(seed));
    expect_matches_oracle(instance, forward_on_gpu({.offset = 8, .kernels = &kernels_}));
  });
}

TEST_F(Gpu, GradientsOfTheTableMatchTheOracle) {
  each_case([&](const Instance& instance) { expect_both_gradients(instance); });
}

TEST_F(Gpu, GradientsOfRandomProblemsMatchTheOracle) {
  each_of(random_problems(200),
          [&](std::uint64_t seed) { expect_both_gradients(Instance(conformance::random_case(seed))); });
}

TEST_F(Gpu, GradientsOfRandomProblemsForMatrixUnitsMatchTheOracle) {
  each_of(random_problems(400), [&](std::uint64_t seed) {
    const Instance instance(conformance::random_case_for_matrix_units(seed));
    expect_gradients_match_oracle(instance, backward_on_gpu({.lists_there = seed % 2 == 0, .kernels = &kernels_}));
  });
}

TEST_F(Gpu, GradientsInAnyOrderMatchTheOracle) {
  each_of(random_problems(200), [&](std::uint64_t seed) {
    const Instance instance(conformance::random_case_for_matrix_units(seed));
    expect_gradients_match_oracle(instance, backward_on_gpu({.any_order = true, .kernels = &kernels_}));
  });
}

TEST_F(Gpu, GradientsOfArraysAtAnyAddressMatchTheOracle) {
  each_of(40, [&](std::uint64_t seed) {
    const Instance instance(conformance::random_case_for_matrix_units(seed));
    expect_gradients_match_oracle(instance, backward_on_gpu({.offset = 8, .kernels = &kernels_}));
  });
}

// Added to what is there, in f32.
TEST_F(Gpu, GradientsOfSlicesAddUpToTheOracle) {
  each_of(random_problems(100), [&](std::uint64_t seed) {
    const Instance instance(conformance::random_case_for_matrix_units(seed));
    if (!conformance::lse_tells_weights(instance.description())) return;  // which is what slices are merged by
    expect_gradients_match_oracle(instance,
                                  conformance::sliced_backward(seed, backward_on_gpu({.kernels = &kernels_})));
  });
}

int repeats() {
  const char* const asked = std::getenv("KEEL_REPEATS");
  return asked != nullptr ? std::atoi(asked) : 20;
}

// A forward call many times over: how many of them give an output that differs in a bit from the first.
int calls_that_differ(const Instance& instance, int count) {
  int differ = 0;
  const auto run = forward_on_gpu({});
  const conformance::Forward repeated = [&](const TensorView& q, const TensorView& k, const TensorView& v,
                                            const MutableTensorView& out, const Options& options,
                                            const Outputs& outputs) {
    const Span span = extent_of(layout_of(out)).span;
    std::vector<std::byte> first(span.size);
    for (int i = 0; i < count; ++i) {
      run(q, k, v, out, options, outputs);
      const auto* const written = reinterpret_cast<const std::byte*>(span.low);
      if (i == 0) std::memcpy(first.data(), written, span.size);
      differ += std::memcmp(first.data(), written, span.size) == 0 ? 0 : 1;
    }
  };
  EXPECT_EQ(conformance::forward_mismatch(instance, repeated), "");
  return differ;
}

// Tiles of a bias or mask are overwritten by the next as soon as they have been read.
TEST_F(Gpu, OutputsHaveTheSameBitsEveryTime) {
  for (const auto& [bias, mask] : {std::pair{BiasKind::normal, MaskKind::none}, {BiasKind::none, MaskKind::random}}) {
    for (const std::int64_t d : {64, 128}) {
      conformance::Case c;
      c.name = "tiles of a term", c.dtype = DType::f16, c.q_heads = 3, c.n_q = 74, c.n_k = 304, c.d_k = c.d_v = d;
      c.causal = Causal::bottom_right, c.bias = bias, c.mask = mask;
      EXPECT_EQ(calls_that_differ(Instance(c), 10 * repeats()), 0) << conformance::describe(c);
    }
  }
}

// A call of the size that fills the GPU, so that blocks of keys of one head run at the same time.
struct Large {
  const char* name;
  std::int64_t batch, q_heads, kv_heads, n, d;
  Causal causal = Causal::none;
  std::vector<std::int64_t> offsets{};
};

// How many runs of a large backward call give other bits than the first.
int runs_that_differ(const Large& large, int runs) {
  const std::array<std::int64_t, 4> queries = {large.batch, large.q_heads, large.n, large.d};
  const std::array<std::int64_t, 4> keys = {large.batch, large.kv_heads, large.n, large.d};
  const std::array<std::int64_t, 3> rows = {large.batch, large.q_heads, large.n};
  const auto q_size = static_cast<std::size_t>(large.batch * large.q_heads * large.n * large.d);
  const auto k_size = q_size * static_cast<std::size_t>(large.kv_heads) / static_cast<std::size_t>(large.q_heads);
  conformance::Generator random(5);
  const auto numbers = [&](std::size_t count) {
    std::vector<BFloat16> x(count);
    for (BFloat16& value : x) value = to_bfloat16(random.normal());
    return x;
  };
  const auto q = numbers(q_size), k = numbers(k_size), v = numbers(k_size), dout = numbers(q_size);
  std::vector<BFloat16> out(q_size), dq(q_size), dk(k_size), dv(k_size);
  std::vector<float> lse(q_size / static_cast<std::size_t>(large.d));
  GpuCopies copies;
  Options options{.causal = large.causal};
  if (!large.offsets.empty()) options.q_offsets = options.k_offsets = large.offsets;
  const Options sent = send(copies, options, true);
  BackwardInputs in{.q = copies.send(view(q.data(), queries)),
                    .k = copies.send(view(k.data(), keys)),
                    .v = copies.send(view(v.data(), keys)),
                    .dout = copies.send(view(dout.data(), queries))};
  const MutableTensorView gpu_out = copies.send(view(out.data(), queries));
  const MutableRowView gpu_lse = copies.send(row_view(lse.data(), rows));
  attention(in.q, in.k, in.v, gpu_out, sent, {.lse = gpu_lse});
  in.out = gpu_out;
  in.lse = gpu_lse;
  const Gradients gradients{.dq = copies.send(view(dq.data(), queries)),
                            .dk = copies.send(view(dk.data(), keys)),
                            .dv = copies.send(view(dv.data(), keys))};
  const auto same = [](const std::vector<BFloat16>& a, const std::vector<BFloat16>& b) {
    return std::memcmp(a.data(), b.data(), a.size() * sizeof(BFloat16)) == 0;
  };
  std::vector<BFloat16> first_dq, first_dk, first_dv;
  int differ = 0;
  for (int run = 0; run < runs; ++run) {
    attention_backward(in, gradients, sent);
    copies.fetch();
    if (run == 0) first_dq = dq, first_dk = dk, first_dv = dv;
    differ += same(dq, first_dq) && same(dk, first_dk) && same(dv, first_dv) ? 0 : 1;
  }
  return differ;
}

TEST_F(Gpu, GradientsHaveTheSameBitsEveryTime) {
  for (const Large& large : {Large{"full", 1, 8, 8, 2048, 128}, Large{"wide", 1, 8, 8, 2048, 256},
                             Large{"causal", 1, 8, 8, 2048, 64, Causal::top_left},
                             Large{"grouped", 1, 16, 4, 1024, 128, Causal::bottom_right},
                             Large{"packed", 1, 8, 8, 2048, 64, Causal::top_left, {0, 500, 501, 1300, 2048}}}) {
    EXPECT_EQ(runs_that_differ(large, repeats()), 0) << large.name;
  }
}

}  // namespace
}  // namespace keel::test
