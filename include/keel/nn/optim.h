#pragma once

#include "keel/nn/module.h"

namespace keel::nn {

// Updates parameters from their gradients. A parameter without a gradient is left unchanged.
class KEEL_API Optimiser {
 public:
  Optimiser(const NamedTensors& parameters, double lr);
  virtual ~Optimiser() = default;
  Optimiser(const Optimiser&) = delete;
  Optimiser& operator=(const Optimiser&) = delete;

  void step();
  void zero_grad() const;
  double lr() const { return lr_; }
  void set_lr(double lr);
  std::int64_t steps() const { return steps_; }

  // What a run needs to resume as if it had not stopped.
  NamedTensors state() const;
  void load_state(const NamedTensors& state);

 protected:
  virtual void update(std::size_t i, const Tensor& w, const Tensor& dw) = 0;
  // One tensor per parameter, of its shape and initially 0; part of the state under this name.
  void keep(const std::string& name);
  const Tensor& kept(std::size_t which, std::size_t i) const { return kept_[which].second[i]; }

 private:
  NamedTensors parameters_;
  double lr_;
  std::int64_t steps_ = 0;
  std::vector<std::pair<std::string, std::vector<Tensor>>> kept_;
};

// u = momentum·u + dw,  w −= lr·u
class KEEL_API SGD : public Optimiser {
 public:
  struct Settings {
    double lr = 0.1, momentum = 0.0;
  };
  SGD(const NamedTensors& parameters, const Settings& settings);

 private:
  void update(std::size_t i, const Tensor& w, const Tensor& dw) override;
  double momentum_;
};

// m = β1·m + (1 − β1)·dw,  v = β2·v + (1 − β2)·dw²,  w −= lr·m̂/(√v̂ + ε),  m̂ and v̂ corrected for their zero start
class KEEL_API Adam : public Optimiser {
 public:
  struct Settings {
    double lr = 1e-3, beta1 = 0.9, beta2 = 0.999, epsilon = 1e-8;
    double weight_decay = 0.0;  // Adam adds decay·w to dw; AdamW subtracts lr·decay·w from w
  };
  Adam(const NamedTensors& parameters, const Settings& settings) : Adam(parameters, settings, false) {}

 protected:
  Adam(const NamedTensors& parameters, const Settings& settings, bool decoupled);

 private:
  void update(std::size_t i, const Tensor& w, const Tensor& dw) override;
  Settings settings_;
  bool decoupled_;
};

// Adam with decoupled decay, as torch.optim.AdamW.
class KEEL_API AdamW : public Adam {
 public:
  AdamW(const NamedTensors& parameters, const Settings& settings) : Adam(parameters, settings, true) {}
};

// Scales all gradients so that their joint norm is at most `largest`; returns the norm before scaling.
KEEL_API double clip_gradients(const NamedTensors& parameters, double largest);

// From 0 up to 1 over `warmup` steps, then 1.
KEEL_API double warmup(std::int64_t step, std::int64_t warmup_steps);
// The same, then along a cosine down to `floor` at `total` steps.
KEEL_API double warmup_cosine(std::int64_t step, std::int64_t warmup_steps, std::int64_t total, double floor = 0.1);

}  // namespace keel::nn
