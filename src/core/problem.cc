#include "core/problem.h"

#include <algorithm>
#include <array>

#include "core/checker.h"
#include "core/inputs.h"

namespace keel {
namespace {

constexpr std::int64_t kMaxPosition = std::int64_t{1} << 40;
constexpr std::int64_t kMaxDropoutSize = std::int64_t{1} << 32;  // the range of the random number counter

void check_tensors(Checker& check, Problem& p) {
  check.floating("q", p.q);
  check.input("q", p.q);
  check.input("k", p.k);
  check.input("v", p.v);
  p.dtype = p.q.dtype;
  p.batch = p.q.shape[0];
  p.q_heads = p.q.shape[1];
  p.n_q = p.q.shape[2];
  p.d_k = p.q.shape[3];
  p.kv_heads = p.k.shape[1];
  p.n_k = p.k.shape[2];
  p.d_v = p.v.shape[3];
  check.dtype("k", p.k, {p.dtype});
  check.dtype("v", p.v, {p.dtype});
  if (p.d_k < 1) check.refuse("q: expected a head size d_k of at least 1, got ", p.d_k);
  if (p.d_v < 1) check.refuse("v: expected a head size d_v of at least 1, got ", p.d_v);
  if (p.k.shape[0] != p.batch) check.refuse("k: expected batch ", p.batch, " as in q, got ", p.k.shape[0]);
  if (p.k.shape[3] != p.d_k) check.refuse("k: expected d_k ", p.d_k, " as in q, got ", p.k.shape[3]);
  if (p.v.shape[0] != p.batch) check.refuse("v: expected batch ", p.batch, " as in q, got ", p.v.shape[0]);
  if (p.v.shape[1] != p.kv_heads) check.refuse("v: expected ", p.kv_heads, " heads as in k, got ", p.v.shape[1]);
  if (p.v.shape[2] != p.n_k) check.refuse("v: expected n_k ", p.n_k, " as in k, got ", p.v.shape[2]);
  if (p.kv_heads == 0 ? p.q_heads != 0 : p.q_heads % p.kv_heads != 0) {
    check.refuse("k: expected a number of heads that divides the ", p.q_heads, " of q, got ", p.kv_heads);
  }
}

void check_lengths(Checker& check, const char* name, const ListView& lengths, std::int64_t batch, std::int64_t most) {
  if (lengths.empty()) return;
  if (lengths.size() != batch) {
    check.refuse(name, ": expected one length per batch entry (", batch, "), got ", lengths.size());
  }
  check.list(name, lengths);
  if (lengths.device != Device{}) return;  // read only there
  for (std::int64_t e = 0; e < batch; ++e) {
    if (lengths[e] < 0 || lengths[e] > most) {
      check.refuse(name, ": expected lengths from 0 to ", most, ", got ", lengths[e]);
    }
  }
}

void check_offsets(Checker& check, const char* name, const ListView& offsets, std::int64_t rows) {
  check.list(name, offsets);
  if (offsets.device != Device{}) return;
  if (offsets[0] != 0) check.refuse(name, ": expected the first offset to be 0, got ", offsets[0]);
  for (std::int64_t e = 1; e < offsets.size(); ++e) {
    if (offsets[e] < offsets[e - 1]) {
      check.refuse(name, ": expected non-decreasing offsets, got ", offsets[e], " after ", offsets[e - 1]);
    }
  }
  const std::int64_t last = offsets[offsets.size() - 1];
  if (last != rows) {
    check.refuse(name, ": expected the last offset to be the number of rows ", rows, ", got ", last);
  }
}

// The rows of the whole, of which `rows` from `first` on are here; `given` as in Origin.
std::int64_t whole_rows(Checker& check, const char* name, std::int64_t first, std::int64_t given, std::int64_t rows) {
  if (first < 0 || first > kMaxPosition) {
    check.refuse("origin.", name, ": expected a position from 0 to 2^40, got ", first);
  }
  const char* const whole = name[0] == 'q' ? "n_q" : "n_k";
  if (given != 0 && (given < first + rows || given > kMaxPosition)) {
    check.refuse("origin.", whole, ": expected 0, or from origin.", name, " + ", rows, " = ", first + rows,
                 " to 2^40, got ", given);
  }
  return given != 0 ? given : first + rows;
}

void check_sequences(Checker& check, Problem& p) {
  const Options& o = p.options;
  Sequences& s = p.sequences;  // field by field: a copy of the whole would wait for each store
  s.batch = p.batch;
  s.n_q = p.n_q;
  s.n_k = p.n_k;
  s.first_query = o.origin.query;
  s.first_key = o.origin.key;
  s.whole_q = whole_rows(check, "query", o.origin.query, o.origin.n_q, p.n_q);
  s.whole_k = whole_rows(check, "key", o.origin.key, o.origin.n_k, p.n_k);
  s.q_lengths = o.q_lengths;
  s.k_lengths = o.k_lengths;
  s.q_offsets = o.q_offsets;
  s.k_offsets = o.k_offsets;
  s.k_starts = o.k_starts;
  s.top_left = o.causal == Causal::top_left;
  s.window_left = o.window.left;
  s.window_right = o.causal == Causal::none ? o.window.right : 0;
  check_lengths(check, "q_lengths", o.q_lengths, p.batch, s.whole_q);
  check_lengths(check, "k_lengths", o.k_lengths, p.batch, s.whole_k);
  check_lengths(check, "k_starts", o.k_starts, p.batch, s.whole_k);
  if (o.q_offsets.empty() && o.k_offsets.empty()) return;
  if (o.q_offsets.size() != o.k_offsets.size()) {
    check.refuse("k_offsets: expected as many offsets as in q_offsets (", o.q_offsets.size(), "), got ",
                 o.k_offsets.size());
  }
  if (!o.q_lengths.empty()) check.refuse("q_lengths: expected none with q_offsets, got ", o.q_lengths.size());
  if (!o.k_lengths.empty()) check.refuse("k_lengths: expected none with k_offsets, got ", o.k_lengths.size());
  if (!o.k_starts.empty()) check.refuse("k_starts: expected none with k_offsets, got ", o.k_starts.size());
  if (p.batch != 1) check.refuse("q_offsets: expected batch 1 for a packed batch, got ", p.batch);
  check_offsets(check, "q_offsets", o.q_offsets, s.whole_q);
  check_offsets(check, "k_offsets", o.k_offsets, s.whole_k);
}

void check_scale(Checker& check, Problem& p) {
  Options& o = p.options;
  if (o.scale && !std::isfinite(*o.scale)) check.refuse("scale: expected a finite number, got ", *o.scale);
  p.scale = o.scale.value_or(1.0 / std::sqrt(static_cast<double>(p.d_k)));
  if (!o.scale_tensor.given()) return;
  if (o.scale) check.refuse("scale_tensor: expected none with the number scale, got both");
  check.floating("scale_tensor", o.scale_tensor);
  check.input("scale_tensor", o.scale_tensor);
  check.broadcast<3>("scale_tensor", o.scale_tensor, {p.batch, p.q_heads, p.n_q}, "(B, H_q, N_q)");
}

// The lists of a block mask: where they begin, that their blocks ascend, and which tiles they name.
void check_blocks(Checker& check, const BlockMask& mask, std::int64_t key_blocks) {
  const BlockTiles read(mask);
  const std::int64_t items = mask.blocks.shape[0], last = mask.offsets.shape[2] - 1;
  for (std::int64_t b = 0; b < mask.offsets.shape[0]; ++b) {
    for (std::int64_t h = 0; h < mask.offsets.shape[1]; ++h) {
      const std::int64_t* const at = read.offsets + b * read.batch + h * read.head;
      for (std::int64_t x = 0; x <= last; ++x) {
        const std::int64_t begin = at[x * read.step], low = x == 0 ? 0 : at[(x - 1) * read.step];
        if (begin < low || begin > items) {
          check.refuse("block_mask.offsets: expected non-decreasing offsets from 0 to ", items, ", got ", begin,
                       " after ", low);
        }
        for (std::int64_t y = low; x > 0 && y < begin; ++y) {
          const std::int64_t block = read.block(y), least = y == low ? 0 : read.block(y - 1) + 1;
          if (block < least || block >= key_blocks) {
            check.refuse("block_mask.blocks: expected blocks of keys that ascend from ", least, " to ", key_blocks - 1,
                         ", got ", block, " in entry ", y);
          }
        }
      }
    }
  }
  for (std::int64_t y = 0; y < items; ++y) {
    const std::int64_t tile = read.blocks[y * read.item + read.field];
    if (tile < -1 || tile >= mask.tiles.shape[0]) {
      check.refuse("block_mask.blocks: expected a tile from 0 to ", mask.tiles.shape[0] - 1, ", or -1 for a full one, ",
                   "got ", tile, " in entry ", y);
    }
  }
}

void check_block_mask(Checker& check, const Problem& p) {
  if (p.options.block_mask == nullptr) return;
  const BlockMask& mask = *p.options.block_mask;
  check.dtype("block_mask.offsets", mask.offsets, {DType::i64});
  check.dtype("block_mask.blocks", mask.blocks, {DType::i64});
  check.dtype("block_mask.tiles", mask.tiles, {DType::boolean});
  check.input("block_mask.offsets", mask.offsets);
  check.input("block_mask.blocks", mask.blocks);
  check.input("block_mask.tiles", mask.tiles);
  const auto [count, rows, keys] = mask.tiles.shape;
  if (rows < 1 || keys < 1) {
    check.refuse("block_mask.tiles: expected tiles of at least 1 row and 1 key, got shape ", text_of(mask.tiles.shape));
  }
  if (mask.blocks.shape[1] != 2) {
    check.refuse("block_mask.blocks: expected shape (L, 2), got ", text_of(mask.blocks.shape));
  }
  const std::array<std::int64_t, 3> full = {p.batch, p.q_heads, (p.n_q + rows - 1) / rows + 1};
  const auto& given = mask.offsets.shape;
  if ((given[0] != full[0] && given[0] != 1) || (given[1] != full[1] && given[1] != 1) || given[2] != full[2]) {
    check.refuse("block_mask.offsets: expected shape (B, H_q, X + 1) = ", text_of(full), " with X = ⌈", p.n_q, "/",
                 rows, "⌉ blocks of queries, or 1 for B or H_q, got ", text_of(given));
  }
  const bool here = mask.offsets.data != nullptr && (mask.blocks.data != nullptr || mask.blocks.shape[0] == 0);
  if (here && p.device == Device{}) check_blocks(check, mask, (p.n_k + keys - 1) / keys);
}

void check_relative_bias(Checker& check, Problem& p) {
  TableView& table = p.options.relative_bias;
  if (!table.given()) return;
  check.dtype("relative_bias", table, {p.dtype, DType::f32});
  check.input("relative_bias", table);
  const auto [heads, distances] = table.shape;
  if ((heads != p.q_heads && heads != 1) || distances % 2 != 1) {
    check.refuse("relative_bias: expected shape (", p.q_heads, ", 2R + 1) or (1, 2R + 1), one value per distance, got ",
                 text_of(table.shape));
  }
  if (heads == 1) table.strides[0] = 0;
  table.shape[0] = p.q_heads;
}

void check_masks(Checker& check, Problem& p) {
  Options& o = p.options;
  const std::array<std::int64_t, 4> scores = {p.batch, p.q_heads, p.n_q, p.n_k};
  if (o.mask.given()) {
    check.dtype("mask", o.mask, {DType::boolean});
    check.input("mask", o.mask);
    check.broadcast("mask", o.mask, scores, "(B, H_q, N_q, N_k)");
  }
  if (o.bias.given()) {
    check.dtype("bias", o.bias, {p.dtype, DType::f32});
    check.input("bias", o.bias);
    check.broadcast("bias", o.bias, scores, "(B, H_q, N_q, N_k)");
  }
  if (o.causal != Causal::none && o.causal != Causal::top_left && o.causal != Causal::bottom_right) {
    check.refuse("causal: expected none, top_left or bottom_right, got code ", static_cast<int>(o.causal));
  }
  if (o.order != Order::fixed && o.order != Order::free) {
    check.refuse("order: expected fixed or free, got code ", static_cast<int>(o.order));
  }
  if (o.window.left < 0) check.refuse("window.left: expected at least 0 (or kUnbounded), got ", o.window.left);
  if (o.window.right < 0) check.refuse("window.right: expected at least 0 (or kUnbounded), got ", o.window.right);
}

void check_heads(Checker& check, const char* name, const HeadView& view, std::int64_t heads) {
  if (!view.given()) return;
  check.floating(name, view);
  check.input(name, view);
  check.shape<1>(name, view, {heads}, "(H_q)");
}

// One slope per head, for all batch entries or for each.
void check_slopes(Checker& check, Problem& p) {
  SlopeView& x = p.options.alibi;
  if (!x.given()) return;
  check.floating("alibi", x);
  check.input("alibi", x);
  const bool shared = x.shape[0] == 1;
  if (x.shape[1] != p.q_heads || (!shared && x.shape[0] != p.batch)) {
    check.refuse("alibi: expected shape (H_q) = (", p.q_heads, ") or (B, H_q) = (", p.batch, ", ", p.q_heads, "), got ",
                 shared && x.strides[0] == 0 ? text_of(std::array{x.shape[1]}) : text_of(x.shape));
  }
  if (shared) x.strides[0] = 0;
  x.shape[0] = p.batch;
}

void check_rest(Checker& check, Problem& p) {
  const Options& o = p.options;
  if (o.softcap && !(std::isfinite(*o.softcap) && *o.softcap > 0)) {
    check.refuse("softcap: expected a positive finite number, got ", *o.softcap);
  }
  check_slopes(check, p);
  check_heads(check, "sinks", o.sinks, p.q_heads);
  if (!(o.dropout >= 0.0 && o.dropout <= 1.0)) check.refuse("dropout: expected from 0 to 1, got ", o.dropout);
  if (o.dropout > 0.0 &&
      std::max({p.entries(), p.q_heads, p.sequences.whole_q, p.sequences.whole_k}) > kMaxDropoutSize) {
    check.refuse("dropout: expected sizes of at most 2^32 with dropout, got q ", text_of(p.q.shape), ", k ",
                 text_of(p.k.shape), " of ", p.sequences.whole_q, " and ", p.sequences.whole_k, " rows in total");
  }
  if (o.threads < 0) check.refuse("threads: expected at least 0, got ", o.threads);
}

void check_outputs(Checker& check, const Problem& p) {
  const Outputs& o = p.outputs;
  const std::array<std::int64_t, 3> rows = {p.batch, p.q_heads, p.n_q};
  const auto check_given = [&](const char* name, const MutableRowView& view, DType dtype) {
    check.dtype(name, view, {dtype});
    check.output(name, view);
    check.shape(name, view, rows, "(B, H_q, N_q)");
  };
  const auto check_rows = [&](const char* name, const MutableRowView& view, DType dtype) {
    if (view.given()) check_given(name, view, dtype);
  };
  const DType accumulation = accumulation_dtype(p.dtype);
  check_rows("lse", o.lse, accumulation);
  check_rows("max_logit", o.max_logit, accumulation);
  check_rows("entropy", o.entropy, accumulation);
  check_rows("max_weight", o.max_weight, accumulation);
  check_rows("logit_mean", o.logit_mean, accumulation);
  check_rows("logit_var", o.logit_var, accumulation);
  check_rows("visible", o.visible, DType::i64);
  check_rows("logit_count", o.logit_count, DType::i64);
  if (o.weights.given()) {
    check.dtype("weights", o.weights, {p.dtype, DType::f32});
    check.output("weights", o.weights);
    check.shape<4>("weights", o.weights, {p.batch, p.q_heads, p.n_q, p.n_k}, "(B, H_q, N_q, N_k)");
  }
  if (o.key_sums.given()) {
    check.dtype("key_sums", o.key_sums, {accumulation});
    check.output("key_sums", o.key_sums);
    check.shape<3>("key_sums", o.key_sums, {p.batch, p.q_heads, p.n_k}, "(B, H_q, N_k)");
  }
  if (o.scores.given()) {
    check.dtype("scores", o.scores, {p.dtype, DType::f32});
    check.output("scores", o.scores);
    check.shape<4>("scores", o.scores, {p.batch, p.q_heads, p.n_q, p.n_k}, "(B, H_q, N_q, N_k)");
  }
  if (o.score_stage > ScoreStage::masked) {
    check.refuse("score_stage: expected raw, capped or masked, got code ", static_cast<int>(o.score_stage));
  }
  if (o.key_sum_rows < 0) check.refuse("key_sum_rows: expected at least 0, got ", o.key_sum_rows);
  if (!o.heads.empty()) {
    std::int64_t expected = 0;
    if (__builtin_mul_overflow(p.entries(), p.q_heads, &expected) || std::ssize(o.heads) != expected) {
      check.refuse("heads: expected ", p.entries(), " entries × ", p.q_heads, " heads, got ", o.heads.size());
    }
    if (o.heads.data() == nullptr) check.refuse("heads: expected a pointer to ", o.heads.size(), " values, got null");
    check.written_list("heads", o.heads);
  }
  if (!(o.saturation_threshold >= 0.0 && o.saturation_threshold <= 1.0)) {
    check.refuse("saturation_threshold: expected from 0 to 1, got ", o.saturation_threshold);
  }
}

}  // namespace

void check_inputs(Checker& check, Problem& p) {
  check_tensors(check, p);
  check_masks(check, p);
  check_block_mask(check, p);
  check_relative_bias(check, p);
  check_sequences(check, p);
  check_scale(check, p);
  check_rest(check, p);
}

void tidy_inputs(Problem& p) {
  tidy(p.q), tidy(p.k), tidy(p.v);
  Options& o = p.options;
  tidy(o.scale_tensor), tidy(o.mask), tidy(o.bias), tidy(o.alibi), tidy(o.sinks);
  tidy(o.relative_bias);
}

Problem make_problem(const TensorView& q, const TensorView& k, const TensorView& v, const MutableTensorView& out,
                     const Options& options, const Outputs& outputs, Pointers pointers) {
  Checker check("attention", pointers, q.device);
  Problem p(q, k, v, out, options, outputs);
  check_inputs(check, p);
  check.dtype("out", out, {p.dtype, accumulation_dtype(p.dtype)});
  check.output("out", out);
  check.shape<4>("out", out, {p.batch, p.q_heads, p.n_q, p.d_v}, "(B, H_q, N_q, d_v)");
  check_outputs(check, p);
  check.check_memory();
  tidy_inputs(p);
  Outputs& o = p.outputs;
  tidy(p.out), tidy(o.lse), tidy(o.max_logit), tidy(o.entropy), tidy(o.max_weight), tidy(o.logit_mean);
  tidy(o.logit_var), tidy(o.visible), tidy(o.logit_count), tidy(o.weights), tidy(o.key_sums);
  if (o.scores.given()) tidy(o.scores);
  return p;
}

namespace {

// As kernels can reckon with it: neither it nor its inverse leaves the range of the type that scores are in. A larger
// cap changes no score that type can tell, a smaller one leaves none.
double usable_softcap(double softcap, DType accumulation) {
  const double most = accumulation == DType::f64 ? 0x1p1000 : 0x1p100;
  return std::clamp(softcap, 1.0 / most, most);
}

}  // namespace

Call::Call(const Problem& p)
    : dtype(p.dtype),
      q_heads(p.q_heads),
      kv_heads(p.kv_heads),
      d_k(p.d_k),
      d_v(p.d_v),
      group(p.kv_heads > 0 ? p.q_heads / p.kv_heads : 1),
      sequences(p.sequences),
      scale(p.scale),
      softcap(p.options.softcap ? usable_softcap(*p.options.softcap, accumulation_dtype(p.dtype)) : 0.0),
      dropout(p.options.dropout),
      seed(p.options.seed),
      q(strided(p.q)),
      k(strided(p.k)),
      v(strided(p.v)),
      radius(p.options.relative_bias.shape[1] / 2),
      out(strided(p.out)),
      key_sum_rows(p.outputs.key_sum_rows),
      score_stage(p.outputs.score_stage) {
  const Options& o = p.options;
  if (any_given(o.scale_tensor, o.mask, o.bias, o.alibi, o.sinks, o.relative_bias)) {
    scale_tensor = strided(o.scale_tensor);
    mask = strided(o.mask);
    bias = strided(o.bias);
    alibi = {o.alibi.data, o.alibi.dtype, o.alibi.strides[0], o.alibi.strides[1]};
    sinks = strided(o.sinks);
    relative_bias = strided(o.relative_bias);
  }
  if (o.block_mask != nullptr) block_tiles = BlockTiles(*o.block_mask);
  const Outputs& to = p.outputs;
  if (any_given(to.lse, to.max_logit, to.entropy, to.max_weight, to.logit_mean, to.logit_var, to.visible,
                to.logit_count, to.weights, to.key_sums, to.scores)) {
    lse = strided(to.lse);
    max_logit = strided(to.max_logit);
    entropy = strided(to.entropy);
    max_weight = strided(to.max_weight);
    logit_mean = strided(to.logit_mean);
    logit_var = strided(to.logit_var);
    visible = strided(to.visible);
    logit_count = strided(to.logit_count);
    weights = strided(to.weights);
    key_sums = strided(to.key_sums);
    scores = strided(to.scores);
  }
}

}  // namespace keel
