// Between the caller's arrays (any dtype, any strides) and the kernel's scratch (accumulation type, aligned, padded).
#if defined(KEEL_CPU_PACK_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef KEEL_CPU_PACK_INL_H_
#undef KEEL_CPU_PACK_INL_H_
#else
#define KEEL_CPU_PACK_INL_H_
#endif

#include <hwy/highway.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "cpu/convert-inl.h"
#include "cpu/forward.h"
#include "cpu/round.h"

HWY_BEFORE_NAMESPACE();
namespace keel::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Keys, rows or columns [begin, end).
struct Range {
  std::int64_t begin = 0, end = 0;
  bool empty() const { return begin >= end; }
};

// Which query of which head of the group a row is: row = i·group + g. Consecutive rows need no division, and neither do
// those of a single head, since one takes as long as masking a short row.
struct RowPlace {
  RowPlace(std::int64_t row, std::int64_t of) : i(of == 1 ? row : row / of), g(of == 1 ? 0 : row % of), group(of) {}
  void operator++() {
    if (++g == group) g = 0, ++i;
  }
  std::int64_t i, g, group;
};

// Calls f(c) for each whole vector of n elements, four per round, since these loops are bound by instruction count.
// Returns where the rest begins.
template <class D, class F>
HWY_INLINE std::int64_t ForVectors(D d, std::int64_t n, const F& f) {
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  std::int64_t c = 0;
  for (; c + 4 * lanes <= n; c += 4 * lanes) f(c), f(c + lanes), f(c + 2 * lanes), f(c + 3 * lanes);
  for (; c + lanes <= n; c += lanes) f(c);
  return c;
}

// to[0, n) = factor · from[0, n), the source `stride` elements apart.
template <class T, class S>
HWY_INLINE void LoadRow(const S* from, std::int64_t stride, std::int64_t n, T factor, T* HWY_RESTRICT to) {
  const hn::ScalableTag<T> d;
  const auto times = hn::Set(d, factor);
  std::int64_t c = 0;
  if (stride == 1) {
    c = ForVectors(d, n, [&](std::int64_t x) { hn::StoreU(hn::Mul(LoadAs(d, from + x), times), d, to + x); });
  }
  for (; c < n; ++c) to[c] = ToScalar<T>(from[c * stride]) * factor;
}
template <class T>
HWY_INLINE void LoadRow(DType dtype, const void* from, std::int64_t at, std::int64_t stride, std::int64_t n, T factor,
                        T* HWY_RESTRICT to) {
  WithType<T>(dtype, [&](auto* type) { LoadRow<T>(static_cast<decltype(type)>(from) + at, stride, n, factor, to); });
}

// to[0, n) = factor · from[0, n), the destination `stride` elements apart.
template <class T, class S>
HWY_INLINE void StoreRow(S* to, std::int64_t stride, std::int64_t n, T factor, const T* HWY_RESTRICT from) {
  const hn::ScalableTag<T> d;
  const auto times = hn::Set(d, factor);
  std::int64_t c = 0;
  if (stride == 1) {
    const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
    const auto load = [&](std::int64_t x) { return hn::Mul(hn::LoadU(d, from + x), times); };
    for (; c + 4 * lanes <= n; c += 4 * lanes) {
      StoreTwoAs(d, load(c), load(c + lanes), to + c);
      StoreTwoAs(d, load(c + 2 * lanes), load(c + 3 * lanes), to + c + 2 * lanes);
    }
    for (; c + lanes <= n; c += lanes) StoreAs(d, load(c), to + c);
  }
  for (; c < n; ++c) to[c * stride] = FromScalar<T, S>(from[c] * factor);
}
// Inlined to the end: a call per row shows in the gradients of short calls.
template <class T>
HWY_INLINE void StoreRow(DType dtype, void* to, std::int64_t at, std::int64_t stride, std::int64_t n, T factor,
                         const T* HWY_RESTRICT from) {
  WithType<T>(
      dtype, [&](auto* type) __attribute__((always_inline)) {
        using S = std::remove_const_t<std::remove_pointer_t<decltype(type)>>;
        StoreRow<T>(static_cast<S*>(to) + at, stride, n, factor, from);
      });
}

// to[0, n) += factor · from[0, n), rounded once.
template <class T>
HWY_NOINLINE void AddRow(DType dtype, void* to, std::int64_t at, std::int64_t stride, std::int64_t n, T factor,
                         const T* HWY_RESTRICT from) {
  WithType<T>(dtype, [&](auto* type) {
    using S = std::remove_const_t<std::remove_pointer_t<decltype(type)>>;
    const hn::ScalableTag<T> d;
    const auto times = hn::Set(d, factor);
    S* const row = static_cast<S*>(to) + at;
    std::int64_t c = 0;
    if (stride == 1) {
      c = ForVectors(d, n, [&](std::int64_t x) {
        StoreAs(d, hn::MulAdd(hn::LoadU(d, from + x), times, LoadAs(d, row + x)), row + x);
      });
    }
    for (; c < n; ++c) {
      row[c * stride] = FromScalar<T, S>(from[c] * factor + ToScalar<T>(row[c * stride]));
    }
  });
}

