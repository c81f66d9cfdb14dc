// The same bits for any number of threads, for any split of the work, and for a row whatever else is in the call.
#include <gtest/gtest.h>
#include <tbb/global_control.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "conformance/generator.h"
#include "conformance/table.h"
#include "cpu/forced.h"

namespace keel {
namespace {

using conformance::Case;
using conformance::ForwardMemory;
using conformance::Instance;

// All bytes that a call wrote.
std::string bytes_of(const Instance& instance, Options options, const Forced& forced) {
  ForwardMemory memory = instance.forward_memory();
  run_forced(instance.q(), instance.k(), instance.v(), memory.out_view(), options, memory.outputs(), forced);
  std::string bytes;
  for (const conformance::Array* array :
       {&memory.out, &memory.lse, &memory.max_logit, &memory.entropy, &memory.max_weight, &memory.logit_mean,
        &memory.logit_var, &memory.visible, &memory.logit_count, &memory.weights, &memory.key_sums, &memory.scores}) {
    bytes += array->contents();
  }
  return bytes;
}

TEST(Reproducible, SameBitsForAnyNumberOfThreads) {
  const tbb::global_control seven(tbb::global_control::max_allowed_parallelism, 7);  // whatever this machine has
  for (const Case& c : conformance::table()) {
    const Instance instance(c);
    Options options = instance.options();
    options.threads = 1;
    const std::string expected = bytes_of(instance, options, {});
    for (const int threads : {2, 3, 7}) {
      options.threads = threads;
      EXPECT_EQ(bytes_of(instance, options, {}) == expected, true) << c.name << " with " << threads << " threads";
      const Forced many = {.tiles = {12, 0, 0}, .share_small = true};  // tasks enough for all of them
      EXPECT_EQ(bytes_of(instance, options, many) == expected, true) << c.name << " in small tasks, " << threads;
    }
  }
}

std::string gradient_bytes_of(const Instance& instance, const Options& options, const Forced& forced) {
  const conformance::GradientMemory memory = instance.gradient_memory();
  run_forced(instance.backward_inputs(), memory.gradients(), options, forced);
  std::string bytes;
  for (const conformance::Array* array :
       {&memory.dq, &memory.dk, &memory.dv, &memory.dbias, &memory.dscale, &memory.dsinks, &memory.drelative}) {
    bytes += array->contents();
  }
  return bytes;
}

TEST(Reproducible, SameGradientBitsForAnyNumberOfThreads) {
  const tbb::global_control seven(tbb::global_control::max_allowed_parallelism, 7);
  for (const Case& c : conformance::table()) {
    if (!c.gradients) continue;
    const Instance instance(c);
    Options options = instance.options();
    options.threads = 1;
    const Tiles tiles = {12, 64};  // many blocks of keys that follow each other through many blocks of rows
    const std::string expected = gradient_bytes_of(instance, options, {.tiles = tiles});
    for (const int threads : {2, 3, 7}) {
      options.threads = threads;
      const Forced heads = {.tiles = tiles, .split_keys = false, .share_small = true};
      const Forced blocks = {.tiles = tiles, .split_keys = true, .share_small = true};
      EXPECT_EQ(gradient_bytes_of(instance, options, heads) == expected, true) << c.name << " by heads, " << threads;
      EXPECT_EQ(gradient_bytes_of(instance, options, blocks) == expected, true) << c.name << " by blocks, " << threads;
    }
  }
}

// A single head, long enough for the planner itself to divide its keys among threads.
TEST(Reproducible, SameGradientBitsOfOneLongHead) {
  const tbb::global_control seven(tbb::global_control::max_allowed_parallelism, 7);
  constexpr std::int64_t n = 1500, d = 32;
  const auto shape = std::array<std::int64_t, 4>{1, 1, n, d};
  std::vector<float> q(n * d), k(n * d), v(n * d), out(n * d), dout(n * d), lse(n);
  conformance::Generator random(12);
  for (auto* x : {&q, &k, &v, &dout}) {
    for (float& value : *x) value = static_cast<float>(random.normal());
  }
  for (const Causal causal : {Causal::none, Causal::top_left}) {
    const Options forward{.causal = causal};
    attention(view(q.data(), shape), view(k.data(), shape), view(v.data(), shape), view(out.data(), shape), forward,
              {.lse = row_view(lse.data(), {1, 1, n})});
    std::vector<float> expected;
    for (const int threads : {1, 2, 3, 7}) {
      std::vector<float> gradients(3 * n * d);
      attention_backward({.q = view(q.data(), shape),
                          .k = view(k.data(), shape),
                          .v = view(v.data(), shape),
                          .out = view(out.data(), shape),
                          .lse = row_view(lse.data(), {1, 1, n}),
                          .dout = view(dout.data(), shape)},
                         {.dq = view(gradients.data(), shape),
                          .dk = view(gradients.data() + n * d, shape),
                          .dv = view(gradients.data() + 2 * n * d, shape)},
                         {.causal = causal, .threads = threads});
      if (expected.empty()) expected = gradients;
      EXPECT_EQ(std::memcmp(gradients.data(), expected.data(), gradients.size() * sizeof(float)), 0) << threads;
    }
  }
}

TEST(Reproducible, SameBitsWhetherKeysAreSplitOrNot) {
  for (const Case& c : conformance::table()) {
    const Instance instance(c);
    Options options = instance.options();
    options.threads = 2;
    const Tiles tiles = {48, 64, 64};
    EXPECT_EQ(bytes_of(instance, options, {.tiles = tiles, .split_keys = true}) ==
                  bytes_of(instance, options, {.tiles = tiles, .split_keys = false}),
              true)
        << c.name;
  }
}

// A row alone, as decoding computes it, against the same row among others.
TEST(Reproducible, RowsDoNotDependOnTheOthers) {
  constexpr std::int64_t n = 777, d = 64, heads = 6, kv_heads = 2;
  std::vector<float> q(heads * n * d), k(kv_heads * n * d), v(kv_heads * n * d), out(heads * n * d), row(heads * d);
  conformance::Generator random(11);
  for (auto* x : {&q, &k, &v}) {
    for (float& value : *x) value = static_cast<float>(random.normal());
  }
  for (const bool alone : {false, true}) {
    run_forced(view(q.data(), {1, heads, n, d}), view(k.data(), {1, kv_heads, n, d}),
               view(v.data(), {1, kv_heads, n, d}), view(out.data(), {1, heads, n, d}),
               {.causal = Causal::bottom_right}, {}, {});
    for (const std::int64_t i : {std::int64_t{0}, std::int64_t{5}, std::int64_t{255}, std::int64_t{511}, n - 1}) {
      const std::int64_t keys = i + 1;
      TensorView qi = view(const_cast<const float*>(q.data()) + i * d, {1, heads, 1, d});
      qi.strides = {heads * n * d, n * d, d, 1};
      TensorView ki = view(const_cast<const float*>(k.data()), {1, kv_heads, keys, d});
      TensorView vi = view(const_cast<const float*>(v.data()), {1, kv_heads, keys, d});
      ki.strides = vi.strides = {kv_heads * n * d, n * d, d, 1};
      run_forced(qi, ki, vi, view(row.data(), {1, heads, 1, d}), {.threads = alone ? 1 : 2}, {}, {});
      for (std::int64_t h = 0; h < heads; ++h) {
        EXPECT_EQ(std::memcmp(row.data() + h * d, out.data() + (h * n + i) * d, d * sizeof(float)), 0)
            << "row " << i << " of head " << h;
      }
    }
  }
}

// With the heads of a key side by side, decoding takes them together, block by block.
TEST(Reproducible, HeadsReadTogetherHaveTheBitsOfHeadsAlone) {
  constexpr std::int64_t n = 1000, d = 64, heads = 8, kv_heads = 4;
  std::vector<float> q(heads * d), k(n * kv_heads * d), v(k.size()), apart_k(k.size()), apart_v(k.size());
  conformance::Generator random(5);
  for (auto* x : {&q, &k, &v}) {
    for (float& value : *x) value = static_cast<float>(random.normal());
  }
  for (std::int64_t j = 0; j < n; ++j) {
    for (std::int64_t h = 0; h < kv_heads; ++h) {
      std::copy_n(k.data() + (j * kv_heads + h) * d, d, apart_k.data() + (h * n + j) * d);
      std::copy_n(v.data() + (j * kv_heads + h) * d, d, apart_v.data() + (h * n + j) * d);
    }
  }
  const auto run = [&](std::vector<float>& keys, std::vector<float>& values, bool together, int threads) {
    TensorView k_view = view(keys.data(), {1, kv_heads, n, d}), v_view = view(values.data(), {1, kv_heads, n, d});
    if (together) k_view.strides = v_view.strides = {n * kv_heads * d, d, kv_heads * d, 1};
    std::vector<float> out(heads * d);
    run_forced(view(q.data(), {1, heads, 1, d}), k_view, v_view, view(out.data(), {1, heads, 1, d}),
               {.threads = threads}, {}, {.tiles = {12, 64, 256}, .share_small = true});
    return out;
  };
  const std::vector<float> expected = run(apart_k, apart_v, false, 1);
  for (const int threads : {1, 2, 3}) EXPECT_EQ(run(k, v, true, threads), expected) << threads << " threads";
}

// A mask that all queries share is a range of keys to the kernel; written out for every query it is not.
TEST(Reproducible, ASharedMaskHasTheBitsOfADenseOne) {
  static constexpr std::int64_t n = 150, d = 32, heads = 4, kv_heads = 2;
  const auto masked = [](std::int64_t begin, std::int64_t end, std::int64_t hole) {
    std::vector<std::uint8_t> mask(n, 0);
    for (std::int64_t j = begin; j < end; ++j) mask[j] = j != hole;
    return mask;
  };
  for (const auto& keys : {masked(0, n, -1), masked(0, 100, -1), masked(37, n, -1), masked(70, 71, -1),
                           masked(64, 128, -1), masked(10, 140, 77), masked(0, 0, -1)}) {
    std::vector<float> q(heads * n * d), k(kv_heads * n * d), v(kv_heads * n * d), dout(heads * n * d);
    conformance::Generator random(12);
    for (auto* x : {&q, &k, &v, &dout}) {
      for (float& value : *x) value = static_cast<float>(random.normal());
    }
    for (std::int64_t j = 0; j < kv_heads * n; ++j) {  // what is hidden may hold anything
      if (keys[j % n] == 0) k[j * d + 3] = v[j * d + 5] = NAN;
    }
    std::vector<std::uint8_t> dense;
    for (std::int64_t i = 0; i < n; ++i) dense.insert(dense.end(), keys.begin(), keys.end());
    const auto run = [&](const std::vector<std::uint8_t>& mask, std::int64_t rows, Causal causal) {
      std::vector<float> out(heads * n * d), lse(heads * n), entropy(heads * n), dq(q.size()), dk(k.size()),
          dv(v.size());
      const auto of = [](auto& x, std::int64_t h) { return view(x.data(), {1, h, n, d}); };
      const auto each = [](std::vector<float>& x) {
        return MutableRowView{x.data(), DType::f32, {1, heads, n}, {heads * n, n, 1}};
      };
      const Options options = {.mask = view(reinterpret_cast<const bool*>(mask.data()), {1, 1, rows, n}),
                               .causal = causal};
      const TensorView q_view = of(q, heads), k_view = of(k, kv_heads), v_view = of(v, kv_heads);
      run_forced(q_view, k_view, v_view, of(out, heads), options, {.lse = each(lse), .entropy = each(entropy)}, {});
      BackwardInputs inputs = {.q = q_view, .k = k_view, .v = v_view, .out = of(out, heads), .lse = each(lse)};
      inputs.dout = of(dout, heads);
      run_forced(inputs, {.dq = of(dq, heads), .dk = of(dk, kv_heads), .dv = of(dv, kv_heads)}, options, {});
      std::string bytes;
      for (const auto* x : {&out, &lse, &entropy, &dq, &dk, &dv}) {
        bytes.append(reinterpret_cast<const char*>(x->data()), x->size() * sizeof(float));
      }
      return bytes;
    };
    for (const Causal causal : {Causal::none, Causal::top_left}) {
      EXPECT_EQ(run(keys, 1, causal) == run(dense, n, causal), true)
          << std::count(keys.begin(), keys.end(), 1) << " keys, causal " << (causal != Causal::none);
    }
  }
}

}  // namespace
}  // namespace keel
