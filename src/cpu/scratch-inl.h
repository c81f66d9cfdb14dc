// A thread's scratch memory for one task, and the running states of its rows.
#if defined(KEEL_CPU_SCRATCH_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef KEEL_CPU_SCRATCH_INL_H_
#undef KEEL_CPU_SCRATCH_INL_H_
#else
#define KEEL_CPU_SCRATCH_INL_H_
#endif

#include <hwy/highway.h>

#include <cstring>

#include "cpu/forward.h"
#include "cpu/gemm-inl.h"
#include "cpu/mask-inl.h"
#include "cpu/products-inl.h"
#include "cpu/softmax-inl.h"

HWY_BEFORE_NAMESPACE();
namespace keel::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Rows that go through passes 1 to 4 together, the keys of a block that any of them sees, counted from the block's
// first, and what each tile of rows sees. `buffer` is where its scores are.
struct Strip {
  std::int64_t r, rows;
  Range needed, tile[2];
  std::int64_t buffer;
};

// The rows of a task over some keys: o is (rows, ldv), not yet divided by l.
template <class T>
struct States {
  RowState<T>* rows = nullptr;
  T* o = nullptr;
};

template <class T>
void Reset(const States<T>& states, std::int64_t rows, std::int64_t ldv) {
  std::fill_n(states.rows, rows, EmptyState<T>());
  std::fill_n(states.o, rows * ldv, T{0});
}

// `later` joins `total`, row by row.
template <class T>
void Join(const States<T>& total, const States<T>& later, std::int64_t rows, std::int64_t ldv) {
  const hn::ScalableTag<T> d;
  for (std::int64_t r = 0; r < rows; ++r) {
    T a = 1, b = 1;
    JoinStates(total.rows[r], later.rows[r], a, b);
    for (std::int64_t c = 0; c < ldv; c += static_cast<std::int64_t>(hn::Lanes(d))) {
      T* const o = total.o + r * ldv + c;
      const auto scaled = hn::Mul(hn::Load(d, later.o + r * ldv + c), hn::Set(d, b));
      hn::Store(hn::MulAdd(hn::Load(d, o), hn::Set(d, a), scaled), d, o);
    }
  }
}

constexpr std::int64_t kAlignment = 64;
constexpr std::int64_t AlignUp(std::int64_t bytes) { return (bytes + kAlignment - 1) & -kAlignment; }

// The address so many bytes into a workspace; none in a null one, of which only the sizes count.
inline std::byte* At(std::byte* workspace, std::int64_t bytes) {
  return workspace == nullptr ? nullptr : workspace + bytes;
}

// A chunk's states as a block of bytes.
template <class T>
std::int64_t PartialBytes(std::int64_t rows, std::int64_t ldv) {
  return AlignUp(rows * static_cast<std::int64_t>(sizeof(RowState<T>))) +
         AlignUp(rows * ldv * static_cast<std::int64_t>(sizeof(T)));
}
template <class T>
void Save(const States<T>& states, std::int64_t rows, std::int64_t ldv, void* to) {
  const auto head = static_cast<std::size_t>(rows) * sizeof(RowState<T>);
  std::memcpy(to, states.rows, head);
  std::memcpy(static_cast<std::byte*>(to) + AlignUp(static_cast<std::int64_t>(head)), states.o,
              static_cast<std::size_t>(rows * ldv) * sizeof(T));
}
template <class T>
void Restore(const void* from, std::int64_t rows, std::int64_t ldv, const States<T>& states) {
  const auto head = static_cast<std::size_t>(rows) * sizeof(RowState<T>);
  std::memcpy(states.rows, from, head);
  std::memcpy(states.o, static_cast<const std::byte*>(from) + AlignUp(static_cast<std::int64_t>(head)),
              static_cast<std::size_t>(rows * ldv) * sizeof(T));
}

