// Passes 1 and 2 of the forward kernel, and of other passes that need the same scores: the queries of a block of rows,
// and their scores against blocks of keys, strip by strip.
#if defined(KEEL_CPU_SCORES_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef KEEL_CPU_SCORES_INL_H_
#undef KEEL_CPU_SCORES_INL_H_
#else
#define KEEL_CPU_SCORES_INL_H_
#endif

#include <hwy/highway.h>

#include <algorithm>
#include <cstdint>

#include "cpu/apart-inl.h"
#include "cpu/decode-inl.h"
#include "cpu/forward.h"
#include "cpu/gemm-inl.h"
#include "cpu/mask-inl.h"
#include "cpu/pack-inl.h"
#include "cpu/scratch-inl.h"

HWY_BEFORE_NAMESPACE();
namespace keel::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Rows [row_begin, row_begin + rows) of a head group. What `scratch` holds of the keys (k, packed) belongs to the
// caller, who clears `packed` for each block of keys.
template <class P>
class ScoreRows {
 public:
  using T = typename P::T;
  using Operand = typename P::Operand;

  ScoreRows(const ForwardCall& call, const ForwardHead& head, std::int64_t row_begin, std::int64_t rows,
            const Scratch<P>& scratch)
      : call_(call),
        head_(head),
        row_begin_(row_begin),
        rows_(rows),
        scratch_(scratch),
        dense_(HasDenseTerms(call, head)),
        alike_(SeesAllKeys(call, head) && PlaceOf(rows - 1).i < head.q_len),
        seen_(head.tiles ? scratch.seen : scratch.keys) {
    const RowPlace place = PlaceOf(0);
    if (alike_) {
      all_keys_ = VisibleKeys(KeysInReach(call, head), head, place.g, place.i);
      std::fill_n(scratch_.keys, rows_, all_keys_);
    } else {
      all_keys_ = FindVisible(call, head, place, rows_, scratch_.keys);
    }
  }

  // Moves on to a block of keys. Returns the range of rows, in whole strips, for which a block mask lists any of it;
  // with `all`, every row. What the others see is not found, so StripOf() must not be called for them.
  Range Begin(Range block, bool all = false) const {
    const Range whole = {0, rows_};
    if (!head_.tiles) return whole;
    const Range listed = all ? whole : Listed(block);
    const Range rows = {RoundDown(listed.begin, P::kStripRows), std::min(RoundUp(listed.end, P::kStripRows), rows_)};
    const std::int64_t r = rows.begin;
    FindSeen(head_, PlaceOf(r), rows.end - r, block, scratch_.keys + r, scratch_.seen + r, scratch_.holes + r);
    return rows;
  }

  // Prefetches what Begin() will read of the block that `key` is in.
  void PrefetchBlock(std::int64_t key) const {
    if (!head_.tiles) return;
    const Range block = Clip({key, RoundUp(key + 1, call_.tiles.key_block)}, all_keys_);
    if (block.empty()) return;
    const Range rows = Listed(block);
    PrefetchTiles(head_, PlaceOf(rows.begin), rows.end - rows.begin, block);
  }

  // From the first to the last key that any of the rows sees.
  Range AllKeys() const { return all_keys_; }

  RowPlace PlaceOf(std::int64_t r) const { return {row_begin_ + r, call_.group}; }

  // The queries, and scale·log₂e.
  void LoadQueries() const {
    WithType<T>(call_.dtype, [&](auto* type) {
      const auto* const q = static_cast<decltype(type)>(head_.q.data);
      RowPlace place = PlaceOf(0);
      for (std::int64_t r = 0; r < rows_; ++r, ++place) {
        scratch_.scale[r] = static_cast<T>(ScaleOf(call_, head_, place.g, place.i) * kLog2E);
        [[maybe_unused]] const bool usual =
            P::LoadQuery(q + place.g * head_.q.head_stride + place.i * head_.q.row_stride, head_.q.column_stride,
                         call_.d_k, scratch_.scale[r], scratch_.q + r * scratch_.ldq);
        if constexpr (P::kSplits) {
          scratch_.q_apart[r] = usual ? 0 : 1;
          scratch_.late_scale[r] = usual ? scratch_.scale[r] : T{1};
        }
      }
    });
    std::fill(scratch_.q + rows_ * scratch_.ldq, scratch_.q + P::TiledRows(rows_) * scratch_.ldq, Operand{});
    if (P::kStreams && rows_ <= kRowTile && head_.k_len >= scratch_.panel) {
      TransposeQueries(static_cast<int>(rows_), scratch_.q, scratch_.ldq, P::Steps(call_.d_k), scratch_.q_columns);
    }
  }

