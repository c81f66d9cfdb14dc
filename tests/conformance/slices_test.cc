// What cutting a problem into slices costs in accuracy, beside one call over the whole.
#include "conformance/slices.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <map>

#include "conformance/expected.h"
#include "conformance/merge.h"
#include "conformance/table.h"
#include "core/message.h"
#include "cpu/forced.h"

namespace keel::conformance {
namespace {

// Infinite where one has NaN or an infinity and the other has not.
double largest_difference(const Dense& a, const Dense& b) {
  double most = 0.0;
  for (std::size_t at = 0; at < a.values.size(); ++at) {
    const double x = a.values[at], y = b.values[at];
    if (x == y || (std::isnan(x) && std::isnan(y))) continue;
    most = std::isfinite(x - y) ? std::max(most, std::fabs(x - y)) : INFINITY;
  }
  return most;
}

double largest(const Dense& x) {
  double most = 0.0;
  for (const double value : x.values) most = std::isfinite(value) ? std::max(most, std::fabs(value)) : most;
  return most;
}

// One result of a case, twice.
struct Pair {
  std::string name;
  DType dtype;
  Dense whole, sliced;
};

// Checks pairs and keeps the worst figures.
class Judge {
 public:
  // A result in f32 or f64 is that of the whole, to 1e-6 of the largest element or of 1 in f32.
  void expect_equal(const Case& c, const Pair& pair) {
    const double off = largest_difference(pair.whole, pair.sliced) / std::max(1.0, largest(pair.whole));
    EXPECT_LE(off, pair.dtype == DType::f64 ? 1e-14 : 1e-6) << describe(c) << "\n" << pair.name;
    keep(concat(pair.name, " ", name_of(pair.dtype), " off by"), off);
  }

  // A result in 16 bits is as near to the oracle's as that of the whole: sums in f32 lose nothing.
  void expect_as_good(const Case& c, const Pair& pair, const Dense& oracle) {
    const double of_whole = largest_difference(pair.whole, oracle), error = largest_difference(pair.sliced, oracle);
    EXPECT_LE(error, 1.1 * of_whole) << describe(c) << "\n" << pair.name;
    if (of_whole > 0.0) keep(concat(pair.name, " ", name_of(pair.dtype), " error ÷ whole's"), error / of_whole);
  }

  void expect(const Case& c, const Pair& pair, const Dense& oracle) {
    size_of(pair.dtype) == 2 ? expect_as_good(c, pair, oracle) : expect_equal(c, pair);
  }

  ~Judge() {
    for (const auto& [name, figure] : worst_) std::printf("worst of %s: %.3g\n", name.c_str(), figure);
  }

 private:
  void keep(const std::string& name, double figure) { worst_[name] = std::max(worst_[name], figure); }

  std::map<std::string, double> worst_;
};

// Not beside scores of 1e4, where an lse in f32 is off by 1e-3, and with it the weights that slices are merged by and
// that gradients start from: Slices.OfEveryCaseMatchTheOracle allows for that.
template <class Check>
void for_slices_of_every_case(Check check) {
  std::uint64_t seed = 0;
  for (const Case& c : table()) {
    if (!lse_tells_weights(c) || c.values == Values::huge) continue;
    const Instance instance(c);
    for (int cut = 0; cut < 3; ++cut) check(instance, ++seed);
  }
}

//
// By the kernels that keep weights in f32. A matrix unit rounds them to bf16 next to the largest of their own slice:
// errors of the same size, as Slices.OfEveryCaseMatchTheOracle finds, but others.
TEST(Slices, EqualTheWhole) {
  Judge judge;
  const Forward attend = forced_forward({.unit = nullptr});
  for_slices_of_every_case([&](const Instance& instance, std::uint64_t seed) {
    const ForwardMemory whole = instance.forward_memory(), sliced = instance.forward_memory();
    const Outputs a = whole.outputs(), b = sliced.outputs();
    attend(instance.q(), instance.k(), instance.v(), whole.out_view(), instance.options(), a);
    sliced_attention(seed, attend)(instance.q(), instance.k(), instance.v(), sliced.out_view(), instance.options(), b);
    const Case& c = instance.description();
    judge.expect(c, {"out", c.dtype, read(whole.out_view()), read(sliced.out_view())}, instance.expected().out);
    for (const RowStatistic& s : kRowStatistics) {
      if (!(a.*s.result).given()) continue;
      judge.expect_equal(c, {s.name, (a.*s.result).dtype, read(a.*s.result), read(b.*s.result)});
    }
  });
}

// But for dscale, in which large terms cancel: Slices.OfEveryCaseMatchTheOracle judges it by their size.
TEST(Slices, GradientsAddUpToThoseOfTheWhole) {
  Judge judge;
  for_slices_of_every_case([&](const Instance& instance, std::uint64_t seed) {
    const Case& c = instance.description();
    if (!c.gradients) return;
    const GradientMemory whole = instance.gradient_memory(), sliced = instance.gradient_memory();
    attention_backward(instance.backward_inputs(), whole.gradients(), instance.options());
    sliced_backward(seed)(instance.backward_inputs(), sliced.gradients(), instance.options());
    const ExpectedGradients& e = instance.expected_gradients();
    const auto check = [&](const char* name, const Array& a, const Array& b, const Dense& oracle) {
      if (a.exists()) judge.expect(c, {name, a.dtype(), read_sum(a.tensor()), read_sum(b.tensor())}, oracle);
    };
    check("dq", whole.dq, sliced.dq, e.dq);
    check("dk", whole.dk, sliced.dk, e.dk);
    check("dv", whole.dv, sliced.dv, e.dv);
    check("dbias", whole.dbias, sliced.dbias, e.dbias);
    check("dsinks", whole.dsinks, sliced.dsinks, e.dsinks);
  });
}

}  // namespace
}  // namespace keel::conformance
