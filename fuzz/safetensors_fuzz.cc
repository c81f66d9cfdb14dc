// Any bytes as a .safetensors file: they are refused with keel::Error, or read as tensors that are what they say and
// that come back the same when they are written and read again.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <span>
#include <string>

#include "io/safetensors.h"
#include "io/safetensors_header.h"
#include "keel/error.h"

namespace {

void require(bool holds) {
  if (!holds) std::abort();
}

keel::io::Buffer written(const keel::io::Safetensors& content) {
  std::vector<keel::io::SafetensorsEntry> entries;
  for (const auto& [name, array] : content.tensors) {
    entries.push_back({name, array.dtype, array.shape, array.bytes.size()});
  }
  const std::string header = keel::io::make_safetensors_header(entries, content.metadata, "memory");
  const auto start = std::as_bytes(std::span(header));
  keel::io::Buffer file(start.begin(), start.end());
  for (const auto& [name, array] : content.tensors) file.insert(file.end(), array.bytes.begin(), array.bytes.end());
  return file;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  keel::io::Safetensors content;
  try {
    content = keel::io::parse_safetensors(std::as_bytes(std::span(data, size)), "memory");
  } catch (const keel::Error& error) {
    require(std::string(error.what()).starts_with("[safetensors] memory: expected "));
    return 0;
  }
  const keel::io::Safetensors again = keel::io::parse_safetensors(written(content), "memory");
  require(again.metadata == content.metadata && again.tensors.size() == content.tensors.size());
  for (const auto& [name, array] : content.tensors) {
    require(array.bytes.size() == static_cast<std::size_t>(array.elements() * keel::size_of(array.dtype)));
    bool found = false;
    for (const auto& [other, copy] : again.tensors) {
      found = found ||
              (other == name && copy.dtype == array.dtype && copy.shape == array.shape && copy.bytes == array.bytes);
    }
    require(found);
  }
  return 0;
}
