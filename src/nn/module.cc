#include "keel/nn/module.h"

#include <map>

#include "keel/nn/checkpoint.h"
#include "nn/assign.h"
#include "nn/check.h"
#include "nn/tape.h"

namespace keel::nn {

void Module::collect(const std::string& prefix, NamedTensors& all) const {
  append(all, prefix, parameters_);
  for (const auto& [name, module] : children_) module->collect(prefix + name + ".", all);
}

NamedTensors Module::parameters() const {
  NamedTensors all;
  collect("", all);
  return all;
}

std::int64_t Module::parameter_count() const {
  std::int64_t count = 0;
  for (const auto& [name, tensor] : parameters()) count += tensor.elements();
  return count;
}

void Module::zero_grad() const {
  for (const auto& [name, tensor] : parameters()) tensor.zero_grad();
}

void Module::train(bool on) {
  training_ = on;
  for (const auto& [name, module] : children_) module->train(on);
}

void Module::to(DType dtype) {
  for (const auto& [name, tensor] : parameters()) {
    const Tensor converted = tensor.to(dtype);
    tensor.zero_grad();
    tensor.impl()->storage = converted.impl()->storage;
    tensor.impl()->strides = converted.impl()->strides;
    tensor.impl()->offset = 0;
    tensor.impl()->dtype = dtype;
  }
}

Tensor Module::parameter(const std::string& name, Tensor initial) {
  check_floating("module", name.c_str(), initial);
  for (const auto& [known, tensor] : parameters_) {
    if (known == name) refuse("module", "name: expected a new parameter name, got ", name, " again");
  }
  initial.require_grad();
  parameters_.emplace_back(name, initial);
  return initial;
}

void Module::child(const std::string& name, Module& module) {
  for (const auto& [known, other] : children_) {
    if (known == name) refuse("module", "name: expected a new child name, got ", name, " again");
  }
  children_.emplace_back(name, &module);
}

void Module::save(const std::string& path) const { save_checkpoint(path, {.tensors = parameters()}); }
void Module::load(const std::string& path) { load(load_checkpoint(path).tensors); }
void Module::load(const NamedTensors& values) { assign("load", parameters(), values); }

void assign(const char* operation, const NamedTensors& targets, const NamedTensors& values) {
  std::map<std::string, Tensor> given;
  for (const auto& [name, value] : values) {
    if (!given.emplace(name, value).second) refuse(operation, name, ": expected once, got it twice");
  }
  for (const auto& [name, target] : targets) {
    const auto found = given.find(name);
    if (found == given.end()) {
      refuse(operation, name, ": expected a tensor of shape ", shape_text(target.shape()), ", got none of this name");
    }
    check_shape(operation, name.c_str(), found->second, target.shape());
    if (target.dtype() == DType::i64)
      check_dtype(operation, name.c_str(), found->second, DType::i64);
    else
      check_floating(operation, name.c_str(), found->second);
  }
  if (given.size() > targets.size()) {
    for (const auto& [name, target] : targets) given.erase(name);
    refuse(operation, given.begin()->first, ": expected no tensor of this name, got one of shape ",
           shape_text(given.begin()->second.shape()));
  }
  for (const auto& [name, target] : targets) {
    const Tensor& value = given.at(name);
    const Tensor converted = target.dtype() == DType::i64 ? value.clone() : value.to(target.dtype());
    const auto bytes = static_cast<std::size_t>(target.elements() * size_of(target.dtype()));
    std::copy_n(converted.impl()->storage->data(), bytes,
                target.impl()->storage->data() + target.impl()->offset * size_of(target.dtype()));
  }
}

}  // namespace keel::nn
