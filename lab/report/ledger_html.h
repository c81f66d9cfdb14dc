#pragma once

#include <string>
#include <vector>

#include "lab/claims/claims.h"

namespace keel::lab {

// Buttons that count the verdicts, and show only the claims with one of them.
std::string counts_html(const std::vector<Entry>& ledger);

// The claims, collapsed per document; each can be linked to by its id.
std::string ledger_html(const std::vector<Entry>& ledger);

// For each document, how many of its claims got which verdict: one bar that links to its claims.
std::string verdict_bars_html(const std::vector<Entry>& ledger);

// A list of those that an experiment decides; empty if there is none.
std::string decided_html(const std::vector<Entry>& ledger, const std::string& experiment);

}  // namespace keel::lab
