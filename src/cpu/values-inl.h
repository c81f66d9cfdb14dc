// Pass 4 of the forward kernel: o = factor·o + p·v for strips of rows over one block of keys. It decides where v is
// read from, and if the block has all the keys it also finishes the rows and writes them.
#if defined(KEEL_CPU_VALUES_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef KEEL_CPU_VALUES_INL_H_
#undef KEEL_CPU_VALUES_INL_H_
#else
#define KEEL_CPU_VALUES_INL_H_
#endif

#include <hwy/highway.h>

#include <algorithm>
#include <cstdint>
#include <type_traits>

#include "cpu/decode-inl.h"
#include "cpu/epilogue-inl.h"
#include "cpu/forward.h"
#include "cpu/gemm-inl.h"
#include "cpu/mask-inl.h"
#include "cpu/pack-inl.h"
#include "cpu/scratch-inl.h"

HWY_BEFORE_NAMESPACE();
namespace keel::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// The block of keys, counted from `first` on, that joins `states`; `finishing` says that there is no other.
template <class T>
struct ValueBlock {
  Range keys;
  std::int64_t first;
  const States<T>& states;
  bool finishing;
};

template <class T>
class ValueSums {
 public:
  ValueSums(const ForwardCall& call, const ForwardTask& task, const Scratch<T>& scratch, const ValueBlock<T>& block)
      : call_(call), task_(task), head_(*task.head), scratch_(scratch), block_(block) {}

  // The weights of a strip times v, `masked` if some row does not see some key that another needs.
  HWY_INLINE void Add(const Strip& strip, bool masked) {
    const T* const v = AlignedValues();
    const bool few = strip.needed.end - strip.needed.begin <= kKeysNotWorthPacking;
    if (!masked && CanStream() && (v == nullptr || !few)) return Stream(strip);
    if (masked && v != nullptr && !checked_) {
      finite_ = AllFinite(v + block_.keys.begin * scratch_.ldv, Keys(), scratch_.ldv, scratch_.ldv);
      checked_ = true;
    }
    if (v != nullptr && (finite_ || !masked)) return Sum(strip, v + block_.keys.begin * scratch_.ldv);
    if (!packed_) {
      finite_ = PackValues<T>(call_.dtype, head_.v, block_.keys.begin, Keys(), call_.d_v, scratch_.ldv, scratch_.v);
      packed_ = true;
    }
    if (finite_ || !masked) return Sum(strip, scratch_.v);
    SumCarefully(strip);
  }

  // Rows that see nothing.
  void WriteZeros(const Strip& strip) {
    FinishRows(strip);
    std::fill_n(scratch_.total.o, scratch_.ldv, T{0});
    for (std::int64_t x = 0; x < strip.rows; ++x) WriteRow(strip, x, scratch_.total.o);
  }

 private:
  std::int64_t Keys() const { return block_.keys.end - block_.keys.begin; }
  RowPlace PlaceOf(std::int64_t r) const { return {task_.row_begin + r, call_.group}; }

  // Whether rows in the caller's memory have the layout of o.
  bool AreLikeOurs(DType dtype, std::int64_t column_stride) const {
    return dtype == (sizeof(T) == 8 ? DType::f64 : DType::f32) && column_stride == 1 && call_.d_v == scratch_.ldv;
  }

  // v, if its layout is that of packed v.
  const T* AlignedValues() const {
    const bool same = AreLikeOurs(call_.dtype, head_.v.column_stride) && head_.v.row_stride == scratch_.ldv;
    const bool aligned =
        reinterpret_cast<std::uintptr_t>(head_.v.data) % (static_cast<std::size_t>(scratch_.lanes) * sizeof(T)) == 0;
    return same && aligned ? static_cast<const T*>(head_.v.data) : nullptr;
  }

  // Where the output can take a tile of rows as it is computed.
  T* RowsOfOutput(std::int64_t r) const {
    if (!AreLikeOurs(call_.out.dtype, head_.out.column_stride) || call_.group != 1) return nullptr;
    return static_cast<T*>(head_.out.data) + (task_.row_begin + r) * head_.out.row_stride;
  }

  // If there is only one tile of rows, v is used once: packing it would cost more than it saves.
  bool CanStream() const {
    return task_.row_end - task_.row_begin <= kRowTile && head_.v.column_stride == 1 && call_.d_v == scratch_.ldv;
  }

  // Finishes the rows of a strip: their factors become what their sums must be multiplied by.
  void FinishRows(const Strip& strip) {
    const bool reports = Reports(head_);
    RowPlace place = PlaceOf(strip.r);
    for (std::int64_t x = 0; x < strip.rows; ++x, ++place) {
      scratch_.factor[x] = FinishRow(call_, head_, place, reports, scratch_.total.rows[strip.r + x]);
    }
  }

  void WriteRow(const Strip& strip, std::int64_t x, const T* from) {
    const RowPlace place = PlaceOf(strip.r + x);
    StoreRow<T>(call_.out.dtype, head_.out.data, place.g * head_.out.head_stride + place.i * head_.out.row_stride,
                head_.out.column_stride, call_.d_v, T{1}, from);
  }

