#include "core/problem.h"

#include <array>

#include "core/checker.h"

namespace keel {
namespace {

constexpr std::int64_t kMaxDropoutSize = std::int64_t{1} << 32;  // what the random numbers' counter can tell apart

void tidy_inputs(Problem& p) {
  tidy(p.q), tidy(p.k), tidy(p.v);
  Options& o = p.options;
  tidy(o.scale_tensor), tidy(o.mask), tidy(o.bias), tidy(o.alibi), tidy(o.sinks);
}

void check_tensors(Checker& check, Problem& p) {
  check.floating("q", p.q);
  check.input("q", p.q);
  check.input("k", p.k);
  check.input("v", p.v);
  p.dtype = p.q.dtype;
  p.batch = p.q.shape[0];
  p.q_heads = p.q.shape[1];
  p.n_q = p.q.shape[2];
  p.d_k = p.q.shape[3];
  p.kv_heads = p.k.shape[1];
  p.n_k = p.k.shape[2];
  p.d_v = p.v.shape[3];
  check.dtype("k", p.k, {p.dtype});
  check.dtype("v", p.v, {p.dtype});
  if (p.d_k < 1) check.refuse("q: expected a head size d_k of at least 1, got ", p.d_k);
  if (p.d_v < 1) check.refuse("v: expected a head size d_v of at least 1, got ", p.d_v);
  if (p.k.shape[0] != p.batch) check.refuse("k: expected batch ", p.batch, " as in q, got ", p.k.shape[0]);
  if (p.k.shape[3] != p.d_k) check.refuse("k: expected d_k ", p.d_k, " as in q, got ", p.k.shape[3]);
  if (p.v.shape[0] != p.batch) check.refuse("v: expected batch ", p.batch, " as in q, got ", p.v.shape[0]);
  if (p.v.shape[1] != p.kv_heads) check.refuse("v: expected ", p.kv_heads, " heads as in k, got ", p.v.shape[1]);
  if (p.v.shape[2] != p.n_k) check.refuse("v: expected n_k ", p.n_k, " as in k, got ", p.v.shape[2]);
  if (p.kv_heads == 0 ? p.q_heads != 0 : p.q_heads % p.kv_heads != 0) {
    check.refuse("k: expected a number of heads that divides the ", p.q_heads, " of q, got ", p.kv_heads);
  }
}

void check_lengths(Checker& check, const char* name, std::span<const std::int64_t> lengths, std::int64_t batch,
                   std::int64_t most) {
  if (lengths.empty()) return;
  if (lengths.data() == nullptr) check.refuse(name, ": expected a pointer to ", lengths.size(), " values, got null");
  if (std::ssize(lengths) != batch) {
    check.refuse(name, ": expected one length a batch entry (", batch, "), got ", lengths.size());
  }
  for (const std::int64_t length : lengths) {
    if (length < 0 || length > most) check.refuse(name, ": expected lengths from 0 to ", most, ", got ", length);
  }
  check.list(name, lengths);
}

void check_offsets(Checker& check, const char* name, std::span<const std::int64_t> offsets, std::int64_t rows) {
  if (offsets.data() == nullptr) check.refuse(name, ": expected a pointer to ", offsets.size(), " values, got null");
  if (offsets.front() != 0) check.refuse(name, ": expected the first offset to be 0, got ", offsets.front());
  for (std::size_t e = 1; e < offsets.size(); ++e) {
    if (offsets[e] < offsets[e - 1]) {
      check.refuse(name, ": expected offsets that never fall, got ", offsets[e], " after ", offsets[e - 1]);
    }
  }
  if (offsets.back() != rows) {
    check.refuse(name, ": expected the last offset to be the number of rows ", rows, ", got ", offsets.back());
  }
  check.list(name, offsets);
}

void check_sequences(Checker& check, const Problem& p) {
  const Options& o = p.options;
  check_lengths(check, "q_lengths", o.q_lengths, p.batch, p.n_q);
  check_lengths(check, "k_lengths", o.k_lengths, p.batch, p.n_k);
  if (o.q_offsets.empty() && o.k_offsets.empty()) return;
  if (o.q_offsets.size() != o.k_offsets.size()) {
    check.refuse("k_offsets: expected as many offsets as in q_offsets (", o.q_offsets.size(), "), got ",
                 o.k_offsets.size());
  }
  if (!o.q_lengths.empty()) check.refuse("q_lengths: expected none beside q_offsets, got ", o.q_lengths.size());
  if (!o.k_lengths.empty()) check.refuse("k_lengths: expected none beside k_offsets, got ", o.k_lengths.size());
  if (p.batch != 1) check.refuse("q_offsets: expected batch 1 for a packed batch, got ", p.batch);
  check_offsets(check, "q_offsets", o.q_offsets, p.n_q);
  check_offsets(check, "k_offsets", o.k_offsets, p.n_k);
}

void check_scale(Checker& check, Problem& p) {
  Options& o = p.options;
  if (o.scale && !std::isfinite(*o.scale)) check.refuse("scale: expected a finite number, got ", *o.scale);
  p.scale = o.scale.value_or(1.0 / std::sqrt(static_cast<double>(p.d_k)));
  if (!o.scale_tensor.given()) return;
  if (o.scale) check.refuse("scale_tensor: expected none beside the number scale, got both");
  check.floating("scale_tensor", o.scale_tensor);
  check.input("scale_tensor", o.scale_tensor);
  check.broadcast<3>("scale_tensor", o.scale_tensor, {p.batch, p.q_heads, p.n_q}, "(B, H_q, N_q)");
}

void check_masks(Checker& check, Problem& p) {
  Options& o = p.options;
  const std::array<std::int64_t, 4> scores = {p.batch, p.q_heads, p.n_q, p.n_k};
  if (o.mask.given()) {
    check.dtype("mask", o.mask, {DType::boolean});
    check.input("mask", o.mask);
    check.broadcast("mask", o.mask, scores, "(B, H_q, N_q, N_k)");
  }
  if (o.bias.given()) {
    check.dtype("bias", o.bias, {p.dtype, DType::f32});
    check.input("bias", o.bias);
    check.broadcast("bias", o.bias, scores, "(B, H_q, N_q, N_k)");
  }
  if (o.causal != Causal::none && o.causal != Causal::top_left && o.causal != Causal::bottom_right) {
    check.refuse("causal: expected none, top_left or bottom_right, got code ", static_cast<int>(o.causal));
  }
  if (o.window.left < 0) check.refuse("window.left: expected at least 0 (or kUnbounded), got ", o.window.left);
  if (o.window.right < 0) check.refuse("window.right: expected at least 0 (or kUnbounded), got ", o.window.right);
}

void check_heads(Checker& check, const char* name, const HeadView& view, std::int64_t heads) {
  if (!view.given()) return;
  check.floating(name, view);
  check.input(name, view);
  check.shape<1>(name, view, {heads}, "(H_q)");
}

void check_rest(Checker& check, const Problem& p) {
  const Options& o = p.options;
  if (o.softcap && !(std::isfinite(*o.softcap) && *o.softcap > 0)) {
    check.refuse("softcap: expected a positive finite number, got ", *o.softcap);
  }
  check_heads(check, "alibi", o.alibi, p.q_heads);
  check_heads(check, "sinks", o.sinks, p.q_heads);
  if (!(o.dropout >= 0.0 && o.dropout <= 1.0)) check.refuse("dropout: expected from 0 to 1, got ", o.dropout);
  if (o.dropout > 0.0 && std::max({p.entries(), p.q_heads, p.n_q, p.n_k}) > kMaxDropoutSize) {
    check.refuse("dropout: expected sizes of at most 2^32 beside it, got q ", text_of(p.q.shape), ", k ",
                 text_of(p.k.shape));
  }
  if (o.threads < 0) check.refuse("threads: expected at least 0, got ", o.threads);
}

void check_outputs(Checker& check, const Problem& p) {
  const Outputs& o = p.outputs;
  const std::array<std::int64_t, 3> rows = {p.batch, p.q_heads, p.n_q};
  const auto check_rows = [&](const char* name, const MutableRowView& view, DType dtype) {
    if (!view.given()) return;
    check.dtype(name, view, {dtype});
    check.output(name, view);
    check.shape(name, view, rows, "(B, H_q, N_q)");
  };
  const DType accumulation = accumulation_dtype(p.dtype);
  check_rows("lse", o.lse, accumulation);
  check_rows("max_logit", o.max_logit, accumulation);
  check_rows("entropy", o.entropy, accumulation);
  check_rows("max_weight", o.max_weight, accumulation);
  check_rows("logit_mean", o.logit_mean, accumulation);
  check_rows("logit_var", o.logit_var, accumulation);
  check_rows("visible", o.visible, DType::i64);
  if (o.weights.given()) {
    check.dtype("weights", o.weights, {p.dtype, DType::f32});
    check.output("weights", o.weights);
    check.shape<4>("weights", o.weights, {p.batch, p.q_heads, p.n_q, p.n_k}, "(B, H_q, N_q, N_k)");
  }
  if (!o.heads.empty()) {
    std::int64_t expected = 0;
    if (__builtin_mul_overflow(p.entries(), p.q_heads, &expected) || std::ssize(o.heads) != expected) {
      check.refuse("heads: expected ", p.entries(), " entries × ", p.q_heads, " heads, got ", o.heads.size());
    }
    if (o.heads.data() == nullptr) check.refuse("heads: expected a pointer to ", o.heads.size(), " values, got null");
    check.list("heads", o.heads);
  }
  if (!(o.saturation_threshold >= 0.0 && o.saturation_threshold <= 1.0)) {
    check.refuse("saturation_threshold: expected from 0 to 1, got ", o.saturation_threshold);
  }
}

// All of a call but what it writes.
Problem check_inputs(Checker& check, const TensorView& q, const TensorView& k, const TensorView& v,
                     const Options& options) {
  Problem p{.q = q, .k = k, .v = v, .out = {}, .options = options, .outputs = {}};
  check_tensors(check, p);
  check_sequences(check, p);
  check_scale(check, p);
  check_masks(check, p);
  check_rest(check, p);
  return p;
}

}  // namespace

Entry Problem::entry(std::int64_t e) const {
  if (packed()) {
    const auto& qo = options.q_offsets;
    const auto& ko = options.k_offsets;
    const std::int64_t rows = qo[e + 1] - qo[e];
    return {.batch = 0, .q_begin = qo[e], .q_rows = rows, .q_len = rows, .k_begin = ko[e], .k_len = ko[e + 1] - ko[e]};
  }
  return {.batch = e,
          .q_begin = 0,
          .q_rows = n_q,
          .q_len = options.q_lengths.empty() ? n_q : options.q_lengths[e],
          .k_begin = 0,
          .k_len = options.k_lengths.empty() ? n_k : options.k_lengths[e]};
}

KeyRange Problem::key_range(const Entry& entry, std::int64_t i) const {
  if (i >= entry.q_len) return {0, 0};
  const std::int64_t at = i + diagonal(entry);
  const std::int64_t left = options.window.left;
  const std::int64_t right = options.causal == Causal::none ? options.window.right : 0;
  // Sizes are below 2^41, so comparing first keeps the sums from overflowing.
  const std::int64_t begin = at > left ? at - left : 0;
  const std::int64_t end = right >= entry.k_len - at ? entry.k_len : at + right + 1;
  if (begin >= end) return {0, 0};
  return {begin, end};
}

Problem make_problem(const TensorView& q, const TensorView& k, const TensorView& v, const MutableTensorView& out,
                     const Options& options, const Outputs& outputs, Pointers pointers) {
  Checker check("attention", pointers);
  Problem p = check_inputs(check, q, k, v, options);
  p.out = out;
  p.outputs = outputs;
  check.dtype("out", out, {p.dtype});
  check.output("out", out);
  check.shape<4>("out", out, {p.batch, p.q_heads, p.n_q, p.d_v}, "(B, H_q, N_q, d_v)");
  check_outputs(check, p);
  check.check_memory();
  tidy_inputs(p);
  Outputs& o = p.outputs;
  tidy(p.out), tidy(o.lse), tidy(o.max_logit), tidy(o.entropy), tidy(o.max_weight), tidy(o.logit_mean);
  tidy(o.logit_var), tidy(o.visible), tidy(o.weights);
  return p;
}

BackwardProblem make_backward_problem(const BackwardInputs& in, const Gradients& gradients, const Options& options) {
  Checker check("attention_backward", Pointers::checked);
  BackwardProblem b{.forward = check_inputs(check, in.q, in.k, in.v, options),
                    .lse = in.lse,
                    .dout = in.dout,
                    .dlse = in.dlse,
                    .gradients = gradients};
  const Problem& p = b.forward;
  Gradients& g = b.gradients;
  const std::array<std::int64_t, 3> rows = {p.batch, p.q_heads, p.n_q};
  const std::array<std::int64_t, 4> out_shape = {p.batch, p.q_heads, p.n_q, p.d_v};
  const DType accumulation = accumulation_dtype(p.dtype);

  check.dtype("out", in.out, {p.dtype});
  check.input("out", in.out);
  check.shape("out", in.out, out_shape, "(B, H_q, N_q, d_v)");
  b.forward.out = {const_cast<void*>(in.out.data), in.out.dtype, in.out.shape, in.out.strides};
  check.dtype("lse", in.lse, {accumulation});
  check.input("lse", in.lse);
  check.shape("lse", in.lse, rows, "(B, H_q, N_q)");
  check.dtype("dout", in.dout, {p.dtype});
  check.input("dout", in.dout);
  check.shape("dout", in.dout, out_shape, "(B, H_q, N_q, d_v)");
  if (in.dlse.given()) {
    check.dtype("dlse", in.dlse, {accumulation});
    check.input("dlse", in.dlse);
    check.shape("dlse", in.dlse, rows, "(B, H_q, N_q)");
  }

  const auto check_like = [&](const char* name, const MutableTensorView& view, const TensorView& like,
                              const char* meaning) {
    if (!view.given()) return;
    check.dtype(name, view, {p.dtype});
    check.output(name, view);
    check.shape(name, view, like.shape, meaning);
  };
  check_like("dq", g.dq, p.q, "of q");
  check_like("dk", g.dk, p.k, "of k");
  check_like("dv", g.dv, p.v, "of v");
  if (g.dbias.given()) {
    if (!p.options.bias.given()) check.refuse("dbias: expected none without a bias, got a view");
    check.dtype("dbias", g.dbias, {p.dtype, DType::f32});
    check.output("dbias", g.dbias, /*reduces=*/true);
    check.broadcast<4>("dbias", g.dbias, {p.batch, p.q_heads, p.n_q, p.n_k}, "(B, H_q, N_q, N_k)");
  }
  if (g.dscale.given()) {
    check.floating("dscale", g.dscale);
    check.output("dscale", g.dscale, /*reduces=*/true);
    check.broadcast("dscale", g.dscale, rows, "(B, H_q, N_q)");
  }
  if (g.dsinks.given()) {
    if (!p.options.sinks.given()) check.refuse("dsinks: expected none without sinks, got a view");
    check.floating("dsinks", g.dsinks);
    check.output("dsinks", g.dsinks);
    check.shape<1>("dsinks", g.dsinks, {p.q_heads}, "(H_q)");
  }
  check.check_memory();
  tidy_inputs(b.forward);
  tidy(b.forward.out), tidy(b.lse), tidy(b.dout), tidy(b.dlse);
  tidy(g.dq), tidy(g.dk), tidy(g.dv), tidy(g.dbias), tidy(g.dscale), tidy(g.dsinks);
  return b;
}

}  // namespace keel
