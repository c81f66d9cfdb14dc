#pragma once

// Operations on tensors, each with its gradient. Shapes broadcast as in NumPy: from the right, a size of 1 repeats.
// Dimension −1 is the last. A wrong shape or dtype raises a keel::Error that names the operation and the shapes.

#include <cstdint>
#include <vector>

#include "keel/export.h"
#include "keel/nn/random.h"
#include "keel/nn/tensor.h"

namespace keel::nn {

KEEL_API Tensor add(const Tensor& a, const Tensor& b);
KEEL_API Tensor sub(const Tensor& a, const Tensor& b);
KEEL_API Tensor mul(const Tensor& a, const Tensor& b);
KEEL_API Tensor div(const Tensor& a, const Tensor& b);
KEEL_API Tensor add(const Tensor& a, double b);
KEEL_API Tensor mul(const Tensor& a, double b);

inline Tensor operator+(const Tensor& a, const Tensor& b) { return add(a, b); }
inline Tensor operator-(const Tensor& a, const Tensor& b) { return sub(a, b); }
inline Tensor operator*(const Tensor& a, const Tensor& b) { return mul(a, b); }
inline Tensor operator/(const Tensor& a, const Tensor& b) { return div(a, b); }
inline Tensor operator+(const Tensor& a, double b) { return add(a, b); }
inline Tensor operator-(const Tensor& a, double b) { return add(a, -b); }
inline Tensor operator*(const Tensor& a, double b) { return mul(a, b); }
inline Tensor operator/(const Tensor& a, double b) { return mul(a, 1.0 / b); }

KEEL_API Tensor relu(const Tensor& x);
KEEL_API Tensor gelu(const Tensor& x);  // GPT-2's: ½x(1 + tanh(√(2/π)(x + 0.044715x³)))
KEEL_API Tensor tanh(const Tensor& x);
KEEL_API Tensor sigmoid(const Tensor& x);
KEEL_API Tensor exp(const Tensor& x);
KEEL_API Tensor log(const Tensor& x);

// (…, m, k) · (…, k, n) → (…, m, n); the dimensions before the last two broadcast.
KEEL_API Tensor matmul(const Tensor& a, const Tensor& b);
// x Wᵀ + b:  x (…, in), W (out, in), b (out) or not given → (…, out)
KEEL_API Tensor linear(const Tensor& x, const Tensor& weight, const Tensor& bias = {});

KEEL_API Tensor sum(const Tensor& x);                              // of all elements, shape ()
KEEL_API Tensor sum(const Tensor& x, int dim, bool keep = false);  // keep: the dimension stays, with size 1
KEEL_API Tensor mean(const Tensor& x);
KEEL_API Tensor mean(const Tensor& x, int dim, bool keep = false);
KEEL_API Tensor max(const Tensor& x, int dim, bool keep = false);  // the gradient goes to the first of equals

KEEL_API Tensor softmax(const Tensor& x, int dim = -1);
KEEL_API Tensor log_softmax(const Tensor& x, int dim = -1);

// The mean of −log softmax(logits)[label] over the labels that are not `ignored`; 0 if all are. With `smoothing` ε
// the label gets 1 − ε, and every class ε/C. logits (…, C), labels i64 (…)
inline constexpr std::int64_t kIgnored = -100;
KEEL_API Tensor cross_entropy(const Tensor& logits, const Tensor& labels, std::int64_t ignored = kIgnored,
                              double smoothing = 0.0);

// Over the last dimension: (x − mean)/√(var + ε)·gain + shift
KEEL_API Tensor layer_norm(const Tensor& x, const Tensor& gain, const Tensor& shift, double epsilon = 1e-5);

// Rows of `table` (V, d): ids i64 (…) → (…, d)
KEEL_API Tensor embedding(const Tensor& table, const Tensor& ids);
// y[…, i, …] = x[…, index[…, i, …], …] along dim; index i64 has x's rank, and at most x's size elsewhere.
KEEL_API Tensor gather(const Tensor& x, int dim, const Tensor& index);

KEEL_API Tensor reshape(const Tensor& x, const Shape& shape);  // one size may be −1: what is left
KEEL_API Tensor transpose(const Tensor& x, int dim0, int dim1);
KEEL_API Tensor slice(const Tensor& x, int dim, std::int64_t begin, std::int64_t end);
KEEL_API Tensor concat(const std::vector<Tensor>& parts, int dim);

// Each element is 0 with probability p, else divided by 1 − p.
KEEL_API Tensor dropout(const Tensor& x, double p, Random& random);

}  // namespace keel::nn
