// From the running states to what the caller gets: sinks, the division by l, the row statistics.
#if defined(KEEL_CPU_EPILOGUE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef KEEL_CPU_EPILOGUE_INL_H_
#undef KEEL_CPU_EPILOGUE_INL_H_
#else
#define KEEL_CPU_EPILOGUE_INL_H_
#endif

#include <hwy/highway.h>

#include <cmath>

#include "cpu/forward.h"
#include "cpu/pack-inl.h"
#include "cpu/scratch-inl.h"

HWY_BEFORE_NAMESPACE();
namespace keel::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Writes one row's statistics; `max` is the largest score without the sink, all scores in units of log 2. Logarithms
// and powers are in T: in float they are as accurate as l, and for short rows those in double would show.
template <class T>
HWY_INLINE void WriteStatistics(const ForwardHead& head, std::int64_t g, std::int64_t i, const RowState<T>& state,
                                T max) {
  const auto put = [&](const MutableRows& to, double value) {
    if (to.data != nullptr) static_cast<T*>(to.data)[g * to.head_stride + i * to.row_stride] = static_cast<T>(value);
  };
  const bool masked = state.visible == 0;
  const bool needs_log = head.lse.data != nullptr || head.entropy.data != nullptr;
  const double log_l = needs_log && !masked ? static_cast<double>(std::log2(state.l)) : 0.0;
  put(head.lse, masked ? -INFINITY : state.l == 0 ? NAN : (static_cast<double>(state.m) + log_l) * kLn2);
  put(head.max_logit, static_cast<double>(max) * kLn2);
  if (head.max_weight.data != nullptr) {  // not from lse, which cannot represent log l next to a score of −1e30
    const T top = state.l == 0 ? static_cast<T>(NAN) : max == state.m ? T{1} : Exp2Scalar(max - state.m);
    put(head.max_weight, masked ? 0.0 : top / state.l);
  }
  if (head.entropy.data != nullptr) {
    // H = ln l − w/l; rounding can leave it slightly below 0
    const double entropy = (log_l - static_cast<double>(state.w / state.l)) * kLn2;
    put(head.entropy, masked ? 0.0 : entropy < 0 ? 0.0 : entropy);
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

// Finishes a row: its sink joins m and l, where the weights need it, and its statistics are written. Returns what its
// output must be multiplied by.
template <class T>
HWY_INLINE T FinishRow(const Call& call, const ForwardHead& head, const RowPlace& place, bool reports,
                       RowState<T>& state) {
  const bool undefined = state.l != state.l && state.max != static_cast<T>(INFINITY);
  T factor = 1;
  if (head.sinks.data != nullptr && state.visible > 0) factor = JoinSink(SinkOf<T>(call, head, place.g), state);
  const bool masked = state.visible == 0;
  if (reports) {
    const T max = undefined ? static_cast<T>(NAN) : state.max;
    WriteStatistics(head, place.g, place.i, state, masked ? static_cast<T>(-INFINITY) : max);
    if (head.m.data != nullptr) NoteNorm(head, place, state);
  }
  // A row whose visible scores are all −inf has l = 0: 0/0.
  return masked ? T{0} : state.l == 0 ? static_cast<T>(NAN) : factor / state.l;
}

// Writes the rows of a task.
template <class T>
void WriteRows(const Call& call, const ForwardTask& task, const States<T>& states, std::int64_t ldv) {
  const ForwardHead& head = *task.head;
  const bool reports = Reports(head);
  WithType<T>(call.out.dtype, [&](auto* type) {
    using S = std::remove_const_t<std::remove_pointer_t<decltype(type)>>;
    S* const out = static_cast<S*>(head.out.data);
    RowPlace place(task.row_begin, call.group);
    for (std::int64_t r = 0; r < task.row_end - task.row_begin; ++r, ++place) {
      const T norm = FinishRow(call, head, place, reports, states.rows[r]);
      StoreRow<T>(out + place.g * head.out.head_stride + place.i * head.out.row_stride, head.out.column_stride,
                  call.d_v, norm, states.o + r * ldv);
    }
  });
}

}  // namespace keel::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
