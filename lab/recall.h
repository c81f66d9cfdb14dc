#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "keel/nn/transformer.h"
#include "lab/measure.h"

// A small transformer and a task that it can do by attention alone: key–value lookup. A sequence has pairs of a key and
// a value, drawn afresh, then keys alone; for each of those the model must give the value paired with the key.
namespace keel::lab {

namespace recall {
inline constexpr std::int64_t kKeys = 32, kValues = 16;     // how many there are
inline constexpr std::int64_t kPairs = 16, kQuestions = 8;  // in a sequence; keys of pairs differ
inline constexpr std::int64_t kModel = 32, kHeads = 2;      // d_model; heads of d_k, whatever d_model is
inline constexpr std::int64_t kBatch = 16, kExamined = 64;  // sequences per step, and to measure on
}  // namespace recall

struct RecallSettings {
  std::int64_t d_k = 16;
  nn::ScoreMaker score{};  // q·k/√d_k by default
  double lr = 1e-2;        // Adam's peak: warmed up over a tenth of the steps, then following a cosine
  std::int64_t steps = 200;
  std::int64_t every = 10;  // steps between two snapshots
  std::uint64_t seed = 0;
  std::string stream = "recall";  // runs of one seed and stream see the same data and begin with the same weights
};

// The model after `step` steps, on sequences it is not trained on. Statistics are over the rows with a question.
struct Snapshot {
  double step = 0;
  double loss = 0;                      // cross-entropy, nats
  double accuracy = 0;                  // share of right values
  double max_weight = 0;                // mean of a row's largest
  double saturated = 0;                 // share of rows with a weight above 0.99
  double entropy = 0;                   // nats
  double logit_var = 0;                 // of the scores after scaling
  double dw_q = 0, dw_k = 0, dw_v = 0;  // norms of the next step's gradient
};

struct Trained {
  std::vector<Snapshot> snapshots;  // from step 0 to the last
  std::vector<double> sharpness;    // of the learned scale: what q·k is multiplied by, × √d_k, per head or query
  // On one sequence, of the head that ends with the most weight on answers: (questions, pairs and questions).
  Matrix weights_before, weights;
  std::vector<std::int64_t> answers;   // position of each question's pair
  double found_before = 0, found = 0;  // mean weight that a question gives to its answer

  const Snapshot& last() const { return snapshots.back(); }
  // The first step at which the loss was at most `target`, interpolated between snapshots; the last if it never was.
  double steps_to(double target) const;
  bool reached(double target) const;
  // The step from which on the loss stays within 5 % of its total fall from its final value: where its curve goes flat.
  double settled() const;
};

Trained train_recall(const RecallSettings& settings);

// q·k/τ with τ = factor·√d_k.
nn::ScoreMaker fixed_temperature(double factor);

// While it is alive, each training run stays on its own thread: whole runs go in parallel.
class OneThreadEach {
 public:
  OneThreadEach() { nn::set_threads(1); }
  ~OneThreadEach() { nn::set_threads(0); }
  OneThreadEach(const OneThreadEach&) = delete;
  OneThreadEach& operator=(const OneThreadEach&) = delete;
};

// The loss of a model that gives all values equally often: ln 16.
double recall_chance();

}  // namespace keel::lab
