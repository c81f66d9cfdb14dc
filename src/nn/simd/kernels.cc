#include "nn/simd/kernels.h"

#include <algorithm>
#include <cmath>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "nn/simd/kernels.cc"
#include <hwy/foreach_target.h>  // must come before highway.h
#include <hwy/highway.h>
// after highway.h
#include <hwy/contrib/math/math-inl.h>

HWY_BEFORE_NAMESPACE();
namespace keel::nn::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

template <class T>
using Tag = hn::ScalableTag<T>;
template <class T>
using Vec = hn::Vec<Tag<T>>;

// Loads up to a vector of what is left, zero-padded; stores the same part.
template <class T>
Vec<T> Load(const T* x, std::int64_t left) {
  const Tag<T> d;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  if (left >= lanes) return hn::LoadU(d, x);
  HWY_ALIGN T part[hn::MaxLanes(d)] = {};
  std::copy(x, x + left, part);
  return hn::Load(d, part);
}
template <class T>
void Store(Vec<T> v, T* y, std::int64_t left) {
  const Tag<T> d;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  if (left >= lanes) return hn::StoreU(v, d, y);
  HWY_ALIGN T part[hn::MaxLanes(d)];
  hn::Store(v, d, part);
  std::copy(part, part + left, y);
}

// body(i, left): the vector that starts at i, of which `left` elements and those after it remain.
template <class T, class Body>
HWY_INLINE void Each(std::int64_t n, const Body& body) {
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(Tag<T>()));
  for (std::int64_t i = 0; i < n; i += lanes) body(i, n - i);
}

template <class T>
T Total(Vec<T> v) {
  const Tag<T> d;
  return hn::GetLane(hn::SumOfLanes(d, v));
}

// Highway's Exp accepts no argument beyond overflow, and loses NaN.
template <class T>
Vec<T> Exp(Vec<T> x) {
  const Tag<T> d;
  const auto e = hn::Exp(d, hn::Min(x, hn::Set(d, sizeof(T) == 4 ? T(89) : T(710))));
  return hn::IfThenElse(hn::Eq(x, x), e, x);
}

template <class T>
Vec<T> Sigmoid(Vec<T> x) {
  const Tag<T> d;
  const auto one = hn::Set(d, T(1));
  return hn::Div(one, hn::Add(one, Exp<T>(hn::Neg(x))));
}

// tanh(x) by exp(−2|x|), which cannot overflow; near 0 by its series, where 1 − exp would cancel.
template <class T>
Vec<T> Tanh(Vec<T> x) {
  const Tag<T> d;
  const auto one = hn::Set(d, T(1));
  const auto a = hn::Abs(x);
  const auto e = Exp<T>(hn::Mul(a, hn::Set(d, T(-2))));
  const auto far = hn::Div(hn::Sub(one, e), hn::Add(one, e));
  const auto x2 = hn::Mul(x, x);
  auto p = hn::Set(d, T(-1382.0 / 155925));
  for (const double c : {62.0 / 2835, -17.0 / 315, 2.0 / 15, -1.0 / 3}) p = hn::MulAdd(p, x2, hn::Set(d, T(c)));
  const auto near = hn::MulAdd(hn::Mul(a, x2), p, a);
  const auto bound = hn::Set(d, sizeof(T) == 4 ? T(0.2) : T(0.02));
  return hn::CopySign(hn::IfThenElse(hn::Lt(a, bound), near, far), x);
}

// gelu(x) = x·σ(2u), u = √(2/π)·(x + 0.044715·x³): GPT-2's form, since ½(1 + tanh u) = σ(2u)
constexpr double kGelu1 = 2 * 0.7978845608028654, kGelu3 = kGelu1 * 0.044715;

template <class T>
Vec<T> GeluGate(Vec<T> x, Vec<T> x2) {
  const Tag<T> d;
  return Sigmoid<T>(hn::Mul(x, hn::MulAdd(x2, hn::Set(d, T(kGelu3)), hn::Set(d, T(kGelu1)))));
}

