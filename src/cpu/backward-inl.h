// The main loop of the backward kernel. A task owns a block of keys. It packs kᵀ, vᵀ and k once, and for every block of
// rows undoes the passes of forward-inl.h, from the last to the first:
//
//   pass 1   s = q·kᵀ                                       as in the forward pass
//   pass 2   softcap, bias, ALiBi, masks                     likewise, keeping the softcap's slope
//   pass 3   p = 2^(s − lse)                                 no running maximum: lse is known
//   pass 4   dp = do·vᵀ       dv += pᵀ·do                   o = p·v
//   pass 3'  ds = p∘(dp − δ)                                 p = softmax(s)
//   pass 2'  dbias += ds      ds = slope∘ds                  s = softcap(s) + bias
//   pass 1'  dk += dsᵀ·q      dq += ds·k                     s = q·kᵀ
//
// Five products, each d multiply-adds per score, so the FMA ports bound it. p and ds are never transposed: the register
// tile reads p by columns.
#if defined(KEEL_CPU_BACKWARD_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef KEEL_CPU_BACKWARD_INL_H_
#undef KEEL_CPU_BACKWARD_INL_H_
#else
#define KEEL_CPU_BACKWARD_INL_H_
#endif

#include <hwy/highway.h>

#include <algorithm>
#include <cmath>
#include <thread>

#include "cpu/backward.h"
#include "cpu/backward_block-inl.h"
#include "cpu/backward_keys-inl.h"
#include "cpu/backward_prepare-inl.h"
#include "cpu/backward_row-inl.h"
#include "cpu/dropout-inl.h"
#include "cpu/gemm-inl.h"
#include "cpu/mask-inl.h"
#include "cpu/pack-inl.h"

HWY_BEFORE_NAMESPACE();
namespace keel::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

template <class P>
class BackwardRunner : public BackwardPreparer<P> {
  using T = typename P::T;
  using Operand = typename P::Operand;

 public:
  BackwardRunner(const BackwardCall& call, const BackwardHead& head, std::byte* workspace)
      : BackwardPreparer<P>(call, head, workspace),
        dk_(f_.d_k, scratch_.ldk, scratch_, scratch_.dk),
        dv_(f_.d_v, scratch_.ldv, scratch_, scratch_.dv) {}

  void Run(const BackwardTask& task) {
    const std::int64_t first = task.block * call_.tiles.key_block;
    const Range block = {first, std::min(first + call_.tiles.key_block, h_.k_len)};
    const std::int64_t keys = block.end - block.begin;
    if (call_.dk) dk_.Clear(keys);
    if (call_.dv) dv_.Clear(keys);
    if (call_.drelative_bias) {
      std::fill_n(scratch_.drelative, f_.group * relative_length(f_.radius, f_.relative_pad), T{0});
    }
    // Blocks of rows from the last to the first, counted by position: under a window a block of keys then begins with
    // rows that the previous block does not see, and ends with those it shares with it. Rows after these see no
    // earlier block of keys, and rows before them no later one, so no task waits for what is left out. Blocks that a
    // mask hides from all rows are the first or the last ones.
    const Range seen = RowsThatSee(block), listed = RowsThatList(block);
    const std::int64_t step = call_.tiles.row_block, places = hwy::DivCeil(rows_, step);
    const auto tell = [&](std::int64_t place) {
      if (task.done != nullptr) task.done->store(place, std::memory_order_release);
    };
    if (!seen.empty()) {
      bool packed = false;
      const std::int64_t last = (seen.end - 1) / step;
      tell(places - 1 - last);
      for (std::int64_t at = last; at >= seen.begin / step; --at) {
        const std::int64_t r = at * step, rows = std::min(step, rows_ - r), place = places - 1 - at;
        const bool skipped = Clip({r, r + rows}, listed).empty() || HidesAll(r, rows, block);
        if (!skipped) {
          FindKeys(r, rows);
          FindSeen(r, rows, block);
          if (at > seen.begin / step) PrefetchSeen(r - step, step, block);
          if (!packed) PackKeys(block);
          packed = true;
          LoadQueries(r, rows);
          LoadGradients(r, rows);
          TakeBlock(r, rows, block);
        }
        if (task.before != nullptr) {
          while (task.before->load(std::memory_order_acquire) <= place) std::this_thread::yield();
        }
        if (call_.sums_dq() && !skipped) AddToRows(r, rows, block, QuerySums(r));
        tell(place + 1);
      }
    }
    if (call_.drelative_bias) FlushRelativeBias(task);
    tell(INT64_MAX);
    WriteKeys(block);
  }

