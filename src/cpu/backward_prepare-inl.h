// The first step of the backward pass: what each row brings into every block of keys.
#if defined(KEEL_CPU_BACKWARD_PREPARE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef KEEL_CPU_BACKWARD_PREPARE_INL_H_
#undef KEEL_CPU_BACKWARD_PREPARE_INL_H_
#else
#define KEEL_CPU_BACKWARD_PREPARE_INL_H_
#endif

#include <hwy/highway.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "cpu/backward_block-inl.h"
#include "cpu/backward_row-inl.h"
#include "cpu/softmax-inl.h"

HWY_BEFORE_NAMESPACE();
namespace keel::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Beyond this size an lse is too coarse to compute weights from: rounded to float, it is off by up to 2e-6 here, by 1
// from 1e7 on. Such rows recompute their maximum and sum.
template <class T>
constexpr T kTrustedLse = sizeof(T) == 4 ? 32 : 1000;

template <class P>
class BackwardPreparer : protected BackwardBlock<P> {
  using T = typename P::T;

 public:
  BackwardPreparer(const BackwardCall& call, const BackwardHead& head, std::byte* workspace)
      : BackwardBlock<P>(call, head, workspace) {}

  // Each row's numbers, and 0 for its sums.
  void Prepare(std::int64_t row_begin, std::int64_t row_end) {
    for (std::int64_t r = row_begin; r < row_end; r += call_.tiles.row_block) {
      PrepareBlock(r, std::min(call_.tiles.row_block, row_end - r));
    }
    if (!call_.sums_dq()) return;
    const std::int64_t end = row_end == rows_ ? P::TiledRows(rows_) : row_end;
    std::fill(memory_.dq + row_begin * memory_.ldq, memory_.dq + end * memory_.ldq, T{0});
  }

 protected:
  using BackwardBlock<P>::call_;
  using BackwardBlock<P>::dense_;
  using BackwardBlock<P>::f_;
  using BackwardBlock<P>::h_;
  using BackwardBlock<P>::head_;
  using BackwardBlock<P>::memory_;
  using BackwardBlock<P>::rows_;
  using BackwardBlock<P>::scratch_;
  using BackwardBlock<P>::BlockOf;
  using BackwardBlock<P>::Computed;
  using BackwardBlock<P>::FindKeys;
  using BackwardBlock<P>::FindNeeded;
  using BackwardBlock<P>::FindSeen;
  using BackwardBlock<P>::LoadQueries;
  using BackwardBlock<P>::MultiplyPanels;
  using BackwardBlock<P>::PackPanels;
  using BackwardBlock<P>::PlaceOf;
  using BackwardBlock<P>::QueriesTimesKeys;
  using BackwardBlock<P>::RowValue;
  using BackwardBlock<P>::kNothing;

  // A row of d_v columns, padded to whole vectors: where it lies, or loaded into `room`.
  const T* RowOf(const Strided& x, const Rows& rows, const RowPlace& place, T* room) const {
    const std::int64_t at = place.g * rows.head_stride + place.i * rows.row_stride;
    if (x.dtype == dtype_of<T> && rows.column_stride == 1 && f_.d_v == scratch_.columns_v) {
      return static_cast<const T*>(rows.data) + at;
    }
    LoadRow<T>(x.dtype, rows.data, at, rows.column_stride, f_.d_v, T{1}, room);
    return room;
  }

  // Prepare() for at most row_block rows.
  void PrepareBlock(std::int64_t r, std::int64_t rows) {
    FindKeys(r, rows);
    T *const o = scratch_.two_rows, *const dout = o + scratch_.columns_v;
    std::fill_n(o, 2 * scratch_.columns_v, T{0});
    bool coarse = false;
    RowPlace place = PlaceOf(r);
    for (std::int64_t x = 0; x < rows; ++x, ++place) {
      const std::int64_t i = place.i, g = place.g;
      RowNumbers<T>& numbers = memory_.numbers[r + x];
      const T lse = RowValue(head_.lse, g, i);
      numbers = {static_cast<T>(-INFINITY), 0, 0};
      if (lse == static_cast<T>(-INFINITY)) continue;
      if (scratch_.keys[x].empty() && f_.sequences.has_all_keys()) continue;  // else it may see keys that are not here
      const T* const out_row = RowOf(call_.out, head_.out, place, o);
      const T* const dout_row = call_.dout ? RowOf(call_.dout, head_.dout, place, dout) : dout;
      const T dlse = head_.dlse.data != nullptr ? RowValue(head_.dlse, g, i) : T{0};
      const T top = std::max(lse * static_cast<T>(kLog2E), std::numeric_limits<T>::lowest());  // −inf would be masked
      numbers = {lse != lse ? lse : top, 1, Dot(out_row, dout_row, scratch_.columns_v) - dlse};
      coarse = coarse || std::abs(lse) > kTrustedLse<T>;
    }
    if (coarse && f_.sequences.has_all_keys()) FindMaxima(r, rows);  // for a slice of keys there is only lse
    if (!call_.dsinks) return;
    for (std::int64_t x = 0; x < rows; ++x) {  // the sink is a key without a value: dp = 0
      const auto [i, g, group] = PlaceOf(r + x);
      const RowNumbers<T>& row = memory_.numbers[r + x];
      const bool masked = row.top == static_cast<T>(-INFINITY);
      const double p = masked ? 0.0 : std::exp2(static_cast<double>(SinkOf<T>(f_, h_, g)) - row.top) * row.norm;
      static_cast<double*>(head_.dsinks.data)[g * head_.dsinks.head_stride + i * head_.dsinks.row_stride] =
          masked ? 0.0 : -p * static_cast<double>(row.delta);
    }
  }

 private:
  // The maximum and sum of the rows whose lse is too coarse, computed as in the forward pass.
  void FindMaxima(std::int64_t r, std::int64_t rows) {
    LoadQueries(r, rows);
    std::fill_n(scratch_.states, rows, EmptyState<T>());
    const Range all = NeededKeys(scratch_.keys, rows, {0, h_.k_len});
    for (std::int64_t first = all.begin / call_.tiles.key_block * call_.tiles.key_block; first < all.end;
         first += call_.tiles.key_block) {
      const Range block = {first, std::min(first + call_.tiles.key_block, h_.k_len)};
      PackPanels(f_.dtype, h_.k, block, {f_.d_k}, scratch_.k_panels);
      FindSeen(r, rows, block);
      FindNeeded(rows, block);
      MultiplyPanels(QueriesTimesKeys(), rows, kNothing);
      for (std::int64_t x = 0; x < rows; ++x) {
        const Range computed = Computed(x);
        if (computed.empty()) continue;
        const RowBlock row = BlockOf(x, PlaceOf(r + x), block, computed);
        T* const s = scratch_.s + x * scratch_.lds;
        MaskRow(f_, h_, dense_, row, scratch_.dense, s);
        NoQueue none;
        JoinBlock<FmaProducts<T>, false, false>(s, {computed, MaxOfBlock(s, computed), 1}, none, scratch_.states[x]);
      }
    }
    for (std::int64_t x = 0; x < rows; ++x) {
      RowNumbers<T>& numbers = memory_.numbers[r + x];
      RowState<T>& state = scratch_.states[x];
      if (!(std::abs(numbers.top) > kTrustedLse<T> * static_cast<T>(kLog2E)) || std::isinf(numbers.top)) continue;
      if (h_.sinks.data != nullptr) JoinSink(SinkOf<T>(f_, h_, PlaceOf(r + x).g), state);
      numbers.top = state.m;
      numbers.norm = T{1} / state.l;
    }
  }
};

}  // namespace keel::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
