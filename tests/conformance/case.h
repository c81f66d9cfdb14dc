#pragma once

#include <array>
#include <cmath>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "keel/attention.h"

// One description of a problem for tests, benchmarks and fuzzing alike: plain data, from which Instance makes memory.
namespace keel::conformance {

// How a tensor (B, H, N, D) lies in memory.
enum class Storage {
  bhnd,        // gap-free, in the order of the dimensions
  bnhd,        // heads inside rows, as a projection leaves them
  packed,      // a slice of one (B, N, H_q + 2·H_kv, D) array that q, k and v share where their shapes allow it
  gaps,        // rows, heads and batch entries padded
  transposed,  // (B, H, D, N): elements of a row are N apart
  reversed,    // negative strides along every dimension
};

enum class ScaleKind { standard, number, per_head, per_query };

enum class MaskKind {
  none,
  random,   // about a third hidden, every fifth key from all queries
  one_row,  // as random, and one query sees nothing
  blocks,   // 32 × 64 blocks, alternately visible and hidden
  all       // nothing is visible
};

enum class BiasKind {
  none,
  normal,
  minus_inf,   // some −inf, and every fifth key so for all queries
  minus_1e30,  // one query has −1e30 everywhere: not masked
  plus_inf,    // one query has +inf at one key

  // Masks in all but name: keys have Case::bias_low, the others normal numbers.
  scattered,      // some, and every fifth key for all queries
  left_padding,   // the first keys of each batch entry, up to all of them
  right_padding,  // the last keys, likewise
};

enum class BlockKind {
  none,
  random,     // tiles drawn to be hidden, full, or of random pairs
  documents,  // rows and keys belong to documents of random lengths, and see their own up to the diagonal
  strided     // every third tile
};

inline constexpr double kLowest = std::numeric_limits<double>::lowest();

enum class Values {
  normal,
  flat,         // all scores equal
  huge,         // scores about ±1e4
  extreme,      // scores about ±1e15 (±1e6 in f16)
  overflowing,  // scores about ±1e30, whose squares f32 cannot hold (±1e6 in f16)
  nan_hidden,   // NaN and Inf in each row of q, k and v that the masks hide
  nan_visible,  // NaN in a row of k and in a row of v
  inf_visible,  // Inf in a row of k
};

// Which dimensions of a mask or bias have size 1, or full size and stride 0.
struct Broadcast {
  bool b = false, h = false, q = false, k = false;
  bool by_stride = false;
  bool operator==(const Broadcast&) const = default;
};

enum class Weights { none, q_dtype, f32 };

struct Case {
  std::string name;
  std::uint64_t seed = 1;  // of the values

  DType dtype = DType::f32;
  std::int64_t batch = 1, q_heads = 1, kv_heads = 1, n_q = 1, n_k = 1, d_k = 1, d_v = 1;
  Storage q = Storage::bhnd, k = Storage::bhnd, v = Storage::bhnd, out = Storage::bhnd;

  ScaleKind scale = ScaleKind::standard;
  double scale_number = 0.2;  // with ScaleKind::number
  std::optional<double> softcap;
  MaskKind mask = MaskKind::none;
  Broadcast mask_broadcast;
  BiasKind bias = BiasKind::none;
  bool bias_f32 = false;        // else q's dtype
  double bias_low = -INFINITY;  // or a number, at least the lowest of the bias's dtype: kLowest
  Broadcast bias_broadcast;
  BlockKind blocks = BlockKind::none;
  std::int64_t block_rows = 16, block_keys = 16;  // of a tile
  Broadcast block_broadcast;                      // over B and H
  Causal causal = Causal::none;
  Window window;
  std::vector<std::int64_t> q_lengths, k_lengths, q_offsets, k_offsets, k_starts;
  bool alibi = false, alibi_per_entry = false;
  std::int64_t relative_radius = -1;  // of a bias by distance; −1: none
  bool relative_shared = false;       // by all heads
  bool sinks = false;
  double dropout = 0.0;
  std::uint64_t dropout_seed = 0;

  Values values = Values::normal;

  bool lse = false;         // outputs requested
  bool statistics = false;  // all row statistics
  Weights weights = Weights::none;
  bool heads = false;
  bool key_sums = false;
  std::int64_t key_sum_rows = 0;
  std::optional<ScoreStage> scores;
  bool scores_f32 = false;  // else q's dtype

  bool gradients = true;  // whether a backward pass is tried, and asked for every gradient there is
  bool dlse = false;      // the backward pass gets a gradient with respect to lse

  std::vector<std::string> features;  // "factor=level" of what the table combines; empty for cases written by hand
};

inline bool has_bias_low(const Case& c) {
  return c.bias == BiasKind::scattered || c.bias == BiasKind::left_padding || c.bias == BiasKind::right_padding;
}

// Whether a row may have nothing but scores so low that they are equal in any dtype.
inline bool hides_by_number(const Case& c) {
  return c.bias == BiasKind::minus_1e30 || (has_bias_low(c) && std::isfinite(c.bias_low));
}

// Whether an lse rounded to its dtype still tells the weights: not beside infinite or huge scores.
inline bool lse_tells_weights(const Case& c) {
  return c.values != Values::extreme && c.values != Values::overflowing && c.values != Values::inf_visible &&
         c.bias != BiasKind::plus_inf && !hides_by_number(c);
}

// The same case without what only the CPU serves.
inline Case for_any_backend(Case c) {
  c.k_starts.clear();
  c.blocks = BlockKind::none;
  c.relative_radius = -1;
  return c;
}

// The same case without what many processes refuse together.
inline Case for_many_processes(Case c) {
  c.scores.reset();
  return for_any_backend(std::move(c));
}

// Every field that differs from the default, for failure messages.
std::string describe(const Case& c);

}  // namespace keel::conformance
