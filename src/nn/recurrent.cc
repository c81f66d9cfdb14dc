#include "keel/nn/recurrent.h"

#include <cmath>
#include <tuple>

#include "nn/check.h"
#include "nn/gru_cell.h"
#include "nn/tape.h"

namespace keel::nn {
namespace {

void check_input(const char* operation, const Tensor& x, std::int64_t d_in) {
  check_floating(operation, "x", x);
  if (x.rank() != 3 || x.size(2) != d_in || x.size(1) < 1) {
    refuse(operation, "x: expected shape (B, N, ", d_in, ") with N at least 1, got ", shape_text(x.shape()));
  }
}

// Part `i` of `parts` equal parts along the last dimension.
Tensor part(const Tensor& x, std::int64_t i, std::int64_t parts) {
  const std::int64_t size = x.size(-1) / parts;
  return slice(x, -1, i * size, (i + 1) * size);
}

// Row `d` of (D, B, d_hidden), or zeros.
Tensor start(const char* operation, const char* name, const Tensor& state, std::size_t d, const Shape& shape,
             DType dtype) {
  if (!state.given()) return Tensor::zeros({shape[1], shape[2]}, dtype);
  check_shape(operation, name, state, shape);
  const auto at = static_cast<std::int64_t>(d);
  return reshape(slice(state, 0, at, at + 1), {shape[1], shape[2]});
}

Tensor in_front(const Tensor& x) { return reshape(x, {1, x.size(0), x.size(1)}); }

// Runs one direction: step(t) for each position in its order, returning h (B, d_hidden). The outputs, by position.
template <class Step>
Tensor run(std::int64_t n, bool reverse, const Step& step) {
  std::vector<Tensor> outputs(static_cast<std::size_t>(n));
  for (std::int64_t i = 0; i < n; ++i) {
    const std::int64_t t = reverse ? n - 1 - i : i;
    const Tensor h = step(t);
    outputs[static_cast<std::size_t>(t)] = reshape(h, {h.size(0), 1, h.size(1)});
  }
  return concat(outputs, 1);
}

// The gates' contribution from x at position t.
Tensor at_place(const Tensor& x, std::int64_t t) { return reshape(slice(x, 1, t, t + 1), {x.size(0), x.size(2)}); }

// gates = W_ih x + b_ih + W_hh h + b_hh
std::pair<Tensor, Tensor> lstm_step(const Tensor& gates, const Tensor& c) {
  const Tensor i = sigmoid(part(gates, 0, 4)), f = sigmoid(part(gates, 1, 4));
  const Tensor g = tanh(part(gates, 2, 4)), o = sigmoid(part(gates, 3, 4));
  const Tensor c_next = f * c + i * g;
  return {o * tanh(c_next), c_next};
}

}  // namespace

Recurrent::Recurrent(std::int64_t gates, std::int64_t d_in, std::int64_t d_hidden, Random& random,
                     const RecurrentSettings& settings)
    : input_size(d_in), hidden_size(d_hidden) {
  if (d_in < 1 || d_hidden < 1) {
    refuse("recurrent", "d_in and d_hidden: expected at least 1, got ", d_in, " and ", d_hidden);
  }
  const double bound = 1.0 / std::sqrt(static_cast<double>(d_hidden));  // torch's default
  const std::int64_t rows = gates * d_hidden;
  for (const std::string suffix : {"", "_reverse"}) {
    const auto make = [&](const char* name, const Shape& shape) {
      return parameter(name + suffix, random.uniform(shape, -bound, bound));
    };
    directions.push_back({.weight_ih = make("weight_ih_l0", {rows, d_in}),
                          .weight_hh = make("weight_hh_l0", {rows, d_hidden}),
                          .bias_ih = make("bias_ih_l0", {rows}),
                          .bias_hh = make("bias_hh_l0", {rows})});
    if (!settings.bidirectional) break;
  }
}

GRU::Result GRU::operator()(const Tensor& x, const Tensor& h0) const {
  check_input("GRU", x, input_size);
  const std::int64_t batch = x.size(0), n = x.size(1);
  const Shape state{std::ssize(directions), batch, hidden_size};
  std::vector<Tensor> outputs, last;
  for (std::size_t d = 0; d < directions.size(); ++d) {
    const Weights& w = directions[d];
    Tensor h = start("GRU", "h", h0, d, state, x.dtype());
    const Tensor x_gates = linear(x, w.weight_ih, w.bias_ih);
    outputs.push_back(run(n, d == 1, [&](std::int64_t t) {
      return h = gru_cell(at_place(x_gates, t), linear(h, w.weight_hh, w.bias_hh), h);
    }));
    last.push_back(in_front(h));
  }
  return {concat(outputs, 2), concat(last, 0)};
}

Tensor GRU::step(const Tensor& x, const Tensor& h) const {
  const Weights& w = directions.front();
  check_shape("GRU", "x", x, {h.size(0), input_size});
  check_shape("GRU", "h", h, {h.size(0), hidden_size});
  return gru_cell(linear(x, w.weight_ih, w.bias_ih), linear(h, w.weight_hh, w.bias_hh), h);
}

LSTM::Result LSTM::operator()(const Tensor& x, const Tensor& h0, const Tensor& c0) const {
  check_input("LSTM", x, input_size);
  const std::int64_t batch = x.size(0), n = x.size(1);
  const Shape state{std::ssize(directions), batch, hidden_size};
  std::vector<Tensor> outputs, last_h, last_c;
  for (std::size_t d = 0; d < directions.size(); ++d) {
    const Weights& w = directions[d];
    Tensor h = start("LSTM", "h", h0, d, state, x.dtype()), c = start("LSTM", "c", c0, d, state, x.dtype());
    const Tensor x_gates = linear(x, w.weight_ih, w.bias_ih);
    outputs.push_back(run(n, d == 1, [&](std::int64_t t) {
      std::tie(h, c) = lstm_step(at_place(x_gates, t) + linear(h, w.weight_hh, w.bias_hh), c);
      return h;
    }));
    last_h.push_back(in_front(h));
    last_c.push_back(in_front(c));
  }
  return {concat(outputs, 2), concat(last_h, 0), concat(last_c, 0)};
}

std::pair<Tensor, Tensor> LSTM::step(const Tensor& x, const Tensor& h, const Tensor& c) const {
  const Weights& w = directions.front();
  check_shape("LSTM", "x", x, {h.size(0), input_size});
  check_shape("LSTM", "h", h, {h.size(0), hidden_size});
  check_shape("LSTM", "c", c, {h.size(0), hidden_size});
  return lstm_step(linear(x, w.weight_ih, w.bias_ih) + linear(h, w.weight_hh, w.bias_hh), c);
}

}  // namespace keel::nn
