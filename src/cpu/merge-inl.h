// out = Σ w_p·out_p over the parts p of a row, w_p = exp(lse_p − lse), and the row statistics likewise.
//
// Cost: every element is read and written once, with one multiply-add per part, so memory bounds it. The weights, one
// exponential per row and part, are computed for a run of rows at a time, in double whatever the dtype.
#if defined(KEEL_CPU_MERGE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef KEEL_CPU_MERGE_INL_H_
#undef KEEL_CPU_MERGE_INL_H_
#else
#define KEEL_CPU_MERGE_INL_H_
#endif

#include <hwy/highway.h>

#include <algorithm>
#include <cmath>

#include "core/element.h"
#include "cpu/exp2-inl.h"
#include "cpu/merge.h"
#include "cpu/pack-inl.h"

HWY_BEFORE_NAMESPACE();
namespace keel::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Rows whose weights are computed together: whole vectors of any target, and no more of a part than the hardware
// prefetches ahead meanwhile.
constexpr std::int64_t kRun = 32, kLeastRun = 8, kRunBytes = 4096;

// Consecutive rows of one head: (b, h, i) to (b, h, i + rows − 1).
struct Run {
  std::int64_t b, h, i, rows;
};

// What a view has for the rows of a run, one value each.
template <class E>
struct Column {
  template <class View>
  Column(const View& view, const Run& run)
      : data(static_cast<E*>(view.data) + offset(view, run.b, run.h, run.i)), stride(view.strides[2]) {}
  HWY_INLINE E& operator[](std::int64_t x) const { return data[x * stride]; }
  E* data;
  std::int64_t stride;
};

// The larger; NaN is sticky.
HWY_INLINE double MaxOf(double a, double b) { return b != b || b > a ? b : a; }

template <class T>
class Merger {
 public:
  Merger(const MergeCall& call, std::byte* workspace) : call_(call), columns_(call.out.shape[3]) {
    lse_ = reinterpret_cast<double*>(workspace);
    w_ = lse_ + call.count * kRun;
    top_ = w_ + call.count * kRun;
    l_ = top_ + kRun;
    rows_ = reinterpret_cast<WeightedRow*>(l_ + kRun);
    sum_ = reinterpret_cast<T*>(rows_ + call.count);
    alike_ = call.out.strides[3] == 1;
    for (std::int64_t p = 0; p < call.count; ++p) {
      alike_ = alike_ && call.parts[p].out.dtype == call.out.dtype && call.parts[p].out.strides[3] == 1;
    }
  }

  static std::int64_t WorkspaceBytes(const MergeCall& call) {
    return (2 * call.count + 2) * kRun * static_cast<std::int64_t>(sizeof(double)) +
           call.count * static_cast<std::int64_t>(sizeof(WeightedRow)) +
           call.out.shape[3] * static_cast<std::int64_t>(sizeof(T));
  }

  // A row is read completely before it is written, since a part may be overwritten.
  void Join(const Run& run) {
    const Outputs& outputs = call_.outputs;
    Weigh(run);
    if (outputs.max_logit.data != nullptr) MaxLogit(run);
    if (outputs.entropy.data != nullptr) Entropy(run);
    if (outputs.max_weight.data != nullptr) MaxWeight(run);
    if (outputs.logit_mean.data != nullptr || outputs.logit_var.data != nullptr) Moments(run);
    if (outputs.visible.data != nullptr) Count(run, &Partial::visible, outputs.visible);
    if (outputs.logit_count.data != nullptr) Count(run, &Partial::logit_count, outputs.logit_count);
    if (outputs.lse.data != nullptr) {
      const Column<T> lse(outputs.lse, run);
      for (std::int64_t x = 0; x < run.rows; ++x) {
        lse[x] = static_cast<T>(l_[x] == 0 ? kNothing : top_[x] + LogOfSum(x));
      }
    }
    for (std::int64_t x = 0; x < run.rows; ++x) SumRow(run, x);
  }

 private:
  // A part's row of out, and what it is multiplied by.
  struct WeightedRow {
    const void* data;
    std::int64_t part;
    T w;
  };

  static constexpr double kNothing = -INFINITY;  // the lse of a part that saw no key

  bool Saw(std::int64_t p, std::int64_t x) const { return lse_[p * kRun + x] != kNothing; }

  double LogOfSum(std::int64_t x) const { return std::log(static_cast<T>(l_[x])); }

