// The comparison as a result: measurements first, then figures, then what follows from them in words.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "lab/result.h"
#include "lab/statistics.h"
#include "lab/translate/comparison.h"

namespace keel::lab::translate {
namespace {

constexpr const char* kBand = "one standard deviation over seeds";

template <class Get>
std::vector<double> each(const std::vector<Found>& found, const Get& get) {
  std::vector<double> values;
  for (const Found& one : found) values.push_back(get(one));
  return values;
}

std::string key_of(const Arm& arm, const char* what) { return fmt::format("translate.{}.{}", arm.id, what); }

// Everything that a seed reproduces, and in `times` what it does not.
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
    keep(result.times, "seconds_an_epoch", [](const Found& f) { return f.training.seconds_an_epoch; });
    keep(result.times, "words_a_second", [](const Found& f) { return f.training.words_a_second; });
    if (c.arms[a].look == Look::none) continue;
    keep(result, "largest_start", [](const Found& f) { return f.start.sharpest; });
    keep(result, "largest_early", [](const Found& f) { return f.training.curve.front().found.largest; });
    keep(result, "largest", [](const Found& f) { return f.end.sharpest; });
    if (!c.aligned()) continue;
    keep(result, "alignment", [](const Found& f) { return f.end.aligned; });
    result.exact("translate.even.alignment", c.found[a].front().end.even);
  }
}

// Figures

std::string plus_minus(const Measurement& m, int digits = 1) {
  return fmt::format("{:.{}f} ± {:.{}f}", m.value, digits, m.spread, digits);
}
std::string percent(const Measurement& m) { return fmt::format("{:.0f} %", 100 * m.value); }

void draw_table(const Comparison& c, Result& result) {
  Table table{{"arm", "parameters", "BLEU", "BLEU, longer", "exact", "exact, longer", "loss a word", "MB"}, {}};
  if (c.aligned()) table.columns.insert(table.columns.end() - 2, "on aligned words");
  for (const Arm& arm : c.arms) {
    const auto at = [&](const char* what) -> const Measurement& { return result.measurements.at(key_of(arm, what)); };
    std::vector<Table::Cell> row{arm.name,
                                 at("parameters").value,
                                 plus_minus(at("bleu")),
                                 plus_minus(at("bleu_longer")),
                                 percent(at("exact")),
                                 percent(at("exact_longer"))};
    if (c.aligned()) row.emplace_back(arm.look == Look::none ? "–" : percent(at("alignment")));
    row.emplace_back(at("loss").value);
    row.emplace_back(at("megabytes").value);
    table.rows.push_back(std::move(row));
  }
  result.draw(
      "arms", "Every arm, the same data and budget",
      fmt::format("Mean and standard deviation over {} seeds. “Longer” are {} sentences longer than any that was "
                  "trained on. MB: tensors alive in a training step, at most.",
                  c.settings.repeats, c.task.sets.longer.size()),
      std::move(table));
}

// One series over the arms that have this measurement.
Series over_arms(const Comparison& c, const Findings& in, const std::string& name, const char* what) {
  Series series{name, {}};
  for (std::size_t a = 0; a < c.arms.size(); ++a) {
    const auto found = in.measurements.find(key_of(c.arms[a], what));
    if (found == in.measurements.end()) continue;
    const auto& [value, spread, repeats] = found->second;
    series.points.push_back({static_cast<double>(a), value, value - spread, value + spread});
  }
  return series;
}

std::vector<std::string> names(const Comparison& c) {
  std::vector<std::string> all;
  for (const Arm& arm : c.arms) all.push_back(arm.name);
  return all;
}

const Arm& best_by(const Comparison& c, const Findings& in, const char* what, double sign = 1) {
  const Arm* best = nullptr;
  for (const Arm& arm : c.arms) {
    if (!in.measurements.contains(key_of(arm, what))) continue;
    if (best == nullptr || sign * in.at(key_of(arm, what)) > sign * in.at(key_of(*best, what))) best = &arm;
  }
  return best != nullptr ? *best : c.arms.front();
}

