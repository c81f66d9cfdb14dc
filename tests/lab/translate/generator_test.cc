// The grammar: right in both languages, large enough, and split without overlap.
#include "lab/translate/generator.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <set>

#include "keel/error.h"
#include "lab/translate/grammar/numbers.h"

namespace keel::lab::translate {
namespace {

using testing::ElementsAre;

std::vector<std::string> german(const Phrase& phrase) {
  std::vector<std::string> words;
  for (const GermanWord& word : phrase.german.front()) words.push_back(word.text);
  return words;
}

// Pairs that a person has read and found right, of one stream of the generator.
TEST(Grammar, SaysWhatWasCheckedByHand) {
  std::ifstream file(std::string(KEEL_TRANSLATE_TESTS) + "/pairs.tsv");
  nn::Random random(1, "hand-checked");
  std::size_t lines = 0;
  for (std::string line; std::getline(file, line); ++lines) {
    const Pair pair = generate(random);
    EXPECT_EQ(joined(pair.source) + "\t" + joined(pair.target), line);
  }
  EXPECT_GE(lines, 200u);
}

TEST(Grammar, Cardinals) {
  const std::vector<std::string> units = {"ein", "zwei", "drei", "vier", "fünf", "sechs", "sieben", "acht", "neun"};
  const std::vector<std::string> teens = {"zehn",     "elf",      "zwölf",    "dreizehn", "vierzehn",
                                          "fünfzehn", "sechzehn", "siebzehn", "achtzehn", "neunzehn"};
  const std::vector<std::string> tens = {"zwanzig", "dreißig", "vierzig", "fünfzig",
                                         "sechzig", "siebzig", "achtzig", "neunzig"};
  for (int n = 1; n <= 99; ++n) {
    const auto unit = static_cast<std::size_t>(n % 10), ten = static_cast<std::size_t>(n / 10);
    std::string expected = n == 1 ? "eins" : n < 10 ? units[unit - 1] : teens[unit];
    if (n >= 20) expected = (unit > 0 ? units[unit - 1] + " und " : "") + tens[ten - 2];
    EXPECT_EQ(joined(german(cardinal(n, "eins"))), expected) << n;
  }
  EXPECT_EQ(joined(cardinal(21, "eins").english), "twenty one");
  EXPECT_EQ(joined(cardinal(40, "eins").english), "forty");
  EXPECT_EQ(joined(cardinal(99, "eins").english), "ninety nine");
}

TEST(Grammar, OrdinalsOfAMonth) {
  const std::vector<std::string> expected = {"first ersten",
                                             "second zweiten",
                                             "third dritten",
                                             "fourth vierten",
                                             "fifth fünften",
                                             "sixth sechsten",
                                             "seventh siebten",
                                             "eighth achten",
                                             "ninth neunten",
                                             "tenth zehnten",
                                             "eleventh elften",
                                             "twelfth zwölften",
                                             "thirteenth dreizehnten",
                                             "fourteenth vierzehnten",
                                             "fifteenth fünfzehnten",
                                             "sixteenth sechzehnten",
                                             "seventeenth siebzehnten",
                                             "eighteenth achtzehnten",
                                             "nineteenth neunzehnten",
                                             "twentieth zwanzig sten",
                                             "twenty first ein und zwanzig sten",
                                             "twenty second zwei und zwanzig sten",
                                             "twenty third drei und zwanzig sten",
                                             "twenty fourth vier und zwanzig sten",
                                             "twenty fifth fünf und zwanzig sten",
                                             "twenty sixth sechs und zwanzig sten",
                                             "twenty seventh sieben und zwanzig sten",
                                             "twenty eighth acht und zwanzig sten",
                                             "twenty ninth neun und zwanzig sten",
                                             "thirtieth dreißig sten",
                                             "thirty first ein und dreißig sten"};
  for (int n = 1; n <= 31; ++n) {
    const Phrase phrase = ordinal(n);
    EXPECT_EQ(joined(phrase.english) + " " + joined(german(phrase)), expected[static_cast<std::size_t>(n - 1)]);
  }
}

TEST(Grammar, KnowsItsAlignment) {
  nn::Random random(5, "test");
  bool half = false, number = false, verb = false;
  for (int i = 0; i < 3000; ++i) {
    const Pair pair = generate(random);
    ASSERT_EQ(pair.alignment.size(), pair.target.size());
    for (std::size_t t = 0; t < pair.target.size(); ++t) {
      ASSERT_FALSE(pair.alignment[t].empty()) << joined(pair.target);
      std::vector<std::string> from;
      for (const std::size_t s : pair.alignment[t]) from.push_back(pair.source.at(s));
      const auto is = [&](const char* word) { return pair.target[t] == word; };
      if (is("mai")) {
        EXPECT_THAT(from, ElementsAre("may"));
      }
      if (is("uhr")) {
        EXPECT_THAT(from, ElementsAre("o'clock"));
      }
      if (is("äpfel")) {
        EXPECT_THAT(from, ElementsAre("apples"));
      }
      if (is("halb") && pair.source.at(pair.alignment[t].front()) == "half") {
        EXPECT_THAT(from, ElementsAre("half", "past"));
        half = true;
      }
      if (is("sten") && t > 2 && pair.target[t - 2] == "und") {  // "ein und zwanzig sten": the units come first
        EXPECT_EQ(pair.alignment[t - 3].front(), pair.alignment[t - 1].front() + 1);
        number = true;
      }
      if (is("gekauft")) {
        EXPECT_THAT(from, ElementsAre("bought"));
        verb = true;
      }
    }
  }
  EXPECT_TRUE(half && number && verb);
}

TEST(Grammar, HasMoreThanAHundredThousandPairs) {
  nn::Random random(3, "test");
  std::set<std::string> sources, targets;
  for (int i = 0; i < 115'000; ++i) {
    const Pair pair = generate(random);
    sources.insert(joined(pair.source));
    targets.insert(joined(pair.target));
  }
  EXPECT_GE(sources.size(), 100'000u);
  EXPECT_GE(targets.size(), 100'000u);
}

TEST(Grammar, OneGermanSentenceForEachEnglishOne) {
  nn::Random random(4, "test");
  std::map<std::string, std::string> known;
  for (int i = 0; i < 50'000; ++i) {
    const Pair pair = generate(random);
    const auto [at, fresh] = known.emplace(joined(pair.source), joined(pair.target));
    EXPECT_EQ(at->second, joined(pair.target));
  }
}

TEST(Sets, AreDisjointInBothLanguagesAndByLength) {
  const Sets sets = generate_sets(7, {8000, 300, 400, 300});
  EXPECT_EQ(sets.train.size(), 8000u);
  EXPECT_EQ(sets.validation.size(), 300u);
  EXPECT_EQ(sets.test.size(), 400u);
  EXPECT_EQ(sets.longer.size(), 300u);
  std::set<std::string> sources, targets;
  std::size_t count = 0, longest_source = 0, longest_target = 0;
  for (const auto* set : {&sets.train, &sets.validation, &sets.test, &sets.longer}) {
    std::set<std::string> own;
    for (const Pair& pair : *set) {
      sources.insert(joined(pair.source));
      own.insert(joined(pair.target));
      if (set == &sets.train) {
        longest_source = std::max(longest_source, pair.source.size());
        longest_target = std::max(longest_target, pair.target.size());
      }
    }
    for (const std::string& target : own) EXPECT_TRUE(targets.insert(target).second) << target;
    count += set->size();
  }
  EXPECT_EQ(sources.size(), count);
  for (const Pair& pair : sets.longer) {
    EXPECT_GT(pair.source.size(), longest_source);
    EXPECT_GT(pair.target.size(), longest_target);
  }
}

TEST(Sets, OfDifferentSeedsDoNotOverlapWhereTheyMustNot) {
  std::set<std::string> trained;
  for (const Pair& pair : generate_sets(1, {5000, 0, 0, 0}).train) trained.insert(joined(pair.target));
  for (const Pair& pair : generate_sets(2, {0, 0, 1000, 0}).test) EXPECT_FALSE(trained.contains(joined(pair.target)));
}

TEST(Sets, AreAFunctionOfTheSeed) {
  const auto first = [](std::uint64_t seed) { return joined(generate_sets(seed, {50, 5, 5, 5}).test.back().source); };
  EXPECT_EQ(first(3), first(3));
  EXPECT_NE(first(3), first(4));
}

}  // namespace
}  // namespace keel::lab::translate