  // o = factor·o + sum or, finishing, factor·(0 + sum), as the kAdd and kScale of gemm-inl.h.
  template <class V>
  void Join(V sum, T factor, T* o) {
    const hn::ScalableTag<T> d;
    const V times = hn::Set(d, factor);
    hn::Store(block_.finishing ? hn::Mul(hn::Add(hn::Zero(d), sum), times) : hn::MulAdd(hn::Load(d, o), times, sum), d,
              o);
  }

  // For the only rows of a task, which read v in place.
  void Stream(const Strip& strip) {
    const hn::ScalableTag<T> d;
    const int rows = static_cast<int>(strip.rows);
    const Range needed = strip.needed;
    T* const sum = scratch_.v;  // not packed into
    std::fill_n(sum, TileRows(rows) * scratch_.ldv, T{0});
    WithType<T>(call_.dtype, [&](auto* type) {
      using S = std::remove_const_t<std::remove_pointer_t<decltype(type)>>;
      const auto* const v = static_cast<const S*>(head_.v.data) + (block_.first + needed.begin) * head_.v.row_stride;
      const Product<T, S> product = {.rows = rows,
                                     .a = scratch_.s + needed.begin,
                                     .lda = scratch_.lds,
                                     .b = v,
                                     .ldb = head_.v.row_stride,
                                     .k = needed.end - needed.begin,
                                     .c = sum,
                                     .ldc = scratch_.ldv};
      StreamedSum(product, scratch_.ldv);
    });
    if (block_.finishing) FinishRows(strip);
    for (std::int64_t x = 0; x < rows; ++x) {
      T* const o = block_.states.o + x * scratch_.ldv;
      for (std::int64_t c = 0; c < scratch_.ldv; c += scratch_.lanes) {
        Join(hn::Load(d, sum + x * scratch_.ldv + c), scratch_.factor[x], o + c);
      }
      if (block_.finishing) WriteRow(strip, x, o);
    }
  }

  // For a strip; v holds the values of the block, rows ldv apart.
  void Sum(const Strip& strip, const T* v) {
    if (block_.finishing) FinishRows(strip);
    for (std::int64_t x = 0; x < strip.rows; x += kRowTile) {
      const Range keys = strip.tile[x / kRowTile];
      const int rows = static_cast<int>(std::min<std::int64_t>(kRowTile, strip.rows - x));
      const T* const p = scratch_.s + x * scratch_.lds + keys.begin;
      const T* const values = keys.empty() ? v : v + (keys.begin + block_.first - block_.keys.begin) * scratch_.ldv;
      T* const o = block_.states.o + (strip.r + x) * scratch_.ldv;
      Product<T> product = {.rows = rows,
                            .a = p,
                            .lda = scratch_.lds,
                            .b = values,
                            .ldb = scratch_.ldv,
                            .k = keys.end - keys.begin,
                            .alpha = scratch_.factor + x,
                            .c = o,
                            .ldc = scratch_.ldv};
      if (!block_.finishing) {
        WeightedSum<Into::kAdd>(product, scratch_.ldv);
        continue;
      }
      T* const out = TileRows(rows) == rows ? RowsOfOutput(strip.r + x) : nullptr;
      if (out != nullptr) product.c = out, product.ldc = head_.out.row_stride;
      WeightedSum<Into::kScale>(product, scratch_.ldv);
      for (std::int64_t y = 0; out == nullptr && y < rows; ++y) WriteRow(strip, x + y, o + y * scratch_.ldv);
    }
  }

  // If the packed v holds Inf or NaN: keys that masks hide are left out, since 0·Inf is not 0. The same sums in the
  // same order as WeightedSum().
  void SumCarefully(const Strip& strip) {
    const hn::ScalableTag<T> d;
    const std::int64_t begin = block_.keys.begin - block_.first;
    if (block_.finishing) FinishRows(strip);
    RowPlace place = PlaceOf(strip.r);
    for (std::int64_t x = 0; x < strip.rows; ++x, ++place) {
      const T* const p = scratch_.s + x * scratch_.lds;
      T* const o = block_.states.o + (strip.r + x) * scratch_.ldv;
      for (std::int64_t c = 0; c < scratch_.ldv; c += scratch_.lanes) {
        auto sum = hn::Zero(d);
        for (std::int64_t y = strip.needed.begin; y < strip.needed.end; ++y) {
          if (!IsVisible(call_, head_, place.g, place.i, block_.first + y)) continue;
          sum = hn::MulAdd(hn::Set(d, p[y]), hn::Load(d, scratch_.v + (y - begin) * scratch_.ldv + c), sum);
        }
        Join(sum, scratch_.factor[x], o + c);
      }
      if (block_.finishing) WriteRow(strip, x, o);
    }
  }

  const ForwardCall& call_;
  const ForwardTask& task_;
  const ForwardHead& head_;
  const Scratch<T>& scratch_;
  const ValueBlock<T> block_;
  bool checked_ = false, packed_ = false;  // v of this block
  bool finite_ = true;                     // as far as known
};

}  // namespace keel::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
