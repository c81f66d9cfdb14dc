#include "keel/nn/checkpoint.h"

#include <cstring>

#include "core/element.h"
#include "io/safetensors.h"
#include "nn/check.h"
#include "nn/tape.h"

namespace keel::nn {
namespace {

io::Array array_of(const Tensor& tensor) {
  const Tensor x = dense(tensor);
  io::Array array = io::make_array(x.dtype(), x.shape());
  std::memcpy(array.bytes.data(), x.impl()->storage->data() + x.impl()->offset * size_of(x.dtype()),
              array.bytes.size());
  return array;
}

Tensor tensor_of(const io::Array& array) {
  const bool half = array.dtype == DType::f16 || array.dtype == DType::bf16;
  Tensor x = empty(array.shape, half ? DType::f32 : array.dtype);
  std::byte* const to = x.impl()->storage->data();
  if (!half) {
    std::memcpy(to, array.bytes.data(), array.bytes.size());
  } else {
    for (std::int64_t i = 0; i < x.elements(); ++i) store(to, DType::f32, i, load(array.bytes.data(), array.dtype, i));
  }
  return x;
}

}  // namespace

void append(NamedTensors& all, const std::string& prefix, const NamedTensors& tensors) {
  for (const auto& [name, tensor] : tensors) all.emplace_back(prefix + name, tensor);
}

NamedTensors Checkpoint::under(const std::string& prefix) const {
  NamedTensors found;
  for (const auto& [name, tensor] : tensors) {
    if (name.starts_with(prefix)) found.emplace_back(name.substr(prefix.size()), tensor);
  }
  return found;
}

const std::string& Checkpoint::text(const std::string& key) const {
  const auto found = metadata.find(key);
  if (found == metadata.end()) {
    throw Error(ErrorCode::bad_file, keel::concat("[checkpoint] metadata: expected the key ", key, ", got none"));
  }
  return found->second;
}

void save_checkpoint(const std::string& path, const Checkpoint& checkpoint) {
  io::Safetensors content{.metadata = checkpoint.metadata};
  for (const auto& [name, tensor] : checkpoint.tensors) {
    check_given("save_checkpoint", name.c_str(), tensor);
    content.tensors.emplace_back(name, array_of(tensor));
  }
  io::write_safetensors(path, content);
}

Checkpoint load_checkpoint(const std::string& path) {
  io::Safetensors content = io::read_safetensors(path);
  Checkpoint checkpoint{.metadata = std::move(content.metadata)};
  for (const auto& [name, array] : content.tensors) checkpoint.tensors.emplace_back(name, tensor_of(array));
  return checkpoint;
}

}  // namespace keel::nn
