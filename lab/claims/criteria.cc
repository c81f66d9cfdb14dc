#include "lab/claims/criteria.h"

#include <fmt/format.h>

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

bool agrees(const Measurement& m, double claimed, double tolerance) {
  const double error = kErrors * m.spread / std::sqrt(static_cast<double>(m.repeats));
  return std::abs(m.value - claimed) <= std::max(tolerance * std::abs(claimed), error);
}

bool above(const Measurement& m, double bound) {
  return m.value - bound > kErrors * m.spread / std::sqrt(static_cast<double>(m.repeats));
}

bool apart(const Measurement& a, const Measurement& b) {
  const double error = std::hypot(a.spread / std::sqrt(static_cast<double>(a.repeats)),
                                  b.spread / std::sqrt(static_cast<double>(b.repeats)));
  return std::abs(a.value - b.value) > kErrors * error;
}

bool printed(double measured, double claimed, int decimals) {
  // Slightly more than half a unit, so that a value that was rounded up or down from the middle agrees either way.
  return std::abs(measured - claimed) <= 0.5000001 * std::pow(10.0, -decimals);
}

Verdict rule(bool holds) { return {.ruling = holds ? Ruling::holds : Ruling::does_not_hold, .condition = ""}; }

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

Judgement judge(const std::vector<Case>& cases, const Spread& spread, const Wording& wording) {
  std::vector<std::string> holding;
  std::string measured;
  for (const Case& c : cases) {
    if (!measured.empty()) measured += "; ";
    measured += wording.name + c.label + wording.unit + ": " + c.measured;
    if (c.holds) holding.push_back(c.label);
  }
  Verdict verdict = rule(holding.size() == cases.size());
  if (!holding.empty() && holding.size() < cases.size()) {
    verdict = {.ruling = Ruling::holds_if, .condition = wording.before + wording.name + either(holding) + wording.unit};
  }
  return {.measured = std::move(measured), .spread = spread.text(), .verdict = std::move(verdict)};
}

Judgement compare_by_size(Evidence& e, const std::string& what, std::initializer_list<int> sizes,
                          double (*claimed)(double d_k)) {
  std::vector<Case> cases;
  for (const int d : sizes) {
    const auto& m = e(fmt::format("variance.unit.d{}.{}", d, what));
    cases.push_back({fmt::format("{}", d), number_text(m.value), agrees(m, claimed(d), kEqual)});
  }
  return judge(cases, {e("variance.unit.d64." + what), "d_k = 64"}, kSizeIs);
}

}  // namespace keel::lab::criteria
