// The main loop of the forward kernel. For a task (a block of query rows of one head group) it takes the keys block by
// block; for a block it packs kᵀ and v once and lets every strip of rows do
//
//   pass 1   s = q·kᵀ                            kRowTile rows by a panel of keys at a time
//   pass 2   softcap, bias, ALiBi, masks          only where a row needs them
//   pass 3   m, l, p = softmax(s) so far          then dropout
//   pass 4   o = factor·o + p·v
//
// Cost: a vector of scores takes d_k + d_v fused multiply-adds a lane, the softmax about 14 operations, packing
// (1/3 + 1/10) cycles an element of k and v for all rows of the task. So the FMA ports bound it for d ≥ 64.
#if defined(KEEL_CPU_FORWARD_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef KEEL_CPU_FORWARD_INL_H_
#undef KEEL_CPU_FORWARD_INL_H_
#else
#define KEEL_CPU_FORWARD_INL_H_
#endif

#include <hwy/highway.h>

#include <algorithm>
#include <cmath>

#include "core/dropout.h"
#include "cpu/decode-inl.h"
#include "cpu/epilogue-inl.h"
#include "cpu/forward.h"
#include "cpu/gemm-inl.h"
#include "cpu/mask-inl.h"
#include "cpu/pack-inl.h"
#include "cpu/scratch-inl.h"
#include "cpu/softmax-inl.h"

HWY_BEFORE_NAMESPACE();
namespace keel::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

template <class T, bool kEntropy, bool kMoments>
class ForwardTaskRunner {
 public:
  ForwardTaskRunner(const ForwardCall& call, const ForwardTask& task, std::byte* workspace)
      : call_(call),
        task_(task),
        head_(*task.head),
        rows_(task.row_end - task.row_begin),
        scratch_(call, workspace),
        dropout_(call.dropout, call.seed) {}

  void Run() {
    LoadQueries();
    const Tiles& tiles = call_.tiles;
    for (std::int64_t chunk = task_.chunk_begin; chunk < task_.chunk_end; ++chunk) {
      const bool first = chunk == task_.chunk_begin;
      const States<T>& states = first ? scratch_.total : scratch_.chunk;
      const Range keys = Clip({chunk * tiles.key_chunk, (chunk + 1) * tiles.key_chunk}, all_keys_);
      if (!first && keys.empty()) continue;
      Reset(states, rows_, scratch_.ldv);
      for (std::int64_t j = keys.begin / tiles.key_block * tiles.key_block; j < keys.end; j += tiles.key_block) {
        TakeBlock(Clip({j, j + tiles.key_block}, keys), j, states);
      }
      if (!first) Join(scratch_.total, scratch_.chunk, rows_, scratch_.ldv);
    }
    if (task_.partial != nullptr) {
      Save(scratch_.total, rows_, scratch_.ldv, task_.partial);
      return;
    }
    WriteRows<T>(call_, task_, scratch_.total, scratch_.ldv);
    if (head_.weights.data != nullptr) WriteWeights();
  }

 private:
  RowPlace PlaceOf(std::int64_t r) const { return {task_.row_begin + r, call_.group}; }

  // The rows' key ranges, and their queries times scale·log₂e.
  void LoadQueries() {
    all_keys_ = {INT64_MAX, 0};
    WithType<T>(call_.dtype, [&](auto* type) {
      const auto* const q = static_cast<decltype(type)>(head_.q.data);
      RowPlace place = PlaceOf(0);
      for (std::int64_t r = 0; r < rows_; ++r, ++place) {
        const Range keys = VisibleKeys(call_, head_, place.i);
        scratch_.keys[r] = keys;
        if (!keys.empty()) all_keys_ = {std::min(all_keys_.begin, keys.begin), std::max(all_keys_.end, keys.end)};
        const double scale = ScaleOf(call_, head_, place.g, place.i);
        LoadRow<T>(q + place.g * head_.q.head_stride + place.i * head_.q.row_stride, head_.q.column_stride, call_.d_k,
                   static_cast<T>(scale * kLog2E), scratch_.q + r * scratch_.ldq);
      }
    });
    if (all_keys_.empty()) all_keys_ = {0, 0};
    const int last = static_cast<int>(rows_ % kRowTile);
    std::fill_n(scratch_.q + rows_ * scratch_.ldq, (TileRows(last) - last) * scratch_.ldq, T{0});
    if (rows_ <= kRowTile && head_.k_len >= scratch_.panel) {
      TransposeQueries(static_cast<int>(rows_), scratch_.q, scratch_.ldq, call_.d_k, scratch_.q_columns);
    }
  }

