// The main loop of the tangent kernel (tangent.h). A task owns a block of rows and goes through the keys block by
// block. Of a jvp, and of the first half of a double backward pass:
//
//   pass 1   s = q·kᵀ         ts = q·tkᵀ + tq·kᵀ              one product of twice the depth
//   pass 2   softcap, bias, ALiBi, masks                       as in the other kernels, keeping the softcap's slope
//   pass 3   p = 2^(s − lse)  μ += Σ p·ts                      lse is known
//   pass 4   to += (p∘ts)·v + p·tv
//
// and of the second half, in which p and ts are kept:
//
//   pass 4   dp = do·vᵀ       tdp = do·tvᵀ                     tdv += (p∘(ts − μ))ᵀ·do
//   pass 3'  ds = p∘(dp − δ)  tds = (ts − μ)∘ds + p∘(tdp − tδ)
//   pass 2'  dbias += tds     tds = slope∘tds + bend∘ds        ds = slope∘ds
//   pass 1'  tdk += tdsᵀ·q + dsᵀ·tq                            tdq += tds·k + ds·tk
//
// Five and seven products, each d multiply-adds per score, so the FMA ports bound it.
#if defined(KEEL_CPU_TANGENT_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef KEEL_CPU_TANGENT_INL_H_
#undef KEEL_CPU_TANGENT_INL_H_
#else
#define KEEL_CPU_TANGENT_INL_H_
#endif

#include <hwy/highway.h>

#include <algorithm>
#include <cmath>
#include <thread>

#include "cpu/backward_block-inl.h"
#include "cpu/backward_keys-inl.h"
#include "cpu/backward_prepare-inl.h"
#include "cpu/backward_row-inl.h"
#include "cpu/tangent.h"
#include "cpu/tangent_row-inl.h"
#include "cpu/tangent_scratch-inl.h"

HWY_BEFORE_NAMESPACE();
namespace keel::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

template <class P>
class TangentRunner : BackwardPreparer<P> {
  static_assert(!P::kPairs);
  using T = typename P::T;
  using Base = BackwardBlock<P>;

 public:
  TangentRunner(const TangentCall& call, const TangentHead& head, std::byte* workspace)
      : BackwardPreparer<P>(call.backward, head.backward, workspace),
        t_(call),
        th_(head),
        more_(call, scratch_, workspace),
        sums_(call, rows_, h_.k_len, head.backward.memory) {}

  // 0 for the sums of keys [begin, end), and for what their last product writes beside them.
  void Prepare(std::int64_t begin, std::int64_t end) {
    if (end == h_.k_len) end += P::kRowTile;
    if (call_.dk) std::fill(sums_.dk + begin * sums_.ldk, sums_.dk + end * sums_.ldk, T{0});
    if (call_.dv) std::fill(sums_.dv + begin * sums_.ldv, sums_.dv + end * sums_.ldv, T{0});
  }

  void Run(const TangentTask& task) {
    const std::int64_t begin = task.block * t_.task_rows, end = std::min(begin + t_.task_rows, rows_);
    const std::int64_t keys = call_.tiles.key_block;
    Range all = {INT64_MAX, 0};
    ForRows(begin, end, [&](std::int64_t r, std::int64_t rows) {
      PrepareBlock(r, rows);
      const Range seen = NeededKeys(scratch_.keys, rows, {0, h_.k_len});
      if (!seen.empty()) all = {std::min(all.begin, seen.begin), std::max(all.end, seen.end)};
    });
    std::fill_n(more_.out, (end - begin) * scratch_.columns_v, T{0});
    std::fill_n(more_.moves, end - begin, RowMoves<T>{0, 0});
    ForRows(begin, end, [&](std::int64_t r, std::int64_t rows) { LoadRows(r, rows, r - begin); });
    for (std::int64_t j = all.empty() ? 0 : all.begin / keys * keys; j < all.end; j += keys) {
      const Range block = {j, std::min(j + keys, h_.k_len)};
      if (HidesAll(begin, end - begin, block)) continue;
      PackForMoves(block);
      ForRows(begin, end, [&](std::int64_t r, std::int64_t rows) {
        if (t_.task_rows > call_.tiles.row_block) FindKeys(r, rows);
        MoveBlock(r, rows, block, r - begin);
      });
    }
    ForRows(begin, end, [&](std::int64_t r, std::int64_t rows) { FinishMoves(r, rows, r - begin); });
    if (t_.is_double) Differentiate(task, begin, end - begin, all);
  }

