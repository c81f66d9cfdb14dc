// The main loop of the forward kernel. For a task (a block of query rows of one head group) it takes the keys block by
// block; for a block it packs kᵀ and v once and lets every strip of rows (two register tiles) do
//
//   pass 1   s = q·kᵀ                            kRowTile rows by a panel of keys at a time
//   pass 2   softcap, bias, ALiBi, masks          only where a row needs them
//   pass 3   m, l, p = softmax(s) so far          then dropout
//   pass 4   o = factor·o + p·v
//
// Tiles leave out the keys that none of their rows sees. When all keys are done, o is divided by l and written, with
// the statistics; if one block has all the keys, pass 4 does this itself, strip by strip.
//
// Cost: a vector of scores takes d_k + d_v fused multiply-adds per lane, the softmax about 14 operations, packing
// (1/3 + 1/10) cycles per element of k and v for all rows of the task. So the FMA ports bound it for d ≥ 64.
#if defined(KEEL_CPU_FORWARD_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef KEEL_CPU_FORWARD_INL_H_
#undef KEEL_CPU_FORWARD_INL_H_
#else
#define KEEL_CPU_FORWARD_INL_H_
#endif

#include <hwy/highway.h>

#include <algorithm>
#include <cmath>

#include "cpu/dropout-inl.h"
#include "cpu/epilogue-inl.h"
#include "cpu/forward.h"
#include "cpu/gemm-inl.h"
#include "cpu/key_sums-inl.h"
#include "cpu/mask-inl.h"
#include "cpu/pack-inl.h"
#include "cpu/scores-inl.h"
#include "cpu/scratch-inl.h"
#include "cpu/softmax-inl.h"
#include "cpu/values-inl.h"

HWY_BEFORE_NAMESPACE();
namespace keel::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Scores up to this are scaled late. In s·scale − m, rounded once, the product is not: where m is the largest score,
// the difference is not 0 but the rounding of m, 4e-6 here.
constexpr double kLateScores = 64;

template <class P, bool kEntropy, bool kMoments>
class ForwardTaskRunner {
 public:
  using T = typename P::T;

  ForwardTaskRunner(const ForwardCall& call, const ForwardTask& task, std::byte* workspace)
      : call_(call),
        task_(task),
        head_(*task.head),
        rows_(task.row_end - task.row_begin),
        scratch_(call, workspace),
        scores_(call, *task.head, task.row_begin, rows_, scratch_),
        all_keys_(scores_.AllKeys()),
        dropout_(call.dropout, call.seed) {}

