#include "conformance/streaming.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <span>
#include <utility>
#include <vector>

#include "conformance/dense.h"
#include "core/dropout.h"
#include "core/element.h"
#include "core/masked_score.h"
#include "core/problem.h"
#include "cpu/head_statistics.h"
#include "reference/row.h"

namespace keel::conformance {
namespace {

constexpr std::int64_t kBlock = 48;

// A tensor (B, H, N, D) in T without gaps.
template <class T>
class Copy {
 public:
  explicit Copy(const TensorView& view) : shape_(view.shape) {
    for (const double value : read(view).values) values_.push_back(static_cast<T>(value));
  }
  const T* row(std::int64_t b, std::int64_t h, std::int64_t n) const {
    return values_.data() + ((b * shape_[1] + h) * shape_[2] + n) * shape_[3];
  }

 private:
  std::array<std::int64_t, 4> shape_;
  std::vector<T> values_;
};

// Keys one query row sees, with their scores in T.
template <class T>
struct Scores {
  std::vector<std::int64_t> keys;  // counted from the entry's first
  std::vector<T> s, slope, dot;
  T scale{};
};

// Neither it nor its inverse leaves T.
template <class T>
T cap_in(double softcap) {
  const double most = std::sqrt(std::numeric_limits<T>::max());
  return static_cast<T>(std::clamp(softcap, 1.0 / most, most));
}

template <class T>
void score_row(const Problem& p, const Copy<T>& q, const Copy<T>& k, const Entry& entry, std::int64_t h, std::int64_t i,
               Scores<T>& x) {
  const Options& o = p.options;
  const std::int64_t b = entry.batch, iq = entry.q_begin + i, at = i + entry.diagonal;
  x.keys.clear(), x.s.clear(), x.slope.clear(), x.dot.clear();
  x.scale = static_cast<T>(o.scale_tensor.given() ? load_at(o.scale_tensor, b, h, iq) : p.scale);
  const KeyRange range = p.sequences.key_range(entry, i);
  for (std::int64_t j = range.begin; j < range.end; ++j) {
    const std::int64_t jk = entry.k_begin + j;
    if (!reference::allowed(p, entry, h, i, j)) continue;
    const auto bias = static_cast<T>(reference::bias_at(p, entry, h, i, j));
    const T *const qi = q.row(b, h, iq), *const kj = k.row(b, p.kv_head(h), jk);
    T dot = 0;
    for (std::int64_t c = 0; c < p.d_k; ++c) dot += qi[c] * kj[c];
    T s = x.scale * dot, slope = 1;
    if (o.softcap) {
      const T cap = cap_in<T>(*o.softcap), t = std::tanh(s / cap);
      s = cap * t;
      slope = 1 - t * t;
    }
    s += bias;
    if (o.alibi.given()) s -= static_cast<T>(load_at(o.alibi, b, h)) * static_cast<T>(std::abs(at - j));
    x.keys.push_back(j), x.s.push_back(s), x.slope.push_back(slope), x.dot.push_back(dot);
  }
}

// Row iq of the scores at the stage that is asked for; x has those that are visible.
template <class T>
void write_scores(const Problem& p, const Copy<T>& q, const Copy<T>& k, const Entry& entry, std::int64_t h,
                  std::int64_t i, const Scores<T>& x) {
  const std::int64_t b = entry.batch, iq = entry.q_begin + i;
  for (std::int64_t j = 0; j < p.n_k; ++j) store_at(p.outputs.scores, -INFINITY, b, h, iq, j);
  const auto put = [&](std::int64_t j, T s) { store_at(p.outputs.scores, s, b, h, iq, entry.k_begin + j); };
  if (p.outputs.score_stage == ScoreStage::masked) {
    for (std::size_t j = 0; j < x.s.size(); ++j) put(x.keys[j], x.s[j]);
    return;
  }
  for (std::int64_t j = entry.k_start; j < entry.k_len && i < entry.q_len; ++j) {
    const T *const qi = q.row(b, h, iq), *const kj = k.row(b, p.kv_head(h), entry.k_begin + j);
    T dot = 0;
    for (std::int64_t c = 0; c < p.d_k; ++c) dot += qi[c] * kj[c];
    const T s = x.scale * dot;
    const bool capped = p.outputs.score_stage == ScoreStage::capped && p.options.softcap;
    const T cap = capped ? cap_in<T>(*p.options.softcap) : T{1};
    put(j, capped ? cap * std::tanh(s / cap) : s);
  }
}

// Mean and variance of scores, in two passes, and their number.
template <class T>
struct Moments {
  T mean = 0, var = 0, count = 0;
};
template <class T>
Moments<T> moments_of(std::vector<T> s) {
  if (!s.empty() && *std::max_element(s.begin(), s.end()) == -std::numeric_limits<T>::infinity()) return {NAN, NAN};
  std::erase_if(s, [](T x) { return x <= static_cast<T>(kMaskedScore); });
  if (s.empty()) return {};
  double sum = 0, squares = 0;
  for (const double x : s) sum += x - s[0];
  const auto n = static_cast<double>(s.size()), mean = sum / n;
  for (const double x : s) squares += (x - s[0] - mean) * (x - s[0] - mean);
  return {static_cast<T>(s[0] + mean), static_cast<T>(squares / n), static_cast<T>(n)};
}

// What one row sums up over its keys, block by block: e^(s − m) for the largest score m so far.
template <class T>
class StreamedRow {
 public:
  void begin(std::int64_t d_v) {
    m = -kInf, l = w = 0, nan = false;
    o.assign(static_cast<std::size_t>(d_v), T{0});
  }

