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
template <class P>
struct HeadMemory {
  using T = typename P::T;
  RowNumbers<T>* numbers = nullptr;  // (rows)
  T* dq = nullptr;                   // (rows, ldq): Σ_j ds_ij k_j
  std::int64_t ldq = 0, bytes = 0;

  HeadMemory(const BackwardCall& call, std::int64_t rows, std::byte* memory) {
    ldq = RoundUp(call.forward.d_k, P::ColumnGranule());
    const std::int64_t padded = rows + P::kRowTile;
    numbers = reinterpret_cast<RowNumbers<T>*>(memory);
    bytes = AlignUp(padded * static_cast<std::int64_t>(sizeof(RowNumbers<T>)));
    dq = reinterpret_cast<T*>(At(memory, bytes));
    if (call.sums_dq() && !call.by_rows) bytes += AlignUp(padded * ldq * static_cast<std::int64_t>(sizeof(T)));
  }
};

// A thread's scratch memory. With a null workspace only the size counts.
template <class P>
struct BackwardScratch {
  using T = typename P::T;
  using Operand = typename P::Operand;
  std::int64_t lanes, panel, granule, row_tiles;
  std::int64_t columns_k, columns_v;  // d_k and d_v rounded up to the granule
  std::int64_t ldk, ldv, lds;         // elements per row
  std::int64_t ldq, ldo;              // operands per row of q and do
  Operand *k_panels, *v_panels;       // (key_block / panel, steps, panel)
  Operand* k;                         // (steps, ldk)
  T *dk, *dv;                         // as KeyGradients keeps them
  Operand *q, *dout;                  // (row_block, ldq or ldo), q times scale·log₂e unless they are pairs. Of a row
                                      // only whole vectors are defined
  T* scale;                           // (row_block) scale·log₂e
  T *s, *t;                           // (row_block, lds): scores, then weights; dp, then ds
  T *ones, *slope, *kept;             // ones: (kRowTile); the softcap's slope and dropout's multipliers of a row
  T* two_rows;                        // of d_k or d_v columns
  T* key_rows = nullptr;              // for transposed sums: a few rows of dk or dv
  Range *keys, *seen;                 // (row_block) what a row sees of all keys; with a block mask, of the block
  std::uint8_t* holes;                // (row_block) whether a block mask hides some of `seen`
  Range* needed;                      // (row_tiles) keys of the block that a tile of rows sees
  Range* rows;                        // (key_block / kKeyTile) rows that see a tile of keys
  RowState<T>* states;                // (row_block)
  T* drelative = nullptr;             // (group, relative_length) sums of ds by distance
  DenseScratch<T> dense;
  // For pairs alone: ds by rows, (row_block, lds / 2), and the factors of KeyGradients: q and do by columns,
  // (d, row_block / 2), or in pairs of rows, (row_block / 2, d).
  Operand *ds = nullptr, *q_factors = nullptr, *dout_factors = nullptr;
  std::int64_t ldds = 0, ldqf = 0, ldof = 0;
  std::int64_t bytes = 0;

  BackwardScratch(const BackwardCall& call, std::byte* workspace) {
    const Call& f = call.forward;
    lanes = static_cast<std::int64_t>(hn::Lanes(hn::ScalableTag<T>()));
    panel = P::PanelKeys();
    granule = P::ColumnGranule();
    const std::int64_t block_rows = RoundUp(call.tiles.row_block, P::kRowTile),
                       block_keys = RoundUp(call.tiles.key_block, panel);
    const std::int64_t padded_keys = block_keys + kRowTile;
    row_tiles = block_rows / P::kRowTile;
    // A product reads a few columns of all rows at a time. Rows a power of two apart would have them collide in the
    // first-level cache, so a row takes an odd number of lines.
    const std::int64_t line = std::max<std::int64_t>(lanes, 64 / static_cast<std::int64_t>(sizeof(T)));
    const auto odd = [&](std::int64_t columns) { return (RoundUp(columns, line) / line | 1) * line; };
    columns_k = RoundUp(f.d_k, granule);
    columns_v = RoundUp(f.d_v, granule);
    ldk = odd(columns_k);
    ldv = odd(columns_v);
    ldq = odd(P::Steps(f.d_k));
    ldo = odd(P::Steps(f.d_v));
    lds = RoundUp(padded_keys, lanes) + lanes;  // not a power of two, which would collide in the first-level cache
    const auto take = [&]<class U>(U*& pointer, std::int64_t count) {
      pointer = reinterpret_cast<U*>(At(workspace, bytes));
      bytes += AlignUp(count * static_cast<std::int64_t>(sizeof(U)));
    };
    take(k_panels, block_keys * P::Steps(f.d_k));
    take(v_panels, block_keys * P::Steps(f.d_v));
    take(k, P::Steps(block_keys) * ldk);
    if constexpr (P::kPairs) {
      ldds = odd(P::Steps(block_keys));
      take(ds, block_rows * ldds);
    }
    if constexpr (P::kTransposesSums) {
      const std::int64_t rows_k = RoundUp(P::TiledRows(f.d_k), granule), rows_v = RoundUp(P::TiledRows(f.d_v), granule);
      ldqf = ldof = odd(P::Steps(block_rows));
      take(dk, rows_k * lds);
      take(dv, rows_v * lds);
      take(q_factors, rows_k * ldqf);
      take(dout_factors, rows_v * ldof);
    } else {
      take(dk, padded_keys * ldk);
      take(dv, padded_keys * ldv);
      if constexpr (P::kPairs) {
        ldqf = odd(RoundUp(f.d_k, 2 * lanes));
        ldof = odd(RoundUp(f.d_v, 2 * lanes));
        take(q_factors, P::Steps(block_rows) * ldqf);
        take(dout_factors, P::Steps(block_rows) * ldof);
      }
    }
    take(q, block_rows * ldq);
    take(dout, block_rows * ldo);
    take(scale, block_rows);
    take(s, block_rows * lds);
    take(t, block_rows * lds);
    take(ones, P::kRowTile);
    take(slope, lds);
    take(kept, lds);
    take(two_rows, 2 * std::max(columns_k, columns_v));
    if (P::kTransposesSums) take(key_rows, kTileColumns<T, T> * std::max(columns_k, columns_v));
    take(keys, block_rows);
    take(seen, f.block_tiles ? block_rows : 0);
    take(holes, f.block_tiles ? block_rows : 0);
    take(needed, row_tiles);
    take(rows, padded_keys / P::kKeyTile + 1);
    take(states, block_rows);
    take(dense.bias, block_keys);
    take(dense.mask, block_keys + HWY_MAX_BYTES);
    if (call.drelative_bias) take(drelative, f.group * relative_length(f.radius, f.relative_pad));
  }
};

}  // namespace keel::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
