#include "bench/arrays.h"

#include <algorithm>
#include <cstring>
#include <new>
#include <random>

#include "api/backends.h"
#include "bench/flops.h"
#include "core/element.h"
#include "core/layout.h"
#include "runtime/parallel.h"

namespace keel::bench {
namespace {

constexpr std::align_val_t kAlignment{64};

// Drawing every element would take longer than the measurements: one stretch is drawn and repeated. Its prime length
// shifts it relative to rows of any size.
constexpr std::int64_t kPattern = 262147;

void repeat(const std::vector<std::byte>& pattern, const Buffer& to) {
  const auto size = static_cast<std::int64_t>(pattern.size());
  for (std::int64_t at = 0; at < to.bytes(); at += size) {
    std::memcpy(to.data() + at, pattern.data(), static_cast<std::size_t>(std::min(size, to.bytes() - at)));
  }
}

void fill_normal(const Buffer& to, DType dtype, std::mt19937_64& random) {
  std::vector<std::byte> pattern(static_cast<std::size_t>(kPattern * size_of(dtype)));
  std::normal_distribution<double> normal;
  for (std::int64_t i = 0; i < kPattern; ++i) store(pattern.data(), dtype, i, normal(random));
  repeat(pattern, to);
}

void fill_mask(const Buffer& to, std::mt19937_64& random) {
  std::vector<std::byte> pattern(static_cast<std::size_t>(kPattern));
  for (std::byte& x : pattern) x = random() % 8 != 0 ? std::byte{1} : std::byte{0};
  repeat(pattern, to);
}

std::int64_t rows_of(const Case& c) { return c.q_heads * c.n_q; }

std::array<std::int64_t, 4> strides_of(const Case& c, const std::array<std::int64_t, 4>& shape) {
  if (!c.heads_inside) return contiguous_strides(shape);
  const auto [batch, heads, rows, d] = contiguous_strides(std::array{shape[0], shape[2], shape[1], shape[3]});
  return {batch, rows, heads, d};
}

}  // namespace

Buffer::Buffer(std::int64_t bytes)
    : data_(static_cast<std::byte*>(::operator new(static_cast<std::size_t>(bytes), kAlignment))), bytes_(bytes) {
  std::memset(data_.get(), 1, static_cast<std::size_t>(bytes));  // pages of zeros would all share one page
}

void Buffer::Release::operator()(std::byte* memory) const { ::operator delete(memory, kAlignment); }

Arrays::Arrays(std::span<const Case> cases, std::uint64_t seed) {
  std::map<std::pair<char, DType>, std::int64_t> bytes;
  std::int64_t mask_bytes = 0;
  for (const Case& c : cases) {
    const auto need = [&](char name, std::int64_t rows) {
      std::int64_t& most = bytes[{name, c.dtype}];
      most = std::max(most, rows * c.d * size_of(c.dtype));
    };
    need('q', rows_of(c));
    need('o', rows_of(c));
    need('k', c.kv_heads * c.n_k);
    need('v', c.kv_heads * c.n_k);
    if (c.backward || c.jvp || c.twice) {
      need('g', rows_of(c));
      need('Q', rows_of(c));
      need('K', c.kv_heads * c.n_k);
      need('V', c.kv_heads * c.n_k);
    }
    if (c.jvp || c.twice) {
      need('O', rows_of(c));
      need('x', rows_of(c));
      need('y', c.kv_heads * c.n_k);
      need('z', c.kv_heads * c.n_k);
    }
    if (c.mask) mask_bytes = std::max(mask_bytes, c.n_q * c.n_k);
    if (c.reports != Reports::nothing || c.merge) most_rows_ = std::max({most_rows_, rows_of(c), c.q_heads * c.n_k});
  }
  std::mt19937_64 random(seed);
  for (const auto& [key, size] : bytes) {
    const auto at = buffers_.emplace(key, Buffer(size)).first;
    if (key.first != 'o') fill_normal(at->second, key.second, random);
  }
  mask_ = Buffer(mask_bytes);
  fill_mask(mask_, random);
  rows_ = Buffer(kRowArrays * most_rows_ * 8);
}

TensorView Arrays::input(char name, const Case& c) const {
  const std::array<std::int64_t, 4> shape = {1, name == 'q' ? c.q_heads : c.kv_heads, name == 'q' ? c.n_q : c.n_k, c.d};
  return {buffers_.at({name, c.dtype}).data(), c.dtype, shape, strides_of(c, shape)};
}

MutableTensorView Arrays::output(const Case& c) const {
  const std::array<std::int64_t, 4> shape = {1, c.q_heads, c.n_q, c.d};
  return {buffers_.at({'o', c.dtype}).data(), c.dtype, shape, strides_of(c, shape)};
}

TensorView Arrays::dout(const Case& c) const {
  const std::array<std::int64_t, 4> shape = {1, c.q_heads, c.n_q, c.d};
  return {buffers_.at({'g', c.dtype}).data(), c.dtype, shape, strides_of(c, shape)};
}

Gradients Arrays::gradients(const Case& c) const {
  const auto like = [&](const TensorView& x, char name) {
    return MutableTensorView{buffers_.at({name, c.dtype}).data(), c.dtype, x.shape, x.strides};
  };
  return {.dq = like(input('q', c), 'Q'), .dk = like(input('k', c), 'K'), .dv = like(input('v', c), 'V')};
}

Tangents Arrays::tangents(const Case& c) const {
  const auto like = [&](const TensorView& x, char name) {
    return TensorView{buffers_.at({name, c.dtype}).data(), c.dtype, x.shape, x.strides};
  };
  return {.tq = like(input('q', c), 'x'), .tk = like(input('k', c), 'y'), .tv = like(input('v', c), 'z')};
}

MutableTensorView Arrays::moved(const Case& c) const {
  MutableTensorView out = output(c);
  out.data = buffers_.at({'O', c.dtype}).data();
  return out;
}

TensorView Arrays::mask(const Case& c) const {
  const std::array<std::int64_t, 4> shape = {1, 1, c.n_q, c.n_k};
  return {mask_.data(), DType::boolean, shape, contiguous_strides(shape)};
}

MutableRowView Arrays::row(int index, DType dtype, const Case& c) const {
  const std::array<std::int64_t, 3> shape = {1, c.q_heads, c.n_q};
  return {rows_.data() + index * most_rows_ * 8, dtype, shape, contiguous_strides(shape)};
}

Call::Call(const Case& c, const Arrays& arrays)
    : backward_(c.backward),
      merge_(c.merge),
      jvp_(c.jvp),
      twice_(c.twice),
      q_(arrays.input('q', c)),
      k_(arrays.input('k', c)),
      v_(arrays.input('v', c)),
      out_(arrays.output(c)) {
  options_.causal = c.causal;
  options_.window = c.window;
  options_.threads = c.threads;
  options_.dropout = c.dropout;
  if (c.mask) options_.mask = arrays.mask(c);
  const std::array<std::int64_t, 2> table = {c.q_heads, 2 * c.distances + 1};
  if (c.distances > 0) {
    table_ = Buffer(table[0] * table[1] * 4);
    std::mt19937_64 random(1);
    fill_normal(table_, DType::f32, random);
    options_.relative_bias = {table_.data(), DType::f32, table, contiguous_strides(table)};
  }
  if (c.documents > 0) {
    documents_ = std::make_unique<Documents>(c.documents, c.n_q, c.ragged);
    if (c.as_mask) {
      options_.block_mask = documents_->mask();
    } else {
      options_.q_offsets = options_.k_offsets = documents_->offsets();
      options_.causal = Causal::top_left;
    }
  }
  forced_.target = c.target;
  if (c.backward || c.jvp || c.twice) {
    own_out_ = Buffer(rows_of(c) * c.d * size_of(c.dtype));
    own_lse_ = Buffer(rows_of(c) * 8);
    out_.data = own_out_.data();
    Outputs outputs;
    outputs.lse = arrays.row(0, accumulation_dtype(c.dtype), c);
    outputs.lse.data = own_lse_.data();
    attention(q_, k_, v_, out_, options_, outputs);
    inputs_ = {.q = q_, .k = k_, .v = v_, .out = out_, .lse = outputs.lse, .dout = arrays.dout(c)};
    gradients_ = arrays.gradients(c);
    if (c.distances > 0) {
      dtable_ = Buffer(table_.bytes());
      gradients_.drelative_bias = {dtable_.data(), DType::f32, table, contiguous_strides(table)};
    }
    if (c.jvp || c.twice) tangents_ = arrays.tangents(c), moved_ = arrays.moved(c);
  }
  const DType sums = accumulation_dtype(c.dtype);
  if (c.merge) {
    outputs_.lse = arrays.row(0, sums, c);
    parts_ = {Partial{.out = out_, .lse = outputs_.lse}, Partial{.out = q_, .lse = arrays.row(1, sums, c)}};
  }
  if (c.reports == Reports::nothing) return;
  if (c.reports == Reports::key_sums || c.reports == Reports::last_key_sums) {
    Case by_keys = c;
    by_keys.n_q = c.n_k;
    outputs_.key_sums = arrays.row(0, sums, by_keys);
    outputs_.key_sum_rows = c.reports == Reports::last_key_sums ? 64 : 0;
    return;
  }
  outputs_.lse = arrays.row(0, sums, c);
  outputs_.max_logit = arrays.row(1, sums, c);
  outputs_.entropy = arrays.row(2, sums, c);
  if (c.reports == Reports::usual) return;
  outputs_.max_weight = arrays.row(3, sums, c);
  outputs_.logit_mean = arrays.row(4, sums, c);
  outputs_.logit_var = arrays.row(5, sums, c);
  outputs_.visible = arrays.row(6, DType::i64, c);
  heads_.resize(static_cast<std::size_t>(c.q_heads));
}

Problem Call::problem() {
  outputs_.heads = heads_;
  return make_problem(q_, k_, v_, out_, options_, outputs_);
}

BackwardProblem Call::backward_problem() const { return make_backward_problem(inputs_, gradients_, options_); }

TangentProblem Call::tangent_problem() const {
  if (twice_) return make_double_backward_problem(inputs_, tangents_, {gradients_, moved_, {}}, options_);
  return make_jvp_problem({q_, k_, v_, inputs_.out, inputs_.lse}, tangents_, {.tout = moved_}, options_);
}

MergeProblem Call::merge_problem() const { return make_merge_problem(parts_, out_, outputs_, options_.threads); }

Plan Call::plan() {
  const Planning planning = {.resources = resources(), .forced = forced_};
  if (merge_) return make_plan(merge_problem(), backends(), planning);
  if (jvp_ || twice_) return make_plan(tangent_problem(), backends(), planning);
  return backward_ ? make_plan(backward_problem(), backends(), planning) : make_plan(problem(), backends(), planning);
}

double Call::flops() {
  if (merge_) return 2.0 * static_cast<double>(std::ssize(parts_) * extent_of(layout_of(out_)).count);
  const double products = backward_ ? kBackwardFlops : jvp_ ? kJvpFlops : twice_ ? kDoubleFlops : 1.0;
  return products * forward_flops(problem());
}

double Call::bytes() {
  if (merge_)
    return static_cast<double>((std::ssize(parts_) + 1) * extent_of(layout_of(out_)).count * size_of(out_.dtype));
  return key_value_bytes(problem());
}

void Call::operator()() {
  outputs_.heads = heads_;
  if (forced_.target != 0) {
    plan().execute();
  } else if (merge_) {
    merge(parts_, out_, outputs_, options_.threads);
  } else if (backward_) {
    attention_backward(inputs_, gradients_, options_);
  } else if (jvp_) {
    attention_jvp({q_, k_, v_, inputs_.out, inputs_.lse}, tangents_, {.tout = moved_}, options_);
  } else if (twice_) {
    attention_double_backward(inputs_, tangents_, {gradients_, moved_, {}}, options_);
  } else {
    attention(q_, k_, v_, out_, options_, outputs_);
  }
}

}  // namespace keel::bench
