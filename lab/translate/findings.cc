// What follows from the measurements, in words.
#include <algorithm>
#include <cmath>

#include "lab/translate/telling.h"

namespace keel::lab::translate {
namespace {

// Whether two means differ by more than chance would explain: two standard errors of their difference.
bool differ(const Measurement& a, const Measurement& b) {
  const auto error = [](const Measurement& m) { return m.spread * m.spread / static_cast<double>(m.repeats); };
  return std::abs(a.value - b.value) > 2 * std::sqrt(error(a) + error(b));
}

bool has(const Result& result, const std::string& arm) {
  return result.measurements.contains("translate." + arm + ".bleu");
}

// Document 003's question: the same model with additive and with scaled dot-product attention.
void say_where_they_agree(const Comparison& c, Result& result) {
  const auto m = [&](const std::string& key) -> const Measurement& {
    return result.measurements.at("translate." + key);
  };
  const auto verdict = [](const Measurement& a, const Measurement& b) {
    return differ(a, b) ? "they differ" : "they agree within the spread";
  };
  const Measurement &a = m("additive.bleu"), &s = m("scaled-64.bleu");
  std::string text = fmt::format(
      "Additive against scaled dot (d_k 64): BLEU {} and {} ({}); on longer sentences {} and {} ({})", plus_minus(a),
      plus_minus(s), verdict(a, s), plus_minus(m("additive.bleu_longer")), plus_minus(m("scaled-64.bleu_longer")),
      verdict(m("additive.bleu_longer"), m("scaled-64.bleu_longer")));
  if (c.aligned()) {
    text += fmt::format("; {:.0f} % and {:.0f} % of their attention on aligned words ({})",
                        100 * m("additive.alignment").value, 100 * m("scaled-64.alignment").value,
                        verdict(m("additive.alignment"), m("scaled-64.alignment")));
  }
  result.findings.push_back(text + ".");
}

void say_how_one_does(const Arm& arm, Result& result) {
  const auto m = [&](const char* what) -> const Measurement& { return result.measurements.at(key_of(arm, what)); };
  result.findings.push_back(fmt::format("{}: BLEU {}, {} of sentences word for word; on longer ones {} and {}.",
                                        arm.name, plus_minus(m("bleu")), percent(m("exact")),
                                        plus_minus(m("bleu_longer")), percent(m("exact_longer"))));
}

void say_what_attention_is_for(Result& result) {
  const Measurement &none = result.measurements.at("translate.none.bleu"),
                    &scaled = result.measurements.at("translate.scaled-64.bleu");
  result.findings.push_back(
      fmt::format("Without attention the same encoder and decoder reach {} BLEU, with scaled dot {}; on longer "
                  "sentences {:.1f} and {:.1f}.",
                  plus_minus(none), plus_minus(scaled), result.at("translate.none.bleu_longer"),
                  result.at("translate.scaled-64.bleu_longer")));
}

void say_who_aligns(const Comparison& c, Result& result) {
  const Arm &best = best_by(c, result, "alignment"), &worst = best_by(c, result, "alignment", -1);
  if (&best == &worst) return;
  result.findings.push_back(
      fmt::format("{} aligns best: {:.0f} % of its attention is on the words that the grammar aligns. {} aligns worst, "
                  "with {:.0f} %. Even weights would put {:.0f} % there.",
                  capitalised(best.name), 100 * result.at(key_of(best, "alignment")), capitalised(worst.name),
                  100 * result.at(key_of(worst, "alignment")), 100 * result.at("translate.even.alignment")));
}

void say_what_scaling_changed(const HeadSizes& both, Result& result) {
  for (const std::int64_t d : both.sizes) {
    const Measurement &dot = both.at("dot", d, "bleu"), &scaled = both.at("scaled", d, "bleu");
    const char* change = !differ(dot, scaled)       ? "changes nothing beyond the spread"
                         : scaled.value > dot.value ? "helps"
                                                    : "hurts";
    result.findings.push_back(
        fmt::format("At d_k {} the scaling {}: BLEU {} without and {} with it, loss per word {:.2f} and {:.2f}. A "
                    "word's largest weight is {:.2f} and {:.2f} before training, {:.2f} and {:.2f} a tenth of the way, "
                    "{:.2f} and {:.2f} at the end.",
                    d, change, plus_minus(dot), plus_minus(scaled), both.at("dot", d, "loss").value,
                    both.at("scaled", d, "loss").value, both.at("dot", d, "largest_start").value,
                    both.at("scaled", d, "largest_start").value, both.at("dot", d, "largest_early").value,
                    both.at("scaled", d, "largest_early").value, both.at("dot", d, "largest").value,
                    both.at("scaled", d, "largest").value));
  }
}

void say_about_search(const Comparison& c, Result& result) {
  std::vector<double> gains;
  for (const Arm& arm : c.arms) {
    gains.push_back(result.at(key_of(arm, "bleu_beam_some")) - result.at(key_of(arm, "bleu_greedy_some")));
  }
  const auto [least, most] = std::minmax_element(gains.begin(), gains.end());
  result.findings.push_back(
      fmt::format("A beam of {} instead of greedy search changes BLEU by {:+.1f} to {:+.1f}, depending on the arm.",
                  c.settings.beam, *least, *most));
}

void say_who_is_fast(const Comparison& c, Result& result) {
  const Findings& times = result.times;
  const Arm &fast = best_by(c, times, "seconds_per_epoch", -1), &slow = best_by(c, times, "seconds_per_epoch");
  const auto seconds = [&](const Arm& arm) { return times.at(key_of(arm, "seconds_per_epoch")); };
  if (&fast == &slow) return;
  std::string text = fmt::format("Fastest is {}, with {:.2f} s per epoch; slowest is {}, with {:.2f} s.", fast.name,
                                 seconds(fast), slow.name, seconds(slow));
  if (has(result, "additive") && has(result, "scaled-64")) {
    const Measurement &additive = times.measurements.at("translate.additive.seconds_per_epoch"),
                      &scaled = times.measurements.at("translate.scaled-64.seconds_per_epoch");
    const double ratio = additive.value / scaled.value;
    text +=
        fmt::format(" An epoch with additive attention takes {:.2f} times as long as one with scaled dot (d_k 64){}.",
                    ratio, differ(additive, scaled) ? "" : ", which is within the spread");
  }
  result.times.findings.push_back(text);
}

}  // namespace

Result report_on(const Comparison& c, const std::string& data) {
  Result result;
  const TrainingSettings& t = c.settings.training;
  result.settings = fmt::format(
      "{}: {} pairs to train on, {} and {} (longer) to test on; vocabularies of {} and {} words. Bidirectional GRU, "
      "GRU decoder with input feeding, {} parameters ± {:.0f} % per arm: the width of the layers compensates for what "
      "the attention "
      "takes. {} steps of {} sentences, Adam at {}, label smoothing {}, gradients clipped at {}. {} seeds.",
      data, c.task.train.size(), c.task.test.size(), c.task.longer.size(), c.task.source.size(), c.task.target.size(),
      c.task.model_sizes().parameters, 100 * kBudget, t.steps, t.batch, t.lr, t.smoothing, t.clip, c.settings.repeats);
  measure(c, result);
  const HeadSizes both = head_sizes(c, result);
  if (c.arms.size() == 1) say_how_one_does(c.arms.front(), result);
  if (has(result, "additive") && has(result, "scaled-64")) say_where_they_agree(c, result);
  if (has(result, "none") && has(result, "scaled-64")) say_what_attention_is_for(result);
  if (c.aligned()) say_who_aligns(c, result);
  say_what_scaling_changed(both, result);
  say_about_search(c, result);
  say_who_is_fast(c, result);
  draw(c, result);
  return result;
}

}  // namespace keel::lab::translate
