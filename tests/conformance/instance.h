#pragma once

#include <memory>
#include <vector>

#include "conformance/array.h"
#include "conformance/blocks.h"
#include "conformance/case.h"

namespace keel::conformance {

struct Expected;
struct ExpectedGradients;

// Memory for one forward call's results, all of it painted.
struct ForwardMemory {
  Array out, lse, max_logit, entropy, max_weight, logit_mean, logit_var, visible, logit_count, weights, key_sums,
      scores;
  std::int64_t key_sum_rows = 0;
  ScoreStage score_stage = ScoreStage::raw;
  Items<HeadStatistics> heads;

  MutableTensorView out_view() const { return out.tensor(); }
  Outputs outputs() const;
  std::string outside_writes() const;  // "" or what was written outside the views
};

// Memory for all gradients of a case.
struct GradientMemory {
  Array dq, dk, dv, dbias, dscale, dsinks, drelative;

  Gradients gradients() const;
  std::string outside_writes() const;
};

// A case in memory: every array, lengths and offsets among them, in an allocation of its own, filled from the case's
// seed.
class Instance {
 public:
  explicit Instance(const Case& c);
  Instance(const Case& c, Placement placement);
  // Inputs that lie elsewhere, whatever their strides; of the case, sizes and what is asked for must be true.
  Instance(const Case& c, const TensorView& q, const TensorView& k, const TensorView& v, const Options& options);
  Instance(const Instance&) = delete;
  ~Instance();

  const Case& description() const { return case_; }
  TensorView q() const { return q_; }
  TensorView k() const { return k_; }
  TensorView v() const { return v_; }
  const Options& options() const { return options_; }
  ForwardMemory forward_memory() const;

  // out and lse are the oracle's, rounded to their dtypes.
  BackwardInputs backward_inputs() const;
  GradientMemory gradient_memory() const;

  // What the oracle says in float64, computed once.
  const Expected& expected() const;
  const ExpectedGradients& expected_gradients() const;

 private:
  void make_tensors();
  void make_options();
  void make_mask();
  void make_bias();
  void make_blocks();
  void make_relative_bias();
  void plant_specials();
  void hide_nans();
  void make_backward_inputs() const;

  Case case_;
  Placement placement_;
  Array q_array_, k_array_, v_array_, scale_, mask_, bias_, alibi_, sinks_, relative_;
  Blocks blocks_;
  Items<std::int64_t> q_lengths_, k_lengths_, q_offsets_, k_offsets_, k_starts_;
  MutableTensorView q_, k_, v_;
  Options options_;
  mutable Array forward_out_, forward_lse_, dout_, dlse_;
  mutable std::unique_ptr<Expected> expected_;
  mutable std::unique_ptr<ExpectedGradients> expected_gradients_;
};

}  // namespace keel::conformance