  // top = the largest lse of a row, l = Σ exp(lse − top), w = exp(lse − top)/l: 0 for parts that saw no key, NaN for
  // all of a row that has a NaN or +inf. l is 0 if no part saw a key.
  void Weigh(const Run& run) {
    const hn::ScalableTag<double> d;
    const auto n = static_cast<std::int64_t>(hn::Lanes(d));
    const std::int64_t padded = hwy::DivCeil(run.rows, n) * n;
    std::fill_n(top_, padded, kNothing);
    for (std::int64_t p = 0; p < call_.count; ++p) {
      const Column<const T> from(call_.parts[p].lse, run);
      double* const lse = lse_ + p * kRun;
      for (std::int64_t x = 0; x < run.rows; ++x) lse[x] = from[x];
      std::fill(lse + run.rows, lse + padded, 0.0);
      for (std::int64_t x = 0; x < padded; ++x) top_[x] = lse[x] > top_[x] ? lse[x] : top_[x];
    }
    const auto nothing = hn::Set(d, kNothing), log2e = hn::Set(d, kLog2E);
    for (std::int64_t x = 0; x < run.rows; x += n) {
      const auto top = hn::Load(d, top_ + x);
      auto l = hn::Zero(d);
      for (std::int64_t p = 0; p < call_.count; ++p) {
        const auto lse = hn::Load(d, lse_ + p * kRun + x);
        const auto w = hn::IfThenZeroElse(hn::Eq(lse, nothing), Exp2(d, hn::Mul(hn::Sub(lse, top), log2e)));
        l = hn::Add(l, w);
        hn::Store(w, d, w_ + p * kRun + x);
      }
      hn::Store(l, d, l_ + x);
      for (std::int64_t p = 0; p < call_.count; ++p) {
        double* const w = w_ + p * kRun + x;
        hn::Store(hn::Div(hn::Load(d, w), l), d, w);
      }
    }
  }

  void MaxLogit(const Run& run) {
    const Column<T> out(call_.outputs.max_logit, run);
    for (std::int64_t x = 0; x < run.rows; ++x) {
      double most = -INFINITY;
      for (std::int64_t p = 0; p < call_.count; ++p) {
        if (Saw(p, x)) most = MaxOf(most, Column<const T>(call_.parts[p].max_logit, run)[x]);
      }
      out[x] = static_cast<T>(most);
    }
  }

  void MaxWeight(const Run& run) {
    const Column<T> out(call_.outputs.max_weight, run);
    for (std::int64_t x = 0; x < run.rows; ++x) {
      double most = 0;
      for (std::int64_t p = 0; p < call_.count; ++p) {
        if (Saw(p, x)) most = MaxOf(most, w_[p * kRun + x] * Column<const T>(call_.parts[p].max_weight, run)[x]);
      }
      out[x] = static_cast<T>(most);
    }
  }

  // H = Σ w_p (H_p − ln w_p)
  void Entropy(const Run& run) {
    const Column<T> out(call_.outputs.entropy, run);
    for (std::int64_t x = 0; x < run.rows; ++x) {
      const double log_l = LogOfSum(x);
      double entropy = 0;
      for (std::int64_t p = 0; p < call_.count; ++p) {
        if (!Saw(p, x)) continue;
        const double ln_w = lse_[p * kRun + x] - top_[x] - log_l;
        entropy += w_[p * kRun + x] * (Column<const T>(call_.parts[p].entropy, run)[x] - ln_w);
      }
      out[x] = static_cast<T>(entropy);
    }
  }

  // Chan's formula for all parts at once. Means are taken relative to the first, so that equal ones have no variance,
  // however large they are.
  void Moments(const Run& run) {
    const Outputs& out = call_.outputs;
    for (std::int64_t x = 0; x < run.rows; ++x) {
      double counted = 0, from = 0, mean = 0, var = 0;
      const auto for_parts = [&](auto add) {  // add(part, its number of scores, their mean)
        for (std::int64_t p = 0; p < call_.count; ++p) {
          if (!Saw(p, x)) continue;
          const Partial& part = call_.parts[p];
          const auto number = static_cast<double>(Column<const std::int64_t>(part.logit_count, run)[x]);
          const double its_mean = Column<const T>(part.logit_mean, run)[x];
          if (number > 0 || its_mean != its_mean) add(part, number, its_mean);
        }
      };
      for_parts([&](const Partial&, double number, double its_mean) {
        if (counted == 0 && std::isfinite(its_mean)) from = its_mean;
        counted += number;
      });
      for_parts([&](const Partial&, double number, double its_mean) { mean += number / counted * (its_mean - from); });
      if (out.logit_var.data != nullptr) {
        for_parts([&](const Partial& part, double number, double its_mean) {
          const double off = its_mean - from - mean;
          var += number / counted * (Column<const T>(part.logit_var, run)[x] + off * off);
        });
        Column<T>(out.logit_var, run)[x] = static_cast<T>(var);
      }
      if (out.logit_mean.data != nullptr) Column<T>(out.logit_mean, run)[x] = static_cast<T>(from + mean);
    }
  }

  // The caller's numbers may be any: unsigned, so that no sum of them is undefined.
  void Count(const Run& run, RowView Partial::*counts, const MutableRowView& result) {
    const Column<std::uint64_t> out(result, run);
    for (std::int64_t x = 0; x < run.rows; ++x) {
      std::uint64_t count = 0;
      for (std::int64_t p = 0; p < call_.count; ++p) {
        if (Saw(p, x)) count += Column<const std::uint64_t>(call_.parts[p].*counts, run)[x];
      }
      out[x] = count;
    }
  }

