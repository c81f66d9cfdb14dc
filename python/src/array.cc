#include "array.h"

#include <bit>
#include <cstddef>
#include <optional>
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

// The library's device for DLPack's; nothing if it has none.
std::optional<Device> device_of(const dlpack::Device& device) {
  switch (device.type) {
    case dlpack::kCpu:
    case dlpack::kCudaHost:
    case dlpack::kRocmHost:
      return Device{};
    case dlpack::kCuda:
    case dlpack::kCudaManaged:
      return Device{DeviceKind::cuda, device.index};
    default:
      return {};
  }
}

std::string name_of(const Device& device) {
  return device == Device{} ? "the CPU" : "cuda:" + std::to_string(device.index);
}

constexpr const char* kMemory = "expected memory of the CPU or of a CUDA device, got ";

constexpr const char* kDtypes = "expected dtype f64, f32, f16, bf16, bool or i64, got ";

// What an empty view points at: a null pointer would mean that no view is given.
std::max_align_t nothing;

// The dtype of a buffer of this format and item size; nothing if the library has no such dtype.
std::optional<DType> dtype_of(std::string_view format, Py_ssize_t itemsize) {
  if (!format.empty() && std::string_view("@=<>!^").find(format[0]) != std::string_view::npos) format.remove_prefix(1);
  if (format.size() != 1) return {};
  std::optional<DType> dtype;
  switch (format[0]) {
    case 'd':
      dtype = DType::f64;
      break;
    case 'f':
      dtype = DType::f32;
      break;
    case 'e':
      dtype = DType::f16;
      break;
    case '?':
      dtype = DType::boolean;
      break;
    case 'l':  // 4 bytes in standard sizes, which itemsize rules out
    case 'q':
      dtype = DType::i64;
      break;
    default:
      return {};
  }
  return itemsize == size_of(*dtype) ? dtype : std::nullopt;
}

bool is_swapped(std::string_view format) {
  constexpr bool little = std::endian::native == std::endian::little;
  return std::string_view(little ? ">!" : "<").find(format[0]) != std::string_view::npos;
}

std::optional<DType> dtype_of(const dlpack::DataType& type) {
  if (type.lanes != 1) return {};
  if (type.code == dlpack::kFloat && type.bits == 64) return DType::f64;
  if (type.code == dlpack::kFloat && type.bits == 32) return DType::f32;
  if (type.code == dlpack::kFloat && type.bits == 16) return DType::f16;
  if (type.code == dlpack::kBfloat && type.bits == 16) return DType::bf16;
  if (type.code == dlpack::kBool && type.bits == 8) return DType::boolean;
  if (type.code == dlpack::kInt && type.bits == 64) return DType::i64;
  return {};
}

// Clears the current Python error and returns its text.
std::string take_python_error() {
  nb::python_error error;
  return nb::str(error.value()).c_str();
}

// The table of functions that the type of `object` offers, or null. The last type that did is cached and kept alive: a
// call has at least three tensors of one type.
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

}  // namespace

void Place::type_error(const std::string& text) const {
  throw nb::type_error(("[" + std::string(operation) + "] " + name + ": " + text).c_str());
}
void Place::value_error(const std::string& text) const {
  throw nb::value_error(("[" + std::string(operation) + "] " + name + ": " + text).c_str());
}

// Delegates to the default constructor, so that the destructor releases what was borrowed if the object is then
// refused.
Array::Array(Place place, nb::handle object, Access access, void* stream) : Array() {
  place_ = place;
  if (borrow_by_exchange(object) || borrow_buffer(object, access) || borrow_capsule(object, access, stream)) return;
  place.type_error("expected a NumPy array, a torch tensor or an object with __dlpack__, got " + type_of(object));
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
  exchange_ = exchange;
  return true;
}

void* Array::current_stream() const {
  void* stream = nullptr;
  if (device_.kind != DeviceKind::cuda || exchange_ == nullptr || exchange_->stream == nullptr) return stream;
  if (exchange_->stream(dlpack::kCuda, device_.index, &stream) != 0) throw nb::python_error();
  return stream;
}

bool Array::borrow_buffer(nb::handle object, Access access) {
  nb::object source = nb::borrow(object);
  bool bfloat16 = false;
  if (!PyObject_CheckBuffer(object.ptr())) return false;
  if (PyObject_GetBuffer(source.ptr(), &buffer_, PyBUF_STRIDES | PyBUF_FORMAT) != 0) {
    const nb::python_error error;  // takes the current error, which clears it
    buffer_.obj = nullptr;
    // NumPy has no buffer format for the bfloat16 of ml_dtypes, but it has one for 16-bit integers.
    const nb::object dtype = nb::getattr(object, "dtype", nb::none());
    if (dtype.is_none()) {
      place_.type_error(std::string("expected a strided buffer, got one that cannot be read as such: ") +
                        nb::str(error.value()).c_str());
    }
    const std::string name = nb::str(dtype).c_str();
    if (name != "bfloat16") place_.type_error(kDtypes + name);
    source = object.attr("view")("uint16");
    if (PyObject_GetBuffer(source.ptr(), &buffer_, PyBUF_STRIDES | PyBUF_FORMAT) != 0) throw nb::python_error();
    bfloat16 = true;
  }
  if (access == Access::write && buffer_.readonly) place_.value_error("expected a writable array, got a read-only one");

  const char* const format = buffer_.format == nullptr ? "B" : buffer_.format;
  const std::optional<DType> dtype = bfloat16 ? DType::bf16 : dtype_of(format, buffer_.itemsize);
  if (!dtype) place_.type_error(kDtypes + std::string(nb::str(nb::getattr(object, "dtype", nb::str(format))).c_str()));
  dtype_ = *dtype;
  if (buffer_.itemsize > 1 && is_swapped(format)) {
    place_.type_error(std::string("expected dtype ") + keel::name_of(dtype_) + " in native byte order, got the other");
  }
  take(buffer_.buf, buffer_.ndim, buffer_.shape, buffer_.strides);  // no strides: C order, as in ctypes
  for (int i = 0; i < rank_ && buffer_.strides != nullptr; ++i) {   // in bytes
    if (strides_[i] % buffer_.itemsize != 0) {
      place_.value_error("expected strides that are multiples of the " + std::to_string(buffer_.itemsize) +
                         " bytes of " + keel::name_of(dtype_) + ", got " + std::to_string(strides_[i]) + " bytes");
    }
    strides_[i] /= buffer_.itemsize;
  }
  return true;
}

