#include "conformance/compare.h"

#include <algorithm>
#include <cmath>
#include <cstdio>

#include "conformance/expected.h"
#include "conformance/magnitude.h"
#include "conformance/naive16.h"
#include "conformance/tolerance.h"
#include "conformance/visibility.h"
#include "core/problem.h"

namespace keel::conformance {
namespace {

bool is_16_bit(DType dtype) { return dtype == DType::f16 || dtype == DType::bf16; }

// What a type can hold of x: too large becomes infinite.
double within(double x, DType dtype) {
  if (dtype == DType::f32) return static_cast<float>(x);
  if (dtype == DType::f16) return std::isinf(to_float(to_float16(x))) ? std::copysign(INFINITY, x) : x;
  if (dtype == DType::bf16) return std::isinf(to_float(to_bfloat16(x))) ? std::copysign(INFINITY, x) : x;
  return x;
}

// An f64 case may ask for results in f32.
Tolerance result_tolerance(DType dtype, DType stored) { return tolerance_of(dtype == DType::f64 ? stored : dtype); }

template <class... Values>
std::string format(const char* text, Values... values) {
  char line[400];
  std::snprintf(line, sizeof(line), text, values...);
  return line;
}

std::string index_of(const Dense& x, std::size_t at) {
  const auto& s = x.shape;
  const auto n = static_cast<std::int64_t>(at);
  return format("(%lld, %lld, %lld, %lld)", static_cast<long long>(n / s[3] / s[2] / s[1]),
                static_cast<long long>(n / s[3] / s[2] % s[1]), static_cast<long long>(n / s[3] % s[2]),
                static_cast<long long>(n % s[3]));
}

std::string values_at(const Dense& got, const Dense& want, std::size_t at) {
  return format(" at %s: expected %.9g, got %.9g\n", index_of(want, at).c_str(), want.values[at], got.values[at]);
}

// Shapes, NaN and infinities. What is left to compare is finite on both sides. The mean and variance of scores of which
// one is infinite may be NaN as well as infinite (`loose`); of finite ones they are infinite only where they overflow.
std::string special_mismatch(const char* name, const Dense& got, const Dense& want, DType stored, bool loose = false) {
  if (got.shape != want.shape || got.values.size() != want.values.size()) return format("%s: wrong shape\n", name);
  for (std::size_t at = 0; at < want.values.size(); ++at) {
    const double expected = within(want.values[at], stored), value = got.values[at];
    bool same = std::isfinite(expected) == std::isfinite(value);
    const bool either = loose && !std::isfinite(want.values[at]);
    if (!std::isfinite(expected) && !either) same = std::isnan(expected) ? std::isnan(value) : value == expected;
    if (!same) return name + values_at(got, want, at);
  }
  return {};
}

double norm(const Dense& x) {
  double sum = 0.0;
  for (const double value : x.values) sum += std::isfinite(value) ? value * value : 0.0;
  return std::sqrt(sum);
}

double largest(const Dense& x) {
  double most = 0.0;
  for (const double value : x.values) most = std::isfinite(value) ? std::max(most, std::fabs(value)) : most;
  return most;
}

struct Errors {
  double norm = 0.0, most = 0.0;
  std::size_t worst = 0;
};
Errors errors_of(const Dense& got, const Dense& want) {
  Errors errors;
  double sum = 0.0;
  for (std::size_t at = 0; at < want.values.size(); ++at) {
    const double error = std::fabs(got.values[at] - want.values[at]);
    if (!std::isfinite(error)) continue;
    sum += error * error;
    if (error > errors.most) errors.worst = at, errors.most = error;
  }
  errors.norm = std::sqrt(sum);
  return errors;
}

// One array against the oracle. `magnitude` is asked for only where the plain tolerance does not hold, `naive` only for
// 16-bit results.
struct Comparison {
  const char* name;
  const Dense& got;
  const Dense& want;
  DType stored;     // of the result
  Tolerance t;      // of the case's dtype
  double relative;  // t.forward or t.backward
  bool by_naive;    // the 16-bit rule
  std::function<const Magnitude&()> magnitude;
  std::function<const Dense&()> naive;
};

std::string mismatch(const Comparison& c) {
  if (std::string special = special_mismatch(c.name, c.got, c.want, c.stored); !special.empty()) return special;
  const Errors errors = errors_of(c.got, c.want);
  double error = errors.norm, allowed = 0.0;
  if (c.by_naive) {
    error = errors.most;
    allowed = kNaiveFactor * errors_of(c.naive(), c.want).most + 2.0 * c.t.storage * largest(c.want) + kAbsolute16;
  } else {
    const double underflow = c.t.eps < 0x1p-30 ? 1e-300 : 1e-36;
    allowed = c.relative * norm(c.want) + underflow * std::sqrt(static_cast<double>(c.want.values.size()));
  }
  if (error <= allowed) return {};
  const Magnitude& size = c.magnitude();
  if (c.by_naive) {  // storage·plain: what the rounding of `out` to 16 bits does to the backward pass
    allowed += std::min(kRounding * c.t.eps * largest(size.amplified), kCap * largest(size.plain)) +
               c.t.storage * largest(size.plain);
  } else {
    allowed = std::max(allowed, std::min(kRounding * c.t.eps * norm(size.amplified), kCap * norm(size.plain)));
  }
  if (error <= allowed) return {};
  return format("%s: error %.3g exceeds %.3g (reference has norm %.3g, largest %.3g); worst", c.name, error, allowed,
                norm(c.want), largest(c.want)) +
         values_at(c.got, c.want, errors.worst);
}

// Scores, each against its own size: what is hidden is −inf, to the bit. A chain of d_k additions rounds by up to
// eps·d_k/2 of the sum of the terms' sizes.
std::string score_mismatch(const Instance& instance, const Array& array) {
  if (!array.exists()) return {};
  const Dense got = read(array.tensor());
  const Dense& want = instance.expected().scores;
  if (std::string special = special_mismatch("scores", got, want, array.dtype()); !special.empty()) return special;
  const Tolerance t = result_tolerance(instance.description().dtype, array.dtype());
  const double storage = tolerance_of(array.dtype()).storage, least = is_16_bit(array.dtype()) ? kAbsolute16 : 1e-36;
  const Dense sizes = compute_score_sizes(instance);
  const double chain = static_cast<double>(instance.description().d_k) / 2.0;
  for (std::size_t at = 0; at < want.values.size(); ++at) {
    const double error = std::fabs(got.values[at] - want.values[at]);
    const double allowed =
        (kRounding + chain) * t.eps * sizes.values[at] + storage * std::fabs(want.values[at]) + least;
    if (std::isfinite(error) && error > allowed) {
      return format("scores: error %.3g exceeds %.3g", error, allowed) + values_at(got, want, at);
    }
  }
  return {};
}

// Rows that `keep` does not name are exactly zero.
std::string zero_row_mismatch(const char* name, const Dense& got, const std::vector<char>& keep) {
  const auto width = static_cast<std::size_t>(got.shape[3]);
  for (std::size_t at = 0; at < got.values.size(); ++at) {
    if (!keep[at / width] && got.values[at] != 0.0) {
      return format("%s: expected exactly 0 for what is fully masked, got %.9g at %s\n", name, got.values[at],
                    index_of(got, at).c_str());
    }
  }
  return {};
}

// How much more than t.statistic·(1 + |reference|) a statistic of a row with scores of size a may be off.
enum class Statistic { score, mean, bounded, variance };
double extra_of(Statistic kind, const Tolerance& t, double a, double want) {
  const double rounding = kRounding * t.eps * a;
  switch (kind) {
    case Statistic::score:
      return rounding;
    case Statistic::mean:  // and the sum over the keys
      return 4.0 * rounding;
    case Statistic::bounded:  // entropy and max_weight
      return std::min(2.0 * rounding * (1.0 + std::fabs(want)), kCap * (1.0 + std::fabs(want)));
    case Statistic::variance:
      return 2.0 * rounding * std::sqrt(want) + rounding * rounding;
  }
  return 0.0;
}

using Scores = std::function<const Dense&()>;

std::string statistic_mismatch(const char* name, const Array& array, const Dense& want, const Tolerance& t,
                               Statistic kind, const Scores& scores) {
  if (!array.exists()) return {};
  const Dense got = read(array.rows());
  const bool loose = kind == Statistic::mean || kind == Statistic::variance;
  if (std::string special = special_mismatch(name, got, want, array.dtype(), loose); !special.empty()) return special;
  for (std::size_t at = 0; at < want.values.size(); ++at) {
    const double error = std::fabs(got.values[at] - want.values[at]);
    double allowed = t.statistic * (1.0 + std::fabs(want.values[at]));
    if (!std::isfinite(error) || error <= allowed) continue;
    allowed += extra_of(kind, t, scores().values[at], want.values[at]);
    if (error > allowed) return format("%s: error %.3g exceeds %.3g", name, error, allowed) + values_at(got, want, at);
  }
  return {};
}

std::string head_mismatch(const Problem& p, std::span<const HeadStatistics> got, const Expected& e, const Tolerance& t,
                          double threshold, const Scores& scores) {
  for (std::size_t index = 0; index < got.size(); ++index) {
    const HeadStatistics& x = got[index];
    const HeadStatistics& y = e.heads[index];
    const Entry entry = p.entry(static_cast<std::int64_t>(index) / p.q_heads);
    const std::int64_t h = static_cast<std::int64_t>(index) % p.q_heads;
    double a = 0.0, most = 0.0, least = 0.0;
    for (std::int64_t i = entry.q_begin; i < entry.q_begin + entry.q_rows; ++i) {
      a = std::max(a, scores().at(entry.batch, h, i));
    }
    const double extra = extra_of(Statistic::bounded, t, a, 0.0);
    for (std::int64_t i = entry.q_begin; i < entry.q_begin + entry.q_rows; ++i) {
      const double weight = e.max_weight.at(entry.batch, h, i);
      most += weight > threshold - t.statistic - extra ? 1.0 : 0.0;
      least += weight > threshold + t.statistic + extra ? 1.0 : 0.0;
    }
    const auto rows = static_cast<double>(std::max<std::int64_t>(y.rows, 1));
    const bool same_share = std::isnan(y.saturated)
                                ? std::isnan(x.saturated)
                                : x.saturated * rows >= least - 0.5 && x.saturated * rows <= most + 0.5;
    const auto differs = [&](double value, double want, Statistic kind) {
      if (!std::isfinite(want)) return !(std::isnan(want) ? std::isnan(value) : value == want);
      // an entropy is divided by ln(outcomes) ≥ ln 2, hence the 2
      return !(std::fabs(value - want) <=
               2.0 * t.statistic * (1.0 + std::fabs(want)) + 2.0 * extra_of(kind, t, a, want));
    };
    const char* wrong = x.rows != y.rows                                                          ? "rows"
                        : differs(x.max_logit, y.max_logit, Statistic::score)                     ? "max_logit"
                        : differs(x.mean_entropy, y.mean_entropy, Statistic::bounded)             ? "mean_entropy"
                        : differs(x.min_entropy, y.min_entropy, Statistic::bounded)               ? "min_entropy"
                        : differs(x.normalised_entropy, y.normalised_entropy, Statistic::bounded) ? "normalised_entropy"
                        : !same_share                                                             ? "saturated"
                                                                                                  : nullptr;
    if (wrong == nullptr) continue;
    return format(
               "heads[%zu]: %s differs; expected max_logit %.9g, entropy mean %.9g min %.9g normalised %.9g, "
               "saturated %.9g, rows %lld; ",
               index, wrong, y.max_logit, y.mean_entropy, y.min_entropy, y.normalised_entropy, y.saturated,
               static_cast<long long>(y.rows)) +
           format("got %.9g, %.9g %.9g %.9g, %.9g, %lld\n", x.max_logit, x.mean_entropy, x.min_entropy,
                  x.normalised_entropy, x.saturated, static_cast<long long>(x.rows));
  }
  return {};
}

// Computes a value on first use.
template <class Make>
auto lazily(Make make) {
  return [ make, value = std::shared_ptr<std::invoke_result_t<Make>>() ]() mutable -> const auto& {
    if (!value) value = std::make_shared<std::invoke_result_t<Make>>(make());
    return *value;
  };
}

}  // namespace

std::string forward_mismatch(const Instance& instance, const Forward& run) {
  const Case& c = instance.description();
  const ForwardMemory m = instance.forward_memory();
  const Outputs outputs = m.outputs();
  run(instance.q(), instance.k(), instance.v(), m.out_view(), instance.options(), outputs);

  std::string text;
  if (const std::string outside = m.outside_writes(); !outside.empty()) text += outside + "\n";
  const Problem p = make_problem(instance.q(), instance.k(), instance.v(), m.out_view(), instance.options(), {});
  const Expected& e = instance.expected();
  const Tolerance t = tolerance_of(c.dtype);
  auto magnitudes = lazily([&] { return compute_magnitudes(instance); });
  auto naive = lazily([&] { return compute_naive16(instance); });
  const std::vector<char> seen = visibility_of(p).rows;

  const Dense out = read(m.out.tensor());
  text +=
      mismatch({"out", out, e.out, c.dtype, t, t.forward, is_16_bit(c.dtype),
                [&]() -> const Magnitude& { return magnitudes().out; }, [&]() -> const Dense& { return naive().out; }});
  text += zero_row_mismatch("out", out, seen);
  if (m.weights.exists()) {
    const Dense weights = read(m.weights.tensor());
    const Tolerance tw = result_tolerance(c.dtype, m.weights.dtype());
    text += mismatch({"weights", weights, e.weights, m.weights.dtype(), tw, tw.forward, is_16_bit(m.weights.dtype()),
                      [&]() -> const Magnitude& { return magnitudes().weights; },
                      [&]() -> const Dense& { return naive().weights; }});
    text += zero_row_mismatch("weights", weights, seen);
  }
  text += score_mismatch(instance, m.scores);
  if (m.key_sums.exists()) {
    const Dense sums = read(m.key_sums.rows());
    text += mismatch({"key_sums",
                      sums,
                      e.key_sums,
                      m.key_sums.dtype(),
                      t,
                      t.forward,
                      false,
                      [&]() -> const Magnitude& { return magnitudes().key_sums; },
                      {}});
    for (std::size_t at = 0; at < sums.values.size(); ++at) {
      if (e.key_sums.values[at] != 0.0 || sums.values[at] == 0.0) continue;
      text += "key_sums: expected exactly 0 for a key that no row sees" + values_at(sums, e.key_sums, at);
      break;
    }
  }
  const Scores scores = [&]() -> const Dense& { return magnitudes().score; };
  const Scores counted = [&]() -> const Dense& { return magnitudes().counted; };
  text += statistic_mismatch("lse", m.lse, e.lse, t, Statistic::score, scores);
  text += statistic_mismatch("max_logit", m.max_logit, e.max_logit, t, Statistic::score, scores);
  text += statistic_mismatch("entropy", m.entropy, e.entropy, t, Statistic::bounded, scores);
  text += statistic_mismatch("max_weight", m.max_weight, e.max_weight, t, Statistic::bounded, scores);
  text += statistic_mismatch("logit_mean", m.logit_mean, e.logit_mean, t, Statistic::mean, counted);
  text += statistic_mismatch("logit_var", m.logit_var, e.logit_var, t, Statistic::variance, counted);
  if (m.visible.exists() && read(m.visible.rows()).values != e.visible.values) text += "visible: differs\n";
  if (m.logit_count.exists() && read(m.logit_count.rows()).values != e.logit_count.values) {
    text += "logit_count: differs\n";
  }
  text += head_mismatch(p, outputs.heads, e, t, outputs.saturation_threshold, scores);
  return text;
}

std::string backward_mismatch(const Instance& instance, const Backward& run) {
  const Case& c = instance.description();
  const GradientMemory m = instance.gradient_memory();
  run(instance.backward_inputs(), m.gradients(), instance.options());

  std::string text;
  if (const std::string outside = m.outside_writes(); !outside.empty()) text += outside + "\n";
  const ForwardMemory forward = instance.forward_memory();
  const Visibility seen =
      visibility_of(make_problem(instance.q(), instance.k(), instance.v(), forward.out_view(), instance.options(), {}));
  const ExpectedGradients& e = instance.expected_gradients();
  auto magnitudes = lazily([&] { return compute_gradient_magnitudes(instance); });
  auto naive = lazily([&] { return compute_naive16_gradients(instance); });
  const auto compare = [&](const char* name, const Array& array, Dense ExpectedGradients::*want,
                           Magnitude GradientMagnitudes::*size, const std::vector<char>* keep, bool reduced = false) {
    if (!array.exists()) return;
    const Dense got = reduced ? read_sum(array.tensor()) : read(array.tensor());
    const Tolerance t = result_tolerance(c.dtype, array.dtype());
    text += mismatch({name, got, e.*want, array.dtype(), t, t.backward, is_16_bit(c.dtype),
                      [&]() -> const Magnitude& { return magnitudes().*size; },
                      [&]() -> const Dense& { return naive().*want; }});
    if (keep != nullptr) text += zero_row_mismatch(name, got, *keep);
  };
  compare("dq", m.dq, &ExpectedGradients::dq, &GradientMagnitudes::dq, &seen.rows);
  compare("dk", m.dk, &ExpectedGradients::dk, &GradientMagnitudes::dk, &seen.keys);
  compare("dv", m.dv, &ExpectedGradients::dv, &GradientMagnitudes::dv, &seen.keys);
  compare("dbias", m.dbias, &ExpectedGradients::dbias, &GradientMagnitudes::dbias, nullptr, /*reduced=*/true);
  compare("dscale", m.dscale, &ExpectedGradients::dscale, &GradientMagnitudes::dscale, nullptr);
  compare("drelative_bias", m.drelative, &ExpectedGradients::drelative, &GradientMagnitudes::drelative, nullptr);
  compare("dsinks", m.dsinks, &ExpectedGradients::dsinks, &GradientMagnitudes::dsinks, nullptr);
  return text;
}

}  // namespace keel::conformance
