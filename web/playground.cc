// What the page calls: attention for one head, in f32, forward and backward. web/keel.js writes a Call into the
// module's memory, word by word, in the order of its members.
#include <cmath>
#include <cstdint>
#include <new>

#include "core/random.h"
#include "keel/attention.h"

namespace {

struct Call {
  std::int32_t n_q, n_k, d_k, d_v;
  float scale, softcap, sink;  // softcap 0 and a sink that is NaN: none
  std::int32_t causal;         // 1: top_left
  std::int32_t window;         // how many keys before the diagonal a row sees; −1: all
  const float *q, *k, *v;
  const bool* mask;  // null: none. n_q × n_k
  float *out, *lse, *max_logit, *entropy, *max_weight, *logit_mean, *logit_var, *weights;
  const float* dout;         // null: no gradients
  float *dq, *dk, *dv, *ds;  // ds: with respect to the scores, n_q × n_k
};

keel::Options options(const Call& c) {
  keel::Options options{.scale = c.scale, .threads = 1};
  if (c.softcap != 0) options.softcap = c.softcap;
  if (c.mask != nullptr) options.mask = keel::view(c.mask, {1, 1, c.n_q, c.n_k});
  if (c.causal != 0) options.causal = keel::Causal::top_left;
  if (c.window >= 0) options.window.left = c.window;
  if (!std::isnan(c.sink)) options.sinks = keel::head_view(&c.sink, 1);
  static const float kZero = 0;  // added to every score, so that the scores have a gradient
  if (c.dout != nullptr) options.bias = keel::view(&kZero, {1, 1, 1, 1});
  return options;
}

}  // namespace

#define PAGE_CALLS(name) extern "C" __attribute__((export_name(#name)))

PAGE_CALLS(allocate) void* allocate(std::uint32_t bytes) { return ::operator new (bytes, std::align_val_t{64}); }
PAGE_CALLS(release) void release(void* memory) { ::operator delete (memory, std::align_val_t{64}); }

// Standard normal numbers, the same for the same seed and stream.
PAGE_CALLS(normals) void normals(float* values, std::uint32_t count, std::uint32_t seed, std::uint32_t stream) {
  for (std::uint32_t i = 0; i < count; i += 2) {
    const auto w = keel::random_words(seed, stream, i / 2);
    const auto pair = keel::normal_pair(keel::to_uniform(keel::join_words(w[0], w[1])),
                                        keel::to_uniform(keel::join_words(w[2], w[3])), 1.0);
    values[i] = static_cast<float>(pair[0]);
    if (i + 1 < count) values[i + 1] = static_cast<float>(pair[1]);
  }
}

PAGE_CALLS(attend) void attend(const Call& c) {
  const auto rows = [&](float* x) { return keel::row_view(x, {1, 1, c.n_q}); };
  const auto q = keel::view(c.q, {1, 1, c.n_q, c.d_k}), k = keel::view(c.k, {1, 1, c.n_k, c.d_k});
  const auto v = keel::view(c.v, {1, 1, c.n_k, c.d_v});
  const auto out = keel::view(c.out, {1, 1, c.n_q, c.d_v});
  keel::attention(q, k, v, out, options(c),
                  {.lse = rows(c.lse),
                   .max_logit = rows(c.max_logit),
                   .entropy = rows(c.entropy),
                   .max_weight = rows(c.max_weight),
                   .logit_mean = rows(c.logit_mean),
                   .logit_var = rows(c.logit_var),
                   .weights = keel::view(c.weights, {1, 1, c.n_q, c.n_k})});
  if (c.dout == nullptr) return;
  keel::attention_backward(
      {.q = q, .k = k, .v = v, .out = out, .lse = rows(c.lse), .dout = keel::view(c.dout, {1, 1, c.n_q, c.d_v})},
      {.dq = keel::view(c.dq, {1, 1, c.n_q, c.d_k}),
       .dk = keel::view(c.dk, {1, 1, c.n_k, c.d_k}),
       .dv = keel::view(c.dv, {1, 1, c.n_k, c.d_v}),
       .dbias = keel::view(c.ds, {1, 1, c.n_q, c.n_k})},
      options(c));
}

// The scores themselves, before any mask: n_k × n_q, one key after the other. A row that sees one key alone has its
// score as the largest, so the keys go in as the entries of a batch.
PAGE_CALLS(scores) void scores(const Call& c, float* s) {
  auto q = keel::view(c.q, {c.n_k, 1, c.n_q, c.d_k});
  q.strides[0] = 0;
  keel::Options options{.scale = c.scale, .threads = 1};
  if (c.softcap != 0) options.softcap = c.softcap;
  auto out = static_cast<float*>(allocate(static_cast<std::uint32_t>(c.n_k * c.n_q * 4)));
  keel::attention(q, keel::view(c.k, {c.n_k, 1, 1, c.d_k}), keel::view(c.k, {c.n_k, 1, 1, 1}),
                  keel::view(out, {c.n_k, 1, c.n_q, 1}), options, {.max_logit = keel::row_view(s, {c.n_k, 1, c.n_q})});
  release(out);
}
