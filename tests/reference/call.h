#pragma once

#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "conformance/compare.h"
#include "conformance/dense.h"
#include "conformance/generator.h"
#include "core/problem.h"
#include "reference/reference.h"

// Attention in float64 for tests of what it means: run by the oracle and by whatever kernel keel::attention chooses.
namespace keel::semantics {

using conformance::Dense;
using conformance::Forward;

inline Dense random_dense(const std::array<std::int64_t, 4>& shape, std::uint64_t seed, double size = 1.0) {
  Dense x(shape);
  conformance::Generator random(seed, 0xD);
  for (double& value : x.values) value = size * random.normal();
  return x;
}

inline TensorView view(const Dense& x) { return {x.values.data(), DType::f64, x.shape, contiguous_strides(x.shape)}; }
inline RowView rows(const Dense& x) {
  const std::array<std::int64_t, 3> shape = {x.shape[0], x.shape[1], x.shape[2]};
  return {x.values.data(), DType::f64, shape, contiguous_strides(shape)};
}
inline HeadView heads(const std::vector<double>& x) { return head_view(x.data(), std::ssize(x)); }

// A boolean (B, H, N_q, N_k) made by a rule.
struct Mask {
  std::array<std::int64_t, 4> shape;
  std::vector<std::uint8_t> values;

  template <class Rule>
  Mask(const std::array<std::int64_t, 4>& shape_, Rule rule) : shape(shape_) {
    for (std::int64_t b = 0; b < shape[0]; ++b) {
      for (std::int64_t h = 0; h < shape[1]; ++h) {
        for (std::int64_t i = 0; i < shape[2]; ++i) {
          for (std::int64_t j = 0; j < shape[3]; ++j) values.push_back(rule(b, h, i, j) ? 1 : 0);
        }
      }
    }
  }
  TensorView view() const { return {values.data(), DType::boolean, shape, contiguous_strides(shape)}; }
};

// Every result of one call.
struct Results {
  Dense out, weights, lse, max_logit, entropy, max_weight, logit_mean, logit_var, visible, logit_count;
};

struct Inputs {
  Dense q, k, v;
};

inline Inputs random_inputs(std::int64_t batch, std::int64_t q_heads, std::int64_t kv_heads, std::int64_t n_q,
                            std::int64_t n_k, std::int64_t d_k, std::int64_t d_v, std::uint64_t seed = 1) {
  return {random_dense({batch, q_heads, n_q, d_k}, seed), random_dense({batch, kv_heads, n_k, d_k}, seed + 1000),
          random_dense({batch, kv_heads, n_k, d_v}, seed + 2000)};
}

inline Results attend(const Forward& forward, const Inputs& x, const Options& options = {}) {
  const std::array<std::int64_t, 4> rows_shape = {x.q.shape[0], x.q.shape[1], x.q.shape[2], 1};
  Results r;
  r.out = Dense({rows_shape[0], rows_shape[1], rows_shape[2], x.v.shape[3]});
  r.weights = Dense({rows_shape[0], rows_shape[1], rows_shape[2], x.k.shape[2]});
  for (Dense* y :
       {&r.lse, &r.max_logit, &r.entropy, &r.max_weight, &r.logit_mean, &r.logit_var, &r.visible, &r.logit_count}) {
    *y = Dense(rows_shape);
  }
  std::vector<std::int64_t> visible(r.visible.values.size()), logit_count(visible.size());
  const std::array<std::int64_t, 3> shape = {rows_shape[0], rows_shape[1], rows_shape[2]};
  forward(view(x.q), view(x.k), view(x.v), r.out.tensor(), options,
          {.lse = r.lse.rows(),
           .max_logit = r.max_logit.rows(),
           .entropy = r.entropy.rows(),
           .max_weight = r.max_weight.rows(),
           .logit_mean = r.logit_mean.rows(),
           .logit_var = r.logit_var.rows(),
           .visible = row_view(visible.data(), shape),
           .logit_count = row_view(logit_count.data(), shape),
           .weights = r.weights.tensor()});
  r.visible.values.assign(visible.begin(), visible.end());
  r.logit_count.values.assign(logit_count.begin(), logit_count.end());
  return r;
}

inline void oracle(const TensorView& q, const TensorView& k, const TensorView& v, const MutableTensorView& out,
                   const Options& options, const Outputs& outputs) {
  reference::attention(make_problem(q, k, v, out, options, outputs));
}

struct Run {
  const char* name;
  Forward forward;
};
inline void PrintTo(const Run& run, std::ostream* stream) { *stream << run.name; }

// Each TEST_P of a class made with this runs on the oracle and on the library.
class Semantics : public testing::TestWithParam<Run> {
 protected:
  Results attend(const Inputs& x, const Options& options = {}) const {
    return semantics::attend(GetParam().forward, x, options);
  }
};

inline const auto kBoth = testing::Values(Run{"Oracle", oracle}, Run{"Library", keel::attention});
inline std::string name_of_run(const testing::TestParamInfo<Run>& info) { return info.param.name; }

// Elementwise, relative to the larger of 1 and the largest finite element; NaN and infinities by position.
inline void expect_near(const Dense& got, const Dense& want, double tolerance = 1e-12) {
  ASSERT_EQ(got.values.size(), want.values.size());
  double size = 1.0;
  for (const double value : want.values) size = std::isfinite(value) ? std::max(size, std::fabs(value)) : size;
  for (std::size_t at = 0; at < want.values.size(); ++at) {
    if (std::isnan(want.values[at])) {
      EXPECT_TRUE(std::isnan(got.values[at])) << "element " << at;
    } else if (std::isinf(want.values[at])) {
      EXPECT_EQ(got.values[at], want.values[at]) << "element " << at;
    } else {
      EXPECT_NEAR(got.values[at], want.values[at], tolerance * size) << "element " << at;
    }
  }
}

inline void expect_same(const Results& got, const Results& want, double tolerance = 1e-12) {
  const auto compare = [&](const char* name, const Dense& a, const Dense& b) {
    SCOPED_TRACE(name);
    expect_near(a, b, tolerance);
  };
  compare("out", got.out, want.out);
  compare("lse", got.lse, want.lse);
  compare("weights", got.weights, want.weights);
  compare("max_logit", got.max_logit, want.max_logit);
  compare("entropy", got.entropy, want.entropy);
  compare("max_weight", got.max_weight, want.max_weight);
  compare("logit_mean", got.logit_mean, want.logit_mean);
  compare("logit_var", got.logit_var, want.logit_var);
  compare("visible", got.visible, want.visible);
  compare("logit_count", got.logit_count, want.logit_count);
}

}  // namespace keel::semantics
