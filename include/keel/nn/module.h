#pragma once

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "keel/nn/tensor.h"

namespace keel::nn {

using NamedTensors = std::vector<std::pair<std::string, Tensor>>;

// Something with parameters. A module holds its parts as members and names them once, in its constructor:
//
//   struct Net : Module {
//     Linear hidden, out;
//     explicit Net(Random& random) : hidden(4, 8, random), out(8, 1, random) { child("hidden", hidden); ... }
//     Tensor operator()(const Tensor& x) const { return out(relu(hidden(x))); }
//   };
class KEEL_API Module {
 public:
  Module() = default;
  virtual ~Module() = default;
  Module(const Module&) = delete;
  Module& operator=(const Module&) = delete;

  // All parameters, those of children under "child.name", in the order in which they were named.
  [[nodiscard]] NamedTensors parameters() const;
  std::int64_t parameter_count() const;  // total number of elements
  void zero_grad() const;

  // Whether dropout is active here and in the children. Initially on.
  void train(bool on = true);
  void eval() { train(false); }
  bool training() const { return training_; }

  // Every parameter in another dtype, f32 or f64. Gradients are dropped.
  void to(DType dtype);

  // All parameters in one .safetensors file, written completely or not at all. load() needs the same names and shapes,
  // and changes nothing if they differ.
  void save(const std::string& path) const;
  void load(const std::string& path);
  void load(const NamedTensors& values);

 protected:
  // Names a parameter, which from then on requires a gradient.
  Tensor parameter(const std::string& name, Tensor initial);
  void child(const std::string& name, Module& module);

 private:
  void collect(const std::string& prefix, NamedTensors& all) const;

  NamedTensors parameters_;
  std::vector<std::pair<std::string, Module*>> children_;
  bool training_ = true;
};

}  // namespace keel::nn