  // The keys of the block that any of the rows [r, r + rows) sees, in the block's count.
  Range Needed(std::int64_t r, std::int64_t rows, Range block, std::int64_t first) const {
    const Range needed = NeededKeys(scratch_.keys + r, rows, block);
    return needed.empty() ? needed : Range{needed.begin - first, needed.end - first};
  }

  // Scores of a strip against the panels that cover `needed`, packed when a first strip asks for them.
  Range ScoreStrip(std::int64_t r, std::int64_t rows, Range needed, std::int64_t first) {
    const std::int64_t width = scratch_.panel;
    const Range panels = {needed.begin / width, (needed.end + width - 1) / width};
    std::int64_t panel = panels.begin;
    if (rows_ <= kRowTile) panel += StreamScores(rows, needed, first);
    for (; panel < panels.end; ++panel) {
      const std::int64_t j = first + panel * width, keys = std::min(width, head_.k_len - j);
      T* const packed = scratch_.k + panel * width * call_.d_k;
      if (scratch_.packed[panel] == 0) {
        PackPanel<T>(call_.dtype, head_.k, j, keys, call_.d_k, width, packed);
        scratch_.packed[panel] = 1;
      }
      AskForDenseTerms(call_, head_, task_.row_begin + r, rows, needed, first, panel * width);
      // Of the last panel only the vectors that hold a key; what else it had in s is hidden with the masks.
      const std::int64_t left = needed.end - panel * width;
      const std::int64_t vectors = (std::min(left, width) + scratch_.lanes - 1) / scratch_.lanes;
      for (std::int64_t x = 0; x < rows; x += kRowTile) {
        Scores<T>(static_cast<int>(std::min<std::int64_t>(kRowTile, rows - x)), scratch_.q + (r + x) * scratch_.ldq,
                  scratch_.ldq, packed, call_.d_k, vectors, scratch_.s + x * scratch_.lds + panel * width,
                  scratch_.lds);
      }
    }
    return {panels.begin * width, panels.end * width};
  }

  // The scores of a task's only rows, as far as k can be read in place: how many panels they fill.
  std::int64_t StreamScores(std::int64_t rows, Range needed, std::int64_t first) {
    const std::int64_t begin = needed.begin / scratch_.panel * scratch_.panel;
    std::int64_t done = 0;
    WithType<T>(call_.dtype, [&](auto* type) {
      const Rows& from = head_.k;
      const auto* const k = static_cast<decltype(type)>(from.data) + (first + begin) * from.row_stride;
      const int few = static_cast<int>(rows);
      done = StreamedScores(few, scratch_.q_columns, k, from.row_stride, from.column_stride, call_.d_k,
                            (needed.end - begin) / scratch_.panel * scratch_.panel, scratch_.s + begin, scratch_.lds);
      if (const std::int64_t left = needed.end - begin - done; left > 0 && left <= kFewKeys) {
        FewScores(few, scratch_.q, scratch_.ldq, k + done * from.row_stride, from.row_stride, from.column_stride,
                  call_.d_k, left, scratch_.s + begin + done, scratch_.lds);
        done += scratch_.panel;
      }
    });
    return done / scratch_.panel;
  }

  RowBlock BlockOf(std::int64_t r, const RowPlace& place, Range block, std::int64_t first, Range computed) const {
    return BlockOfRow(place.g, place.i, scratch_.keys[r], block, first, computed);
  }

