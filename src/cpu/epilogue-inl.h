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

// Writes one row's statistics; `max` is the largest score without the sink, `log_l` as LogsOf() has it, all scores in
// units of log 2.
template <class T>
HWY_INLINE void WriteStatistics(const ForwardHead& head, std::int64_t g, std::int64_t i, const RowState<T>& state,
                                T max, T log_l) {
  const auto put = [&](const MutableRows& to, double value) {
    if (to.data != nullptr) static_cast<T*>(to.data)[g * to.head_stride + i * to.row_stride] = static_cast<T>(value);
  };
  const bool masked = state.visible == 0;
  const bool has_log = state.l > 0;  // NaN where the row has a NaN
  put(head.lse, masked    ? -INFINITY
                : has_log ? (static_cast<double>(state.m) + static_cast<double>(log_l)) * kLn2
                          : NAN);
  put(head.max_logit, static_cast<double>(max) * kLn2);
  if (head.max_weight.data != nullptr) {  // not from lse, which cannot represent log l next to a score of −1e30
    const T top = state.l == 0 ? static_cast<T>(NAN) : max == state.m ? T{1} : Exp2Scalar(max - state.m);
    put(head.max_weight, masked ? 0.0 : top / state.l);
  }
  if (head.entropy.data != nullptr) {
    // H = ln l − w/l; rounding can leave it slightly below 0
    const double entropy = (static_cast<double>(log_l) - static_cast<double>(state.w / state.l)) * kLn2;
    put(head.entropy, masked ? 0.0 : !has_log ? NAN : entropy < 0 ? 0.0 : entropy);
  }
  if (head.logit_mean.data != nullptr || head.logit_var.data != nullptr) {
    const bool undefined = !masked && !(max > static_cast<T>(-INFINITY));  // a NaN, or nothing but −inf by arithmetic
    const bool none = state.counted == 0;
    put(head.logit_mean, undefined ? NAN : none ? 0.0 : state.mean * kLn2);
    put(head.logit_var, undefined ? NAN : none ? 0.0 : state.squares / state.counted * kLn2 * kLn2);
  }
  const auto put_count = [&](const MutableRows& to, std::int64_t count) {
    if (to.data != nullptr) static_cast<std::int64_t*>(to.data)[g * to.head_stride + i * to.row_stride] = count;
  };
  put_count(head.visible, state.visible);
  put_count(head.logit_count, static_cast<std::int64_t>(state.counted));
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
  HWY_ALIGN T logs[kFinishedRows] = {};
  if (head.lse.data != nullptr || head.entropy.data != nullptr) LogsOf(states, rows, logs);
  place = first;
  for (std::int64_t x = 0; x < rows; ++x, ++place) {
    WriteStatistics(head, place.g, place.i, states[x], max[x], logs[x]);
    if (head.m.data != nullptr) NoteNorm(head, place, states[x]);
  }
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
