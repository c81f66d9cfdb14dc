#pragma once

#include "lab/translate/batch.h"
#include "lab/translate/generator.h"
#include "lab/translate/language.h"
#include "lab/translate/model.h"

namespace keel::lab::translate {

// Sentences to learn from and to be tested with, as words and as numbers.
struct Task {
  Sets sets;
  Language source, target;
  std::vector<Coded> train, validation, test, longer;

  // The same budget for every arm: so many parameters beside what words take, and those of a model in the middle.
  std::int64_t parameters() const { return 50'000 + 32 * source.size() + 96 * target.size(); }
  ModelSizes model_sizes() const { return {source.size(), target.size(), parameters()}; }
  // The most words that a translation may have.
  std::int64_t longest() const;
};

Task make_task(Sets sets, Units units);

Coded coded(const Task& task, const Pair& pair);

}  // namespace keel::lab::translate
