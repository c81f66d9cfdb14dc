#include "conformance/factors.h"

namespace keel::conformance {
namespace {

void set_storage(Case& c, Storage storage) { c.q = c.k = c.v = c.out = storage; }

// Three fifths of the rows for the first entry, none for the second, the rest as they are.
std::vector<std::int64_t> lengths(std::int64_t batch, std::int64_t rows, std::int64_t shift) {
  std::vector<std::int64_t> values(static_cast<std::size_t>(batch), rows);
  for (std::size_t b = 0; b < values.size(); ++b) {
    if ((b + static_cast<std::size_t>(shift)) % 3 == 0) values[b] = rows * 3 / 5;
    if ((b + static_cast<std::size_t>(shift)) % 3 == 1) values[b] = 0;
  }
  return values;
}

// Four entries, one of them empty at `empty`.
std::vector<std::int64_t> offsets(std::int64_t rows, std::size_t empty) {
  std::vector<std::int64_t> values = {0, rows / 4, rows / 2, rows * 5 / 6, rows};
  values[empty + 1] = values[empty];
  values.back() = rows;
  return values;
}

Factor dtype_factor() {
  return {"dtype",
          {{"f64", [](Case& c) { c.dtype = DType::f64; }},
           {"f32", [](Case& c) { c.dtype = DType::f32; }},
           {"f16", [](Case& c) { c.dtype = DType::f16; }},
           {"bf16", [](Case& c) { c.dtype = DType::bf16; }}}};
}

Factor length_factor() {
  const auto lengths_of = [](std::int64_t n_q, std::int64_t n_k) {
    return [n_q, n_k](Case& c) { c.n_q = n_q, c.n_k = n_k; };
  };
  return {"lengths",
          {{"fewer_queries", lengths_of(7, 33)},
           {"equal", lengths_of(17, 17)},
           {"more_queries", lengths_of(33, 7)},
           {"decode", lengths_of(1, 65)},
           {"one_key", lengths_of(3, 1)}}};
}

Factor head_factor() {
  const auto heads = [](std::int64_t q, std::int64_t kv) {
    return [q, kv](Case& c) { c.q_heads = q, c.kv_heads = kv; };
  };
  return {"heads",
          {{"one", heads(1, 1)}, {"many", heads(3, 3)}, {"grouped", heads(4, 2)}, {"multi_query", heads(3, 1)}}};
}

Factor head_size_factor() {
  const auto size = [](std::int64_t d_k, std::int64_t d_v) {
    return [d_k, d_v](Case& c) { c.d_k = d_k, c.d_v = d_v; };
  };
  return {"head_size",
          {{"one", size(1, 1)},
           {"even", size(16, 16)},
           {"odd", size(7, 7)},
           {"wide_v", size(3, 17)},
           {"thin_v", size(33, 5)}}};
}

Factor storage_factor() {
  const auto all = [](Storage storage) { return [storage](Case& c) { set_storage(c, storage); }; };
  return {"storage",
          {{"bhnd", all(Storage::bhnd)},
           {"bnhd", all(Storage::bnhd)},
           {"packed", all(Storage::packed)},
           {"gaps", all(Storage::gaps)},
           {"transposed", all(Storage::transposed)},
           {"reversed", all(Storage::reversed)},
           {"mixed", [](Case& c) {
              c.q = Storage::bnhd, c.k = Storage::transposed, c.v = Storage::gaps, c.out = Storage::bhnd;
            }}}};
}

Factor scale_factor() {
  return {"scale",
          {{"standard", [](Case& c) { c.scale = ScaleKind::standard; }},
           {"number", [](Case& c) { c.scale = ScaleKind::number; }},
           {"per_head", [](Case& c) { c.scale = ScaleKind::per_head; }},
           {"per_query", [](Case& c) { c.scale = ScaleKind::per_query; }}}};
}

Factor softcap_factor() {
  return {"softcap", {{"none", [](Case&) {}}, {"two", [](Case& c) { c.softcap = 2.0; }}}};
}

Factor mask_factor() {
  const auto mask = [](MaskKind kind, Broadcast broadcast) {
    return [kind, broadcast](Case& c) { c.mask = kind, c.mask_broadcast = broadcast; };
  };
  return {"mask",
          {{"none", [](Case&) {}},
           {"full", mask(MaskKind::random, {})},
           {"over_heads", mask(MaskKind::random, {.h = true})},
           {"over_all_but_keys", mask(MaskKind::random, {.b = true, .h = true, .q = true})},
           {"over_keys", mask(MaskKind::random, {.h = true, .k = true})},
           {"by_stride", mask(MaskKind::random, {.b = true, .h = true, .by_stride = true})},
           {"one_row", mask(MaskKind::one_row, {.b = true, .h = true})},
           {"all", mask(MaskKind::all, {.b = true, .h = true, .q = true, .k = true})}}};
}

Factor bias_factor() {
  const auto bias = [](BiasKind kind, bool f32, Broadcast broadcast) {
    return [=](Case& c) { c.bias = kind, c.bias_f32 = f32, c.bias_broadcast = broadcast; };
  };
  const auto low = [](BiasKind kind, Broadcast broadcast) {
    return [=](Case& c) { c.bias = kind, c.bias_low = kLowest, c.bias_broadcast = broadcast; };
  };
  return {"bias",
          {{"none", [](Case&) {}},
           {"full", bias(BiasKind::normal, false, {})},
           {"full_f32", bias(BiasKind::normal, true, {})},
           {"over_batch", bias(BiasKind::normal, false, {.b = true})},
           {"over_all_but_keys", bias(BiasKind::normal, true, {.b = true, .h = true, .q = true})},
           {"by_stride", bias(BiasKind::normal, false, {.b = true, .k = true, .by_stride = true})},
           {"minus_inf", bias(BiasKind::minus_inf, false, {.h = true})},
           {"minus_1e30", bias(BiasKind::minus_1e30, true, {.b = true, .h = true})},
           {"lowest", low(BiasKind::scattered, {.h = true})},
           {"lowest_on_the_left", low(BiasKind::left_padding, {.h = true, .q = true})},
           {"lowest_on_the_right", low(BiasKind::right_padding, {.h = true, .q = true, .by_stride = true})}}};
}

Factor block_factor() {
  const auto blocks = [](BlockKind kind, std::int64_t rows, std::int64_t keys, Broadcast broadcast) {
    return [=](Case& c) { c.blocks = kind, c.block_rows = rows, c.block_keys = keys, c.block_broadcast = broadcast; };
  };
  return {"block_mask",
          {{"none", [](Case&) {}},
           {"random", blocks(BlockKind::random, 4, 8, {})},
           {"over_all", blocks(BlockKind::random, 5, 3, {.b = true, .h = true})},
           {"documents", blocks(BlockKind::documents, 16, 16, {.h = true})},
           {"strided", blocks(BlockKind::strided, 3, 11, {.b = true})}}};
}

Factor relative_factor() {
  const auto table = [](std::int64_t radius, bool shared) {
    return [=](Case& c) { c.relative_radius = radius, c.relative_shared = shared; };
  };
  return {"relative_bias",
          {{"none", [](Case&) {}},
           {"per_head", table(5, false)},
           {"shared", table(3, true)},
           {"wide", table(80, false)},
           {"one", table(0, false)}}};
}

Factor causal_factor() {
  return {"causal",
          {{"none", [](Case&) {}},
           {"top_left", [](Case& c) { c.causal = Causal::top_left; }},
           {"bottom_right", [](Case& c) { c.causal = Causal::bottom_right; }}}};
}

Factor window_factor() {
  return {"window",
          {{"none", [](Case&) {}},
           {"left", [](Case& c) { c.window = {.left = 3}; }},
           {"right", [](Case& c) { c.window = {.right = 2}; }},
           {"both", [](Case& c) { c.window = {.left = 4, .right = 1}; }},
           {"zero", [](Case& c) { c.window = {.left = 0, .right = 0}; }}}};
}

Factor sequence_factor() {
  return {"sequences",
          {{"none", [](Case& c) { c.batch = 2; }},
           {"k_lengths", [](Case& c) { c.batch = 3, c.k_lengths = lengths(c.batch, c.n_k, 0); }},
           {"q_lengths", [](Case& c) { c.batch = 2, c.q_lengths = lengths(c.batch, c.n_q, 0); }},
           {"both_lengths",
            [](Case& c) {
              c.batch = 4, c.q_lengths = lengths(c.batch, c.n_q, 1), c.k_lengths = lengths(c.batch, c.n_k, 2);
            }},
           {"k_starts",
            [](Case& c) {
              c.batch = 3, c.k_starts = {c.n_k / 3, c.n_k, 0}, c.k_lengths = {c.n_k, c.n_k, c.n_k / 2};
            }},
           {"packed", [](Case& c) { c.batch = 1, c.q_offsets = offsets(c.n_q, 1), c.k_offsets = offsets(c.n_k, 2); }}}};
}

Factor switch_factor(const char* name, std::function<void(Case&)> on) {
  return {name, {{"off", [](Case&) {}}, {"on", std::move(on)}}};
}

Factor alibi_factor() {
  return {"alibi", {{"off", [](Case&) {}}, {"on", [](Case& c) { c.alibi = true; }}, {"per_entry", [](Case& c) {
                                                                                       c.alibi = c.alibi_per_entry =
                                                                                           true;
                                                                                     }}}};
}

Factor dropout_factor() {
  return {"dropout",
          {{"none", [](Case&) {}},
           {"third", [](Case& c) { c.dropout = 1.0 / 3.0, c.dropout_seed = 0x1234567890ABCDEFu; }},
           {"all", [](Case& c) { c.dropout = 1.0; }}}};
}

Factor value_factor() {
  const auto values = [](Values kind) { return [kind](Case& c) { c.values = kind; }; };
  return {"values",
          {{"normal", values(Values::normal)},
           {"flat", values(Values::flat)},
           {"huge", values(Values::huge)},
           {"extreme", values(Values::extreme)},
           {"overflowing", values(Values::overflowing)},
           {"nan_hidden", values(Values::nan_hidden)},
           {"nan_visible", values(Values::nan_visible)},
           {"inf_visible", [](Case& c) { c.values = Values::inf_visible; }}}};
}

Factor output_factor() {
  return {"outputs",
          {{"out", [](Case&) {}},
           {"lse", [](Case& c) { c.lse = true; }},
           {"statistics", [](Case& c) { c.statistics = true; }},
           {"weights", [](Case& c) { c.weights = Weights::q_dtype; }},
           {"weights_f32", [](Case& c) { c.weights = Weights::f32; }},
           {"heads", [](Case& c) { c.heads = true; }},
           {"raw_scores", [](Case& c) { c.scores = ScoreStage::raw; }},
           {"capped_scores", [](Case& c) { c.scores = ScoreStage::capped, c.scores_f32 = true; }},
           {"masked_scores", [](Case& c) { c.scores = ScoreStage::masked; }},
           {"key_sums", [](Case& c) { c.key_sums = true; }},
           {"last_key_sums", [](Case& c) { c.key_sums = true, c.key_sum_rows = 4; }},
           {"everything",
            [](Case& c) { c.statistics = true, c.weights = Weights::f32, c.heads = true, c.key_sums = true; }}}};
}

}  // namespace

const std::vector<Factor>& factors() {
  static const std::vector<Factor> list = {
      dtype_factor(),   length_factor(),   head_factor(),     head_size_factor(),
      storage_factor(), scale_factor(),    softcap_factor(),  mask_factor(),
      bias_factor(),    block_factor(),    relative_factor(), causal_factor(),
      window_factor(),  sequence_factor(), alibi_factor(),    switch_factor("sinks", [](Case& c) { c.sinks = true; }),
      dropout_factor(), value_factor(),    output_factor(),   switch_factor("dlse", [](Case& c) { c.dlse = true; })};
  return list;
}

std::string label(const Factor& factor, const Level& level) { return factor.name + "=" + level.name; }

}  // namespace keel::conformance
