#include "conformance/random.h"

#include <algorithm>

namespace keel::conformance {
namespace {

std::int64_t random_length(Generator& random) {
  switch (random.integer(0, 9)) {
    case 0:
      return random.integer(0, 2);
    case 1:
    case 2:
    case 3:
      return random.integer(1, 20);
    case 4:
    case 5:
    case 6:
      return random.integer(15, 70);
    case 7:
    case 8:
      return random.integer(60, 200);
    default:
      return random.integer(200, 600);
  }
}

std::int64_t random_head_size(Generator& random) {
  constexpr std::int64_t usual[] = {8, 16, 32, 64};
  if (random.chance(0.3)) return random.pick(usual);
  return random.chance(0.8) ? random.integer(1, 40) : random.integer(40, 140);
}

Broadcast random_broadcast(Generator& random) {
  return {random.chance(0.5), random.chance(0.5), random.chance(0.25), random.chance(0.15), random.chance(0.3)};
}

std::vector<std::int64_t> random_lengths(Generator& random, std::int64_t batch, std::int64_t most) {
  std::vector<std::int64_t> values;
  for (std::int64_t b = 0; b < batch; ++b) values.push_back(random.chance(0.1) ? 0 : random.integer(0, most));
  return values;
}

// Entries without rows come anywhere, first and last among them.
std::vector<std::int64_t> random_offsets(Generator& random, std::int64_t entries, std::int64_t rows) {
  std::vector<std::int64_t> values = {0, rows};
  while (std::ssize(values) <= entries) {
    const auto other = values[static_cast<std::size_t>(random.integer(0, std::ssize(values) - 1))];
    values.push_back(random.chance(0.25) ? other : random.integer(0, rows));
  }
  std::sort(values.begin(), values.end());
  return values;
}

void choose_sizes(Generator& random, Case& c, std::int64_t work) {
  constexpr DType floats[] = {DType::f64, DType::f32, DType::f32, DType::f16, DType::bf16};
  c.dtype = random.pick(floats);
  c.batch = random.chance(0.02) ? 0 : random.integer(1, 3);
  c.kv_heads = random.integer(1, 3);
  c.q_heads = c.kv_heads * random.integer(1, 4);
  c.n_q = random.chance(0.15) ? 1 : random_length(random);
  c.n_k = random.chance(0.4) ? c.n_q : random_length(random);
  c.d_k = random_head_size(random);
  c.d_v = random.chance(0.6) ? c.d_k : random_head_size(random);
  // Too much work: halve the larger of what can be halved.
  while (c.batch * c.q_heads * c.n_q * c.n_k * (c.d_k + c.d_v) > 2 * work) {
    if (c.batch > 1) {
      c.batch = 1;
    } else if (c.kv_heads > 1) {
      c.q_heads /= c.kv_heads, c.kv_heads = 1;
    } else if (c.q_heads > 2) {
      c.q_heads = 2;
    } else if (c.d_k + c.d_v > 48) {
      c.d_k = (c.d_k + 1) / 2, c.d_v = (c.d_v + 1) / 2;
    } else {
      (c.n_q > c.n_k ? c.n_q : c.n_k) /= 2;
    }
  }
  constexpr Storage storages[] = {Storage::bhnd, Storage::bnhd,       Storage::packed,
                                  Storage::gaps, Storage::transposed, Storage::reversed};
  if (random.chance(0.6)) {
    c.q = c.k = c.v = c.out = random.pick(storages);
  } else {
    c.q = random.pick(storages), c.k = random.pick(storages), c.v = random.pick(storages),
    c.out = random.pick(storages);
  }
}

void choose_sequences(Generator& random, Case& c) {
  const double draw = random.uniform();
  if (draw < 0.15) c.k_lengths = random_lengths(random, c.batch, c.n_k);
  if (draw < 0.25 && draw > 0.1) c.q_lengths = random_lengths(random, c.batch, c.n_q);
  if (draw < 0.75) return;
  if (c.batch != 1) c.batch = 1;
  const std::int64_t entries = random.integer(1, 5);
  c.q_offsets = random_offsets(random, entries, c.n_q);
  c.k_offsets = random_offsets(random, entries, c.n_k);
}

constexpr BiasKind kMaskingBiases[] = {BiasKind::scattered, BiasKind::left_padding, BiasKind::right_padding,
                                       BiasKind::plus_inf};
constexpr double kLowNumbers[] = {-INFINITY, kLowest, kLowest, -3e38, -1e37, -1e30};

void choose_options(Generator& random, Case& c) {
  constexpr ScaleKind scales[] = {ScaleKind::number, ScaleKind::per_head, ScaleKind::per_query};
  if (random.chance(0.4)) c.scale = random.pick(scales);
  c.scale_number = random.uniform(-0.5, 0.5);
  if (random.chance(0.2)) c.softcap = random.uniform(0.5, 30.0);
  constexpr MaskKind masks[] = {MaskKind::random, MaskKind::random, MaskKind::one_row, MaskKind::blocks, MaskKind::all};
  if (random.chance(0.3)) c.mask = random.pick(masks);
  c.mask_broadcast = random_broadcast(random);
  constexpr BiasKind biases[] = {BiasKind::normal, BiasKind::minus_inf, BiasKind::minus_1e30};
  if (random.chance(0.3)) c.bias = random.chance(0.6) ? random.pick(biases) : random.pick(kMaskingBiases);
  c.bias_f32 = random.chance(0.5);
  c.bias_low = random.pick(kLowNumbers);
  c.bias_broadcast = random_broadcast(random);
  constexpr Causal alignments[] = {Causal::top_left, Causal::bottom_right};
  if (random.chance(0.4)) c.causal = random.pick(alignments);
  if (random.chance(0.2)) c.window.left = random.integer(0, random.chance(0.5) ? 8 : c.n_k + 2);
  if (random.chance(0.2)) c.window.right = random.integer(0, random.chance(0.5) ? 8 : c.n_k + 2);
  c.alibi = random.chance(0.2);
  c.sinks = random.chance(0.2);
  if (random.chance(0.15)) c.dropout = random.chance(0.1) ? 1.0 : random.uniform(0.05, 0.9);
  c.dropout_seed = random.next();
}

// From a stream of its own, which leaves the other choices of a seed alone.
void choose_more(Generator& random, Case& c) {
  constexpr BlockKind kinds[] = {BlockKind::random, BlockKind::documents, BlockKind::documents, BlockKind::strided};
  constexpr std::int64_t sizes[] = {16, 32, 64, 128};
  if (random.chance(0.25)) c.blocks = random.pick(kinds);
  c.block_rows = random.chance(0.5) ? random.pick(sizes) : random.integer(1, 70);
  c.block_keys = random.chance(0.5) ? random.pick(sizes) : random.integer(1, 140);
  c.block_broadcast = {.b = random.chance(0.5), .h = random.chance(0.7)};
  if (random.chance(0.2)) c.relative_radius = random.integer(0, random.chance(0.5) ? 8 : 200);
  c.relative_shared = random.chance(0.3);
  if (c.q_offsets.empty() && random.chance(0.15)) c.k_starts = random_lengths(random, c.batch, c.n_k);
  c.alibi_per_entry = random.chance(0.5);
  constexpr ScoreStage stages[] = {ScoreStage::raw, ScoreStage::capped, ScoreStage::masked};
  if (random.chance(0.3)) c.scores = random.pick(stages);
  c.scores_f32 = random.chance(0.5);
}

void choose_values_and_outputs(Generator& random, Case& c) {
  constexpr Values special[] = {Values::flat,       Values::huge,        Values::extreme,    Values::overflowing,
                                Values::nan_hidden, Values::nan_visible, Values::inf_visible};
  if (random.chance(0.5)) c.values = random.chance(0.5) ? Values::nan_hidden : random.pick(special);
  c.lse = random.chance(0.3);
  c.statistics = random.chance(0.4);
  c.heads = random.chance(0.3);
  constexpr Weights weights[] = {Weights::q_dtype, Weights::f32};
  if (random.chance(0.3)) c.weights = random.pick(weights);
  c.dlse = random.chance(0.3);
  c.key_sums = random.chance(0.4);
  if (random.chance(0.4)) c.key_sum_rows = random.integer(1, random.chance(0.5) ? 8 : c.n_q + 2);
}

Case drawn_case(Generator& random, std::uint64_t seed, std::int64_t work) {
  Case c;
  c.name = "random_" + std::to_string(seed);
  c.seed = seed;
  choose_sizes(random, c, work);
  choose_sequences(random, c);
  choose_options(random, c);
  choose_values_and_outputs(random, c);
  Generator other(seed, 0xB10C);
  choose_more(other, c);
  return c;
}

}  // namespace

Case random_case(std::uint64_t seed, std::int64_t work) {
  Generator random(seed, 0xCA5E);
  return drawn_case(random, seed, work);
}

Case random_case(Generator& random, std::int64_t work) { return drawn_case(random, random.next(), work); }

namespace {

// One thing beyond masks by position, with the head sizes and rows that kernels for it prefer.
void add_single_term(Generator& random, Case& c) {
  constexpr MaskKind masks[] = {MaskKind::random, MaskKind::one_row, MaskKind::blocks, MaskKind::all};
  constexpr BiasKind biases[] = {BiasKind::normal, BiasKind::minus_inf, BiasKind::minus_1e30};
  c.d_k = c.d_v = random.chance(0.5) ? 64 : 128;
  const auto align_rows = [&] {
    if (c.k_offsets.empty() && random.chance(0.8)) c.n_k = (c.n_k + 15) / 16 * 16;
    c.bias_f32 = false;
  };
  switch (random.integer(0, 4)) {
    case 0:
      c.softcap = random.uniform(0.5, 30.0);
      break;
    case 1:
      c.alibi = true;
      break;
    case 2:
      c.bias = random.chance(0.6) ? random.pick(biases) : random.pick(kMaskingBiases);
      align_rows();
      break;
    case 3:
      c.mask = random.pick(masks);
      align_rows();
      break;
    default:
      c.dropout = random.uniform(0.05, 0.6);
  }
}

}  // namespace

Case random_case_for_matrix_units(std::uint64_t seed, std::int64_t work) {
  Case c = random_case(seed, work);
  Generator random(seed, 0x3A7);
  c.name += "_for_matrix_units";
  c.dtype = random.chance(0.5) ? DType::bf16 : DType::f16;
  c.d_k = 8 * random.integer(1, 32);
  c.d_v = random.chance(0.6) ? c.d_k : 8 * random.integer(1, 32);
  c.n_q = random.chance(0.2) ? random.integer(1, 8) : random.integer(1, 420);
  c.n_k = random.chance(0.4) ? c.n_q : random.integer(1, random.chance(0.05) ? 5000 : 600);
  if (c.batch == 0) c.batch = 1;
  while (c.batch * c.q_heads * c.n_q * c.n_k * (c.d_k + c.d_v) > 2 * work) {
    if (c.batch > 1) {
      c.batch = 1;
    } else if (c.kv_heads > 1) {
      c.q_heads /= c.kv_heads, c.kv_heads = 1;
    } else {
      (c.n_q > c.n_k / 4 ? c.n_q : c.n_k) /= 2;
    }
  }
  c.q_lengths.clear(), c.k_lengths.clear(), c.q_offsets.clear(), c.k_offsets.clear(), c.k_starts.clear();
  choose_sequences(random, c);
  constexpr Storage storages[] = {Storage::bhnd, Storage::bnhd, Storage::packed};
  c.q = c.k = c.v = c.out = random.pick(storages);
  if (random.chance(0.2)) c.out = Storage::gaps;
  c.mask_broadcast.k = c.bias_broadcast.k = false;
  c.weights = Weights::none;
  if (random.chance(0.7)) {  // by position alone, or with a single term
    c.scale = ScaleKind::standard;
    c.softcap.reset();
    c.mask = MaskKind::none, c.bias = BiasKind::none;
    c.alibi = false, c.dropout = 0;
    if (random.chance(0.6)) add_single_term(random, c);
  }
  if (random.chance(0.5)) c.statistics = c.heads = false;
  return c;
}

Case random_case_with_masking_bias(std::uint64_t seed, std::int64_t work) {
  Case c = random_case(seed, work);
  Generator random(seed, 0xB1A5);
  c.name += "_with_masking_bias";
  c.bias = random.pick(kMaskingBiases);
  c.sinks = random.chance(0.4);
  c.statistics = c.heads = true;
  return c;
}

}  // namespace keel::conformance
