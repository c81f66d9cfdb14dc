// What the tangent kernel keeps beyond what the backward kernel does: per head between its tasks, and per thread.
#if defined(KEEL_CPU_TANGENT_SCRATCH_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef KEEL_CPU_TANGENT_SCRATCH_INL_H_
#undef KEEL_CPU_TANGENT_SCRATCH_INL_H_
#else
#define KEEL_CPU_TANGENT_SCRATCH_INL_H_
#endif

#include <hwy/highway.h>

#include <algorithm>

#include "cpu/backward_scratch-inl.h"
#include "cpu/tangent.h"
#include "cpu/tangent_row-inl.h"

HWY_BEFORE_NAMESPACE();
namespace keel::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// A head's memory: its rows' numbers, as in HeadMemory, and behind them the sums over rows. With a null address only
// the size counts.
template <class P>
struct TangentMemory {
  using T = typename P::T;
  T *dk = nullptr, *dv = nullptr;  // (keys, ldk or ldv)
  std::int64_t ldk = 0, ldv = 0, bytes = 0;

  TangentMemory(const TangentCall& call, std::int64_t rows, std::int64_t keys, std::byte* memory) {
    const Call& f = call.backward.forward;
    bytes = HeadMemory<P>(call.backward, rows, nullptr).bytes;
    ldk = RoundUp(f.d_k, P::ColumnGranule());
    ldv = RoundUp(f.d_v, P::ColumnGranule());
    const auto take = [&](T*& pointer, std::int64_t ld) {
      pointer = reinterpret_cast<T*>(At(memory, bytes));
      bytes += AlignUp((keys + P::kRowTile) * ld * static_cast<std::int64_t>(sizeof(T)));
    };
    if (call.backward.dk) take(dk, ldk);
    if (call.backward.dv) take(dv, ldv);
  }
};

// A thread's scratch memory, behind that of BackwardScratch. With a null workspace only the size counts.
template <class P>
struct TangentScratch {
  using T = typename P::T;
  std::int64_t ldq;          // elements per row of q and tq together
  std::int64_t ldp;          // elements per row of what is kept
  std::int64_t ldr;          // elements per row of values
  T* q;                      // (task_rows, ldq): q and tq side by side, both times scale·log₂e
  T* k_panels;               // (key_block / panel, 2·d_k, panel): tk above k
  T* tv_panels;              // (key_block / panel, d_v, panel)
  T *values, *tvalues;       // (key_block, ldr): v and tv, then k and tk
  T *p, *ts, *slope, *bend;  // (row_block, ldp): of a jvp the keys of a block, else all of them
  T *w, *wt;                 // (row_block, lds)
  T* tbias;                  // (lds)
  T *out, *dq, *plain;       // sums per row: (task_rows, columns_v), twice (row_block, columns_k)
  RowMoves<T>* moves;        // (task_rows)
  std::int64_t bytes;

  TangentScratch(const TangentCall& call, const BackwardScratch<P>& other, std::byte* workspace) : bytes(other.bytes) {
    const Call& f = call.backward.forward;
    const Tiles& tiles = call.backward.tiles;
    const std::int64_t rows = RoundUp(tiles.row_block, P::kRowTile), block_keys = RoundUp(tiles.key_block, other.panel);
    const std::int64_t task_rows = RoundUp(call.task_rows, P::kRowTile);
    const std::int64_t line = std::max<std::int64_t>(other.lanes, 64 / static_cast<std::int64_t>(sizeof(T)));
    const auto odd = [&](std::int64_t columns) { return (RoundUp(columns, line) / line | 1) * line; };
    ldq = odd(2 * f.d_k + other.granule);
    ldp = call.is_double ? odd(RoundUp(call.most_keys, block_keys) + kRowTile) : other.lds;
    ldr = std::max(other.ldk, other.ldv);
    const auto take = [&]<class U>(U*& pointer, std::int64_t count) {
      pointer = reinterpret_cast<U*>(At(workspace, bytes));
      bytes += AlignUp(count * static_cast<std::int64_t>(sizeof(U)));
    };
    const auto take_if = [&](bool needed, T*& pointer, std::int64_t count) {
      pointer = nullptr;
      if (needed) take(pointer, count);
    };
    take(q, task_rows * ldq);
    take(k_panels, block_keys * 2 * f.d_k);
    take_if(call.is_double, tv_panels, block_keys * f.d_v);
    take(values, block_keys * ldr);
    take(tvalues, block_keys * ldr);
    take(p, rows * ldp);
    take(ts, rows * ldp);
    take_if(f.softcap > 0, slope, rows * ldp);
    take_if(f.softcap > 0, bend, rows * ldp);
    take_if(f.dropout > 0, w, rows * other.lds);
    take(wt, rows * other.lds);
    take(tbias, other.lds);
    take(out, task_rows * other.columns_v);
    take_if(call.is_double, dq, rows * other.columns_k);
    take_if(call.sums_plain(), plain, rows * other.columns_k);
    take(moves, task_rows);
  }
};

}  // namespace keel::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
