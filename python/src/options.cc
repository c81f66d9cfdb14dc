#include "options.h"

#include <algorithm>
#include <array>
#include <string>

namespace keel::python {
namespace {

std::string text_of(nb::handle object) { return nb::repr(object).c_str(); }

// Python's and NumPy's integers; arrays only if they have no dimensions.
bool is_integer(nb::handle object) {
  if (!PyIndex_Check(object.ptr()) || PyBool_Check(object.ptr())) return false;
  const bool found = nb::steal(PyNumber_Index(object.ptr())).is_valid();
  if (!found) PyErr_Clear();
  return found;
}

bool is_number(nb::handle object) { return PyFloat_Check(object.ptr()) || is_integer(object); }

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
    place.type_error("expected a 64-bit integer, got " + text_of(object));
  }
  return integer;
}

// How the argument of this name is read into one of the library's structures.
template <class Target>
struct Row {
  const char* name;
  void (*read)(Arguments& arguments, const char* name, nb::handle object, Target& target);
};

// The index of the row named `key`; Count if there is none.
template <class Target, std::size_t Count>
std::size_t find(const Row<Target> (&rows)[Count], nb::handle key) {
  static const std::array<PyObject*, Count> names = [&] {  // interned: usually the very object that is the key
    std::array<PyObject*, Count> made{};
    for (std::size_t i = 0; i < Count; ++i) made[i] = PyUnicode_InternFromString(rows[i].name);
    return made;
  }();
  const auto same = std::find(names.begin(), names.end(), key.ptr());
  if (same != names.end()) return static_cast<std::size_t>(same - names.begin());
  std::size_t at = 0;
  while (at < Count && PyUnicode_CompareWithASCIIString(key.ptr(), rows[at].name) != 0) ++at;
  return at;
}

// Reads what the dict has, in the order of the rows. Names in errors begin with `prefix`.
template <class Target, std::size_t Count>
Target read(Arguments& arguments, const Row<Target> (&rows)[Count], nb::dict given, const std::string& prefix = "") {
  Target target;
  std::array<nb::handle, Count> values{};
  for (const auto& [key, value] : given) {
    const std::size_t at = find(rows, key);
    if (at == Count) arguments.place(nb::str(key).c_str()).type_error("expected a known name, got an unknown one");
    values[at] = value;
  }
  for (std::size_t at = 0; at < Count; ++at) {
    if (!values[at].is_valid()) continue;
    rows[at].read(arguments, arguments.prefixed(prefix, rows[at].name), values[at], target);
  }
  return target;
}

// How members of these structures are read, by type.

enum class Need { optional, required };

template <class Target, std::size_t Rank, class Pointer, BasicView<Rank, Pointer> Target::*Member, int Least, Need Kind>
void view_into(Arguments& arguments, const char* name, nb::handle object, Target& target) {
  constexpr Access access = std::is_same_v<Pointer, void*> ? Access::write : Access::read;
  target.*Member = Kind == Need::required ? arguments.view<Rank>(name, object, access, Least)
                                          : arguments.optional<Rank>(name, object, access, Least);
}
template <auto Member, int Least = 0, Need Kind = Need::optional>
constexpr auto kView = []<class Target, std::size_t Rank, class Pointer>(BasicView<Rank, Pointer> Target::*) {
  return &view_into<Target, Rank, Pointer, Member, Least, Kind>;
}(Member);

template <auto Member>
constexpr auto kNumber = []<class Target, class Number>(Number Target::*) {
  return +[](Arguments& arguments, const char* name, nb::handle object, Target& target) {
    if (std::is_same_v<Number, std::optional<double>> && object.is_none()) return;
    target.*Member = read_number(arguments.place(name), object);
  };
}(Member);

template <auto Member>
void list_into(Arguments& arguments, const char* name, nb::handle object, Options& options) {
  options.*Member = arguments.list(name, object);
}

