// keel._core: the library for the package keel, which gives it arrays to read and to write. Arguments that are left out
// are None. Nothing here decides what attention means: shapes and values are checked by the library.

#include <nanobind/nanobind.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <deque>

#include "calls.h"
#include "keel/keel.h"
#include "options.h"
#include "sdpa.h"

namespace keel::python {
namespace {

void translate(const std::exception_ptr& exception, void*) {
  try {
    std::rethrow_exception(exception);
  } catch (const Error& error) {
    PyObject* type = PyExc_ValueError;
    if (error.code() == ErrorCode::out_of_memory) type = PyExc_MemoryError;
    if (error.code() == ErrorCode::wrong_dtype) type = PyExc_TypeError;
    PyErr_SetString(type, error.what());
  }
}

// What a call can report; None where it is not asked for.
struct PythonOutputs {
  nb::handle lse, weights, max_logit, entropy, max_weight, logit_mean, logit_var, visible, heads;
  double saturation_threshold;
  nb::handle key_sums, key_sum_rows, logit_count;
};

constexpr int kHeadFields = 6;  // of HeadStatistics, in its order

Outputs read_outputs(Arguments& arguments, const PythonOutputs& given, std::vector<HeadStatistics>& heads) {
  const auto rows = [&](const char* name, nb::handle object) {
    return arguments.optional<3>(name, object, Access::write, 1);
  };
  Outputs outputs{.lse = rows("lse", given.lse),
                  .max_logit = rows("max_logit", given.max_logit),
                  .entropy = rows("entropy", given.entropy),
                  .max_weight = rows("max_weight", given.max_weight),
                  .logit_mean = rows("logit_mean", given.logit_mean),
                  .logit_var = rows("logit_var", given.logit_var),
                  .visible = rows("visible", given.visible),
                  .logit_count = rows("logit_count", given.logit_count),
                  .weights = arguments.optional<4>("weights", given.weights, Access::write, 2),
                  .heads = {},
                  .saturation_threshold = given.saturation_threshold,
                  .key_sums = rows("key_sums", given.key_sums),
                  .key_sum_rows = read_integer(arguments.place("key_sum_rows"), given.key_sum_rows)};
  outputs.heads = heads;
  return outputs;
}

// (entries, H_q, 6) in f64, as the caller made it for `heads`.
void write_heads(const BasicView<3, void*>& view, const std::vector<HeadStatistics>& heads) {
  double* to = static_cast<double*>(view.data);
  for (const HeadStatistics& head : heads) {
    const double fields[kHeadFields] = {head.max_logit,          head.mean_entropy, head.min_entropy,
                                        head.normalised_entropy, head.saturated,    static_cast<double>(head.rows)};
    for (const double field : fields) *to++ = field;
  }
}

void attention_call(nb::handle q, nb::handle k, nb::handle v, nb::handle out, const PythonOptions& options,
                    const PythonOutputs& outputs) {
  Arguments arguments("attention");
  const TensorView q_view = arguments.tensor("q", q), k_view = arguments.tensor("k", k);
  const TensorView v_view = arguments.tensor("v", v);
  const MutableTensorView out_view = arguments.tensor("out", out, Access::write);
  const Options read = arguments.options(options);
  const MutableRowView heads_view = arguments.optional<3>("heads", outputs.heads, Access::write, 3);
  std::vector<HeadStatistics> heads(static_cast<std::size_t>(heads_view.shape[0] * heads_view.shape[1]));
  const Outputs report = read_outputs(arguments, outputs, heads);
  without_lock([&] { attention(q_view, k_view, v_view, out_view, read, report); });
  write_heads(heads_view, heads);
}

struct PythonGradients {
  nb::handle dq, dk, dv, dbias, dscale, dsinks;
};

void backward_call(nb::handle q, nb::handle k, nb::handle v, nb::handle out, nb::handle lse, nb::handle dout,
                   nb::handle dlse, const PythonGradients& gradients, const PythonOptions& options) {
  Arguments arguments("attention_backward");
  const BackwardInputs inputs{.q = arguments.tensor("q", q),
                              .k = arguments.tensor("k", k),
                              .v = arguments.tensor("v", v),
                              .out = arguments.tensor("out", out),
                              .lse = arguments.view<3>("lse", lse, Access::read, 1),
                              .dout = arguments.tensor("dout", dout),
                              .dlse = arguments.optional<3>("dlse", dlse, Access::read, 1)};
  const Options read = arguments.options(options);
  const Gradients results{.dq = arguments.optional<4>("dq", gradients.dq, Access::write, 2),
                          .dk = arguments.optional<4>("dk", gradients.dk, Access::write, 2),
                          .dv = arguments.optional<4>("dv", gradients.dv, Access::write, 2),
                          .dbias = arguments.optional<4>("dbias", gradients.dbias, Access::write),
                          .dscale = arguments.optional<3>("dscale", gradients.dscale, Access::write),
                          .dsinks = arguments.optional<1>("dsinks", gradients.dsinks, Access::write, 1)};
  without_lock([&] { attention_backward(inputs, results, read); });
}

// Parts and results are lists of arrays: out, then what rows have, in this order, None for all but lse that is not
// there.
constexpr const char* kMergeRows[] = {"lse",        "max_logit", "entropy", "max_weight",
                                      "logit_mean", "logit_var", "visible", "logit_count"};

// The views of one such list, called "parts[0].lse" and so on; `names` keeps those.
template <class Rows>
void read_rows(Arguments& arguments, const nb::list& arrays, const std::string& prefix, Access access,
               std::deque<std::string>& names, Rows* const (&rows)[std::size(kMergeRows)]) {
  for (std::size_t i = 0; i < std::size(kMergeRows); ++i) {
    const std::string& name = names.emplace_back(prefix + kMergeRows[i]);
    *rows[i] = i == 0 ? arguments.view<3>(name.c_str(), arrays[1], access, 1)
                      : arguments.optional<3>(name.c_str(), arrays[i + 1], access, 1);
  }
}

void merge_call(const nb::list& parts, const nb::list& results, nb::handle threads) {
  std::deque<std::string> names;
  Arguments arguments("merge");
  std::vector<Partial> views;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    const nb::list arrays = nb::cast<nb::list>(parts[i]);
    const std::string prefix = "parts[" + std::to_string(i) + "].";
    Partial& part = views.emplace_back();
    part.out = arguments.tensor(names.emplace_back(prefix + "out").c_str(), arrays[0]);
    read_rows(arguments, arrays, prefix, Access::read, names,
              {&part.lse, &part.max_logit, &part.entropy, &part.max_weight, &part.logit_mean, &part.logit_var,
               &part.visible, &part.logit_count});
  }
  Outputs outputs;
  const MutableTensorView out = arguments.tensor("out", results[0], Access::write);
  read_rows(arguments, results, "", Access::write, names,
            {&outputs.lse, &outputs.max_logit, &outputs.entropy, &outputs.max_weight, &outputs.logit_mean,
             &outputs.logit_var, &outputs.visible, &outputs.logit_count});
  const int most = read_threads(arguments.place("threads"), threads);
  without_lock([&] { merge(views, out, outputs, most); });
}

std::string explain_call(nb::handle q, nb::handle k, nb::handle v, const PythonOptions& options) {
  Arguments arguments("attention");
  const TensorView q_view = arguments.tensor("q", q), k_view = arguments.tensor("k", k);
  const TensorView v_view = arguments.tensor("v", v);
  MutableTensorView out{nullptr, q_view.dtype, q_view.shape, {}};  // no memory: only its shape is looked at
  out.shape[3] = v_view.shape[3];
  out.strides = contiguous_strides(out.shape);
  return explain(q_view, k_view, v_view, out, arguments.options(options));
}

std::pair<std::string, std::vector<std::int64_t>> describe(const char* operation, const char* name, nb::handle object) {
  const Array array({operation, name}, object);
  std::vector<std::int64_t> shape;
  for (int i = 0; i < array.rank(); ++i) shape.push_back(array.size(i));
  return {name_of(array.dtype()), shape};
}

}  // namespace
}  // namespace keel::python

