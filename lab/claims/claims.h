#pragma once

#include <functional>
#include <set>
#include <string>
#include <vector>

#include "lab/json.h"

// The ledger: what the five documents claim, and what the experiments found. A verdict is computed only from
// measurements.
namespace keel::lab {

enum class Ruling { holds, holds_if, does_not_hold, undecided };

struct Verdict {
  Ruling ruling = Ruling::does_not_hold;
  std::string condition;  // of holds_if: when; of undecided: why, if it is not just noise

  std::string text() const;  // "holds", "holds if …", "does not hold", "undecided", "undecided: …"
};

// One of several settings that a claim was tested in.
struct Case {
  std::string label;
  std::string measured;
  Ruling ruling = Ruling::does_not_hold;
};

struct Judgement {
  std::string measured;
  std::string spread;
  Verdict verdict;
  std::vector<Case> cases{};  // if there are several
};

// Measurements as a claim reads them. It records which.
class Evidence {
 public:
  explicit Evidence(const Measurements& measurements) : measurements_(measurements) {}

  // Raises keel::Error if nothing was measured under this key.
  const Measurement& operator()(const std::string& key);
  const Measurements& used() const { return used_; }

 private:
  const Measurements& measurements_;
  Measurements used_;
};

struct Claim {
  std::string id;          // its document's number first: "001-scaled-row"
  std::string experiment;  // that decides it; empty if no measurement can
  std::string claim;       // in our words
  std::string claimed;     // the value
  std::function<Judgement(Evidence&)> judge;
  std::string also = "";  // a second experiment that it takes
};

// In the order of the documents. claims_NNN() are those of one document, one file per document.
const std::vector<Claim>& claims();
std::vector<Claim> claims_000();
std::vector<Claim> claims_001();
std::vector<Claim> claims_002();
std::vector<Claim> claims_003();
std::vector<Claim> claims_004();

struct Entry {
  std::string id, document, claim, claimed, measured, spread, experiment;
  Verdict verdict;
  std::vector<Case> cases;
  Measurements evidence;  // every measurement that the verdict was computed from
};

// The claims that `experiments` decide, judged. With all experiments, those that none can decide are among them.
std::vector<Entry> ledger(const Measurements& measurements, const std::set<std::string>& experiments);

// A list of {id, document, claim, claimed, measured, spread, verdict, experiment, cases, evidence}.
Json to_json(const std::vector<Entry>& ledger);
Table to_table(const std::vector<Entry>& ledger);

// How many entries have this ruling.
std::size_t count(const std::vector<Entry>& ledger, Ruling ruling);

}  // namespace keel::lab
