#include <set>
#include <utility>

#include "conformance/factors.h"
#include "conformance/generator.h"

namespace keel::conformance {
namespace {

// A level of a factor, numbered over all factors.
using Pair = std::pair<std::size_t, std::size_t>;

struct Numbering {
  std::vector<std::size_t> first;  // number of each factor's first level
  explicit Numbering(const std::vector<Factor>& list) {
    std::size_t next = 0;
    for (const Factor& factor : list) {
      first.push_back(next);
      next += factor.levels.size();
    }
  }
};

Case make_case(const std::vector<Factor>& list, const std::vector<std::size_t>& levels, std::size_t number) {
  Case c;
  c.name = "pairs_" + std::to_string(number);
  c.seed = 1000 + number;
  for (std::size_t f = 0; f < list.size(); ++f) {
    list[f].levels[levels[f]].apply(c);
    c.features.push_back(label(list[f], list[f].levels[levels[f]]));
  }
  return c;
}

}  // namespace

// Greedy: a case starts from a pair not met so far, and each further factor, in random order, takes the level that
// meets most new pairs.
std::vector<Case> all_pairs() {
  const std::vector<Factor>& list = factors();
  const Numbering number(list);
  std::set<Pair> missing;
  for (std::size_t f = 0; f < list.size(); ++f) {
    for (std::size_t g = f + 1; g < list.size(); ++g) {
      for (std::size_t a = 0; a < list[f].levels.size(); ++a) {
        for (std::size_t b = 0; b < list[g].levels.size(); ++b) {
          missing.insert({number.first[f] + a, number.first[g] + b});
        }
      }
    }
  }
  const auto pair_of = [](std::size_t x, std::size_t y) { return x < y ? Pair{x, y} : Pair{y, x}; };

  Generator random(2017);
  std::vector<Case> cases;
  while (!missing.empty()) {
    std::vector<std::size_t> chosen(list.size(), SIZE_MAX);  // level numbers over all factors
    const auto choose = [&](std::size_t f, std::size_t level) {
      chosen[f] = level;
      for (std::size_t g = 0; g < list.size(); ++g) {
        if (g != f && chosen[g] != SIZE_MAX) missing.erase(pair_of(level, chosen[g]));
      }
    };
    const Pair start = *missing.begin();
    for (const std::size_t level : {start.first, start.second}) {
      std::size_t f = list.size() - 1;
      while (number.first[f] > level) --f;
      choose(f, level);
    }
    std::vector<std::size_t> order;
    for (std::size_t f = 0; f < list.size(); ++f) {
      if (chosen[f] == SIZE_MAX) order.insert(order.begin() + random.integer(0, std::ssize(order)), f);
    }
    for (const std::size_t f : order) {
      std::size_t best = 0, most = 0;
      const std::size_t levels = list[f].levels.size(), turn = random.next() % levels;
      for (std::size_t a = 0; a < levels; ++a) {
        const std::size_t level = number.first[f] + (a + turn) % levels;
        std::size_t gain = 1;
        for (const std::size_t other : chosen) gain += other != SIZE_MAX && missing.contains(pair_of(level, other));
        if (gain > most) most = gain, best = level;
      }
      choose(f, best);
    }
    for (std::size_t f = 0; f < list.size(); ++f) chosen[f] -= number.first[f];
    cases.push_back(make_case(list, chosen, cases.size()));
  }
  return cases;
}

}  // namespace keel::conformance