// The options stand in one order everywhere: that of PythonOptions.
#define KEEL_OPTIONS                                                                                            \
  nb::handle mask, nb::handle bias, nb::handle causal, nb::handle window, nb::handle scale, nb::handle softcap, \
      nb::handle alibi, nb::handle sinks, nb::handle dropout, nb::handle seed, nb::handle q_lengths,            \
      nb::handle k_lengths, nb::handle q_offsets, nb::handle k_offsets, nb::handle threads
#define KEEL_OPTION_VALUES                                                                                    \
  {                                                                                                           \
    mask, bias, causal, window, scale, softcap, alibi, sinks, dropout, seed, q_lengths, k_lengths, q_offsets, \
        k_offsets, threads                                                                                    \
  }
#define KEEL_OPTION_NAMES                                                                                          \
  nb::arg("mask").none(), nb::arg("bias").none(), nb::arg("causal").none(), nb::arg("window").none(),              \
      nb::arg("scale").none(), nb::arg("softcap").none(), nb::arg("alibi").none(), nb::arg("sinks").none(),        \
      nb::arg("dropout").none(), nb::arg("seed").none(), nb::arg("q_lengths").none(), nb::arg("k_lengths").none(), \
      nb::arg("q_offsets").none(), nb::arg("k_offsets").none(), nb::arg("threads").none()

