#include "options.h"

#include <string>

namespace keel::python {
namespace {

std::string text_of(nb::handle object) { return nb::repr(object).c_str(); }

// Python's integers and NumPy's, but no array of one dimension or more.
bool is_integer(nb::handle object) {
  if (!PyIndex_Check(object.ptr()) || PyBool_Check(object.ptr())) return false;
  const bool found = nb::steal(PyNumber_Index(object.ptr())).is_valid();
  if (!found) PyErr_Clear();
  return found;
}

bool is_number(nb::handle object) { return PyFloat_Check(object.ptr()) || is_integer(object); }

}  // namespace

double read_number(Place place, nb::handle object) {
  const double number = PyBool_Check(object.ptr()) ? -1.0 : PyFloat_AsDouble(object.ptr());
  if (PyBool_Check(object.ptr()) || (number == -1.0 && PyErr_Occurred() != nullptr)) {
    PyErr_Clear();
    place.type_error("expected a number, got " + text_of(object));
  }
  return number;
}

std::int64_t read_integer(Place place, nb::handle object) {
  const nb::object index = PyBool_Check(object.ptr()) ? nb::object() : nb::steal(PyNumber_Index(object.ptr()));
  const std::int64_t integer = index.is_valid() ? PyLong_AsLongLong(index.ptr()) : -1;
  if (!index.is_valid() || (integer == -1 && PyErr_Occurred() != nullptr)) {
    PyErr_Clear();
    place.type_error("expected an integer of 64 bits, got " + text_of(object));
  }
  return integer;
}

std::uint64_t read_seed(Place place, nb::handle object) {
  const nb::object index = PyBool_Check(object.ptr()) ? nb::object() : nb::steal(PyNumber_Index(object.ptr()));
  const std::uint64_t seed = index.is_valid() ? PyLong_AsUnsignedLongLong(index.ptr()) : 0;
  if (!index.is_valid() || PyErr_Occurred() != nullptr) {
    PyErr_Clear();
    place.type_error("expected an integer from 0 to 2^64 - 1, got " + text_of(object));
  }
  return seed;
}

int read_threads(Place place, nb::handle object) {
  if (object.is_none()) return 0;
  const std::int64_t threads = read_integer(place, object);
  if (threads < 1 || threads > INT32_MAX) {
    place.value_error("expected None or at least 1, got " + std::to_string(threads));
  }
  return static_cast<int>(threads);
}

Causal read_causal(Place place, nb::handle object) {
  if (object.is_none() || object.ptr() == Py_False) return Causal::none;
  if (object.ptr() == Py_True) return Causal::top_left;
  if (PyUnicode_Check(object.ptr())) {
    if (PyUnicode_CompareWithASCIIString(object.ptr(), "top_left") == 0) return Causal::top_left;
    if (PyUnicode_CompareWithASCIIString(object.ptr(), "bottom_right") == 0) return Causal::bottom_right;
    place.value_error("expected None, True, 'top_left' or 'bottom_right', got " + text_of(object));
  }
  place.type_error("expected None, True, 'top_left' or 'bottom_right', got " + text_of(object));
}

std::span<const std::int64_t> Arguments::list(const char* name, nb::handle object) {
  if (object.is_none()) return {};
  std::vector<std::int64_t>& values = lists_.emplace_back();
  if (PyList_Check(object.ptr()) || PyTuple_Check(object.ptr())) {
    for (const nb::handle value : nb::borrow(object)) values.push_back(read_integer(place(name), value));
  } else {
    const Array& array = arrays_.emplace_back(place(name), object);
    if (array.dtype() != DType::i64) {
      place(name).type_error(std::string("expected dtype i64, got ") + name_of(array.dtype()));
    }
    if (array.rank() != 1) place(name).value_error("expected 1 dimension, got " + std::to_string(array.rank()));
    const auto view = array.view<1>();
    for (std::int64_t i = 0; i < view.shape[0]; ++i) {
      values.push_back(static_cast<const std::int64_t*>(view.data)[i * view.strides[0]]);
    }
  }
  // To the library an empty list is one that was not given.
  if (values.empty()) place(name).value_error("expected at least one value, got none");
  return values;
}

Options Arguments::options(const PythonOptions& given) {
  Options options;
  if (!given.mask.is_none()) {
    const MutableTensorView mask = optional<4>("mask", given.mask);
    if (!is_floating(mask.dtype)) {
      options.mask = mask;
    } else if (given.bias.is_none()) {
      options.bias = mask;  // a mask of numbers is added to the scores
    } else {
      place("mask").type_error(std::string("expected dtype bool beside bias, got ") + name_of(mask.dtype));
    }
  }
  if (!given.bias.is_none()) options.bias = optional<4>("bias", given.bias);
  options.causal = read_causal(place("causal"), given.causal);
  if (!given.window.is_none()) {
    if (!PyTuple_Check(given.window.ptr()) && !PyList_Check(given.window.ptr())) {
      place("window").type_error("expected (left, right), got " + text_of(given.window));
    }
    const nb::tuple window = nb::tuple(nb::borrow(given.window));
    if (window.size() != 2) place("window").value_error("expected (left, right), got " + text_of(given.window));
    if (!window[0].is_none()) options.window.left = read_integer(place("window.left"), window[0]);
    if (!window[1].is_none()) options.window.right = read_integer(place("window.right"), window[1]);
  }
  if (!given.scale.is_none()) {
    if (is_number(given.scale)) {
      options.scale = read_number(place("scale"), given.scale);
    } else {
      options.scale_tensor = optional<3>("scale", given.scale);
    }
  }
  if (!given.softcap.is_none()) options.softcap = read_number(place("softcap"), given.softcap);
  options.alibi = optional<1>("alibi", given.alibi, Access::read, 1);
  options.sinks = optional<1>("sinks", given.sinks, Access::read, 1);
  options.dropout = read_number(place("dropout"), given.dropout);
  options.seed = read_seed(place("seed"), given.seed);
  options.q_lengths = list("q_lengths", given.q_lengths);
  options.k_lengths = list("k_lengths", given.k_lengths);
  options.q_offsets = list("q_offsets", given.q_offsets);
  options.k_offsets = list("k_offsets", given.k_offsets);
  options.threads = read_threads(place("threads"), given.threads);
  return options;
}

}  // namespace keel::python