// The layout of a workspace; with a null workspace only the sizes count.
template <class P>
struct Scratch {
  using T = typename P::T;
  using Operand = typename P::Operand;
  std::int64_t lanes, panel;   // elements per vector, keys per panel
  std::int64_t granule;        // of columns
  std::int64_t panels;         // panels per block
  std::int64_t ldq, lds, ldv;  // elements per row
  Operand* q;                  // (row_block, ldq), times scale·log₂e unless they are pairs
  T* scale;                    // (row_block) scale·log₂e
  T* late_scale;               // (row_block) the same where scores are left to be scaled by the softmax
  Operand* q_columns;          // (steps, kRowTile) for few rows
  Operand* k;                  // (key_block / panel, steps, panel), a panel in k_layout
  Operand* v;                  // (steps, ldv), in v_layout
  Layout k_layout, v_layout;
  T* s;                    // (Queue::kBuffers, kStripRows, lds) scores, then weights
  T* factor;               // (Queue::kBuffers, kStripRows)
  T *row_s, *row_o;        // one row of each, with what a product reads and writes beside it
  Range *keys, *seen;      // (row_block) what a row sees of all keys; with a block mask, of a block of them
  std::uint8_t* holes;     // (row_block) whether a block mask hides some of `seen`
  std::uint8_t* packed;    // (panels) which panels of the block hold their keys; 2 if some of those are not split
  States<T> total, chunk;  // (row_block)
  DenseScratch<T> dense;
  // If operands are split: which are not, per row of the block and per key, and what ScoreApart() works on.
  std::uint8_t *q_apart = nullptr, *k_apart = nullptr, *v_apart = nullptr;
  T *apart_q = nullptr, *apart_k = nullptr, *apart_s = nullptr;
  std::int64_t apart_ldq = 0;
  std::int64_t bytes = 0;

  Scratch(const ForwardCall& call, std::byte* workspace) {
    lanes = static_cast<std::int64_t>(hn::Lanes(hn::ScalableTag<T>()));
    panel = P::PanelKeys();
    granule = P::ColumnGranule();
    const std::int64_t rows = RoundUp(call.tiles.row_block, P::kStripRows),
                       keys_block = RoundUp(call.tiles.key_block, panel);
    panels = keys_block / panel;
    ldv = RoundUp(call.d_v, granule);
    // Rows a multiple of 4 KiB apart would fall into the same cache sets: one more vector keeps them apart.
    const std::int64_t steps = P::Steps(call.d_k), row = P::TileRows(1);
    ldq = RoundUp(steps, lanes) + lanes;
    lds = P::kScoresFrom + keys_block + lanes;
    k_layout = P::PackedLayout(steps, panel);
    v_layout = P::PackedLayout(P::Steps(keys_block), ldv);
    const auto take = [&]<class U>(U*& pointer, std::int64_t count) {
      pointer = reinterpret_cast<U*>(At(workspace, bytes));
      bytes += AlignUp(count * static_cast<std::int64_t>(sizeof(U)));
    };
    take(q, rows * ldq);
    take(scale, rows);
    late_scale = scale;
    take(q_columns, kRowTile * steps);
    take(k, keys_block * steps);
    take(v, P::Steps(keys_block) * ldv);
    take(s, P::Queue::kBuffers * P::kStripRows * lds);
    take(factor, P::Queue::kBuffers * P::kStripRows);
    take(row_s, row * lds);
    take(row_o, row * ldv);
    take(keys, rows);
    take(seen, call.block_tiles ? rows : 0);
    take(holes, call.block_tiles ? rows : 0);
    take(packed, panels);
    take(total.rows, rows);
    take(total.o, rows * ldv);
    take(chunk.rows, rows);
    take(chunk.o, rows * ldv);
    take(dense.bias, keys_block);
    take(dense.mask, keys_block + HWY_MAX_BYTES);
    if constexpr (P::kSplits) {
      if (workspace != nullptr) s += P::kScoresFrom;
      const std::int64_t strip = P::kStripRows + kRowTile;  // what products of kRowTile rows may touch
      apart_ldq = RoundUp(call.d_k, lanes) + lanes;
      take(late_scale, rows);
      take(q_apart, rows);
      take(k_apart, keys_block);
      take(v_apart, keys_block);
      take(apart_q, strip * apart_ldq);
      take(apart_k, call.d_k * panel);
      take(apart_s, strip * panel);
    }
  }

  T* ScoresOf(const Strip& strip) const { return s + strip.buffer * P::kStripRows * lds; }
  T* FactorsOf(const Strip& strip) const { return factor + strip.buffer * P::kStripRows; }
};

}  // namespace keel::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