// A mask of numbers is added to the scores.
void read_mask(Arguments& arguments, const char* name, nb::handle object, Options& options) {
  const TensorView mask = arguments.optional<4>(name, object);
  if (!is_floating(mask.dtype) || !mask.given()) {
    options.mask = mask;
  } else if (!options.bias.given()) {
    options.bias = mask;
  } else {
    arguments.place(name).type_error(std::string("expected dtype bool together with bias, got ") + name_of(mask.dtype));
  }
}

void read_block_mask(Arguments& arguments, const char* name, nb::handle object, Options& options) {
  options.block_mask = arguments.block_mask(name, object);
}

void read_causal(Arguments& arguments, const char* name, nb::handle object, Options& options) {
  if (object.is_none() || object.ptr() == Py_False) return;
  const Place place = arguments.place(name);
  const std::string wrong = "expected None, True, 'top_left' or 'bottom_right', got ";
  if (object.ptr() == Py_True) {
    options.causal = Causal::top_left;
  } else if (!PyUnicode_Check(object.ptr())) {
    place.type_error(wrong + text_of(object));
  } else if (PyUnicode_CompareWithASCIIString(object.ptr(), "top_left") == 0) {
    options.causal = Causal::top_left;
  } else if (PyUnicode_CompareWithASCIIString(object.ptr(), "bottom_right") == 0) {
    options.causal = Causal::bottom_right;
  } else {
    place.value_error(wrong + text_of(object));
  }
}

void read_window(Arguments& arguments, const char* name, nb::handle object, Options& options) {
  if (object.is_none()) return;
  const Place place = arguments.place(name);
  if (!PyTuple_Check(object.ptr()) && !PyList_Check(object.ptr())) {
    place.type_error("expected (left, right), got " + text_of(object));
  }
  const nb::tuple window = nb::tuple(nb::borrow(object));
  if (window.size() != 2) place.value_error("expected (left, right), got " + text_of(object));
  if (!window[0].is_none()) options.window.left = read_integer(arguments.place("window.left"), window[0]);
  if (!window[1].is_none()) options.window.right = read_integer(arguments.place("window.right"), window[1]);
}

void read_origin(Arguments& arguments, const char* name, nb::handle object, Options& options) {
  if (object.is_none()) return;
  const Place place = arguments.place(name);
  const std::string wrong = "expected (query, key) or (query, key, n_q, n_k), got ";
  if (!PyTuple_Check(object.ptr()) && !PyList_Check(object.ptr())) place.type_error(wrong + text_of(object));
  const nb::tuple values = nb::tuple(nb::borrow(object));
  if (values.size() != 2 && values.size() != 4) place.value_error(wrong + text_of(object));
  Origin& o = options.origin;
  const std::pair<const char*, std::int64_t*> places[] = {
      {"origin.query", &o.query}, {"origin.key", &o.key}, {"origin.n_q", &o.n_q}, {"origin.n_k", &o.n_k}};
  for (std::size_t i = 0; i < values.size(); ++i) {
    *places[i].second = read_integer(arguments.place(places[i].first), values[i]);
  }
}

void read_scale(Arguments& arguments, const char* name, nb::handle object, Options& options) {
  if (is_number(object)) {
    options.scale = read_number(arguments.place(name), object);
  } else {
    options.scale_tensor = arguments.optional<3>(name, object);
  }
}

// One slope per head, or one per batch entry and head.
void read_alibi(Arguments& arguments, const char* name, nb::handle object, Options& options) {
  options.alibi = arguments.optional<2>(name, object, Access::read, 1);
}

void read_seed(Arguments& arguments, const char* name, nb::handle object, Options& options) {
  const nb::object index = PyBool_Check(object.ptr()) ? nb::object() : nb::steal(PyNumber_Index(object.ptr()));
  if (index.is_valid()) options.seed = PyLong_AsUnsignedLongLong(index.ptr());
  if (!index.is_valid() || PyErr_Occurred() != nullptr) {
    PyErr_Clear();
    arguments.place(name).type_error("expected an integer from 0 to 2^64 - 1, got " + text_of(object));
  }
}