  // A block of scores; add_value(j, weight) adds the value of key j to o.
  template <class F>
  void add(std::span<const T> s, const F& add_value) {
    T top = m;
    for (const T x : s) {
      nan = nan || std::isnan(x);
      top = std::max(top, x);
    }
    rescale(top);
    for (std::size_t j = 0; j < s.size(); ++j) {
      const T shifted = m == -kInf ? s[j] : s[j] - m, weight = std::exp(shifted);
      l += weight;
      if (shifted != -kInf) w += weight * shifted;
      add_value(j, weight);
    }
  }

  void add_sink(T sink) {
    rescale(sink);
    const T weight = std::exp(sink - m);
    l += weight;
    w += weight * (sink - m);
  }

  // After the last key and before the sink.
  T max_logit() const { return nan ? std::numeric_limits<T>::quiet_NaN() : m; }

  T m = -kInf, l = 0, w = 0;
  bool nan = false;
  std::vector<T> o;

 private:
  static constexpr T kInf = std::numeric_limits<T>::infinity();

  void rescale(T to) {
    if (!(to > m)) return;
    const T f = m == -kInf ? T{0} : std::exp(m - to);
    w = f == 0 ? T{0} : f * (w + l * (m - to));
    l *= f;
    for (T& value : o) value *= f;
    m = to;
  }
};

template <class T>
class Forward {
 public:
  explicit Forward(const Problem& p)
      : p_(p), out_(p.outputs), dropout_(p.options.dropout, p.options.seed), q_(p.q), k_(p.k), v_(p.v) {}

  void run() {
    for (std::int64_t e = 0; e < p_.entries(); ++e) {
      const Entry entry = p_.entry(e);
      for (std::int64_t h = 0; h < p_.q_heads; ++h) {
        sums_.assign(static_cast<std::size_t>(p_.n_k), T{0});
        for (std::int64_t i = 0; i < entry.q_rows; ++i) compute_row(e, entry, h, i);
        const std::int64_t keys = p_.sequences.packed() ? entry.k_len : p_.n_k;
        for (std::int64_t j = 0; j < keys && out_.key_sums.given(); ++j) {
          store_at(out_.key_sums, sums_[static_cast<std::size_t>(j)], entry.batch, h, entry.k_begin + j);
        }
      }
    }
  }

 private:
  T multiplier(std::int64_t e, std::int64_t h, std::int64_t i, std::size_t j) const {
    return p_.options.dropout > 0 ? static_cast<T>(dropout_.multiplier(e, h, i, x_.keys[j])) : T{1};
  }