  // From the sums of keys [begin, end) to their gradients.
  void Finish(std::int64_t begin, std::int64_t end) {
    for (std::int64_t j = begin; j < end; ++j) {
      if (call_.dk) {  // q and tq were multiplied by log₂e
        Write(call_.dk.dtype, head_.dk, j * head_.dk.row_stride, f_.d_k, static_cast<T>(kLn2),
              sums_.dk + j * sums_.ldk);
      }
      if (call_.dv) Write(call_.dv.dtype, head_.dv, j * head_.dv.row_stride, f_.d_v, T{1}, sums_.dv + j * sums_.ldv);
    }
  }

 private:
  using Base::AddToBias;
  using Base::AddToKeys;
  using Base::AddToRows;
  using Base::BlockOf;
  using Base::call_;
  using Base::Computed;
  using Base::dense_;
  using Base::dropout_;
  using Base::f_;
  using Base::FindKeys;
  using Base::FindNeeded;
  using Base::FindRows;
  using Base::FindSeen;
  using Base::h_;
  using Base::HasFiniteGradients;
  using Base::HasFiniteQueries;
  using Base::head_;
  using Base::HidesAll;
  using Base::kNothing;
  using Base::LoadGradients;
  using Base::LoadQueries;
  using Base::LoadQuery;
  using Base::masked_;
  using Base::memory_;
  using Base::MultiplyPanels;
  using Base::PackPanels;
  using Base::PlaceOf;
  using Base::rows_;
  using Base::scratch_;
  using Base::Write;
  using BackwardPreparer<P>::RowOf;
  using BackwardPreparer<P>::PrepareBlock;

  template <class F>
  void ForRows(std::int64_t begin, std::int64_t end, const F& f) const {
    const std::int64_t step = call_.tiles.row_block;
    for (std::int64_t r = begin; r < end; r += step) f(r, std::min(step, end - r));
  }

  bool IsMasked(std::int64_t r) const { return memory_.numbers[r].top == static_cast<T>(-INFINITY); }

  double RowTangent(const Strided& x, const Rows& rows, const RowPlace& place) const {
    return x ? LoadOne<double>(x.dtype, rows.data, place.g * rows.head_stride + place.i * rows.row_stride) : 0.0;
  }

  void LoadTangent(const RowPlace& place, T factor, T* to) const {
    LoadRow<T>(t_.tq.dtype, th_.tq.data, place.g * th_.tq.head_stride + place.i * th_.tq.row_stride,
               th_.tq.column_stride, f_.d_k, factor, to);
  }

  // Where what is kept of a block begins.
  std::int64_t KeptFrom(Range block) const { return t_.is_double ? block.begin : 0; }

  TangentRow<T> RowOf(std::int64_t x, Range block) const {
    const std::int64_t at = x * more_.ldp + KeptFrom(block);
    TangentRow<T> row{.p = more_.p + at, .ts = more_.ts + at, .wt = more_.wt + x * scratch_.lds};
    if (f_.softcap > 0) row.slope = more_.slope + at, row.bend = more_.bend + at;
    if (f_.dropout > 0) row.kept = scratch_.kept, row.w = more_.w + x * scratch_.lds;
    if (t_.tbias) row.tbias = more_.tbias;
    return row;
  }