template <class T>
void MapAll(Map f, const T* x, T* y, std::int64_t n) {
  const Tag<T> d;
  const auto with = [&](const auto& g) {
    Each<T>(n, [&](std::int64_t i, std::int64_t left) { Store<T>(g(Load<T>(x + i, left)), y + i, left); });
  };
  switch (f) {
    case Map::relu:  // NaN stays NaN
      return with([&](Vec<T> v) { return hn::IfThenZeroElse(hn::Lt(v, hn::Zero(d)), v); });
    case Map::gelu:
      return with([&](Vec<T> v) { return hn::Mul(v, GeluGate<T>(v, hn::Mul(v, v))); });
    case Map::tanh:
      return with([](Vec<T> v) { return Tanh<T>(v); });
    case Map::sigmoid:
      return with([](Vec<T> v) { return Sigmoid<T>(v); });
    case Map::exp:
      return with([](Vec<T> v) { return Exp<T>(v); });
    case Map::log:
      for (std::int64_t i = 0; i < n; ++i) y[i] = std::log(x[i]);  // libm's results at 0 and below
      return;
  }
}

template <class T>
void MapBackward(Map f, const T* saved, const T* dy, T* dx, std::int64_t n) {
  const Tag<T> d;
  const auto one = hn::Set(d, T(1));
  const auto with = [&](const auto& g) {
    Each<T>(n, [&](std::int64_t i, std::int64_t left) {
      Store<T>(g(Load<T>(saved + i, left), Load<T>(dy + i, left)), dx + i, left);
    });
  };
  switch (f) {
    case Map::relu:
      return with([&](Vec<T> x, Vec<T> g) { return hn::IfThenElseZero(hn::Gt(x, hn::Zero(d)), g); });
    case Map::gelu:  // σ + x·σ(1 − σ)·(2u)'
      return with([&](Vec<T> x, Vec<T> g) {
        const auto x2 = hn::Mul(x, x);
        const auto s = GeluGate<T>(x, x2);
        const auto slope = hn::MulAdd(x2, hn::Set(d, T(3 * kGelu3)), hn::Set(d, T(kGelu1)));
        return hn::Mul(g, hn::MulAdd(hn::Mul(x, hn::Mul(s, hn::Sub(one, s))), slope, s));
      });
    case Map::tanh:
      return with([&](Vec<T> y, Vec<T> g) { return hn::Mul(g, hn::NegMulAdd(y, y, one)); });
    case Map::sigmoid:
      return with([&](Vec<T> y, Vec<T> g) { return hn::Mul(g, hn::Mul(y, hn::Sub(one, y))); });
    case Map::exp:
      return with([](Vec<T> y, Vec<T> g) { return hn::Mul(g, y); });
    case Map::log:
      return with([](Vec<T> x, Vec<T> g) { return hn::Div(g, x); });
  }
}

template <class T>
T ExpShifted(const T* x, T shift, T* y, std::int64_t n) {
  const Tag<T> d;
  const auto m = hn::Set(d, shift);
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  auto total = hn::Zero(d);
  Each<T>(n, [&](std::int64_t i, std::int64_t left) {
    auto e = Exp<T>(hn::Sub(Load<T>(x + i, left), m));
    Store<T>(e, y + i, left);
    if (left < lanes) e = Load<T>(y + i, left);  // with zeros past the end
    total = hn::Add(total, e);
  });
  return Total<T>(total);
}

// NaN if there is one.
template <class T>
T RowMax(const T* x, std::int64_t n) {
  const Tag<T> d;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  const auto larger = [](auto a, auto b) { return hn::IfThenElse(hn::Or(hn::Gt(b, a), hn::IsNaN(b)), b, a); };
  T m = x[0];
  std::int64_t i = 1;
  if (n >= lanes) {
    auto most = hn::LoadU(d, x);
    for (i = lanes; i + lanes <= n; i += lanes) most = larger(most, hn::LoadU(d, x + i));
    HWY_ALIGN T all[hn::MaxLanes(d)];
    hn::Store(most, d, all);
    m = all[0];
    for (std::int64_t l = 1; l < lanes; ++l) m = all[l] > m || all[l] != all[l] ? all[l] : m;
  }
  for (; i < n; ++i) m = x[i] > m || x[i] != x[i] ? x[i] : m;
  return m;
}

template <class T>
T RowSum(const T* x, std::int64_t n) {
  auto total = hn::Zero(Tag<T>());
  Each<T>(n, [&](std::int64_t i, std::int64_t left) { total = hn::Add(total, Load<T>(x + i, left)); });
  return Total<T>(total);
}

