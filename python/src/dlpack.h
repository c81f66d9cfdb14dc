#pragma once

// The part of the DLPack 1.x ABI that Keel reads: arrays of other libraries, by capsule or, if the type of the array
// offers it (__dlpack_c_exchange_api__), by a table of functions, without a call into Python.

#include <cstdint>

namespace keel::python::dlpack {

struct Device {
  std::int32_t type;
  std::int32_t index;
};
constexpr std::int32_t kCpu = 1, kCudaHost = 3, kRocmHost = 11;  // memory that the CPU can read
constexpr std::int32_t kCuda = 2, kCudaManaged = 13;
constexpr std::int64_t kDefaultStream = 1;  // CUDA's, as an argument of __dlpack__

struct DataType {
  std::uint8_t code;
  std::uint8_t bits;
  std::uint16_t lanes;
};
constexpr std::uint8_t kInt = 0, kUInt = 1, kFloat = 2, kBfloat = 4, kComplex = 5, kBool = 6;

struct Tensor {
  void* data;
  Device device;
  std::int32_t ndim;
  DataType dtype;
  std::int64_t* shape;
  std::int64_t* strides;  // in elements; null: contiguous in C order
  std::uint64_t byte_offset;
};

struct Version {
  std::uint32_t major;
  std::uint32_t minor;
};

struct Managed {  // capsule "dltensor"
  Tensor tensor;
  void* context;
  void (*deleter)(Managed*);
};

struct ManagedVersioned {  // capsule "dltensor_versioned"
  Version version;
  void* context;
  void (*deleter)(ManagedVersioned*);
  std::uint64_t flags;
  Tensor tensor;
};
constexpr std::uint64_t kReadOnly = 1, kCopied = 2;

struct ExchangeHeader {
  Version version;
  ExchangeHeader* previous;
};

struct Exchange {  // capsule "dlpack_exchange_api"
  ExchangeHeader header;
  // Memory for a tensor of the prototype's dtype, shape and device.
  int (*allocate)(Tensor* prototype, ManagedVersioned** out, void* error,
                  void (*report)(void*, const char*, const char*));
  void* from_object;
  int (*to_object)(ManagedVersioned* tensor, void** out);  // takes the tensor over
  int (*borrow)(void* object, Tensor* out);  // fills `out` for as long as the object lives; −1 with a Python error set
  int (*stream)(std::int32_t device_type, std::int32_t index, void** out);  // on which the library works
};

}  // namespace keel::python::dlpack
