#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "keel/attention.h"

namespace keel {

// One sequence of a call: a batch entry, or a packed one. Rows are rows of the tensors.
struct Entry {
  std::int64_t batch = 0;                           // its index along B
  std::int64_t q_begin = 0, q_rows = 0, q_len = 0;  // owns q_rows rows from q_begin; those from q_len on are padding
  std::int64_t k_begin = 0, k_len = 0;
};

// Keys [begin, end) of an entry, counted from its first.
struct KeyRange {
  std::int64_t begin = 0, end = 0;
};

// One validated description of a call. Whoever holds a Problem need not check anything: shapes fit together, sizes and
// offsets cannot overflow, pointers are there, outputs have memory of their own, and broadcast dimensions of mask,
// bias, scale_tensor, dbias and dscale have full size and stride 0.
struct Problem {
  TensorView q, k, v;
  MutableTensorView out;
  Options options;
  Outputs outputs;

  DType dtype = DType::f32;
  std::int64_t batch = 0, q_heads = 0, kv_heads = 0, n_q = 0, n_k = 0, d_k = 0, d_v = 0;
  double scale = 1.0;  // the number; options.scale_tensor, where given, replaces it

  bool has_rows() const { return batch > 0 && q_heads > 0 && n_q > 0; }
  bool has_pairs() const { return has_rows() && n_k > 0; }  // of a query and a key
  bool packed() const { return !options.q_offsets.empty(); }
  std::int64_t entries() const { return packed() ? static_cast<std::int64_t>(options.q_offsets.size()) - 1 : batch; }
  Entry entry(std::int64_t e) const;
  std::int64_t kv_head(std::int64_t h) const { return h / (q_heads / kv_heads); }

  // Query i of an entry has its diagonal at key i + diagonal(entry).
  std::int64_t diagonal(const Entry& entry) const {
    return options.causal == Causal::top_left ? 0 : entry.k_len - entry.q_len;
  }
  // The keys that causal mask, window and lengths leave to query i of the entry; empty for padding rows.
  KeyRange key_range(const Entry& entry, std::int64_t i) const;
};

struct BackwardProblem {
  Problem forward;  // `forward.out` is the result of the forward call; read, not written
  RowView lse;
  TensorView dout;
  RowView dlse;
  Gradients gradients;
};

struct MergeProblem {
  std::vector<Partial> parts;
  MutableTensorView out;
  Outputs outputs;  // lse and row statistics alone
  int threads = 0;
  std::int64_t rows = 0;  // B·H·N_q
};

// Whether the data pointers count: explain() describes calls that have none yet.
enum class Pointers { checked, ignored };

// The only places that validate; each raises keel::Error for a wrong argument.
Problem make_problem(const TensorView& q, const TensorView& k, const TensorView& v, const MutableTensorView& out,
                     const Options& options, const Outputs& outputs, Pointers pointers = Pointers::checked);
BackwardProblem make_backward_problem(const BackwardInputs& inputs, const Gradients& gradients, const Options& options);
MergeProblem make_merge_problem(std::span<const Partial> parts, const MutableTensorView& out, const Outputs& outputs,
                                int threads);

}  // namespace keel