template <class T>
T RowDot(const T* x, const T* y, std::int64_t n) {
  auto total = hn::Zero(Tag<T>());
  Each<T>(n, [&](std::int64_t i, std::int64_t left) {
    total = hn::MulAdd(Load<T>(x + i, left), Load<T>(y + i, left), total);
  });
  return Total<T>(total);
}

template <class T>
Moments<T> Normalise(const T* x, const T* gain, const T* shift, T epsilon, T* y, std::int64_t n) {
  const Tag<T> d;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  const T mean = RowSum(x, n) / static_cast<T>(n);
  const auto centre = hn::Set(d, mean);
  auto squares = hn::Zero(d);
  Each<T>(n, [&](std::int64_t i, std::int64_t left) {
    Store<T>(hn::Sub(Load<T>(x + i, left), centre), y + i, left);
    const auto c = left < lanes ? Load<T>(y + i, left) : hn::LoadU(d, y + i);
    squares = hn::MulAdd(c, c, squares);
  });
  const T rstd = T(1) / std::sqrt(Total<T>(squares) / static_cast<T>(n) + epsilon);
  const auto r = hn::Set(d, rstd);
  Each<T>(n, [&](std::int64_t i, std::int64_t left) {
    const auto h = hn::Mul(Load<T>(y + i, left), r);
    Store<T>(hn::MulAdd(h, Load<T>(gain + i, left), Load<T>(shift + i, left)), y + i, left);
  });
  return {mean, rstd};
}

// With x̂ = (x − mean)·rstd and g = dy·gain:   dx = rstd·(g − mean(g) − x̂·mean(g·x̂))
template <class T>
void NormaliseBackward(const T* x, const T* gain, Moments<T> m, const T* dy, NormaliseGradients<T> out,
                       std::int64_t n) {
  const Tag<T> d;
  const auto mean = hn::Set(d, m.mean), rstd = hn::Set(d, m.rstd);
  const auto hat = [&](std::int64_t i, std::int64_t left) {
    return hn::Mul(hn::Sub(Load<T>(x + i, left), mean), rstd);
  };
  auto sum_g = hn::Zero(d), sum_gx = hn::Zero(d);
  Each<T>(n, [&](std::int64_t i, std::int64_t left) {
    const auto dyi = Load<T>(dy + i, left), h = hat(i, left);
    const auto g = hn::Mul(dyi, Load<T>(gain + i, left));  // 0 past the end
    sum_g = hn::Add(sum_g, g);
    sum_gx = hn::MulAdd(g, h, sum_gx);
    Store<T>(hn::MulAdd(dyi, h, Load<T>(out.dgain + i, left)), out.dgain + i, left);
    Store<T>(hn::Add(dyi, Load<T>(out.dshift + i, left)), out.dshift + i, left);
  });
  const auto a = hn::Set(d, Total<T>(sum_g) / static_cast<T>(n));
  const auto b = hn::Set(d, Total<T>(sum_gx) / static_cast<T>(n));
  Each<T>(n, [&](std::int64_t i, std::int64_t left) {
    const auto g = hn::Mul(Load<T>(dy + i, left), Load<T>(gain + i, left));
    Store<T>(hn::Mul(rstd, hn::NegMulAdd(hat(i, left), b, hn::Sub(g, a))), out.dx + i, left);
  });
}

template <class T>
T Additive(const T* q, const T* k, const T* v, std::int64_t n) {
  auto total = hn::Zero(Tag<T>());
  Each<T>(n, [&](std::int64_t i, std::int64_t left) {
    const auto t = Tanh<T>(hn::Add(Load<T>(q + i, left), Load<T>(k + i, left)));
    total = hn::MulAdd(Load<T>(v + i, left), t, total);
  });
  return Total<T>(total);
}

template <class T>
void AdditiveBackward(const T* q, const T* k, const T* v, T ds, AdditiveGradients<T> out, std::int64_t n) {
  const Tag<T> d;
  const auto one = hn::Set(d, T(1)), g = hn::Set(d, ds);
  Each<T>(n, [&](std::int64_t i, std::int64_t left) {
    const auto t = Tanh<T>(hn::Add(Load<T>(q + i, left), Load<T>(k + i, left)));
    const auto inner = hn::Mul(hn::Mul(g, Load<T>(v + i, left)), hn::NegMulAdd(t, t, one));
    Store<T>(hn::Add(Load<T>(out.dq + i, left), inner), out.dq + i, left);
    Store<T>(hn::Add(Load<T>(out.dk + i, left), inner), out.dk + i, left);
    Store<T>(hn::MulAdd(g, t, Load<T>(out.dv + i, left)), out.dv + i, left);
  });
}