  // The queries, and beside each what it moves by: log₂e·(scale·tq + tscale·q); the task's from row `at` on.
  void LoadRows(std::int64_t r, std::int64_t rows, std::int64_t at) {
    FindKeys(r, rows);
    LoadQueries(r, rows);
    T* const q = more_.q + at * more_.ldq;
    RowPlace place = PlaceOf(r);
    for (std::int64_t x = 0; x < rows; ++x, ++place) {
      T *const to = q + x * more_.ldq, *const moved = to + f_.d_k;
      std::copy_n(scratch_.q + x * scratch_.ldq, f_.d_k, to);
      std::fill(moved, to + more_.ldq, T{0});
      if (scratch_.keys[x].empty() || IsMasked(r + x)) continue;
      if (t_.tq) LoadTangent(place, scratch_.scale[x], moved);
      if (!t_.tscale) continue;
      LoadQuery(place.g, place.i, static_cast<T>(RowTangent(t_.tscale, th_.tscale, place) * kLog2E), scratch_.two_rows);
      for (std::int64_t c = 0; c < f_.d_k; ++c) moved[c] += scratch_.two_rows[c];
    }
    Base::ZeroTail(q, rows, more_.ldq);
    if (!t_.is_double) return;
    finite_q_ = HasFiniteQueries(rows) && P::AreFinite(q, rows, 2 * f_.d_k, more_.ldq);
    LoadGradients(r, rows);
    finite_dout_ = HasFiniteGradients(r, rows);
  }

  // v or k, as rows, and what they move by.
  void PackRows(const Rows& x, const Strided& tangent, const Rows& tx, Range block, std::int64_t d) {
    finite_values_ = P::PackValues(f_.dtype, x, block, block.begin, d, {more_.ldr}, more_.values);
    if (!tangent) return;
    finite_tvalues_ = P::PackValues(tangent.dtype, tx, block, block.begin, d, {more_.ldr}, more_.tvalues);
  }

  void PackForMoves(Range block) {
    const std::int64_t d = f_.d_k;
    if (t_.tk) PackPanels(t_.tk.dtype, th_.tk, block, {d, 2 * d, 0}, more_.k_panels);
    PackPanels(f_.dtype, h_.k, block, {d, 2 * d, d}, more_.k_panels);
    PackRows(h_.v, t_.tv, th_.tv, block, f_.d_v);
  }

  // What q·kᵀ moves by, in units of log 2, from as many halves of rows and panels as there are.
  RowsTimesPanels<P> MovedScores(const T* q, T* to) const {
    const std::int64_t d = f_.d_k, steps = t_.tk && t_.moves_q() ? 2 * d : d, first = t_.tk ? 0 : d;
    const T* const panels = more_.k_panels + first * scratch_.panel;
    return {q + first, more_.ldq, panels, steps, 2 * d, scratch_.scale, to, more_.ldp};
  }

