// The ledger: complete, and decided by measurements alone.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>

#include "keel/error.h"
#include "lab/claims/criteria.h"
#include "run.h"

namespace keel::test {
namespace {

using namespace lab;
using testing::HasSubstr;
using testing::StartsWith;

const std::vector<Entry>& whole() {
  static const std::vector<Entry> entries = ledger(everything());
  return entries;
}

// The claim judged on measurements that a test has altered.
std::string verdict_of(const Claim& claim, const Measurements& altered) {
  Evidence evidence(altered);
  return claim.judge(evidence).verdict.text();
}

const Claim& claim_of(const std::string& id) {
  for (const Claim& claim : claims()) {
    if (claim.id == id) return claim;
  }
  throw std::out_of_range(id);
}

TEST(Ledger, EveryEntryHasAllItsFields) {
  std::set<std::string> ids, documents;
  for (const Entry& entry : whole()) {
    SCOPED_TRACE(entry.id);
    for (const std::string* field :
         {&entry.id, &entry.document, &entry.claim, &entry.claimed, &entry.measured, &entry.spread}) {
      EXPECT_FALSE(field->empty());
    }
    EXPECT_TRUE(ids.insert(entry.id).second);
    EXPECT_THAT(entry.document, StartsWith(entry.id.substr(0, 3)));
    documents.insert(entry.document);
    if (entry.experiment.empty()) {  // out of reach: it says so, and why
      EXPECT_EQ(entry.verdict.ruling, Ruling::undecided);
      EXPECT_FALSE(entry.verdict.condition.empty());
      continue;
    }
    EXPECT_NE(find_experiment(entry.experiment), nullptr);
    EXPECT_FALSE(entry.evidence.empty());
    const std::string also = claim_of(entry.id).also;
    for (const auto& [key, m] : entry.evidence) {
      const std::string experiment = key.substr(0, key.find('.'));
      EXPECT_TRUE(experiment == entry.experiment || experiment == also) << key;
    }
    EXPECT_FALSE(entry.verdict.ruling == Ruling::holds_if && entry.verdict.condition.empty());
  }
  EXPECT_EQ(whole().size(), claims().size());
  EXPECT_GE(whole().size(), 30u);
  EXPECT_EQ(documents.size(), 5u);
}

// Two claims print rows that no single factor leads to: here are the measurements that would make them hold.
Measurements as_printed(const std::string& id) {
  const std::map<std::string, std::pair<std::string, std::vector<double>>> rows = {
      {"001-peaked-row", {"softmax.row.peaked_001", {0.99, 0.00, 0.01}}},
      {"001-scaled-row", {"softmax.row.scaled_001", {0.31, 0.07, 0.30, 0.05, 0.12}}},
  };
  Measurements altered = measurements();
  const auto row = rows.find(id);
  if (row == rows.end()) return altered;
  for (std::size_t i = 0; i < row->second.second.size(); ++i) {
    altered[row->second.first + ".p" + std::to_string(i)].value = row->second.second[i];
  }
  return altered;
}

// No verdict is a constant: there are measurements that would have turned each of them.
TEST(Ledger, EveryVerdictDependsOnItsEvidence) {
  std::vector<double> factors = {0.0, 1.5, 1e12};
  for (double factor = 1e-3; factor < 2e3; factor *= 1.4) factors.push_back(factor);
  Measurements altered = measurements();
  for (const Entry& entry : whole()) {
    if (entry.experiment.empty()) continue;
    const Claim& claim = claim_of(entry.id);
    std::set<std::string> verdicts = {entry.verdict.text(), verdict_of(claim, as_printed(entry.id))};
    for (const double factor : factors) {
      for (const double offset : {0.0, 1.0, 99.0}) {
        if (verdicts.size() > 1) continue;
        const auto alter = [&](const std::string& key) {
          altered[key] = {factor * entry.evidence.at(key).value + offset, 0, entry.evidence.at(key).repeats};
        };
        for (const auto& [key, m] : entry.evidence) alter(key);  // all of the evidence, then one after the other
        verdicts.insert(verdict_of(claim, altered));
        for (const auto& [key, m] : entry.evidence) altered[key] = m;
        for (const auto& [key, m] : entry.evidence) {
          alter(key);
          verdicts.insert(verdict_of(claim, altered));
          altered[key] = m;
        }
      }
    }
    EXPECT_GE(verdicts.size(), 2u) << entry.id << ": always " << entry.verdict.text();
  }
}

TEST(Ledger, AMissingMeasurementIsAnErrorThatNamesIt) {
  Measurements without = measurements();
  without.erase("variance.range.raw");
  try {
    verdict_of(claim_of("004-range"), without);
    FAIL();
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("variance.range.raw"));
  }
}

TEST(Ledger, AlteredMeasurementsGiveTheVerdictTheyDeserve) {
  Measurements m = measurements();
  m["variance.range.raw"] = {480, 5, 8};
  EXPECT_EQ(verdict_of(claim_of("004-range"), m), "holds");
  m["variance.range.raw"] = {520, 5, 8};  // outside what is claimed
  EXPECT_EQ(verdict_of(claim_of("004-range"), m), "does not hold");

  for (const char* start : {"fused", "square", "head"})
    m[std::string("variance.init.xavier_") + start + ".d64.scaled_var"] = {1, 0, 8};
  EXPECT_EQ(verdict_of(claim_of("002-xavier"), m), "holds");
  m["variance.init.xavier_square.d64.scaled_var"] = {3, 0, 8};
  EXPECT_EQ(verdict_of(claim_of("002-xavier"), m), "holds if it is Xavier (QKV fused) or Xavier (per head)");

  for (const char* place : {"dw_q", "dw_k", "dw_v"})
    m[std::string("gradient.ratio.lecun.d64.n64.") + place] = {0.001, 0, 8};
  EXPECT_EQ(verdict_of(claim_of("000-projection"), m), "holds");
}

TEST(Ledger, HoldsTheClaimsOfTheExperimentsThatWereRun) {
  for (const Entry& entry : ledger(measurements(), {"softmax"})) EXPECT_EQ(entry.experiment, "softmax");
  const auto works = [](const std::set<std::string>& run) {
    const auto entries = ledger(measurements(), run);
    return std::any_of(entries.begin(), entries.end(), [](const Entry& e) { return e.id == "001-works"; });
  };
  EXPECT_FALSE(works({"ablation"}));  // it takes translate too
  EXPECT_TRUE(works({"ablation", "translate"}));
  EXPECT_TRUE(ledger(measurements(), {}).empty());
}

TEST(Ledger, DoesNotJudgeByARunWithOptions) {
  Record record = *std::find_if(everything().begin(), everything().end(),
                                [](const Record& r) { return r.experiment->name() == "translate"; });
  EXPECT_FALSE(ledger({record}).empty());
  record.settings.options = {{"arm", "additive"}};
  EXPECT_TRUE(ledger({record}).empty());
}

TEST(Ledger, AsJsonHasTheFieldsAReaderExpects) {
  const Json json = to_json(whole());
  ASSERT_TRUE(json.is_array());
  ASSERT_EQ(json.size(), whole().size());
  for (const char* field : {"id", "document", "claim", "claimed", "measured", "spread", "verdict", "experiment"}) {
    EXPECT_TRUE(json[0].at(field).is_string()) << field;
  }
}

// Arithmetic has no chance in it: these verdicts are known beforehand.
TEST(Ledger, ArithmeticOfTheDocuments) {
  const std::map<std::string, std::string> known = {
      {"000-exp", "holds"},
      {"000-row", "holds if the row has 2 keys"},
      {"001-peaked-row", "does not hold"},
      {"001-unscaled-row", "holds"},
      {"001-division", "holds"},
      {"001-scaled-row", "does not hold"},
      {"001-healthy", "holds"},
      {"002-division", "holds"},
      {"003-ten", "holds"},
      {"003-causal-sees", "holds"},
      {"004-shrinks", "does not hold"},
  };
  for (const auto& [id, verdict] : known) EXPECT_EQ(verdict_of(claim_of(id), measurements()), verdict) << id;
}

TEST(Criteria, PrintedNumbersAreRounded) {
  EXPECT_TRUE(criteria::printed(0.3712, 0.37, 2));
  EXPECT_TRUE(criteria::printed(-0.675, -0.68, 2));
  EXPECT_FALSE(criteria::printed(0.3712, 0.38, 2));
}

TEST(Criteria, CasesBecomeACondition) {
  const Measurement m{1, 0.5, 4};
  const auto verdict = [&](bool a, bool b, bool c) {
    return criteria::judge({{"4", "x", a}, {"16", "y", b}, {"64", "z", c}}, {m}, criteria::kThereAre);
  };
  EXPECT_EQ(verdict(true, true, true).verdict.text(), "holds");
  EXPECT_EQ(verdict(false, false, false).verdict.text(), "does not hold");
  EXPECT_EQ(verdict(true, false, true).verdict.text(), "holds if there are 4 or 64 keys");
  EXPECT_EQ(verdict(true, true, true).measured, "4 keys: x; 16 keys: y; 64 keys: z");
  EXPECT_EQ(verdict(true, true, true).spread, "± 0.5 over 4 seeds");
}

}  // namespace
}  // namespace keel::test