  void TakeBlock(Range block, std::int64_t first, const States<T>& states) {
    std::fill_n(scratch_.packed, scratch_.panels, std::uint8_t{0});
    bool have_values = false, finite = true;
    for (std::int64_t r = 0; r < rows_; r += kStripRows) {
      const std::int64_t rows = std::min<std::int64_t>(kStripRows, rows_ - r);
      const Range needed = Needed(r, rows, block, first);
      if (needed.empty()) continue;
      const Range computed = ScoreStrip(r, rows, needed, first);  // pass 1
      bool masked = false;
      std::int64_t visible[kStripRows];
      RowPlace place = PlaceOf(r);
      for (std::int64_t x = 0; x < rows; ++x, ++place) {
        T* const s = scratch_.s + x * scratch_.lds;
        const RowBlock row = BlockOf(r + x, place, block, first, computed);
        visible[x] = MaskRow(call_, head_, row, scratch_.dense, s);  // pass 2
        scratch_.factor[x] = MaxOfBlock(s, computed);                // which waits: all rows first
        masked = masked || visible[x] < needed.end - needed.begin;
      }
      for (std::int64_t x = 0; x < rows; ++x) {
        T* const s = scratch_.s + x * scratch_.lds;
        RowState<T>& state = states.rows[r + x];
        const bool whole = visible[x] == call_.tiles.key_block;
        scratch_.factor[x] =
            JoinBlock<T, kEntropy, kMoments>(s, computed, whole, scratch_.factor[x], state);  // pass 3
        state.visible += visible[x];
        if (call_.dropout > 0) {
          ApplyDropout<T>(dropout_, head_, BlockOf(r + x, PlaceOf(r + x), block, first, computed), s);
        }
      }
      if (!masked && !have_values && CanReadValuesInPlace()) {  // pass 4
        StreamValues(rows, needed, first, states);
        continue;
      }
      if (const T* const v = AlignedValues(); v != nullptr && !masked && !have_values) {
        SumValues(r, rows, needed, v + (first + needed.begin) * scratch_.ldv, scratch_.ldv, states);
        continue;
      }
      if (!have_values) {
        const Range all = Needed(0, rows_, block, first);
        values_begin_ = all.begin;
        finite = PackValues<T>(call_.dtype, head_.v, first + all.begin, all.end - all.begin, call_.d_v, scratch_.ldv,
                               scratch_.v);
        have_values = true;
      }
      if (finite || !masked) {
        SumValues(r, rows, needed, scratch_.v + (needed.begin - values_begin_) * scratch_.ldv, scratch_.ldv, states);
      } else {
        for (std::int64_t x = 0; x < rows; ++x) CarefulSum(r + x, x, needed, first, states);
      }
    }
  }

  // Where one tile of rows is all there is, v is used once: packing it would cost more than it saves.
  bool CanReadValuesInPlace() const {
    return rows_ <= kRowTile && head_.v.column_stride == 1 && call_.d_v == scratch_.ldv;
  }

  // v, where it lies as packing would leave it. A block that a mask touches is packed all the same, to learn whether
  // all of it is finite.
  const T* AlignedValues() const {
    const bool same = call_.dtype == (sizeof(T) == 8 ? DType::f64 : DType::f32) && head_.v.column_stride == 1 &&
                      head_.v.row_stride == scratch_.ldv && call_.d_v == scratch_.ldv;
    const bool aligned =
        reinterpret_cast<std::uintptr_t>(head_.v.data) % (static_cast<std::size_t>(scratch_.lanes) * sizeof(T)) == 0;
    return same && aligned ? static_cast<const T*>(head_.v.data) : nullptr;
  }

