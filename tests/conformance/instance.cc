#include "conformance/instance.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "conformance/expected.h"
#include "conformance/generator.h"
#include "conformance/visibility.h"
#include "core/element.h"
#include "core/problem.h"

namespace keel::conformance {
namespace {

using Shape4 = std::array<std::int64_t, 4>;
using Shape3 = std::array<std::int64_t, 3>;

enum Stream : std::uint64_t {
  kQ = 1,
  kK,
  kV,
  kScale,
  kMask,
  kBias,
  kSinks,
  kDout,
  kDlse,
  kPadding,
  kBlocks,
  kRelative
};

Shape4 strides_of(Storage storage, const Shape4& shape) {
  const auto [b, h, n, d] = shape;
  static_cast<void>(b);
  switch (storage) {
    case Storage::bhnd:
      return contiguous_strides(shape);
    case Storage::bnhd:
      return {n * h * d, d, h * d, 1};
    case Storage::packed:
      return {n * (h + 2) * d, d, (h + 2) * d, 1};
    case Storage::gaps:
      return {h * (n * (d + 3) + 5) + 7, n * (d + 3) + 5, d + 3, 1};
    case Storage::transposed:
      return {h * d * n, d * n, 1, n};
    case Storage::reversed:
      return {-h * n * d, -n * d, -d, -1};
  }
  return {};
}

Array tensor_array(Storage storage, DType dtype, const Shape4& shape, unsigned char paint, Placement placement) {
  return Array::with_strides<4>(dtype, shape, strides_of(storage, shape), paint, placement);
}

// One value per row, or key, of each query head. They lie without gaps beside a contiguous output, and with gaps beside
// any other.
Array row_array(const Case& c, DType dtype, Placement placement, std::int64_t rows) {
  const Shape3 shape = {c.batch, c.q_heads, rows};
  Shape3 strides = contiguous_strides(shape);
  if (c.out != Storage::bhnd) strides = {c.q_heads * (2 * rows + 1) + 3, 2 * rows + 1, 2};
  return Array::with_strides<3>(dtype, shape, strides, Array::kMark, placement);
}

// The shape and strides of an array broadcast as asked.
Array broadcast_array(DType dtype, const Shape4& full, const Broadcast& broadcast, unsigned char paint,
                      Placement placement) {
  const std::array<bool, 4> over = {broadcast.b, broadcast.h, broadcast.q, broadcast.k};
  Shape4 shape = full;
  for (std::size_t i = 0; i < 4; ++i) {
    if (over[i]) shape[i] = 1;
  }
  Shape4 strides = contiguous_strides(shape);
  for (std::size_t i = 0; i < 4 && broadcast.by_stride; ++i) {
    if (!over[i]) continue;
    strides[i] = 0;
    shape[i] = full[i];
  }
  return Array::with_strides<4>(dtype, shape, strides, paint, placement);
}

template <class Make>
void fill(const MutableTensorView& x, Make make) {
  for (std::int64_t b = 0; b < x.shape[0]; ++b) {
    for (std::int64_t h = 0; h < x.shape[1]; ++h) {
      for (std::int64_t n = 0; n < x.shape[2]; ++n) {
        for (std::int64_t d = 0; d < x.shape[3]; ++d) store_at(x, make(), b, h, n, d);
      }
    }
  }
}

// The factor on standard normal q and k that gives the scores their size. Beside a bias of −1e30 they stay below its
// last place in float64, so that every dtype sees the same.
double magnitude_of(const Case& c) {
  const bool extreme = c.values == Values::extreme || c.values == Values::overflowing;
  if (c.values == Values::huge || (extreme && hides_by_number(c))) return 100.0;
  if (!extreme) return 1.0;
  return c.dtype == DType::f16 ? 1e3 : std::sqrt(c.values == Values::extreme ? 1e15 : 1e30);
}

double lowest_of(DType dtype) {
  switch (dtype) {
    case DType::f64:
      return std::numeric_limits<double>::lowest();
    case DType::f16:
      return -65504.0;
    case DType::bf16:
      return -0x1.FEp127;
    default:
      return std::numeric_limits<float>::lowest();
  }
}

}  // namespace

Instance::Instance(const Case& c) : Instance(c, c.seed % 2 == 0 ? Placement::aligned : Placement::shifted) {}

Instance::Instance(const Case& c, Placement placement) : case_(c), placement_(placement) {
  make_tensors();
  make_options();
  plant_specials();
}

Instance::Instance(const Case& c, const TensorView& q, const TensorView& k, const TensorView& v, const Options& options)
    : case_(c), placement_(Placement::aligned), options_(options) {
  const auto take = [](const TensorView& x) {
    return MutableTensorView{const_cast<void*>(x.data), x.dtype, x.shape, x.strides, x.device};
  };
  q_ = take(q), k_ = take(k), v_ = take(v);
}

Instance::~Instance() = default;

void Instance::make_tensors() {
  const Case& c = case_;
  const Shape4 q_shape = {c.batch, c.q_heads, c.n_q, c.d_k};
  const Shape4 k_shape = {c.batch, c.kv_heads, c.n_k, c.d_k};
  const Shape4 v_shape = {c.batch, c.kv_heads, c.n_k, c.d_v};
  const bool one_array =
      c.q == Storage::packed && c.k == Storage::packed && c.v == Storage::packed && c.n_q == c.n_k && c.d_k == c.d_v;
  if (one_array) {
    const std::int64_t heads = c.q_heads + 2 * c.kv_heads, n = c.n_q, d = c.d_k;
    q_array_ = Array::of_shape<4>(c.dtype, {c.batch, n, heads, d}, Array::kNan, placement_);
    const Shape4 strides = {n * heads * d, d, heads * d, 1};
    auto* const data = static_cast<unsigned char*>(q_array_.data());
    q_ = {data, c.dtype, q_shape, strides};
    k_ = {data + c.q_heads * d * size_of(c.dtype), c.dtype, k_shape, strides};
    v_ = {data + (c.q_heads + c.kv_heads) * d * size_of(c.dtype), c.dtype, v_shape, strides};
  } else {
    q_array_ = tensor_array(c.q, c.dtype, q_shape, Array::kNan, placement_);
    k_array_ = tensor_array(c.k, c.dtype, k_shape, Array::kNan, placement_);
    v_array_ = tensor_array(c.v, c.dtype, v_shape, Array::kNan, placement_);
    q_ = q_array_.tensor();
    k_ = k_array_.tensor();
    v_ = v_array_.tensor();
  }
  const double size = magnitude_of(c);
  Generator q_random(c.seed, kQ), k_random(c.seed, kK), v_random(c.seed, kV);
  fill(q_, [&] { return c.values == Values::flat ? 0.0 : size * q_random.normal(); });
  fill(k_, [&] { return size * k_random.normal(); });
  fill(v_, [&] { return v_random.normal(); });
}

void Instance::make_options() {
  const Case& c = case_;
  Options& o = options_;
  const DType side = accumulation_dtype(c.dtype);
  const double standard = 1.0 / std::sqrt(static_cast<double>(c.d_k));
  if (c.scale == ScaleKind::number) o.scale = c.scale_number;
  if (c.scale == ScaleKind::per_head || c.scale == ScaleKind::per_query) {
    const Shape3 shape = c.scale == ScaleKind::per_head ? Shape3{1, c.q_heads, 1} : Shape3{c.batch, c.q_heads, c.n_q};
    scale_ = Array::of_shape<3>(side, shape, Array::kNan, placement_);
    Generator random(c.seed, kScale);
    scale_.fill([&](auto...) { return standard * random.uniform(0.5, 1.5); });
    o.scale_tensor = scale_.rows();
  }
  o.softcap = c.softcap;
  make_mask();
  make_bias();
  make_blocks();
  make_relative_bias();
  o.causal = c.causal;
  o.window = c.window;
  const auto place = [&](const std::vector<std::int64_t>& from, Items<std::int64_t>& to) {
    if (from.empty()) return std::span<const std::int64_t>();
    to = Items<std::int64_t>(from.size(), 0, placement_);
    std::copy(from.begin(), from.end(), to.span().begin());
    return std::span<const std::int64_t>(to.span());
  };
  o.q_lengths = place(c.q_lengths, q_lengths_);
  o.k_lengths = place(c.k_lengths, k_lengths_);
  o.k_starts = place(c.k_starts, k_starts_);
  o.q_offsets = place(c.q_offsets, q_offsets_);
  o.k_offsets = place(c.k_offsets, k_offsets_);
  if (c.alibi) {
    const std::int64_t entries = c.alibi_per_entry ? c.batch : 1;
    alibi_ = Array::of_shape<2>(side, {entries, c.q_heads}, Array::kNan, placement_);
    alibi_.fill([&](std::int64_t b, std::int64_t h, auto...) {
      return std::exp2(-8.0 * static_cast<double>(h + 1 + 2 * b) / static_cast<double>(c.q_heads));
    });
    o.alibi = alibi_.table();
    if (!c.alibi_per_entry) o.alibi = HeadView{alibi_.data(), side, {c.q_heads}, {1}};
  }
  if (c.sinks) {
    sinks_ = Array::of_shape<1>(side, {c.q_heads}, Array::kNan, placement_);
    Generator random(c.seed, kSinks);
    sinks_.fill([&](auto...) { return random.normal(); });
    o.sinks = sinks_.heads();
  }
  o.dropout = c.dropout;
  o.seed = c.dropout_seed;
}

void Instance::make_mask() {
  const Case& c = case_;
  if (c.mask == MaskKind::none) return;
  mask_ = broadcast_array(DType::boolean, {c.batch, c.q_heads, c.n_q, c.n_k}, c.mask_broadcast, 1, placement_);
  Generator random(c.seed, kMask);
  mask_.fill([&](std::int64_t, std::int64_t, std::int64_t i, std::int64_t j) {
    const bool drawn = random.chance(0.75);
    if (c.mask == MaskKind::all) return 0.0;
    if (c.mask == MaskKind::blocks) return (i / 32 + j / 64) % 2 == 0 ? 1.0 : 0.0;
    if (c.mask == MaskKind::one_row && i == c.n_q / 2) return 0.0;
    if (j % 5 == 3) return 0.0;
    return drawn ? 1.0 : 0.0;
  });
  options_.mask = mask_.tensor();
}

void Instance::make_bias() {
  const Case& c = case_;
  if (c.bias == BiasKind::none) return;
  const bool f32 = c.bias_f32 || (c.bias == BiasKind::minus_1e30 && c.dtype == DType::f16);  // −1e30 is −inf in f16
  const DType dtype = f32 ? DType::f32 : c.dtype;
  bias_ = broadcast_array(dtype, {c.batch, c.q_heads, c.n_q, c.n_k}, c.bias_broadcast, Array::kNan, placement_);
  const double low = std::isfinite(c.bias_low) ? std::max(c.bias_low, lowest_of(dtype)) : c.bias_low;
  std::vector<std::int64_t> padding;
  Generator random(c.seed, kBias), random_padding(c.seed, kPadding);
  for (std::int64_t b = 0; b < std::max<std::int64_t>(c.batch, 1); ++b)
    padding.push_back(random_padding.integer(0, c.n_k));
  bias_.fill([&](std::int64_t b, std::int64_t, std::int64_t i, std::int64_t j) -> double {
    const double value = random.normal();
    const bool drawn = random.chance(0.2);
    const std::int64_t hidden = padding[static_cast<std::size_t>(b)];
    if (c.bias == BiasKind::plus_inf && i == c.n_q / 2 && j == c.n_k / 2) return INFINITY;
    if (c.bias == BiasKind::scattered && (drawn || j % 5 == 1)) return low;
    if (c.bias == BiasKind::left_padding && j < hidden) return low;
    if (c.bias == BiasKind::right_padding && j >= c.n_k - hidden) return low;
    if (c.bias == BiasKind::minus_inf && (drawn || j % 5 == 1)) return -INFINITY;
    if (c.bias == BiasKind::minus_1e30 && (i == c.n_q / 2 || c.bias_broadcast.q)) return -1e30;
    return value;
  });
  options_.bias = bias_.tensor();
}

void Instance::make_blocks() {
  const Case& c = case_;
  if (c.blocks == BlockKind::none) return;
  std::vector<std::int64_t> documents;  // of positions
  Generator random(c.seed, kBlocks);
  for (std::int64_t i = 0, id = 0; i < std::max(c.n_q, c.n_k); ++i) {
    documents.push_back(id);
    if (random.chance(0.03)) id = random.chance(0.2) ? 0 : id + 1;  // the first goes on later
  }
  const auto visible = [&](std::int64_t b, std::int64_t h, std::int64_t i, std::int64_t j) {
    const std::int64_t x = i / c.block_rows, y = j / c.block_keys;
    if (c.blocks == BlockKind::strided) return (x + y + h) % 3 == 0;
    if (c.blocks == BlockKind::documents) {
      return j <= i && documents[static_cast<std::size_t>(i)] == documents[static_cast<std::size_t>(j)];
    }
    const std::int64_t tile = ((b * c.q_heads + h) * c.n_q + x) * c.n_k + y;
    const std::int64_t kind = Generator(c.seed, static_cast<std::uint64_t>(100 + tile)).integer(0, 2);
    return kind == 1 ||
           (kind == 2 && Generator(c.seed ^ static_cast<std::uint64_t>(tile), static_cast<std::uint64_t>(i * c.n_k + j))
                             .chance(0.6));
  };
  const std::int64_t batch = c.block_broadcast.b ? 1 : c.batch, heads = c.block_broadcast.h ? 1 : c.q_heads;
  blocks_ = Blocks({{batch, heads, c.n_q, c.n_k}, c.block_rows, c.block_keys, c.k == Storage::transposed}, visible,
                   placement_);
  options_.block_mask = blocks_.mask();
}

void Instance::make_relative_bias() {
  const Case& c = case_;
  if (c.relative_radius < 0) return;
  const std::int64_t heads = c.relative_shared ? 1 : c.q_heads, distances = 2 * c.relative_radius + 1;
  std::array<std::int64_t, 2> strides = {distances + 2, 1};
  if (c.k == Storage::transposed) strides = {1, heads};
  relative_ =
      Array::with_strides<2>(c.bias_f32 ? DType::f32 : c.dtype, {heads, distances}, strides, Array::kNan, placement_);
  Generator random(c.seed, kRelative);
  relative_.fill([&](std::int64_t, std::int64_t at, auto...) -> double {
    const double value = random.normal();
    return c.bias == BiasKind::minus_inf && at % 7 == 3 ? -INFINITY : value;
  });
  options_.relative_bias = relative_.table();
}

void Instance::plant_specials() {
  const Case& c = case_;
  if (c.values == Values::nan_hidden) hide_nans();
  if (c.n_k == 0 || c.kv_heads == 0 || c.batch == 0) return;
  if (c.values == Values::nan_visible) {
    store_at(k_, NAN, 0, 0, c.n_k / 2, 0);
    store_at(v_, NAN, c.batch - 1, c.kv_heads - 1, c.n_k / 3, c.d_v - 1);
  }
  if (c.values == Values::inf_visible) store_at(k_, INFINITY, 0, 0, c.n_k / 2, 0);
}

// NaN, Inf and −Inf in turn in each row of k and v that no query sees, and of q that sees no key.
void Instance::hide_nans() {
  const ForwardMemory memory = forward_memory();
  const Visibility seen = visibility_of(make_problem(q_, k_, v_, memory.out_view(), options_, {}));
  const double specials[] = {NAN, INFINITY, -INFINITY};
  const auto spoil = [&](const MutableTensorView& x, const std::vector<char>& keep) {
    std::size_t row = 0;
    for (std::int64_t b = 0; b < x.shape[0]; ++b) {
      for (std::int64_t h = 0; h < x.shape[1]; ++h) {
        for (std::int64_t n = 0; n < x.shape[2]; ++n, ++row) {
          for (std::int64_t d = 0; d < x.shape[3] && !keep[row]; ++d) store_at(x, specials[(n + d) % 3], b, h, n, d);
        }
      }
    }
  };
  spoil(q_, seen.rows);
  spoil(k_, seen.keys);
  spoil(v_, seen.keys);
}

ForwardMemory Instance::forward_memory() const {
  const Case& c = case_;
  const DType side = accumulation_dtype(c.dtype);
  ForwardMemory m;
  m.out = tensor_array(c.out, c.dtype, {c.batch, c.q_heads, c.n_q, c.d_v}, Array::kMark, placement_);
  if (c.lse || c.statistics) m.lse = row_array(c, side, placement_, c.n_q);
  if (c.statistics) {
    for (Array* rows : {&m.max_logit, &m.entropy, &m.max_weight, &m.logit_mean, &m.logit_var}) {
      *rows = row_array(c, side, placement_, c.n_q);
    }
    for (Array* counts : {&m.visible, &m.logit_count}) *counts = row_array(c, DType::i64, placement_, c.n_q);
  }
  if (c.weights != Weights::none) {
    const Storage storage = c.out == Storage::packed ? Storage::bnhd : c.out;
    m.weights = tensor_array(storage, c.weights == Weights::f32 ? DType::f32 : c.dtype,
                             {c.batch, c.q_heads, c.n_q, c.n_k}, Array::kMark, placement_);
  }
  if (c.scores) {
    const Storage storage = c.out == Storage::packed ? Storage::bnhd : c.out;
    m.scores = tensor_array(storage, c.scores_f32 ? DType::f32 : c.dtype, {c.batch, c.q_heads, c.n_q, c.n_k},
                            Array::kMark, placement_);
    m.score_stage = *c.scores;
  }
  if (c.key_sums) m.key_sums = row_array(c, side, placement_, c.n_k);
  m.key_sum_rows = c.key_sum_rows;
  if (c.heads) {
    const std::int64_t entries = options_.q_offsets.empty() ? c.batch : options_.q_offsets.size() - 1;
    m.heads = Items<HeadStatistics>(static_cast<std::size_t>(entries * c.q_heads), {.max_logit = -12345.0, .rows = -1},
                                    placement_);
  }
  return m;
}

Outputs ForwardMemory::outputs() const {
  return {.lse = lse.rows_or_none(),
          .max_logit = max_logit.rows_or_none(),
          .entropy = entropy.rows_or_none(),
          .max_weight = max_weight.rows_or_none(),
          .logit_mean = logit_mean.rows_or_none(),
          .logit_var = logit_var.rows_or_none(),
          .visible = visible.rows_or_none(),
          .logit_count = logit_count.rows_or_none(),
          .weights = weights.tensor_or_none(),
          .heads = heads.span(),
          .key_sums = key_sums.rows_or_none(),
          .key_sum_rows = key_sum_rows,
          .scores = scores.tensor_or_none(),
          .score_stage = score_stage};
}

std::string ForwardMemory::outside_writes() const {
  const std::pair<const char*, const Array*> all[] = {{"out", &out},
                                                      {"lse", &lse},
                                                      {"max_logit", &max_logit},
                                                      {"entropy", &entropy},
                                                      {"max_weight", &max_weight},
                                                      {"logit_mean", &logit_mean},
                                                      {"logit_var", &logit_var},
                                                      {"visible", &visible},
                                                      {"logit_count", &logit_count},
                                                      {"weights", &weights},
                                                      {"key_sums", &key_sums},
                                                      {"scores", &scores}};
  for (const auto& [name, array] : all) {
    if (!array->exists()) continue;
    if (const std::string found = array->outside_writes(); !found.empty()) return std::string(name) + ": " + found;
  }
  return {};
}

BackwardInputs Instance::backward_inputs() const {
  if (!forward_out_.exists()) make_backward_inputs();
  return {.q = q_,
          .k = k_,
          .v = v_,
          .out = forward_out_.tensor(),
          .lse = forward_lse_.rows(),
          .dout = dout_.tensor(),
          .dlse = dlse_.rows_or_none()};
}

void Instance::make_backward_inputs() const {
  const Case& c = case_;
  const Shape4 shape = {c.batch, c.q_heads, c.n_q, c.d_v};
  const Shape3 rows = {c.batch, c.q_heads, c.n_q};
  const DType side = accumulation_dtype(c.dtype);
  const Expected& e = expected();
  forward_out_ = tensor_array(c.out, c.dtype, shape, Array::kNan, placement_);
  forward_out_.fill([&](auto... index) { return e.out.at(index...); });
  forward_lse_ = Array::of_shape<3>(side, rows, Array::kNan, placement_);
  forward_lse_.fill([&](auto... index) { return e.lse.at(index...); });
  Generator random(c.seed, kDout);
  dout_ = tensor_array(c.out, c.dtype, shape, Array::kNan, placement_);
  dout_.fill([&](auto...) { return random.normal(); });
  if (!c.dlse) return;
  Generator random_lse(c.seed, kDlse);
  dlse_ = Array::of_shape<3>(side, rows, Array::kNan, placement_);
  dlse_.fill([&](auto...) { return random_lse.normal(); });
}

GradientMemory Instance::gradient_memory() const {
  const Case& c = case_;
  const DType side = accumulation_dtype(c.dtype);
  const Shape4 scores = {c.batch, c.q_heads, c.n_q, c.n_k};
  GradientMemory m;
  m.dq = tensor_array(c.q, c.dtype, {c.batch, c.q_heads, c.n_q, c.d_k}, Array::kMark, placement_);
  m.dk = tensor_array(c.k, c.dtype, {c.batch, c.kv_heads, c.n_k, c.d_k}, Array::kMark, placement_);
  m.dv = tensor_array(c.v, c.dtype, {c.batch, c.kv_heads, c.n_k, c.d_v}, Array::kMark, placement_);
  if (options_.bias.given()) {
    m.dbias = broadcast_array(options_.bias.dtype, scores, c.bias_broadcast, Array::kMark, placement_);
  }
  const Shape3 scale = options_.scale_tensor.given() ? options_.scale_tensor.shape : Shape3{1, 1, 1};
  m.dscale = Array::of_shape<3>(side, scale, Array::kMark, placement_);
  if (options_.relative_bias.given()) {
    m.drelative =
        Array::of_shape<2>(options_.relative_bias.dtype, options_.relative_bias.shape, Array::kMark, placement_);
  }
  if (options_.sinks.given()) m.dsinks = Array::of_shape<1>(side, {c.q_heads}, Array::kMark, placement_);
  return m;
}

Gradients GradientMemory::gradients() const {
  return {.dq = dq.tensor(),
          .dk = dk.tensor(),
          .dv = dv.tensor(),
          .dbias = dbias.tensor_or_none(),
          .dscale = dscale.rows(),
          .dsinks = dsinks.heads_or_none(),
          .drelative_bias = drelative.table_or_none()};
}

std::string GradientMemory::outside_writes() const {
  const std::pair<const char*, const Array*> all[] = {{"dq", &dq},
                                                      {"dk", &dk},
                                                      {"dv", &dv},
                                                      {"dbias", &dbias},
                                                      {"dscale", &dscale},
                                                      {"dsinks", &dsinks},
                                                      {"drelative_bias", &drelative}};
  for (const auto& [name, array] : all) {
    if (!array->exists()) continue;
    if (const std::string found = array->outside_writes(); !found.empty()) return std::string(name) + ": " + found;
  }
  return {};
}

const Expected& Instance::expected() const {
  if (!expected_) expected_ = std::make_unique<Expected>(compute_expected(*this));
  return *expected_;
}

const ExpectedGradients& Instance::expected_gradients() const {
  if (!expected_gradients_) {
    expected_gradients_ = std::make_unique<ExpectedGradients>(compute_expected_gradients(*this));
  }
  return *expected_gradients_;
}

}  // namespace keel::conformance
