#include "ring/terms.h"

#include <cstring>

#include "core/element.h"
#include "core/hash.h"
#include "core/message.h"

namespace keel::ring {
namespace {

template <class... Parts>
[[noreturn]] void refuse(const Parts&... parts) {
  throw Error(ErrorCode::invalid_argument, concat("[ring] ", parts...));
}

class Hash {
 public:
  template <class... Numbers>
  static std::uint64_t of(const Numbers&... numbers) {
    Hash hash;
    (hash.add(numbers), ...);
    return hash.value_;
  }

  template <class Number>
  void add(const Number& x) {
    if constexpr (std::is_floating_point_v<Number>) {
      std::uint64_t bits = 0;
      const double value = x;
      std::memcpy(&bits, &value, sizeof(bits));
      add(bits);
    } else {
      for (int byte = 0; byte < 8; ++byte) {
        value_ = hash_byte(value_, (static_cast<std::uint64_t>(x) >> (8 * byte)) & 0xFF);
      }
    }
  }
  void add(const ListView& list) {
    add(list.size());
    for (std::int64_t i = 0; i < list.size(); ++i) add(list[i]);
  }
  void add(const HeadView& heads) {
    add(heads.given());
    for (std::int64_t h = 0; heads.given() && h < heads.shape[0]; ++h) add(load_at(heads, h));
  }
  void add(const SlopeView& slopes) {
    add(slopes.given());
    for (std::int64_t b = 0; b < slopes.shape[0]; ++b) {
      for (std::int64_t h = 0; h < slopes.shape[1]; ++h) add(load_at(slopes, b, h));
    }
  }

 private:
  std::uint64_t value_ = kHashStart;
};

void check_rows(const char* name, std::int64_t expected, std::int64_t whole, std::int64_t got) {
  if (got != expected) {
    refuse(name, ": expected ", expected, " rows, as this rank has of the whole's ", whole, ", got ", got);
  }
}

// Along the keys mask, bias, weights and dbias are the whole's. For a check of the rest they get those of this rank.
template <class Pointer>
BasicView<4, Pointer> with_own_keys(const char* name, BasicView<4, Pointer> view, std::int64_t n_k, std::int64_t own) {
  if (!view.given()) return view;
  if (view.shape[3] != n_k && view.shape[3] != 1) {
    refuse(name, ": expected all ", n_k, " keys of the whole, or 1, got shape ", text_of(view.shape));
  }
  if (view.shape[3] == n_k && n_k != own) view.shape[3] = own;
  return view;
}

Options own_options(const Link& link, const Sharding& s, const TensorView& q, const TensorView& k,
                    const Options& options) {
  if (s.n_q < 0) refuse("n_q: expected at least 0, got ", s.n_q);
  if (s.n_k < 0) refuse("n_k: expected at least 0, got ", s.n_k);
  if (s.mode != Mode::ring && s.mode != Mode::ordered && s.mode != Mode::decode) {
    refuse("mode: expected ring, ordered or decode, got code ", static_cast<int>(s.mode));
  }
  const std::int64_t own_k = shard(s.n_k, link.size(), link.rank(), s.layout).size();
  const std::int64_t own_q = s.mode == Mode::decode ? s.n_q : shard(s.n_q, link.size(), link.rank(), s.layout).size();
  check_rows("q", own_q, s.n_q, q.shape[2]);
  check_rows("k", own_k, s.n_k, k.shape[2]);
  const Origin& o = options.origin;
  if (o.query != 0 || o.key != 0 || o.n_q != 0 || o.n_k != 0) {
    refuse("origin: expected none, as the sharding says where rows stand, got query ", o.query, ", key ", o.key);
  }
  if (options.block_mask != nullptr) refuse("block_mask: expected none, as tiles cannot be sharded, got one");
  if (options.relative_bias.given()) refuse("relative_bias: expected none over many processes, got one");
  if (!options.k_starts.empty()) refuse("k_starts: expected none over many processes, got ", options.k_starts.size());
  for (const ListView* list : {&options.q_lengths, &options.k_lengths, &options.q_offsets, &options.k_offsets}) {
    if (list->device != Device{}) refuse("lengths and offsets: expected on the CPU, got ", text_of(list->device));
  }
  if (q.device != Device{}) refuse("q: expected on the CPU, got ", text_of(q.device));
  Options own = options;
  own.origin = {.query = 0, .key = 0, .n_q = s.n_q, .n_k = s.n_k};
  own.mask = with_own_keys("mask", own.mask, s.n_k, own_k);
  own.bias = with_own_keys("bias", own.bias, s.n_k, own_k);
  return own;
}

}  // namespace

const char* name_of_term(std::size_t term) {
  static constexpr const char* kNames[] = {"sharding",
                                           "dtype, batch, heads and head sizes of q, k and v",
                                           "scale and softcap",
                                           "causal mask and window",
                                           "lengths and offsets",
                                           "slopes of ALiBi",
                                           "sinks",
                                           "dropout and seed",
                                           "choice of results"};
  return kNames[term];
}

Terms terms_of(const Sharding& s, const Problem& p, std::uint64_t requests) {
  const Options& o = p.options;
  return {Hash::of(s.n_q, s.n_k, static_cast<int>(s.layout), static_cast<int>(s.mode), s.own_sums),
          Hash::of(static_cast<int>(p.dtype), p.batch, p.q_heads, p.kv_heads, p.d_k, p.d_v),
          Hash::of(p.scale, o.scale_tensor.given(), o.softcap.value_or(0.0)),
          Hash::of(static_cast<int>(o.causal), o.window.left, o.window.right),
          Hash::of(o.q_lengths, o.k_lengths, o.q_offsets, o.k_offsets),
          Hash::of(o.alibi),
          Hash::of(o.sinks),
          Hash::of(o.dropout, o.dropout > 0 ? o.seed : 0),
          Hash::of(requests, p.outputs.heads.empty() ? 0.0 : p.outputs.saturation_threshold)};
}

Problem check(const Link& link, const Sharding& s, const Tensors& t, const Options& options, const Outputs& outputs) {
  Outputs own = outputs;
  const Options own_part = own_options(link, s, t.q, t.k, options);
  own.weights = with_own_keys("weights", outputs.weights, s.n_k, t.k.shape[2]);
  if (outputs.weights.given() && outputs.weights.shape[3] != s.n_k) {
    refuse("weights: expected all ", s.n_k, " keys of the whole, got shape ", text_of(outputs.weights.shape));
  }
  if (outputs.scores.given()) {
    refuse("scores: expected none over many processes, got shape ", text_of(outputs.scores.shape));
  }
  return make_problem(t.q, t.k, t.v, t.out, own_part, own);
}

BackwardProblem check(const Link& link, const Sharding& s, const BackwardInputs& in, const Gradients& gradients,
                      const Options& options) {
  if (s.mode == Mode::decode) {
    throw Error(ErrorCode::unsupported, "[ring] mode: expected ring or ordered for gradients, got decode");
  }
  const Options own_part = own_options(link, s, in.q, in.k, options);
  Gradients own = gradients;
  own.dbias = with_own_keys("dbias", gradients.dbias, s.n_k, in.k.shape[2]);
  return make_backward_problem(in, own, own_part);
}

}  // namespace keel::ring