void draw_dots(const Comparison& c, Result& result) {
  const Arm &best = best_by(c, result, "bleu"), &longer = best_by(c, result, "bleu_longer");
  result.draw("bleu", "BLEU on sentences as long as those of training, and on longer ones",
              fmt::format("Highest: {} with {:.1f}; on longer sentences {} with {:.1f}.", best.name,
                          result.at(key_of(best, "bleu")), longer.name, result.at(key_of(longer, "bleu_longer"))),
              Dots{{"BLEU"},
                   names(c),
                   {over_arms(c, result, "test", "bleu"), over_arms(c, result, "longer", "bleu_longer")},
                   kBand});
  if (!c.aligned()) return;
  const Arm& aligned = best_by(c, result, "alignment");
  Series even{"even weights", {}, Role::reference};
  const double share =
      result.measurements.contains("translate.even.alignment") ? result.at("translate.even.alignment") : 0;
  for (std::size_t a = 0; a < c.arms.size(); ++a) even.points.push_back({static_cast<double>(a), share, share, share});
  result.draw(
      "alignment", "Share of attention on the words that are translated",
      fmt::format("What the grammar aligns gets most weight in {}: {:.0f} %. Even weights would give it {:.0f} %.",
                  aligned.name, 100 * result.at(key_of(aligned, "alignment")), 100 * share),
      Dots{{"share of attention"}, names(c), {over_arms(c, result, "measured", "alignment"), even}, kBand});
}

// What happens to one number of the arms in training.
struct Curves {
  const char *id, *title, *text;
  Axis y;
  double Validation::*number;
  std::vector<Look> looks;
  std::vector<std::int64_t> sizes;  // of dot and scaled dot
};

void draw_curves(const Comparison& c, Result& result, const Curves& curves) {
  std::vector<Series> series;
  for (std::size_t a = 0; a < c.arms.size(); ++a) {
    const Arm& arm = c.arms[a];
    const bool sized = arm.look == Look::dot || arm.look == Look::scaled;
    if (std::count(curves.looks.begin(), curves.looks.end(), arm.look) == 0) continue;
    if (sized && std::count(curves.sizes.begin(), curves.sizes.end(), arm.d_k) == 0) continue;
    Series one{arm.name, {}};
    for (std::size_t i = 0; i < c.found[a].front().training.curve.size(); ++i) {
      const double x = c.found[a].front().training.curve[i].epochs;
      one.points.push_back(
          point(x, each(c.found[a], [&](const Found& f) { return f.training.curve[i].found.*curves.number; })));
    }
    series.push_back(std::move(one));
  }
  if (series.empty()) return;
  std::string text = std::string(curves.text) + "; at the end";
  for (const Series& one : series) {
    text += fmt::format("{} {} {:.2f}", &one == &series.front() ? "" : ",", one.name, one.points.back().y);
  }
  result.draw(curves.id, curves.title, text + ".", Lines{{"epochs"}, curves.y, std::move(series), kBand});
}

// dot beside scaled dot, over d_k.
struct HeadSizes {
  std::vector<std::int64_t> sizes;
  Result& result;

  const Measurement& at(const char* look, std::int64_t d, const char* what) const {
    return result.measurements.at(fmt::format("translate.{}-{}.{}", look, d, what));
  }
  Series series(const char* name, const char* look, const char* what) const {
    Series one{name, {}};
    for (const std::int64_t d : sizes) {
      const auto& [value, spread, repeats] = at(look, d, what);
      one.points.push_back({static_cast<double>(d), value, value - spread, value + spread});
    }
    return one;
  }
};

