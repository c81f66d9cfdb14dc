// The main loop of the forward kernel. For a task (a block of query rows of one head group) it takes the keys block by
// block; for a block it packs kᵀ and v once and lets every strip of rows (two register tiles) do
//
//   pass 1   s = q·kᵀ                            kRowTile rows by a panel of keys at a time
//   pass 2   softcap, bias, ALiBi, masks          only where a row needs them
//   pass 3   m, l, p = softmax(s) so far          then dropout
//   pass 4   o = factor·o + p·v
//
// Tiles leave out the keys that none of their rows sees. When all keys are done, o is divided by l and written, with
// the statistics; where one block has all the keys, pass 4 does so itself, strip by strip.
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

#include "cpu/decode-inl.h"
#include "cpu/dropout-inl.h"
#include "cpu/epilogue-inl.h"
#include "cpu/forward.h"
#include "cpu/gemm-inl.h"
#include "cpu/mask-inl.h"
#include "cpu/pack-inl.h"
#include "cpu/scratch-inl.h"
#include "cpu/softmax-inl.h"
#include "cpu/values-inl.h"

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
        dropout_(call.dropout, call.seed),
        dense_(HasDenseTerms(call, *task.head)) {}

  void Run() {
    LoadQueries();
    const Tiles& tiles = call_.tiles;
    const std::int64_t only = all_keys_.begin / tiles.key_block * tiles.key_block;
    if (!all_keys_.empty() && all_keys_.end <= only + tiles.key_block && task_.partial == nullptr) {
      finishing_ = true;
      std::fill_n(scratch_.total.rows, rows_, EmptyState<T>());
      TakeBlock(all_keys_, only, scratch_.total);
      if (head_.weights.data != nullptr) WriteWeights();
      return;
    }
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
    Range all = {INT64_MAX, 0};
    WithType<T>(call_.dtype, [&](auto* type) {
      const auto* const q = static_cast<decltype(type)>(head_.q.data);
      RowPlace place = PlaceOf(0);
      for (std::int64_t r = 0; r < rows_; ++r, ++place) {
        const Range keys = VisibleKeys(call_, head_, place.i);
        scratch_.keys[r] = keys;
        if (!keys.empty()) all = {std::min(all.begin, keys.begin), std::max(all.end, keys.end)};
        const double scale = ScaleOf(call_, head_, place.g, place.i);
        LoadRow<T>(q + place.g * head_.q.head_stride + place.i * head_.q.row_stride, head_.q.column_stride, call_.d_k,
                   static_cast<T>(scale * kLog2E), scratch_.q + r * scratch_.ldq);
      }
    });
    all_keys_ = all.empty() ? Range{0, 0} : all;
    std::fill(scratch_.q + rows_ * scratch_.ldq, scratch_.q + TiledRows(rows_) * scratch_.ldq, T{0});
    if (rows_ <= kRowTile && head_.k_len >= scratch_.panel) {
      TransposeQueries(static_cast<int>(rows_), scratch_.q, scratch_.ldq, call_.d_k, scratch_.q_columns);
    }
  }

  Strip StripOf(std::int64_t r, Range block, std::int64_t first) const {
    Strip strip = {r, std::min<std::int64_t>(kStripRows, rows_ - r), {INT64_MAX, 0}, {}};
    for (std::int64_t x = 0; x < strip.rows; x += kRowTile) {
      const Range seen = NeededKeys(scratch_.keys + r + x, std::min<std::int64_t>(kRowTile, strip.rows - x), block);
      if (seen.empty()) continue;
      const Range tile = {seen.begin - first, seen.end - first};
      strip.tile[x / kRowTile] = tile;
      strip.needed = {std::min(strip.needed.begin, tile.begin), std::max(strip.needed.end, tile.end)};
    }
    return strip;
  }

  // Scores of a strip against the panels that cover what it needs, packed when a first strip asks for them.
  Range ScoreStrip(const Strip& strip, std::int64_t first) {
    const auto& [r, rows, needed, tile] = strip;
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
      // Of a tile's last panel only the vectors that hold a key; what else s has there is hidden with the masks.
      for (std::int64_t x = 0; x < rows; x += kRowTile) {
        const Range seen = Clip(tile[x / kRowTile], {panel * width, (panel + 1) * width});
        if (seen.empty()) continue;
        const std::int64_t vectors = (seen.end - panel * width + scratch_.lanes - 1) / scratch_.lanes;
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
    return {place.g, place.i, first, computed, SeenOf(scratch_.keys[r], block, first, computed)};
  }

  void TakeBlock(Range block, std::int64_t first, const States<T>& states) {
    std::fill_n(scratch_.packed, scratch_.panels, std::uint8_t{0});
    ValueSums<T> values(call_, task_, scratch_, {block, first, states, finishing_});
    for (std::int64_t r = 0; r < rows_; r += kStripRows) {
      const Strip strip = StripOf(r, block, first);
      const auto& [_, rows, needed, tile] = strip;
      if (needed.empty()) {
        if (finishing_) values.WriteZeros(strip);
        continue;
      }
      const Range computed = ScoreStrip(strip, first);  // pass 1
      bool masked = false;
      std::int64_t visible[kStripRows];
      T top[kStripRows];
      RowPlace place = PlaceOf(r);
      for (std::int64_t x = 0; x < rows; ++x, ++place) {
        T* const s = scratch_.s + x * scratch_.lds;
        const RowBlock row = BlockOf(r + x, place, block, first, computed);
        visible[x] = MaskRow(call_, head_, dense_, row, scratch_.dense, s);  // pass 2
        top[x] = MaxOfBlock(s, computed);                                    // which waits: all rows first
        masked = masked || visible[x] < needed.end - needed.begin;
      }
      for (std::int64_t x = 0; x < rows; ++x) {
        T* const s = scratch_.s + x * scratch_.lds;
        RowState<T>& state = states.rows[r + x];
        const bool whole = visible[x] == call_.tiles.key_block;
        scratch_.factor[x] = JoinBlock<T, kEntropy, kMoments>(s, computed, whole, top[x], state);  // pass 3
        state.visible += visible[x];
        if (call_.dropout > 0) {
          ApplyDropout<T>(dropout_, head_, BlockOf(r + x, PlaceOf(r + x), block, first, computed), s);
        }
      }
      values.Add(strip, masked);  // pass 4
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
        const Strip strip = StripOf(r, block, j);
        if (strip.needed.empty()) continue;
        const Range computed = ScoreStrip(strip, j);
        for (std::int64_t x = 0; x < strip.rows; ++x) {
          const RowBlock row = BlockOf(r + x, PlaceOf(r + x), block, j, computed);
          if (!row.seen.empty()) WriteWeightRow(row, r + x, scratch_.s + x * scratch_.lds);
        }
      }
    }
  }

  void WriteWeightRow(const RowBlock& row, std::int64_t r, T* s) {
    const hn::ScalableTag<T> d;
    MaskRow(call_, head_, dense_, row, scratch_.dense, s);
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
    StoreRow<T>(call_.weights.dtype, w.data,
                row.g * w.head_stride + row.i * w.row_stride + (row.first + row.seen.begin) * w.column_stride,
                w.column_stride, row.seen.end - row.seen.begin, T{1}, s + row.seen.begin);
  }

  void ZeroColumns(std::int64_t at, std::int64_t begin, std::int64_t end) {
    std::fill_n(scratch_.s, scratch_.lds, T{0});
    for (std::int64_t j = begin; j < end; j += scratch_.lds) {
      StoreRow<T>(call_.weights.dtype, head_.weights.data, at + j * head_.weights.column_stride,
                  head_.weights.column_stride, std::min(scratch_.lds, end - j), T{1}, scratch_.s);
    }
  }

  const ForwardCall& call_;
  const ForwardTask& task_;
  const ForwardHead& head_;
  const std::int64_t rows_;
  const Scratch<T> scratch_;
  const Dropout dropout_;
  const bool dense_;
  Range all_keys_;
  bool finishing_ = false;  // one block has all the keys: rows are written with it
};

template <class T>
void RunForward(const ForwardCall& call, const ForwardTask& task, std::byte* workspace) {
  if (call.keeps_moments) return ForwardTaskRunner<T, true, true>(call, task, workspace).Run();
  if (call.keeps_entropy) return ForwardTaskRunner<T, true, false>(call, task, workspace).Run();
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
