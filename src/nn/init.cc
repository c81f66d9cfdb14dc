#include "keel/nn/init.h"

#include <array>
#include <cmath>
#include <utility>

#include "nn/check.h"

namespace keel::nn {
namespace {

constexpr std::array<std::pair<Init, const char*>, 8> kNames{{{Init::unit_normal, "unit_normal"},
                                                              {Init::xavier_uniform, "xavier_uniform"},
                                                              {Init::xavier_normal, "xavier_normal"},
                                                              {Init::kaiming_uniform, "kaiming_uniform"},
                                                              {Init::kaiming_normal, "kaiming_normal"},
                                                              {Init::lecun_normal, "lecun_normal"},
                                                              {Init::torch_linear, "torch_linear"},
                                                              {Init::gpt2, "gpt2"}}};

bool is_uniform(Init init) {
  return init == Init::xavier_uniform || init == Init::kaiming_uniform || init == Init::torch_linear;
}

}  // namespace

Init init_by_name(const std::string& name) {
  std::string all;
  for (const auto& [init, known] : kNames) {
    if (name == known) return init;
    all += (all.empty() ? "" : ", ") + std::string(known);
  }
  refuse("init", "name: expected one of ", all, ", got ", name);
}

std::string name_of(Init init) {
  for (const auto& [known, name] : kNames) {
    if (known == init) return name;
  }
  refuse("init", "expected a known initialiser, got code ", static_cast<int>(init));
}

Fans projection_fans(Projection projection, std::int64_t d_in, std::int64_t d_out, std::int64_t heads) {
  switch (projection) {
    case Projection::square:
      return {d_in, d_out};
    case Projection::fused:
      return {d_in, 3 * d_out};
    case Projection::per_head:
      return {d_in, d_out / heads};
  }
  return {d_in, d_out};
}

double init_variance(Init init, const Fans& fans) {
  if (fans.in < 1 || fans.out < 1) refuse("init", "fans: expected at least 1 each, got ", fans.in, " and ", fans.out);
  const auto in = static_cast<double>(fans.in), out = static_cast<double>(fans.out);
  switch (init) {
    case Init::unit_normal:
      return 1.0;
    case Init::xavier_uniform:
    case Init::xavier_normal:
      return 2.0 / (in + out);
    case Init::kaiming_uniform:
    case Init::kaiming_normal:
      return 2.0 / in;
    case Init::lecun_normal:
      return 1.0 / in;
    case Init::torch_linear:
      return 1.0 / (3.0 * in);
    case Init::gpt2:
      return 0.02 * 0.02;
  }
  return 1.0;
}

Tensor initial(const Shape& shape, Init init, Random& random, std::optional<Fans> fans) {
  if (!fans && shape.size() != 2) refuse("init", "shape: expected (out, in), or fans, got ", shape_text(shape));
  const double variance = init_variance(init, fans ? *fans : Fans{shape[1], shape[0]});
  const double bound = std::sqrt(3.0 * variance);  // of a uniform distribution with that variance
  return is_uniform(init) ? random.uniform(shape, -bound, bound) : random.normal(shape, std::sqrt(variance));
}

}  // namespace keel::nn
