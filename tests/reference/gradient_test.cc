#include <gtest/gtest.h>

#include "conformance/differences.h"
#include "conformance/seeds.h"
#include "core/problem.h"
#include "reference/reference.h"

// The oracle's gradients against central differences of the oracle.
namespace keel::conformance {
namespace {

void oracle(const TensorView& q, const TensorView& k, const TensorView& v, const MutableTensorView& out,
            const Options& options, const Outputs& outputs) {
  reference::attention(make_problem(q, k, v, out, options, outputs));
}

TEST(Gradients, MatchCentralDifferencesOnRandomProblems) {
  int problems = 0, compared = 0;
  for (const std::uint64_t seed : seeds(300)) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    const Case c = gradient_case(seed);
    if (c.batch == 0 || c.n_q == 0 || c.n_k == 0) continue;
    const Instance instance(c);
    Check check(instance, oracle);
    check.all(instance.expected_gradients());
    if (HasFailure()) FAIL() << describe(c);
    ++problems;
    compared += check.compared;
  }
  RecordProperty("problems", problems);
  RecordProperty("gradients", compared);
  EXPECT_TRUE(problems >= 200 || std::getenv("KEEL_TEST_SEED") != nullptr) << problems << " problems";
}

// Each element by itself, on a problem in which every feature acts.
TEST(Gradients, MatchCentralDifferencesElementByElement) {
  Case c;
  c.name = "elements";
  c.dtype = DType::f64;
  c.q_heads = 2, c.n_q = 4, c.n_k = 5, c.d_k = 3, c.d_v = 2;
  c.scale = ScaleKind::per_query;
  c.softcap = 2.0;
  c.mask = MaskKind::one_row;
  c.bias = BiasKind::normal;
  c.causal = Causal::bottom_right;
  c.alibi = c.sinks = c.dlse = true;
  c.dropout = 0.25;
  c.relative_radius = 2;
  const Instance instance(c);
  const ExpectedGradients g = instance.expected_gradients();
  const Loss loss(instance, oracle);
  const auto each = [&](const char* name, const auto& view, const Dense& gradient) {
    const Mover mover(view);
    for (std::size_t at = 0; at < gradient.values.size(); ++at) {
      Dense u = gradient;
      u.values.assign(u.values.size(), 0.0);
      u.values[at] = 1.0;
      mover.move(u, kStep);
      const double above = loss(instance.options());
      mover.move(u, -kStep);
      const double below = loss(instance.options());
      mover.move(u, 0.0);
      EXPECT_NEAR((above - below) / (2 * kStep), gradient.values[at], 1e-8) << name << " " << at;
    }
  };
  each("q", instance.q(), g.dq);
  each("k", instance.k(), g.dk);
  each("v", instance.v(), g.dv);
  each("bias", instance.options().bias, g.dbias);
  each("scale", instance.options().scale_tensor, g.dscale);
  each("sinks", instance.options().sinks, g.dsinks);
  each("relative_bias", instance.options().relative_bias, g.drelative);
}

}  // namespace
}  // namespace keel::conformance
