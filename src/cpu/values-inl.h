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

#include "cpu/apart-inl.h"
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

template <class P>
class ValueSums {
 public:
  using T = typename P::T;
  using Operand = typename P::Operand;

  // What is left to the queue is in the output after Complete().
  ValueSums(const ForwardCall& call, const ForwardTask& task, const Scratch<P>& scratch, const ValueBlock<T>& block,
            typename P::Queue& queue)
      : call_(call),
        task_(task),
        head_(*task.head),
        scratch_(scratch),
        block_(block),
        queue_(queue),
        steps_(P::StepsOf({block.keys.begin - block.first, block.keys.end - block.first})) {}

  // The weights of a strip times v, `masked` if some row does not see some key that another needs.
  HWY_INLINE void Add(const Strip& strip, bool masked) {
    if constexpr (!P::kPairs) {
      const T* const v = AlignedValues();
      const bool few = strip.needed.end - strip.needed.begin <= kKeysNotWorthPacking;
      if (!masked && CanStream() && (v == nullptr || !few)) return Stream(strip);
      if (masked && v != nullptr && !checked_) {
        finite_ = AllFinite(v + block_.keys.begin * scratch_.ldv, Keys(), scratch_.ldv, scratch_.ldv);
        checked_ = true;
      }
      if (v != nullptr && (finite_ || !masked)) return Sum(strip, v + block_.keys.begin * scratch_.ldv);
    } else if constexpr (!P::kSplits) {
      if constexpr (P::kStreams) {
        if (!masked && CanStream() && call_.d_v % 32 == 0) return Stream(strip);
      }
      // Whole steps take in keys that no row sees.
      const Range steps = P::StepsOf(strip.needed);
      masked = masked || 2 * steps.begin < strip.needed.begin || 2 * steps.end > strip.needed.end;
    }
    Pack();
    if constexpr (P::kSplits) {
      if (!finite_) return SumApart(strip);
    }
    if (finite_ || !masked) return Sum(strip, scratch_.v);
    if constexpr (!P::kSplits) SumCarefully(strip);
  }