  // From a row's sums to dq and dscale.
  void Finish(std::int64_t row_begin, std::int64_t row_end) {
    RowPlace place = PlaceOf(row_begin);
    for (std::int64_t r = row_begin; r < row_end; ++r, ++place) {
      const std::int64_t i = place.i, g = place.g;
      T* const sums = memory_.dq + r * memory_.ldq;
      const bool masked = memory_.numbers[r].top == static_cast<T>(-INFINITY);
      if (masked) std::fill_n(sums, memory_.ldq, T{0});
      if (call_.dscale) {
        std::fill_n(scratch_.two_rows, scratch_.columns_k, T{0});
        if (!masked) LoadQuery(g, i, T{1}, scratch_.two_rows);
        static_cast<double*>(head_.dscale.data)[g * head_.dscale.head_stride + i * head_.dscale.row_stride] =
            static_cast<double>(Dot(scratch_.two_rows, sums, scratch_.columns_k));
      }
      if (call_.dq) {
        Write(call_.dq.dtype, head_.dq, g * head_.dq.head_stride + i * head_.dq.row_stride, f_.d_k,
              masked ? T{0} : static_cast<T>(ScaleOf(f_, h_, g, i)), sums);
      }
    }
  }

 private:
  using BackwardBlock<P>::call_;
  using BackwardBlock<P>::dense_;
  using BackwardBlock<P>::f_;
  using BackwardBlock<P>::h_;
  using BackwardBlock<P>::head_;
  using BackwardBlock<P>::memory_;
  using BackwardBlock<P>::rows_;
  using BackwardBlock<P>::scratch_;
  using BackwardBlock<P>::seen_;
  using BackwardBlock<P>::dropout_;
  using BackwardBlock<P>::masked_;
  using BackwardBlock<P>::AddToBias;
  using BackwardBlock<P>::AddToKeys;
  using BackwardBlock<P>::AddToRows;
  using BackwardBlock<P>::HasFiniteGradients;
  using BackwardBlock<P>::HasFiniteQueries;
  using BackwardBlock<P>::HidesAll;
  using BackwardBlock<P>::FindRows;
  using BackwardBlock<P>::GradientsTimesValues;
  using BackwardBlock<P>::LoadGradients;
  using BackwardBlock<P>::SpreadNaN;
  using BackwardBlock<P>::Write;
  using BackwardBlock<P>::BlockOf;
  using BackwardBlock<P>::Computed;
  using BackwardBlock<P>::FindKeys;
  using BackwardBlock<P>::FindNeeded;
  using BackwardBlock<P>::FindSeen;
  using BackwardBlock<P>::LoadQueries;
  using BackwardBlock<P>::LoadQuery;
  using BackwardBlock<P>::MultiplyPanels;
  using BackwardBlock<P>::PackPanels;
  using BackwardBlock<P>::PlaceOf;
  using BackwardBlock<P>::PrefetchSeen;
  using BackwardBlock<P>::QueriesTimesKeys;
  using BackwardBlock<P>::RowsThatList;
  using BackwardBlock<P>::ZeroTail;
  using BackwardBlock<P>::kNothing;

  // The rows that lengths, causal mask and window let see any key of the block: those whose diagonal lies between
  // block.begin − window_right and block.end − 1 + window_left.
  Range RowsThatSee(Range block) const {
    Range queries = {0, h_.q_len};
    constexpr std::int64_t kUnbounded = INT64_MAX / 4;
    const std::int64_t left = f_.sequences.window_left, right = f_.sequences.window_right;
    if (right < kUnbounded) queries.begin = std::max(queries.begin, block.begin - right - h_.diagonal);
    if (left < kUnbounded) queries.end = std::min(queries.end, block.end + left - h_.diagonal);
    if (queries.empty() || Clip(block, {h_.k_begin, h_.k_end}).empty()) return {0, 0};
    return {queries.begin * f_.group, queries.end * f_.group};
  }

