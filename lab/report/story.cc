#include "lab/report/story.h"

#include <fmt/args.h>
#include <fmt/format.h>

#include <map>

#include "lab/report/html.h"
#include "lab/report/ledger_html.h"

namespace keel::lab {
namespace {

// Everything a run measured and drew.
class Run {
 public:
  explicit Run(const std::vector<Record>& records) {
    for (const Record& record : records) {
      for (const Findings* part : record.result.parts()) {
        for (const auto& [key, m] : part->measurements) values_[key] = m.value;
        for (const Figure& figure : part->figures)
          figures_[fmt::format("{}-{}", record.experiment->name(), figure.id)] = &figure;
      }
    }
  }

  // The text with one number per key in its "{}", or nothing if one of them was not measured.
  template <std::size_t N>
  std::string says(const char* text, const char* const (&keys)[N]) const {
    fmt::dynamic_format_arg_store<fmt::format_context> arguments;
    for (const char* key : keys) {
      const auto found = values_.find(key);
      if (found == values_.end()) return "";
      arguments.push_back(found->second);
      arguments.push_back(100 * found->second);
    }
    return escaped(fmt::vformat(text, arguments));
  }

  const Figure* figure(const std::string& id) const {
    const auto found = figures_.find(id);
    return found == figures_.end() ? nullptr : found->second;
  }

 private:
  std::map<std::string, double> values_;
  std::map<std::string, const Figure*> figures_;
};

// The chart of an experiment's figure, with a link to it.
std::string chart_html(const Run& run, const std::string& id, const char* caption) {
  const Figure* figure = run.figure(id);
  if (figure == nullptr) return "";
  return fmt::format(
      "<figure><h3>{1}</h3><div class=\"chart\" data-figure=\"{0}\"></div><figcaption>{2} <a href=\"#{0}\">How it was "
      "measured, and the numbers</a></figcaption></figure>\n",
      id, escaped(figure->title), caption);
}

struct Step {
  const char *id, *title, *see;  // `see`: what to look for, above the figure
  std::string text, figure;
};

std::string step_html(const Step& step) {
  return fmt::format(
      "<section id=\"{0}\" class=\"step-section\" aria-labelledby=\"{0}-title\"><h2 id=\"{0}-title\">{1}</h2>\n<p "
      "class=\"see\">{2}</p>\n<div class=\"step-grid\"><div class=\"reasons\">{3}</div>\n<div "
      "class=\"shown\">{4}</div></div></section>\n",
      step.id, step.title, step.see, step.text, step.figure);
}

std::string paragraph(const std::string& text) { return text.empty() ? "" : "<p>" + text + "</p>\n"; }

Step growth(const Run& run) {
  return {"growth", "1. Why q·k grows with d_k",
          "Unscaled, the variance of the scores climbs with d_k; divided by √d_k, it stays at 1.",
          R"(<p>Let the components of q and k be independent, with mean 0 and variance 1.</p>
<ol class="derivation">
<li><b>One product has mean 0.</b> <span class="formula">E[q<sub>i</sub>k<sub>i</sub>] = E[q<sub>i</sub>]·E[k<sub>i</sub>] = 0·0 = 0</span> because q<sub>i</sub> and k<sub>i</sub> are independent.</li>
<li><b>One product has variance 1.</b> <span class="formula">Var(q<sub>i</sub>k<sub>i</sub>) = E[q<sub>i</sub>²k<sub>i</sub>²] − 0² = E[q<sub>i</sub>²]·E[k<sub>i</sub>²] = 1·1 = 1</span></li>
<li><b>Variances of independent terms add.</b> <span class="formula">Var(q·k) = Σ<sub>i</sub> Var(q<sub>i</sub>k<sub>i</sub>) = d_k</span> so a score’s standard deviation is √d_k.</li>
<li><b>A factor enters the variance squared.</b> <span class="formula">Var(q·k / √d_k) = d_k / (√d_k)² = 1</span> whatever d_k is.</li>
</ol>
)" +
              paragraph(run.says("Measured at d_k = 64: variance {0:.3g}, and {2:.3g} after the division.",
                                 {"variance.unit.d64.var", "variance.unit.d64.scaled_var"})) +
              paragraph(run.says(
                  "The assumptions matter: with q = k the mean is {0:.3g} instead of 0, and no factor removes it; with "
                  "GPT-2’s initialisation the scaled variance is {2:.2g}, not 1.",
                  {"variance.same.d64.mean", "variance.init.gpt2.d64.scaled_var"})),
          chart_html(run, "variance-law", "The points are measured, the dashed lines are the derivation.")};
}

Step softmax(const Run& run) {
  return {
      "softmax-step", "2. What softmax makes of it",
      "The same queries and keys, twice. Unscaled, a single dark cell dominates most rows.",
      R"(<p>Softmax turns differences into ratios: <span class="nowrap">p<sub>i</sub> / p<sub>j</sub> = e<sup>s<sub>i</sub> − s<sub>j</sub></sup></span>. A lead of 1 is a factor of 2.7; a lead of 8, one standard deviation at d_k = 64, a factor of 2,981.</p>
<p>So the spread of the scores decides how many keys a row can listen to. Move d_k: unscaled rows collapse as it grows, scaled rows stay as they are.</p>
)" +
          paragraph(run.says(
              "At d_k = 64, with 64 keys, the median row gives {1:.0f} % to a single key; with the scores divided by "
              "√d_k, {3:.1f} %.",
              {"saturation.raw.d64.n64.median", "saturation.scaled.d64.n64.median"})) +
          paragraph(run.says("Only {1:.0f} % of rows go all the way and give more than 99 % to one key.",
                             {"saturation.raw.d64.n64.share"})),
      "<div class=\"live maps-figure\" id=\"maps\"></div>\n"};
}

