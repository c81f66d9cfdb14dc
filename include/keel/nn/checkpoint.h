#pragma once

#include <map>
#include <string>

#include "keel/nn/module.h"

namespace keel::nn {

// Named tensors and text in one .safetensors file: what PyTorch's safetensors.torch writes and reads.
struct Checkpoint {
  NamedTensors tensors{};
  std::map<std::string, std::string> metadata{};

  // The tensors whose names start with `prefix`, without it.
  KEEL_API NamedTensors under(const std::string& prefix) const;
  // The text of `key`; raises if there is none.
  KEEL_API const std::string& text(const std::string& key) const;
};

// Appends `tensors`, their names prefixed with `prefix`.
KEEL_API void append(NamedTensors& all, const std::string& prefix, const NamedTensors& tensors);

// The file is written completely or not at all: a crash leaves the old one.
KEEL_API void save_checkpoint(const std::string& path, const Checkpoint& checkpoint);

// f64, f32, i64 and bool as they are, f16 and bf16 as f32. Raises keel::Error (bad_file, or io) for any other file.
KEEL_API Checkpoint load_checkpoint(const std::string& path);

}  // namespace keel::nn
