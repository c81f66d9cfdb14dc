#include <algorithm>
#include <cmath>

#include "lab/translate/telling.h"

namespace keel::lab::translate {
namespace {

constexpr const char* kBand = "one standard deviation over seeds";

void draw_table(const Comparison& c, Result& result) {
  Table table{{"arm", "parameters", "BLEU", "BLEU, longer", "exact", "exact, longer", "loss per word", "MB"}, {}};
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
  result.draw("arms", "Every arm, the same data and budget",
              fmt::format("Mean and standard deviation over {} seeds. “Longer”: {} sentences longer than any in "
                          "training. MB: peak size of the tensors in a training step.",
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

void draw_dots(const Comparison& c, Result& result) {
  const Arm &best = best_by(c, result, "bleu"), &longer = best_by(c, result, "bleu_longer");
  result.draw("bleu", "BLEU on sentences as long as in training, and on longer ones",
              fmt::format("Highest: {} with {:.1f}; on longer sentences {} with {:.1f}.", best.name,
                          result.at(key_of(best, "bleu")), longer.name, result.at(key_of(longer, "bleu_longer"))),
              Dots{{"BLEU"},
                   names(c),
                   {over_arms(c, result, "test", "bleu"), over_arms(c, result, "longer", "bleu_longer")},
                   kBand});
  const Arm& aligned = best_by(c, result, "alignment");
  if (!result.measurements.contains(key_of(aligned, "alignment"))) return;  // nothing is aligned, or nothing attends
  Series even{"even weights", {}, Role::reference};
  const double share =
      result.measurements.contains("translate.even.alignment") ? result.at("translate.even.alignment") : 0;
  for (std::size_t a = 0; a < c.arms.size(); ++a) even.points.push_back({static_cast<double>(a), share, share, share});
  result.draw("alignment", "Share of attention on the words that are translated",
              fmt::format("The words that the grammar aligns get the most weight with {}: {:.0f} %. Even weights would "
                          "give them {:.0f} %.",
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
      result.draw(fmt::format("map{}-{}", e + 1, id), fmt::format("{}: “{}”", capitalised(name), joined(pair.source)),
                  text, Heatmap{"target", "source", "weight", rows, columns, std::move(values), 0, 1});
    };
    if (!pair.alignment.empty()) {
      std::vector<double> known(rows.size() * columns.size());
      for (std::size_t i = 0; i < pair.alignment.size(); ++i) {
        for (const std::size_t j : pair.alignment[i]) {
          known[i * columns.size() + j] = 1 / static_cast<double>(pair.alignment[i].size());
        }
      }
      draw("known", "What the grammar aligns", std::move(known),
           "Each word's weight, spread evenly over the words it translates.");
    }
    for (std::size_t a = 0; a < c.arms.size(); ++a) {
      const std::vector<double>& values = c.found[a].front().maps[e];
      if (values.empty()) continue;
      double largest = 0;
      for (std::size_t i = 0; i < rows.size(); ++i) {
        const auto row = std::span(values).subspan(i * columns.size(), columns.size());
        largest += *std::max_element(row.begin(), row.end()) / static_cast<double>(rows.size());
      }
      draw(c.arms[a].id, c.arms[a].name, values, fmt::format("A word's largest weight is {:.2f} on average.", largest));
    }
  }
}

void draw_times(const Comparison& c, Result& result) {
  Table table{{"arm", "seconds per epoch", "target words per second"}, {}};
  for (const Arm& arm : c.arms) {
    table.rows.push_back({arm.name, plus_minus(result.times.measurements.at(key_of(arm, "seconds_per_epoch")), 2),
                          std::round(result.times.at(key_of(arm, "words_per_second")))});
  }
  result.times.draw("times", "Training time",
                    fmt::format("Processor time of one thread for a pass over {} pairs, excluding evaluation; mean and "
                                "standard deviation over {} seeds.",
                                c.task.train.size(), c.settings.repeats),
                    std::move(table));
}

}  // namespace

void draw(const Comparison& c, Result& result) {
  const HeadSizes both = head_sizes(c, result);
  draw_table(c, result);
  draw_dots(c, result);
  constexpr const char* kLoss = "Loss per word on sentences held out of training";
  const std::vector<std::int64_t> sizes(std::begin(kHeadSizes), std::end(kHeadSizes));
  draw_curves(
      c, result,
      {"learning",
       "Learning curves",
       kLoss,
       {"loss per word", true},
       &Validation::loss,
       {Look::none, Look::additive, Look::dot, Look::general, Look::scaled, Look::multi_head, Look::transformer},
       {64}});
  draw_curves(c, result,
              {"learning-scaling",
               "Learning curves of dot and scaled dot",
               kLoss,
               {"loss per word", true},
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
}

}  // namespace keel::lab::translate