void read_threads(Arguments& arguments, const char* name, nb::handle object, Options& options) {
  if (object.is_none()) return;
  const std::int64_t threads = read_integer(arguments.place(name), object);
  if (threads < 1 || threads > INT32_MAX) {
    arguments.place(name).value_error("expected None or at least 1, got " + std::to_string(threads));
  }
  options.threads = static_cast<int>(threads);
}

void read_split_products(Arguments& arguments, const char* name, nb::handle object, Options& options) {
  if (!PyBool_Check(object.ptr())) arguments.place(name).type_error("expected True or False, got " + text_of(object));
  options.split_products = object.ptr() == Py_True;
}

// A cudaStream_t: its number, or an object that knows it.
std::optional<void*> read_stream(Place place, nb::handle object) {
  if (object.is_none()) return {};
  nb::object number = nb::borrow(object);
  if (nb::hasattr(object, "__cuda_stream__")) {
    number = object.attr("__cuda_stream__")()[1];  // (version, cudaStream_t)
  } else if (nb::hasattr(object, "cuda_stream")) {
    number = object.attr("cuda_stream");  // torch's
  } else if (nb::hasattr(object, "ptr")) {
    number = object.attr("ptr");  // CuPy's
  }
  if (!is_integer(number)) place.type_error("expected a CUDA stream or its number, got " + text_of(object));
  return reinterpret_cast<void*>(static_cast<std::uintptr_t>(read_integer(place, number)));
}

// An array (entries, H_q, 6) of 64-bit numbers, whose memory holds entries × H_q statistics.
void read_heads(Arguments& arguments, const char* name, nb::handle object, Outputs& outputs) {
  const MutableRowView view = arguments.view<3>(name, object, Access::write, 3);
  if (view.device != arguments.device()) {
    arguments.place(name).value_error("expected an array on the device of the others, got one on another");
  }
  static_assert(sizeof(HeadStatistics) == 6 * sizeof(double));
  outputs.heads = {static_cast<HeadStatistics*>(view.data), static_cast<std::size_t>(view.shape[0] * view.shape[1])};
}

void read_key_sum_rows(Arguments& arguments, const char* name, nb::handle object, Outputs& outputs) {
  outputs.key_sum_rows = read_integer(arguments.place(name), object);
}

void read_score_stage(Arguments& arguments, const char*, nb::handle object, Outputs& outputs) {
  static constexpr std::pair<const char*, ScoreStage> kStages[] = {
      {"raw", ScoreStage::raw}, {"capped", ScoreStage::capped}, {"masked", ScoreStage::masked}};
  for (const auto& [stage, code] : kStages) {
    if (!PyUnicode_Check(object.ptr()) || PyUnicode_CompareWithASCIIString(object.ptr(), stage) != 0) continue;
    outputs.score_stage = code;
    return;
  }
  const std::string wrong = "expected None, 'raw', 'capped' or 'masked', got " + text_of(object);
  if (!PyUnicode_Check(object.ptr())) arguments.place("return_scores").type_error(wrong);
  arguments.place("return_scores").value_error(wrong);
}

template <class Results>
void read_accumulate(Arguments& arguments, const char* name, nb::handle object, Results& results) {
  if (!PyBool_Check(object.ptr())) arguments.place(name).type_error("expected True or False, got " + text_of(object));
  results.accumulate = object.ptr() == Py_True;
}

// One of Gradients, which DoubleGradients holds.
template <auto Member, int Least>
void gradient_into(Arguments& arguments, const char* name, nb::handle object, DoubleGradients& target) {
  kView<Member, Least>(arguments, name, object, target.gradients);
}

// The options of keel/_options.py, the gradients, what a call reports and the parts of a merge, as the library has
// them.

