#include <gtest/gtest.h>

#include "conformance/differences.h"
#include "conformance/seeds.h"
#include "conformance/tangents.h"
#include "core/problem.h"
#include "reference/reference.h"

// The oracle's derivatives along tangents against central differences of the oracle: of its forward pass for out and
// lse, of its backward pass for the gradients.
namespace keel::conformance {
namespace {

// Everything that the oracle computes where the inputs are.
ExpectedTangents results(const TangentCase& x, const Options& options) {
  ExpectedTangents r = x.expected();
  const BackwardInputs in = x.inputs();
  reference::attention(make_problem(in.q, in.k, in.v, r.tout.tensor(), options, {.lse = r.tlse.rows()}));
  const GradientMemory m = x.instance().gradient_memory();
  reference::attention_backward(make_backward_problem(in, m.gradients(), options));
  r.gradients = {read_sum(m.dq.tensor()),
                 read_sum(m.dk.tensor()),
                 read_sum(m.dv.tensor()),
                 {},
                 read_sum(m.dscale.tensor()),
                 {},
                 {}};
  if (m.dbias.exists()) r.gradients.dbias = read_sum(m.dbias.tensor());
  if (m.dsinks.exists()) r.gradients.dsinks = read_sum(m.dsinks.tensor());
  return r;
}

// The inputs of a case, together on their way along the tangents.
class Along {
 public:
  explicit Along(const TangentCase& x) : x_(x), options_(x.instance().options()) {
    const Options& o = options_;
    const Tangents t = x.tangents();
    take(x.instance().q(), t.tq), take(x.instance().k(), t.tk), take(x.instance().v(), t.tv);
    take(o.bias, t.tbias), take(o.sinks, t.tsinks), take(o.scale_tensor, o.scale_tensor.given() ? t.tscale : RowView{});
    if (!o.scale_tensor.given() && t.tscale.given()) tscale_ = load_at(t.tscale, 0, 0, 0);
  }
  ExpectedTangents at(double step) const {
    for (const auto& move : moves_) move(step);
    Options options = options_;
    if (tscale_ != 0.0) {
      const double scale = 1.0 / std::sqrt(static_cast<double>(x_.instance().description().d_k));
      options.scale = options.scale.value_or(scale) + step * tscale_;
    }
    const ExpectedTangents r = results(x_, options);
    for (const auto& move : moves_) move(0.0);
    return r;
  }

 private:
  template <std::size_t Rank>
  void take(const BasicView<Rank, const void*>& view, const BasicView<Rank, const void*>& tangent) {
    if (!view.given() || !tangent.given()) return;
    const Mover<Rank> mover(view);
    Dense direction = read_sum(tangent);
    ASSERT_EQ(direction.values.size(), mover.original().values.size());
    for (std::size_t at = 0; at < direction.values.size(); ++at) {  // what is hidden cannot be moved
      const bool finite = std::isfinite(mover.original().values[at]) && std::isfinite(direction.values[at]);
      if (!finite) direction.values[at] = 0.0;
    }
    moves_.push_back([mover, direction](double step) { mover.move(direction, step); });
  }

  const TangentCase& x_;
  Options options_;
  std::vector<std::function<void(double)>> moves_;
  double tscale_ = 0.0;
};

void expect_difference(const char* name, const Dense& above, const Dense& below, const Dense& want) {
  double error = 0.0, size = 0.0;
  for (std::size_t at = 0; at < want.values.size(); ++at) {
    if (!std::isfinite(above.values[at])) continue;  // lse of a fully masked row
    const double difference = (above.values[at] - below.values[at]) / (2 * kStep) - want.values[at];
    error += difference * difference;
    size += want.values[at] * want.values[at];
  }
  EXPECT_LE(std::sqrt(error), 1e-6 * std::max(std::sqrt(size), 1.0)) << name;
}

TEST(Tangents, MatchCentralDifferencesOnRandomProblems) {
  int problems = 0;
  for (const std::uint64_t seed : seeds(300)) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    const Case c = gradient_case(seed);
    if (c.batch == 0 || c.n_q == 0 || c.n_k == 0) continue;
    const Instance instance(c);
    const TangentCase x(instance);
    const Along along(x);
    const ExpectedTangents above = along.at(kStep), below = along.at(-kStep);
    const ExpectedTangents& want = x.expected();
    expect_difference("tout", above.tout, below.tout, want.tout);
    expect_difference("tlse", above.tlse, below.tlse, want.tlse);
    const auto gradient = [&](const char* name, Dense ExpectedGradients::*which) {
      expect_difference(name, above.gradients.*which, below.gradients.*which, want.gradients.*which);
    };
    gradient("dq", &ExpectedGradients::dq), gradient("dk", &ExpectedGradients::dk);
    gradient("dv", &ExpectedGradients::dv), gradient("dbias", &ExpectedGradients::dbias);
    gradient("dscale", &ExpectedGradients::dscale), gradient("dsinks", &ExpectedGradients::dsinks);
    if (HasFailure()) FAIL() << describe(c);
    ++problems;
  }
  EXPECT_TRUE(problems >= 200 || std::getenv("KEEL_TEST_SEED") != nullptr) << problems << " problems";
}

}  // namespace
}  // namespace keel::conformance