  // Pass 4 for the only rows of a task, which read v in place.
  void StreamValues(std::int64_t rows, Range needed, std::int64_t first, const States<T>& states) {
    const hn::ScalableTag<T> d;
    T* const sum = scratch_.v;  // not packed into
    std::fill_n(sum, TileRows(static_cast<int>(rows)) * scratch_.ldv, T{0});
    WithType<T>(call_.dtype, [&](auto* type) {
      using S = std::remove_const_t<std::remove_pointer_t<decltype(type)>>;
      const auto* const v = static_cast<const S*>(head_.v.data) + (first + needed.begin) * head_.v.row_stride;
      StreamedSum<T, S>(static_cast<int>(rows), scratch_.s + needed.begin, scratch_.lds, v, head_.v.row_stride,
                        needed.end - needed.begin, sum, scratch_.ldv, scratch_.ldv / scratch_.lanes);
    });
    for (std::int64_t x = 0; x < rows; ++x) {
      const auto factor = hn::Set(d, scratch_.factor[x]);
      for (std::int64_t c = x * scratch_.ldv; c < (x + 1) * scratch_.ldv; c += scratch_.lanes) {
        hn::Store(hn::MulAdd(hn::Load(d, states.o + c), factor, hn::Load(d, sum + c)), d, states.o + c);
      }
    }
  }

  // Pass 4 for a strip: v holds the values of `needed`, rows ldv apart.
  void SumValues(std::int64_t r, std::int64_t rows, Range needed, const T* v, std::int64_t ldv,
                 const States<T>& states) {
    for (std::int64_t x = 0; x < rows; x += kRowTile) {
      WeightedSum<T>(static_cast<int>(std::min<std::int64_t>(kRowTile, rows - x)),
                     scratch_.s + x * scratch_.lds + needed.begin, scratch_.lds, v, ldv, needed.end - needed.begin,
                     scratch_.factor + x, states.o + (r + x) * scratch_.ldv, scratch_.ldv,
                     scratch_.ldv / scratch_.lanes);
    }
  }

  // Pass 4 for one row where v holds Inf or NaN: keys that masks hide are left out, since 0·Inf is not 0. The same sums
  // in the same order as WeightedSum().
  void CarefulSum(std::int64_t r, std::int64_t x, Range needed, std::int64_t first, const States<T>& states) {
    const hn::ScalableTag<T> d;
    const T* const p = scratch_.s + x * scratch_.lds;
    const RowPlace place = PlaceOf(r);
    for (std::int64_t c = 0; c < scratch_.ldv; c += scratch_.lanes) {
      auto sum = hn::Zero(d);
      for (std::int64_t y = needed.begin; y < needed.end; ++y) {
        if (!IsVisible(call_, head_, place.g, place.i, first + y)) continue;
        sum = hn::MulAdd(hn::Set(d, p[y]), hn::Load(d, scratch_.v + (y - values_begin_) * scratch_.ldv + c), sum);
      }
      T* const o = states.o + r * scratch_.ldv + c;
      hn::Store(hn::MulAdd(hn::Load(d, o), hn::Set(d, scratch_.factor[x]), sum), d, o);
    }
  }

  // The weights, once m and l are known: passes 1 and 2 again, p = 2^(s − m)/l, dropout.
  void WriteWeights() {
    RowPlace place = PlaceOf(0);
    for (std::int64_t r = 0; r < rows_; ++r, ++place) {
      const MutableRows& w = head_.weights;
      const std::int64_t at = place.g * w.head_stride + place.i * w.row_stride;
      ZeroColumns(at, -head_.weights_before, head_.k_len + head_.weights_after);
    }
    for (std::int64_t j = 0; j < all_keys_.end; j += call_.tiles.key_block) {
      const Range block = Clip({j, j + call_.tiles.key_block}, all_keys_);
      if (block.empty()) continue;
      std::fill_n(scratch_.packed, scratch_.panels, std::uint8_t{0});
      for (std::int64_t r = 0; r < rows_; r += kStripRows) {
        const std::int64_t rows = std::min<std::int64_t>(kStripRows, rows_ - r);
        const Range needed = Needed(r, rows, block, j);
        if (needed.empty()) continue;
        const Range computed = ScoreStrip(r, rows, needed, j);
        for (std::int64_t x = 0; x < rows; ++x) {
          const RowBlock row = BlockOf(r + x, PlaceOf(r + x), block, j, computed);
          if (!row.seen.empty()) WriteWeightRow(row, r + x, scratch_.s + x * scratch_.lds);
        }
      }
    }
  }

