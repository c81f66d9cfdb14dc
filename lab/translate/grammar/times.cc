#include "lab/translate/grammar/times.h"

#include <array>

#include "lab/translate/grammar/numbers.h"

namespace keel::lab::translate {
namespace {

struct Month {
  const char *english, *german;
  int days;
};
constexpr std::array kMonths = {
    Month{"january", "januar", 31},  Month{"february", "februar", 29},  Month{"march", "märz", 31},
    Month{"april", "april", 30},     Month{"may", "mai", 31},           Month{"june", "juni", 30},
    Month{"july", "juli", 31},       Month{"august", "august", 31},     Month{"september", "september", 30},
    Month{"october", "oktober", 31}, Month{"november", "november", 30}, Month{"december", "dezember", 31}};

constexpr std::array kDays = {std::pair{"monday", "montag"},      std::pair{"tuesday", "dienstag"},
                              std::pair{"wednesday", "mittwoch"}, std::pair{"thursday", "donnerstag"},
                              std::pair{"friday", "freitag"},     std::pair{"saturday", "samstag"},
                              std::pair{"sunday", "sonntag"}};

// "third of may", "dritten mai"
Phrase day_of_month(nn::Random& random) {
  const Month& month = any_of(kMonths, random);
  const int day = 1 + static_cast<int>(random.below(month.days));
  return sequence({ordinal(day), {{"of", month.english}, {{{month.german, {1}}}}}});
}

Phrase hour(int h) { return cardinal(h, "eins"); }

// The minutes before the hour's word, in both languages. `half`: German counts from the half hour before the next.
struct Minutes {
  Phrase words;
  bool half = false;
};

const std::array<Minutes, 11>& minutes() {
  static const std::array<Minutes, 11> all = {
      Minutes{{{"five", "past"}, {{{"fünf", {0}}, {"nach", {1}}}}}},
      Minutes{{{"ten", "past"}, {{{"zehn", {0}}, {"nach", {1}}}}}},
      Minutes{{{"a", "quarter", "past"}, {{{"viertel", {1}}, {"nach", {2}}}}}},
      Minutes{{{"twenty", "past"}, {{{"zwanzig", {0}}, {"nach", {1}}}}}},
      Minutes{{{"twenty", "five", "past"}, {{{"fünf", {0, 1}}, {"vor", {2}}, {"halb", {0, 1}}}}}, true},
      Minutes{{{"half", "past"}, {{{"halb", {0, 1}}}}}, true},
      Minutes{{{"twenty", "five", "to"}, {{{"fünf", {0, 1}}, {"nach", {2}}, {"halb", {0, 1}}}}}},
      Minutes{{{"twenty", "to"}, {{{"zwanzig", {0}}, {"vor", {1}}}}}},
      Minutes{{{"a", "quarter", "to"}, {{{"viertel", {1}}, {"vor", {2}}}}}},
      Minutes{{{"ten", "to"}, {{{"zehn", {0}}, {"vor", {1}}}}}},
      Minutes{{{"five", "to"}, {{{"fünf", {0}}, {"vor", {1}}}}}},
  };
  return all;
}

struct PartOfDay {
  const char *english, *german;
  int from, to;  // hours
};
constexpr std::array kPartsOfDay = {PartOfDay{"morning", "morgens", 5, 11}, PartOfDay{"afternoon", "nachmittags", 1, 5},
                                    PartOfDay{"evening", "abends", 6, 10}};

Phrase time_at(int h, nn::Random& random) {
  const Phrase at{{"at"}, {{{"um", {0}}}}};
  if (perhaps(0.3, random)) return sequence({at, cardinal(h, "ein"), {{"o'clock"}, {{{"uhr", {0}}}}}});
  const Minutes& m = any_of(minutes(), random);
  Phrase number = hour(h);
  if (m.half) number.german = hour(h % 12 + 1).german;  // the hour to come, for the English word of this one
  return sequence({at, m.words, number});
}

}  // namespace

Phrase bare_date(nn::Random& random) { return sequence({{{"the"}, {{{"am", {0}}}}}, day_of_month(random)}); }

Phrase date(nn::Random& random) {
  const auto& [english, german] = any_of(kDays, random);
  const Phrase weekday{{"on", english}, {{{"am", {0}}, {german, {1}}}}};
  const double which = random.uniform();
  if (which < 0.25) return weekday;
  if (which < 0.5) return sequence({weekday, {{"the"}, {{{"dem", {0}}}}}, day_of_month(random)});
  return sequence({{{"on", "the"}, {{{"am", {0, 1}}}}}, day_of_month(random)});
}

Phrase clock_time(nn::Random& random) {
  if (perhaps(0.7, random)) return time_at(1 + static_cast<int>(random.below(12)), random);
  const PartOfDay& part = any_of(kPartsOfDay, random);
  const int h = part.from + static_cast<int>(random.below(part.to - part.from + 1));
  return sequence({time_at(h, random), {{"in", "the", part.english}, {{{part.german, {0, 1, 2}}}}}});
}

}  // namespace keel::lab::translate