  void PackKeys(Range block) {
    PackPanels(f_.dtype, h_.k, block, {f_.d_k}, scratch_.k_panels);
    if (call_.needs_ds()) PackPanels(f_.dtype, h_.v, block, {f_.d_v}, scratch_.v_panels);
    finite_k_ = true;
    if (call_.sums_dq()) {
      finite_k_ = P::PackValues(f_.dtype, h_.k, block, block.begin, f_.d_k, {scratch_.ldk}, scratch_.k);
    }
  }

  // All passes of a block of rows and a block of keys, except dq.
  void TakeBlock(std::int64_t r, std::int64_t rows, Range block) {
    const std::int64_t keys = block.end - block.begin, padded = P::PaddedKeys(keys);
    FindNeeded(rows, block);
    const auto prefetch = [&](std::int64_t x, std::int64_t tile_rows, Range needed, std::int64_t y) {
      if (dense_) PrefetchDenseTerms(f_, h_, r + x, tile_rows, needed, block.begin, y);
    };
    MultiplyPanels(QueriesTimesKeys(), rows, prefetch);  // pass 1
    if (call_.needs_ds()) {                              // pass 4: dp
      MultiplyPanels(GradientsTimesValues(), rows, kNothing);
    }
    masked_ = false;
    RowPlace place = PlaceOf(r);
    for (std::int64_t x = 0; x < rows; ++x, ++place) {
      T *const s = scratch_.s + x * scratch_.lds, *const t = scratch_.t + x * scratch_.lds;
      const Range computed = Computed(x);
      std::int64_t visible = 0;
      if (!computed.empty()) visible = TakeRow(memory_.numbers[r + x], BlockOf(x, place, block, computed), s, t);
      masked_ = masked_ || visible < keys;
      if (computed.begin > 0 || computed.end < padded) {
        ZeroOutside(computed, padded, s);
        if (call_.needs_ds()) ZeroOutside(computed, padded, t);
      }
      if constexpr (P::kPairs) {
        if (x % 2 == 1) RoundRows(x - 1, rows, keys);
      }
    }
    if constexpr (P::kPairs) {
      for (std::int64_t x = rows / 2 * 2; x < 2 * P::Steps(rows); x += 2) RoundRows(x, rows, keys);
    }
    FindRows(rows, block);
    if (call_.dv) AddToKeys(r, rows, block, Values(r, rows), dv_);  // pass 4
    if (call_.dk) AddToKeys(r, rows, block, Keys(rows), dk_);       // pass 1'
  }

  // Zeroes what was not computed of a row of `padded` keys.
  static HWY_NOINLINE void ZeroOutside(Range computed, std::int64_t padded, T* row) {
    std::fill(row, row + computed.begin, T{0});
    if (computed.end < padded) std::fill(row + computed.end, row + padded, T{0});
  }

  // Passes 2 and 3 of one row and back: s becomes what multiplies do in dv, t = dp becomes ds. Returns how many keys of
  // the block are visible.
  std::int64_t TakeRow(const RowNumbers<T>& numbers, const RowBlock& row, T* s, T* t) {
    const Range computed = row.computed;
    const bool capped = f_.softcap > 0 && call_.needs_ds();
    if (capped) FindSlope(f_.softcap, computed, s, scratch_.slope);
    const std::int64_t visible = MaskRow(f_, h_, dense_, row, scratch_.dense, s);  // pass 2
    if (f_.dropout > 0) {
      std::fill(scratch_.kept + computed.begin, scratch_.kept + computed.end, T{1});
      ApplyDropout<T>(dropout_, h_, row, scratch_.kept);
      if (call_.needs_ds()) Multiply(t, scratch_.kept, computed);
    }
    if (numbers.top != numbers.top) {
      SpreadNaN(row, s, t);
    } else if (call_.needs_ds()) {
      Weigh<T, true>(numbers, computed, s, t);  // passes 3 and 3'
    } else {
      Weigh<T, false>(numbers, computed, s, t);
    }
    if (call_.dbias) AddToBias(row, t);  // pass 2'
    if (call_.drelative_bias) AddToRelativeBias(row, t);
    if (capped) Multiply(t, scratch_.slope, computed);
    if (f_.dropout > 0) Multiply(s, scratch_.kept, computed);
    return visible;
  }

