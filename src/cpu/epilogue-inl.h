// From the running states to what the caller gets: sinks, the division by l, the row statistics.
#if defined(KEEL_CPU_EPILOGUE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef KEEL_CPU_EPILOGUE_INL_H_
#undef KEEL_CPU_EPILOGUE_INL_H_
#else
#define KEEL_CPU_EPILOGUE_INL_H_
#endif

#include <hwy/highway.h>

#include <algorithm>
#include <cmath>

#include "cpu/forward.h"
#include "cpu/pack-inl.h"
#include "cpu/scratch-inl.h"

HWY_BEFORE_NAMESPACE();
namespace keel::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Rows that are finished together.
constexpr std::int64_t kFinishedRows = 16;

// log₂ l of up to kFinishedRows rows: in T, as accurate as l, and by vectors, since for short rows one at a time shows.
// Of a NaN it is any number.
template <class T>
HWY_INLINE void LogsOf(const RowState<T>* states, std::int64_t rows, T* logs) {
  for (std::int64_t x = 0; x < rows; ++x) logs[x] = states[x].l;
  if constexpr (sizeof(T) == 4) {
    const hn::CappedTag<T, kFinishedRows> d;
    std::fill(logs + rows, logs + kFinishedRows, T{1});
    for (std::int64_t x = 0; x < rows; x += static_cast<std::int64_t>(hn::Lanes(d))) {
      hn::Store(Log2(d, hn::Load(d, logs + x)), d, logs + x);
    }
  } else {
    for (std::int64_t x = 0; x < rows; ++x) logs[x] = std::log2(logs[x]);
  }
}

// to = value(x) for up to kFinishedRows rows from `first` on, if it is requested.
template <class U, class Value>
HWY_INLINE void PutRows(const MutableRows& to, const RowPlace& first, std::int64_t rows, const Value& value) {
  if (to.data == nullptr) return;
  U* const data = static_cast<U*>(to.data);
  RowPlace place = first;
  for (std::int64_t x = 0; x < rows; ++x, ++place) {
    data[place.g * to.head_stride + place.i * to.row_stride] = static_cast<U>(value(x));
  }
}

// The largest weights before their division by l, of up to kFinishedRows rows, by vectors.
template <class T>
HWY_INLINE void LargestWeights(const RowState<T>* states, std::int64_t rows, const T* max, T* weights) {
  const hn::CappedTag<T, kFinishedRows> d;
  std::fill(weights, weights + kFinishedRows, T{0});
  for (std::int64_t x = 0; x < rows; ++x) weights[x] = max[x] == states[x].m ? T{0} : max[x] - states[x].m;
  for (std::int64_t x = 0; x < rows; x += static_cast<std::int64_t>(hn::Lanes(d))) {
    hn::Store(Exp2(d, hn::Load(d, weights + x)), d, weights + x);
  }
}

// Writes the statistics of up to kFinishedRows rows, one statistic after the other; `max` has their largest scores
// without the sinks, all scores in units of log 2.
template <class T>
HWY_INLINE void WriteStatistics(const ForwardHead& head, const RowPlace& first, std::int64_t rows,
                                const RowState<T>* states, const T* max) {
  HWY_ALIGN T logs[kFinishedRows] = {};
  if (head.lse.data != nullptr || head.entropy.data != nullptr) LogsOf(states, rows, logs);
  PutRows<T>(head.lse, first, rows, [&](std::int64_t x) {
    const double lse = (static_cast<double>(states[x].m) + static_cast<double>(logs[x])) * kLn2;
    return states[x].visible == 0 ? -INFINITY : states[x].l > 0 ? lse : NAN;  // NaN where the row has a NaN
  });
  PutRows<T>(head.max_logit, first, rows, [&](std::int64_t x) { return static_cast<double>(max[x]) * kLn2; });
  if (head.max_weight.data != nullptr) {  // not from lse, which cannot represent log l next to a score of −1e30
    HWY_ALIGN T weights[kFinishedRows];
    LargestWeights(states, rows, max, weights);
    PutRows<T>(head.max_weight, first, rows, [&](std::int64_t x) {
      const T l = states[x].l;
      return states[x].visible == 0 ? T{0} : l == 0 ? static_cast<T>(NAN) : weights[x] / l;
    });
  }
  PutRows<T>(head.entropy, first, rows, [&](std::int64_t x) {
    // H = ln l − w/l; rounding can leave it slightly below 0
    const RowState<T>& state = states[x];
    const double entropy = (static_cast<double>(logs[x]) - static_cast<double>(state.w / state.l)) * kLn2;
    return state.visible == 0 ? 0.0 : !(state.l > 0) ? NAN : entropy < 0 ? 0.0 : entropy;
  });
  const auto put_moment = [&](const MutableRows& to, const auto& moment) {
    PutRows<T>(to, first, rows, [&](std::int64_t x) {
      const RowState<T>& state = states[x];
      // A NaN, or nothing but −inf by arithmetic.
      const bool undefined = state.visible != 0 && !(max[x] > static_cast<T>(-INFINITY));
      return undefined ? NAN : state.counted == 0 ? 0.0 : moment(state);
    });
  };
  put_moment(head.logit_mean, [](const RowState<T>& state) { return state.mean * kLn2; });
  put_moment(head.logit_var, [](const RowState<T>& state) { return state.squares / state.counted * kLn2 * kLn2; });
  PutRows<std::int64_t>(head.visible, first, rows, [&](std::int64_t x) { return states[x].visible; });
  PutRows<std::int64_t>(head.logit_count, first, rows, [&](std::int64_t x) { return states[x].counted; });
}

