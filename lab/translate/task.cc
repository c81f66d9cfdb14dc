#include "lab/translate/task.h"

#include <algorithm>

namespace keel::lab::translate {

Coded coded(const Task& task, const Pair& pair) {
  return {task.source.numbers(pair.source), task.target.numbers(pair.target)};
}

std::int64_t Task::longest() const {
  std::size_t most = 0;
  for (const auto* set : {&train, &test, &longer}) {
    for (const Coded& pair : *set) most = std::max(most, pair.target.size());
  }
  return std::min(static_cast<std::int64_t>(most) + 10, kLongestTranslation);
}

Task make_task(Sets sets, Units units) {
  const Language source(sets.train, &Pair::source, units), target(sets.train, &Pair::target, units);
  Task task{std::move(sets), source, target, {}, {}, {}, {}};
  const auto code = [&](const std::vector<Pair>& from, std::vector<Coded>& to) {
    for (const Pair& pair : from) to.push_back(coded(task, pair));
  };
  code(task.sets.train, task.train);
  code(task.sets.validation, task.validation);
  code(task.sets.test, task.test);
  code(task.sets.longer, task.longer);
  return task;
}

}  // namespace keel::lab::translate