  // Passes 1 to 4 of a block of rows, the task's from row `at` on, and a block of keys.
  void MoveBlock(std::int64_t r, std::int64_t rows, Range block, std::int64_t at) {
    const std::int64_t keys = block.end - block.begin, d = f_.d_k, from = KeptFrom(block);
    FindSeen(r, rows, block);
    FindNeeded(rows, block);
    const auto prefetch = [&](std::int64_t x, std::int64_t tile_rows, Range needed, std::int64_t y) {
      PrefetchDenseTerms(f_, h_, r + x, tile_rows, needed, block.begin, y);
    };
    const T* const q = more_.q + at * more_.ldq;
    MultiplyPanels(
        {q, more_.ldq, more_.k_panels + d * scratch_.panel, d, 2 * d, scratch_.scale, more_.p + from, more_.ldp}, rows,
        prefetch);
    const bool moves = t_.tk || t_.moves_q();
    if (moves) MultiplyPanels(MovedScores(q, more_.ts + from), rows, kNothing);
    masked_ = false;
    RowPlace place = PlaceOf(r);
    for (std::int64_t x = 0; x < rows; ++x, ++place) {
      const TangentRow<T> row = RowOf(x, block);
      const Range computed = Computed(x);
      std::int64_t visible = 0;
      if (!moves) std::fill(row.ts + computed.begin, row.ts + computed.end, T{0});
      if (!computed.empty()) {
        visible = MoveRow(memory_.numbers[r + x], BlockOf(x, place, block, computed), row, more_.moves[at + x].mu);
      }
      masked_ = masked_ || visible < keys;
      if (t_.is_double) ZeroOutside(computed, keys, row.p);
    }
    T* const sums = more_.out + at * scratch_.columns_v;
    AddToRows(r, rows, block, ToRows(more_.wt, scratch_.lds, sums, finite_values_));
    if (!t_.tv) return;
    RowTerms<P> moved = f_.dropout > 0 ? ToRows(more_.w, scratch_.lds, sums, finite_tvalues_)
                                       : ToRows(more_.p + from, more_.ldp, sums, finite_tvalues_);
    moved.values = more_.tvalues;
    AddToRows(r, rows, block, moved);
  }

  RowTerms<P> ToRows(const T* weights, std::int64_t ldw, T* sums, bool finite) const {
    return {weights, ldw, more_.values, {more_.ldr}, sums, scratch_.columns_v, scratch_.columns_v, finite};
  }

  // The sums over rows read whole tiles of keys.
  void ZeroOutside(Range computed, std::int64_t keys, T* x) const {
    const std::int64_t end = P::TiledRows(keys);
    std::fill(x, x + computed.begin, T{0});
    if (computed.end < end) std::fill(x + computed.end, x + end, T{0});
  }

  // Passes 2 and 3 of one row. Returns how many keys of the block are visible.
  std::int64_t MoveRow(const RowNumbers<T>& numbers, const RowBlock& block, const TangentRow<T>& row, T& mu) {
    const Range computed = block.computed;
    if (row.slope != nullptr) FindSlope(f_.softcap, computed, row.p, row.slope, row.bend);
    const std::int64_t visible = MaskRow(f_, h_, dense_, block, scratch_.dense, row.p);
    if (f_.dropout > 0) FindKept(block);
    if (t_.tbias) {
      const Rows& from = th_.tbias;
      LoadRow<T>(t_.tbias.dtype, from.data,
                 block.g * from.head_stride + block.i * from.row_stride +
                     (block.first + block.seen.begin) * from.column_stride,
                 from.column_stride, block.seen.end - block.seen.begin, T{1}, more_.tbias + block.seen.begin);
    }
    if (numbers.top != numbers.top) {
      SpreadNaN(block, row);
      mu = numbers.top;
    } else {
      mu += WeighMoves(numbers, computed, row);
    }
    return visible;
  }

  void FindKept(const RowBlock& block) {
    std::fill(scratch_.kept + block.computed.begin, scratch_.kept + block.computed.end, T{1});
    ApplyDropout<T>(dropout_, h_, block, scratch_.kept);
  }

  // A row with a NaN among its visible scores, or nothing but −inf, is NaN wherever it sees a key, and only there.
  void SpreadNaN(const RowBlock& block, const TangentRow<T>& row) const {
    for (std::int64_t y = block.computed.begin; y < block.computed.end; ++y) {
      const bool seen =
          y >= block.seen.begin && y < block.seen.end && IsVisible(f_, h_, block.g, block.i, block.first + y);
      row.p[y] = seen ? static_cast<T>(NAN) : T(-0.0);
      row.ts[y] = 0;
      row.wt[y] = row.p[y];
      if (row.w != nullptr) row.w[y] = row.p[y];
      if (row.slope != nullptr) row.slope[y] = row.bend[y] = row.p[y];
    }
  }