// Stores what a second pass needs: 0 for a row that sees nothing, NaN for one that is NaN.
template <class T>
HWY_INLINE void NoteNorm(const ForwardHead& head, const RowPlace& place, const RowState<T>& state) {
  const bool masked = state.visible == 0;
  const auto put = [&](const MutableRows& to, T value) {
    static_cast<T*>(to.data)[place.g * to.head_stride + place.i * to.row_stride] = value;
  };
  put(head.m, masked ? T{0} : state.m);
  put(head.norm, masked ? T{0} : state.l == 0 ? static_cast<T>(NAN) : T{1} / state.l);
}

// Whether anything but the output is requested.
HWY_INLINE bool Reports(const ForwardHead& head) {
  return head.lse.data != nullptr || head.max_logit.data != nullptr || head.entropy.data != nullptr ||
         head.max_weight.data != nullptr || head.logit_mean.data != nullptr || head.logit_var.data != nullptr ||
         head.visible.data != nullptr || head.logit_count.data != nullptr || head.weights.data != nullptr ||
         head.m.data != nullptr;
}

// Finishes up to kFinishedRows rows: their sinks join m and l, where the weights need them, and their statistics are
// written. `factors` becomes what their output must be multiplied by.
template <class T>
HWY_NOINLINE void FinishRows(const Call& call, const ForwardHead& head, const RowPlace& first, std::int64_t rows,
                             RowState<T>* states, T* factors) {
  T max[kFinishedRows];
  RowPlace place = first;
  for (std::int64_t x = 0; x < rows; ++x, ++place) {
    RowState<T>& state = states[x];
    const bool masked = state.visible == 0, undefined = state.l != state.l && state.max != static_cast<T>(INFINITY);
    max[x] = masked ? static_cast<T>(-INFINITY) : undefined ? static_cast<T>(NAN) : state.max;
    const T factor = head.sinks.data != nullptr && !masked ? JoinSink(SinkOf<T>(call, head, place.g), state) : T{1};
    // A row whose visible scores are all −inf has l = 0: 0/0.
    factors[x] = masked ? T{0} : state.l == 0 ? static_cast<T>(NAN) : factor / state.l;
  }
  if (!Reports(head)) return;
  WriteStatistics(head, first, rows, states, max);
  if (head.m.data == nullptr) return;
  place = first;
  for (std::int64_t x = 0; x < rows; ++x, ++place) NoteNorm(head, place, states[x]);
}

// Writes the rows of a task.
template <class T>
void WriteRows(const Call& call, const ForwardTask& task, const States<T>& states, std::int64_t ldv) {
  const ForwardHead& head = *task.head;
  const std::int64_t rows = task.row_end - task.row_begin;
  WithType<T>(call.out.dtype, [&](auto* type) {
    using S = std::remove_const_t<std::remove_pointer_t<decltype(type)>>;
    S* const out = static_cast<S*>(head.out.data);
    RowPlace place(task.row_begin, call.group);
    T norms[kFinishedRows];
    for (std::int64_t r = 0; r < rows; ++r, ++place) {
      const std::int64_t x = r % kFinishedRows;
      if (x == 0) FinishRows(call, head, place, std::min(kFinishedRows, rows - r), states.rows + r, norms);
      StoreRow<T>(out + place.g * head.out.head_stride + place.i * head.out.row_stride, head.out.column_stride,
                  call.d_v, norms[x], states.o + r * ldv);
    }
  });
}

}  // namespace keel::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