bool Array::borrow_capsule(nb::handle object, Access access, void* stream) {
  if (!nb::hasattr(object, "__dlpack__") || !nb::hasattr(object, "__dlpack_device__")) return false;
  dlpack::Device where{};
  const nb::object device = object.attr("__dlpack_device__")();
  if (!PyTuple_Check(device.ptr()) || nb::len(device) != 2 || !nb::try_cast(device[0], where.type) ||
      !nb::try_cast(device[1], where.index)) {
    place_.type_error(std::string("expected a DLPack device (type, index), got ") + nb::repr(device).c_str());
  }
  const std::optional<Device> known = device_of(where);
  if (!known) place_.type_error(kMemory + name_of(where));

  nb::dict arguments;
  if (known->kind == DeviceKind::cuda) {
    const auto number = static_cast<std::int64_t>(reinterpret_cast<std::uintptr_t>(stream));
    arguments["stream"] = number == 0 ? dlpack::kDefaultStream : number;
  }
  nb::object capsule;
  try {
    capsule = object.attr("__dlpack__")(nb::arg("max_version") = nb::make_tuple(1, 0), **arguments);
  } catch (nb::python_error& error) {
    if (!error.matches(PyExc_TypeError)) throw;
    capsule = object.attr("__dlpack__")(**arguments);  // predates max_version
  }
  if (PyCapsule_IsValid(capsule.ptr(), "dltensor_versioned")) {
    const auto* managed =
        static_cast<dlpack::ManagedVersioned*>(PyCapsule_GetPointer(capsule.ptr(), "dltensor_versioned"));
    if (managed->version.major != 1) {
      place_.type_error("expected DLPack version 1, got " + std::to_string(managed->version.major));
    }
    if (access == Access::write && (managed->flags & dlpack::kReadOnly) != 0) {
      place_.value_error("expected a writable array, got a read-only one");
    }
    if (access == Access::write && (managed->flags & dlpack::kCopied) != 0) {
      place_.value_error("expected a writable array, got one that only hands out copies");
    }
    take(managed->tensor);
  } else if (PyCapsule_IsValid(capsule.ptr(), "dltensor")) {
    take(static_cast<dlpack::Managed*>(PyCapsule_GetPointer(capsule.ptr(), "dltensor"))->tensor);
  } else {
    place_.type_error("expected a DLPack capsule, got " + type_of(capsule));
  }
  if (device_ != *known) {
    place_.type_error("expected memory of " + name_of(*known) + " as announced, got that of " + name_of(device_));
  }
  // The capsule keeps its name, so its own destructor gives the memory back.
  capsule_ = capsule.release().ptr();
  return true;
}

void Array::take(const dlpack::Tensor& tensor) {
  const std::optional<Device> device = device_of(tensor.device);
  if (!device) place_.type_error(kMemory + name_of(tensor.device));
  device_ = *device;
  const std::optional<DType> dtype = dtype_of(tensor.dtype);
  if (!dtype) place_.type_error(kDtypes + name_of(tensor.dtype));
  dtype_ = *dtype;
  char* const data = static_cast<char*>(tensor.data);
  take(data == nullptr ? nullptr : data + tensor.byte_offset, tensor.ndim, tensor.shape, tensor.strides);
}

// Without strides, elements are contiguous in C order.
template <class Size>
void Array::take(void* data, int rank, const Size* shape, const Size* strides) {
  rank_ = rank;
  check_rank(0, kMaxRank);
  if (rank > 0 && shape == nullptr) {
    place_.value_error("expected a shape of " + std::to_string(rank) + " dimensions, got none");
  }
  std::int64_t step = 1;
  bool empty = false;
  for (int i = rank; i-- > 0;) {
    shape_[i] = shape[i];
    strides_[i] = strides == nullptr ? step : strides[i];
    if (__builtin_mul_overflow(step, shape_[i], &step)) step = INT64_MAX;  // the call will refuse such a shape
    empty = empty || shape_[i] == 0;
  }
  data_ = data == nullptr && empty ? &nothing : data;
}

void Array::check_rank(int least, int most) const {
  if (rank_ >= least && rank_ <= most) return;
  place_.value_error("expected " +
                     (least == most ? std::to_string(least) : std::to_string(least) + " to " + std::to_string(most)) +
                     " dimensions, got " + std::to_string(rank_));
}

}  // namespace keel::python
