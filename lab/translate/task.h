#pragma once

#include "lab/translate/batch.h"
#include "lab/translate/generator.h"
#include "lab/translate/language.h"
#include "lab/translate/model.h"

namespace keel::lab::translate {

// The same budget for every arm: so many parameters besides those of the words, and those of a model in the middle.
inline ModelSizes model_sizes(const Language& source, const Language& target) {
  return {source.size(), target.size(), 50'000 + 32 * source.size() + 96 * target.size()};
}

inline constexpr std::int64_t kLongestTranslation = 500;  // words, or pieces of them

// Sentences to learn from and to be tested with, as words and as numbers.
struct Task {
  Sets sets;
  Language source, target;
  std::vector<Coded> train, validation, test, longer;

  ModelSizes model_sizes() const { return translate::model_sizes(source, target); }
  // The most words that a translation may have, at most kLongestTranslation.
  std::int64_t longest() const;
};

Task make_task(Sets sets, Units units);

Coded coded(const Task& task, const Pair& pair);

}  // namespace keel::lab::translate