constexpr Row<Options> kOptions[] = {
    {"bias", kView<&Options::bias>},
    {"mask", read_mask},  // after bias
    {"block_mask", read_block_mask},
    {"causal", read_causal},
    {"window", read_window},
    {"origin", read_origin},
    {"scale", read_scale},
    {"softcap", kNumber<&Options::softcap>},
    {"alibi", read_alibi},
    {"relative_bias", kView<&Options::relative_bias, 1>},
    {"sinks", kView<&Options::sinks, 1>},
    {"dropout", kNumber<&Options::dropout>},
    {"seed", read_seed},
    {"q_lengths", list_into<&Options::q_lengths>},
    {"k_lengths", list_into<&Options::k_lengths>},
    {"k_starts", list_into<&Options::k_starts>},
    {"q_offsets", list_into<&Options::q_offsets>},
    {"k_offsets", list_into<&Options::k_offsets>},
    {"split_products", read_split_products},
    {"threads", read_threads},
    {"stream", [](Arguments&, const char*, nb::handle, Options&) {}},  // read before the arrays
};

constexpr Row<Outputs> kOutputs[] = {
    {"lse", kView<&Outputs::lse, 1>},
    {"max_logit", kView<&Outputs::max_logit, 1>},
    {"entropy", kView<&Outputs::entropy, 1>},
    {"max_weight", kView<&Outputs::max_weight, 1>},
    {"logit_mean", kView<&Outputs::logit_mean, 1>},
    {"logit_var", kView<&Outputs::logit_var, 1>},
    {"visible", kView<&Outputs::visible, 1>},
    {"logit_count", kView<&Outputs::logit_count, 1>},
    {"weights", kView<&Outputs::weights, 2>},
    {"heads", read_heads},
    {"saturation_threshold", kNumber<&Outputs::saturation_threshold>},
    {"key_sums", kView<&Outputs::key_sums, 1>},
    {"key_sum_rows", read_key_sum_rows},
    {"scores", kView<&Outputs::scores, 2>},
    {"score_stage", read_score_stage},
};

constexpr Row<Partial> kPartial[] = {
    {"out", kView<&Partial::out, 2, Need::required>}, {"lse", kView<&Partial::lse, 1, Need::required>},
    {"max_logit", kView<&Partial::max_logit, 1>},     {"entropy", kView<&Partial::entropy, 1>},
    {"max_weight", kView<&Partial::max_weight, 1>},   {"logit_mean", kView<&Partial::logit_mean, 1>},
    {"logit_var", kView<&Partial::logit_var, 1>},     {"visible", kView<&Partial::visible, 1>},
    {"logit_count", kView<&Partial::logit_count, 1>},
};

constexpr Row<Gradients> kGradients[] = {
    {"dq", kView<&Gradients::dq, 2>},
    {"dk", kView<&Gradients::dk, 2>},
    {"dv", kView<&Gradients::dv, 2>},
    {"dbias", kView<&Gradients::dbias>},
    {"dscale", kView<&Gradients::dscale>},
    {"dsinks", kView<&Gradients::dsinks, 1>},
    {"drelative_bias", kView<&Gradients::drelative_bias, 1>},
    {"accumulate", read_accumulate<Gradients>},
};

constexpr Row<Tangents> kTangents[] = {
    {"tq", kView<&Tangents::tq, 2>},    {"tk", kView<&Tangents::tk, 2>},      {"tv", kView<&Tangents::tv, 2>},
    {"tbias", kView<&Tangents::tbias>}, {"tscale", kView<&Tangents::tscale>}, {"tsinks", kView<&Tangents::tsinks, 1>},
};

constexpr Row<JvpOutputs> kJvpOutputs[] = {
    {"tout", kView<&JvpOutputs::tout, 2>},
    {"tlse", kView<&JvpOutputs::tlse, 1>},
    {"accumulate", read_accumulate<JvpOutputs>},
};

