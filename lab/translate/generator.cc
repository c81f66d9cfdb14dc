#include "lab/translate/generator.h"

#include <fmt/format.h>

#include <unordered_set>

#include "core/hash.h"
#include "keel/error.h"
#include "lab/translate/grammar/clauses.h"

namespace keel::lab::translate {
namespace {

// One share of the sentences is for validation, one for tests, the others for training.
constexpr std::uint64_t kShares = 20;
constexpr double kMoments = 0.15, kTwo = 0.2;  // moments among the sentences; two in one

// Which of the sets a pair may be part of.
std::vector<Pair>& set_of(Sets& sets, const Pair& pair) {
  if (pair.source.size() > kLongest) return sets.longer;
  const std::uint64_t hash = hash_text(joined(pair.target));
  const std::uint64_t share = (hash ^ hash >> 32) % kShares;
  return share == 0 ? sets.test : share == 1 ? sets.validation : sets.train;
}

}  // namespace

Pair generate(nn::Random& random) {
  const auto one = perhaps(kMoments, random) ? moment : clause;
  Phrase phrase = one(random);
  if (perhaps(kTwo, random)) phrase = sequence({phrase, {{"and"}, {{{"und", {0}}}}}, one(random)});
  Pair pair{.source = std::move(phrase.english), .target = {}, .alignment = {}};
  for (GermanWord& word : phrase.german.front()) {
    pair.target.push_back(std::move(word.text));
    pair.alignment.push_back(std::move(word.from));
  }
  return pair;
}

Sets generate_sets(std::uint64_t seed, const SetSizes& sizes) {
  Sets sets;
  const std::vector<std::pair<std::vector<Pair>*, std::size_t>> wanted = {{&sets.train, sizes.train},
                                                                          {&sets.validation, sizes.validation},
                                                                          {&sets.test, sizes.test},
                                                                          {&sets.longer, sizes.longer}};
  std::size_t missing = sizes.train + sizes.validation + sizes.test + sizes.longer;
  const std::size_t most = 1000 + 100 * missing;  // draws before concluding that there are no more
  std::unordered_set<std::string> known;
  nn::Random random(seed, "translate/sentences");
  for (std::size_t draws = 0; missing > 0; ++draws) {
    if (draws == most) {
      throw Error(ErrorCode::invalid_argument,
                  fmt::format("[translate] sentences: expected at most what the domain has, got {} too many", missing));
    }
    Pair pair = generate(random);
    const bool all_longer = pair.source.size() > kLongest && pair.target.size() > kLongest;
    const bool none_longer = pair.source.size() <= kLongest && pair.target.size() <= kLongest;
    if (!all_longer && !none_longer) continue;
    if (std::max(pair.source.size(), pair.target.size()) > kLongerAtMost) continue;
    std::vector<Pair>& set = set_of(sets, pair);
    for (const auto& [one, size] : wanted) {
      if (one != &set || set.size() == size || !known.insert(joined(pair.source)).second) continue;
      set.push_back(std::move(pair));
      --missing;
      break;
    }
  }
  return sets;
}

}  // namespace keel::lab::translate