  double SinkWeight(const RowPlace& place, const RowNumbers<T>& numbers) const {
    return std::exp2(static_cast<double>(SinkOf<T>(f_, h_, place.g)) - numbers.top) * numbers.norm;
  }

  // From a row's sums to what out and lse move by, and to tδ.
  void FinishMoves(std::int64_t r, std::int64_t rows, std::int64_t at) {
    RowPlace place = PlaceOf(r);
    for (std::int64_t x = 0; x < rows; ++x, ++place) {
      RowMoves<T>& moves = more_.moves[at + x];
      const RowNumbers<T>& numbers = memory_.numbers[r + x];
      T* const out = more_.out + (at + x) * scratch_.columns_v;
      const bool masked = IsMasked(r + x);
      if (masked) {
        moves = {0, 0};
        std::fill_n(out, scratch_.columns_v, T{0});
      } else {
        const double tsink =
            t_.tsinks ? LoadOne<double>(t_.tsinks.dtype, th_.tsinks.data, place.g * th_.tsinks.head_stride) : 0.0;
        if (t_.tsinks) moves.mu += static_cast<T>(SinkWeight(place, numbers) * tsink);
        const T* const o = RowOf(call_.out, head_.out, place, scratch_.two_rows);
        for (std::int64_t c = 0; c < f_.d_v; ++c) out[c] -= moves.mu * o[c];
        if (t_.is_double) moves.delta = Dot(scratch_.dout + x * scratch_.ldo, out, scratch_.columns_v);
        if (call_.dsinks) {
          const double shift = tsink - static_cast<double>(moves.mu);
          RowSum(head_.dsinks, place) = -SinkWeight(place, numbers) * (shift * numbers.delta + moves.delta);
        }
      }
      if (t_.tout) {
        Write(t_.tout.dtype, th_.tout, place.g * th_.tout.head_stride + place.i * th_.tout.row_stride, f_.d_v, T{1},
              out);
      }
      if (t_.tlse) {
        T& to = static_cast<T*>(th_.tlse.data)[place.g * th_.tlse.head_stride + place.i * th_.tlse.row_stride];
        to = call_.accumulate ? to + moves.mu : moves.mu;
      }
    }
  }

  double& RowSum(const MutableRows& to, const RowPlace& place) const {
    return static_cast<double*>(to.data)[place.g * to.head_stride + place.i * to.row_stride];
  }

  // The second half: `rows` rows from r on against all keys, and what they add to the sums of keys in its turn.
  void Differentiate(const TangentTask& task, std::int64_t r, std::int64_t rows, Range all) {
    const std::int64_t step = call_.tiles.key_block;
    std::fill_n(more_.dq, P::TiledRows(rows) * scratch_.columns_k, T{0});
    if (more_.plain != nullptr) std::fill_n(more_.plain, P::TiledRows(rows) * scratch_.columns_k, T{0});
    for (std::int64_t place = 0; place * step < h_.k_len; ++place) {
      const Range block = {place * step, std::min((place + 1) * step, h_.k_len)};
      const bool seen = !Clip(block, all).empty() && !HidesAll(r, rows, block);
      if (seen) {
        PackForGradients(block);
        WeighBlock(r, rows, block);
      }
      if (task.before != nullptr) {
        while (task.before->load(std::memory_order_acquire) <= place) std::this_thread::yield();
      }
      if (seen) AddToSums(r, rows, block);
      if (task.done != nullptr) task.done->store(place + 1, std::memory_order_release);
    }
    if (task.done != nullptr) task.done->store(INT64_MAX, std::memory_order_release);
    if (call_.sums_dq()) FinishQueries(r, rows);
  }

  void PackForGradients(Range block) {
    if (!call_.needs_ds()) return;
    PackPanels(f_.dtype, h_.v, block, {f_.d_v}, scratch_.v_panels);
    if (t_.tv) PackPanels(t_.tv.dtype, th_.tv, block, {f_.d_v}, more_.tv_panels);
    if (call_.sums_dq()) PackRows(h_.k, t_.tk, th_.tk, block, f_.d_k);
  }

