// Every module's and score function's gradients, with respect to its inputs and parameters, against central
// differences.
#include "nn/gradient_check.h"

namespace keel::nn {
namespace {

using test::expect_gradients;
using test::normal;
using Inputs = std::vector<Tensor>;

// Gradients of module(inputs) by the inputs and by each parameter.
template <class M, class F>
void expect_module_gradients(const std::string& what, M& module, const Inputs& inputs, const F& f) {
  module.to(DType::f64);
  Inputs all = inputs;
  for (const auto& [name, w] : module.parameters()) {
    // Away from where they begin: zeros and ones would hide a wrong gradient.
    const Tensor noise = Random(9, name).normal(w.shape(), 0.3, 0.0, DType::f64);
    for (std::size_t i = 0; i < w.template data<double>().size(); ++i) {
      w.template data<double>()[i] += noise.data<double>()[i];
    }
    all.push_back(w);
  }
  expect_gradients(what, all, [&](const Inputs& x) { return f(x); });
}

TEST(ModuleGradients, LinearEmbeddingAndLayerNorm) {
  Random random(1);
  Linear fc(3, 4, random);
  expect_module_gradients("Linear", fc, {normal({2, 3})}, [&](const Inputs& x) { return fc(x[0]); });
  LayerNorm norm(5);
  expect_module_gradients("LayerNorm", norm, {normal({3, 5})}, [&](const Inputs& x) { return norm(x[0]); });
  Embedding table(4, 3, random);
  const Tensor ids = Tensor::of<std::int64_t>({2, 2}, {3, 0, 0, 1});
  expect_module_gradients("Embedding", table, {}, [&](const Inputs&) { return table(ids); });
}

TEST(ModuleGradients, EveryScoreFunctionWithMasks) {
  const std::int64_t heads = 2, d = 3, n_k = 4;
  Random random(2);
  std::vector<std::pair<std::string, std::unique_ptr<ScoreFunction>>> scores;
  scores.emplace_back("additive", std::make_unique<AdditiveScore>(d, d, 5, random));
  scores.emplace_back("dot", std::make_unique<DotScore>());
  scores.emplace_back("general", std::make_unique<GeneralScore>(d, d, random));
  scores.emplace_back("concat", std::make_unique<ConcatScore>(d, d, 5, random));
  scores.emplace_back("location", std::make_unique<LocationScore>(d, n_k + 1, random));
  scores.emplace_back("scaled dot", std::make_unique<ScaledDotScore>());
  scores.emplace_back("temperature", std::make_unique<TemperatureScore>(heads, d));
  scores.emplace_back("query scale", std::make_unique<QueryScaleScore>(heads, d));
  scores.emplace_back("no scale", WrongScaleScore::none());
  scores.emplace_back("scale by model size", WrongScaleScore::by_model_size(heads * d));
  for (auto& [name, score] : scores) {
    const bool looks_at_keys = name != "location";
    Attention layer(std::move(score));
    const Tensor k = normal({2, heads, n_k, d}, "k");
    Inputs inputs{normal({2, heads, 3, d}, "q"), normal({2, heads, n_k, 2}, "v")};
    if (looks_at_keys) inputs.push_back(k);
    const auto keys = [&](const Inputs& x) { return looks_at_keys ? x[2] : k; };
    expect_module_gradients(name, layer, inputs, [&](const Inputs& x) { return layer(x[0], keys(x), x[1]); });
    expect_module_gradients(name + ", causal and padded", layer, inputs, [&](const Inputs& x) {
      return layer(x[0], keys(x), x[1], {.causal = Causal::bottom_right, .k_lengths = {4, 2}});
    });
  }
}

TEST(ModuleGradients, ScoresThatDifferInQueryAndKeySize) {
  Random random(3);
  Attention additive(std::make_unique<AdditiveScore>(3, 2, 4, random));
  const Inputs inputs{normal({2, 3, 3}, "q"), normal({2, 5, 2}, "k"), normal({2, 5, 4}, "v")};
  const auto run = [](const Attention& a) { return [&](const Inputs& x) { return a(x[0], x[1], x[2]); }; };
  expect_module_gradients("additive", additive, inputs, run(additive));
  Attention general(std::make_unique<GeneralScore>(3, 2, random));
  expect_module_gradients("general", general, inputs, run(general));
  Attention concat(std::make_unique<ConcatScore>(3, 2, 4, random));
  expect_module_gradients("concat", concat, inputs, run(concat));
}

TEST(ModuleGradients, MultiHeadAttentionSelfCrossCausalPadded) {
  Random random(4);
  MultiHeadAttention mha(4, 2, random);
  const Inputs one{normal({2, 3, 4}, "x")}, two{normal({2, 3, 4}, "x"), normal({2, 5, 4}, "y")};
  expect_module_gradients("self", mha, one, [&](const Inputs& x) { return mha(x[0], x[0]); });
  expect_module_gradients("cross", mha, two, [&](const Inputs& x) { return mha(x[0], x[1]); });
  expect_module_gradients("causal", mha, one,
                          [&](const Inputs& x) { return mha(x[0], x[0], {.causal = Causal::top_left}); });
  expect_module_gradients("padded", mha, two, [&](const Inputs& x) { return mha(x[0], x[1], {.k_lengths = {5, 3}}); });
  MultiHeadAttention learned(4, 2, random, {.bias = false, .score = [](std::int64_t heads, std::int64_t d_k) {
                                              return std::make_unique<TemperatureScore>(heads, d_k);
                                            }});
  expect_module_gradients("temperature", learned, one, [&](const Inputs& x) { return learned(x[0], x[0]); });
}

TEST(ModuleGradients, GruAndLstmInBothDirections) {
  for (const bool both : {false, true}) {
    Random random(5);
    GRU gru(3, 2, random, {.bidirectional = both});
    const std::int64_t directions = both ? 2 : 1;
    const Inputs x{normal({2, 4, 3}, "x"), normal({directions, 2, 2}, "h"), normal({directions, 2, 2}, "c")};
    expect_module_gradients("GRU", gru, {x[0], x[1]}, [&](const Inputs& i) {
      const auto [output, h] = gru(i[0], i[1]);
      return concat({reshape(output, {-1}), reshape(h, {-1})}, 0);
    });
    LSTM lstm(3, 2, random, {.bidirectional = both});
    expect_module_gradients("LSTM", lstm, x, [&](const Inputs& i) {
      const auto [output, h, c] = lstm(i[0], i[1], i[2]);
      return concat({reshape(output, {-1}), reshape(h, {-1}), reshape(c, {-1})}, 0);
    });
  }
}

TEST(ModuleGradients, TransformerBlockAndGpt) {
  Random random(6);
  TransformerBlock block({.d_model = 4, .heads = 2, .d_hidden = 5}, random);
  expect_module_gradients("block", block, {normal({2, 3, 4})},
                          [&](const Inputs& x) { return block(x[0], {.causal = Causal::top_left}); });
  for (const Positions positions : {Positions::learned, Positions::sinusoidal}) {
    GPT gpt({.vocabulary = 5, .context = 4, .d_model = 4, .heads = 2, .layers = 1, .positions = positions});
    const Tensor ids = Tensor::of<std::int64_t>({2, 4}, {0, 1, 2, 3, 4, 3, 2, 0});
    const Tensor labels = Tensor::of<std::int64_t>({2, 4}, {1, 2, 3, 4, kIgnored, 2, 1, 0});
    expect_module_gradients("GPT", gpt, {}, [&](const Inputs&) { return gpt.loss(ids, labels); });
  }
}

}  // namespace
}  // namespace keel::nn
