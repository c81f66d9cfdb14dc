#include "keel/nn/attention.h"

#include <algorithm>

#include "nn/check.h"
#include "nn/tape.h"

namespace keel::nn {
namespace {

void* data(const Tensor& x) { return x.impl()->storage->data() + x.impl()->offset * size_of(x.dtype()); }

// A view for the operator. A tensor of lower rank gets leading sizes of 1; one that is not given stays so.
template <std::size_t Rank>
BasicView<Rank, void*> view(const char* name, const Tensor& x, bool may_be_lower = false) {
  BasicView<Rank, void*> v{};
  if (!x.given()) return v;
  const std::size_t rank = x.shape().size();
  if (rank > Rank || (rank < Rank && !may_be_lower)) {
    refuse("attention", name, ": expected ", may_be_lower ? "at most " : "", Rank, " dimensions, got shape ",
           shape_text(x.shape()));
  }
  v.data = data(x);
  v.dtype = x.dtype();
  v.shape.fill(1);
  v.strides.fill(0);
  std::copy(x.shape().begin(), x.shape().end(), v.shape.begin() + static_cast<std::ptrdiff_t>(Rank - rank));
  std::copy(x.strides().begin(), x.strides().end(), v.strides.begin() + static_cast<std::ptrdiff_t>(Rank - rank));
  return v;
}

// Options of the operator that point into those of the tensor call, which must outlive them.
Options operator_options(const AttentionOptions& o) {
  return {.scale = o.scale,
          .scale_tensor = view<3>("scale_tensor", o.scale_tensor, true),
          .softcap = o.softcap,
          .mask = view<4>("mask", o.mask, true),
          .bias = view<4>("bias", o.bias, true),
          .causal = o.causal,
          .window = o.window,
          .q_lengths = o.q_lengths,
          .k_lengths = o.k_lengths,
          .alibi = view<1>("alibi", o.alibi),
          .sinks = view<1>("sinks", o.sinks),
          .dropout = o.dropout,
          .seed = o.seed,
          .threads = thread_count()};
}

Outputs outputs_for(AttentionReport* report, const Tensor& lse, const Shape& rows, std::int64_t n_k, DType dtype) {
  Outputs outputs{};
  if (report != nullptr) {
    for (Tensor* row :
         {&report->max_logit, &report->entropy, &report->max_weight, &report->logit_mean, &report->logit_var}) {
      *row = empty(rows, dtype);
    }
    report->lse = lse.detach();
    report->heads.resize(static_cast<std::size_t>(rows[0] * rows[1]));
    outputs.max_logit = view<3>("max_logit", report->max_logit);
    outputs.entropy = view<3>("entropy", report->entropy);
    outputs.max_weight = view<3>("max_weight", report->max_weight);
    outputs.logit_mean = view<3>("logit_mean", report->logit_mean);
    outputs.logit_var = view<3>("logit_var", report->logit_var);
    outputs.heads = report->heads;
    if (report->with_weights) {
      report->weights = empty({rows[0], rows[1], rows[2], n_k}, dtype);
      outputs.weights = view<4>("weights", report->weights);
    }
  }
  if (lse.given()) outputs.lse = view<3>("lse", lse);
  return outputs;
}

}  // namespace

Tensor attention(const Tensor& q, const Tensor& k, const Tensor& v, const AttentionOptions& options,
                 AttentionReport* report) {
  check_floating("attention", "q", q);
  check_same_dtype("attention", "k", k, "q", q);
  check_same_dtype("attention", "v", v, "q", q);
  if (q.rank() != 4 || k.rank() != 4 || v.rank() != 4) {
    refuse("attention", "q, k and v: expected (B, H, N_q, d_k), (B, H, N_k, d_k) and (B, H, N_k, d_v), got ",
           shape_text(q.shape()), ", ", shape_text(k.shape()), " and ", shape_text(v.shape()));
  }
  if (options.bias.given()) check_same_dtype("attention", "bias", options.bias, "q", q);
  if (options.scale_tensor.given()) check_same_dtype("attention", "scale_tensor", options.scale_tensor, "q", q);
  if (options.sinks.given()) check_same_dtype("attention", "sinks", options.sinks, "q", q);
  const Tensor& scale = options.scale_tensor;

  const bool taped = on_tape({q, k, v, options.bias, scale, options.sinks});
  const Shape rows{q.size(0), q.size(1), q.size(2)};
  Tensor out = empty_in_order_of(q, {rows[0], rows[1], rows[2], v.size(3)});
  const Tensor lse = taped || report != nullptr ? empty(rows, q.dtype()) : Tensor();
  keel::attention(view<4>("q", q), view<4>("k", k), view<4>("v", v), view<4>("out", out), operator_options(options),
                  outputs_for(report, lse, rows, k.size(2), q.dtype()));
  if (!taped) return out;

  AttentionOptions saved = options;
  saved.bias = options.bias.given() ? options.bias.detach() : Tensor();
  saved.scale_tensor = scale.given() ? scale.detach() : Tensor();
  saved.sinks = options.sinks.given() ? options.sinks.detach() : Tensor();
  const auto wanted = [](const Tensor& x, bool in_order) {
    return !x.requires_grad() ? Tensor() : in_order ? empty_like(x) : empty(x.shape(), x.dtype());
  };
  const std::vector<Tensor> inputs{q, k, v, options.bias, scale, options.sinks};
  return record("attention", out, inputs,
                [saved, lse, wanted, inputs, o = out.detach()](const Tensor& gradient) -> std::vector<Tensor> {
                  const Tensor dq = wanted(inputs[0], true), dk = wanted(inputs[1], true), dv = wanted(inputs[2], true);
                  const Tensor dbias = wanted(inputs[3], false), dscale = wanted(inputs[4], false);
                  const Tensor dsinks = wanted(inputs[5], false);
                  keel::attention_backward({.q = view<4>("q", inputs[0]),
                                            .k = view<4>("k", inputs[1]),
                                            .v = view<4>("v", inputs[2]),
                                            .out = view<4>("out", o),
                                            .lse = view<3>("lse", lse),
                                            .dout = view<4>("dout", gradient)},
                                           {.dq = view<4>("dq", dq),
                                            .dk = view<4>("dk", dk),
                                            .dv = view<4>("dv", dv),
                                            .dbias = view<4>("dbias", dbias, true),
                                            .dscale = view<3>("dscale", dscale, true),
                                            .dsinks = view<1>("dsinks", dsinks)},
                                           operator_options(saved));
                  return {dq, dk, dv, dbias, dscale, dsinks};
                });
}

}  // namespace keel::nn