  void SumRow(const Run& run, std::int64_t x) {
    std::int64_t count = 0;
    for (std::int64_t p = 0; p < call_.count; ++p) {
      if (!Saw(p, x)) continue;
      const TensorView& out = call_.parts[p].out;
      const std::int64_t at = offset(out, run.b, run.h, run.i + x, 0) * size_of(out.dtype);
      rows_[count++] = {static_cast<const std::byte*>(out.data) + at, p, static_cast<T>(w_[p * kRun + x])};
    }
    WithElement(call_.out.dtype, [&](auto* type) {
      using S = std::remove_const_t<std::remove_pointer_t<decltype(type)>>;
      S* const to = static_cast<S*>(call_.out.data) + offset(call_.out, run.b, run.h, run.i + x, 0);
      if (alike_ && count > 0) return SumAlike(count, to);
      Sum(count);
      StoreRow<T>(to, call_.out.strides[3], columns_, T{1}, sum_);
    });
  }

  // to = Σ w_p·out_p if all have the same layout, without a trip through sum_. The first two parts, often all there
  // are, stay in registers.
  template <class S>
  HWY_INLINE void SumAlike(std::int64_t count, S* to) {
    const S* const first = static_cast<const S*>(rows_[0].data);
    const bool one = count == 1;
    const S* const second = one ? first : static_cast<const S*>(rows_[1].data);
    const T first_w = rows_[0].w, second_w = one ? T{0} : rows_[1].w;
    const auto sum = [&](auto d, std::int64_t c) {
      auto total = hn::Mul(hn::Set(d, first_w), LoadAs(d, first + c));
      if (!one) total = hn::MulAdd(hn::Set(d, second_w), LoadAs(d, second + c), total);
      for (std::int64_t r = 2; r < count; ++r) {
        total = hn::MulAdd(hn::Set(d, rows_[r].w), LoadAs(d, static_cast<const S*>(rows_[r].data) + c), total);
      }
      StoreAs(d, total, to + c);
    };
    const hn::ScalableTag<T> d;
    std::int64_t c = ForVectors(d, columns_, [&](std::int64_t y) { sum(d, y); });
    for (; c < columns_; ++c) sum(hn::CappedTag<T, 1>(), c);
  }

  // sum_ = Σ w_p·out_p
  void Sum(std::int64_t count) {
    if (count == 0) std::fill_n(sum_, columns_, T{0});
    for (std::int64_t r = 0; r < count; ++r) {
      const TensorView& part = call_.parts[rows_[r].part].out;
      WithElement(part.dtype, [&](auto* type) {
        const auto* const from = static_cast<decltype(type)>(rows_[r].data);
        r == 0 ? LoadRow<T>(from, part.strides[3], columns_, rows_[r].w, sum_)
               : AddRow(from, part.strides[3], columns_, rows_[r].w, sum_);
      });
    }
  }

  // to += factor · from, as LoadRow().
  template <class S>
  static HWY_INLINE void AddRow(const S* from, std::int64_t stride, std::int64_t n, T factor, T* HWY_RESTRICT to) {
    const hn::ScalableTag<T> d;
    const auto times = hn::Set(d, factor);
    std::int64_t c = 0;
    if (stride == 1) {
      c = ForVectors(d, n, [&](std::int64_t y) {
        hn::StoreU(hn::MulAdd(times, LoadAs(d, from + y), hn::LoadU(d, to + y)), d, to + y);
      });
    }
    for (; c < n; ++c) to[c] += factor * ToScalar<T>(from[c * stride]);
  }

  // WithType() for the types that accumulate in T.
  template <class F>
  static HWY_INLINE void WithElement(DType dtype, const F& f) {
    if constexpr (sizeof(T) == 8) {
      f(static_cast<const double*>(nullptr));
    } else {
      WithType<T>(dtype, f);
    }
  }

  const MergeCall& call_;
  const std::int64_t columns_;
  bool alike_;         // every part has the dtype of out, and both have gap-free rows
  double *lse_, *w_;   // (parts, kRun)
  double *top_, *l_;   // (kRun)
  WeightedRow* rows_;  // (parts)
  T* sum_;             // (columns)
};

template <class T>
void RunMerge(const MergeCall& call, std::int64_t begin, std::int64_t end, std::byte* workspace) {
  Merger<T> merger(call, workspace);
  const std::int64_t heads = call.out.shape[1], rows = call.out.shape[2];
  const std::int64_t row_bytes = std::max<std::int64_t>(call.out.shape[3], 1) * size_of(call.out.dtype);
  const std::int64_t run = std::clamp(kRunBytes / row_bytes, kLeastRun, kRun);
  for (std::int64_t r = begin; r < end;) {
    const std::int64_t i = r % rows, count = std::min({run, rows - i, end - r});
    merger.Join({r / rows / heads, r / rows % heads, i, count});
    r += count;
  }
}

template <class T>
MergeKernel MakeMergeKernel() {
  return {&Merger<T>::WorkspaceBytes, &RunMerge<T>};
}

}  // namespace keel::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