template <class T>
void Adam(const AdamStep<T>& step, T* w, const T* dw, T* m, T* v, std::int64_t n) {
  const Tag<T> d;
  const auto rate = hn::Set(d, step.rate), root = hn::Set(d, step.root_correction), eps = hn::Set(d, step.epsilon);
  const auto b1 = hn::Set(d, step.beta1), b2 = hn::Set(d, step.beta2), l2 = hn::Set(d, step.l2);
  const auto c1 = hn::Set(d, T(1) - step.beta1), c2 = hn::Set(d, T(1) - step.beta2),
             keep = hn::Set(d, T(1) - step.decay);
  Each<T>(n, [&](std::int64_t i, std::int64_t left) {
    auto wi = Load<T>(w + i, left);
    const auto g = hn::MulAdd(l2, wi, Load<T>(dw + i, left));
    const auto mi = hn::MulAdd(b1, Load<T>(m + i, left), hn::Mul(c1, g));
    const auto vi = hn::MulAdd(b2, Load<T>(v + i, left), hn::Mul(c2, hn::Mul(g, g)));
    Store<T>(mi, m + i, left);
    Store<T>(vi, v + i, left);
    const auto size = hn::MulAdd(hn::Sqrt(vi), root, eps);
    wi = hn::NegMulAdd(rate, hn::Div(mi, size), hn::Mul(keep, wi));
    Store<T>(wi, w + i, left);
  });
}

// Highway's table of targets takes plain functions.
#define KEEL_NN_KERNELS(T, S)                                                                                     \
  void Map##S(Map f, const T* x, T* y, std::int64_t n) { MapAll<T>(f, x, y, n); }                                 \
  void MapBackward##S(Map f, const T* s, const T* dy, T* dx, std::int64_t n) { MapBackward<T>(f, s, dy, dx, n); } \
  T ExpShifted##S(const T* x, T shift, T* y, std::int64_t n) { return ExpShifted<T>(x, shift, y, n); }            \
  T RowMax##S(const T* x, std::int64_t n) { return RowMax<T>(x, n); }                                             \
  T RowSum##S(const T* x, std::int64_t n) { return RowSum<T>(x, n); }                                             \
  T RowDot##S(const T* x, const T* y, std::int64_t n) { return RowDot<T>(x, y, n); }                              \
  Moments<T> Normalise##S(const T* x, const T* g, const T* b, T e, T* y, std::int64_t n) {                        \
    return Normalise<T>(x, g, b, e, y, n);                                                                        \
  }                                                                                                               \
  void NormaliseBackward##S(const T* x, const T* g, Moments<T> m, const T* dy, NormaliseGradients<T> out,         \
                            std::int64_t n) {                                                                     \
    NormaliseBackward<T>(x, g, m, dy, out, n);                                                                    \
  }                                                                                                               \
  T Additive##S(const T* q, const T* k, const T* v, std::int64_t n) { return Additive<T>(q, k, v, n); }           \
  void AdditiveBackward##S(const T* q, const T* k, const T* v, T ds, AdditiveGradients<T> out, std::int64_t n) {  \
    AdditiveBackward<T>(q, k, v, ds, out, n);                                                                     \
  }                                                                                                               \
  void Adam##S(const AdamStep<T>& step, T* w, const T* dw, T* m, T* v, std::int64_t n) {                          \
    Adam<T>(step, w, dw, m, v, n);                                                                                \
  }
KEEL_NN_KERNELS(float, F32)
KEEL_NN_KERNELS(double, F64)
#undef KEEL_NN_KERNELS

}  // namespace keel::nn::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace keel::nn {

