// Σ_i p_ij per key, once every row's m and l are known: passes 1 and 2 again for a block of keys against the rows in
// order, then p = 2^(s − m)/l, summed over the rows.
//
// Cost: d_k fused multiply-adds per score and about ten operations for p, so some 0.6 of the forward pass. The sums of
// a few strips of rows are kept in T, as long as they are short, and then join sums in double. Where a strip begins and
// which sum it joins depends neither on the tasks nor on their tiles of rows, so neither do the bits.
#if defined(KEEL_CPU_KEY_SUMS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef KEEL_CPU_KEY_SUMS_INL_H_
#undef KEEL_CPU_KEY_SUMS_INL_H_
#else
#define KEEL_CPU_KEY_SUMS_INL_H_
#endif

#include <hwy/highway.h>

#include <algorithm>
#include <cmath>

#include "cpu/exp2-inl.h"
#include "cpu/forward.h"
#include "cpu/mask-inl.h"
#include "cpu/scores-inl.h"
#include "cpu/scratch-inl.h"

HWY_BEFORE_NAMESPACE();
namespace keel::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

template <class P>
class KeySumsRunner {
 public:
  using T = typename P::T;

  KeySumsRunner(const ForwardCall& call, const KeySumsTask& task, std::byte* workspace)
      : call_(call),
        head_(*task.head),
        task_(task),
        block_{task.key_begin, std::min(task.key_begin + call.tiles.key_block, head_.k_len)},
        scratch_(call, workspace),
        totals_(reinterpret_cast<double*>(workspace + scratch_.bytes)),
        sums_(reinterpret_cast<T*>(totals_ + call.group * scratch_.lds)),
        short_strips_(16 * std::min<std::int64_t>(call.group, 4)) {}

  static std::int64_t WorkspaceBytes(const ForwardCall& call) {
    const Scratch<P> scratch(call, nullptr);
    return scratch.bytes + call.group * scratch.lds * static_cast<std::int64_t>(sizeof(double) + sizeof(T));
  }

  void Run() {
    std::fill_n(scratch_.packed, scratch_.panels, std::uint8_t{0});
    std::fill_n(totals_, call_.group * scratch_.lds, 0.0);
    std::fill_n(sums_, call_.group * scratch_.lds, T{0});
    for (std::int64_t r = task_.row_begin; r < task_.row_end; r += call_.tiles.row_block) {
      TakeRows(r, std::min(call_.tiles.row_block, task_.row_end - r));
    }
    Flush();
    for (std::int64_t g = 0; g < call_.group; ++g) {
      T* const to = static_cast<T*>(head_.key_sums.data) + g * head_.key_sums.head_stride;
      for (std::int64_t j = block_.begin; j < block_.end; ++j) {
        to[j * head_.key_sums.row_stride] = static_cast<T>(totals_[g * scratch_.lds + j - block_.begin]);
      }
    }
  }

 private:
  void TakeRows(std::int64_t row_begin, std::int64_t rows) {
    const ScoreRows<P> scores(call_, head_, row_begin, rows, scratch_);
    if (Clip(scores.AllKeys(), block_).empty()) return;
    const Range listed = scores.Begin(block_);
    if (listed.empty()) return;
    scores.LoadQueries();
    for (std::int64_t r = listed.begin; r < listed.end; r += P::kStripRows) {
      const Strip strip = scores.StripOf(r, block_, block_.begin);
      if (strip.needed.empty()) continue;
      const std::int64_t sum = (row_begin + r - task_.row_begin) / P::kStripRows / short_strips_;
      if (sum != short_sum_) Flush();
      short_sum_ = sum;
      const Range computed = scores.Score(strip, block_.begin);
      T m[P::kStripRows], norm[P::kStripRows];
      RowPlace place = scores.PlaceOf(r);
      for (std::int64_t x = 0; x < strip.rows; ++x, ++place) {
        T* const s = scratch_.ScoresOf(strip) + x * scratch_.lds;
        const RowBlock row = scores.BlockOf(r + x, place, block_, block_.begin, computed);
        m[x] = At(head_.m, place);
        norm[x] = At(head_.norm, place);
        if (std::isfinite(m[x]) && std::isfinite(norm[x])) {
          scores.Mask(row, s);
        } else {  // the row is NaN where it sees a key, and nowhere else
          for (std::int64_t y = computed.begin; y < computed.end; ++y) {
            const bool seen = y >= row.seen.begin && y < row.seen.end;
            s[y] = static_cast<T>(seen && IsVisible(call_, head_, row.g, row.i, row.first + y) ? NAN : -INFINITY);
          }
          m[x] = norm[x] = 0;
        }
      }
      AddStrip(row_begin + r, strip, computed, m, norm);
    }
  }

  static T At(const MutableRows& rows, const RowPlace& place) {
    return static_cast<const T*>(rows.data)[place.g * rows.head_stride + place.i * rows.row_stride];
  }

  // The weights of a strip that begins with `row` join the sums of their heads.
  HWY_INLINE void AddStrip(std::int64_t row, const Strip& strip, Range computed, const T* m, const T* norm) {
    const hn::ScalableTag<T> d;
    [[maybe_unused]] const NormalWeights without_denormals(call_.flushes_weights);
    const std::int64_t rows = strip.rows;
    for (std::int64_t first = 0; first < std::min(call_.group, rows); ++first) {
      T* const sums = sums_ + (row + first) % call_.group * scratch_.lds;
      for (std::int64_t y = computed.begin; y < computed.end; y += scratch_.lanes) {
        auto sum = hn::Zero(d);
        for (std::int64_t x = first; x < rows; x += call_.group) {
          const auto s = hn::Load(d, scratch_.ScoresOf(strip) + x * scratch_.lds + y);
          sum = hn::MulAdd(Exp2(d, hn::Sub(s, hn::Set(d, m[x]))), hn::Set(d, norm[x]), sum);
        }
        hn::Store(hn::Add(hn::Load(d, sums + y), sum), d, sums + y);
      }
    }
  }

  void Flush() {
    for (std::int64_t y = 0; y < call_.group * scratch_.lds; ++y) {
      totals_[y] += static_cast<double>(sums_[y]);
      sums_[y] = 0;
    }
  }

  const ForwardCall& call_;
  const ForwardHead& head_;
  const KeySumsTask& task_;
  const Range block_;
  const Scratch<P> scratch_;
  double* const totals_;  // (group, lds)
  T* const sums_;         // (group, lds)
  // Strips of a short sum, a chain of at most 67 additions per key; more of them if strips are shared by more heads,
  // so that joining the sums of all heads takes negligible time.
  const std::int64_t short_strips_;
  std::int64_t short_sum_ = 0;
};

template <class P>
void RunKeySums(const ForwardCall& call, const KeySumsTask& task, std::byte* workspace) {
  P::Begin();
  KeySumsRunner<P>(call, task, workspace).Run();
  P::End();
}

}  // namespace keel::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
