#include "lab/translate/model.h"

#include <fmt/format.h>

#include <cmath>

#include "keel/error.h"
#include "lab/translate/models.h"

namespace keel::lab::translate {
namespace {

std::unique_ptr<Model> of_width(const Arm& arm, const ModelSizes& sizes, std::int64_t width, nn::Random& random) {
  return arm.look == Look::transformer ? make_transformer(arm, sizes, width, random)
                                       : make_recurrent(arm, sizes, width, random);
}

}  // namespace

// Parameters grow with the width: the last width that stays below, or the next one, whichever is closer.
std::unique_ptr<Model> make_model(const Arm& arm, const ModelSizes& sizes, nn::Random& random) {
  constexpr std::int64_t kStep = 2;
  const auto distance = [&](std::int64_t width) {
    nn::Random trial(0);
    return of_width(arm, sizes, width, trial)->parameter_count() - sizes.parameters;
  };
  std::int64_t low = 1, high = 2;  // in steps
  while (distance(high * kStep) <= 0) high *= 2;
  while (low + 1 < high) {
    const std::int64_t middle = (low + high) / 2;
    (distance(middle * kStep) <= 0 ? low : high) = middle;
  }
  const std::int64_t below = distance(low * kStep), above = distance((low + 1) * kStep);
  const std::int64_t width = std::abs(below) <= std::abs(above) ? low : low + 1;
  auto model = of_width(arm, sizes, width * kStep, random);
  const double off = std::abs(static_cast<double>(model->parameter_count() - sizes.parameters));
  if (off > kBudget * static_cast<double>(sizes.parameters)) {
    throw Error(ErrorCode::invalid_argument,
                fmt::format("[translate] {}: expected a model of {} parameters within {:.0f} %, got {} at its "
                            "narrowest; the vocabulary is too large for it",
                            arm.id, sizes.parameters, 100 * kBudget, model->parameter_count()));
  }
  return model;
}

}  // namespace keel::lab::translate