// One value, for quantities with one per row or head.
template <class T>
HWY_INLINE T LoadOne(DType dtype, const void* from, std::int64_t at) {
  if (dtype == DType::f64) return static_cast<T>(static_cast<const double*>(from)[at]);
  T value = 0;
  WithType<T>(dtype, [&](auto* type) { value = ToScalar<T>(static_cast<decltype(type)>(from)[at]); });
  return value;
}

// A tile of keys by columns, transposed: to[c·ldt + x] = from[x·row_stride + c]. On AVX2 and AVX-512 a vector of keys
// by half a vector of columns; 128 bits by 128 bits elsewhere and for what does not fill a vector.
#if HWY_TARGET != HWY_SCALAR
template <class S>
HWY_INLINE void TransposeSmall(const S* from, std::int64_t row_stride, float* to, std::int64_t ldt) {
  const hn::FixedTag<float, 4> d;
  const hn::FixedTag<double, 2> dd;
  const auto a = LoadAs(d, from), b = LoadAs(d, from + row_stride);
  const auto c = LoadAs(d, from + 2 * row_stride), e = LoadAs(d, from + 3 * row_stride);
  const auto ab_low = hn::BitCast(dd, hn::InterleaveLower(d, a, b));
  const auto ce_low = hn::BitCast(dd, hn::InterleaveLower(d, c, e));
  const auto ab_high = hn::BitCast(dd, hn::InterleaveUpper(d, a, b));
  const auto ce_high = hn::BitCast(dd, hn::InterleaveUpper(d, c, e));
  hn::StoreU(hn::BitCast(d, hn::InterleaveLower(dd, ab_low, ce_low)), d, to);
  hn::StoreU(hn::BitCast(d, hn::InterleaveUpper(dd, ab_low, ce_low)), d, to + ldt);
  hn::StoreU(hn::BitCast(d, hn::InterleaveLower(dd, ab_high, ce_high)), d, to + 2 * ldt);
  hn::StoreU(hn::BitCast(d, hn::InterleaveUpper(dd, ab_high, ce_high)), d, to + 3 * ldt);
}
template <class S>
HWY_INLINE void TransposeSmall(const S* from, std::int64_t row_stride, double* to, std::int64_t ldt) {
  const hn::FixedTag<double, 2> d;
  const auto a = LoadAs(d, from), b = LoadAs(d, from + row_stride);
  hn::StoreU(hn::InterleaveLower(d, a, b), d, to);
  hn::StoreU(hn::InterleaveUpper(d, a, b), d, to + ldt);
}
template <class T>
constexpr std::int64_t kSmallSquare = 16 / sizeof(T);
#else
template <class S, class T>
HWY_INLINE void TransposeSmall(const S* from, std::int64_t, T* to, std::int64_t) {
  *to = ToScalar<T>(*from);
}
template <class T>
constexpr std::int64_t kSmallSquare = 1;
#endif

#if HWY_TARGET == HWY_AVX2 || HWY_TARGET == HWY_AVX3
constexpr int kVectorRows = HWY_MAX_BYTES / 4, kHalfRows = kVectorRows / 2;
using FloatVector = hn::Vec<hn::ScalableTag<float>>;

// Keys and columns that TransposeTile() takes at once: columns in pairs if bf16 is handled as words of two.
template <class T>
constexpr std::int64_t kTileKeys = sizeof(T) == 4 ? kVectorRows : kSmallSquare<T>;
template <class S, class T>
constexpr std::int64_t kTileColumns = sizeof(T) == 8                ? kSmallSquare<T>
                                      : std::is_same_v<S, BFloat16> ? kVectorRows
                                                                    : kHalfRows;

// Half a vector of columns of two keys, the second in the upper half. bf16 as words of two columns.
template <class S>
HWY_INLINE FloatVector LoadHalves(const S* low, const S* high) {
  const hn::ScalableTag<float> d;
  if constexpr (std::is_same_v<S, Float16>) {
    const hn::Rebind<hwy::float16_t, decltype(d)> d16;
    const hn::Half<decltype(d16)> dh;
    const auto half = [&](const S* at) { return hn::LoadU(dh, reinterpret_cast<const hwy::float16_t*>(at)); };
    return hn::PromoteTo(d, hn::Combine(d16, half(high), half(low)));
  } else {
    const hn::Half<decltype(d)> dh;
    const auto half = [&](const S* at) { return hn::LoadU(dh, reinterpret_cast<const float*>(at)); };
    return hn::Combine(d, half(high), half(low));
  }
}

