#include <fmt/format.h>

#include <map>

#include "keel/error.h"
#include "lab/claims/claims.h"
#include "lab/experiment.h"

namespace keel::lab {
namespace {

// The documents by number, with their titles.
const std::map<std::string, std::string>& documents() {
  static const std::map<std::string, std::string> all = {
      {"000", "000 Break 00: remove the sqrt(d_k) scaling in attention"},
      {"001", "001 Scaled attention: why √d matters"},
      {"002", "002 The 1/√d_k scaling in attention isn't numerical stability"},
      {"003", "003 Phase II, week 2: dot-product attention and scaling"},
      {"004", "004 Scaled dot-product attention explained"},
  };
  return all;
}

}  // namespace

std::string Verdict::text() const {
  switch (ruling) {
    case Ruling::holds:
      return "holds";
    case Ruling::holds_if:
      return "holds if " + condition;
    case Ruling::does_not_hold:
      return "does not hold";
    case Ruling::undecided:
      return "undecided" + (condition.empty() ? "" : ": " + condition);
  }
  return "";
}

const Measurement& Evidence::operator()(const std::string& key) {
  const auto found = measurements_.find(key);
  if (found == measurements_.end()) {
    throw Error(ErrorCode::bad_file, fmt::format("[lab] expected a measurement {} in the results, got none", key));
  }
  return used_[key] = found->second;
}

const std::vector<Claim>& claims() {
  static const std::vector<Claim> all = [] {
    std::vector<Claim> list;
    for (const auto& document : {claims_000(), claims_001(), claims_002(), claims_003(), claims_004()}) {
      list.insert(list.end(), document.begin(), document.end());
    }
    return list;
  }();
  return all;
}

std::vector<Entry> ledger(const Measurements& measurements, const std::set<std::string>& experiments) {
  std::vector<Entry> entries;
  for (const Claim& claim : claims()) {
    const bool judged = claim.experiment.empty() ? experiments.size() == lab::experiments().size()
                                                 : experiments.contains(claim.experiment);
    if (!judged || !(claim.also.empty() || experiments.contains(claim.also))) continue;
    Evidence evidence(measurements);
    Judgement judgement = claim.judge(evidence);
    entries.push_back({.id = claim.id,
                       .document = documents().at(claim.id.substr(0, 3)),
                       .claim = claim.claim,
                       .claimed = claim.claimed,
                       .measured = std::move(judgement.measured),
                       .spread = std::move(judgement.spread),
                       .experiment = claim.experiment,
                       .verdict = std::move(judgement.verdict),
                       .cases = std::move(judgement.cases),
                       .evidence = evidence.used()});
  }
  return entries;
}

Json to_json(const std::vector<Entry>& ledger) {
  auto list = Json::array();
  for (const Entry& e : ledger) {
    Json cases = Json::array();
    for (const Case& c : e.cases) {
      cases.push_back({{"label", c.label}, {"measured", c.measured}, {"verdict", Verdict{c.ruling, ""}.text()}});
    }
    list.push_back({{"id", e.id},
                    {"document", e.document},
                    {"claim", e.claim},
                    {"claimed", e.claimed},
                    {"measured", e.measured},
                    {"spread", e.spread},
                    {"verdict", e.verdict.text()},
                    {"experiment", e.experiment},
                    {"cases", std::move(cases)},
                    {"evidence", to_json(e.evidence)}});
  }
  return list;
}

Table to_table(const std::vector<Entry>& ledger) {
  Table table{{"id", "document", "claim", "claimed", "measured", "spread", "verdict", "experiment"}, {}};
  for (const Entry& e : ledger) {
    table.rows.push_back({e.id, e.document, e.claim, e.claimed, e.measured, e.spread, e.verdict.text(), e.experiment});
  }
  return table;
}

std::size_t count(const std::vector<Entry>& ledger, Ruling ruling) {
  std::size_t n = 0;
  for (const Entry& e : ledger) n += e.verdict.ruling == ruling ? 1 : 0;
  return n;
}

}  // namespace keel::lab