// The sizes at which both were run.
HeadSizes head_sizes(const Comparison& c, Result& result) {
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

void draw_scaling(const HeadSizes& both, Result& result) {
  if (both.sizes.size() < 2) return;
  const auto pair_of = [&](const char* what) {
    return std::vector{both.series("dot", "dot", what), both.series("scaled dot", "scaled", what)};
  };
  const auto ends = [&](const char* what, int digits) {
    const std::int64_t first = both.sizes.front(), last = both.sizes.back();
    return fmt::format("At d_k {} dot has {:.{}f} and scaled dot {:.{}f}; at {}, {:.{}f} and {:.{}f}.", first,
                       both.at("dot", first, what).value, digits, both.at("scaled", first, what).value, digits, last,
                       both.at("dot", last, what).value, digits, both.at("scaled", last, what).value, digits);
  };
  result.draw("scaling", "BLEU with and without 1/√d_k", ends("bleu", 1),
              Lines{{"d_k", true}, {"BLEU"}, pair_of("bleu"), kBand});
}

void draw_maps(const Comparison& c, Result& result) {
  for (std::size_t e = 0; e < c.examples.size(); ++e) {
    const Pair& pair = c.examples[e];
    std::vector<std::string> rows = c.task.target.units(pair.target), columns = c.task.source.units(pair.source);
    rows.emplace_back("</s>");
    columns.emplace_back("</s>");
    const auto draw = [&](const std::string& id, const std::string& name, std::vector<double> values,
                          const std::string& text) {
      result.draw(fmt::format("map{}-{}", e + 1, id), fmt::format("{}: “{}”", name, joined(pair.source)), text,
                  Heatmap{"target", "source", "weight", rows, columns, std::move(values), 0, 1});
    };
    if (!pair.alignment.empty()) {
      std::vector<double> known(rows.size() * columns.size());
      for (std::size_t i = 0; i < pair.alignment.size(); ++i) {
        for (const std::size_t j : pair.alignment[i]) {
          known[i * columns.size() + j] = 1 / static_cast<double>(pair.alignment[i].size());
        }
      }
      draw("known", "what the grammar aligns", std::move(known),
           "Each word's weight, spread evenly over what it translates.");
    }
    for (std::size_t a = 0; a < c.arms.size(); ++a) {
      const std::vector<double>& values = c.found[a].front().maps[e];
      if (values.empty()) continue;
      double largest = 0;
      for (std::size_t i = 0; i < rows.size(); ++i) {
        const auto row = std::span(values).subspan(i * columns.size(), columns.size());
        largest += *std::max_element(row.begin(), row.end()) / static_cast<double>(rows.size());
      }
      draw(c.arms[a].id, c.arms[a].name, values,
           fmt::format("A word's largest weight is {:.2f} in the mean.", largest));
    }
  }
}

void draw_times(const Comparison& c, Result& result) {
  Table table{{"arm", "seconds an epoch", "target words a second"}, {}};
  for (const Arm& arm : c.arms) {
    table.rows.push_back({arm.name, plus_minus(result.times.measurements.at(key_of(arm, "seconds_an_epoch")), 2),
                          std::round(result.times.at(key_of(arm, "words_a_second")))});
  }
  result.times.draw("times", "Training time",
                    fmt::format("Processor time of one thread for a pass over {} pairs, evaluation left out; mean and "
                                "standard deviation over {} seeds.",
                                c.task.train.size(), c.settings.repeats),
                    std::move(table));
}

// Words

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
      "Additive against scaled dot (d_k 64): BLEU {} and {}, {}; on longer sentences {} and {}, {}", plus_minus(a),
      plus_minus(s), verdict(a, s), plus_minus(m("additive.bleu_longer")), plus_minus(m("scaled-64.bleu_longer")),
      verdict(m("additive.bleu_longer"), m("scaled-64.bleu_longer")));
  if (c.aligned()) {
    text += fmt::format("; {:.0f} % and {:.0f} % of their attention on aligned words, {}",
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
                  "sentences {:.1f} and "
                  "{:.1f}.",
                  plus_minus(none), plus_minus(scaled), result.at("translate.none.bleu_longer"),
                  result.at("translate.scaled-64.bleu_longer")));
}

void say_who_aligns(const Comparison& c, Result& result) {
  const Arm &best = best_by(c, result, "alignment"), &worst = best_by(c, result, "alignment", -1);
  if (&best == &worst) return;
  result.findings.push_back(
      fmt::format("{} aligns best: {:.0f} % of its attention is on the words that the grammar aligns; least does {}, "
                  "{:.0f} %. Even "
                  "weights would put {:.0f} % there.",
                  best.name, 100 * result.at(key_of(best, "alignment")), worst.name,
                  100 * result.at(key_of(worst, "alignment")), 100 * result.at("translate.even.alignment")));
}

