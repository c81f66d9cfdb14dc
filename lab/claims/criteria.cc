#include "lab/claims/criteria.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

namespace keel::lab::criteria {
namespace {

// "a", "a or b", "a, b or c"
std::string either(const std::vector<std::string>& labels) {
  std::string text;
  for (std::size_t i = 0; i < labels.size(); ++i) {
    if (i > 0) text += i + 1 == labels.size() ? " or " : ", ";
    text += labels[i];
  }
  return text;
}

}  // namespace

double noise(const Measurement& m) {
  constexpr std::array kStudent = {63.66, 9.925, 5.841, 4.604};  // t at 99.5 %, by degrees of freedom
  if (m.repeats < 2) return 0;
  const auto freedom = static_cast<std::size_t>(m.repeats - 1);
  const double errors = freedom <= kStudent.size() ? std::max(kErrors, kStudent[freedom - 1]) : kErrors;
  return errors * m.spread / std::sqrt(static_cast<double>(m.repeats));
}

Truth positive(double margin, double noise) {
  if (std::isnan(margin) || std::isnan(noise)) return Truth::undecided;
  if (noise > 0 && std::abs(margin) <= noise) return Truth::undecided;
  return truth(margin >= 0);
}

Truth agrees(const Measurement& m, double claimed, double tolerance) {
  const double apart = std::abs(m.value - claimed);
  if (claimed == 0) return truth(apart <= noise(m));
  return positive(tolerance * std::abs(claimed) - apart, noise(m));
}

Truth at_least(const Measurement& m, double bound) { return positive(m.value - bound, noise(m)); }
Truth at_most(const Measurement& m, double bound) { return positive(bound - m.value, noise(m)); }

Truth more(const Measurement& a, const Measurement& b, double factor) { return !at_most(a, b, factor); }
Truth at_most(const Measurement& a, const Measurement& b, double factor) {
  return positive(factor * b.value - a.value, std::hypot(noise(a), factor * noise(b)));
}

bool printed(double measured, double claimed, int decimals) {
  // Slightly more than half a unit, so that a value that was rounded up or down from the middle agrees either way.
  return std::abs(measured - claimed) <= 0.5000001 * std::pow(10.0, -decimals);
}

Ruling ruling_of(Truth so) {
  return so == Truth::yes ? Ruling::holds : so == Truth::no ? Ruling::does_not_hold : Ruling::undecided;
}
Verdict rule(Truth so) { return {.ruling = ruling_of(so), .condition = ""}; }

std::string percent(double share) { return fmt::format("{:.3g} %", 100 * share); }

std::string Spread::text() const {
  if (m.repeats < 2) return "exact";
  const std::string size = percent ? fmt::format("{:.2g} %", 100 * m.spread) : fmt::format("{:.2g}", m.spread);
  return fmt::format("± {}{} over {} {}", size, of.empty() ? "" : " (" + of + ")", m.repeats, over);
}

std::string spread_text(const Measurement& m) { return Spread{m}.text(); }

Judgement compare(const Measurement& m, double claimed, double tolerance) {
  return {.measured = number_text(m.value), .spread = spread_text(m), .verdict = rule(agrees(m, claimed, tolerance))};
}

Judgement shapes(Evidence& evidence, const std::string& key, const std::vector<int>& weights,
                 const std::vector<int>& out) {
  bool all = true;
  std::string measured;
  for (const auto& [part, claimed] : {std::pair{"weights", &weights}, {"out", &out}}) {
    measured += measured.empty() ? "(" : ", (";
    for (std::size_t i = 0; i < claimed->size(); ++i) {
      const double size = evidence(fmt::format("{}.{}.{}", key, part, i)).value;
      all = all && size == (*claimed)[i];
      measured += fmt::format("{}{:.0f}", i == 0 ? "" : ", ", size);
    }
    measured += ")";
  }
  return {.measured = std::move(measured), .spread = "exact", .verdict = rule(all)};
}

Judgement judge(const std::vector<Tested>& cases, const Spread& spread, const Wording& wording) {
  std::vector<std::string> holding, open;
  Judgement found{.measured = "", .spread = spread.text(), .verdict = {}};
  for (const Tested& c : cases) {
    const std::string label = wording.name + c.label + wording.unit;
    if (!found.measured.empty()) found.measured += "; ";
    found.measured += label + ": " + c.measured;
    if (c.holds == Truth::yes) holding.push_back(c.label);
    if (c.holds == Truth::undecided) open.push_back(c.label);
    found.cases.push_back({label, c.measured, ruling_of(c.holds)});
  }
  const auto either_of = [&](const std::vector<std::string>& labels) {
    return wording.name + either(labels) + wording.unit;
  };
  const bool some = !holding.empty(), all = holding.size() == cases.size();
  if (some && holding.size() + open.size() < cases.size()) {  // and not in some others
    found.verdict = {Ruling::holds_if, wording.before + either_of(holding)};
    if (!open.empty()) found.verdict.condition += " (" + either_of(open) + " undecided)";
  } else if (!open.empty()) {
    found.verdict = {Ruling::undecided, open.size() < cases.size() ? "within the noise for " + either_of(open) : ""};
  } else {
    found.verdict = rule(all);
  }
  return found;
}

Judgement compare_by_size(Evidence& e, const std::string& what, std::initializer_list<int> sizes,
                          double (*claimed)(double d_k)) {
  std::vector<Tested> cases;
  for (const int d : sizes) {
    const auto& m = e(fmt::format("variance.unit.d{}.{}", d, what));
    cases.push_back({fmt::format("{}", d), number_text(m.value), agrees(m, claimed(d), kEqual)});
  }
  return judge(cases, {e("variance.unit.d64." + what), "d_k = 64"}, kSizeIs);
}

Judgement fails_unscaled(Evidence& e, std::initializer_list<int> lookup, std::initializer_list<int> translation) {
  std::vector<Tested> cases;
  for (const int d : lookup) {
    const auto& m = e(fmt::format("ablation.raw.d{}.reached", d));
    cases.emplace_back(fmt::format("lookup at d_k = {}", d), percent(m.value) + " of runs converge", at_most(m, kTiny));
  }
  const auto& none = e("translate.none.bleu");
  for (const int d : translation) {
    const auto &dot = e(fmt::format("translate.dot-{}.bleu", d)),
               &scaled = e(fmt::format("translate.scaled-{}.bleu", d));
    // dot − none ≤ half of (scaled − none)
    const double margin = kHalf * (scaled.value + none.value) - dot.value;
    const double unsure = std::hypot(noise(dot), kHalf * noise(scaled), kHalf * noise(none));
    cases.emplace_back(fmt::format("translation at d_k = {}", d),
                       fmt::format("BLEU {:.1f}, scaled {:.1f}", dot.value, scaled.value),
                       positive(margin, unsure) && more(scaled, none));
  }
  Judgement j = judge(cases, {e("translate.dot-64.bleu"), "translation at d_k = 64"}, {.before = "the task is "});
  j.measured += fmt::format("; BLEU without attention: {:.1f}", none.value);
  return j;
}

}  // namespace keel::lab::criteria