  void WriteWeightRow(const RowBlock& row, std::int64_t r, T* s) {
    const hn::ScalableTag<T> d;
    MaskRow(call_, head_, row, scratch_.dense, s);
    const RowState<T>& state = scratch_.total.rows[r];
    const auto m = hn::Set(d, state.m), norm = hn::Set(d, T{1} / state.l);  // NaN where the row has a NaN
    for (std::int64_t y = row.computed.begin; y < row.computed.end; y += scratch_.lanes) {
      const auto score = hn::Load(d, s + y);
      const auto hidden = hn::Eq(score, hn::Set(d, static_cast<T>(-INFINITY)));
      const auto p = hn::Mul(Exp2(d, hn::Sub(score, m)), norm);
      hn::Store(hn::IfThenZeroElse(hidden, p), d, s + y);
    }
    if (state.l == 0) {  // visible scores are all −inf, and the row is NaN where they are
      for (std::int64_t y = row.seen.begin; y < row.seen.end; ++y) {
        if (IsVisible(call_, head_, row.g, row.i, row.first + y)) s[y] = static_cast<T>(NAN);
      }
    }
    if (call_.dropout > 0) ApplyDropout<T>(dropout_, head_, row, s);
    const MutableRows& w = head_.weights;
    StoreRow<T>(call_.weights_dtype, w.data,
                row.g * w.head_stride + row.i * w.row_stride + (row.first + row.seen.begin) * w.column_stride,
                w.column_stride, row.seen.end - row.seen.begin, T{1}, s + row.seen.begin);
  }

  void ZeroColumns(std::int64_t at, std::int64_t begin, std::int64_t end) {
    std::fill_n(scratch_.s, scratch_.lds, T{0});
    for (std::int64_t j = begin; j < end; j += scratch_.lds) {
      StoreRow<T>(call_.weights_dtype, head_.weights.data, at + j * head_.weights.column_stride,
                  head_.weights.column_stride, std::min(scratch_.lds, end - j), T{1}, scratch_.s);
    }
  }

  const ForwardCall& call_;
  const ForwardTask& task_;
  const ForwardHead& head_;
  const std::int64_t rows_;
  const Scratch<T> scratch_;
  const Dropout dropout_;
  Range all_keys_;
  std::int64_t values_begin_ = 0;  // first key of the block whose value is packed
};

template <class T>
void RunForward(const ForwardCall& call, const ForwardTask& task, std::byte* workspace) {
  if (call.moments) return ForwardTaskRunner<T, true, true>(call, task, workspace).Run();
  if (call.entropy) return ForwardTaskRunner<T, true, false>(call, task, workspace).Run();
  ForwardTaskRunner<T, false, false>(call, task, workspace).Run();
}

template <class T>
void FinishSplit(const ForwardCall& call, const ForwardTask& task, std::int64_t chunks, std::int64_t stride,
                 std::byte* workspace) {
  const Scratch<T> scratch(call, workspace);
  const std::int64_t rows = task.row_end - task.row_begin;
  auto* const from = static_cast<std::byte*>(task.partial);
  Restore(from, rows, scratch.ldv, scratch.total);
  for (std::int64_t chunk = 1; chunk < chunks; ++chunk) {
    Restore(from + chunk * stride, rows, scratch.ldv, scratch.chunk);
    Join(scratch.total, scratch.chunk, rows, scratch.ldv);
  }
  WriteRows<T>(call, task, scratch.total, scratch.ldv);
}

template <class T>
ForwardKernel MakeForwardKernel() {
  ForwardKernel kernel;
  kernel.lanes = static_cast<std::int64_t>(hn::Lanes(hn::ScalableTag<T>()));
  kernel.row_tile = kRowTile;
  kernel.workspace_bytes = [](const ForwardCall& call) { return Scratch<T>(call, nullptr).bytes; };
  kernel.partial_bytes = [](const ForwardCall& call, std::int64_t rows) {
    return PartialBytes<T>(rows, Scratch<T>(call, nullptr).ldv);
  };
  kernel.run = &RunForward<T>;
  kernel.finish_split = &FinishSplit<T>;
  return kernel;
}

}  // namespace keel::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
