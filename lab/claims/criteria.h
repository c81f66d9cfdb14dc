#pragma once

#include <initializer_list>
#include <string>
#include <vector>

#include "lab/claims/claims.h"

// What the words of a claim are taken to mean: one place for every threshold.
namespace keel::lab::criteria {

inline constexpr double kEqual = 0.05;      // "is": within 5 %
inline constexpr double kAbout = 0.25;      // "about", "~", "near": within 25 %
inline constexpr double kErrors = 4;        // either also holds within 4 standard errors of the mean
inline constexpr double kOneHot = 0.9;      // "one-hot", "saturated": at least 90 % of rows have a weight above 0.99
inline constexpr double kZero = 0.01;       // "≈ 0", "vanishes": at most 1 % of what it is compared with
inline constexpr double kTiny = 0.1;        // "tiny": at most 10 %
inline constexpr double kCollapsed = 0.05;  // "collapses": entropy of at most 5 % of ln n
inline constexpr double kAll = 0.9;         // "stable": at least 90 % of runs, or of the maximum
inline constexpr double kRangeFactor = 2;   // "range": contains all values, and is at most twice as wide as necessary

// |measured − claimed| ≤ tolerance·|claimed|, or within kErrors standard errors.
bool agrees(const Measurement& m, double claimed, double tolerance);

// Above `bound` by more than kErrors standard errors: chance does not explain it.
bool above(const Measurement& m, double bound);

// Two independent means differ by more than kErrors standard errors of the difference.
bool apart(const Measurement& a, const Measurement& b);

// Agrees with a number printed with so many decimals.
bool printed(double measured, double claimed, int decimals);

Verdict rule(bool holds);

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

// A claim tested in several cases: it holds, holds if one of some cases is given, or does not hold in any.
struct Case {
  std::string label;
  std::string measured;
  bool holds = false;
};
// The measurement reads name + label + unit ("d_k = 16: …", "16 keys: …"); the condition is `before` followed by the
// same for all cases that hold.
struct Wording {
  std::string before = "", name = "", unit = "";
};
Judgement judge(const std::vector<Case>& cases, const Spread& spread, const Wording& wording);

// The two most frequent wordings.
inline const Wording kThereAre{.before = "there are ", .unit = " keys"};
inline const Wording kSizeIs{.name = "d_k = "};

}  // namespace keel::lab::criteria
