#include "conformance/table.h"

#include <stdexcept>

#include "conformance/factors.h"

namespace keel::conformance {
namespace {

constexpr DType kFloats[] = {DType::f64, DType::f32, DType::f16, DType::bf16};

// A case with every row statistic and key_sums, from sizes B, H_q, H_kv, N_q, N_k, d_k, d_v.
Case sized(std::string name, DType dtype, const std::array<std::int64_t, 7>& s) {
  Case c;
  c.name = std::move(name) + "_" + name_of(dtype);
  c.dtype = dtype;
  c.batch = s[0], c.q_heads = s[1], c.kv_heads = s[2], c.n_q = s[3], c.n_k = s[4], c.d_k = s[5], c.d_v = s[6];
  c.statistics = c.key_sums = true;
  return c;
}

class List {
 public:
  void add(Case c) {
    c.seed = 1 + cases_.size();
    cases_.push_back(std::move(c));
  }
  template <class Change>
  void add(Case c, Change change) {
    change(c);
    add(std::move(c));
  }
  std::vector<Case> take() { return std::move(cases_); }

 private:
  std::vector<Case> cases_;
};

void add_sizes(List& list) {
  for (const DType dtype : kFloats) {
    list.add(sized("one_of_everything", dtype, {1, 1, 1, 1, 1, 1, 1}));
    list.add(sized("three_tokens", dtype, {1, 1, 1, 3, 3, 2, 2}));
    list.add(sized("odd_sizes", dtype, {2, 3, 1, 17, 33, 7, 5}));
    list.add(sized("keys_257", dtype, {1, 1, 1, 3, 257, 8, 8}));
    list.add(sized("queries_129", dtype, {1, 1, 1, 129, 9, 8, 8}));
    list.add(sized("head_size_100", dtype, {1, 1, 1, 9, 13, 100, 100}));
    list.add(sized("head_size_256", dtype, {1, 2, 1, 5, 9, 256, 256}));
  }
  for (const std::int64_t n : {2, 15, 16, 31, 32, 63, 64, 65, 96, 100, 127, 128, 192, 255, 256}) {
    list.add(sized("square_" + std::to_string(n), DType::f32, {1, 1, 1, n, n, 8, 8}));
  }
  for (const std::int64_t d : {2, 3, 4, 5, 8, 12, 15, 16, 24, 31, 32, 48, 63, 64, 65, 80, 96, 128, 160, 192}) {
    list.add(sized("head_size_" + std::to_string(d), DType::f32, {1, 1, 1, 11, 19, d, d}));
  }
}

void add_empty(List& list) {
  for (const DType dtype : {DType::f32, DType::bf16}) {
    list.add(sized("no_keys", dtype, {2, 2, 1, 5, 0, 4, 3}), [](Case& c) { c.weights = Weights::f32, c.heads = true; });
    list.add(sized("no_queries", dtype, {2, 2, 1, 0, 5, 4, 3}), [](Case& c) { c.heads = true; });
    list.add(sized("no_batch", dtype, {0, 2, 1, 5, 5, 4, 3}));
    list.add(sized("no_heads", dtype, {2, 0, 0, 5, 5, 4, 3}));
    list.add(sized("no_query_heads", dtype, {2, 0, 1, 5, 5, 4, 3}));
    list.add(sized("no_keys_sinks_bias", dtype, {2, 2, 1, 5, 0, 4, 3}), [](Case& c) {
      c.sinks = true, c.bias = BiasKind::normal, c.bias_broadcast = {.k = true}, c.scale = ScaleKind::per_head;
    });
    list.add(sized("no_queries_sinks_bias", dtype, {2, 2, 1, 0, 5, 4, 3}), [](Case& c) {
      c.sinks = true, c.bias = BiasKind::normal, c.bias_broadcast = {.b = true, .q = true};
      c.scale = ScaleKind::per_head;
    });
    list.add(sized("packed_without_entries", dtype, {1, 2, 1, 0, 0, 4, 3}),
             [](Case& c) { c.q_offsets = {0}, c.k_offsets = {0}; });
    list.add(sized("packed_of_empty_entries", dtype, {1, 2, 1, 6, 4, 4, 3}), [](Case& c) {
      c.q_offsets = {0, 0, 6, 6, 6}, c.k_offsets = {0, 4, 4, 4, 4}, c.heads = true;
    });
    list.add(sized("packed_ending_without_queries", dtype, {1, 2, 2, 2, 5, 4, 3}), [](Case& c) {
      c.q_offsets = {0, 2, 2}, c.k_offsets = {0, 0, 5}, c.mask = MaskKind::random;
    });
  }
}

// Both alignments, with fewer, as many and more queries than keys; each with every window.
void add_positions(List& list) {
  const std::pair<const char*, Causal> alignments[] = {
      {"plain", Causal::none}, {"top_left", Causal::top_left}, {"bottom_right", Causal::bottom_right}};
  const std::pair<const char*, Window> windows[] = {{"", {}},
                                                    {"_left", {.left = 5}},
                                                    {"_right", {.right = 4}},
                                                    {"_both", {.left = 6, .right = 2}},
                                                    {"_zero", {.left = 0, .right = 0}},
                                                    {"_wide", {.left = 1000, .right = 1000}}};
  const std::pair<std::int64_t, std::int64_t> lengths[] = {{9, 21}, {21, 21}, {21, 9}};
  for (const auto& [alignment, causal] : alignments) {
    for (const auto& [suffix, window] : windows) {
      for (const auto& [n_q, n_k] : lengths) {
        const std::string name =
            std::string(alignment) + suffix + "_" + std::to_string(n_q) + "x" + std::to_string(n_k);
        Case c = sized(name, DType::f32, {1, 2, 1, n_q, n_k, 8, 8});
        c.causal = causal;
        c.window = window;
        c.values = Values::nan_hidden;
        list.add(c);
      }
    }
  }
}

// Each subset of the four dimensions, for mask and bias.
void add_broadcasts(List& list) {
  for (int bits = 0; bits < 16; ++bits) {
    const Broadcast over = {(bits & 1) != 0, (bits & 2) != 0, (bits & 4) != 0, (bits & 8) != 0, false};
    const std::string suffix = std::to_string(bits);
    list.add(sized("mask_broadcast_" + suffix, DType::f32, {2, 2, 2, 6, 11, 4, 4}),
             [&](Case& c) { c.mask = MaskKind::random, c.mask_broadcast = over; });
    list.add(sized("bias_broadcast_" + suffix, DType::f32, {2, 2, 2, 6, 11, 4, 4}),
             [&](Case& c) { c.bias = BiasKind::normal, c.bias_broadcast = over; });
    list.add(sized("bias_broadcast_by_stride_" + suffix, DType::bf16, {2, 2, 2, 6, 11, 4, 4}), [&](Case& c) {
      c.bias = BiasKind::minus_inf, c.bias_f32 = bits % 2 == 0, c.bias_broadcast = over;
      c.bias_broadcast.by_stride = true;
    });
  }
}

void add_values(List& list) {
  const std::pair<const char*, Values> kinds[] = {{"flat", Values::flat},
                                                  {"huge", Values::huge},
                                                  {"extreme", Values::extreme},
                                                  {"overflowing", Values::overflowing},
                                                  {"nan_hidden", Values::nan_hidden},
                                                  {"nan_visible", Values::nan_visible},
                                                  {"inf_visible", Values::inf_visible}};
  for (const auto& [name, values] : kinds) {
    for (const DType dtype : kFloats) {
      Case c = sized(std::string("values_") + name, dtype, {2, 2, 1, 19, 37, 16, 8});
      c.values = values;
      c.mask = MaskKind::one_row;
      c.heads = true;
      c.weights = Weights::q_dtype;
      list.add(c);
    }
  }
  const std::pair<const char*, double> caps[] = {
      {"no_float_holds", 1e300}, {"no_float_is_below", 1e-300}, {"leaves_double", 1.7e308}, {"is_subnormal", 1e-310}};
  for (const auto& [name, cap] : caps) {
    for (const DType dtype : {DType::f32, DType::f64}) {
      Case c = sized(std::string("softcap_that_") + name, dtype, {1, 2, 1, 7, 37, 16, 8});
      c.softcap = cap;
      if (cap < 1.0) c.values = Values::flat;  // 0 by it is still 0
      list.add(c);
    }
  }
  list.add(sized("minus_1e30_is_not_masked", DType::f32, {1, 2, 2, 7, 9, 4, 4}),
           [](Case& c) { c.bias = BiasKind::minus_1e30, c.weights = Weights::q_dtype; });
  list.add(sized("everything_masked", DType::f32, {2, 2, 1, 9, 9, 4, 4}),
           [](Case& c) { c.mask = MaskKind::all, c.weights = Weights::f32, c.heads = true, c.sinks = true; });
  list.add(sized("everything_masked_and_a_bias", DType::f32, {2, 2, 1, 9, 9, 4, 4}), [](Case& c) {
    c.mask = MaskKind::all, c.mask_broadcast = {.h = true, .q = true}, c.bias = BiasKind::normal;
  });
}

// Sizes that cross every tile boundary, with what changes how tiles are classed.
void add_large(List& list) {
  list.add(sized("large", DType::f32, {1, 2, 1, 300, 517, 64, 64}));
  list.add(sized("large_causal", DType::f32, {1, 1, 1, 641, 641, 32, 32}),
           [](Case& c) { c.causal = Causal::top_left; });
  list.add(sized("large_cache", DType::f32, {1, 2, 1, 130, 700, 16, 16}),
           [](Case& c) { c.causal = Causal::bottom_right, c.q = c.out = Storage::bnhd, c.k = c.v = Storage::gaps; });
  list.add(sized("large_window", DType::f32, {1, 1, 1, 600, 600, 16, 24}),
           [](Case& c) { c.causal = Causal::bottom_right, c.window = {.left = 70}, c.values = Values::nan_hidden; });
  list.add(sized("large_mask_blocks", DType::f32, {1, 1, 1, 290, 530, 16, 16}),
           [](Case& c) { c.mask = MaskKind::blocks, c.mask_broadcast = {.b = true, .h = true}; });
  list.add(sized("large_lengths", DType::f32, {3, 1, 1, 200, 520, 16, 16}), [](Case& c) {
    c.q_lengths = {200, 97, 0}, c.k_lengths = {1, 513, 300}, c.causal = Causal::bottom_right, c.alibi = true;
    c.values = Values::nan_hidden;
  });
  list.add(sized("large_packed", DType::f32, {1, 2, 1, 600, 610, 16, 16}), [](Case& c) {
    c.q_offsets = {0, 1, 98, 98, 500, 600}, c.k_offsets = {0, 60, 61, 200, 580, 610};
    c.causal = Causal::bottom_right, c.sinks = true, c.dropout = 0.2, c.dropout_seed = 7, c.heads = true;
  });
  list.add(sized("large_decode", DType::f32, {2, 4, 2, 1, 1500, 64, 64}), [](Case& c) {
    c.k_lengths = {1500, 1025}, c.causal = Causal::bottom_right;
  });
  list.add(sized("large_decode", DType::bf16, {1, 8, 1, 2, 1300, 64, 32}));
  list.add(sized("large_grouped", DType::f16, {1, 4, 2, 150, 400, 64, 64}),
           [](Case& c) { c.causal = Causal::bottom_right, c.softcap = 5.0; });
  list.add(sized("large_bias", DType::bf16, {1, 2, 2, 200, 300, 48, 48}),
           [](Case& c) { c.bias = BiasKind::minus_inf, c.bias_broadcast = {.b = true}; });
  // dbias is a sum over some of batch, heads and rows; entries of different lengths come to different blocks of it.
  const std::pair<const char*, Broadcast> sums[] = {{"large_bias_shared_by_entries", {.b = true}},
                                                    {"large_bias_shared_by_heads", {.h = true}},
                                                    {"large_bias_shared_by_all", {.b = true, .h = true}},
                                                    {"large_bias_shared_by_rows", {.q = true}},
                                                    {"large_bias_of_keys", {.b = true, .h = true, .q = true}}};
  for (const auto& [name, broadcast] : sums) {
    for (const DType dtype : {DType::bf16, DType::f16}) {
      Case c = sized(name, dtype, {3, 4, 2, 150, 200, 72, 64});
      c.bias = BiasKind::normal, c.bias_broadcast = broadcast, c.bias_f32 = dtype == DType::f16;
      if (dtype == DType::bf16) c.softcap = 5.0, c.causal = Causal::bottom_right;
      if (dtype == DType::f16) c.q_lengths = {60, 150, 129}, c.k_lengths = {200, 0, 70}, c.dropout = 0.2;
      list.add(c);
    }
  }
  list.add(sized("large_bias_of_whole_panels", DType::f32, {1, 4, 2, 130, 576, 32, 32}),
           [](Case& c) { c.bias = BiasKind::normal, c.mask = MaskKind::random; });
  list.add(sized("large_mask_of_whole_panels", DType::f64, {1, 2, 2, 70, 320, 16, 16}),
           [](Case& c) { c.mask = MaskKind::random, c.mask_broadcast = {.h = true}; });
  for (const DType dtype : kFloats) {
    list.add(sized("large_documents", dtype, {1, 4, 2, 300, 300, 24, 16}), [](Case& c) {
      c.blocks = BlockKind::documents, c.block_rows = 64, c.block_keys = 64, c.block_broadcast = {.b = true, .h = true};
      c.values = Values::nan_hidden;
    });
    list.add(sized("large_tiles", dtype, {1, 2, 1, 150, 700, 16, 16}), [](Case& c) {
      c.blocks = BlockKind::random, c.block_rows = 32, c.block_keys = 48, c.causal = Causal::bottom_right;
    });
    list.add(sized("large_relative_bias", dtype, {2, 2, 2, 150, 700, 16, 16}),
             [](Case& c) { c.relative_radius = 37, c.bias_f32 = true; });
  }
  list.add(sized("large_relative_bias_causal", DType::f32, {1, 4, 2, 500, 500, 32, 32}),
           [](Case& c) { c.relative_radius = 128, c.causal = Causal::top_left, c.mask = MaskKind::random; });
  list.add(sized("large_sinks", DType::f64, {1, 2, 1, 200, 400, 16, 16}),
           [](Case& c) { c.sinks = true, c.alibi = true, c.scale = ScaleKind::per_query, c.dlse = true; });
  list.add(sized("large_huge_scores", DType::f32, {1, 1, 1, 200, 700, 64, 16}),
           [](Case& c) { c.values = Values::huge; });
  list.add(sized("large_wide_heads", DType::f32, {1, 1, 1, 100, 260, 256, 200}));
}

// Few rows, all NaN: dropout keeps no weight of some keys, and 0 · NaN is NaN.
void add_dropped(List& list) {
  for (const DType dtype : {DType::bf16, DType::f16}) {
    for (const std::int64_t d : {64, 200}) {
      list.add(sized("dropped_weights_of_nan_rows_d" + std::to_string(d), dtype, {1, 2, 1, 2, 70, d, d}),
               [](Case& c) { c.values = Values::nan_visible, c.dropout = 0.7, c.dropout_seed = 5; });
    }
  }
}

std::vector<Case> make_table() {
  List list;
  add_sizes(list);
  add_empty(list);
  add_positions(list);
  add_broadcasts(list);
  add_values(list);
  add_large(list);
  std::vector<Case> cases = list.take();
  for (Case& c : all_pairs()) cases.push_back(std::move(c));
  List last;
  add_dropped(last);
  for (Case& c : last.take()) cases.push_back(std::move(c));
  return cases;
}

}  // namespace

const std::vector<Case>& table() {
  static const std::vector<Case> cases = make_table();
  return cases;
}

const Case& case_named(const std::string& name) {
  for (const Case& c : table()) {
    if (c.name == name) return c;
  }
  throw std::out_of_range("no conformance case is named " + name);
}

}  // namespace keel::conformance