// A template specialisation inherits the visibility of its declaration, which -fvisibility does not reach.
#define KEEL_NN_HIDDEN [[gnu::visibility("hidden")]]
#define KEEL_NN_EXPORT(T, S)                                                                                           \
  HWY_EXPORT(Map##S);                                                                                                  \
  HWY_EXPORT(MapBackward##S);                                                                                          \
  HWY_EXPORT(ExpShifted##S);                                                                                           \
  HWY_EXPORT(RowMax##S);                                                                                               \
  HWY_EXPORT(RowSum##S);                                                                                               \
  HWY_EXPORT(RowDot##S);                                                                                               \
  HWY_EXPORT(Normalise##S);                                                                                            \
  HWY_EXPORT(NormaliseBackward##S);                                                                                    \
  HWY_EXPORT(Additive##S);                                                                                             \
  HWY_EXPORT(AdditiveBackward##S);                                                                                     \
  HWY_EXPORT(Adam##S);                                                                                                 \
  template <>                                                                                                          \
  KEEL_NN_HIDDEN void map<T>(Map f, const T* x, T* y, std::int64_t n) {                                                \
    HWY_DYNAMIC_DISPATCH(Map##S)(f, x, y, n);                                                                          \
  }                                                                                                                    \
  template <>                                                                                                          \
  KEEL_NN_HIDDEN void map_backward<T>(Map f, const T* saved, const T* dy, T* dx, std::int64_t n) {                     \
    HWY_DYNAMIC_DISPATCH(MapBackward##S)(f, saved, dy, dx, n);                                                         \
  }                                                                                                                    \
  template <>                                                                                                          \
  KEEL_NN_HIDDEN T exp_shifted<T>(const T* x, T shift, T* y, std::int64_t n) {                                         \
    return HWY_DYNAMIC_DISPATCH(ExpShifted##S)(x, shift, y, n);                                                        \
  }                                                                                                                    \
  template <>                                                                                                          \
  KEEL_NN_HIDDEN T row_max<T>(const T* x, std::int64_t n) {                                                            \
    return HWY_DYNAMIC_DISPATCH(RowMax##S)(x, n);                                                                      \
  }                                                                                                                    \
  template <>                                                                                                          \
  KEEL_NN_HIDDEN T row_sum<T>(const T* x, std::int64_t n) {                                                            \
    return HWY_DYNAMIC_DISPATCH(RowSum##S)(x, n);                                                                      \
  }                                                                                                                    \
  template <>                                                                                                          \
  KEEL_NN_HIDDEN T row_dot<T>(const T* x, const T* y, std::int64_t n) {                                                \
    return HWY_DYNAMIC_DISPATCH(RowDot##S)(x, y, n);                                                                   \
  }                                                                                                                    \
  template <>                                                                                                          \
  KEEL_NN_HIDDEN Moments<T> normalise<T>(const T* x, const T* gain, const T* shift, T epsilon, T* y, std::int64_t n) { \
    return HWY_DYNAMIC_DISPATCH(Normalise##S)(x, gain, shift, epsilon, y, n);                                          \
  }                                                                                                                    \
  template <>                                                                                                          \
  KEEL_NN_HIDDEN void normalise_backward<T>(const T* x, const T* gain, Moments<T> m, const T* dy,                      \
                                            NormaliseGradients<T> out, std::int64_t n) {                               \
    HWY_DYNAMIC_DISPATCH(NormaliseBackward##S)(x, gain, m, dy, out, n);                                                \
  }                                                                                                                    \
  template <>                                                                                                          \
  KEEL_NN_HIDDEN T additive<T>(const T* q, const T* k, const T* v, std::int64_t n) {                                   \
    return HWY_DYNAMIC_DISPATCH(Additive##S)(q, k, v, n);                                                              \
  }                                                                                                                    \
  template <>                                                                                                          \
  KEEL_NN_HIDDEN void additive_backward<T>(const T* q, const T* k, const T* v, T ds, AdditiveGradients<T> out,         \
                                           std::int64_t n) {                                                           \
    HWY_DYNAMIC_DISPATCH(AdditiveBackward##S)(q, k, v, ds, out, n);                                                    \
  }                                                                                                                    \
  template <>                                                                                                          \
  KEEL_NN_HIDDEN void adam<T>(const AdamStep<T>& step, T* w, const T* dw, T* m, T* v, std::int64_t n) {                \
    HWY_DYNAMIC_DISPATCH(Adam##S)(step, w, dw, m, v, n);                                                               \
  }
KEEL_NN_EXPORT(float, F32)
KEEL_NN_EXPORT(double, F64)
#undef KEEL_NN_EXPORT
#undef KEEL_NN_HIDDEN

}  // namespace keel::nn
#endif  // HWY_ONCE
