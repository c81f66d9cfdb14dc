#pragma once

#include <initializer_list>
#include <string>
#include <vector>

#include "lab/claims/claims.h"

// What the words of a claim are taken to mean: one place for every threshold, and for when evidence is too noisy.
namespace keel::lab::criteria {

inline constexpr double kEqual = 0.05;      // "is": within 5 %
inline constexpr double kAbout = 0.25;      // "about", "~", "near", "linear": within 25 %
inline constexpr double kErrors = 4;        // noise: 4 standard errors of the mean
inline constexpr double kOneHot = 0.9;      // "one-hot", "saturated": at least 90 % of rows have a weight above 0.99
inline constexpr double kZero = 0.01;       // "≈ 0", "vanishes": at most 1 % of what it is compared with
inline constexpr double kTiny = 0.1;        // "tiny": at most 10 %
inline constexpr double kCollapsed = 0.05;  // "collapses": entropy of at most 5 % of ln n
inline constexpr double kAll = 0.9;         // "stable": at least 90 % of runs, or of the maximum
inline constexpr double kHalf = 0.5;        // "works": at least half of what it could gain
inline constexpr double kRangeFactor = 2;   // "range": contains all values, and is at most twice as wide as necessary

// Whether something is so. Evidence within its noise of a threshold says neither.
enum class Truth { no, undecided, yes };
constexpr Truth truth(bool so) { return so ? Truth::yes : Truth::no; }
// Both, either.
constexpr Truth operator&&(Truth a, Truth b) { return a < b ? a : b; }
constexpr Truth operator||(Truth a, Truth b) { return a < b ? b : a; }
constexpr Truth operator!(Truth a) { return static_cast<Truth>(2 - static_cast<int>(a)); }

// How far off a mean may be: kErrors standard errors, more for fewer than six repeats (Student's t at 99 %). 0 if
// chance is not involved.
double noise(const Measurement& m);

// margin ≥ 0, where the margin is known to ± noise.
Truth positive(double margin, double noise);

// |measured − claimed| ≤ tolerance·|claimed|; if 0 is claimed, 0 within the noise.
Truth agrees(const Measurement& m, double claimed, double tolerance);

Truth at_least(const Measurement& m, double bound);
Truth at_most(const Measurement& m, double bound);

// a > factor·b, a ≤ factor·b, for independent means.
Truth more(const Measurement& a, const Measurement& b, double factor = 1);
Truth at_most(const Measurement& a, const Measurement& b, double factor);

// Agrees with a number printed with so many decimals.
bool printed(double measured, double claimed, int decimals);

Ruling ruling_of(Truth so);
Verdict rule(Truth so);
inline Verdict rule(bool so) { return rule(truth(so)); }

std::string percent(double share);

// A measurement's spread in words: "± 0.12 (64 keys) over 20 seeds", or "exact" if chance is not involved.
struct Spread {
  const Measurement& m;
  std::string of = "";   // the case, if there are several
  bool percent = false;  // a share, shown as such
  std::string over = "seeds";
  std::string text() const;
};
std::string spread_text(const Measurement& m);

// The statistic `what` of q·k for unit normal q and k, at each of several d_k, against claimed(d_k).
Judgement compare_by_size(Evidence& e, const std::string& what, std::initializer_list<int> sizes,
                          double (*claimed)(double d_k));

// One measurement against one number.
Judgement compare(const Measurement& m, double claimed, double tolerance);

// The sizes measured under key.weights.0 … and key.out.0 … against what is claimed.
Judgement shapes(Evidence& evidence, const std::string& key, const std::vector<int>& weights,
                 const std::vector<int>& out);

// A claim tested in several cases: it holds, does not hold, or holds if one of some cases is given. Where a case is
// undecided, so is the claim, unless others show that it holds in some cases and not in all: then the condition says
// which case is open.
struct Tested {
  std::string label;
  std::string measured;
  Truth holds = Truth::no;
  Tested(std::string label_, std::string measured_, Truth holds_)
      : label(std::move(label_)), measured(std::move(measured_)), holds(holds_) {}
  Tested(std::string label_, std::string measured_, bool holds_)
      : Tested(std::move(label_), std::move(measured_), truth(holds_)) {}
};
// The measurement reads name + label + unit ("d_k = 16: …", "16 keys: …"); the condition is `before` followed by the
// same for all cases that hold.
struct Wording {
  std::string before = "", name = "", unit = "";
};
Judgement judge(const std::vector<Tested>& cases, const Spread& spread, const Wording& wording);

// The two most frequent wordings.
inline const Wording kThereAre{.before = "there are ", .unit = " keys"};
inline const Wording kSizeIs{.name = "d_k = "};

// "Attention does not work unscaled": at `lookup` d_k at most one run in ten solves the lookup task (ablation); at
// `translation` d_k at most half is left of the BLEU that scaled attention gains over no attention (translate).
Judgement fails_unscaled(Evidence& e, std::initializer_list<int> lookup, std::initializer_list<int> translation);

}  // namespace keel::lab::criteria
