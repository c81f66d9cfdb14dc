#pragma once

#include "cuda/hopper/backward.h"
#include "cuda/plain_steps.h"
#include "cuda/table.h"

// What a Hopper backward call keeps between its kernels: hardly more than dq in f32.
namespace keel::cuda::hopper {

// The parts of the workspace; only reckons where there is none.
inline void lay_out(const BackwardWork& w, WorkspaceCursor& memory, BackwardArguments& a) {
  const Call& f = w.call.forward;
  const std::int64_t rows = f.sequences.batch * f.q_heads * f.sequences.n_q;
  const std::int64_t keys = f.sequences.batch * f.kv_heads * f.sequences.n_k;
  const std::int64_t slots = f.sequences.batch * f.q_heads * w.cut.query_slots, in_slots = slots * w.cut.query_block;
  a.dq = memory.take<float>(in_slots * f.d_k);
  a.lse_log2 = memory.take<float>(in_slots);
  a.delta = memory.take<float>(in_slots);
  if (w.terms) a.scale = memory.take<float>(in_slots);
  a.tiles = memory.take<KeyTile>(w.cut.tasks);
  a.turn = memory.take<int>(slots);
  a.rows = memory.take<RowNumbers<float>>(rows);
  if (w.call.dscale) a.dscale = memory.take<double>(rows);
  a.odd_dq.rows = memory.take<unsigned>(rows);
  a.odd_dk.rows = memory.take<unsigned>(keys);
  a.odd_dv.rows = memory.take<unsigned>(keys);
  auto* const counters = memory.take<unsigned>(4);
  if (counters == nullptr) return;
  a.next = reinterpret_cast<int*>(counters);
  a.odd_dq.count = counters + 1;
  a.odd_dk.count = counters + 2;
  a.odd_dv.count = counters + 3;
}

inline std::int64_t workspace_bytes(const BackwardWork& w) {
  WorkspaceCursor memory(nullptr);
  BackwardArguments a{};
  lay_out(w, memory, a);
  return static_cast<std::int64_t>(memory.used());
}

}  // namespace keel::cuda::hopper
