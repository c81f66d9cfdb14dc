#pragma once

#include <cstddef>

#include "cuda/plain_forward.h"
#include "cuda/plain_heads.h"
#include "cuda/plain_key_sums.h"

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
  key_sums_steps<T>(call, workspace, run);
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

}  // namespace keel::cuda
