// Every operation's gradient against central differences in float64, odd shapes and broadcasting included.
#include "nn/gradient_check.h"

namespace keel::nn {
namespace {

using test::expect_gradients;
using test::normal;
using Inputs = std::vector<Tensor>;

TEST(Gradients, BinaryOperationsWithEveryWayOfBroadcasting) {
  const std::vector<std::pair<Shape, Shape>> shapes = {{{3, 5}, {3, 5}}, {{3, 5}, {5}},    {{5}, {3, 5}},
                                                       {{3, 5}, {3, 1}}, {{3, 1}, {1, 5}}, {{}, {2, 3}},
                                                       {{2, 3}, {}},     {{}, {}},         {{2, 1, 3}, {4, 1}},
                                                       {{1}, {7}},       {{1, 1}, {2, 3}}, {{2, 3, 1, 2}, {3, 5, 1}}};
  for (const auto& [a, b] : shapes) {
    const std::string what = shape_text(a) + " and " + shape_text(b);
    const Inputs inputs{normal(a, "a"), normal(b, "b")};
    expect_gradients("add " + what, inputs, [](const Inputs& x) { return x[0] + x[1]; });
    expect_gradients("sub " + what, inputs, [](const Inputs& x) { return x[0] - x[1]; });
    expect_gradients("mul " + what, inputs, [](const Inputs& x) { return x[0] * x[1]; });
    // Away from 0, where central differences are no measure.
    expect_gradients("div " + what, {inputs[0], Random(1, "c").uniform(b, 1.0, 2.0, DType::f64)},
                     [](const Inputs& x) { return x[0] / x[1]; });
  }
}

TEST(Gradients, ATensorUsedTwiceGetsBothGradients) {
  expect_gradients("x·x + x", {normal({3, 2})}, [](const Inputs& x) { return x[0] * x[0] + x[0]; });
  expect_gradients("x/x²", {Random(1, "c").uniform({5}, 1.0, 2.0, DType::f64)},
                   [](const Inputs& x) { return x[0] / (x[0] * x[0]); });
}

TEST(Gradients, BinaryOperationsOnTransposedTensors) {
  expect_gradients("xᵀ·y", {normal({3, 4}, "a"), normal({4, 3}, "b")},
                   [](const Inputs& x) { return transpose(x[0], 0, 1) * x[1]; });
  expect_gradients("xᵀ + yᵀ", {normal({3, 4}, "a"), normal({3, 4}, "b")},
                   [](const Inputs& x) { return transpose(x[0], 0, 1) + transpose(x[1], 0, 1); });
}

TEST(Gradients, WithNumbers) {
  expect_gradients("(2x + 3)/4 − 1", {normal({3})}, [](const Inputs& x) { return (x[0] * 2.0 + 3.0) / 4.0 - 1.0; });
}

TEST(Gradients, Maps) {
  for (const Shape& shape : {Shape{}, Shape{1}, Shape{7}, Shape{3, 5}, Shape{2, 3, 4}}) {
    const Inputs x{normal(shape) * 2.0};
    expect_gradients("relu", x, [](const Inputs& i) { return relu(i[0]); });
    expect_gradients("gelu", x, [](const Inputs& i) { return gelu(i[0]); });
    expect_gradients("tanh", x, [](const Inputs& i) { return tanh(i[0]); });
    expect_gradients("sigmoid", x, [](const Inputs& i) { return sigmoid(i[0]); });
    expect_gradients("exp", x, [](const Inputs& i) { return exp(i[0]); });
    expect_gradients("log", {Random(1, "c").uniform(shape, 0.5, 2.0, DType::f64)},
                     [](const Inputs& i) { return log(i[0]); });
  }
}

TEST(Gradients, Matmul) {
  const std::vector<std::pair<Shape, Shape>> shapes = {
      {{2, 3}, {3, 4}},       {{1, 1}, {1, 1}},    {{5, 1}, {1, 3}},    {{1, 7}, {7, 1}},
      {{2, 2, 3}, {2, 3, 4}}, {{2, 2, 3}, {3, 4}}, {{2, 3}, {2, 3, 1}}, {{2, 1, 2, 3}, {1, 3, 3, 2}}};
  for (const auto& [a, b] : shapes) {
    expect_gradients("matmul " + shape_text(a) + " and " + shape_text(b), {normal(a, "a"), normal(b, "b")},
                     [](const Inputs& x) { return matmul(x[0], x[1]); });
  }
  expect_gradients("matmul of transposed", {normal({2, 3, 2}, "a"), normal({2, 4, 3}, "b")},
                   [](const Inputs& x) { return matmul(transpose(x[0], 1, 2), transpose(x[1], 1, 2)); });
  expect_gradients("matmul of slices", {normal({4, 5}, "a"), normal({5, 6}, "b")},
                   [](const Inputs& x) { return matmul(slice(x[0], 1, 1, 4), slice(slice(x[1], 0, 0, 3), 1, 2, 5)); });
}

TEST(Gradients, Linear) {
  for (const Shape& x : {Shape{3}, Shape{2, 3}, Shape{2, 5, 3}}) {
    expect_gradients("linear", {normal(x, "a"), normal({4, 3}, "b"), normal({4}, "c")},
                     [](const Inputs& i) { return linear(i[0], i[1], i[2]); });
    expect_gradients("linear without bias", {normal(x, "a"), normal({1, 3}, "b")},
                     [](const Inputs& i) { return linear(i[0], i[1]); });
  }
}

TEST(Gradients, Reductions) {
  for (const Shape& shape : {Shape{7}, Shape{3, 5}, Shape{2, 3, 4}}) {
    const Inputs x{normal(shape)};
    expect_gradients("sum", x, [](const Inputs& i) { return sum(i[0]); });
    expect_gradients("mean", x, [](const Inputs& i) { return mean(i[0]); });
    for (int dim = -1; dim < static_cast<int>(shape.size()); ++dim) {
      for (const bool keep : {false, true}) {
        expect_gradients("sum along", x, [=](const Inputs& i) { return sum(i[0], dim, keep); });
        expect_gradients("mean along", x, [=](const Inputs& i) { return mean(i[0], dim, keep); });
        expect_gradients("max along", x, [=](const Inputs& i) { return max(i[0], dim, keep); });
      }
    }
  }
}

TEST(Gradients, Softmax) {
  for (const Shape& shape : {Shape{1}, Shape{5}, Shape{3, 7}, Shape{2, 3, 4}}) {
    for (int dim = -1; dim < static_cast<int>(shape.size()); ++dim) {
      expect_gradients("softmax", {normal(shape)}, [=](const Inputs& i) { return softmax(i[0], dim); });
      expect_gradients("log_softmax", {normal(shape)}, [=](const Inputs& i) { return log_softmax(i[0], dim); });
    }
  }
}

TEST(Gradients, CrossEntropyWithIgnoredLabels) {
  const Tensor labels = Tensor::of<std::int64_t>({2, 3}, {0, 4, kIgnored, 2, kIgnored, 1});
  expect_gradients("cross_entropy", {normal({2, 3, 5})}, [&](const Inputs& i) { return cross_entropy(i[0], labels); });
}

TEST(Gradients, CrossEntropyWithSmoothedLabels) {
  const Tensor labels = Tensor::of<std::int64_t>({2, 3}, {0, 4, kIgnored, 2, 2, 1});
  for (const double smoothing : {0.1, 0.5}) {
    expect_gradients("cross_entropy", {normal({2, 3, 5})},
                     [&](const Inputs& i) { return cross_entropy(i[0], labels, kIgnored, smoothing); });
  }
  // The definition: (1 − ε) of the label's and ε of every class's −log p.
  const Tensor logits = normal({2, 3, 5});
  double expected = 0;
  for (std::int64_t c = 0; c < 5; ++c) {
    const Tensor all = Tensor::of<std::int64_t>({2, 3}, {c, c, kIgnored, c, c, c});
    expected += 0.1 / 5 * cross_entropy(logits, all).item();
  }
  expected += 0.9 * cross_entropy(logits, labels).item();
  EXPECT_NEAR(cross_entropy(logits, labels, kIgnored, 0.1).item(), expected, 1e-12);
}

TEST(Gradients, LayerNorm) {
  for (const Shape& x : {Shape{5}, Shape{3, 7}, Shape{2, 3, 4}}) {
    const std::int64_t d = x.back();
    expect_gradients("layer_norm", {normal(x, "a"), normal({d}, "b"), normal({d}, "c")},
                     [](const Inputs& i) { return layer_norm(i[0], i[1], i[2]); });
  }
}

TEST(Gradients, EmbeddingWithRepeatedRows) {
  const Tensor ids = Tensor::of<std::int64_t>({2, 3}, {0, 4, 4, 2, 0, 4});
  expect_gradients("embedding", {normal({5, 3})}, [&](const Inputs& i) { return embedding(i[0], ids); });
}

TEST(Gradients, GatherWithRepeatedPlaces) {
  const Tensor index = Tensor::of<std::int64_t>({2, 2, 3}, {0, 2, 1, 0, 0, 2, 1, 1, 1, 2, 0, 2});
  for (int dim = 0; dim < 3; ++dim) {
    expect_gradients("gather", {normal({3, 3, 3})}, [&](const Inputs& i) { return gather(i[0], dim, index); });
  }
  expect_gradients("gather of transposed", {normal({3, 3, 3})},
                   [&](const Inputs& i) { return gather(transpose(i[0], 0, 2), 1, index); });
}

TEST(Gradients, Shapes) {
  const Inputs x{normal({2, 3, 4})};
  expect_gradients("reshape", x, [](const Inputs& i) { return reshape(i[0], {6, -1}); });
  expect_gradients("reshape of transposed", x, [](const Inputs& i) { return reshape(transpose(i[0], 0, 1), {3, 8}); });
  expect_gradients("transpose", x, [](const Inputs& i) { return transpose(i[0], 0, 2); });
  expect_gradients("slice", x, [](const Inputs& i) { return slice(i[0], 1, 1, 3); });
  expect_gradients("slices that overlap", x,
                   [](const Inputs& i) { return slice(i[0], 1, 0, 2) * slice(i[0], 1, 1, 3) + slice(i[0], 1, 1, 3); });
  // The sum's gradient is one tensor for both; what the slice adds to x's share must not show in y's.
  expect_gradients("slice beside a sum", {normal({4}, "a"), normal({4}, "b")}, [](const Inputs& i) {
    const Tensor part = slice(i[0], 0, 1, 3);
    return concat({part, i[0] + i[1]}, 0);
  });
  for (int dim = 0; dim < 3; ++dim) {
    expect_gradients("concat", {normal({2, 3, 4}, "a"), normal({2, 3, 4}, "b")}, [=](const Inputs& i) {
      return concat({i[0], i[1], i[0]}, dim);
    });
  }
}

TEST(Gradients, DropoutWithTheSameSeed) {
  expect_gradients("dropout", {normal({4, 6})}, [](const Inputs& i) {
    Random random(3);
    return dropout(i[0], 0.4, random);
  });
}

// q (2, 2, 3, 4), k and v of 5 keys; every option that has a gradient, alone and all at once.
TEST(Gradients, AttentionWithRespectToEveryInput) {
  const Inputs qkv{normal({2, 2, 3, 4}, "q"), normal({2, 2, 5, 4}, "k"), normal({2, 2, 5, 3}, "v")};
  expect_gradients("plain", qkv, [](const Inputs& i) { return attention(i[0], i[1], i[2]); });
  expect_gradients("causal", qkv, [](const Inputs& i) {
    return attention(i[0], i[1], i[2], {.causal = Causal::bottom_right, .k_lengths = {5, 4}});
  });
  for (const Shape& shape : {Shape{2, 2, 3, 5}, Shape{1, 2, 1, 5}, Shape{3, 5}, Shape{5}}) {
    Inputs inputs = qkv;
    inputs.push_back(normal(shape, "bias"));
    expect_gradients("bias " + shape_text(shape), inputs,
                     [](const Inputs& i) { return attention(i[0], i[1], i[2], {.bias = i[3]}); });
  }
  for (const Shape& shape : {Shape{2, 2, 3}, Shape{1, 2, 1}, Shape{2, 1}, Shape{}}) {
    Inputs inputs = qkv;
    inputs.push_back(normal(shape, "scale"));
    expect_gradients("scale " + shape_text(shape), inputs,
                     [](const Inputs& i) { return attention(i[0], i[1], i[2], {.scale_tensor = i[3]}); });
  }
  expect_gradients("all at once",
                   {qkv[0], qkv[1], qkv[2], normal({2, 1, 3, 5}, "b"), normal({1, 2, 1}, "s"), normal({2}, "z")},
                   [](const Inputs& i) {
                     return attention(i[0], i[1], i[2],
                                      {.scale_tensor = i[4],
                                       .softcap = 3.0,
                                       .bias = i[3],
                                       .causal = Causal::bottom_right,
                                       .sinks = i[5],
                                       .dropout = 0.2,
                                       .seed = 5});
                   });
}

TEST(Gradients, AttentionOnTransposedTensorsAndGroupedHeads) {
  const auto heads = [](const Tensor& x) { return transpose(x, 1, 2); };  // (B, N, H, d) → (B, H, N, d)
  expect_gradients("transposed", {normal({2, 3, 4, 2}, "q"), normal({2, 5, 2, 2}, "k"), normal({2, 5, 2, 3}, "v")},
                   [&](const Inputs& i) { return heads(attention(heads(i[0]), heads(i[1]), heads(i[2]))); });
}

}  // namespace
}  // namespace keel::nn