NB_MODULE(_core, m) {
  namespace nb = nanobind;
  using namespace keel::python;
  nb::register_exception_translator(translate);
  m.doc() = "The compiled part of keel; see keel.attention for what the arguments mean.";
  m.attr("version") = keel::version();
  static constexpr Calls calls{&keel::attention, &keel::attention_backward};
  m.attr("calls") = nb::capsule(&calls, kCallsName);

  m.def(
      "attention",
      [](nb::handle q, nb::handle k, nb::handle v, nb::handle out, KEEL_OPTIONS, nb::handle lse, nb::handle weights,
         nb::handle max_logit, nb::handle entropy, nb::handle max_weight, nb::handle logit_mean, nb::handle logit_var,
         nb::handle visible, nb::handle heads, double saturation_threshold, nb::handle key_sums,
         nb::handle key_sum_rows, nb::handle logit_count) {
        attention_call(q, k, v, out, KEEL_OPTION_VALUES,
                       {lse, weights, max_logit, entropy, max_weight, logit_mean, logit_var, visible, heads,
                        saturation_threshold, key_sums, key_sum_rows, logit_count});
      },
      nb::arg("q").none(), nb::arg("k").none(), nb::arg("v").none(), nb::arg("out").none(), KEEL_OPTION_NAMES,
      nb::arg("lse").none(), nb::arg("weights").none(), nb::arg("max_logit").none(), nb::arg("entropy").none(),
      nb::arg("max_weight").none(), nb::arg("logit_mean").none(), nb::arg("logit_var").none(),
      nb::arg("visible").none(), nb::arg("heads").none(), nb::arg("saturation_threshold"),
      nb::arg("key_sums") = nb::none(), nb::arg("key_sum_rows") = 0, nb::arg("logit_count") = nb::none(),
      "Writes attention of q over (k, v) to out, and what it reports to the others.");

  m.def("sdpa", &sdpa, nb::arg("q").none(), nb::arg("k").none(), nb::arg("v").none(), nb::arg("out").none(),
        nb::arg("mask").none(), nb::arg("causal").none(), nb::arg("scale").none(), nb::arg("grouped").none(),
        nb::arg("threads"), nb::arg("with_lse"),
        "Plain attention of torch tensors in one short call: lse, or True, or False where it cannot.");
  m.def("sdpa_backward", &sdpa_backward, nb::arg("q"), nb::arg("k"), nb::arg("v"), nb::arg("out"), nb::arg("lse"),
        nb::arg("dout"), nb::arg("dq").none(), nb::arg("dk").none(), nb::arg("dv").none(), nb::arg("mask").none(),
        nb::arg("causal"), nb::arg("scale").none(), nb::arg("threads"), "Its gradients, likewise.");

  m.def(
      "attention_backward",
      [](nb::handle q, nb::handle k, nb::handle v, nb::handle out, nb::handle lse, nb::handle dout, nb::handle dlse,
         nb::handle dq, nb::handle dk, nb::handle dv, nb::handle dbias, nb::handle dscale, nb::handle dsinks,
         KEEL_OPTIONS) {
        backward_call(q, k, v, out, lse, dout, dlse, {dq, dk, dv, dbias, dscale, dsinks}, KEEL_OPTION_VALUES);
      },
      nb::arg("q").none(), nb::arg("k").none(), nb::arg("v").none(), nb::arg("out").none(), nb::arg("lse").none(),
      nb::arg("dout").none(), nb::arg("dlse").none(), nb::arg("dq").none(), nb::arg("dk").none(), nb::arg("dv").none(),
      nb::arg("dbias").none(), nb::arg("dscale").none(), nb::arg("dsinks").none(), KEEL_OPTION_NAMES,
      "Writes the gradients that are not None.");

  m.def(
      "use_team",
      [](std::uintptr_t run, std::uintptr_t size) {
        keel::use_team(
            {reinterpret_cast<decltype(keel::Team::run)>(run), reinterpret_cast<decltype(keel::Team::size)>(size)});
      },
      nb::arg("run"), nb::arg("size"), "Computes on the threads of an OpenMP library, given two of its functions.");

  m.def("merge", &merge_call, nb::arg("parts"), nb::arg("results"), nb::arg("threads").none(),
        "Joins results over disjoint sets of keys.");

  m.def(
      "explain",
      [](nb::handle q, nb::handle k, nb::handle v, KEEL_OPTIONS) { return explain_call(q, k, v, KEEL_OPTION_VALUES); },
      nb::arg("q").none(), nb::arg("k").none(), nb::arg("v").none(), KEEL_OPTION_NAMES,
      "How attention would serve the call.");

  m.def("describe", &describe, nb::arg("operation"), nb::arg("name"), nb::arg("array").none(),
        "The dtype and the shape of an array.");
}