  // Passes 4 to 2' of a block: ds in scratch_.s, tds in scratch_.t.
  void WeighBlock(std::int64_t r, std::int64_t rows, Range block) {
    const std::int64_t keys = block.end - block.begin, d = f_.d_v;
    FindSeen(r, rows, block);
    FindNeeded(rows, block);
    if (call_.needs_ds()) {
      MultiplyPanels({scratch_.dout, scratch_.ldo, scratch_.v_panels, d, d, nullptr, scratch_.s, scratch_.lds}, rows,
                     kNothing);
    }
    if (call_.needs_ds() && t_.tv) {
      MultiplyPanels({scratch_.dout, scratch_.ldo, more_.tv_panels, d, d, nullptr, scratch_.t, scratch_.lds}, rows,
                     kNothing);
    }
    masked_ = dense_ || h_.tiles;
    RowPlace place = PlaceOf(r);
    for (std::int64_t x = 0; x < rows; ++x, ++place) {
      T *const s = scratch_.s + x * scratch_.lds, *const t = scratch_.t + x * scratch_.lds;
      const TangentRow<T> row = RowOf(x, block);
      const Range computed = Computed(x);
      masked_ = masked_ || Clip(scratch_.keys[x], block).end - Clip(scratch_.keys[x], block).begin < keys;
      if (!computed.empty()) {
        const RowBlock at = BlockOf(x, place, block, computed);
        if (f_.dropout > 0) FindKept(at);
        if (!t_.tv || !call_.needs_ds()) std::fill(t + computed.begin, t + computed.end, T{0});
        if (!call_.needs_ds()) std::fill(s + computed.begin, s + computed.end, T{0});
        WeighGradients(memory_.numbers[r + x], more_.moves[x], computed, row, s, t);
        if (call_.dbias) AddToBias(at, t);
        if (row.slope != nullptr) Uncap(computed, row, s, t);
      }
      ZeroOutside(computed, keys, s);
      ZeroOutside(computed, keys, t);
    }
    FindRows(rows, block);
  }

  // Passes 4 and 1': the sums over rows and over keys.
  void AddToSums(std::int64_t r, std::int64_t rows, Range block) {
    const T *const ds = scratch_.s, *const tds = scratch_.t;
    const std::int64_t lds = scratch_.lds, ldq = more_.ldq;
    if (call_.dv) {
      KeyGradients<P> to(f_.d_v, sums_.ldv, scratch_, sums_.dv + block.begin * sums_.ldv);
      AddToKeys(r, rows, block, {more_.p + block.begin, more_.ldp, scratch_.dout, scratch_.ldo, finite_dout_}, to);
    }
    if (call_.dk) {
      KeyGradients<P> to(f_.d_k, sums_.ldk, scratch_, sums_.dk + block.begin * sums_.ldk);
      AddToKeys(r, rows, block, {tds, lds, more_.q, ldq, finite_q_}, to);
      if (t_.moves_q()) AddToKeys(r, rows, block, {ds, lds, more_.q + f_.d_k, ldq, finite_q_}, to);
    }
    if (!call_.sums_dq()) return;
    const std::int64_t columns = scratch_.columns_k;
    AddToRows(r, rows, block, {tds, lds, more_.values, {more_.ldr}, more_.dq, columns, columns, finite_values_});
    if (t_.tk) {
      AddToRows(r, rows, block, {ds, lds, more_.tvalues, {more_.ldr}, more_.dq, columns, columns, finite_tvalues_});
    }
    if (more_.plain != nullptr) {
      AddToRows(r, rows, block, {ds, lds, more_.values, {more_.ldr}, more_.plain, columns, columns, finite_values_});
    }
  }

