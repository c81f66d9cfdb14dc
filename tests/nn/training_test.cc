// Initialisers, optimisers, checkpoints, the KV cache, and whole runs: reproducible, and steady in memory.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>

#include "keel/nn/nn.h"
#include "support/temporary_folder.h"

namespace keel::nn {
namespace {

using testing::ElementsAre;

TEST(Init, VarianceIsWhatTheNameSays) {
  const Fans fans{300, 100};
  const std::vector<std::pair<std::string, double>> expected = {{"unit_normal", 1},
                                                                {"xavier_uniform", 2.0 / 400},
                                                                {"xavier_normal", 2.0 / 400},
                                                                {"kaiming_uniform", 2.0 / 300},
                                                                {"kaiming_normal", 2.0 / 300},
                                                                {"lecun_normal", 1.0 / 300},
                                                                {"torch_linear", 1.0 / 900},
                                                                {"gpt2", 0.0004}};
  for (const auto& [name, variance] : expected) {
    const Init init = init_by_name(name);
    EXPECT_EQ(name_of(init), name);
    EXPECT_DOUBLE_EQ(init_variance(init, fans), variance);
    Random random(1, name);
    const Tensor w = initial({100, 300}, init, random);
    EXPECT_NEAR(mean(w * w).item(), variance, 0.03 * variance) << name;
    EXPECT_NEAR(mean(w).item(), 0, 0.03 * std::sqrt(variance)) << name;
  }
  EXPECT_DOUBLE_EQ(init_variance(Init::xavier_normal, projection_fans(Projection::square, 512, 512, 8)), 2.0 / 1024);
  EXPECT_DOUBLE_EQ(init_variance(Init::xavier_normal, projection_fans(Projection::fused, 512, 512, 8)), 2.0 / 2048);
  EXPECT_DOUBLE_EQ(init_variance(Init::xavier_normal, projection_fans(Projection::per_head, 512, 512, 8)), 2.0 / 576);
}

// One parameter w = (1, −2), loss with gradient (0.5, 1) at every step.
struct Toy : Module {
  Tensor w = parameter("w", Tensor::of<double>({2}, {1, -2}));
  void run(Optimiser& optimiser, int steps) const {
    for (int i = 0; i < steps; ++i) {
      optimiser.zero_grad();
      sum(w * Tensor::of<double>({2}, {0.5, 1})).backward();
      optimiser.step();
    }
  }
};

TEST(Optimisers, StepsWorkedOutByHand) {
  Toy plain;
  SGD sgd(plain.parameters(), {.lr = 0.1});
  plain.run(sgd, 2);
  EXPECT_THAT(plain.w.values(), ElementsAre(testing::DoubleEq(0.9), testing::DoubleEq(-2.2)));
  Toy heavy;
  SGD momentum(heavy.parameters(), {.lr = 0.1, .momentum = 0.9});
  heavy.run(momentum, 2);  // u = g, then 1.9 g
  EXPECT_THAT(heavy.w.values(), ElementsAre(testing::DoubleEq(1 - 0.1 * 2.9 * 0.5), testing::DoubleEq(-2 - 0.1 * 2.9)));
  Toy adam;  // a gradient that stays makes m̂/√v̂ = 1
  Adam a(adam.parameters(), {.lr = 0.1, .epsilon = 0});
  adam.run(a, 3);
  EXPECT_THAT(adam.w.values(), ElementsAre(testing::DoubleNear(0.7, 1e-12), testing::DoubleNear(-2.3, 1e-12)));
  Toy decayed;
  AdamW w(decayed.parameters(), {.lr = 0.1, .epsilon = 0, .weight_decay = 0.5});
  decayed.run(w, 1);
  EXPECT_THAT(decayed.w.values(),
              ElementsAre(testing::DoubleNear(0.95 - 0.1, 1e-12), testing::DoubleNear(-1.9 - 0.1, 1e-12)));
}

TEST(Optimisers, ClippingScalesToTheNormAndReportsIt) {
  Toy toy;
  sum(toy.w * Tensor::of<double>({2}, {3, 4})).backward();
  EXPECT_DOUBLE_EQ(clip_gradients(toy.parameters(), 1.0), 5.0);
  EXPECT_THAT(toy.w.grad().values(), ElementsAre(testing::DoubleEq(0.6), testing::DoubleEq(0.8)));
  EXPECT_DOUBLE_EQ(clip_gradients(toy.parameters(), 2.0), 1.0);
  EXPECT_THAT(toy.w.grad().values(), ElementsAre(testing::DoubleEq(0.6), testing::DoubleEq(0.8)));
}

TEST(Schedules, WarmUpThenCosine) {
  EXPECT_DOUBLE_EQ(warmup(0, 3), 0.25);
  EXPECT_DOUBLE_EQ(warmup(2, 3), 0.75);
  EXPECT_DOUBLE_EQ(warmup(3, 3), 1);
  EXPECT_DOUBLE_EQ(warmup_cosine(2, 3, 103, 0.1), 0.75);
  EXPECT_DOUBLE_EQ(warmup_cosine(3, 3, 103, 0.1), 1);
  EXPECT_NEAR(warmup_cosine(53, 3, 103, 0.1), 0.55, 1e-12);
  EXPECT_DOUBLE_EQ(warmup_cosine(103, 3, 103, 0.1), 0.1);
}

GPTSettings small() {
  return {.vocabulary = 11, .context = 16, .d_model = 16, .heads = 2, .layers = 2, .dropout = 0.1};
}

Tensor batch(std::uint64_t step, std::int64_t rows = 4) {
  Random random(5, "batch");
  random.seek(step << 20);
  std::vector<std::int64_t> ids(static_cast<std::size_t>(rows * 16));
  for (std::int64_t& id : ids) id = random.below(11);
  return Tensor::of<std::int64_t>({rows, 16}, ids);
}

double train_step(GPT& model, Optimiser& optimiser, std::uint64_t step) {
  model.dropout_random().seek(step << 20);
  optimiser.zero_grad();
  const Tensor loss = model.loss(batch(step), batch(step));
  loss.backward();
  clip_gradients(model.parameters(), 1.0);
  optimiser.step();
  return loss.item();
}

std::vector<double> all_values(const Module& module) {
  std::vector<double> all;
  for (const auto& [name, w] : module.parameters()) {
    const std::vector<double> values = w.values();
    all.insert(all.end(), values.begin(), values.end());
  }
  return all;
}

TEST(Training, SameBitsForAnyNumberOfThreads) {
  const auto run = [](int threads) {
    set_threads(threads);
    GPT model({.vocabulary = 50, .context = 200, .d_model = 192, .heads = 3, .layers = 1, .dropout = 0.1});
    AdamW optimiser(model.parameters(), {});
    std::vector<std::int64_t> ids(5 * 200);
    for (std::size_t i = 0; i < ids.size(); ++i) ids[i] = static_cast<std::int64_t>(i * i % 50);
    const Tensor x = Tensor::of<std::int64_t>({5, 200}, ids);
    for (int step = 0; step < 2; ++step) {
      optimiser.zero_grad();
      model.loss(x, x).backward();
      optimiser.step();
    }
    set_threads(0);
    return all_values(model);
  };
  const std::vector<double> one = run(1);
  EXPECT_EQ(run(2), one);
  EXPECT_EQ(run(5), one);
}

TEST(Training, ResumedRunContinuesAsIfItHadNotStopped) {
  const test::TemporaryFolder folder;
  GPT whole(small());
  AdamW whole_optimiser(whole.parameters(), {});
  std::vector<double> curve;
  for (std::uint64_t step = 0; step < 6; ++step) curve.push_back(train_step(whole, whole_optimiser, step));

  {
    GPT first(small());
    AdamW optimiser(first.parameters(), {});
    for (std::uint64_t step = 0; step < 3; ++step) EXPECT_EQ(train_step(first, optimiser, step), curve[step]);
    Checkpoint checkpoint;
    append(checkpoint.tensors, "model.", first.parameters());
    append(checkpoint.tensors, "optimiser.", optimiser.state());
    save_checkpoint(folder / "run.safetensors", checkpoint);
  }
  GPTSettings other = small();
  other.seed = 0;
  GPT second(other);
  AdamW optimiser(second.parameters(), {});
  const Checkpoint checkpoint = load_checkpoint(folder / "run.safetensors");
  second.load(checkpoint.under("model."));
  optimiser.load_state(checkpoint.under("optimiser."));
  for (std::uint64_t step = 3; step < 6; ++step) EXPECT_EQ(train_step(second, optimiser, step), curve[step]);
  EXPECT_EQ(all_values(second), all_values(whole));
}

std::int64_t resident_bytes() {
  std::ifstream file("/proc/self/statm");
  std::int64_t pages = 0, resident = 0;
  file >> pages >> resident;
  return resident * 4096;
}

TEST(Training, AThousandStepsDoNotGrowTheProcess) {
  GPT model(small());
  AdamW optimiser(model.parameters(), {});
  for (std::uint64_t step = 0; step < 100; ++step) train_step(model, optimiser, step);
  const std::int64_t before = resident_bytes();
  for (std::uint64_t step = 100; step < 1100; ++step) train_step(model, optimiser, step);
  // One tensor of a step (64, 16) left behind each time would be 4 MB.
  EXPECT_LT(resident_bytes() - before, 1 << 20);
}

TEST(Training, GptLearnsToCopy) {
  GPTSettings settings = small();
  settings.dropout = 0;
  GPT model(settings);
  AdamW optimiser(model.parameters(), {.lr = 1e-2});
  double loss = 0;
  for (std::uint64_t step = 0; step < 60; ++step) loss = train_step(model, optimiser, step);
  EXPECT_LT(loss, 0.2);  // from ln 11 = 2.4
}

TEST(Gpt, CacheGivesTheLogitsOfTheWholeSequence) {
  GPT model(small());
  model.eval();
  Random random(1);
  // Greedy tokens by the cache, checked against the largest logit of a full pass, past the end of the context too.
  std::vector<std::int64_t> made = model.generate({3, 1, 4}, 13, 0.0, random);
  ASSERT_EQ(made.size(), 16u);
  const NoGrad off;
  const Tensor logits = model(Tensor::of<std::int64_t>({1, 16}, made));
  for (std::int64_t i = 2; i < 15; ++i) {
    std::int64_t best = 0;
    for (std::int64_t c = 1; c < 11; ++c) best = logits.at({0, i, c}) > logits.at({0, i, best}) ? c : best;
    EXPECT_EQ(made[static_cast<std::size_t>(i + 1)], best) << "at " << i;
  }
  EXPECT_EQ(model.generate({1}, 40, 1.0, random).size(), 41u);
}

TEST(Gpt, CacheOfAttentionMatchesACausalPass) {
  Random random(2);
  MultiHeadAttention mha(8, 2, random);
  const NoGrad off;
  const Tensor x = random.normal({2, 6, 8});
  const std::vector<double> whole = mha(x, x, {.causal = Causal::top_left}).values();
  KVCache cache(6);
  std::vector<Tensor> parts;
  for (const auto& [begin, end] : {std::pair{0, 3}, {3, 4}, {4, 6}}) {
    const Tensor part = slice(x, 1, begin, end);
    parts.push_back(mha(part, part, {.causal = Causal::bottom_right}, &cache));
  }
  EXPECT_EQ(cache.length(), 6);
  const std::vector<double> joined = concat(parts, 1).values();
  for (std::size_t i = 0; i < whole.size(); ++i) ASSERT_NEAR(joined[i], whole[i], 1e-6);
}

TEST(Module, LoadNeedsTheSameNamesAndShapesAndChangesNothingElse) {
  const test::TemporaryFolder folder;
  Random random(1);
  Linear a(3, 2, random), b(3, 2, random), wide(4, 2, random), bare(3, 2, random, {.bias = false});
  const auto refused = [&](Module& module, const std::string& message) {
    const std::vector<double> before = all_values(module);
    try {
      module.load(folder / "a.safetensors");
      ADD_FAILURE() << "loaded";
    } catch (const Error& error) {
      EXPECT_THAT(error.what(), testing::StartsWith(message));
    }
    EXPECT_EQ(all_values(module), before);
  };
  a.save(folder / "a.safetensors");
  b.load(folder / "a.safetensors");
  EXPECT_EQ(all_values(b), all_values(a));
  refused(wide, "[load] weight: expected shape (2, 4), got (2, 3)");
  refused(bare, "[load] bias: expected no tensor of this name, got one of shape (2)");
  bare.save(folder / "a.safetensors");
  refused(b, "[load] bias: expected a tensor of shape (2), got none of this name");
  EXPECT_EQ(folder.names(), std::set<std::string>{"a.safetensors"});
}

TEST(Module, NamesParametersByTheirPlace) {
  GPT model({.vocabulary = 5, .context = 4, .d_model = 4, .heads = 2, .layers = 1});
  std::vector<std::string> names;
  for (const auto& [name, w] : model.parameters()) names.push_back(name);
  EXPECT_THAT(names,
              testing::IsSupersetOf({"tokens.weight", "positions.weight", "h.0.ln_1.weight", "h.0.attn.W_Q.weight",
                                     "h.0.attn.W_O.bias", "h.0.W_2.weight", "ln_f.bias"}));
  EXPECT_EQ(model.parameter_count(), 5 * 4 + 4 * 4 + 4 * 4 + 4 * 20 + (16 * 4 + 16) + (16 * 4 + 4) + 8);
}

TEST(Positions, SinusoidalAreSinesAndCosines) {
  const Tensor p = sinusoidal_positions(3, 5, DType::f64);
  EXPECT_DOUBLE_EQ(p.at({2, 0}), std::sin(2.0));
  EXPECT_DOUBLE_EQ(p.at({2, 1}), std::cos(2.0));
  EXPECT_DOUBLE_EQ(p.at({2, 2}), std::sin(2.0 / std::pow(10000.0, 0.4)));
  EXPECT_DOUBLE_EQ(p.at({1, 4}), std::sin(1.0 / std::pow(10000.0, 0.8)));
}

}  // namespace
}  // namespace keel::nn
