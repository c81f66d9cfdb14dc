#pragma once

#include <cmath>

#include "core/call.h"
#include "cuda/element.h"
#include "cuda/lanes.h"
#include "cuda/plain_sums.h"

// The join of results over different keys, merge() in keel/attention.h, one row at a time:
//   w_p = exp(lse_p − lse)    out = Σ w_p · out_p    statistics likewise
//
// Cost: every element is read and written once; an exponential and a logarithm per row and part, in double.
namespace keel::cuda {

// One part; arrays that are not needed are null.
struct MergePart {
  Strided out, lse, max_logit, entropy, max_weight, logit_mean, logit_var, visible, logit_count;
};

// What is asked for.
struct MergeResult {
  MutableStrided out, lse, max_logit, entropy, max_weight, logit_mean, logit_var, visible, logit_count;
};

struct MergeCall {
  DType dtype = DType::f32;                             // of out
  std::int64_t batch = 0, heads = 0, n_q = 0, d_v = 0;  // shape of out
  std::int64_t count = 0;                               // parts
  MergeResult result;
};

// Brings descriptions of parts to where the kernels run, as an argument does, so that nothing waits for a copy. Items
// are parts.
struct TakeParts {
  static constexpr int kMost = 8;  // arguments may have 4 KB

  MergePart parts[kMost];
  MergePart* to;

  template <class Lanes>
  KEEL_HD void operator()(std::int64_t item, const Lanes&) const {
    to[item] = parts[item];
  }
};

// One row of all parts.
class MergeRow {
 public:
  KEEL_HD MergeRow(const MergeCall& call, const MergePart* parts, std::int64_t item)
      : call_(call),
        parts_(parts),
        b_(item / call.n_q / call.heads),
        h_(item / call.n_q % call.heads),
        i_(item % call.n_q) {}

  // The largest lse, and the logarithm of Σ exp(lse − top). A part with lse −inf saw no key and counts for nothing.
  template <class Lanes>
  KEEL_HD void find_lse(const Lanes& lanes) {
    double top = -INFINITY, l = 0;
    for_parts(lanes, [&](std::int64_t, double lse) { top = lse > top ? lse : top; });
    top_ = lanes.max(top);
    for_parts(lanes, [&](std::int64_t, double lse) { l += std::exp(lse - top_); });
    l_ = lanes.sum(l);
    log_l_ = std::log(l_);
  }

  // Term t of out.
  template <class A>
  KEEL_HD Term<A> term(std::int64_t t) const {
    const double lse = lse_of(t);
    return lse == -INFINITY ? Term<A>() : Term<A>{true, static_cast<A>(weight(lse))};
  }
  template <class A>
  KEEL_HD AnyElements<A> out(std::int64_t t) const {
    return any_elements<A>(parts_[t].out, b_, h_, i_);
  }
  KEEL_HD std::int64_t place(const MutableStrided& x, std::int64_t c = 0) const { return place_in(x, b_, h_, i_, c); }

