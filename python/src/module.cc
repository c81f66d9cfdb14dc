// keel._core: the library's calls for the package keel, which passes arrays to read and to write, and None for what is
// left out. Nothing here decides what attention means: the library checks shapes and values.

#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "calls.h"
#include "keel/keel.h"
#include "options.h"
#include "ring.h"

namespace keel::python {
namespace {

void translate(const std::exception_ptr& exception, void*) {
  try {
    std::rethrow_exception(exception);
  } catch (const Error& error) {
    PyObject* type = PyExc_ValueError;
    if (error.code() == ErrorCode::out_of_memory) type = PyExc_MemoryError;
    if (error.code() == ErrorCode::wrong_dtype) type = PyExc_TypeError;
    if (error.code() == ErrorCode::unsupported) type = PyExc_NotImplementedError;
    if (error.code() == ErrorCode::peer || error.code() == ErrorCode::device) type = PyExc_RuntimeError;
    PyErr_SetString(type, error.what());
  }
}

void attention_call(nb::handle q, nb::handle k, nb::handle v, nb::handle out, nb::dict options, nb::dict outputs) {
  Arguments arguments("attention", options);
  const TensorView q_view = arguments.tensor("q", q), k_view = arguments.tensor("k", k);
  const TensorView v_view = arguments.tensor("v", v);
  const MutableTensorView out_view = arguments.tensor("out", out, Access::write);
  const Options given = arguments.options(options);
  const Outputs report = arguments.outputs(outputs);
  without_gil([&] { attention(q_view, k_view, v_view, out_view, given, report); });
}

void backward_call(nb::handle q, nb::handle k, nb::handle v, nb::handle out, nb::handle lse, nb::handle dout,
                   nb::handle dlse, nb::dict options, nb::dict gradients) {
  Arguments arguments("attention_backward", options);
  const BackwardInputs inputs{.q = arguments.tensor("q", q),
                              .k = arguments.tensor("k", k),
                              .v = arguments.tensor("v", v),
                              .out = arguments.tensor("out", out),
                              .lse = arguments.view<3>("lse", lse, Access::read, 1),
                              .dout = arguments.tensor("dout", dout),
                              .dlse = arguments.optional<3>("dlse", dlse, Access::read, 1)};
  const Options given = arguments.options(options);
  const Gradients results = arguments.gradients(gradients);
  without_gil([&] { attention_backward(inputs, results, given); });
}

void jvp_call(nb::handle q, nb::handle k, nb::handle v, nb::handle out, nb::handle lse, nb::dict options,
              nb::dict tangents, nb::dict outputs) {
  Arguments arguments("attention_jvp", options);
  const JvpInputs inputs{.q = arguments.tensor("q", q),
                         .k = arguments.tensor("k", k),
                         .v = arguments.tensor("v", v),
                         .out = arguments.tensor("out", out),
                         .lse = arguments.view<3>("lse", lse, Access::read, 1)};
  const Options given = arguments.options(options);
  const Tangents along = arguments.tangents(tangents);
  const JvpOutputs results = arguments.jvp_outputs(outputs);
  without_gil([&] { attention_jvp(inputs, along, results, given); });
}

// `inputs` holds q, k, v, out, lse, dout and dlse.
void double_backward_call(nb::tuple inputs, nb::dict options, nb::dict tangents, nb::dict gradients) {
  Arguments arguments("attention_double_backward", options);
  const BackwardInputs from{.q = arguments.tensor("q", inputs[0]),
                            .k = arguments.tensor("k", inputs[1]),
                            .v = arguments.tensor("v", inputs[2]),
                            .out = arguments.tensor("out", inputs[3]),
                            .lse = arguments.view<3>("lse", inputs[4], Access::read, 1),
                            .dout = arguments.tensor("dout", inputs[5]),
                            .dlse = arguments.optional<3>("dlse", inputs[6], Access::read, 1)};
  const Options given = arguments.options(options);
  const Tangents along = arguments.tangents(tangents);
  const DoubleGradients results = arguments.double_gradients(gradients);
  without_gil([&] { attention_double_backward(from, along, results, given); });
}

// `parts` holds one dict of arrays per part; of the options there are threads and stream.
void merge_call(const nb::list& parts, nb::handle out, nb::dict outputs, nb::dict options) {
  Arguments arguments("merge", options);
  std::vector<Partial> views;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    views.push_back(arguments.partial(nb::cast<nb::dict>(parts[i]), "parts[" + std::to_string(i) + "]."));
  }
  const MutableTensorView out_view = arguments.tensor("out", out, Access::write);
  const Outputs results = arguments.outputs(outputs);
  const Options given = arguments.options(options);
  without_gil([&] { merge(views, out_view, results, given.threads, given.stream); });
}

// An array of this shape without memory, of which only dtype, shape, strides and device are read.
template <std::size_t Rank>
BasicView<Rank, void*> described(DType dtype, const std::array<std::int64_t, Rank>& shape, const Device& device) {
  return {nullptr, dtype, shape, contiguous_strides(shape), device};
}

std::string explain_call(nb::handle q, nb::handle k, nb::handle v, nb::dict options) {
  Arguments arguments("attention");
  const TensorView q_view = arguments.tensor("q", q), k_view = arguments.tensor("k", k);
  const TensorView v_view = arguments.tensor("v", v);
  const auto& q_shape = q_view.shape;
  const MutableTensorView out =
      described<4>(q_view.dtype, {q_shape[0], q_shape[1], q_shape[2], v_view.shape[3]}, q_view.device);
  return explain(q_view, k_view, v_view, out, arguments.options(options));
}

// `wanted` names gradients; that of the scale, be it a number or a tensor, is planned as one number per row.
std::string explain_backward_call(nb::handle q, nb::handle k, nb::handle v, nb::dict options,
                                  const std::vector<std::string>& wanted) {
  Arguments arguments("attention_backward");
  const TensorView q_view = arguments.tensor("q", q), k_view = arguments.tensor("k", k);
  const TensorView v_view = arguments.tensor("v", v);
  const Options given = arguments.options(options);
  const std::array<std::int64_t, 3> rows = {q_view.shape[0], q_view.shape[1], q_view.shape[2]};
  const DType sums = accumulation_dtype(q_view.dtype);
  const auto like = [&](DType dtype, const auto& shape) { return described(dtype, shape, q_view.device); };
  const std::array<std::int64_t, 4> out_shape = {rows[0], rows[1], rows[2], v_view.shape[3]};
  const MutableTensorView out = like(q_view.dtype, out_shape);
  Gradients gradients;
  for (const std::string& name : wanted) {
    if (name == "dq") gradients.dq = like(q_view.dtype, q_view.shape);
    if (name == "dk") gradients.dk = like(k_view.dtype, k_view.shape);
    if (name == "dv") gradients.dv = like(v_view.dtype, v_view.shape);
    if (name == "dbias") gradients.dbias = like(given.bias.dtype, given.bias.shape);
    if (name == "dscale") gradients.dscale = like(sums, rows);
    if (name == "dsinks") gradients.dsinks = like(given.sinks.dtype, given.sinks.shape);
  }
  return explain({.q = q_view, .k = k_view, .v = v_view, .out = out, .lse = like(sums, rows), .dout = out}, gradients,
                 given);
}

// Why arrays on this CUDA device cannot be served; empty where they can.
std::string cuda_refusal(std::int32_t index) {
  const MutableTensorView x = described<4>(DType::f32, {1, 1, 1, 1}, {DeviceKind::cuda, index});
  try {
    explain(x, x, x, x);
    return "";
  } catch (const Error& error) {
    return error.what();
  }
}

nb::tuple describe(const char* operation, const char* name, nb::handle object) {
  const Array array({operation, name}, object);
  std::vector<std::int64_t> shape;
  for (int i = 0; i < array.rank(); ++i) shape.push_back(array.size(i));
  const Device device = array.device();
  return nb::make_tuple(name_of(array.dtype()), shape,
                        device == Device{} ? "cpu" : "cuda:" + std::to_string(device.index));
}

}  // namespace
}  // namespace keel::python