  // Sums of ds by distance, padding included: rows of it lie side by side as those of the table do.
  void AddToRelativeBias(const RowBlock& row, const T* ds) {
    const hn::ScalableTag<T> d;
    T* const sums = scratch_.drelative + row.g * relative_length(f_.radius, f_.relative_pad) +
                    relative_start(row.first - row.i - h_.diagonal, f_.radius, f_.relative_pad);
    std::int64_t y = row.seen.begin;
    for (; y + scratch_.lanes <= row.seen.end; y += scratch_.lanes) {
      hn::StoreU(hn::Add(hn::LoadU(d, sums + y), hn::LoadU(d, ds + y)), d, sums + y);
    }
    for (; y < row.seen.end; ++y) sums[y] += ds[y];
  }

  // Adds this task's sums to the head's, after those of the preceding keys.
  void FlushRelativeBias(const BackwardTask& task) {
    if (task.before != nullptr) {
      while (task.before->load(std::memory_order_acquire) != INT64_MAX) std::this_thread::yield();
    }
    const std::int64_t length = relative_length(f_.radius, f_.relative_pad);
    for (std::int64_t g = 0; g < f_.group; ++g) {
      double* const to = static_cast<double*>(head_.drelative.data) + g * head_.drelative.head_stride;
      for (std::int64_t x = 0; x < length; ++x) {
        to[std::clamp<std::int64_t>(x - f_.relative_pad, 0, 2 * f_.radius)] +=
            static_cast<double>(scratch_.drelative[g * length + x]);
      }
    }
  }

  // Pairs: rounds p and ds of rows x and x + 1. Both in pairs of rows, for the sums over rows, take the place of the
  // first row, ds times scale·log₂e as q is not; ds by rows, for the sums over keys, goes to its own place.
  void RoundRows(std::int64_t x, std::int64_t rows, std::int64_t keys) {
    const hn::ScalableTag<T> d;
    const std::int64_t n = scratch_.lanes, lds = scratch_.lds, end = P::PaddedKeys(keys);
    T *const s = scratch_.s + x * lds, *const t = scratch_.t + x * lds;
    for (std::int64_t row = std::max(x, rows); row < x + 2; ++row) {  // there is none
      std::fill_n(scratch_.s + row * lds, end, T{0});
      if (call_.needs_ds()) std::fill_n(scratch_.t + row * lds, end, T{0});
    }
    if (call_.dv) {
      for (std::int64_t y = 0; y < end; y += n) {
        P::Round::StorePairs(d, hn::Load(d, s + y), hn::Load(d, s + lds + y), reinterpret_cast<Pair*>(s) + y);
      }
    }
    if (!call_.needs_ds()) return;
    const auto even = hn::Set(d, x < rows ? scratch_.scale[x] : T{0});
    const auto odd = hn::Set(d, x + 1 < rows ? scratch_.scale[x + 1] : T{0});
    auto* const ds0 = reinterpret_cast<BFloat16*>(scratch_.ds + x * scratch_.ldds);
    auto* const ds1 = reinterpret_cast<BFloat16*>(scratch_.ds + (x + 1) * scratch_.ldds);
    for (std::int64_t y = 0; y < end; y += 2 * n) {
      const auto a0 = hn::Load(d, t + y), a1 = hn::Load(d, t + y + n);
      const auto b0 = hn::Load(d, t + lds + y), b1 = hn::Load(d, t + lds + y + n);
      P::Round::Store(d, a0, a1, ds0 + y);
      P::Round::Store(d, b0, b1, ds1 + y);
      P::Round::StorePairs(d, hn::Mul(a0, even), hn::Mul(b0, odd), reinterpret_cast<Pair*>(t) + y);
      P::Round::StorePairs(d, hn::Mul(a1, even), hn::Mul(b1, odd), reinterpret_cast<Pair*>(t) + y + n);
    }
  }

