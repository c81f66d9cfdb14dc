#include "lab/translate/grammar/phrase.h"

namespace keel::lab::translate {

Phrase arranged(const std::vector<Phrase>& phrases, const std::vector<Place>& places) {
  Phrase whole;
  std::vector<std::size_t> starts;
  for (const Phrase& phrase : phrases) {
    starts.push_back(whole.english.size());
    whole.english.insert(whole.english.end(), phrase.english.begin(), phrase.english.end());
  }
  GermanPart part;
  for (const Place& place : places) {
    for (GermanWord word : phrases[place.phrase].german[place.part]) {
      for (std::size_t& from : word.from) from += starts[place.phrase];
      part.push_back(std::move(word));
    }
  }
  whole.german.push_back(std::move(part));
  return whole;
}

Phrase sequence(const std::vector<Phrase>& phrases) {
  std::vector<Place> places;
  for (std::size_t i = 0; i < phrases.size(); ++i) places.push_back({i, 0});
  return arranged(phrases, places);
}

}  // namespace keel::lab::translate
