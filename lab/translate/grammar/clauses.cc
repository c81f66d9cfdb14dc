#include "lab/translate/grammar/clauses.h"

#include <array>

#include "lab/translate/grammar/things.h"
#include "lab/translate/grammar/times.h"

namespace keel::lab::translate {
namespace {

// Events: "the train leaves …", "der zug fährt … ab"

struct EventVerb {
  const char *english, *german, *prefix;  // what a separable verb leaves at the end, or nullptr
};
constexpr EventVerb kLeaves{"leaves", "fährt", "ab"}, kArrives{"arrives", "kommt", "an"};
constexpr EventVerb kBegins{"begins", "beginnt", nullptr}, kEnds{"ends", "endet", nullptr};
constexpr EventVerb kOpens{"opens", "öffnet", nullptr}, kCloses{"closes", "schließt", nullptr};

struct Event {
  const char *english, *article, *german;
  std::array<EventVerb, 2> verbs;
};
constexpr std::array kEvents = {
    Event{"train", "der", "zug", {kLeaves, kArrives}},    Event{"bus", "der", "bus", {kLeaves, kArrives}},
    Event{"ship", "das", "schiff", {kLeaves, kArrives}},  Event{"film", "der", "film", {kBegins, kEnds}},
    Event{"concert", "das", "konzert", {kBegins, kEnds}}, Event{"meeting", "die", "sitzung", {kBegins, kEnds}},
    Event{"course", "der", "kurs", {kBegins, kEnds}},     Event{"shop", "der", "laden", {kOpens, kCloses}},
    Event{"museum", "das", "museum", {kOpens, kCloses}},  Event{"library", "die", "bibliothek", {kOpens, kCloses}}};

Phrase event(nn::Random& random) {
  const Event& what = any_of(kEvents, random);
  const EventVerb& does = any_of(what.verbs, random);
  const Phrase subject{{"the", what.english}, {{{what.article, {0}}, {what.german, {1}}}}};
  Phrase verb{{does.english}, {{{does.german, {0}}}, {}}};
  if (does.prefix != nullptr) verb.german[1].push_back({does.prefix, {0}});
  const double which = random.uniform();
  if (which < 0.3) {  // the date in front: the verb stays second in German
    return arranged({date(random), subject, verb, clock_time(random)}, {{0, 0}, {2, 0}, {1, 0}, {3, 0}, {2, 1}});
  }
  if (which < 0.5) return arranged({subject, verb, clock_time(random)}, {{0, 0}, {1, 0}, {2, 0}, {1, 1}});
  if (which < 0.65) return arranged({subject, verb, date(random)}, {{0, 0}, {1, 0}, {2, 0}, {1, 1}});
  const Phrase day = date(random);
  return arranged({subject, verb, day, clock_time(random)}, {{0, 0}, {1, 0}, {2, 0}, {3, 0}, {1, 1}});
}

// Someone does something: the main verb comes last in German.

enum class Person { first, third, several };
using enum Person;

struct Subject {
  Phrase words;
  Person person;
};

const std::vector<Subject>& subjects() {
  static const std::vector<Subject> all = [] {
    std::vector<Subject> list = {{{{"i"}, {{{"ich", {0}}}}}, first},
                                 {{{"he"}, {{{"er", {0}}}}}, third},
                                 {{{"she"}, {{{"sie", {0}}}}}, third},
                                 {{{"we"}, {{{"wir", {0}}}}}, several},
                                 {{{"they"}, {{{"sie", {0}}}}}, several}};
    struct Two {
      std::array<const char*, 2> english, german;
      Person person;
    };
    for (const Two& s :
         {Two{{"the", "woman"}, {"die", "frau"}, third}, Two{{"the", "man"}, {"der", "mann"}, third},
          Two{{"the", "teacher"}, {"der", "lehrer"}, third}, Two{{"my", "brother"}, {"mein", "bruder"}, third},
          Two{{"my", "sister"}, {"meine", "schwester"}, third}, Two{{"our", "neighbour"}, {"unser", "nachbar"}, third},
          Two{{"the", "children"}, {"die", "kinder"}, several}, Two{{"our", "guests"}, {"unsere", "gäste"}, several}}) {
      list.push_back({{{s.english[0], s.english[1]}, {{{s.german[0], {0}}, {s.german[1], {1}}}}}, s.person});
    }
    return list;
  }();
  return all;
}

// By person: ich, er, wir.
using Forms = std::array<const char*, 3>;
const char* form(const Forms& forms, Person person) { return forms[static_cast<std::size_t>(person)]; }

struct Modal {
  std::vector<std::string> english, english_third;
  Forms german;
};
const std::vector<Modal>& modals() {
  static const std::vector<Modal> all = {{{"will"}, {"will"}, {"werde", "wird", "werden"}},
                                         {{"want", "to"}, {"wants", "to"}, {"will", "will", "wollen"}},
                                         {{"must"}, {"must"}, {"muss", "muss", "müssen"}},
                                         {{"can"}, {"can"}, {"kann", "kann", "können"}},
                                         {{"should"}, {"should"}, {"soll", "soll", "sollen"}}};
  return all;
}

struct Deed {
  const char *english, *past;
  const char *german, *participle;
  bool for_money;
};
constexpr std::array kDeeds = {
    Deed{"buy", "bought", "kaufen", "gekauft", true}, Deed{"sell", "sold", "verkaufen", "verkauft", true},
    Deed{"order", "ordered", "bestellen", "bestellt", true},
    Deed{"deliver", "delivered", "liefern", "geliefert", false}, Deed{"fetch", "fetched", "holen", "geholt", false}};

// English: verb, things, price, time. German: helper, time, things, price, verb.
Phrase deed(nn::Random& random) {
  const Subject& who = any_of(subjects(), random);
  const Deed& does = any_of(kDeeds, random);
  Phrase verb;  // its German parts: the helper and the verb itself
  if (perhaps(0.5, random)) {
    const Modal& modal = any_of(modals(), random);
    verb.english = who.person == third ? modal.english_third : modal.english;
    verb.german = {{{form(modal.german, who.person), {0}}}, {{does.german, {verb.english.size()}}}};
    verb.english.emplace_back(does.english);
  } else {
    const char* helper = form({"habe", "hat", "haben"}, who.person);
    verb = {{does.past}, {{{helper, {0}}}, {{does.participle, {0}}}}};
  }
  std::vector<Phrase> phrases{who.words, verb, things(Case::accusative, random).words};
  if (does.for_money && perhaps(0.5, random)) {
    phrases.push_back(sequence({{{"for"}, {{{"für", {0}}}}}, price(random)}));
  }
  std::vector<Place> places{{0, 0}, {1, 0}};
  const std::size_t objects = phrases.size();
  if (perhaps(0.6, random)) {
    phrases.push_back(perhaps(0.6, random) ? date(random) : clock_time(random));
    places.push_back({objects, 0});
  }
  for (std::size_t i = 2; i < objects; ++i) places.push_back({i, 0});
  places.push_back({1, 1});
  return arranged(phrases, places);
}

Phrase cost(nn::Random& random) {
  const Things what = things(Case::nominative, random);
  const Phrase verb{{what.several ? "cost" : "costs"}, {{{what.several ? "kosten" : "kostet", {0}}}}};
  return sequence({what.words, verb, price(random)});
}

}  // namespace

Phrase moment(nn::Random& random) { return sequence({bare_date(random), clock_time(random)}); }

Phrase clause(nn::Random& random) {
  const double which = random.uniform();
  if (which < 0.35) return event(random);
  if (which < 0.6) return cost(random);
  return deed(random);
}

}  // namespace keel::lab::translate