Step gradient(const Run& run) {
  return {
      "gradient-step", "3. What that does to the gradient",
      "Towards the upper right, with many dimensions and few keys, more and more rows pass on next to no gradient.",
      R"(<p>The derivative of a weight with respect to a score is <span class="nowrap">p<sub>i</sub>(δ<sub>ij</sub> − p<sub>j</sub>)</span>. With p = (1, 0, 0, …) every one of these is 0: the row is certain, and no error can tell it otherwise.</p>
)" +
          paragraph(run.says(
              "With 64 keys, {1:.0f} % of unscaled rows at d_k = 64 and {3:.0f} % at d_k = 256 pass on less than a "
              "hundredth of what a row of even weights would. For scaled rows it is {5:.0f} % and {7:.0f} %.",
              {"gradient.dead.raw.lecun.d64.n64", "gradient.dead.raw.lecun.d256.n64",
               "gradient.dead.scaled.lecun.d64.n64", "gradient.dead.scaled.lecun.d256.n64"})) +
          paragraph(run.says(
              "Only individual rows fall silent. The gradient as a whole does not vanish: at W_Q it is {0:.1f} "
              "times as large without the scaling, partly because the factor 1/√d_k is missing there too.",
              {"gradient.ratio.lecun.d64.n64.dw_q"})),
      chart_html(run, "gradient-dead",
                 "Each cell is the share of rows that pass on less than a hundredth of the gradient.")};
}

Step training(const Run& run) {
  return {
      "training-step", "4. What that does to training",
      "Both get there, the unscaled one later, although each was given its own best learning rate.",
      paragraph(
          "A small transformer learns to look up values, once with the scaling and once without. The learning rate was "
          "chosen for each separately, so that neither is judged at the other’s.") +
          paragraph(run.says(
              "Without the scaling it needs {0:.1f} times as many steps at d_k = 4, {2:.1f} at 16 and {4:.1f} at 64.",
              {"ablation.raw.d4.slower", "ablation.raw.d16.slower", "ablation.raw.d64.slower"})) +
          paragraph(run.says(
              "And it tolerates less: its best learning rate at d_k = 64 is {0:.2g}, against {2:.2g} with the scaling.",
              {"ablation.raw.d64.lr", "ablation.scaled.d64.lr"})) +
          paragraph(run.says(
              "In the end it gets {1:.0f} % right (with the scaling, {3:.0f} %): on this task the scaling buys speed "
              "and a wider choice of learning rates, not a model that would otherwise be impossible.",
              {"ablation.raw.d64.accuracy", "ablation.scaled.d64.accuracy"})) +
          paragraph(run.says(
              "Where steps are limited, later means worse: with the same budget for all, a translation model ends "
              "at {0:.0f} BLEU without the scaling and {2:.0f} with it at d_k = 64, and at {4:.0f} and {6:.0f} at d_k "
              "= 256.",
              {"translate.dot-64.bleu", "translate.scaled-64.bleu", "translate.dot-256.bleu",
               "translate.scaled-256.bleu"})),
      chart_html(run, "ablation-loss-d64", "Loss at d_k = 64; the bands are the spread over seeds.")};
}