  void compute_row(std::int64_t e, const Entry& entry, std::int64_t h, std::int64_t i) {
    const std::int64_t b = entry.batch;
    score_row<T>(p_, q_, k_, entry, h, i, x_);
    if (out_.scores.given()) write_scores<T>(p_, q_, k_, entry, h, i, x_);
    const std::size_t n = x_.s.size();
    row_.begin(p_.d_v);
    for (std::size_t start = 0; start < n; start += kBlock) {
      row_.add(std::span<const T>(x_.s).subspan(start, std::min<std::size_t>(kBlock, n - start)),
               [&](std::size_t at, T weight) {
                 const std::size_t j = start + at;
                 const T z = multiplier(e, h, i, j);
                 const T* const vj = v_.row(b, p_.kv_head(h), entry.k_begin + x_.keys[j]);
                 for (std::size_t c = 0; c < row_.o.size(); ++c) row_.o[c] += weight * z * vj[c];
               });
    }
    const T max_logit = row_.max_logit();
    if (n > 0 && p_.options.sinks.given()) row_.add_sink(static_cast<T>(load_at(p_.options.sinks, h)));
    if (n > 0 && (row_.nan || row_.m == -std::numeric_limits<T>::infinity())) {
      row_.l = std::numeric_limits<T>::quiet_NaN();
    }
    write_row(entry, h, i, max_logit);
    for (std::size_t j = 0; j < n && i >= first_summed_row(entry, out_.key_sum_rows); ++j) {
      sums_[static_cast<std::size_t>(x_.keys[j])] += std::exp(x_.s[j] - row_.m) / row_.l;
    }
    if (!out_.weights.given()) return;
    const std::int64_t iq = entry.q_begin + i;
    for (std::int64_t j = 0; j < p_.n_k; ++j) store_at(out_.weights, 0.0, b, h, iq, j);
    for (std::size_t j = 0; j < n; ++j) {
      const T weight = std::exp(x_.s[j] - row_.m) / row_.l * multiplier(e, h, i, j);
      store_at(out_.weights, weight, b, h, iq, entry.k_begin + x_.keys[j]);
    }
  }

  // The output and the statistics; of a row that sees no key, 0 but for lse and max_logit.
  void write_row(const Entry& entry, std::int64_t h, std::int64_t i, T max_logit) const {
    const std::int64_t b = entry.batch, iq = entry.q_begin + i;
    const bool seen = !x_.s.empty();
    const auto [m, l, w] = std::array{row_.m, row_.l, row_.w};
    for (std::int64_t c = 0; c < p_.d_v; ++c) {
      store_at(p_.out, seen ? row_.o[static_cast<std::size_t>(c)] / l : T{0}, b, h, iq, c);
    }
    const auto [mean, var, counted] = moments_of(x_.s);
    const auto put = [&](const MutableRowView& view, T value) {
      if (view.given()) store_at(view, value, b, h, iq);
    };
    put(out_.lse, seen ? m + std::log(l) : -std::numeric_limits<T>::infinity());
    put(out_.max_logit, max_logit);
    put(out_.entropy, seen ? std::log(l) - w / l : T{0});
    put(out_.max_weight, seen ? std::exp(max_logit - m) / l : T{0});
    put(out_.logit_mean, mean);
    put(out_.logit_var, var);
    put(out_.visible, static_cast<T>(x_.s.size()));
    put(out_.logit_count, counted);
  }

  const Problem& p_;
  const Outputs& out_;
  const Dropout dropout_;
  const Copy<T> q_, k_, v_;
  Scores<T> x_;  // of the row
  StreamedRow<T> row_;
  std::vector<T> sums_;  // over the rows of a head, per key
};

template <class T>
void forward(Problem& p) {
  keel::Call call(p);
  const cpu::HeadRows heads(call, {p.outputs.heads, p.outputs.saturation_threshold});
  const auto view_of = [&](const MutableStrided& x) {  // which heads may have given memory
    const std::array<std::int64_t, 3> rows = {p.batch, p.q_heads, p.n_q};
    return x ? MutableRowView{x.data, x.dtype, rows, {x.batch, x.head, x.row}} : MutableRowView{};
  };
  p.outputs.max_logit = view_of(call.max_logit);
  p.outputs.entropy = view_of(call.entropy);
  p.outputs.max_weight = view_of(call.max_weight);
  p.outputs.visible = view_of(call.visible);
  Forward<T>(p).run();
  heads.reduce(1);
}

// Sums in T, one per place of the view.
template <class T, std::size_t Rank>
class Sum {
 public:
  explicit Sum(const BasicView<Rank, void*>& view) : view_(view) {
    std::int64_t size = view.given() ? 1 : 0;
    for (std::size_t i = Rank; i-- > 0;) {
      counts_[i] = view.strides[i] == 0 && view.shape[i] > 1 ? 1 : view.shape[i];
      strides_[i] = counts_[i] == view.shape[i] ? size : 0;
      size *= counts_[i];
    }
    sums_.assign(static_cast<std::size_t>(size), T{0});
  }
  void add(T value, const std::array<std::int64_t, Rank>& index) {
    if (!view_.given()) return;
    std::int64_t at = 0;
    for (std::size_t i = 0; i < Rank; ++i) at += index[i] * strides_[i];
    sums_[static_cast<std::size_t>(at)] += value;
  }
  void write() const {
    std::array<std::int64_t, Rank> index{};
    for (const T sum : sums_) {
      std::int64_t at = 0;
      for (std::size_t i = 0; i < Rank; ++i) at += index[i] * view_.strides[i];
      store(view_.data, view_.dtype, at, sum);
      for (std::size_t i = Rank; i-- > 0 && ++index[i] == counts_[i];) index[i] = 0;
    }
  }