// Row i of rows `stride` apart: few registers for many addresses.
template <class S>
HWY_INLINE const S* RowAt(const S* from, std::ptrdiff_t i, std::ptrdiff_t stride) {
  return from + i / 4 * (4 * stride) + i % 4 * stride;
}

// columns[c] = column c of kVectorRows keys, half a vector of columns (of bf16, of words). With the halves of keys four
// apart in a register, 4 × 4 transposes within blocks of 128 bits do most of it.
template <class S>
HWY_INLINE void LoadColumns(const S* from, std::int64_t row_stride, FloatVector (&columns)[kHalfRows]) {
  const hn::ScalableTag<float> d;
  const hn::ScalableTag<double> dd;
  for (int i = 0; i < kHalfRows; i += 4) {  // block b of columns[i + t] becomes column t of keys 2i + 4b to 2i + 4b + 3
    FloatVector rows[4];
    for (int t = 0; t < 4; ++t) {
      rows[t] = LoadHalves(RowAt(from, 2 * i + t, row_stride), RowAt(from, 2 * i + 4 + t, row_stride));
    }
    const auto low0 = hn::BitCast(dd, hn::InterleaveLower(d, rows[0], rows[1]));
    const auto low1 = hn::BitCast(dd, hn::InterleaveLower(d, rows[2], rows[3]));
    const auto high0 = hn::BitCast(dd, hn::InterleaveUpper(d, rows[0], rows[1]));
    const auto high1 = hn::BitCast(dd, hn::InterleaveUpper(d, rows[2], rows[3]));
    columns[i] = hn::BitCast(d, hn::InterleaveLower(dd, low0, low1));
    columns[i + 1] = hn::BitCast(d, hn::InterleaveUpper(dd, low0, low1));
    columns[i + 2] = hn::BitCast(d, hn::InterleaveLower(dd, high0, high1));
    columns[i + 3] = hn::BitCast(d, hn::InterleaveUpper(dd, high0, high1));
  }
#if HWY_TARGET == HWY_AVX3
  for (int t = 0; t < 4; ++t) {  // a half has two blocks: columns t and 4 + t of its keys
    const __m512 first = columns[t].raw, second = columns[4 + t].raw;
    columns[t] = FloatVector{_mm512_shuffle_f32x4(first, second, 0x88)};
    columns[4 + t] = FloatVector{_mm512_shuffle_f32x4(first, second, 0xDD)};
  }
#endif
}

template <class S>
HWY_INLINE void TransposeTile(const S* from, std::int64_t row_stride, float* to, std::int64_t ldt) {
  const hn::ScalableTag<float> d;
  FloatVector columns[kHalfRows];
  LoadColumns(from, row_stride, columns);
  for (int c = 0; c < kHalfRows; ++c) {
    if constexpr (std::is_same_v<S, BFloat16>) {
      hn::Store(EvenOfWords(d, columns[c]), d, to + 2 * c * ldt);
      hn::Store(OddOfWords(d, columns[c]), d, to + (2 * c + 1) * ldt);
    } else {
      hn::Store(columns[c], d, to + c * ldt);
    }
  }
}
template <class S>
HWY_INLINE void TransposeTile(const S* from, std::int64_t row_stride, double* to, std::int64_t ldt) {
  TransposeSmall(from, row_stride, to, ldt);
}
#else
template <class T>
constexpr std::int64_t kTileKeys = kSmallSquare<T>;
template <class S, class T>
constexpr std::int64_t kTileColumns = kSmallSquare<T>;
template <class S, class T>
HWY_INLINE void TransposeTile(const S* from, std::int64_t row_stride, T* to, std::int64_t ldt) {
  TransposeSmall(from, row_stride, to, ldt);
}
#endif