Step alternatives(const Run& run) {
  const auto item = [](const char* name, const std::string& text) {
    return text.empty() ? "" : fmt::format("<dt>{}</dt><dd>{}</dd>\n", name, text);
  };
  return {
      "alternatives", "5. What else could be done",
      "All of these scales learn the task in the end; some take longer to get going.",
      "<dl class=\"alternatives\">\n" +
          item("A temperature τ",
               run.says("One number instead of √d_k. Learned, it ends at {0:.2f} times the sharpness of 1/√d_k.",
                        {"temperature.learned.sharpness"})) +
          item("A scale for each query",
               run.says("Lets every query choose its own sharpness: {0:.1f} times 1/√d_k on average, with a standard "
                        "deviation of {2:.1f} between queries.",
                        {"temperature.query.sharpness", "temperature.query.apart"})) +
          item(
              "Additive scores",
              run.says(
                  "v·tanh(W_s s + W_h h) does not grow with d_k by itself, and costs {0:.0f} times as much per pair as "
                  "the dot product (d = 64, 256 keys).",
                  {"scores.additive_to_dot.d64.n256"})) +
          item("QK-norm",
               "Divides q and k by their lengths: q·k becomes a cosine, between −1 and 1 for any d_k, times "
               "a learned number. <a href=\"#editor-section\">Try it in the playground</a>.") +
          item(
              "log n",
              run.says("√d_k does nothing about the number of keys: at 65,536 of them the largest weight is {0:.1g}. A "
                       "factor that grows as log n keeps it at {2:.2g}.",
                       {"length.scaled.n65536.max_weight", "length.log.n65536.max_weight"})) +
          "</dl>\n",
      chart_html(run, "temperature-loss", "The same task with five choices of the scale.")};
}

Step documents(const std::vector<Entry>& ledger) {
  return {
      "documents", "6. Where the documents are right and wrong",
      "The derivation holds up; what is said about training and vanishing gradients often does not.",
      R"(<p>Five documents explain the scaling. Each of their claims was turned into a measurement and a criterion before it was judged. Each document has a bar, whose parts count its claims by verdict.</p>
<p class="legend-line"><span class="verdict holds">holds</span> <span class="verdict holds-if">holds under a condition</span> <span class="verdict fails">does not hold</span> <span class="verdict undecided">undecided</span></p>
<p>Every verdict, with its evidence, is <a href="#claims">at the end</a>.</p>
)",
      verdict_bars_html(ledger)};
}

}  // namespace

std::string answer_html(const std::vector<Record>& records) {
  const Run run(records);
  const auto either = [](std::string measured, const char* otherwise) {
    return measured.empty() ? std::string(otherwise) : measured;
  };
  return either(run.says("A score q·k adds up d_k products, so its spread grows like √d_k: at d_k = 64 scores have a "
                         "standard deviation of {0:.2f}.",
                         {"variance.unit.d64.sd"}),
                "A score q·k adds up d_k products, so its spread grows like √d_k.") +
         " " +
         either(run.says("Softmax turns that into a single winner: the median row gives {1:.0f} % of its attention to "
                         "one of 64 keys (scaled, {3:.0f} %), and a row that certain hardly learns.",
                         {"saturation.raw.d64.n64.median", "saturation.scaled.d64.n64.median"}),
                "Softmax turns that into a single winner, and a row that certain hardly learns.") +
         " " +
         either(run.says("Dividing by √d_k brings the variance back from {0:.1f} to {2:.2f}; without it, a small "
                         "transformer needs {4:.1f} times as many steps, and a translation model ends at {6:.0f} BLEU "
                         "instead of {8:.0f}.",
                         {"variance.unit.d64.var", "variance.unit.d64.scaled_var", "ablation.raw.d64.slower",
                          "translate.dot-64.bleu", "translate.scaled-64.bleu"}),
                "Dividing by √d_k keeps the spread the same for every d_k.");
}

std::string steps_html(const std::vector<Record>& records, const std::vector<Entry>& ledger) {
  const Run run(records);
  std::string html;
  for (const Step& step : {growth(run), softmax(run), gradient(run), training(run), alternatives(run)})
    html += step_html(step);
  if (!ledger.empty()) html += step_html(documents(ledger));
  return html;
}

}  // namespace keel::lab
