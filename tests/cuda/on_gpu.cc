#include "cuda/on_gpu.h"

#include "api/backends.h"
#include "core/problem.h"
#include "runtime/parallel.h"

namespace keel::test {
namespace {

template <class AnyProblem>
void run(const AnyProblem& problem, const OnGpu& how, const GpuCopies& copies) {
  const Plan plan = make_plan(problem, backends(), {.resources = resources(), .forced = {.plain = how.plain}});
  if (how.kernels != nullptr) ++(*how.kernels)[plan.kernel];
  plan.execute();
  copies.fetch();
}

}  // namespace

Options send(GpuCopies& copies, const Options& options, bool lists_there) {
  Options o = options;
  o.scale_tensor = copies.send(o.scale_tensor);
  o.mask = copies.send(o.mask);
  o.bias = copies.send(o.bias);
  o.alibi = copies.send(o.alibi);
  o.sinks = copies.send(o.sinks);
  if (lists_there) {
    for (ListView* list : {&o.q_lengths, &o.k_lengths, &o.q_offsets, &o.k_offsets}) *list = copies.send(*list);
  }
  return o;
}

conformance::Forward forward_on_gpu(const OnGpu& how) {
  return [how](const TensorView& q, const TensorView& k, const TensorView& v, const MutableTensorView& out,
               const Options& options, const Outputs& outputs) {
    GpuCopies copies(how.offset);
    Outputs o = outputs;
    for (MutableRowView* rows : {&o.lse, &o.max_logit, &o.entropy, &o.max_weight, &o.logit_mean, &o.logit_var,
                                 &o.visible, &o.logit_count, &o.key_sums}) {
      *rows = copies.send(*rows);
    }
    o.weights = copies.send(o.weights);
    o.scores = copies.send(o.scores);
    o.heads = copies.send(o.heads);
    run(make_problem(copies.send(q), copies.send(k), copies.send(v), copies.send(out),
                     send(copies, options, how.lists_there), o),
        how, copies);
  };
}

conformance::Backward backward_on_gpu(const OnGpu& how) {
  return [how](const BackwardInputs& inputs, const Gradients& gradients, const Options& options) {
    GpuCopies copies(how.offset);
    BackwardInputs in = inputs;
    for (TensorView* x : {&in.q, &in.k, &in.v, &in.out, &in.dout}) *x = copies.send(*x);
    for (RowView* x : {&in.lse, &in.dlse}) *x = copies.send(*x);
    Gradients g = gradients;
    for (MutableTensorView* x : {&g.dq, &g.dk, &g.dv, &g.dbias}) *x = copies.send(*x);
    g.dscale = copies.send(g.dscale);
    g.dsinks = copies.send(g.dsinks);
    Options sent = send(copies, options, how.lists_there);
    if (how.any_order) sent.order = Order::free;
    run(make_backward_problem(in, g, sent), how, copies);
  };
}

}  // namespace keel::test
