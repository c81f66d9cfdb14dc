// Problems of derivatives: attention_backward(), attention_jvp() and attention_double_backward().
#include <array>

#include "core/checker.h"
#include "core/inputs.h"
#include "core/problem.h"

namespace keel {
namespace {

MutableTensorView as_mutable(const TensorView& x) {
  return {const_cast<void*>(x.data), x.dtype, x.shape, x.strides, x.device};
}

std::array<std::int64_t, 3> rows_of(const Problem& p) { return {p.batch, p.q_heads, p.n_q}; }
std::array<std::int64_t, 4> outputs_of(const Problem& p) { return {p.batch, p.q_heads, p.n_q, p.d_v}; }

// The inputs of the forward call and its results.
void check_forward(Checker& check, Problem& p, const TensorView& out, const RowView& lse) {
  check_inputs(check, p);
  const DType accumulation = accumulation_dtype(p.dtype);
  check.dtype("out", out, {p.dtype, accumulation});
  check.input("out", out);
  check.shape("out", out, outputs_of(p), "(B, H_q, N_q, d_v)");
  check.dtype("lse", lse, {accumulation});
  check.input("lse", lse);
  check.shape("lse", lse, rows_of(p), "(B, H_q, N_q)");
}

void check_drelative_bias(Checker& check, BackwardProblem& b) {
  MutableTableView& to = b.gradients.drelative_bias;
  if (!to.given()) return;
  const TableView& table = b.forward.options.relative_bias;
  if (!table.given()) check.refuse("drelative_bias: expected none without a relative_bias, got a view");
  check.dtype("drelative_bias", to, {b.forward.dtype, DType::f32});
  check.output("drelative_bias", b.as_given.drelative_bias, /*reduces=*/true);
  if ((to.shape[0] != table.shape[0] && to.shape[0] != 1) || to.shape[1] != table.shape[1] ||
      (to.shape[1] > 1 && to.strides[1] == 0)) {
    check.refuse("drelative_bias: expected shape (H_q, 2R + 1) = ", text_of(table.shape),
                 ", or 1 for H_q, and elements of their own, got ", text_of(to.shape), " with strides ",
                 text_of(to.strides));
  }
  if (to.shape[0] == 1) to.strides[0] = 0;
  to.shape[0] = table.shape[0];
}

void check_gradients(Checker& check, const Problem& p, BackwardProblem& b) {
  Gradients& g = b.gradients;
  const DType accumulation = accumulation_dtype(p.dtype);
  const auto check_like = [&](const char* name, const MutableTensorView& view, const TensorView& like,
                              const char* meaning) {
    if (!view.given()) return;
    check.dtype(name, view, {p.dtype, accumulation});
    check.output(name, view);
    check.shape(name, view, like.shape, meaning);
  };
  check_like("dq", g.dq, p.q, "of q");
  check_like("dk", g.dk, p.k, "of k");
  check_like("dv", g.dv, p.v, "of v");
  if (g.dbias.given()) {
    if (!p.options.bias.given()) check.refuse("dbias: expected none without a bias, got a view");
    check.dtype("dbias", g.dbias, {p.dtype, DType::f32});
    check.output("dbias", b.as_given.dbias, /*reduces=*/true);
    check.broadcast<4>("dbias", g.dbias, {p.batch, p.q_heads, p.n_q, p.n_k}, "(B, H_q, N_q, N_k)");
  }
  if (g.dscale.given()) {
    check.floating("dscale", g.dscale);
    check.output("dscale", b.as_given.dscale, /*reduces=*/true);
    check.broadcast("dscale", g.dscale, rows_of(p), "(B, H_q, N_q)");
  }
  if (g.dsinks.given()) {
    if (!p.options.sinks.given()) check.refuse("dsinks: expected none without sinks, got a view");
    check.floating("dsinks", g.dsinks);
    check.output("dsinks", g.dsinks);
    check.shape<1>("dsinks", g.dsinks, {p.q_heads}, "(H_q)");
  }
  check_drelative_bias(check, b);
}

// Everything that attention_backward() takes.
void check_backward(Checker& check, BackwardProblem& b, const BackwardInputs& in) {
  check_forward(check, b.forward, in.out, in.lse);
  const Problem& p = b.forward;
  const DType accumulation = accumulation_dtype(p.dtype);
  check.dtype("dout", in.dout, {p.dtype, accumulation});
  check.input("dout", in.dout);
  check.shape("dout", in.dout, outputs_of(p), "(B, H_q, N_q, d_v)");
  if (in.dlse.given()) {
    check.dtype("dlse", in.dlse, {accumulation});
    check.input("dlse", in.dlse);
    check.shape("dlse", in.dlse, rows_of(p), "(B, H_q, N_q)");
  }
  check_gradients(check, p, b);
}

void check_tangents(Checker& check, const Problem& p, const Tangents& given, Tangents& t) {
  const DType accumulation = accumulation_dtype(p.dtype);
  const auto check_like = [&](const char* name, const TensorView& view, const TensorView& like, const char* meaning) {
    if (!view.given()) return;
    check.dtype(name, view, {p.dtype, accumulation});
    check.input(name, view);
    check.shape(name, view, like.shape, meaning);
  };
  check_like("tq", given.tq, p.q, "of q");
  check_like("tk", given.tk, p.k, "of k");
  check_like("tv", given.tv, p.v, "of v");
  if (given.tbias.given()) {
    if (!p.options.bias.given()) check.refuse("tbias: expected none without a bias, got a view");
    check.dtype("tbias", given.tbias, {p.dtype, DType::f32});
    check.input("tbias", given.tbias);
    check.broadcast<4>("tbias", t.tbias, {p.batch, p.q_heads, p.n_q, p.n_k}, "(B, H_q, N_q, N_k)");
  }
  if (given.tscale.given()) {
    check.floating("tscale", given.tscale);
    check.input("tscale", given.tscale);
    check.broadcast("tscale", t.tscale, rows_of(p), "(B, H_q, N_q)");
  }
  if (given.tsinks.given()) {
    if (!p.options.sinks.given()) check.refuse("tsinks: expected none without sinks, got a view");
    check.floating("tsinks", given.tsinks);
    check.input("tsinks", given.tsinks);
    check.shape<1>("tsinks", given.tsinks, {p.q_heads}, "(H_q)");
  }
}

// The derivatives of out and lse, by their names in the call.
void check_moves(Checker& check, const TangentProblem& x, const char* of_out, const char* of_lse) {
  const Problem& p = x.backward.forward;
  const DType accumulation = accumulation_dtype(p.dtype);
  if (x.tout.given()) {
    check.dtype(of_out, x.tout, {p.dtype, accumulation});
    check.output(of_out, x.tout);
    check.shape(of_out, x.tout, outputs_of(p), "(B, H_q, N_q, d_v)");
  }
  if (x.tlse.given()) {
    check.dtype(of_lse, x.tlse, {accumulation});
    check.output(of_lse, x.tlse);
    check.shape(of_lse, x.tlse, rows_of(p), "(B, H_q, N_q)");
  }
}

void tidy_backward(BackwardProblem& b) {
  tidy_inputs(b.forward);
  tidy(b.forward.out), tidy(b.lse), tidy(b.dout), tidy(b.dlse);
  Gradients& g = b.gradients;
  tidy(g.dq), tidy(g.dk), tidy(g.dv), tidy(g.dbias), tidy(g.dscale), tidy(g.dsinks);
  tidy(g.drelative_bias);
}

void tidy_tangents(TangentProblem& x) {
  tidy_backward(x.backward);
  Tangents& t = x.tangents;
  tidy(t.tq), tidy(t.tk), tidy(t.tv), tidy(t.tbias), tidy(t.tscale), tidy(t.tsinks), tidy(x.tout), tidy(x.tlse);
}

BackwardProblem unchecked(const BackwardInputs& in, const Gradients& gradients, const Options& options) {
  return {.forward = Problem(in.q, in.k, in.v, as_mutable(in.out), options, {}),
          .lse = in.lse,
          .dout = in.dout,
          .dlse = in.dlse,
          .gradients = gradients,
          .as_given = gradients};
}

}  // namespace

BackwardProblem make_backward_problem(const BackwardInputs& in, const Gradients& gradients, const Options& options,
                                      Pointers pointers) {
  Checker check("attention_backward", pointers, in.q.device);
  BackwardProblem b = unchecked(in, gradients, options);
  check_backward(check, b, in);
  check.check_memory();
  tidy_backward(b);
  return b;
}

TangentProblem make_jvp_problem(const JvpInputs& in, const Tangents& tangents, const JvpOutputs& outputs,
                                const Options& options, Pointers pointers) {
  Checker check("attention_jvp", pointers, in.q.device);
  const BackwardInputs forward{.q = in.q, .k = in.k, .v = in.v, .out = in.out, .lse = in.lse};
  TangentProblem x{.backward = unchecked(forward, {.accumulate = outputs.accumulate}, options),
                   .tangents = tangents,
                   .tout = outputs.tout,
                   .tlse = outputs.tlse};
  check_forward(check, x.backward.forward, in.out, in.lse);
  check_tangents(check, x.backward.forward, tangents, x.tangents);
  check_moves(check, x, "tout", "tlse");
  check.check_memory();
  tidy_tangents(x);
  return x;
}

TangentProblem make_double_backward_problem(const BackwardInputs& in, const Tangents& tangents,
                                            const DoubleGradients& gradients, const Options& options,
                                            Pointers pointers) {
  Checker check("attention_double_backward", pointers, in.q.device);
  TangentProblem x{.backward = unchecked(in, gradients.gradients, options),
                   .tangents = tangents,
                   .tout = gradients.ddout,
                   .tlse = gradients.ddlse,
                   .is_double = true};
  check_backward(check, x.backward, in);
  const Problem& p = x.backward.forward;
  if (gradients.gradients.drelative_bias.given()) {
    check.refuse(
        "drelative_bias: expected none, as second derivatives of a relative_bias are not computed, got a view");
  }
  if (!p.sequences.has_all_keys()) {
    check.refuse("origin: expected all keys here, got ", p.n_k, " from ", p.sequences.first_key, " of ",
                 p.sequences.whole_k);
  }
  check_tangents(check, p, tangents, x.tangents);
  check_moves(check, x, "ddout", "ddlse");
  check.check_memory();
  tidy_tangents(x);
  return x;
}

BackwardCall::BackwardCall(const BackwardProblem& b)
    : forward(b.forward),
      out(strided(TensorView(b.forward.out))),
      dout(strided(b.dout)),
      lse(strided(b.lse)),
      dlse(strided(b.dlse)),
      dq(strided(b.gradients.dq)),
      dk(strided(b.gradients.dk)),
      dv(strided(b.gradients.dv)),
      dbias(strided(b.gradients.dbias)),
      dscale(strided(b.gradients.dscale)),
      dsinks(strided(b.gradients.dsinks)),
      drelative_bias(strided(b.gradients.drelative_bias)),
      accumulate(b.gradients.accumulate) {
  forward.out = {};
}

TangentArrays::TangentArrays(const TangentProblem& x)
    : tq(strided(x.tangents.tq)),
      tk(strided(x.tangents.tk)),
      tv(strided(x.tangents.tv)),
      tbias(strided(x.tangents.tbias)),
      tscale(strided(x.tangents.tscale)),
      tsinks(strided(x.tangents.tsinks)),
      tout(strided(x.tout)),
      tlse(strided(x.tlse)),
      is_double(x.is_double) {}

}  // namespace keel
