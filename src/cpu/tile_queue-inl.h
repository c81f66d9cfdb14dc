// Products by tiles that go on beside other work. The softmax keeps the vector units busy and leaves the matrix unit
// idle; a core runs both at once if instructions for both are within its window of some hundreds. So the products wait
// in a queue, and the softmax calls Tick() after every few vectors, which does a step of 2 × 2 tiles of them.
//
// While rows r go through the softmax, the queue has p·v of the rows before and q·kᵀ of the rows after. Nothing else
// may use tiles before Finish().
#if defined(KEEL_CPU_TILE_QUEUE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef KEEL_CPU_TILE_QUEUE_INL_H_
#undef KEEL_CPU_TILE_QUEUE_INL_H_
#else
#define KEEL_CPU_TILE_QUEUE_INL_H_
#endif

#include <hwy/highway.h>

#include <algorithm>
#include <cstdint>

#include "cpu/tile_step-inl.h"

HWY_BEFORE_NAMESPACE();
namespace keel::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// `Tiles` as in tile_products-inl.h. Sums are those of TileMultiply::Multiply(), in the same order.
template <class Tiles, int kParts>
class TileQueue {
 public:
  static constexpr std::int64_t kBuffers = 2;  // strips that have scores or weights at a time

  // Whether a product consists of whole steps.
  static bool Takes(const TileProduct& x, std::ptrdiff_t columns) {
    return x.rows > kTile && x.k > 0 && columns > 0 && columns % kSquare == 0;
  }

  // Adds a product that it takes. There may be two at a time.
  template <Into kInto>
  void Add(const TileProduct& x, std::ptrdiff_t columns) {
    static_assert(kInto == Into::kSet || kInto == Into::kAdd);
    if constexpr (kInto == Into::kAdd) ScaleRows(x, columns, /*ones=*/false);
    if (at_ == count_) at_ = count_ = 0;
    jobs_[count_++] = {x, columns, kInto == Into::kAdd};
    left_ += columns / kSquare * (x.k / kDepth);
  }

  // Spreads what is in the queue over so many ticks.
  void Expect(std::int64_t ticks) {
    wait_ = period_ = std::max<std::int64_t>(ticks / std::max<std::int64_t>(left_, 1), 1);
  }
  HWY_INLINE void Tick() {
    if (--wait_ != 0) return;
    wait_ = period_;
    if (left_ > 0) Step();
  }
  // Does what is left.
  void Finish() {
    while (left_ > 0) Step();
  }

 private:
  static constexpr std::ptrdiff_t kTile = 16, kSquare = 2 * kTile, kDepth = kTile * kParts;

  struct Job {
    TileProduct x;
    std::ptrdiff_t columns;
    bool extends;
  };

  HWY_INLINE void Step() {
    const Job& job = jobs_[at_];
    const TileProduct& x = job.x;
    if (depth_ == 0) Begin(job);
    TileStep<Tiles, kParts, 2, 2>(x, a_, b_);
    a_ += kDepth;
    b_ += kDepth * x.layout.row;
    depth_ += kDepth;
    --left_;
    if (depth_ >= x.k) End(job);
  }

  HWY_INLINE void Begin(const Job& job) {
    const TileProduct& x = job.x;
    a_ = x.a;
    b_ = x.b + x.layout.At(0, column_);
    if (job.extends) {
      float *const c0 = x.c + column_, *const c1 = c0 + kTile * x.ldc;
      Tiles::template Load<0>(c0, x.ldc * 4);
      Tiles::template Load<1>(c0 + kTile, x.ldc * 4);
      Tiles::template Load<2>(c1, x.ldc * 4);
      Tiles::template Load<3>(c1 + kTile, x.ldc * 4);
    } else {
      Tiles::template Zero<0>();
      Tiles::template Zero<1>();
      Tiles::template Zero<2>();
      Tiles::template Zero<3>();
    }
  }

  HWY_INLINE void End(const Job& job) {
    const TileProduct& x = job.x;
    float *const c0 = x.c + column_, *const c1 = c0 + kTile * x.ldc;
    Tiles::template Store<0>(c0, x.ldc * 4);
    Tiles::template Store<1>(c0 + kTile, x.ldc * 4);
    Tiles::template Store<2>(c1, x.ldc * 4);
    Tiles::template Store<3>(c1 + kTile, x.ldc * 4);
    depth_ = 0;
    column_ += kSquare;
    if (column_ < job.columns) return;
    column_ = 0;
    ++at_;
  }

  Job jobs_[2];
  int at_ = 0, count_ = 0;                  // the job at hand, and how many there are
  std::int64_t left_ = 0;                   // steps of all of them
  std::int64_t period_ = 1, wait_ = 1;      // ticks per step, and to the next step
  std::ptrdiff_t depth_ = 0, column_ = 0;   // of the job at hand: where its next step is
  const Pair *a_ = nullptr, *b_ = nullptr;  // and what that multiplies
};

}  // namespace keel::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
