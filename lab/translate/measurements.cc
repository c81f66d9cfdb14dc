#include <algorithm>

#include "lab/translate/telling.h"

namespace keel::lab::translate {

std::string key_of(const Arm& arm, const char* what) { return fmt::format("translate.{}.{}", arm.id, what); }

std::string plus_minus(const Measurement& m, int digits) {
  return fmt::format("{:.{}f} ± {:.{}f}", m.value, digits, m.spread, digits);
}
std::string percent(const Measurement& m) { return fmt::format("{:.0f} %", 100 * m.value); }

const Arm& best_by(const Comparison& c, const Findings& in, const char* what, double sign) {
  const Arm* best = nullptr;
  for (const Arm& arm : c.arms) {
    if (!in.measurements.contains(key_of(arm, what))) continue;
    if (best == nullptr || sign * in.at(key_of(arm, what)) > sign * in.at(key_of(*best, what))) best = &arm;
  }
  return best != nullptr ? *best : c.arms.front();
}

HeadSizes head_sizes(const Comparison& c, const Result& result) {
  HeadSizes both{{}, result};
  for (const std::int64_t d : kHeadSizes) {
    const auto runs = [&](Look look) {
      return std::any_of(c.arms.begin(), c.arms.end(),
                         [&](const Arm& arm) { return arm.look == look && arm.d_k == d; });
    };
    if (runs(Look::dot) && runs(Look::scaled)) both.sizes.push_back(d);
  }
  return both;
}

void measure(const Comparison& c, Result& result) {
  for (std::size_t a = 0; a < c.arms.size(); ++a) {
    const auto keep = [&](Findings& in, const char* what, const auto& get) {
      in.measure(key_of(c.arms[a], what), each(c.found[a], get));
    };
    keep(result, "parameters", [](const Found& f) { return f.parameters; });
    keep(result, "bleu", [](const Found& f) { return f.test.bleu; });
    keep(result, "exact", [](const Found& f) { return f.test.exact; });
    keep(result, "bleu_longer", [](const Found& f) { return f.longer.bleu; });
    keep(result, "exact_longer", [](const Found& f) { return f.longer.exact; });
    keep(result, "bleu_greedy_some", [](const Found& f) { return f.greedy.bleu; });
    keep(result, "bleu_beam_some", [](const Found& f) { return f.beam.bleu; });
    keep(result, "loss", [](const Found& f) { return f.loss; });
    keep(result, "megabytes", [](const Found& f) { return static_cast<double>(f.training.peak_bytes) / 1e6; });
    keep(result.times, "seconds_per_epoch", [](const Found& f) { return f.training.seconds_per_epoch; });
    keep(result.times, "words_per_second", [](const Found& f) { return f.training.words_per_second; });
    if (c.arms[a].look == Look::none) continue;
    keep(result, "largest_start", [](const Found& f) { return f.start.sharpest; });
    keep(result, "largest_early", [](const Found& f) { return f.training.curve.front().found.largest; });
    keep(result, "largest", [](const Found& f) { return f.end.sharpest; });
    if (!c.aligned()) continue;
    keep(result, "alignment", [](const Found& f) { return f.end.aligned; });
    result.exact("translate.even.alignment", c.found[a].front().end.even);
  }
}

}  // namespace keel::lab::translate
