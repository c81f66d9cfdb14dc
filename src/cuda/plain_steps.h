#pragma once

#include <algorithm>
#include <cstddef>

#include "cuda/plain_backward.h"
#include "cuda/plain_forward.h"
#include "cuda/plain_heads.h"
#include "cuda/plain_key_sums.h"
#include "cuda/plain_merge.h"
#include "cuda/plain_reduced.h"

// Which work a call is, in which order, and where its workspace lies. Whoever runs it, a GPU or a test, brings
//   run.together(items, work)   work(item, lanes) for every item, by all lanes of a group
//   run.alone(items, work)      work(item, OneLane{}) for every item
// and runs one after the other. Nothing here reads what the call points to.
namespace keel::cuda {

// Hands out parts of a workspace, each aligned for any type; only reckons where there is none.
class WorkspaceCursor {
 public:
  explicit WorkspaceCursor(void* workspace) : base_(static_cast<std::byte*>(workspace)) {}

  template <class T>
  T* take(std::int64_t count) {
    constexpr std::size_t kAlign = 16;
    const std::size_t at = used_;
    used_ += (static_cast<std::size_t>(count) * sizeof(T) + kAlign - 1) / kAlign * kAlign;
    return base_ == nullptr ? nullptr : reinterpret_cast<T*>(base_ + at);
  }
  std::size_t used() const { return used_; }