  // The statistics over all parts, which lane 0 writes after all lanes have read what may be the same memory.
  template <class Lanes>
  KEEL_HD void join_statistics(const Lanes& lanes) const {
    double max_logit = -INFINITY, entropy = 0, max_weight = 0;
    std::int64_t visible = 0, counted = 0,
                 first = -call_.count;  // first: minus the number of a part with a finite mean
    for_parts(lanes, [&](std::int64_t t, double lse) {
      const MergePart& part = parts_[t];
      const double w = weight(lse);
      max_logit = larger_of(max_logit, value(part.max_logit));
      max_weight = larger_of(max_weight, w * value(part.max_weight));
      entropy += w * (value(part.entropy) - (lse - top_ - log_l_));  // not from lse: see find_lse()
      visible += count(part.visible);
      counted += count(part.logit_count);
      if (count(part.logit_count) > 0 && std::isfinite(value(part.logit_mean)) && -t > first) first = -t;
    });
    const std::int64_t all = lanes.sum(counted), at = -lanes.max(first);
    // Means are reckoned from one of them, so that equal ones have no variance, however large they are.
    const double from = at < call_.count ? value(parts_[at].logit_mean) : 0.0;
    double mean = 0, var = 0;
    const auto share = [&](const MergePart& part) {
      return static_cast<double>(count(part.logit_count)) / static_cast<double>(all);
    };
    const auto counts = [&](const MergePart& part) {
      return count(part.logit_count) > 0 || std::isnan(value(part.logit_mean));
    };
    for_parts(lanes, [&](std::int64_t t, double) {
      if (counts(parts_[t])) mean += share(parts_[t]) * (value(parts_[t].logit_mean) - from);
    });
    mean = lanes.sum(mean);
    for_parts(lanes, [&](std::int64_t t, double) {
      const double off = value(parts_[t].logit_mean) - from - mean;
      if (counts(parts_[t])) var += share(parts_[t]) * (value(parts_[t].logit_var) + off * off);
    });
    max_logit = lanes.max(max_logit);
    max_weight = lanes.max(max_weight);
    entropy = lanes.sum(entropy);
    visible = lanes.sum(visible);
    var = lanes.sum(var);
    lanes.sync();
    if (lanes.lane() != 0) return;
    const MergeResult& to = call_.result;
    put(to.lse, l_ == 0 ? -INFINITY : top_ + log_l_);
    put(to.max_logit, max_logit);
    put(to.entropy, entropy);
    put(to.max_weight, max_weight);
    put(to.logit_mean, from + mean);
    put(to.logit_var, var);
    put_count(to.visible, visible);
    put_count(to.logit_count, all);
  }

 private:
  // f(part, its lse) for this lane's share of the parts that saw a key.
  template <class Lanes, class F>
  KEEL_HD void for_parts(const Lanes& lanes, const F& f) const {
    for (std::int64_t t = lanes.lane(); t < call_.count; t += Lanes::kCount) {
      const double lse = lse_of(t);
      if (lse != -INFINITY) f(t, lse);
    }
  }
  KEEL_HD double lse_of(std::int64_t t) const { return load_row_value<double>(parts_[t].lse, b_, h_, i_); }
  KEEL_HD double weight(double lse) const { return std::exp(lse - top_) / l_; }
  KEEL_HD double value(const Strided& x) const { return x ? load_row_value<double>(x, b_, h_, i_) : 0.0; }
  KEEL_HD std::int64_t count(const Strided& x) const {
    return x ? static_cast<const std::int64_t*>(x.data)[place_in(x, b_, h_, i_)] : 0;
  }
  KEEL_HD void put(const MutableStrided& x, double value) const {
    if (x) store_as(x.data, x.dtype, place(x), value);
  }
  KEEL_HD void put_count(const MutableStrided& x, std::int64_t value) const {
    if (x) static_cast<std::int64_t*>(x.data)[place(x)] = value;
  }

  const MergeCall& call_;
  const MergePart* parts_;
  std::int64_t b_, h_, i_;
  double top_ = 0, l_ = 0, log_l_ = 0;
};

// Items are rows, (B, H, N_q). An element of out is written by the lane that has read it from all parts, the rest after
// everything is read, as a part may be what is written.
template <class A>
struct MergeRows {
  MergeCall call;
  const MergePart* parts;

  template <class Lanes>
  KEEL_HD void operator()(std::int64_t item, const Lanes& lanes) const {
    MergeRow row(call, parts, item);
    row.find_lse(lanes);
    const MutableStrided& to = call.result.out;
    sum_rows<A>(
        lanes, {1, 0, call.count, call.d_v}, [&](std::int64_t, std::int64_t t) { return row.term<A>(t); },
        [&](std::int64_t, std::int64_t t) { return row.out<A>(t); },
        [&](std::int64_t c, double sum) { store_as(to.data, to.dtype, row.place(to, c), sum); });
    row.join_statistics(lanes);
  }
};

}  // namespace keel::cuda
