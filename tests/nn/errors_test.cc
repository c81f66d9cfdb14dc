// A wrong argument raises keel::Error that names the operation and what came, both shapes where two must agree.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>

#include "keel/nn/nn.h"

namespace keel::nn {
namespace {

std::string message_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    const std::string message = error.what();
    const bool about_dtype = message.find("expected dtype") != std::string::npos;
    EXPECT_EQ(error.code(), about_dtype ? ErrorCode::wrong_dtype : ErrorCode::invalid_argument) << message;
    return message;
  }
  return "";
}

Tensor f(const Shape& shape) { return Tensor::zeros(shape); }
Tensor ids(const Shape& shape, std::int64_t value = 0) {
  return Tensor::full(shape, static_cast<double>(value), DType::i64);
}

TEST(Errors, NameTheOperationAndBothShapes) {
  Random random(1);
  const std::vector<std::pair<std::string, std::function<void()>>> cases = {
      {"[add] a and b: expected shapes that broadcast, got (2, 3) and (2, 4)",
       [] {
         f({2, 3}) + f({2, 4});
       }},
      {"[sub] a and b: expected shapes that broadcast, got (2) and (3)", [] { f({2}) - f({3}); }},
      {"[mul] a and b: expected shapes that broadcast, got (2, 2) and (3)",
       [] {
         f({2, 2}) * f({3});
       }},
      {"[div] a and b: expected shapes that broadcast, got (5) and (2)", [] { f({5}) / f({2}); }},
      {"[add] b: expected dtype f32 as in a, got f64", [] { f({2}) + Tensor::zeros({2}, DType::f64); }},
      {"[add] a: expected a tensor, got none", [] { Tensor() + f({2}); }},
      {"[relu] x: expected dtype f32 or f64, got i64", [] { relu(ids({2})); }},
      {"[matmul] a and b: expected (…, m, k) and (…, k, n), got (2, 3) and (4, 5)",
       [] {
         matmul(f({2, 3}), f({4, 5}));
       }},
      {"[matmul] a and b: expected at least two dimensions each, got (3) and (3, 2)",
       [] {
         matmul(f({3}), f({3, 2}));
       }},
      {"[matmul] a and b: expected dimensions before the last two that broadcast, got (2, 3, 4) and (3, 4, 5)",
       [] {
         matmul(f({2, 3, 4}), f({3, 4, 5}));
       }},
      {"[linear] x and weight: expected (…, in) and (out, in), got (2, 3) and (5, 4)",
       [] {
         linear(f({2, 3}), f({5, 4}));
       }},
      {"[linear] bias: expected shape (5), got (4)",
       [] {
         linear(f({2, 3}), f({5, 3}), f({4}));
       }},
      {"[sum] dim: expected one of the dimensions of x (2, 3), got 2",
       [] {
         sum(f({2, 3}), 2);
       }},
      {"[max] x: expected at least one element along dim, got shape (2, 0)",
       [] {
         max(f({2, 0}), 1);
       }},
      {"[softmax] dim: expected one of the dimensions of x (2), got -2", [] { softmax(f({2}), -2); }},
      {"[cross_entropy] logits and labels: expected (…, classes) and (…), got (2, 3, 4) and (2, 4)",
       [] {
         cross_entropy(f({2, 3, 4}), ids({2, 4}));
       }},
      {"[cross_entropy] smoothing: expected from 0 to below 1, got 1",
       [&] {
         cross_entropy(f({2, 4}), ids({2}), kIgnored, 1.0);
       }},
      {"[cross_entropy] labels: expected values from 0 to 3 or -100, got 4",
       [] {
         cross_entropy(f({2, 4}), ids({2}, 4));
       }},
      {"[layer_norm] x, gain and shift: expected (…, d), (d) and (d), got (2, 3), (2) and (3)",
       [] {
         layer_norm(f({2, 3}), f({2}), f({3}));
       }},
      {"[embedding] ids: expected values from 0 to 4, the rows of table (5, 2), got 5",
       [] {
         embedding(f({5, 2}), ids({2}, 5));
       }},
      {"[embedding] ids: expected dtype i64, got f32",
       [] {
         embedding(f({5, 2}), f({2}));
       }},
      {"[gather] x and index: expected the same rank and an index no larger than x except along dimension 1, got (2, "
       "3) "
       "and (3, 1)",
       [] {
         gather(f({2, 3}), 1, ids({3, 1}));
       }},
      {"[gather] index: expected values from 0 to 2, the size of dimension 1 of x (2, 3), got -1",
       [] {
         gather(f({2, 3}), 1, ids({2, 1}, -1));
       }},
      {"[reshape] shape: expected as many elements as x (2, 3), got (4, -1)",
       [] {
         reshape(f({2, 3}), {4, -1});
       }},
      {"[reshape] shape: expected as many elements as x (2, 3), got (7)",
       [] {
         reshape(f({2, 3}), {7});
       }},
      {"[reshape] shape: expected as many elements as x (2, 3), got (9223372036854775807, 9223372036854775807)",
       [] {
         reshape(f({2, 3}), {INT64_MAX, INT64_MAX});
       }},
      {"[slice] begin and end: expected a range within dimension 1 of x (2, 3), got 1 and 4",
       [] {
         slice(f({2, 3}), 1, 1, 4);
       }},
      {"[concat] parts: expected shapes that differ only in dimension 1, got (2, 3) and (3, 3)",
       [] {
         concat({f({2, 3}), f({3, 3})}, 1);
       }},
      {"[concat] parts: expected at least one tensor, got none", [] { concat({}, 0); }},
      {"[dropout] p: expected a probability from 0 to 1, got 1.5", [&] { dropout(f({2}), 1.5, random); }},
      {"[attention] q, k and v: expected (B, H, N_q, d_k), (B, H, N_k, d_k) and (B, H, N_k, d_v), got (2, 3), (1, 1, "
       "2, 3) and "
       "(1, 1, 2, 3)",
       [] {
         attention(f({2, 3}), f({1, 1, 2, 3}), f({1, 1, 2, 3}));
       }},
      {"[attention] k: expected",
       [] {
         attention(f({1, 1, 2, 3}), f({1, 1, 2, 4}), f({1, 1, 2, 3}));
       }},
      {"[attention] bias: expected",
       [] {
         attention(f({1, 1, 2, 3}), f({1, 1, 2, 3}), f({1, 1, 2, 3}), {.bias = f({3, 2})});
       }},
      {"[tensor] shape: expected sizes of at least 0, got (2, -1)",
       [] {
         f({2, -1});
       }},
      {"[tensor] shape: expected at most 2^56 elements, got (4294967296, 4294967296)",
       [] {
         f({std::int64_t{1} << 32, std::int64_t{1} << 32});
       }},
      {"[tensor] values: expected as many as shape (2, 2) has elements, got 3",
       [] {
         Tensor::of<float>({2, 2}, {1, 2, 3});
       }},
      {"[data] T: expected dtype f64, got f32", [] { f({2}).data<double>(); }},
      {"[data] expected a dense tensor (clone() makes one), got shape (3, 2) with strides (1, 3)",
       [] {
         transpose(f({2, 3}), 0, 1).data<float>();
       }},
      {"[item] expected a tensor of one element, got shape (2)", [] { f({2}).item(); }},
      {"[at] index: expected one within shape (2), got (2)", [] { f({2}).at({2}); }},
      {"[backward] expected a scalar, or a seed, got shape (2)", [] { (f({2}).require_grad() * 2.0).backward(); }},
      {"[backward] expected a tensor on the tape, got one that no parameter led to", [] { f({}).backward(); }},
      {"[backward] seed: expected shape (2), got (3)", [] { (f({2}).require_grad() * 2.0).backward(f({3})); }},
      {"[require_grad] x: expected a leaf, got the result of mul; detach() it first",
       [] { (f({2}).require_grad() * 2.0).require_grad(); }},
      {"[Linear] in and out: expected at least 1, got 0 and 3", [&] { Linear(0, 3, random); }},
      {"[MultiHeadAttention] heads: expected a divisor of d_model 10, got 3",
       [&] { MultiHeadAttention(10, 3, random); }},
      {"[MultiHeadAttention] y: expected shape (B, N, 4), got (1, 2, 5)",
       [&] {
         MultiHeadAttention(4, 2, random)(f({1, 2, 4}), f({1, 2, 5}));
       }},
      {"[additive] k: expected shape (B, H, N, 2), got (1, 1, 4, 3)",
       [&] {
         Attention(std::make_unique<AdditiveScore>(3, 2, 4, random))(f({1, 4, 3}), f({1, 4, 3}), f({1, 4, 3}));
       }},
      {"[temperature] q: expected shape (B, 2, N, d_k), got (1, 3, 4, 5)",
       [&] {
         TemperatureScore(2, 5)(f({1, 3, 4, 5}), f({1, 3, 4, 5}));
       }},
      {"[Attention] scale: expected none, since the score function has it, got one",
       [&] {
         ScaledDotProductAttention()(f({1, 2, 3}), f({1, 2, 3}), f({1, 2, 3}), {.scale = 1.0});
       }},
      {"[GRU] x: expected shape (B, N, 3) with N at least 1, got (2, 4, 5)",
       [&] {
         GRU(3, 2, random)(f({2, 4, 5}));
       }},
      {"[GRU] h: expected shape (1, 2, 2), got (2, 2)",
       [&] {
         GRU(3, 2, random)(f({2, 4, 3}), f({2, 2}));
       }},
      {"[GPT] ids: expected shape (B, N) with N at most 4, got (1, 5)",
       [] {
         GPT({.context = 4})(ids({1, 5}));
       }},
      {"[KVCache] k: expected at most 1 more rows, of a capacity of 3, got 2",
       [] {
         KVCache cache(3);
         cache.append(f({1, 1, 2, 4}), f({1, 1, 2, 4}));
         cache.append(f({1, 1, 2, 4}), f({1, 1, 2, 4}));
       }},
      {"[init] name: expected one of unit_normal, xavier_uniform, xavier_normal, kaiming_uniform, kaiming_normal, "
       "lecun_normal, torch_linear, gpt2, got glorot",
       [] { init_by_name("glorot"); }},
      {"[optimiser] lr: expected at least 0, got -1", [&] { SGD(Linear(2, 2, random).parameters(), {.lr = -1}); }},
      {"[clip_gradients] largest: expected more than 0, got 0", [] { clip_gradients({}, 0); }},
      {"[set_threads] threads: expected at least 0, got -1", [] { set_threads(-1); }},
  };
  for (const auto& [expected, call] : cases) EXPECT_THAT(message_of(call), testing::StartsWith(expected));
}

}  // namespace
}  // namespace keel::nn