 private:
  BasicView<Rank, void*> view_;
  std::array<std::int64_t, Rank> counts_{}, strides_{};
  std::vector<T> sums_;
};

template <class T>
void backward(const BackwardProblem& problem) {
  const Problem& p = problem.forward;
  const Gradients& g = problem.gradients;
  const BackwardProblem& in = problem;
  const Copy<T> q(p.q), k(p.k), v(p.v), out(p.out), dout(in.dout);
  Sum<T, 4> dq(g.dq), dk(g.dk), dv(g.dv), dbias(g.dbias);
  Sum<T, 3> dscale(g.dscale);
  Sum<T, 2> drelative(g.drelative_bias);
  Sum<T, 1> dsinks(g.dsinks);
  const Dropout dropout(p.options.dropout, p.options.seed);
  Scores<T> x;
  for (std::int64_t e = 0; e < p.entries(); ++e) {
    const Entry entry = p.entry(e);
    const std::int64_t b = entry.batch;
    for (std::int64_t h = 0; h < p.q_heads; ++h) {
      const std::int64_t hk = p.kv_head(h);
      for (std::int64_t i = 0; i < entry.q_len; ++i) {
        const std::int64_t iq = entry.q_begin + i;
        score_row<T>(p, q, k, entry, h, i, x);
        if (x.s.empty()) continue;
        const T lse = static_cast<T>(load_at(in.lse, b, h, iq));
        const T dlse = in.dlse.given() ? static_cast<T>(load_at(in.dlse, b, h, iq)) : T{0};
        const T *const qi = q.row(b, h, iq), *const doi = dout.row(b, h, iq), *const oi = out.row(b, h, iq);
        T D = 0;
        for (std::int64_t c = 0; c < p.d_v; ++c) D += doi[c] * oi[c];
        if (p.options.sinks.given()) {
          dsinks.add(std::exp(static_cast<T>(load_at(p.options.sinks, h)) - lse) * (dlse - D), {h});
        }
        for (std::size_t n = 0; n < x.s.size(); ++n) {
          const std::int64_t jk = entry.k_begin + x.keys[n];
          const T weight = std::exp(x.s[n] - lse);
          const T z = p.options.dropout > 0 ? static_cast<T>(dropout.multiplier(e, h, i, x.keys[n])) : T{1};
          const T *const kj = k.row(b, hk, jk), *const vj = v.row(b, hk, jk);
          T dov = 0;
          for (std::int64_t c = 0; c < p.d_v; ++c) {
            dov += doi[c] * vj[c];
            dv.add(weight * z * doi[c], {b, hk, jk, c});
          }
          const T ds = weight * (z * dov - D + dlse), dx = ds * x.slope[n];
          dbias.add(ds, {b, h, iq, jk});
          if (g.drelative_bias.given()) drelative.add(ds, {h, reference::distance_at(p, entry, i, x.keys[n])});
          dscale.add(dx * x.dot[n], {b, h, iq});
          for (std::int64_t c = 0; c < p.d_k; ++c) {
            dq.add(dx * x.scale * kj[c], {b, h, iq, c});
            dk.add(dx * x.scale * qi[c], {b, hk, jk, c});
          }
        }
      }
    }
  }
  dq.write(), dk.write(), dv.write(), dbias.write(), dscale.write(), dsinks.write();
  drelative.write();
}

}  // namespace

void streaming_attention(const TensorView& q, const TensorView& k, const TensorView& v, const MutableTensorView& out,
                         const Options& options, const Outputs& outputs) {
  Problem p = make_problem(q, k, v, out, options, outputs);
  p.dtype == DType::f64 ? forward<double>(p) : forward<float>(p);
}

void streaming_attention_backward(const BackwardInputs& inputs, const Gradients& gradients, const Options& options) {
  const BackwardProblem p = make_backward_problem(inputs, gradients, options);
  if (!p.forward.has_pairs()) return attention_backward(inputs, gradients, options);
  p.forward.dtype == DType::f64 ? backward<double>(p) : backward<float>(p);
}

}  // namespace keel::conformance