  // Does what is left in the queue, and writes what came of the strip there.
  HWY_INLINE void Complete() {
    queue_.Finish();
    if (!queued_) return;
    queued_ = false;
    if (block_.finishing) WriteTile(strip_, 0, product_, product_.alpha);
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

  void Pack() {
    if (packed_) return;
    if constexpr (P::kSplits) {
      finite_ = !P::PackValues(head_.v, block_.keys, block_.first, call_.d_v, scratch_.v_layout, scratch_.v,
                               scratch_.v_apart);
    } else {
      finite_ =
          P::PackValues(call_.dtype, head_.v, block_.keys, block_.first, call_.d_v, scratch_.v_layout, scratch_.v);
    }
    packed_ = true;
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
    for (std::int64_t x = 0; x < strip.rows; x += kFinishedRows) {
      HWY_NAMESPACE::FinishRows(call_, head_, PlaceOf(strip.r + x), std::min(kFinishedRows, strip.rows - x),
                                scratch_.total.rows + strip.r + x, scratch_.FactorsOf(strip) + x);
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
    T* const sum = reinterpret_cast<T*>(scratch_.v);  // not packed into
    std::fill_n(sum, TileRows(rows) * scratch_.ldv, T{0});
    if constexpr (P::kPairs) {
      std::fill_n(sum + kRowTile * scratch_.ldv, scratch_.ldv, T{0});
      const PairsInPlace product = {.rows = rows,
                                    .p = P::Weights(scratch_.s),
                                    .ldp = scratch_.lds,
                                    .v = static_cast<const BFloat16*>(head_.v.data) + block_.first * head_.v.row_stride,
                                    .stride = head_.v.row_stride,
                                    .keys = needed,
                                    .sum = sum,
                                    .ld = scratch_.ldv,
                                    .columns = scratch_.ldv,
                                    .zeros = reinterpret_cast<const BFloat16*>(sum + kRowTile * scratch_.ldv)};
      P::Stream(product);
    } else {
      WithType<T>(call_.dtype, [&](auto* type) {
        using S = std::remove_const_t<std::remove_pointer_t<decltype(type)>>;
        const auto* const v = static_cast<const S*>(head_.v.data) + (block_.first + needed.begin) * head_.v.row_stride;
        const Product<T, S> product = {.rows = rows,
                                       .a = scratch_.s + needed.begin,
                                       .lda = scratch_.lds,
                                       .b = v,
                                       .layout = {head_.v.row_stride},
                                       .k = needed.end - needed.begin,
                                       .c = sum,
                                       .ldc = scratch_.ldv};
        StreamedSum(product, scratch_.ldv);
      });
    }
    if (block_.finishing) FinishRows(strip);
    for (std::int64_t x = 0; x < rows; ++x) {
      T* const o = block_.states.o + x * scratch_.ldv;
      for (std::int64_t c = 0; c < scratch_.ldv; c += scratch_.lanes) {
        Join(hn::Load(d, sum + x * scratch_.ldv + c), scratch_.factor[x], o + c);
      }
      if (block_.finishing) WriteRow(strip, x, o);
    }
  }

  // The weights in `s` of the keys that a tile of rows sees, times v, which holds the block's from steps_.begin on.
  ProductOf<P> ProductFor(const T* s, Range keys, const Operand* v) const {
    const Range steps = P::StepsOf(keys);
    ProductOf<P> product;
    product.a = P::Weights(s) + steps.begin;
    product.lda = scratch_.lds;
    product.b = keys.empty() ? v : v + (steps.begin - steps_.begin) * scratch_.v_layout.row;
    product.layout = scratch_.v_layout;
    product.k = steps.end - steps.begin;
    return product;
  }

  // For a strip; v holds the values of the block.
  void Sum(const Strip& strip, const Operand* v) {
    if (block_.finishing) FinishRows(strip);
    for (std::int64_t x = 0; x < strip.rows; x += P::kRowTile) {
      ProductOf<P> product = ProductFor(scratch_.ScoresOf(strip) + x * scratch_.lds, strip.tile[x / P::kRowTile], v);
      const int rows = product.rows = static_cast<int>(std::min<std::int64_t>(P::kRowTile, strip.rows - x));
      T* const o = block_.states.o + (strip.r + x) * scratch_.ldv;
      product.alpha = scratch_.FactorsOf(strip) + x;
      product.c = o;
      product.ldc = scratch_.ldv;
      if (queue_.Takes(product, scratch_.ldv)) {
        Enqueue(strip, product);
        continue;
      }
      if (!block_.finishing) {
        P::template Multiply<Into::kAdd>(product, scratch_.ldv);
        continue;
      }
      T* const out = P::TileRows(rows) == rows ? RowsOfOutput(strip.r + x) : nullptr;
      if (out != nullptr) product.c = out, product.ldc = head_.out.row_stride;
      P::template Multiply<Into::kScale>(product, scratch_.ldv);
      if (out == nullptr) WriteTile(strip, x, product, nullptr);
    }
  }

  // The rows of a product, from row x of the strip on, times their factors if they have not been multiplied.
  void WriteTile(const Strip& strip, std::int64_t x, const ProductOf<P>& product, const T* factors) {
    WithType<T>(call_.out.dtype, [&](auto* type) {
      using S = std::remove_const_t<std::remove_pointer_t<decltype(type)>>;
      S* const out = static_cast<S*>(head_.out.data);
      RowPlace place = PlaceOf(strip.r + x);
      for (std::int64_t y = 0; y < product.rows; ++y, ++place) {
        StoreRow<T>(out + place.g * head_.out.head_stride + place.i * head_.out.row_stride, head_.out.column_stride,
                    call_.d_v, factors == nullptr ? T{1} : factors[y], product.c + y * product.ldc);
      }
    });
  }

  // Leaves the only tile of a strip to the queue.
  void Enqueue(const Strip& strip, const ProductOf<P>& product) {
    if (block_.finishing) {
      queue_.template Add<Into::kSet>(product, scratch_.ldv);
    } else {
      queue_.template Add<Into::kAdd>(product, scratch_.ldv);
    }
    strip_ = strip;
    product_ = product;
    queued_ = true;
  }

  // If some of the values are not split: the sums of the others, of Sum(), and then those.
  void SumApart(const Strip& strip) {
    if (block_.finishing) FinishRows(strip);
    ProductOf<P> product = ProductFor(scratch_.ScoresOf(strip), strip.tile[0], scratch_.v);
    product.rows = static_cast<int>(strip.rows);
    product.alpha = scratch_.FactorsOf(strip);
    product.c = block_.states.o + strip.r * scratch_.ldv;
    product.ldc = scratch_.ldv;
    if (block_.finishing) {
      P::template Multiply<Into::kSet>(product, scratch_.ldv);
    } else {
      P::template Multiply<Into::kAdd>(product, scratch_.ldv);
    }
    AddApart(call_, head_, scratch_, strip, PlaceOf(strip.r), block_.keys, block_.first, product.c);
    if (block_.finishing) WriteTile(strip, 0, product, product.alpha);
  }

  // If the packed v holds Inf or NaN: row by row, with 0 for the values that masks hide from it, since 0·Inf is not 0.
  // The same sums in the same order as Sum().
  void SumCarefully(const Strip& strip) {
    if (block_.finishing) FinishRows(strip);
    RowPlace place = PlaceOf(strip.r);
    for (std::int64_t x = 0; x < strip.rows; ++x, ++place) {
      packed_ = false;
      Pack();
      for (std::int64_t j = block_.keys.begin; j < block_.keys.end; ++j) {
        if (IsVisible(call_, head_, place.g, place.i, j)) continue;
        P::HideValue(j - block_.first - P::ElementsIn(steps_.begin), scratch_.ldv, scratch_.v_layout, scratch_.v);
      }
      T* const o = block_.states.o + (strip.r + x) * scratch_.ldv;
      std::copy_n(scratch_.ScoresOf(strip) + x * scratch_.lds, scratch_.lds, scratch_.row_s);
      std::copy_n(o, scratch_.ldv, scratch_.row_o);
      ProductOf<P> product = ProductFor(scratch_.row_s, strip.tile[x / P::kRowTile], scratch_.v);
      product.rows = 1;
      product.alpha = scratch_.FactorsOf(strip) + x;
      product.c = scratch_.row_o;
      product.ldc = scratch_.ldv;
      if (block_.finishing) {
        P::template Multiply<Into::kScale>(product, scratch_.ldv);
        WriteRow(strip, x, scratch_.row_o);
      } else {
        P::template Multiply<Into::kAdd>(product, scratch_.ldv);
        std::copy_n(scratch_.row_o, scratch_.ldv, o);
      }
    }
    packed_ = false;
  }

  const ForwardCall& call_;
  const ForwardTask& task_;
  const ForwardHead& head_;
  const Scratch<P>& scratch_;
  const ValueBlock<T> block_;
  typename P::Queue& queue_;
  const Range steps_;                      // what the packed v holds
  bool checked_ = false, packed_ = false;  // v of this block
  bool finite_ = true;                     // as far as known; of split values, whether all are split
  bool queued_ = false;                    // a strip whose product the queue has
  Strip strip_ = {};
  ProductOf<P> product_;
};

}  // namespace keel::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