 private:
  std::byte* base_;
  std::size_t used_ = 0;
};

// Gives the call memory for the rows that head statistics need and the caller did not ask for.
inline void add_head_rows(const HeadOutputs& heads, WorkspaceCursor& workspace, Call& call) {
  if (heads.data == nullptr) return;
  const std::int64_t n_q = call.sequences.n_q;
  for (MutableStrided* const x : {&call.max_logit, &call.entropy, &call.max_weight, &call.visible}) {
    if (*x) continue;
    const DType dtype = x == &call.visible ? DType::i64 : accumulation_dtype(call.dtype);
    *x = {workspace.take<double>(rows_of(call)), dtype, call.q_heads * n_q, n_q, 1, 0};
  }
}

// Key sums alone, whatever computed the rest of the call.
template <class T, class Run>
void key_sums_steps(const Call& call, WorkspaceCursor& workspace, Run& run) {
  if (!call.key_sums) return;
  auto* const norms = workspace.take<RowNorm<Sum<T>>>(rows_of(call));
  run.together(rows_of(call), RowNorms<T>{call, norms});
  run.together(keys_of(call, call.q_heads), KeySums<T>{call, norms});
}

// Likewise for scores.
template <class T, class Run>
void score_steps(const Call& call, Run& run) {
  if (!call.scores) return;
  WriteScores<T> work{call};
  keep_score_stage(work.call);
  run.together(rows_of(call), work);
}

template <class Run>
void head_steps(const Call& call, const HeadOutputs& heads, Run& run) {
  if (heads.data != nullptr) run.together(call.sequences.entries() * call.q_heads, Heads{call, heads});
}

template <class T, class Run>
void forward_steps(const Call& asked, const HeadOutputs& heads, WorkspaceCursor& workspace, Run& run) {
  Call call = asked;
  add_head_rows(heads, workspace, call);
  run.together(rows_of(call), ForwardRows<T>{call});
  head_steps(call, heads, run);
  score_steps<T>(call, run);
  key_sums_steps<T>(call, workspace, run);
}

template <std::size_t Rank, class Run>
void zero_steps(const BasicView<Rank, void*>& view, Run& run) {
  if (!view.given()) return;
  Index4 counts = {{1, 1, 1, 1}};
  for (std::size_t d = 0; d < Rank; ++d) {  // as strided() places them; one of stride 0 is one place
    counts.at[Rank == 1 ? 1 : d] = view.strides[d] == 0 ? std::min<std::int64_t>(view.shape[d], 1) : view.shape[d];
  }
  if (std::min({counts.at[0], counts.at[1], counts.at[2], counts.at[3]}) == 0) return;
  run.alone(count_of(counts), Zeros{strided(view), counts});
}

// By all lanes, unless there are so few terms that most would be idle.
template <class Work, class Run>
void run_elements(const Work& work, Run& run) {
  constexpr std::int64_t kWorthSharing = 8;
  const std::int64_t items = count_of(work.reduced.elements);
  count_of(work.reduced.terms) < kWorthSharing ? run.alone(items, work) : run.together(items, work);
}

// dscale from what each row gives to it.
template <class Run>
void run_scale_gradients(const BackwardCall& call, const double* values, Run& run) {
  const Call& f = call.forward;
  const Sequences& s = f.sequences;
  run_elements(ScaleGradients{call, values, Reduced(call.dscale, {{s.batch, f.q_heads, s.n_q, 1}})}, run);
}

template <class T, class Run>
void reduced_steps(const BackwardCall& call, const RowNumbers<Sum<T>>* rows, WorkspaceCursor& workspace, Run& run) {
  const Call& f = call.forward;
  const Sequences& s = f.sequences;
  if (call.dbias) {
    run_elements(BiasGradients<T>{call, rows, Reduced(call.dbias, {{s.batch, f.q_heads, s.n_q, s.n_k}})}, run);
  }
  if (call.dscale) {
    auto* const values = workspace.take<double>(rows_of(f));
    run.together(rows_of(f), ScaleRows<T>{call, rows, values});
    run_scale_gradients(call, values, run);
  }
}

// `as_given`: the gradients before broadcasting, for calls without a pair of a query and a key: a sum over a dimension
// of size 0 has memory still, and is 0.
template <class T, class Run>
void backward_steps(const BackwardCall& call, const Gradients& as_given, WorkspaceCursor& workspace, Run& run) {
  const Call& f = call.forward;
  const bool has_pairs = rows_of(f) > 0 && f.sequences.n_k > 0;
  if (!has_pairs && !call.accumulate) {
    const Gradients& g = as_given;
    zero_steps(g.dq, run), zero_steps(g.dk, run), zero_steps(g.dv, run), zero_steps(g.dbias, run);
    zero_steps(g.dscale, run), zero_steps(g.dsinks, run);
  }
  if (rows_of(f) == 0) return;
  auto* const rows = workspace.take<RowNumbers<Sum<T>>>(rows_of(f));
  run.together(rows_of(f), PrepareRows<T>{call, rows});
  if (call.dsinks) run.together(f.q_heads, SinkGradients<Sum<T>>{call, rows});  // a slice without keys has these, too
  if (!has_pairs) return;
  if (call.dq) run.together(rows_of(f), QueryGradients<T>{call, rows});
  if (call.dk) run.together(keys_of(f, f.kv_heads), KeyGradients<T, false>{call, rows});
  if (call.dv) run.together(keys_of(f, f.kv_heads), KeyGradients<T, true>{call, rows});
  reduced_steps<T>(call, rows, workspace, run);
}

// The parts lie where this runs.
template <class Run>
void merge_steps(const MergeCall& call, const MergePart* parts, WorkspaceCursor& workspace, Run& run) {
  if (call.batch == 0 || call.heads == 0 || call.n_q == 0) return;
  auto* const there = workspace.take<MergePart>(call.count);
  for (std::int64_t first = 0; parts != nullptr && first < call.count; first += TakeParts::kMost) {
    TakeParts some = {{}, there + first};
    const std::int64_t count = std::min<std::int64_t>(TakeParts::kMost, call.count - first);
    std::copy_n(parts + first, count, some.parts);
    run.alone(count, some);
  }
  const std::int64_t rows = call.batch * call.heads * call.n_q;
  if (accumulation_dtype(call.dtype) == DType::f64) {
    run.together(rows, MergeRows<double>{call, there});
  } else {
    run.together(rows, MergeRows<float>{call, there});
  }
}

// Runs nothing, to find how much workspace the steps take.
struct RunNothing {
  template <class Work>
  void together(std::int64_t, const Work&) {}
  template <class Work>
  void alone(std::int64_t, const Work&) {}
};

inline std::size_t forward_workspace(const Call& call, const HeadOutputs& heads) {
  WorkspaceCursor none(nullptr);
  RunNothing nothing;
  with_element(call.dtype, [&](auto element) { forward_steps<decltype(element)>(call, heads, none, nothing); });
  return none.used();
}

inline std::size_t key_sums_workspace(const Call& call) {
  WorkspaceCursor none(nullptr);
  RunNothing nothing;
  with_element(call.dtype, [&](auto element) { key_sums_steps<decltype(element)>(call, none, nothing); });
  return none.used();
}

inline std::size_t backward_workspace(const BackwardCall& call) {
  WorkspaceCursor none(nullptr);
  RunNothing nothing;
  with_element(call.forward.dtype, [&](auto element) { backward_steps<decltype(element)>(call, {}, none, nothing); });
  return none.used();
}

inline std::size_t merge_workspace(const MergeCall& call) {
  WorkspaceCursor none(nullptr);
  RunNothing nothing;
  merge_steps(call, nullptr, none, nothing);
  return none.used();
}

}  // namespace keel::cuda
