// A user's own pairs: files from strangers, vocabularies, byte-pair encoding.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "io/file.h"
#include "keel/error.h"
#include "lab/translate/task.h"
#include "lab/translate/tsv.h"
#include "support/temporary_folder.h"

namespace keel::lab::translate {
namespace {

using test::TemporaryFolder;
using testing::ElementsAre;
using testing::HasSubstr;

std::string many(std::size_t count) {
  std::string text;
  for (std::size_t i = 0; i < count; ++i) text += fmt::format("word {}\twort {}\n", i, i);
  return text;
}

PairFile read(const std::string& text) {
  const TemporaryFolder folder;
  io::write_file(folder / "pairs.tsv", text);
  return read_pairs(folder / "pairs.tsv", [](double) {});
}

std::string failure(const std::string& text) {
  try {
    read(text);
  } catch (const Error& error) {
    return error.what();
  }
  return "none";
}

TEST(Pairs, BadLinesAreLeftOutAndReportedByTheirNumbers) {
  const std::string good = many(200);
  std::string words = "w";
  for (int i = 0; i < 50; ++i) words += " w";
  const PairFile file =
      read("one column\n" + good + "a\tb\tc\n\tx\ny\t \nbad \xff\tx\nsur\xed\xa0\x80\tx\n" + words + "\tx\n" +
           std::string(kLongestLine + 5, 'x') + "\ty\n\x1b[2J\ty\n\nword 7\tagain\nlast\tzuletzt");
  EXPECT_EQ(file.pairs.size(), 201u);
  EXPECT_EQ(file.lines, 212u);
  EXPECT_EQ(file.bad, 10u);
  EXPECT_EQ(file.repeated, 1u);
  EXPECT_THAT(file.problems, ElementsAre("line 1: expected two columns separated by a tab, got 1",
                                         "line 202: expected two columns separated by a tab, got 3",
                                         "line 203: expected words in the first column, got none",
                                         "line 204: expected words in the second column, got none",
                                         "line 205: expected UTF-8, got byte 0xff at column 5",
                                         "line 206: expected UTF-8, got byte 0xed at column 4",
                                         "line 207: expected at most 50 words in the first column, got 51",
                                         "line 208: expected at most 65536 bytes, got 65543",
                                         "line 209: expected text, got a control character",
                                         "line 210: expected two columns separated by a tab, got 1"));
  EXPECT_THAT(file.pairs.back().target, ElementsAre("zuletzt"));
}

TEST(Pairs, TooFewAreAnErrorThatSaysWhy) {
  EXPECT_THAT(failure(""), HasSubstr("expected at least 100 pairs of sentences, got an empty file"));
  EXPECT_THAT(failure("a\tb\nc\n"), HasSubstr("got 1 in 2 lines; line 2: expected two columns"));
  EXPECT_THAT(failure(std::string("\xff\xfe\x00", 3)), HasSubstr("line 1: expected UTF-8"));
  EXPECT_THROW(read_pairs("/nonexistent/pairs.tsv", [](double) {}), Error);
}

TEST(Pairs, WindowsLinesAndAByteOrderMarkAreUnderstood) {
  std::string text = "\xef\xbb\xbf" + many(120);
  for (std::size_t at = text.find('\n'); at != std::string::npos; at = text.find('\n', at + 2))
    text.replace(at, 1, "\r\n");
  const PairFile file = read(text);
  EXPECT_EQ(file.pairs.size(), 120u);
  EXPECT_THAT(file.pairs[0].source, ElementsAre("word", "0"));
  EXPECT_THAT(file.pairs[0].target, ElementsAre("wort", "0"));
}

TEST(Pairs, ReadAsAStreamWithProgress) {
  const TemporaryFolder folder;
  io::write_file(folder / "pairs.tsv", many(50'000));
  std::vector<double> shares;
  const PairFile file = read_pairs(folder / "pairs.tsv", [&](double share) { shares.push_back(share); });
  EXPECT_EQ(file.pairs.size(), 50'000u);
  EXPECT_GE(shares.size(), 3u);
  EXPECT_TRUE(std::is_sorted(shares.begin(), shares.end()));
  EXPECT_EQ(shares.back(), 1.0);
  struct Stop {};
  EXPECT_THROW(read_pairs(folder / "pairs.tsv", [](double) { throw Stop{}; }), Stop);
}

TEST(Pairs, SplitWithoutOverlap) {
  std::vector<Pair> pairs;
  for (std::size_t i = 0; i < 1000; ++i) {
    Pair pair;
    for (std::size_t n = 0; n <= i % 30; ++n) pair.source.push_back(fmt::format("s{}", i));
    pair.target = {"t"};
    pairs.push_back(pair);
  }
  const Sets sets = split_pairs(pairs);
  std::set<std::string> sources;
  std::size_t longest = 0, count = 0;
  for (const auto* set : {&sets.train, &sets.validation, &sets.test, &sets.longer}) {
    EXPECT_GE(set->size(), 20u);
    for (const Pair& pair : *set) {
      sources.insert(pair.source.front());
      if (set == &sets.train) longest = std::max(longest, pair.source.size());
      ++count;
    }
  }
  EXPECT_EQ(sources.size(), count);
  for (const Pair& pair : sets.longer) EXPECT_GT(pair.source.size(), longest);
}

TEST(Pairs, NoSetIsEmptyWhateverTheOrderOfLengths) {
  std::vector<Pair> pairs;
  for (std::size_t i = 0; i < 100; ++i) {
    pairs.push_back({std::vector<std::string>(i % 20 == 0 ? 9 : 3, fmt::format("s{}", i)), {"t"}, {}});
  }
  const Sets sets = split_pairs(pairs);
  EXPECT_EQ(sets.longer.size(), 5u);
  EXPECT_FALSE(sets.test.empty());
  EXPECT_FALSE(sets.validation.empty());
}

TEST(Vocabulary, IsByFrequencyAndBounded) {
  const Vocabulary vocabulary({{"b", 3}, {"a", 3}, {"c", 9}, {"d", 1}}, 5);
  EXPECT_THAT(vocabulary.words(), ElementsAre("</s>", "<unk>", "c", "a", "b"));
  EXPECT_EQ(vocabulary.number("a"), 3);
  EXPECT_EQ(vocabulary.number("d"), kUnknown);
  EXPECT_EQ(vocabulary.number("</s>"), kUnknown);  // no word of a sentence ends it
}

TEST(Bpe, JoinsTheMostFrequentPairFirst) {
  const Bpe bpe({{"low", 5}, {"lower", 2}, {"newest", 6}, {"widest", 3}}, 15);
  ASSERT_GE(bpe.merges().size(), 2u);
  EXPECT_EQ(bpe.merges()[0], (Bpe::Merge{"e@@", "s@@"}));  // 9 times, as is "es t", which comes after it
  EXPECT_EQ(bpe.merges()[1], (Bpe::Merge{"es@@", "t"}));
  EXPECT_THAT(Bpe::joined(bpe.split("slowest")), ElementsAre("slowest"));
}

TEST(Bpe, PiecesAreTheWordAgain) {
  const Bpe bpe({{"fünfzehn", 5}, {"fünfzig", 4}, {"fünf", 9}, {"äpfel", 2}}, 30);
  for (const char* word : {"fünf", "fünfzehn", "äpfel", "x", "zehn", "fünffünf"}) {
    EXPECT_THAT(Bpe::joined(bpe.split(word)), ElementsAre(word));
  }
  EXPECT_THAT(bpe.split("fünf"), ElementsAre("fünf"));
}

TEST(Language, GoesToNumbersAndBack) {
  const Sets sets = generate_sets(1, {500, 10, 10, 10});
  for (const Units units : {Units::words, Units::bpe}) {
    const Language language(sets.train, &Pair::target, units);
    EXPECT_EQ(language.splits_words(), units == Units::bpe);
    const Language again(language.json());
    for (const Pair& pair : sets.train) {
      EXPECT_EQ(language.words(language.numbers(pair.target)), pair.target);
      EXPECT_EQ(again.numbers(pair.target), language.numbers(pair.target));
    }
  }
}

TEST(Language, UsesPiecesIfThereAreTooManyWords) {
  std::vector<Pair> pairs;
  for (std::size_t i = 0; i < 3000; ++i) pairs.push_back({{fmt::format("word{}", i)}, {"x"}, {}});
  const Language language(pairs, &Pair::source, Units::automatic);
  EXPECT_TRUE(language.splits_words());
  EXPECT_LE(language.size(), static_cast<std::int64_t>(kMostWords));
  EXPECT_THAT(language.words(language.numbers({"word2999"})), ElementsAre("word2999"));
  EXPECT_FALSE(Language(pairs, &Pair::target, Units::automatic).splits_words());
}

}  // namespace
}  // namespace keel::lab::translate
