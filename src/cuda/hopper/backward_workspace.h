#pragma once

#include "cuda/hopper/backward.h"
#include "cuda/plain_steps.h"
#include "cuda/table.h"

// What a Hopper backward call keeps between its kernels: hardly more than dq in f32.
namespace keel::cuda::hopper {

// The places that dbias has for each pair of a row and a key.
constexpr std::int64_t slices_of(const BackwardCall& call) {
  const Call& f = call.forward;
  return (call.dbias.batch == 0 ? 1 : f.sequences.batch) * (call.dbias.head == 0 ? 1 : f.q_heads);
}

// What sums of dbias take: see bias_sums.cuh.
inline void lay_out_bias(const BackwardWork& w, WorkspaceCursor& memory, BackwardArguments& a) {
  const Call& f = w.call.forward;
  const Sequences& s = f.sequences;
  const std::int64_t tiles = std::int64_t{w.cut.key_slots} * w.cut.query_slots;
  if (w.bias_sums == BiasSums::keys) a.bias_sums = memory.take<float>(s.batch * f.q_heads * w.cut.key_slots * 64);
  if (w.bias_sums != BiasSums::tiles) return;
  const std::int64_t slices = slices_of(w.call);
  a.bias_sums = memory.take<float>(slices * tiles * 64 * 64);
  a.bias_turns = memory.take<int>(slices * tiles);
  const bool uneven = !s.q_lengths.empty() || !s.k_lengths.empty();
  if (w.call.dbias.batch == 0 && uneven) a.bias_before = memory.take<int>(s.batch * tiles);
}

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
  lay_out_bias(w, memory, a);
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