// Keys [j, j + keys) as one panel kᵀ (d_k, width); columns from `keys` to the end of their vector become 0.
template <class T>
HWY_NOINLINE void PackPanel(DType dtype, const Rows& k, std::int64_t j, std::int64_t keys, std::int64_t d_k,
                            std::int64_t width, T* HWY_RESTRICT panel) {
  constexpr std::int64_t tile_keys = kTileKeys<T>, small = kSmallSquare<T>;
  const hn::ScalableTag<T> d;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  if (const std::int64_t begin = keys / lanes * lanes; begin < keys) {
    for (std::int64_t c = 0; c < d_k; ++c) hn::Store(hn::Zero(d), d, panel + c * width + begin);
  }
  WithType<T>(dtype, [&](auto* type) {
    const std::int64_t stride = k.row_stride;
    const auto* source = static_cast<decltype(type)>(k.data) + j * stride;
    const auto one_by_one = [&](Range xs, Range cs) {
      for (std::int64_t x = xs.begin; x < xs.end; ++x) {
        for (std::int64_t c = cs.begin; c < cs.end; ++c) {
          panel[c * width + x] = ToScalar<T>(source[x * stride + c * k.column_stride]);
        }
      }
    };
    if (k.column_stride != 1) return one_by_one({0, keys}, {0, d_k});
    const auto in_small_squares = [&](Range xs, Range cs) {
      const std::int64_t x_end = xs.begin + (xs.end - xs.begin) / small * small;
      const std::int64_t c_end = cs.begin + (cs.end - cs.begin) / small * small;
      for (std::int64_t x = xs.begin; x < x_end; x += small) {
        for (std::int64_t c = cs.begin; c < c_end; c += small) {
          TransposeSmall(source + x * stride + c, stride, panel + c * width + x, width);
        }
      }
      one_by_one({xs.begin, x_end}, {c_end, cs.end});
      one_by_one({x_end, xs.end}, cs);
    };
    using S = std::remove_const_t<std::remove_pointer_t<decltype(type)>>;
    constexpr std::int64_t columns = kTileColumns<S, T>;
    const std::int64_t x_end = keys / tile_keys * tile_keys, c_end = d_k / columns * columns;
    for (std::int64_t x = 0; x < x_end; x += tile_keys) {
      for (std::int64_t c = 0; c < c_end; c += columns) {
        TransposeTile(source + x * stride + c, stride, panel + c * width + x, width);
      }
    }
    in_small_squares({0, x_end}, {c_end, d_k});
    in_small_squares({x_end, keys}, {0, d_k});
  });
}

// Gathers whether any value is not finite, in `seen`: x·0 is ±0 for finite x and NaN otherwise, and NaN or ±0 is NaN.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V Suspect(D d, V seen, V values) {
  return hn::Or(seen, hn::Mul(values, hn::Zero(d)));
}

// Whether rows of `columns` elements, ld apart, are finite: whole vectors, aligned.
template <class T>
HWY_INLINE bool AllFinite(const T* values, std::int64_t rows, std::int64_t columns, std::int64_t ld) {
  const hn::ScalableTag<T> d;
  const auto zero = hn::Zero(d);
  auto seen0 = zero, seen1 = zero, seen2 = zero, seen3 = zero;  // 0 or NaN; four chains hide the latency of one
  const auto add = [&](auto& seen, const T* at) { seen = hn::MulAdd(hn::Load(d, at), zero, seen); };
  std::int64_t x = 0;
  for (; x + 4 <= rows; x += 4) {
    const T* const row = values + x * ld;
    ForVectors(d, columns, [&](std::int64_t c) {
      add(seen0, row + c);
      add(seen1, row + ld + c);
      add(seen2, row + 2 * ld + c);
      add(seen3, row + 3 * ld + c);
    });
  }
  for (; x < rows; ++x) {
    ForVectors(d, columns, [&](std::int64_t c) { add(seen0, values + x * ld + c); });
  }
  return hn::AllFalse(d, hn::IsNaN(hn::Add(hn::Add(seen0, seen1), hn::Add(seen2, seen3))));
}

// Values [j, j + keys) as rows ldv elements apart, padded with 0 to whole vectors. Returns whether all are finite.
template <class T>
HWY_NOINLINE bool PackValues(DType dtype, const Rows& v, std::int64_t j, std::int64_t keys, std::int64_t d_v,
                             std::int64_t ldv, T* HWY_RESTRICT to) {
  bool finite = true;
  WithType<T>(dtype, [&](auto* type) {
    const hn::ScalableTag<T> d;
    const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
    auto seen = hn::Zero(d);
    for (std::int64_t x = 0; x < keys; ++x) {
      const auto* source = static_cast<decltype(type)>(v.data) + (j + x) * v.row_stride;
      T* const row = to + x * ldv;
      std::int64_t checked = 0;
      if (v.column_stride == 1) {
        checked = ForVectors(d, d_v, [&](std::int64_t y) {
          const auto values = LoadAs(d, source + y);
          seen = Suspect(d, seen, values);
          hn::Store(values, d, row + y);
        });
      }
      for (std::int64_t c = checked; c < d_v; ++c) row[c] = ToScalar<T>(source[c * v.column_stride]);
      if (checked == d_v) continue;
      std::fill(row + d_v, row + RoundUp(d_v, lanes), T{0});
      for (; checked < d_v; checked += lanes) seen = Suspect(d, seen, hn::Load(d, row + checked));
    }
    finite = hn::AllFalse(d, hn::IsNaN(seen));
  });
  return finite;
}

}  // namespace keel::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
