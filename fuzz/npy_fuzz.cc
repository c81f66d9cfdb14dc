// Any bytes as a .npy file: they are refused with keel::Error, or read as an array that is what it says and that comes
// back the same when it is written and read again.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <span>
#include <string>

#include "io/npy.h"
#include "keel/error.h"

namespace {

void require(bool holds) {
  if (!holds) std::abort();
}

keel::io::Buffer written(const keel::io::Array& array) {
  const std::string header = keel::io::make_npy_header(array.dtype, array.shape, {});
  const auto start = std::as_bytes(std::span(header));
  keel::io::Buffer file(start.begin(), start.end());
  file.insert(file.end(), array.bytes.begin(), array.bytes.end());
  return file;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  try {
    const keel::io::Array array = keel::io::parse_npy(std::as_bytes(std::span(data, size)), "memory");
    require(array.bytes.size() == static_cast<std::size_t>(array.elements() * keel::size_of(array.dtype)));
    const keel::io::Array again = keel::io::parse_npy(written(array), "memory");
    require(again.dtype == array.dtype && again.shape == array.shape && again.bytes == array.bytes);
  } catch (const keel::Error& error) {
    require(std::string(error.what()).starts_with("[npy] memory: expected "));
  }
  return 0;
}
