#pragma once

#include <functional>
#include <memory>
#include <string>

#include "conformance/expected.h"
#include "conformance/instance.h"

// The derivatives along tangents of a case: attention_jvp() and attention_double_backward() against the oracle.
namespace keel::conformance {

using Jvp = std::function<void(const JvpInputs&, const Tangents&, const JvpOutputs&, const Options&)>;
using DoubleBackward =
    std::function<void(const BackwardInputs&, const Tangents&, const DoubleGradients&, const Options&)>;

struct ExpectedTangents {
  Dense tout, tlse;
  ExpectedGradients gradients;
};

// Memory for all results of both calls.
struct TangentMemory {
  Array tout, tlse;
  GradientMemory of;

  JvpOutputs jvp() const { return {.tout = tout.tensor(), .tlse = tlse.rows()}; }
  DoubleGradients gradients() const {
    DoubleGradients all{.gradients = of.gradients(), .ddout = tout.tensor(), .ddlse = tlse.rows()};
    all.gradients.drelative_bias = {};  // has none
    return all;
  }
  std::string outside_writes() const;
};

// Whether the derivatives of a case are compared: scores so large that f32 cannot tell their differences are left to
// the tests of the other passes.
bool has_tangents(const Case& c);

// A case with tangents: of everything there is, or of some of it as the seed has it. NaN and Inf lie where the masks
// hide them, if they do in q, k and v. With 16 bits out and dout are f32, so that only inputs are rounded.
class TangentCase {
 public:
  explicit TangentCase(const Instance& instance);

  const Instance& instance() const { return instance_; }
  BackwardInputs inputs() const;
  Tangents tangents() const;
  JvpInputs jvp_inputs() const;
  TangentMemory memory() const;
  const ExpectedTangents& expected() const { return expected_; }

 private:
  ExpectedTangents compute_expected() const;

  const Instance& instance_;
  Array out_, dout_, tq_, tk_, tv_, tbias_, tscale_, tsinks_;
  ExpectedTangents expected_;
};

// "" or what differs from the oracle.
std::string jvp_mismatch(const TangentCase& x, const Jvp& run);
std::string double_backward_mismatch(const TangentCase& x, const DoubleBackward& run);

}  // namespace keel::conformance