void say_what_scaling_changed(const HeadSizes& both, Result& result) {
  for (const std::int64_t d : both.sizes) {
    const Measurement &dot = both.at("dot", d, "bleu"), &scaled = both.at("scaled", d, "bleu");
    const char* change = !differ(dot, scaled)       ? "changes nothing beyond the spread"
                         : scaled.value > dot.value ? "helps"
                                                    : "hurts";
    result.findings.push_back(fmt::format(
        "At d_k {} the scaling {}: BLEU {} without and {} with it, loss a word {:.2f} and {:.2f}. A word's largest "
        "weight is "
        "{:.2f} and {:.2f} before training, {:.2f} and {:.2f} a tenth of the way, {:.2f} and {:.2f} at the end.",
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
      fmt::format("A beam of {} in place of greedy search changes BLEU by {:+.1f} to {:+.1f}, by arm.", c.settings.beam,
                  *least, *most));
}

void say_who_is_fast(const Comparison& c, Result& result) {
  const Findings& times = result.times;
  const Arm &fast = best_by(c, times, "seconds_an_epoch", -1), &slow = best_by(c, times, "seconds_an_epoch");
  const auto seconds = [&](const Arm& arm) { return times.at(key_of(arm, "seconds_an_epoch")); };
  if (&fast == &slow) return;
  std::string text = fmt::format("Fastest is {} with {:.2f} s an epoch, slowest {} with {:.2f} s.", fast.name,
                                 seconds(fast), slow.name, seconds(slow));
  if (has(result, "additive") && has(result, "scaled-64")) {
    const Measurement &additive = times.measurements.at("translate.additive.seconds_an_epoch"),
                      &scaled = times.measurements.at("translate.scaled-64.seconds_an_epoch");
    const double ratio = additive.value / scaled.value;
    text += fmt::format(" An epoch with additive attention takes {:.2f} times one with scaled dot (d_k 64){}.", ratio,
                        differ(additive, scaled) ? "" : ", which is within the spread");
  }
  result.times.findings.push_back(text);
}

}  // namespace

Result report_on(const Comparison& c, const std::string& data) {
  Result result;
  const TrainingSettings& t = c.settings.training;
  result.settings = fmt::format(
      "{}: {} pairs to train on, {} and {} (longer) to test with; {} and {} words. Bidirectional GRU, GRU decoder with "
      "input feeding, {} parameters ± {:.0f} % an arm: the width of the layers makes up for what the attention takes. "
      "{} steps of {} sentences, Adam at {}, label smoothing {}, gradients clipped at {}. {} seeds.",
      data, c.task.train.size(), c.task.test.size(), c.task.longer.size(), c.task.source.size(), c.task.target.size(),
      c.task.parameters(), 100 * kBudget, t.steps, t.batch, t.lr, t.smoothing, t.clip, c.settings.repeats);
  measure(c, result);
  const HeadSizes both = head_sizes(c, result);
  if (c.arms.size() == 1) say_how_one_does(c.arms.front(), result);
  if (has(result, "additive") && has(result, "scaled-64")) say_where_they_agree(c, result);
  if (has(result, "none") && has(result, "scaled-64")) say_what_attention_is_for(result);
  if (c.aligned()) say_who_aligns(c, result);
  say_what_scaling_changed(both, result);
  say_about_search(c, result);
  say_who_is_fast(c, result);
  draw_table(c, result);
  draw_dots(c, result);
  constexpr const char* kLoss = "Loss a word on sentences that are not trained on";
  const std::vector<std::int64_t> sizes(std::begin(kHeadSizes), std::end(kHeadSizes));
  draw_curves(
      c, result,
      {"learning",
       "Learning curves",
       kLoss,
       {"loss a word", true},
       &Validation::loss,
       {Look::none, Look::additive, Look::dot, Look::general, Look::scaled, Look::multi_head, Look::transformer},
       {64}});
  draw_curves(c, result,
              {"learning-scaling",
               "Learning curves of dot and scaled dot",
               kLoss,
               {"loss a word", true},
               &Validation::loss,
               {Look::dot, Look::scaled},
               sizes});
  draw_curves(c, result,
              {"sharpness",
               "The largest weight while dot and scaled dot are trained",
               "Mean over words of the largest weight",
               {"largest weight"},
               &Validation::largest,
               {Look::dot, Look::scaled},
               sizes});
  draw_scaling(both, result);
  draw_maps(c, result);
  draw_times(c, result);
  return result;
}

}  // namespace keel::lab::translate
