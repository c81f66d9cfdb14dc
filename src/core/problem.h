#pragma once

#include <cstdint>
#include <vector>

#include "core/call.h"
#include "core/sequences.h"
#include "keel/attention.h"

namespace keel {

// One validated description of a call. Code that holds a Problem need not check anything: shapes fit together, sizes
// and offsets cannot overflow, pointers are not null, outputs have their own memory, and broadcast dimensions of mask,
// bias, scale_tensor, dbias and dscale have full size and stride 0.
struct Problem {
  // Not an aggregate: GCC would zero all of it first, which takes longer than checking a usual call.
  Problem(const TensorView& q_, const TensorView& k_, const TensorView& v_, const MutableTensorView& out_,
          const Options& options_, const Outputs& outputs_)
      : q(q_), k(k_), v(v_), out(out_), options(options_), outputs(outputs_), device(q_.device) {}

  TensorView q, k, v;
  MutableTensorView out;
  Options options;
  Outputs outputs;

  DType dtype = DType::f32;
  Device device;
  std::int64_t batch = 0, q_heads = 0, kv_heads = 0, n_q = 0, n_k = 0, d_k = 0, d_v = 0;
  double scale = 1.0;  // the number; options.scale_tensor, if given, replaces it

  Sequences sequences{};

  bool has_rows() const { return batch > 0 && q_heads > 0 && n_q > 0; }
  bool has_pairs() const { return has_rows() && n_k > 0; }  // of a query and a key
  std::int64_t entries() const { return sequences.entries(); }
  Entry entry(std::int64_t e) const { return sequences.entry(e); }
  std::int64_t kv_head(std::int64_t h) const { return h / (q_heads / kv_heads); }
};

struct BackwardProblem {
  Problem forward;  // `forward.out` is the result of the forward call; read, not written
  RowView lse;
  TensorView dout;
  RowView dlse;
  Gradients gradients;
  Gradients as_given;  // before broadcasting: a sum over a dimension of size 0 still has memory, and is 0
};

// attention_jvp() and attention_double_backward(), of which the first is a part: without dout, and without gradients.
struct TangentProblem {
  BackwardProblem backward;
  Tangents tangents;       // with broadcast dimensions as those of bias and scale_tensor
  MutableTensorView tout;  // the derivatives of out and lse along the tangents, or ddout and ddlse
  MutableRowView tlse;
  bool is_double = false;
};

struct MergeProblem {
  std::vector<Partial> parts;
  MutableTensorView out;
  Outputs outputs;  // lse and row statistics only
  int threads = 0;
  void* stream = nullptr;
  std::int64_t rows = 0;  // B·H·N_q
};

// Whether the data pointers count: explain() describes calls that have none yet.
enum class Pointers { checked, ignored };

// The only places that validate; each raises keel::Error for an invalid argument.
Problem make_problem(const TensorView& q, const TensorView& k, const TensorView& v, const MutableTensorView& out,
                     const Options& options, const Outputs& outputs, Pointers pointers = Pointers::checked);
BackwardProblem make_backward_problem(const BackwardInputs& inputs, const Gradients& gradients, const Options& options,
                                      Pointers pointers = Pointers::checked);
TangentProblem make_jvp_problem(const JvpInputs& inputs, const Tangents& tangents, const JvpOutputs& outputs,
                                const Options& options, Pointers pointers = Pointers::checked);
TangentProblem make_double_backward_problem(const BackwardInputs& inputs, const Tangents& tangents,
                                            const DoubleGradients& gradients, const Options& options,
                                            Pointers pointers = Pointers::checked);
MergeProblem make_merge_problem(std::span<const Partial> parts, const MutableTensorView& out, const Outputs& outputs,
                                int threads, void* stream = nullptr);

}  // namespace keel
