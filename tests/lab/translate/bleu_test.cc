// BLEU against sacreBLEU's published examples; bleu_parity.py holds it to the package itself.
#include "lab/translate/bleu.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace keel::lab::translate {
namespace {

using testing::ElementsAre;

double corpus(const std::vector<std::string>& translations, const std::vector<std::vector<std::string>>& references,
              Tokens tokens) {
  return bleu(count_matches(translations, references, tokens));
}

const std::vector<std::string> kTranslations = {"The dog bit the man.", "It wasn't surprising.",
                                                "The man had just bitten him."};
const std::vector<std::vector<std::string>> kReferences = {{"The dog bit the man.", "The dog had bit the man."},
                                                           {"It was not unexpected.", "No one was surprised."},
                                                           {"The man bit him first.", "The man had bitten the dog."}};

TEST(Bleu, PublishedExamples) {
  EXPECT_NEAR(corpus(kTranslations, kReferences, Tokens::v13a), 48.530827, 1e-6);
  EXPECT_NEAR(corpus(kTranslations, kReferences, Tokens::none), 49.1919566, 1e-6);
  EXPECT_EQ(corpus({"", "", ""}, kReferences, Tokens::v13a), 0.0);
  EXPECT_NEAR(bleu({{9, 7, 5, 3}, {10, 8, 6, 4}, 11, 11}), 83.75922397, 1e-7);
  EXPECT_NEAR(corpus({"Producția de zahăr primă va fi exprimată în ceea ce privește zahărul alb;"},
                     {{"producţia de zahăr brut se exprimă în zahăr alb;"}}, Tokens::v13a),
              8.493, 5e-4);
}

TEST(Bleu, CountsOfAPublishedExample) {
  const std::vector<std::string> translation = {"am I am a character sequence"};
  const std::vector<std::vector<std::string>> reference = {{"I am a symbol string sequence a a"}};
  const BleuCounts counts = count_matches(translation, reference, Tokens::none);
  EXPECT_THAT(counts.matches, ElementsAre(4, 2, 1, 0));
  EXPECT_THAT(counts.totals, ElementsAre(6, 5, 4, 3));
  EXPECT_EQ(counts.length, 6);
  EXPECT_EQ(counts.reference_length, 8);
}

TEST(Bleu, EndsOfTheScale) {
  EXPECT_NEAR(corpus({"a b c d e"}, {{"a b c d e"}}, Tokens::none), 100.0, 1e-12);
  EXPECT_EQ(corpus({"a b c d e"}, {{"v w x y z"}}, Tokens::none), 0.0);
  EXPECT_EQ(corpus({"a b c"}, {{"a b c"}}, Tokens::none), 0.0);  // no four words anywhere
  EXPECT_EQ(bleu({{0, 0, 0, 0}, {0, 0, 0, 0}, 0, 0}), 0.0);
}

TEST(Bleu, Tokenisation13a) {
  EXPECT_THAT(tokenised("Hello, world! 1,000.5 (3-4) &amp; \"x\".", Tokens::v13a),
              ElementsAre("Hello", ",", "world", "!", "1,000.5", "(", "3", "-", "4", ")", "&", "\"", "x", "\"", "."));
  EXPECT_THAT(tokenised("a, b\u00a0c", Tokens::none), ElementsAre("a,", "b", "c"));
}

}  // namespace
}  // namespace keel::lab::translate
