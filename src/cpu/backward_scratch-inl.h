// What the backward kernel keeps: per row, per head between its tasks, and per thread during a task.
#if defined(KEEL_CPU_BACKWARD_SCRATCH_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef KEEL_CPU_BACKWARD_SCRATCH_INL_H_
#undef KEEL_CPU_BACKWARD_SCRATCH_INL_H_
#else
#define KEEL_CPU_BACKWARD_SCRATCH_INL_H_
#endif

#include <hwy/highway.h>

#include <algorithm>

#include "cpu/backward.h"
#include "cpu/gemm-inl.h"
#include "cpu/mask-inl.h"
#include "cpu/scratch-inl.h"
#include "cpu/softmax-inl.h"

HWY_BEFORE_NAMESPACE();
namespace keel::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// What a row brings into every block: p = 2^(s − top)·norm and δ. Usually top is lse·log₂e and norm 1. A row that sees
// nothing has top = −inf.
template <class T>
struct RowNumbers {
  T top, norm, delta;
};

// A head's memory from prepare() to finish(). With a null address only the size counts.
template <class T>
struct HeadMemory {
  RowNumbers<T>* numbers = nullptr;  // (rows)
  T* dq = nullptr;                   // (rows, ldq): Σ_j ds_ij k_j
  std::int64_t ldq = 0, bytes = 0;

  HeadMemory(const BackwardCall& call, std::int64_t rows, std::byte* memory) {
    const auto lanes = static_cast<std::int64_t>(hn::Lanes(hn::ScalableTag<T>()));
    ldq = RoundUp(call.forward.d_k, lanes);
    const std::int64_t padded = rows + kRowTile;
    numbers = reinterpret_cast<RowNumbers<T>*>(memory);
    bytes = AlignUp(padded * static_cast<std::int64_t>(sizeof(RowNumbers<T>)));
    dq = reinterpret_cast<T*>(At(memory, bytes));
    if (call.sums_dq()) bytes += AlignUp(padded * ldq * static_cast<std::int64_t>(sizeof(T)));
  }
};

// A thread's scratch memory. With a null workspace only the size counts.
template <class T>
struct BackwardScratch {
  std::int64_t lanes, panel, row_tiles;
  std::int64_t columns_k, columns_v;  // d_k and d_v as whole vectors
  std::int64_t ldk, ldv, lds;         // elements per row
  T *k_panels, *v_panels;             // (key_block / panel, d, panel)
  T *k, *dk, *dv;                     // (key_block, ldk or ldv)
  T *q, *dout;                        // (row_block, ldk or ldv), q times scale·log₂e
  T *s, *t;                           // (row_block, lds): scores, then weights; dp, then ds
  T *ones, *slope, *kept;             // ones: (kRowTile); the softcap's slope and dropout's multipliers of a row
  Range* keys;                        // (row_block) what a row sees of all keys
  Range* needed;                      // (row_tiles) keys of the block that a tile of rows sees
  Range* rows;                        // (key_block / kRowTile) rows that see a tile of keys
  RowState<T>* states;                // (row_block)
  DenseScratch<T> dense;
  std::int64_t bytes = 0;

  BackwardScratch(const BackwardCall& call, std::byte* workspace) {
    const Call& f = call.forward;
    lanes = static_cast<std::int64_t>(hn::Lanes(hn::ScalableTag<T>()));
    panel = kTileVectors * lanes;
    const std::int64_t block_rows = RoundUp(call.tiles.row_block, kRowTile),
                       block_keys = RoundUp(call.tiles.key_block, panel);
    const std::int64_t padded_keys = block_keys + kRowTile;
    row_tiles = block_rows / kRowTile;
    // A product reads a few columns of all rows at a time. Rows a power of two apart would have them collide in the
    // first-level cache, so a row takes an odd number of lines.
    const std::int64_t line = std::max<std::int64_t>(lanes, 64 / static_cast<std::int64_t>(sizeof(T)));
    const auto odd = [&](std::int64_t columns) { return (RoundUp(columns, line) / line | 1) * line; };
    columns_k = RoundUp(f.d_k, lanes);
    columns_v = RoundUp(f.d_v, lanes);
    ldk = odd(columns_k);
    ldv = odd(columns_v);
    lds = RoundUp(padded_keys, lanes) + lanes;  // not a power of two, which would collide in the first-level cache
    const auto take = [&]<class U>(U*& pointer, std::int64_t count) {
      pointer = reinterpret_cast<U*>(At(workspace, bytes));
      bytes += AlignUp(count * static_cast<std::int64_t>(sizeof(U)));
    };
    take(k_panels, block_keys * f.d_k);
    take(v_panels, block_keys * f.d_v);
    take(k, block_keys * ldk);
    take(dk, padded_keys * ldk);
    take(dv, padded_keys * ldv);
    take(q, block_rows * ldk);
    take(dout, block_rows * ldv);
    take(s, block_rows * lds);
    take(t, block_rows * lds);
    take(ones, kRowTile);
    take(slope, lds);
    take(kept, lds);
    take(keys, block_rows);
    take(needed, row_tiles);
    take(rows, padded_keys / kRowTile + 1);
    take(states, block_rows);
    take(dense.bias, block_keys);
    take(dense.mask, block_keys + HWY_MAX_BYTES);
  }
};

}  // namespace keel::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