  // From a row's sums to dq and dscale: dq = scale·sums + tscale·plain, dscale = q·sums + tq·plain.
  void FinishQueries(std::int64_t r, std::int64_t rows) {
    RowPlace place = PlaceOf(r);
    for (std::int64_t x = 0; x < rows; ++x, ++place) {
      T* const sums = more_.dq + x * scratch_.columns_k;
      T* const plain = more_.plain != nullptr ? more_.plain + x * scratch_.columns_k : nullptr;
      const bool masked = IsMasked(r + x);
      if (masked) std::fill_n(sums, scratch_.columns_k, T{0});
      if (masked && plain != nullptr) std::fill_n(plain, scratch_.columns_k, T{0});
      if (call_.dscale) {
        T *const q = scratch_.two_rows, *const tq = q + scratch_.columns_k;
        std::fill_n(q, 2 * scratch_.columns_k, T{0});
        if (!masked) LoadQuery(place.g, place.i, T{1}, q);
        if (!masked && t_.tq) LoadTangent(place, T{1}, tq);
        RowSum(head_.dscale, place) = static_cast<double>(Dot(q, sums, scratch_.columns_k)) +
                                      (t_.tq ? static_cast<double>(Dot(tq, plain, scratch_.columns_k)) : 0.0);
      }
      if (!call_.dq) continue;
      const T scale = masked ? T{0} : static_cast<T>(ScaleOf(f_, h_, place.g, place.i));
      const T tscale = masked ? T{0} : static_cast<T>(RowTangent(t_.tscale, th_.tscale, place));
      for (std::int64_t c = 0; c < f_.d_k; ++c) sums[c] = scale * sums[c] + (t_.tscale ? tscale * plain[c] : T{0});
      Write(call_.dq.dtype, head_.dq, place.g * head_.dq.head_stride + place.i * head_.dq.row_stride, f_.d_k, T{1},
            sums);
    }
  }

  const TangentCall& t_;
  const TangentHead& th_;
  const TangentScratch<P> more_;
  const TangentMemory<P> sums_;
  bool finite_q_ = true, finite_dout_ = true, finite_values_ = true, finite_tvalues_ = true;
};

template <class P>
TangentKernel MakeTangentKernel() {
  using T = typename P::T;
  TangentKernel kernel;
  kernel.panel_bytes = kTileVectors * static_cast<std::int64_t>(hn::Lanes(hn::ScalableTag<T>()) * sizeof(T));
  kernel.workspace_bytes = [](const TangentCall& call) {
    return TangentScratch<P>(call, BackwardScratch<P>(call.backward, nullptr), nullptr).bytes;
  };
  kernel.head_bytes = [](const TangentCall& call, std::int64_t rows, std::int64_t keys) {
    return TangentMemory<P>(call, rows, keys, nullptr).bytes;
  };
  kernel.prepare = [](const TangentCall& call, const TangentHead& head, std::int64_t begin, std::int64_t end,
                      std::byte* workspace) { TangentRunner<P>(call, head, workspace).Prepare(begin, end); };
  kernel.run = [](const TangentCall& call, const TangentTask& task, std::byte* workspace) {
    TangentRunner<P>(call, *task.head, workspace).Run(task);
  };
  kernel.finish = [](const TangentCall& call, const TangentHead& head, std::int64_t begin, std::int64_t end,
                     std::byte* workspace) { TangentRunner<P>(call, head, workspace).Finish(begin, end); };
  kernel.whole = [](const TangentCall& call, const TangentHead& head, std::int64_t lines, std::int64_t blocks,
                    std::byte* workspace) {
    TangentRunner<P> runner(call, head, workspace);
    runner.Prepare(0, lines);
    for (std::int64_t block = 0; block < blocks; ++block) runner.Run({&head, block});
    if (call.sums_keys()) runner.Finish(0, lines);
  };
  return kernel;
}

}  // namespace keel::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
