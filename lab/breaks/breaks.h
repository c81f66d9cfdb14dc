#pragma once

#include <functional>
#include <string>
#include <vector>

#include "lab/measure.h"
#include "lab/result.h"
#include "lab/work.h"

// Attention broken in one line: what changes, what to predict, what is then seen, and why.
namespace keel::lab {

// How a quantity of the broken version compares with the healthy one's.
enum class Change { less, same, more };
std::string name_of(Change change);  // "less", "same", "more"

struct Question {
  std::string id;    // "largest-weight"
  std::string text;  // the quantity: "the largest weight of a row before training"
};

enum class Version { healthy, broken };
std::string name_of(Version version);  // "healthy", "broken"

// What one version shows: the quantity of each question over seeds, and pictures.
struct Seen {
  std::vector<std::vector<double>> values;
  std::vector<Figure> figures;
};

// The quantity of a question in both versions, over seeds.
struct Observed {
  std::vector<double> healthy, broken;

  // `same` if the means are within 5 % of the larger, or within 4 standard errors of the difference.
  Change change() const;
};
std::vector<Observed> compare(const Seen& healthy, const Seen& broken);

// "0.31 ± 0.02": mean and standard deviation; without the ± where nothing but rounding is left of it.
std::string spread_text(double mean, double sd);

// What look(seed) sees: one value per question.
Seen over_seeds(std::size_t seeds, const std::function<std::vector<double>(std::size_t seed)>& look);

// One head's weights as a picture: a row per query, a column per key.
Figure weights_figure(const Matrix& weights);

struct Break {
  std::string name;           // as in `keel lab break NAME`
  std::string scene;          // what is run, for someone who does not know what is broken
  std::string summary;        // what is run, for someone who sees the line
  std::string suspect;        // what is wrong, as one of several guesses
  std::string before, after;  // the line
  std::vector<Question> questions;
  std::function<Seen(Work& work, Version version)> run;  // both versions begin from the same random numbers
  std::vector<std::string> hints;                        // from vague to plain
  std::string cause, fix;
};

const std::vector<Break>& breaks();
// nullptr if there is none of this name.
const Break* find_break(const std::string& name);

// One maker per file.
Break no_scale();
Break sqrt_d_model();
Break mask_before_scale_in_f16();
Break causal_off_by_alignment();
Break softmax_over_queries();

}  // namespace keel::lab
