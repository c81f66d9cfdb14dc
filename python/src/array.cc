#include "array.h"

#include <string_view>

namespace keel::python {
namespace {

std::string type_of(nb::handle object) { return nb::type_name(object.type()).c_str(); }

std::string name_of(const dlpack::DataType& type) {
  const char* kinds[] = {"int", "uint", "float", "opaque", "bfloat", "complex", "bool"};
  return (type.code < std::size(kinds) ? kinds[type.code] : "dtype of code " + std::to_string(type.code) + " and ") +
         std::to_string(type.bits) + (type.lanes == 1 ? "" : "x" + std::to_string(type.lanes));
}

std::string name_of(const dlpack::Device& device) {
  const char* name = nullptr;
  switch (device.type) {
    case 2:
      name = "cuda";
      break;
    case 8:
      name = "metal";
      break;
    case 10:
      name = "rocm";
      break;
    case 14:
      name = "oneapi";
      break;
    default:
      return "DLPack device type " + std::to_string(device.type);
  }
  return std::string(name) + ":" + std::to_string(device.index);
}

bool on_cpu(const dlpack::Device& device) {
  return device.type == dlpack::kCpu || device.type == dlpack::kCudaHost || device.type == dlpack::kRocmHost;
}

// The text of the Python error that is set, which is cleared.
std::string take_python_error() {
  nb::python_error error;
  return nb::str(error.value()).c_str();
}

}  // namespace

// The table of functions that the type of `object` offers, or null. The last type that did is remembered and kept
// alive: a call has three tensors of one type or more.
const dlpack::Exchange* exchange_of(nb::handle object) {
  static PyObject* known_type = nullptr;
  static const dlpack::Exchange* known = nullptr;
  PyObject* type = reinterpret_cast<PyObject*>(Py_TYPE(object.ptr()));
  if (type == known_type) return known;
  nb::object capsule = nb::steal(PyObject_GetAttrString(type, "__dlpack_c_exchange_api__"));
  if (!capsule.is_valid()) {
    PyErr_Clear();
    return nullptr;
  }
  const auto* header =
      static_cast<const dlpack::ExchangeHeader*>(PyCapsule_GetPointer(capsule.ptr(), "dlpack_exchange_api"));
  if (header == nullptr) PyErr_Clear();
  while (header != nullptr && header->version.major != 1) header = header->previous;
  const auto* table = reinterpret_cast<const dlpack::Exchange*>(header);
  if (table == nullptr || table->borrow == nullptr) return nullptr;
  Py_INCREF(type);
  Py_XDECREF(known_type);
  known_type = type;
  known = table;
  return known;
}

void Place::type_error(const std::string& text) const {
  throw nb::type_error(("[" + std::string(operation) + "] " + name + ": " + text).c_str());
}
void Place::value_error(const std::string& text) const {
  throw nb::value_error(("[" + std::string(operation) + "] " + name + ": " + text).c_str());
}

Array::Array(Place place, nb::handle object, Access access) : place_(place) {
  if (borrow_by_exchange(object) || borrow_buffer(object, access) || borrow_capsule(object, access)) return;
  place.type_error("expected an array (of NumPy, of PyTorch, or with __dlpack__), got " + type_of(object));
}

Array::~Array() {
  if (buffer_.obj != nullptr) PyBuffer_Release(&buffer_);
  Py_XDECREF(capsule_);
}

bool Array::borrow_by_exchange(nb::handle object) {
  const dlpack::Exchange* exchange = exchange_of(object);
  if (exchange == nullptr) return false;
  dlpack::Tensor tensor{};
  if (exchange->borrow(object.ptr(), &tensor) != 0) {
    place_.type_error("expected a dense array, got one that cannot be read: " + take_python_error());
  }
  take(tensor);
  return true;
}

bool Array::borrow_buffer(nb::handle object, Access access) {
  nb::object source = nb::borrow(object);
  bool bfloat16 = false;
  if (!PyObject_CheckBuffer(object.ptr())) return false;
  if (PyObject_GetBuffer(source.ptr(), &buffer_, PyBUF_STRIDES | PyBUF_FORMAT) != 0) {
    PyErr_Clear();
    buffer_.obj = nullptr;
    // NumPy has no buffer format for the bfloat16 of ml_dtypes; as 16-bit integers it has.
    const nb::object dtype = nb::getattr(object, "dtype", nb::none());
    const std::string name = nb::str(dtype).c_str();
    if (name != "bfloat16") place_.type_error("expected dtype f64, f32, f16, bf16, bool or i64, got " + name);
    source = object.attr("view")("uint16");
    if (PyObject_GetBuffer(source.ptr(), &buffer_, PyBUF_STRIDES | PyBUF_FORMAT) != 0) throw nb::python_error();
    bfloat16 = true;
  }
  if (access == Access::write && buffer_.readonly)
    place_.value_error("expected an array to write to, got a read-only one");
  if (buffer_.ndim > kMaxRank) check_rank(0, kMaxRank);

  std::string_view format = buffer_.format == nullptr ? "B" : buffer_.format;
  const bool swapped = format[0] == '>' || format[0] == '!';
  if (std::string_view("@=<>!^").find(format[0]) != std::string_view::npos) format.remove_prefix(1);
  const char code = format.size() == 1 ? format[0] : '\0';
  if (bfloat16) {
    dtype_ = DType::bf16;
  } else if (code == 'd') {
    dtype_ = DType::f64;
  } else if (code == 'f') {
    dtype_ = DType::f32;
  } else if (code == 'e') {
    dtype_ = DType::f16;
  } else if (code == '?') {
    dtype_ = DType::boolean;
  } else if ((code == 'l' || code == 'q') && buffer_.itemsize == 8) {
    dtype_ = DType::i64;
  } else {
    const nb::object dtype = nb::getattr(object, "dtype", nb::str(buffer_.format));
    place_.type_error(std::string("expected dtype f64, f32, f16, bf16, bool or i64, got ") + nb::str(dtype).c_str());
  }
  if (swapped && buffer_.itemsize > 1) {
    place_.type_error(std::string("expected dtype ") + keel::name_of(dtype_) +
                      " in the byte order of this machine, got the other one");
  }
  data_ = buffer_.buf;
  rank_ = buffer_.ndim;
  for (int i = 0; i < rank_; ++i) {
    shape_[i] = buffer_.shape[i];
    if (buffer_.strides[i] % buffer_.itemsize != 0) {
      place_.value_error("expected strides that are multiples of the " + std::to_string(buffer_.itemsize) +
                         " bytes of " + keel::name_of(dtype_) + ", got " + std::to_string(buffer_.strides[i]) +
                         " bytes");
    }
    strides_[i] = buffer_.strides[i] / buffer_.itemsize;
  }
  return true;
}

bool Array::borrow_capsule(nb::handle object, Access access) {
  if (!nb::hasattr(object, "__dlpack__") || !nb::hasattr(object, "__dlpack_device__")) return false;
  const nb::tuple device = nb::tuple(object.attr("__dlpack_device__")());
  const dlpack::Device where{nb::cast<std::int32_t>(nb::int_(device[0])), nb::cast<std::int32_t>(nb::int_(device[1]))};
  if (!on_cpu(where)) place_.type_error("expected memory of the CPU, got " + name_of(where));

  nb::object capsule;
  try {
    capsule = object.attr("__dlpack__")(nb::arg("max_version") = nb::make_tuple(1, 0));
  } catch (nb::python_error& error) {
    if (!error.matches(PyExc_TypeError)) throw;
    capsule = object.attr("__dlpack__")();  // from before versions
  }
  if (PyCapsule_IsValid(capsule.ptr(), "dltensor_versioned")) {
    const auto* managed =
        static_cast<dlpack::ManagedVersioned*>(PyCapsule_GetPointer(capsule.ptr(), "dltensor_versioned"));
    if (managed->version.major != 1) {
      place_.type_error("expected DLPack version 1, got " + std::to_string(managed->version.major));
    }
    if (access == Access::write && (managed->flags & dlpack::kReadOnly) != 0) {
      place_.value_error("expected an array to write to, got a read-only one");
    }
    take(managed->tensor);
  } else if (PyCapsule_IsValid(capsule.ptr(), "dltensor")) {
    take(static_cast<dlpack::Managed*>(PyCapsule_GetPointer(capsule.ptr(), "dltensor"))->tensor);
  } else {
    place_.type_error("expected a DLPack capsule, got " + type_of(capsule));
  }
  // The capsule keeps its name, and so gives the memory back by itself when it goes.
  capsule_ = capsule.release().ptr();
  return true;
}

void Array::take(const dlpack::Tensor& tensor) {
  if (!on_cpu(tensor.device)) place_.type_error("expected memory of the CPU, got " + name_of(tensor.device));
  rank_ = tensor.ndim;
  if (rank_ > kMaxRank) check_rank(0, kMaxRank);
  const dlpack::DataType type = tensor.dtype;
  if (type.lanes == 1 && type.code == dlpack::kFloat && type.bits == 32) {
    dtype_ = DType::f32;
  } else if (type.lanes == 1 && type.code == dlpack::kBfloat && type.bits == 16) {
    dtype_ = DType::bf16;
  } else if (type.lanes == 1 && type.code == dlpack::kFloat && type.bits == 16) {
    dtype_ = DType::f16;
  } else if (type.lanes == 1 && type.code == dlpack::kFloat && type.bits == 64) {
    dtype_ = DType::f64;
  } else if (type.lanes == 1 && type.code == dlpack::kBool && type.bits == 8) {
    dtype_ = DType::boolean;
  } else if (type.lanes == 1 && type.code == dlpack::kInt && type.bits == 64) {
    dtype_ = DType::i64;
  } else {
    place_.type_error("expected dtype f64, f32, f16, bf16, bool or i64, got " + name_of(type));
  }
  data_ = static_cast<char*>(tensor.data) + tensor.byte_offset;
  std::int64_t step = 1;
  for (int i = rank_; i-- > 0;) {
    shape_[i] = tensor.shape[i];
    strides_[i] = tensor.strides == nullptr ? step : tensor.strides[i];
    step *= shape_[i];
  }
}

void Array::check_rank(int least, int most) const {
  const int rank = buffer_.obj != nullptr ? buffer_.ndim : rank_;
  if (rank >= least && rank <= most) return;
  place_.value_error("expected " +
                     (least == most ? std::to_string(least) : std::to_string(least) + " to " + std::to_string(most)) +
                     " dimensions, got " + std::to_string(rank));
}

}  // namespace keel::python