constexpr Row<DoubleGradients> kDoubleGradients[] = {
    {"dq", gradient_into<&Gradients::dq, 2>},         {"dk", gradient_into<&Gradients::dk, 2>},
    {"dv", gradient_into<&Gradients::dv, 2>},         {"dbias", gradient_into<&Gradients::dbias, 0>},
    {"dscale", gradient_into<&Gradients::dscale, 0>}, {"dsinks", gradient_into<&Gradients::dsinks, 1>},
    {"ddout", kView<&DoubleGradients::ddout, 2>},     {"ddlse", kView<&DoubleGradients::ddlse, 1>},
};

}  // namespace

const BlockMask* Arguments::block_mask(const char* name, nb::handle object) {
  if (object.is_none()) return nullptr;
  if (!PyTuple_Check(object.ptr()) && !PyList_Check(object.ptr())) {
    place(name).type_error("expected a keel.BlockMask, got " + text_of(object.type()));
  }
  const nb::tuple arrays = nb::tuple(nb::borrow(object));
  if (arrays.size() != 3) {
    place(name).value_error("expected (offsets, blocks, tiles), got " + std::to_string(arrays.size()) + " arrays");
  }
  block_mask_ = {.offsets = view<3>("block_mask.offsets", arrays[0], Access::read, 1),
                 .blocks = view<2>("block_mask.blocks", arrays[1], Access::read, 2),
                 .tiles = view<3>("block_mask.tiles", arrays[2], Access::read, 3)};
  return &block_mask_;
}

Arguments::Arguments(const char* operation, nb::dict options) : Arguments(operation) {
  if (options.contains("stream")) stream_ = read_stream(place("stream"), options["stream"]);
}

Array& Arguments::array(const char* name, nb::handle object, Access access) {
  Array& made = arrays_.emplace_front(place(name), object, access, stream());
  if (!device_) device_ = made.device();
  if (!stream_) stream_ = made.current_stream();
  return made;
}

ListView Arguments::list(const char* name, nb::handle object) {
  if (object.is_none()) return {};
  std::vector<std::int64_t>& values = lists_.emplace_front();
  if (PyList_Check(object.ptr()) || PyTuple_Check(object.ptr())) {
    for (const nb::handle value : nb::borrow(object)) values.push_back(read_integer(place(name), value));
  } else {
    const Array& array = this->array(name, object);
    if (array.dtype() != DType::i64) {
      place(name).type_error(std::string("expected dtype i64, got ") + name_of(array.dtype()));
    }
    if (array.rank() != 1) place(name).value_error("expected 1 dimension, got " + std::to_string(array.rank()));
    const BasicView<1, const void*> view = array.view<1>();
    if (view.device != Device{} && view.shape[0] > 0) return view;
    for (std::int64_t i = 0; i < view.shape[0]; ++i) {
      values.push_back(static_cast<const std::int64_t*>(view.data)[i * view.strides[0]]);
    }
  }
  // The library takes an empty list as not given.
  if (values.empty()) place(name).value_error("expected at least one value, got none");
  return values;
}

Options Arguments::options(nb::dict given) {
  Options options = read(*this, kOptions, given);
  options.stream = stream();
  return options;
}
Outputs Arguments::outputs(nb::dict given) { return read(*this, kOutputs, given); }
Gradients Arguments::gradients(nb::dict given) { return read(*this, kGradients, given); }
Tangents Arguments::tangents(nb::dict given) { return read(*this, kTangents, given); }
JvpOutputs Arguments::jvp_outputs(nb::dict given) { return read(*this, kJvpOutputs, given); }
DoubleGradients Arguments::double_gradients(nb::dict given) { return read(*this, kDoubleGradients, given); }
Partial Arguments::partial(nb::dict given, const std::string& prefix) { return read(*this, kPartial, given, prefix); }

std::vector<std::string> option_names() {
  std::vector<std::string> names;
  for (const auto& row : kOptions) names.emplace_back(row.name);
  return names;
}

}  // namespace keel::python
