#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "io/array.h"
#include "keel/attention.h"

namespace keel::cli {

// "3,5" or the path of a file: a list when every character could be part of one.
bool is_list(const std::string& text);

// "0.5,0.25" or a .npy file, as an array of one dimension.
io::Array floats_or_file(const std::string& text, const std::string& flag);

// The operator's options that need no tensor, as flags: --causal, --window, --scale ...
class OperatorFlags {
 public:
  void add_to(CLI::App& command);

  // The requested options; lists named by files are read here. Spans point into this object.
  Options options();

 private:
  std::string causal_ = "none";
  std::string window_, origin_, seed_;
  std::optional<double> scale_, softcap_;
  double dropout_ = 0.0;
  int threads_ = 0;
  struct List {
    std::string text;
    std::vector<std::int64_t> values;
  };
  List q_lengths_, k_lengths_, k_starts_, q_offsets_, k_offsets_;
};

}  // namespace keel::cli
