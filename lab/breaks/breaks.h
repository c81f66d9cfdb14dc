#pragma once

#include <functional>
#include <string>
#include <vector>

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

// The quantity of a question in both versions, over seeds.
struct Observed {
  std::vector<double> healthy, broken;

  // `same` if the means are within 5 % of the larger, or within 4 standard errors of the difference.
  Change change() const;
};

// What look(seed, healthy) sees in both versions, one value per question.
std::vector<Observed> over_seeds(std::size_t seeds,
                                 const std::function<std::vector<double>(std::size_t seed, bool healthy)>& look);

struct Break {
  std::string name;           // as in `keel lab break NAME`
  std::string summary;        // one line, without spoilers
  std::string before, after;  // the line
  std::vector<Question> questions;
  std::function<std::vector<Observed>(Work& work)> run;  // one for each question, in order
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