  Strip StripOf(std::int64_t r, Range block, std::int64_t first) const {
    Strip strip = {.r = r,
                   .rows = std::min<std::int64_t>(P::kStripRows, rows_ - r),
                   .needed = {INT64_MAX, 0},
                   .tile = {},
                   .buffer = r / P::kStripRows % P::Queue::kBuffers};
    for (std::int64_t x = 0; x < strip.rows; x += P::kRowTile) {
      const Range seen = alike_ ? Clip(all_keys_, block)
                                : NeededKeys(seen_ + r + x, std::min<std::int64_t>(P::kRowTile, strip.rows - x), block);
      if (seen.empty()) continue;
      const Range tile = {seen.begin - first, seen.end - first};
      strip.tile[x / P::kRowTile] = tile;
      strip.needed = {std::min(strip.needed.begin, tile.begin), std::max(strip.needed.end, tile.end)};
    }
    return strip;
  }

  // Scores of a strip against the panels that cover what it needs, packed when the first strip needs them. `late`: if P
  // can leave them to be scaled, it does.
  Range Score(const Strip& strip, std::int64_t first, bool late = false) const {
    const auto& [r, rows, needed, tile, _] = strip;
    // Constants, unlike scratch_.panel and scratch_.granule: divisions by them, one per tile, become shifts.
    const std::int64_t width = P::PanelKeys(), steps = P::Steps(call_.d_k);
    const Range panels = {needed.begin / width, hwy::DivCeil(needed.end, width)};
    std::int64_t panel = panels.begin;
    if constexpr (P::kStreams) {
      if (rows_ <= kRowTile) panel += StreamScores(rows, needed, first);
    }
    for (; panel < panels.end; ++panel) {
      const Operand* const packed = PackedPanel(panel, first);
      if (dense_) PrefetchDenseTerms(call_, head_, row_begin_ + r, rows, needed, first, panel * width);
      // Of a tile's first and last panel only the vectors that hold a key. The rest of s there is undefined: pass 2
      // puts something in its place, whatever it is.
      for (std::int64_t x = 0, t = 0; x < rows; x += P::kRowTile, ++t) {
        const Range seen = Clip(tile[t], {panel * width, (panel + 1) * width});
        if (seen.empty()) continue;
        const std::int64_t begin = RoundDown(seen.begin, P::ColumnGranule());
        const ProductOf<P> scores = {.rows = static_cast<int>(std::min<std::int64_t>(P::kRowTile, rows - x)),
                                     .a = scratch_.q + (r + x) * scratch_.ldq,
                                     .lda = scratch_.ldq,
                                     .b = packed + scratch_.k_layout.At(0, begin - panel * width),
                                     .layout = scratch_.k_layout,
                                     .k = steps,
                                     .alpha = scratch_.scale + r + x,
                                     .c = scratch_.ScoresOf(strip) + x * scratch_.lds + begin,
                                     .ldc = scratch_.lds};
        const std::int64_t columns = RoundUp(seen.end - begin, P::ColumnGranule());
        if (P::kLateScale && late) {
          P::template MultiplyPanel<Into::kSet>(scores, columns);
        } else {
          P::template MultiplyPanel<P::kScores>(scores, columns);
        }
      }
      if constexpr (P::kSplits) {
        if (scratch_.packed[panel] > 1 || HasRowsApart(scratch_, strip)) {
          ScoreApart(call_, head_, scratch_, strip, PlaceOf(r), panel, first, late);
        }
      }
    }
    return Computed(strip);
  }

  // What Score() computes of a strip.
  Range Computed(const Strip& strip) const {
    const auto lanes = static_cast<std::int64_t>(hn::Lanes(hn::ScalableTag<T>()));
    return {strip.needed.begin / P::PanelKeys() * P::PanelKeys(),
            RoundUp(P::ElementsIn(P::Steps(strip.needed.end)), 2 * lanes)};
  }

  // Leaves the same scores, to be scaled by the softmax, to the queue; returns whether it takes them.
  bool ScoreAhead(const Strip& strip, std::int64_t first, typename P::Queue& queue) const {
    const std::int64_t width = P::PanelKeys(), steps = P::Steps(call_.d_k);
    const Range panels = {strip.needed.begin / width, hwy::DivCeil(strip.needed.end, width)};
    const ProductOf<P> scores = {.rows = static_cast<int>(strip.rows),
                                 .a = scratch_.q + strip.r * scratch_.ldq,
                                 .lda = scratch_.ldq,
                                 .b = scratch_.k + panels.begin * width * steps,
                                 .layout = scratch_.k_layout,
                                 .k = steps,
                                 .c = scratch_.ScoresOf(strip) + panels.begin * width,
                                 .ldc = scratch_.lds};
    const std::int64_t columns = RoundUp(strip.needed.end, P::ColumnGranule()) - panels.begin * width;
    if (!queue.Takes(scores, columns)) return false;
    bool apart = false;
    for (std::int64_t panel = panels.begin; panel < panels.end; ++panel) {
      PackedPanel(panel, first);
      apart = apart || scratch_.packed[panel] > 1;
    }
    if constexpr (P::kSplits) apart = apart || HasRowsApart(scratch_, strip);
    if (apart) return false;
    queue.template Add<Into::kSet>(scores, columns);
    return true;
  }