  void Run() {
    scores_.PrefetchBlock(all_keys_.begin);
    scores_.LoadQueries();
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
      const Range whole = Clip({chunk * tiles.key_chunk, (chunk + 1) * tiles.key_chunk}, all_keys_);
      const Range keys = Clip(whole, {task_.key_begin, task_.key_end});
      if (!first && keys.empty()) continue;
      if (task_.resumes) {
        Restore(task_.partial, rows_, scratch_.ldv, states);
      } else {
        Reset(states, rows_, scratch_.ldv);
      }
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

  // Passes 1 and 2 alone: the scores, to where weights would go.
  void WriteScores() {
    scores_.LoadQueries();
    FillWeights(static_cast<T>(-INFINITY));
    ForEachRow([&](const RowBlock& row, std::int64_t, T* s) {
      scores_.Mask(row, s);
      StoreSeen(row, static_cast<T>(kLn2), s);
    });
  }

 private:
  void TakeBlock(Range block, std::int64_t first, const States<T>& states) {
    std::fill_n(scratch_.packed, scratch_.panels, std::uint8_t{0});
    const Range rows = scores_.Begin(block, finishing_);
    scores_.PrefetchBlock(block.end);
    if (rows.empty()) return;
    typename P::Queue queue;
    ValueSums<P> values(call_, task_, scratch_, {block, first, states, finishing_}, queue);
    const bool late = scores_.ScalesLate();
    bool ahead = false;  // the scores of the strip are there
    const auto strip_at = [&](std::int64_t r) { return r < rows.end ? scores_.StripOf(r, block, first) : Strip{}; };
    Strip next;  // only kernels that compute scores ahead look at a strip before its turn
    if constexpr (P::kLateScale) next = strip_at(rows.begin);
    for (std::int64_t r = rows.begin; r < rows.end; r += P::kStripRows) {
      const Strip strip = P::kLateScale ? next : scores_.StripOf(r, block, first);
      if constexpr (P::kLateScale) next = strip_at(r + P::kStripRows);
      if (strip.needed.empty()) {
        values.Complete();
        if (finishing_) values.WriteZeros(strip);
      } else {
        if (!ahead) {
          values.Complete();
          scores_.Score(strip, first, late);  // pass 1
        }
        if constexpr (P::kLateScale) {
          ahead = late && !next.needed.empty() && scores_.ScoreAhead(next, first, queue);
        }
        const bool masked = JoinStrip(strip, block, first, late, queue, states);
        values.Complete();
        values.Add(strip, masked);  // pass 4
      }
    }
    values.Complete();
  }

  // Passes 2 and 3 for a strip: whether some row does not see some key that another needs.
  HWY_INLINE bool JoinStrip(const Strip& strip, Range block, std::int64_t first, bool late, typename P::Queue& queue,
                            const States<T>& states) {
    constexpr std::int64_t kRows = std::min<std::int64_t>(P::kStripRows, 16);
    [[maybe_unused]] const NormalWeights without_denormals(call_.flushes_weights);
    const Range computed = scores_.Computed(strip);
    queue.Expect(strip.rows * (hwy::DivCeil(computed.end - computed.begin, 4 * scratch_.lanes) + 1));
    const bool plain = scores_.IsPlain(strip, computed);
    bool masked = false;
    for (std::int64_t from = 0; from < strip.rows; from += kRows) {
      std::int64_t visible[kRows];
      T top[kRows], scale[P::kLateScale ? kRows : 1];
      ScoreSums<T> sums[kMoments ? kRows : 1];
      const std::int64_t rows = std::min(kRows, strip.rows - from), r = strip.r + from;
      T* const scores_of_rows = scratch_.ScoresOf(strip) + from * scratch_.lds;
      RowPlace place = scores_.PlaceOf(r);
      // The maximum has latency: all rows first that the first-level cache has room for.
      for (std::int64_t x = 0; x < rows; ++x) {
        T* const s = scores_of_rows + x * scratch_.lds;
        if constexpr (P::kLateScale) {
          scale[x] = late ? scratch_.late_scale[r + x] : T{1};
          if (late && !(scale[x] > 0 && scale[x] < static_cast<T>(INFINITY))) {  // the largest must stay so
            scores_.ScaleRow(r + x, computed, s, s);
            scale[x] = 1;
          }
        }
        Range seen = computed;
        visible[x] = computed.end - computed.begin;
        const bool hides = !plain && scores_.HasRangesOnly();
        if (hides) {
          seen = scores_.RangeOf(r + x, block, first, computed);
          visible[x] = seen.end - seen.begin;
        } else if (!plain) {
          const RowBlock row = scores_.BlockOf(r + x, place, block, first, computed);
          visible[x] = scores_.Mask(row, s);
          seen = row.seen;
          ++place;
        }
        const std::int64_t round = 2 * scratch_.lanes;
        if constexpr (kMoments) sums[x] = {};
        if (kMoments && !seen.empty() && visible[x] == seen.end - seen.begin && seen.begin % round == 0 &&
            seen.end % round == 0) {
          if (hides) HideOutside(computed, seen, s);
          top[x] = MaxAndSums(s, seen, sums[kMoments ? x : 0]);
        } else {
          top[x] = hides ? HideAndMax(computed, seen, s) : MaxOfBlock(s, computed);
        }
        if constexpr (P::kLateScale) top[x] *= scale[x];
        masked = masked || visible[x] < strip.needed.end - strip.needed.begin;
        queue.Tick();
      }
      for (std::int64_t x = 0; x < rows; ++x) {
        T* const s = scores_of_rows + x * scratch_.lds;
        if constexpr (P::kLateScale) {
          if (scale[x] != 1 && !(std::abs(top[x]) <= kLateScores)) {
            scores_.ScaleRow(r + x, computed, s, s);
            scale[x] = 1;
            if constexpr (kMoments) sums[x] = {};
          }
        }
        const BlockOfScores<T> scores = {computed, top[x], P::kLateScale ? scale[x] : T{1}, sums[kMoments ? x : 0]};
        states.rows[r + x].visible += visible[x];
        scratch_.FactorsOf(strip)[from + x] = JoinRow(r + x, s, scores, block, first, queue, states.rows[r + x]);
      }
    }
    return masked;
  }

  // Pass 3 for a row, whose scores s become weights: the factor for its output so far.
  HWY_INLINE T JoinRow(std::int64_t r, T* s, const BlockOfScores<T>& scores, Range block, std::int64_t first,
                       typename P::Queue& queue, RowState<T>& state) {
    if (call_.dropout == 0) return JoinBlock<P, kEntropy, kMoments>(s, scores, queue, state);
    const T factor = JoinBlock<FmaProducts<T>, kEntropy, kMoments>(s, scores, queue, state);
    const Range computed = scores.computed;
    ApplyDropout<T>(dropout_, head_, scores_.BlockOf(r, scores_.PlaceOf(r), block, first, computed), s);
    P::RoundWeights(computed, s);
    return factor;
  }

  // The weights, once m and l are known: passes 1 and 2 again, p = 2^(s − m)/l, dropout.
  void WriteWeights() {
    FillWeights(T{0});
    ForEachRow([&](const RowBlock& row, std::int64_t r, T* s) { WriteWeightRow(row, r, s); });
  }

  // Pass 1 again: visit(row, r, its scores) for each row and each block of keys of which it sees some.
  template <class Visit>
  HWY_INLINE void ForEachRow(const Visit& visit) {
    for (std::int64_t j = 0; j < all_keys_.end; j += call_.tiles.key_block) {
      const Range block = Clip({j, j + call_.tiles.key_block}, all_keys_);
      if (block.empty()) continue;
      std::fill_n(scratch_.packed, scratch_.panels, std::uint8_t{0});
      const Range rows = scores_.Begin(block);
      for (std::int64_t r = rows.begin; r < rows.end; r += P::kStripRows) {
        const Strip strip = scores_.StripOf(r, block, j);
        if (strip.needed.empty()) continue;
        const Range computed = scores_.Score(strip, j);
        for (std::int64_t x = 0; x < strip.rows; ++x) {
          const RowBlock row = scores_.BlockOf(r + x, scores_.PlaceOf(r + x), block, j, computed);
          if (!row.seen.empty()) visit(row, r + x, scratch_.ScoresOf(strip) + x * scratch_.lds);
        }
      }
    }
  }

  void WriteWeightRow(const RowBlock& row, std::int64_t r, T* s) {
    const hn::ScalableTag<T> d;
    scores_.Mask(row, s);
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
    StoreSeen(row, T{1}, s);
  }

  // What a row sees of a block, times `factor`, into its weights.
  HWY_INLINE void StoreSeen(const RowBlock& row, T factor, const T* s) {
    const MutableRows& w = head_.weights;
    StoreRow<T>(call_.weights.dtype, w.data,
                row.g * w.head_stride + row.i * w.row_stride + (row.first + row.seen.begin) * w.column_stride,
                w.column_stride, row.seen.end - row.seen.begin, factor, s + row.seen.begin);
  }

  // All weights of the rows, for keys of other sequences too.
  void FillWeights(T value) {
    const MutableRows& w = head_.weights;
    std::fill_n(scratch_.s, scratch_.lds, value);
    const std::int64_t end = head_.k_len + head_.weights_after;
    RowPlace place = scores_.PlaceOf(0);
    for (std::int64_t r = 0; r < rows_; ++r, ++place) {
      const std::int64_t at = place.g * w.head_stride + place.i * w.row_stride;
      for (std::int64_t j = -head_.weights_before; j < end; j += scratch_.lds) {
        StoreRow<T>(call_.weights.dtype, w.data, at + j * w.column_stride, w.column_stride,
                    std::min(scratch_.lds, end - j), T{1}, scratch_.s);
      }
    }
  }

  const ForwardCall& call_;
  const ForwardTask& task_;
  const ForwardHead& head_;
  const std::int64_t rows_;
  const Scratch<P> scratch_;
  const ScoreRows<P> scores_;
  const Range all_keys_;
  const Dropout dropout_;
  bool finishing_ = false;  // one block has all the keys: rows are written with it
};

template <class P>
void RunForward(const ForwardCall& call, const ForwardTask& task, std::byte* workspace) {
  P::Begin();
  if (call.keeps_moments) {
    ForwardTaskRunner<P, true, true>(call, task, workspace).Run();
  } else if (call.keeps_entropy) {
    ForwardTaskRunner<P, true, false>(call, task, workspace).Run();
  } else {
    ForwardTaskRunner<P, false, false>(call, task, workspace).Run();
  }
  P::End();
}

template <class P>
void RunScores(const ForwardCall& call, const ForwardTask& task, std::byte* workspace) {
  P::Begin();
  ForwardTaskRunner<P, false, false>(call, task, workspace).WriteScores();
  P::End();
}

template <class P>
void FinishSplit(const ForwardCall& call, const ForwardTask& task, std::int64_t chunks, std::int64_t stride,
                 std::byte* workspace) {
  using T = typename P::T;
  const Scratch<P> scratch(call, workspace);
  const std::int64_t rows = task.row_end - task.row_begin;
  auto* const from = static_cast<std::byte*>(task.partial);
  Restore(from, rows, scratch.ldv, scratch.total);
  for (std::int64_t chunk = 1; chunk < chunks; ++chunk) {
    Restore(from + chunk * stride, rows, scratch.ldv, scratch.chunk);
    Join(scratch.total, scratch.chunk, rows, scratch.ldv);
  }
  WriteRows<T>(call, task, scratch.total, scratch.ldv);
}

template <class P>
ForwardKernel MakeForwardKernel() {
  ForwardKernel kernel;
  kernel.workspace_bytes = [](const ForwardCall& call) { return Scratch<P>(call, nullptr).bytes; };
  kernel.partial_bytes = [](const ForwardCall& call, std::int64_t rows) {
    return PartialBytes<typename P::T>(rows, Scratch<P>(call, nullptr).ldv);
  };
  kernel.run = &RunForward<P>;
  kernel.finish_split = &FinishSplit<P>;
  kernel.scores = &RunScores<P>;
  kernel.key_sums_bytes = &KeySumsRunner<P>::WorkspaceBytes;
  kernel.key_sums = &RunKeySums<P>;
  return kernel;
}

}  // namespace keel::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
