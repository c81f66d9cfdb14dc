#pragma once

#include <cstdint>

// The inner loops of the training layer, on dense rows of n elements, vectorised for each SIMD target. T is float or
// double. They trust their arguments and allocate nothing.
namespace keel::nn {

// y = f(x)
enum class Map { relu, gelu, tanh, sigmoid, exp, log };

template <class T>
void map(Map f, const T* x, T* y, std::int64_t n);

// dx = f'(x)·dy. `saved` is y if f' is cheapest in terms of it (tanh, sigmoid, exp), else x.
template <class T>
void map_backward(Map f, const T* saved, const T* dy, T* dx, std::int64_t n);
constexpr bool saves_output(Map f) { return f == Map::tanh || f == Map::sigmoid || f == Map::exp; }

// y = exp(x − shift), and returns Σ y. y may be x.
template <class T>
T exp_shifted(const T* x, T shift, T* y, std::int64_t n);

template <class T>
T row_max(const T* x, std::int64_t n);
template <class T>
T row_sum(const T* x, std::int64_t n);
template <class T>
T row_dot(const T* x, const T* y, std::int64_t n);

// y = (x − mean)·rstd·gain + shift, with rstd = 1/√(var + epsilon).
template <class T>
struct Moments {
  T mean, rstd;
};
template <class T>
Moments<T> normalise(const T* x, const T* gain, const T* shift, T epsilon, T* y, std::int64_t n);

// dx of the above; adds dy·x̂ to dgain and dy to dshift.
template <class T>
struct NormaliseGradients {
  T* dx;
  T* dgain;
  T* dshift;
};
template <class T>
void normalise_backward(const T* x, const T* gain, Moments<T> m, const T* dy, NormaliseGradients<T> out,
                        std::int64_t n);

// Bahdanau's score of one pair: Σ v·tanh(q + k).
template <class T>
T additive(const T* q, const T* k, const T* v, std::int64_t n);

// Adds the contribution of ds, the gradient with respect to that score, to dq, dk and dv.
template <class T>
struct AdditiveGradients {
  T* dq;
  T* dk;
  T* dv;
};
template <class T>
void additive_backward(const T* q, const T* k, const T* v, T ds, AdditiveGradients<T> out, std::int64_t n);

// One step of Adam over n parameters (see optim.h); the corrections for the start are in `rate` and `root_correction`.
template <class T>
struct AdamStep {
  T rate;             // lr / (1 − β1ᵗ)
  T root_correction;  // 1 / √(1 − β2ᵗ)
  T beta1, beta2, epsilon;
  T l2;     // added to the gradient, times w
  T decay;  // w is multiplied by 1 − decay first
};
template <class T>
void adam(const AdamStep<T>& step, T* w, const T* dw, T* m, T* v, std::int64_t n);

}  // namespace keel::nn