  RowBlock BlockOf(std::int64_t r, const RowPlace& place, Range block, std::int64_t first, Range computed) const {
    return {place.g,
            place.i,
            first,
            computed,
            SeenOf(seen_[r], block, first, computed),
            head_.tiles && scratch_.holes[r] != 0};
  }

  // Whether pass 2 leaves the scores of a strip as they are: every row sees every key that was computed.
  bool IsPlain(const Strip& strip, Range computed) const {
    return alike_ && !dense_ && strip.needed.begin == computed.begin && strip.needed.end == computed.end;
  }

  // Whether the scores of this call can be scaled by the softmax: nothing comes between.
  bool ScalesLate() const { return P::kLateScale && !dense_ && call_.dropout == 0; }

  // Multiplies scores by the row's scale: into `to`.
  HWY_INLINE void ScaleRow(std::int64_t r, Range computed, const T* s, T* to) const {
    const hn::ScalableTag<T> d;
    const auto scale = hn::Set(d, scratch_.scale[r]);
    for (std::int64_t x = computed.begin; x < computed.end; x += scratch_.lanes) {
      hn::Store(hn::Mul(hn::Load(d, s + x), scale), d, to + x);
    }
  }

  // Whether pass 2 only hides what lies outside each row's range of keys.
  bool HasRangesOnly() const { return !dense_ && !head_.tiles; }

  // What a row then sees of a block.
  HWY_INLINE Range RangeOf(std::int64_t r, Range block, std::int64_t first, Range computed) const {
    return SeenOf(seen_[r], block, first, computed);
  }

  // Pass 2 on the scores of a row: how many keys of the block stay visible.
  HWY_INLINE std::int64_t Mask(const RowBlock& row, T* s) const {
    return MaskRow(call_, head_, dense_, row, scratch_.dense, s);
  }

 private:
  // The rows for which a block mask lists any key of the block.
  Range Listed(Range block) const {
    const Range rows = RowsThatList(head_, {row_begin_, row_begin_ + rows_}, call_.group, block);
    return rows.empty() ? Range{0, 0} : Range{rows.begin - row_begin_, rows.end - row_begin_};
  }

  // A panel of the block that begins with key `first`, packed when it is needed first.
  HWY_INLINE const Operand* PackedPanel(std::int64_t panel, std::int64_t first) const {
    const std::int64_t width = P::PanelKeys(), j = first + panel * width;
    Operand* const packed = scratch_.k + panel * width * P::Steps(call_.d_k);
    if (scratch_.packed[panel] == 0) {
      const std::int64_t keys = std::min(width, head_.k_len - j);
      bool apart = false;
      if constexpr (P::kSplits) {
        apart = P::PackPanel(head_.k, j, keys, call_.d_k, scratch_.k_layout, packed, scratch_.k_apart + panel * width);
      } else {
        P::PackPanel(call_.dtype, head_.k, j, keys, call_.d_k, scratch_.k_layout, packed);
      }
      scratch_.packed[panel] = apart ? 2 : 1;
    }
    return packed;
  }

  // The scores of the only rows there are, as far as k can be read in place: how many panels they fill.
  std::int64_t StreamScores(std::int64_t rows, Range needed, std::int64_t first) const {
    const std::int64_t begin = needed.begin / scratch_.panel * scratch_.panel;
    std::int64_t done = 0;
    WithType<T>(call_.dtype, [&](auto* type) {
      using S = std::remove_const_t<std::remove_pointer_t<decltype(type)>>;
      const Rows& from = head_.k;
      ScoresInPlace<T, S, Operand> scores = {.rows = static_cast<int>(rows),
                                             .q = scratch_.q_columns,
                                             .k = static_cast<const S*>(from.data) + (first + begin) * from.row_stride,
                                             .stride = from.row_stride,
                                             .column_stride = from.column_stride,
                                             .d_k = call_.d_k,
                                             .keys = (needed.end - begin) / scratch_.panel * scratch_.panel,
                                             .scale = scratch_.scale,
                                             .s = scratch_.s + begin,
                                             .lds = scratch_.lds};
      done = StreamedScores(scores);
      if constexpr (!P::kPairs || std::is_same_v<S, BFloat16>) {
        if (const std::int64_t left = needed.end - begin - done; left > 0 && left <= kKeysNotWorthPacking) {
          scores.q = scratch_.q;
          scores.ldq = scratch_.ldq;
          scores.k += done * from.row_stride;
          scores.keys = left;
          scores.s += done;
          ScoresOneByOne(scores);
          done += scratch_.panel;
        }
      }
    });
    return done / scratch_.panel;
  }

  const ForwardCall& call_;
  const ForwardHead& head_;
  const std::int64_t row_begin_, rows_;
  const Scratch<P>& scratch_;
  const bool dense_;
  const bool alike_;         // all rows see the same keys: all_keys_
  const Range* const seen_;  // per row, of the block of keys at hand or of all
  Range all_keys_;
};

}  // namespace keel::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
