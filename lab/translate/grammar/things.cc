#include "lab/translate/grammar/things.h"

#include <array>

#include "lab/translate/grammar/numbers.h"

namespace keel::lab::translate {
namespace {

enum class Gender { masculine, feminine, neuter };
using enum Gender;

struct Noun {
  const char *english, *english_several;
  const char *german, *german_several;
  Gender gender;
};
constexpr std::array kNouns = {Noun{"apple", "apples", "apfel", "äpfel", masculine},
                               Noun{"table", "tables", "tisch", "tische", masculine},
                               Noun{"chair", "chairs", "stuhl", "stühle", masculine},
                               Noun{"ball", "balls", "ball", "bälle", masculine},
                               Noun{"letter", "letters", "brief", "briefe", masculine},
                               Noun{"flower", "flowers", "blume", "blumen", feminine},
                               Noun{"lamp", "lamps", "lampe", "lampen", feminine},
                               Noun{"card", "cards", "karte", "karten", feminine},
                               Noun{"pear", "pears", "birne", "birnen", feminine},
                               Noun{"book", "books", "buch", "bücher", neuter},
                               Noun{"picture", "pictures", "bild", "bilder", neuter},
                               Noun{"car", "cars", "auto", "autos", neuter},
                               Noun{"shirt", "shirts", "hemd", "hemden", neuter},
                               Noun{"bicycle", "bicycles", "fahrrad", "fahrräder", neuter}};

// English and the German stem.
constexpr std::array kAdjectives = {
    std::pair{"red", "rot"},    std::pair{"green", "grün"}, std::pair{"blue", "blau"},
    std::pair{"white", "weiß"}, std::pair{"big", "groß"},   std::pair{"small", "klein"},
    std::pair{"old", "alt"},    std::pair{"new", "neu"},    std::pair{"cheap", "billig"}};

using Stuff = std::pair<const char*, const char*>;
constexpr Stuff kMilk{"milk", "milch"}, kWater{"water", "wasser"}, kWine{"wine", "wein"}, kBeer{"beer", "bier"},
    kSugar{"sugar", "zucker"}, kFlour{"flour", "mehl"}, kRice{"rice", "reis"}, kHoney{"honey", "honig"},
    kMustard{"mustard", "senf"}, kFruit{"fruit", "obst"};

struct Measure {
  Noun unit;
  std::array<Stuff, 3> of;
};
constexpr std::array kMeasures = {
    Measure{{"bottle", "bottles", "flasche", "flaschen", feminine}, {kMilk, kWater, kWine}},
    Measure{{"bag", "bags", "tüte", "tüten", feminine}, {kSugar, kFlour, kRice}},
    Measure{{"glass", "glasses", "glas", "gläser", neuter}, {kHoney, kMustard, kWater}},
    Measure{{"kilo", "kilos", "kilo", "kilo", neuter}, {kFlour, kRice, kFruit}},
    Measure{{"crate", "crates", "kiste", "kisten", feminine}, {kBeer, kWine, kFruit}}};

const char* one(Gender gender, Case c) {
  if (gender == feminine) return "eine";
  return gender == masculine && c == Case::accusative ? "einen" : "ein";
}

// After ein or a number: ein roter apfel, einen roten apfel, eine rote lampe, ein rotes buch, zwei rote äpfel.
const char* ending(Gender gender, Case c, bool several) {
  if (several || gender == feminine) return "e";
  if (gender == neuter) return "es";
  return c == Case::accusative ? "en" : "er";
}

Phrase noun_words(const Noun& noun, bool several) {
  return {{several ? noun.english_several : noun.english}, {{{several ? noun.german_several : noun.german, {0}}}}};
}

int how_many(nn::Random& random) {
  const double which = random.uniform();
  if (which < 0.25) return 1;
  return which < 0.6 ? 2 + static_cast<int>(random.below(11)) : 13 + static_cast<int>(random.below(87));
}

Phrase amount(int n, const char* english, const char* english_several, const char* german) {
  return sequence({cardinal(n, "einen"), {{n > 1 ? english_several : english}, {{{german, {0}}}}}});
}

}  // namespace

Things things(Case c, nn::Random& random) {
  const int n = how_many(random);
  const bool several = n > 1;
  if (perhaps(0.4, random)) {
    const Measure& measure = any_of(kMeasures, random);
    const auto& [english, german] = any_of(measure.of, random);
    return {sequence({cardinal(n, one(measure.unit.gender, c)),
                      noun_words(measure.unit, several),
                      {{"of", english}, {{{german, {1}}}}}}),
            several};
  }
  const Noun& noun = any_of(kNouns, random);
  std::vector<Phrase> phrases{cardinal(n, one(noun.gender, c))};
  if (perhaps(0.6, random)) {
    const auto& [english, stem] = any_of(kAdjectives, random);
    phrases.push_back({{english}, {{{std::string(stem) + ending(noun.gender, c, several), {0}}}}});
  }
  phrases.push_back(noun_words(noun, several));
  return {sequence(phrases), several};
}

Phrase price(nn::Random& random) {
  const Phrase euros = amount(1 + static_cast<int>(random.below(99)), "euro", "euros", "euro");
  if (perhaps(0.55, random)) return euros;
  const Phrase cents = amount(1 + static_cast<int>(random.below(99)), "cent", "cents", "cent");
  return sequence({euros, {{"and"}, {{{"und", {0}}}}}, cents});
}

}  // namespace keel::lab::translate
