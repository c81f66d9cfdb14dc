#include "keel/nn/optim.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "keel/nn/checkpoint.h"
#include "keel/nn/ops.h"
#include "nn/assign.h"
#include "nn/check.h"
#include "nn/loops.h"
#include "nn/simd/kernels.h"
#include "nn/tape.h"

namespace keel::nn {

Optimiser::Optimiser(const NamedTensors& parameters, double lr) : parameters_(parameters) {
  if (parameters.empty()) refuse("optimiser", "parameters: expected at least one, got none");
  for (const auto& [name, w] : parameters) {
    if (!w.requires_grad() || !w.dense())
      refuse("optimiser", name, ": expected a dense tensor that requires a gradient");
  }
  set_lr(lr);
}

void Optimiser::set_lr(double lr) {
  if (!(lr >= 0.0)) refuse("optimiser", "lr: expected at least 0, got ", lr);
  lr_ = lr;
}

void Optimiser::step() {
  ++steps_;
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    const Tensor& w = parameters_[i].second;
    if (kept_.front().second[i].dtype() != w.dtype()) {
      refuse_dtype("optimiser", parameters_[i].first, ": expected dtype ", name_of(kept_.front().second[i].dtype()),
                   " as when the optimiser was made, got ", name_of(w.dtype()));
    }
    if (w.grad().given()) update(i, w, dense(w.grad()));
  }
}

void Optimiser::zero_grad() const {
  for (const auto& [name, w] : parameters_) w.zero_grad();
}

void Optimiser::keep(const std::string& name) {
  std::vector<Tensor> tensors;
  for (const auto& [parameter, w] : parameters_) tensors.push_back(Tensor::zeros(w.shape(), w.dtype()));
  kept_.emplace_back(name, std::move(tensors));
}

NamedTensors Optimiser::state() const {
  NamedTensors all{{"steps", Tensor::of<std::int64_t>({1}, {steps_})}};
  for (const auto& [name, tensors] : kept_) {
    for (std::size_t i = 0; i < tensors.size(); ++i) all.emplace_back(name + "." + parameters_[i].first, tensors[i]);
  }
  return all;
}

void Optimiser::load_state(const NamedTensors& values) {
  const NamedTensors targets = state();
  assign("load_state", targets, values);
  steps_ = targets[0].second.data<std::int64_t>()[0];
}

SGD::SGD(const NamedTensors& parameters, const Settings& settings)
    : Optimiser(parameters, settings.lr), momentum_(settings.momentum) {
  if (!(momentum_ >= 0.0 && momentum_ < 1.0)) refuse("SGD", "momentum: expected from 0 to below 1, got ", momentum_);
  keep("u");
}

void SGD::update(std::size_t i, const Tensor& w, const Tensor& dw) {
  dispatch(w.dtype(), [&]<class T>(T) {
    const auto momentum = static_cast<T>(momentum_), rate = static_cast<T>(lr());
    T *const u = data_of<T>(kept(0, i)), *const to = data_of<T>(w);
    const T* const g = data_of<T>(dw);
    for (std::int64_t e = 0; e < w.elements(); ++e) {
      u[e] = momentum * u[e] + g[e];
      to[e] -= rate * u[e];
    }
  });
}

Adam::Adam(const NamedTensors& parameters, const Settings& settings, bool decoupled)
    : Optimiser(parameters, settings.lr), settings_(settings), decoupled_(decoupled) {
  for (const double beta : {settings.beta1, settings.beta2}) {
    if (!(beta >= 0.0 && beta < 1.0)) refuse("Adam", "beta: expected from 0 to below 1, got ", beta);
  }
  if (!(settings.epsilon >= 0.0)) refuse("Adam", "epsilon: expected at least 0, got ", settings.epsilon);
  if (!(settings.weight_decay >= 0.0)) refuse("Adam", "weight_decay: expected at least 0, got ", settings.weight_decay);
  keep("m");
  keep("v");
}

void Adam::update(std::size_t i, const Tensor& w, const Tensor& dw) {
  const auto t = static_cast<double>(steps());
  dispatch(w.dtype(), [&]<class T>(T) {
    const AdamStep<T> step{.rate = static_cast<T>(lr() / (1.0 - std::pow(settings_.beta1, t))),
                           .root_correction = static_cast<T>(1.0 / std::sqrt(1.0 - std::pow(settings_.beta2, t))),
                           .beta1 = static_cast<T>(settings_.beta1),
                           .beta2 = static_cast<T>(settings_.beta2),
                           .epsilon = static_cast<T>(settings_.epsilon),
                           .l2 = static_cast<T>(decoupled_ ? 0.0 : settings_.weight_decay),
                           .decay = static_cast<T>(decoupled_ ? lr() * settings_.weight_decay : 0.0)};
    for_blocks(w.elements(), kGrain, [&](std::int64_t begin, std::int64_t end) {
      adam(step, data_of<T>(w) + begin, data_of<T>(dw) + begin, data_of<T>(kept(0, i)) + begin,
           data_of<T>(kept(1, i)) + begin, end - begin);
    });
  });
}

double clip_gradients(const NamedTensors& parameters, double largest) {
  if (!(largest > 0.0)) refuse("clip_gradients", "largest: expected more than 0, got ", largest);
  const NoGrad off;
  double squares = 0;
  for (const auto& [name, w] : parameters) {
    if (!w.grad().given()) continue;
    const Tensor g = dense(w.grad());
    dispatch(g.dtype(), [&]<class T>(T) {
      constexpr std::int64_t kRow = 1024;
      for (std::int64_t at = 0; at < g.elements(); at += kRow) {
        const T* const row = data_of<T>(g) + at;
        squares += static_cast<double>(row_dot(row, row, std::min(kRow, g.elements() - at)));
      }
    });
  }
  const double norm = std::sqrt(squares);
  if (norm > largest) {
    for (const auto& [name, w] : parameters) {
      if (w.grad().given()) w.set_grad(mul(w.grad(), largest / norm));
    }
  }
  return norm;
}

double warmup(std::int64_t step, std::int64_t warmup_steps) {
  return step < warmup_steps ? static_cast<double>(step + 1) / static_cast<double>(warmup_steps + 1) : 1.0;
}

double warmup_cosine(std::int64_t step, std::int64_t warmup_steps, std::int64_t total, double floor) {
  if (step < warmup_steps) return warmup(step, warmup_steps);
  if (step >= total) return floor;
  const double share = static_cast<double>(step - warmup_steps) / static_cast<double>(total - warmup_steps);
  return floor + (1.0 - floor) * 0.5 * (1.0 + std::cos(std::numbers::pi * share));
}

}  // namespace keel::nn