  // What multiplies what in dv and dk.
  KeyTerms<P> Values(std::int64_t r, std::int64_t rows) const {
    MakeFactors(scratch_.dout, scratch_.ldo, rows, f_.d_v, scratch_.dout_factors, scratch_.ldof);
    return {.weights = scratch_.s,
            .ldw = kWeightRows * scratch_.lds,
            .values = scratch_.dout,
            .ld = scratch_.ldo,
            .finite = !masked_ || HasFiniteGradients(r, rows),
            .factors = scratch_.dout_factors,
            .ldf = scratch_.ldof};
  }
  KeyTerms<P> Keys(std::int64_t rows) const {
    MakeFactors(scratch_.q, scratch_.ldq, rows, f_.d_k, scratch_.q_factors, scratch_.ldqf);
    return {.weights = scratch_.t,
            .ldw = kWeightRows * scratch_.lds,
            .values = scratch_.q,
            .ld = scratch_.ldq,
            .finite = !masked_ || HasFiniteQueries(rows),
            .factors = scratch_.q_factors,
            .ldf = scratch_.ldqf};
  }
  static constexpr std::int64_t kWeightRows = P::kPairs ? 2 : 1;  // rows of scores per row of weights
  static void MakeFactors(const Operand* values, std::int64_t ld, std::int64_t rows, std::int64_t columns, Operand* to,
                          std::int64_t ldf) {
    if constexpr (P::kTransposesSums) {
      TransposePairs(values, ld, rows, columns, P::Steps(rows), to, ldf);
    } else if constexpr (P::kPairs) {
      PairRows(values, ld, rows, columns, to, ldf);
    }
  }
  // And in the sums of dq.
  RowTerms<P> QuerySums(std::int64_t r) const {
    const auto [ds, ldds] = [&] {
      if constexpr (P::kPairs) return std::pair{static_cast<const Operand*>(scratch_.ds), scratch_.ldds};
      if constexpr (!P::kPairs) return std::pair{static_cast<const Operand*>(scratch_.t), scratch_.lds};
    }();
    T* const sums = memory_.dq + r * memory_.ldq;
    return {ds, ldds, scratch_.k, {scratch_.ldk}, sums, memory_.ldq, scratch_.columns_k, finite_k_};
  }

  void WriteKeys(Range block) {
    const auto write = [&](const MutableStrided& gradient, const MutableRows& to, std::int64_t d, T factor,
                           const KeyGradients<P>& sums) {
      if (!gradient) return;
      for (std::int64_t j = block.begin; j < block.end; ++j) {
        Write(gradient.dtype, to, j * to.row_stride, d, factor, sums.Row(j - block.begin));
      }
    };
    write(call_.dk, head_.dk, f_.d_k, static_cast<T>(kLn2), dk_);  // q, or ds, was multiplied by scale·log₂e
    write(call_.dv, head_.dv, f_.d_v, T{1}, dv_);
  }

  KeyGradients<P> dk_, dv_;
  bool finite_k_ = true;
};

template <class P>
BackwardKernel MakeBackwardKernel() {
  using T = typename P::T;
  BackwardKernel kernel;
  kernel.panel_bytes = kTileVectors * static_cast<std::int64_t>(hn::Lanes(hn::ScalableTag<T>()) * sizeof(T));
  kernel.workspace_bytes = [](const BackwardCall& call) { return BackwardScratch<P>(call, nullptr).bytes; };
  kernel.head_bytes = [](const BackwardCall& call, std::int64_t rows, std::int64_t) {
    return HeadMemory<P>(call, rows, nullptr).bytes;
  };
  kernel.prepare = [](const BackwardCall& call, const BackwardHead& head, std::int64_t begin, std::int64_t end,
                      std::byte* workspace) {
    P::Begin();
    BackwardPreparer<P>(call, head, workspace).Prepare(begin, end);
    P::End();
  };
  kernel.run = [](const BackwardCall& call, const BackwardTask& task, std::byte* workspace) {
    P::Begin();
    BackwardRunner<P>(call, *task.head, workspace).Run(task);
    P::End();
  };
  kernel.finish = [](const BackwardCall& call, const BackwardHead& head, std::int64_t begin, std::int64_t end,
                     std::byte* workspace) { BackwardRunner<P>(call, head, workspace).Finish(begin, end); };
  kernel.whole = [](const BackwardCall& call, const BackwardHead& head, std::int64_t lines, std::int64_t blocks,
                    std::byte* workspace) {
    P::Begin();
    BackwardRunner<P> runner(call, head, workspace);
    runner.Prepare(0, lines);
    for (std::int64_t block = 0; block < blocks; ++block) runner.Run({&head, block});
    if (call.sums_dq()) runner.Finish(0, lines);
    P::End();
  };
  return kernel;
}

}  // namespace keel::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