NB_MODULE(_core, m) {
  namespace nb = nanobind;
  using namespace keel::python;
  nb::register_exception_translator(translate);
  m.doc() = "The compiled part of keel; see keel.attention for what the arguments mean.";
  m.attr("version") = keel::version();
  static constexpr Calls calls{&keel::attention, &keel::attention_backward};
  m.attr("calls") = nb::capsule(&calls, kCallsName);

  m.attr("options") = nb::cast(option_names());

  m.def("attention", &attention_call, nb::arg("q").none(), nb::arg("k").none(), nb::arg("v").none(),
        nb::arg("out").none(), nb::arg("options"), nb::arg("outputs"),
        "Writes attention of q over (k, v) to out, and its statistics to the arrays of the dict `outputs`.");
  m.def("attention_backward", &backward_call, nb::arg("q").none(), nb::arg("k").none(), nb::arg("v").none(),
        nb::arg("out").none(), nb::arg("lse").none(), nb::arg("dout").none(), nb::arg("dlse").none(),
        nb::arg("options"), nb::arg("gradients"), "Writes the gradients to the arrays of the dict `gradients`.");
  m.def("attention_jvp", &jvp_call, nb::arg("q").none(), nb::arg("k").none(), nb::arg("v").none(),
        nb::arg("out").none(), nb::arg("lse").none(), nb::arg("options"), nb::arg("tangents"), nb::arg("outputs"),
        "Writes the derivatives along the dict `tangents` to the arrays of the dict `outputs`.");
  m.def("attention_double_backward", &double_backward_call, nb::arg("inputs"), nb::arg("options"), nb::arg("tangents"),
        nb::arg("gradients"),
        "Writes the gradients of attention_backward of `inputs` to the arrays of the dict `gradients`.");
  m.def("explain", &explain_call, nb::arg("q").none(), nb::arg("k").none(), nb::arg("v").none(), nb::arg("options"),
        "How attention would serve the call.");
  m.def("explain_backward", &explain_backward_call, nb::arg("q").none(), nb::arg("k").none(), nb::arg("v").none(),
        nb::arg("options"), nb::arg("wanted"), "How attention_backward would serve the call.");

  m.def(
      "use_team",
      [](std::uintptr_t run, std::uintptr_t size) {
        keel::use_team(
            {reinterpret_cast<decltype(keel::Team::run)>(run), reinterpret_cast<decltype(keel::Team::size)>(size)});
      },
      nb::arg("run"), nb::arg("size"), "Computes on the threads of an OpenMP library, given two of its functions.");

  m.def("merge", &merge_call, nb::arg("parts"), nb::arg("out").none(), nb::arg("outputs"), nb::arg("options"),
        "Joins parts, dicts of results over disjoint sets of keys, into out and the dict `outputs`.");

  m.def("cuda_refusal", &cuda_refusal, nb::arg("index"),
        "Why arrays on this CUDA device cannot be served; an empty string where they can.");

  add_ring(m);

  m.def("describe", &describe, nb::arg("operation"), nb::arg("name"), nb::arg("array").none(),
        "The dtype, the shape and the device of an array.");
}
