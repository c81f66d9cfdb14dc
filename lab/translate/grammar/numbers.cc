#include "lab/translate/grammar/numbers.h"

#include <array>

namespace keel::lab::translate {
namespace {

constexpr std::array kEnglish = {"",         "one",     "two",     "three",     "four",     "five",    "six",
                                 "seven",    "eight",   "nine",    "ten",       "eleven",   "twelve",  "thirteen",
                                 "fourteen", "fifteen", "sixteen", "seventeen", "eighteen", "nineteen"};
constexpr std::array kGerman = {"",         "ein",      "zwei",     "drei",     "vier",     "fünf",    "sechs",
                                "sieben",   "acht",     "neun",     "zehn",     "elf",      "zwölf",   "dreizehn",
                                "vierzehn", "fünfzehn", "sechzehn", "siebzehn", "achtzehn", "neunzehn"};
constexpr std::array kEnglishTens = {"",      "",      "twenty",  "thirty", "forty",
                                     "fifty", "sixty", "seventy", "eighty", "ninety"};
constexpr std::array kGermanTens = {"",        "",        "zwanzig", "dreißig", "vierzig",
                                    "fünfzig", "sechzig", "siebzig", "achtzig", "neunzig"};
constexpr std::array kEnglishOrdinals = {"",          "first",     "second",      "third",      "fourth",
                                         "fifth",     "sixth",     "seventh",     "eighth",     "ninth",
                                         "tenth",     "eleventh",  "twelfth",     "thirteenth", "fourteenth",
                                         "fifteenth", "sixteenth", "seventeenth", "eighteenth", "nineteenth"};
constexpr std::array kGermanOrdinals = {"",
                                        "ersten",
                                        "zweiten",
                                        "dritten",
                                        "vierten",
                                        "fünften",
                                        "sechsten",
                                        "siebten",
                                        "achten",
                                        "neunten",
                                        "zehnten",
                                        "elften",
                                        "zwölften",
                                        "dreizehnten",
                                        "vierzehnten",
                                        "fünfzehnten",
                                        "sechzehnten",
                                        "siebzehnten",
                                        "achtzehnten",
                                        "neunzehnten"};

// 21 to 99 without the tens: German says the units first.
GermanPart compound(std::size_t tens, std::size_t units) {
  return {{kGerman[units], {1}}, {"und", {0, 1}}, {kGermanTens[tens], {0}}};
}

}  // namespace

Phrase cardinal(int n, const char* one) {
  const auto tens = static_cast<std::size_t>(n / 10), units = static_cast<std::size_t>(n % 10);
  if (n == 1) return {{"one"}, {{{one, {0}}}}};
  if (n < 20) return {{kEnglish[static_cast<std::size_t>(n)]}, {{{kGerman[static_cast<std::size_t>(n)], {0}}}}};
  if (units == 0) return {{kEnglishTens[tens]}, {{{kGermanTens[tens], {0}}}}};
  return {{kEnglishTens[tens], kEnglish[units]}, {compound(tens, units)}};
}

Phrase ordinal(int n) {
  const auto tens = static_cast<std::size_t>(n / 10), units = static_cast<std::size_t>(n % 10);
  if (n < 20) {
    const auto at = static_cast<std::size_t>(n);
    return {{kEnglishOrdinals[at]}, {{{kGermanOrdinals[at], {0}}}}};
  }
  if (units == 0) return {{tens == 2 ? "twentieth" : "thirtieth"}, {{{kGermanTens[tens], {0}}, {"sten", {0}}}}};
  GermanPart part = compound(tens, units);
  part.push_back({"sten", {1}});
  return {{kEnglishTens[tens], kEnglishOrdinals[units]}, {part}};
}

}  // namespace keel::lab::translate
