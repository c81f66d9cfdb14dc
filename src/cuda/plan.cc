#include "cuda/plan.h"

#include <algorithm>
#include <cmath>

#include "core/dropout.h"
#include "core/message.h"

namespace keel::cuda {
namespace {

using hopper::BackwardCut;
using hopper::Choice;
using hopper::Cut;
using hopper::Purpose;
using hopper::Statistics;
using hopper::Terms;

constexpr std::int64_t kMostRows = std::int64_t{1} << 28;   // of a sequence, which Hopper kernels count in 32 bits
constexpr std::int64_t kMostItems = std::int64_t{1} << 31;  // rows of a gradient, numbered in 32 bits
constexpr std::int64_t kMostOfAGrid = 65535;                // a GPU's limit along two of its three dimensions
constexpr std::int64_t kFewSlotRows = 1 << 16;              // that may be empty, whatever their share
constexpr int kChunkKeys = 2048;                            // keys of a chunk, where few rows share many keys
constexpr int kFewRows = 64;
constexpr std::int64_t kCacheBytes = 32 << 20;  // that stay in the L2 cache while heads are walked side by side

std::int64_t ceil_div(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }

// Why the copy engine cannot load tiles of an array; empty where it can.
template <class Pointer>
std::string unloadable(const char* name, const BasicView<4, Pointer>& x) {
  const std::int64_t unit = 16 / size_of(x.dtype);
  if (reinterpret_cast<std::uintptr_t>(x.data) % 16 != 0) return concat(name, " begins at no multiple of 16 bytes");
  if (x.strides[3] != 1) return concat("elements of ", name, " are ", x.strides[3], " apart");
  for (std::size_t i = 0; i < 3; ++i) {
    if (x.shape[i] <= 1) continue;
    if (x.strides[i] <= 0 || x.strides[i] % unit != 0 || x.strides[i] >= (std::int64_t{1} << 38)) {
      return concat("a stride of ", name, " is ", x.strides[i], ", no positive multiple of ", unit);
    }
  }
  return "";
}

// Whether the copy engine can load tiles of a bias or mask: rows begin at multiples of 16 bytes, and dimensions go on,
// or stay, as one walks along them.
bool has_aligned_rows(const TensorView& x) {
  const std::int64_t unit = 16 / size_of(x.dtype);
  const bool even = std::all_of(x.strides.begin(), x.strides.end() - 1, [&](auto stride) {
    return stride >= 0 && stride % unit == 0 && stride < (std::int64_t{1} << 38);
  });
  return even && reinterpret_cast<std::uintptr_t>(x.data) % 16 == 0;
}

// What the scores need beyond masks by position.
Terms terms_of(const Problem& p) {
  const Options& o = p.options;
  const double scale_log2 = p.scale * 1.4426950408889634;
  if (o.scale_tensor.given() || !(scale_log2 >= 1e-15 && scale_log2 <= 3)) {
    return Terms::any;  // else a hidden score, −1e38, is not far from others, or infinite
  }
  Terms terms = Terms::none;
  const auto add = [&](bool given, Terms term) {
    if (given) terms = terms == Terms::none ? term : Terms::any;
  };
  add(o.softcap.has_value(), Terms::softcap);
  add(o.alibi.given(), Terms::alibi);
  add(o.bias.given(), Terms::bias);
  add(o.mask.given(), Terms::mask);
  add(o.dropout > 0, Terms::dropout);
  return terms;
}

// Whether the kernel for the single term serves the rest of the problem too.
bool fits_single_term(const Problem& p, Terms term, int d, Statistics statistics) {
  const Options& o = p.options;
  if (!hopper::has_single_terms(d) || statistics != Statistics::none) return false;
  if (term == Terms::bias) return o.bias.dtype == p.dtype && has_aligned_rows(o.bias) && !p.sequences.packed();
  if (term == Terms::mask) return has_aligned_rows(o.mask) && !p.sequences.packed();
  return true;
}

Statistics statistics_of(const Problem& p, bool rich) {
  const Outputs& o = p.outputs;
  const bool moments = o.logit_mean.given() || o.logit_var.given() || o.logit_count.given();
  const bool heads = !o.heads.empty(),
             counts = (o.visible.given() || heads) && (p.options.mask.given() || p.options.bias.given());
  if (moments || (rich && (counts || heads || o.entropy.given()))) return Statistics::moments;
  return o.entropy.given() || heads ? Statistics::entropy : Statistics::none;
}

// Why no Hopper kernel serves the problem; empty where one does.
std::string unfit(const Problem& p, const Gpu& gpu) {
  if (!gpu.is_hopper()) return concat("compute capability ", gpu.major, ".", gpu.minor, ", not 9.0");
  if (p.dtype != DType::bf16 && p.dtype != DType::f16) return concat("dtype ", name_of(p.dtype));
  if (p.d_k % 8 != 0 || p.d_v % 8 != 0) return concat("head sizes ", p.d_k, " and ", p.d_v, ", not multiples of 8");
  if (std::max(p.d_k, p.d_v) > hopper::kHeadSizes.back()) return concat("head size ", std::max(p.d_k, p.d_v));
  if (!p.has_pairs()) return "no pair of a query and a key";
  if (p.outputs.weights.given()) return "weights are asked for";
  if (p.options.block_mask != nullptr) return "a block mask";
  if (p.options.relative_bias.given()) return "a bias by distance";
  if (!p.options.k_starts.empty()) return "keys that are padding on the left";
  if (Dropout(p.options.dropout, p.options.seed).factor == 0) return "dropout of 1";
  if (p.options.alibi.given() && std::max(p.sequences.whole_q, p.sequences.whole_k) >= 1 << 23) {
    return "ALiBi over distances that f32 does not hold";
  }
  if (p.options.softcap && *p.options.softcap > 256) return "a softcap above 256, for which tanh takes more digits";
  if (p.options.mask.given() && p.options.mask.strides[3] != 1) return "keys of the mask are not side by side";
  if (p.options.bias.given() && p.options.bias.strides[3] != 1) return "keys of the bias are not side by side";
  if (std::max({p.sequences.whole_q, p.sequences.whole_k}) > kMostRows) return "more rows than 2^28";
  if (p.entries() * p.q_heads > kMostRows) return "more heads than 2^28";
  for (const auto& [name, view] : {std::pair{"q", &p.q}, std::pair{"k", &p.k}, std::pair{"v", &p.v}}) {
    if (std::string reason = unloadable(name, *view); !reason.empty()) return reason;
  }
  return "";
}

// Whether rows see different numbers of keys, by position.
bool is_uneven(const Sequences& s) {
  return s.window_left != Window::kUnbounded || s.window_right != Window::kUnbounded;
}

Cut cut_of(const Problem& p, const hopper::Shape& shape, bool few) {
  const int group = static_cast<int>(p.q_heads / p.kv_heads);
  Cut cut;
  cut.share = few && group <= kFewRows ? group : 1;
  cut.heads = static_cast<int>(p.q_heads) / cut.share;
  cut.entries = static_cast<int>(p.entries());
  cut.tile_rows = shape.rows() / cut.share * cut.share;
  cut.blocks = static_cast<int>(ceil_div(p.n_q * cut.share, cut.tile_rows));
  cut.key_block = shape.keys;
  cut.aligned = p.options.dropout > 0;
  if (few && p.n_k > kChunkKeys && !p.sequences.packed()) {
    cut.chunk = kChunkKeys / shape.keys;
    cut.chunks = static_cast<int>(ceil_div(p.n_k, kChunkKeys)) + (cut.aligned ? 1 : 0);
  }
  const std::int64_t head_bytes = (p.d_k + p.d_v) * 2 * p.n_k;
  if (is_uneven(p.sequences))
    cut.section = static_cast<int>(std::clamp<std::int64_t>(kCacheBytes / head_bytes, 1, 1 << 20));
  cut.section = std::min(cut.section, cut.heads * cut.entries);
  return cut;
}

// Why no Hopper kernel serves the backward problem; empty where one does.
std::string unfit(const BackwardProblem& p, const Gpu& gpu) {
  const Problem& f = p.forward;
  if (std::string reason = unfit(f, gpu); !reason.empty()) return reason;
  if (std::max(f.d_k, f.d_v) > hopper::kBackwardHeadSizes.back()) {
    return concat("gradients of head size ", std::max(f.d_k, f.d_v));
  }
  if (p.dout.dtype != f.dtype) return concat("dout is ", name_of(p.dout.dtype));
  if (std::string reason = unloadable("dout", p.dout); !reason.empty()) return reason;
  const Gradients& g = p.gradients;
  if (!g.dq.given() && !g.dk.given() && !g.dv.given() && !g.dscale.given()) {
    return "no gradient of q, k, v or scale is asked for";
  }
  return "";
}

// Whether scores, or their gradients, need more than a mask by position and one scale per block of keys.
bool needs_terms(const Problem& p) {
  const Options& o = p.options;
  const RowView& scale = o.scale_tensor;
  if (scale.given() && (scale.strides[2] != 0 || (scale.strides[1] != 0 && p.q_heads != p.kv_heads))) return true;
  return o.softcap || o.alibi.given() || o.bias.given() || o.mask.given() || o.dropout > 0;
}

// How the kernel makes dbias. Left to the plain kernel: sums over keys; sums of packed batches; and sums of pairs for
// which a quarter of the GPU's memory is too little.
hopper::BiasSums bias_sums_of(const BackwardProblem& p, const BackwardCut& cut, const Gpu& gpu) {
  using enum hopper::BiasSums;
  const MutableTensorView& x = p.gradients.dbias;
  if (!x.given()) return none;
  const auto broadcast = [&](std::size_t i) { return x.strides[i] == 0 && x.shape[i] > 1; };
  if (broadcast(3)) return none;
  if (!broadcast(0) && !broadcast(1) && !broadcast(2) && !p.gradients.accumulate) return pairs;
  if (p.forward.sequences.packed()) return none;
  if (broadcast(2)) return keys;
  const std::int64_t slices = (x.strides[0] == 0 ? 1 : x.shape[0]) * (x.strides[1] == 0 ? 1 : x.shape[1]);
  const double bytes =
      4.0 * static_cast<double>(slices) * cut.key_slots * cut.key_block * cut.query_slots * cut.query_block;
  const bool fits = gpu.memory_bytes == 0 || bytes < static_cast<double>(gpu.memory_bytes) / 4;
  return fits && std::max<std::int64_t>(slices, cut.key_slots) <= kMostOfAGrid ? tiles : none;
}

// How many heads are walked side by side, each of so many bytes. What they read, and dq, which they add to, should fit
// the L2 cache: else a share of it, the more heads the larger, comes from memory in every step. But where walks are
// uneven, and dq is added up in one order, blocks of keys of a head wait for each other when they begin, the less the
// more heads there are. With P processors and walks of w blocks of b bytes, the first costs about b · heads / P, the
// second P / (heads · w): as much where heads = P / √(b · w), b in units of 64 KB, as measured on an H200.
double heads_side_by_side(double bytes, bool waits, int processors) {
  const double fewest = 4, that_fit = static_cast<double>(kCacheBytes) / bytes;
  return std::max({fewest, that_fit, waits ? processors / std::sqrt(bytes / (64 << 10)) : 0.0});
}

BackwardCut cut_of(const BackwardProblem& p, const hopper::BackwardShape& shape, const Gpu& gpu) {
  const Problem& f = p.forward;
  BackwardCut cut;
  cut.query_block = shape.rows;
  cut.key_block = shape.keys;
  cut.kv_heads = static_cast<int>(f.kv_heads);
  cut.entries = static_cast<int>(f.entries());
  cut.query_slots = static_cast<int>(hopper::slots_for(f.sequences, f.n_q, shape.rows));
  cut.key_slots = static_cast<int>(hopper::slots_for(f.sequences, f.n_k, shape.keys));
  const std::int64_t group = f.q_heads / f.kv_heads;
  const double rows = static_cast<double>(group) * cut.query_slots * shape.rows;
  const double bytes = rows * shape.d * 8;  // of q, do and dq: 2 + 2 + 4 per element
  const double heads = static_cast<double>(cut.kv_heads) * cut.entries;
  const bool waits = is_uneven(f.sequences) && f.options.order == Order::fixed;
  const double sections = std::round(heads / heads_side_by_side(bytes, waits, gpu.processors));
  cut.section = static_cast<int>(std::ceil(heads / std::max(sections, 1.0)));
  return cut;
}

}  // namespace

ForwardWork plan_forward(const Problem& p, const Gpu& gpu, std::vector<std::string>* reasons) {
  const auto because = [&](const auto&... text) {
    if (reasons != nullptr) reasons->push_back(concat(text...));
  };
  ForwardWork work;
  work.call = Call(p);
  work.heads = {p.outputs.heads.data(), p.outputs.saturation_threshold};
  if (const std::string reason = unfit(p, gpu); !reason.empty()) {
    because("the plain kernel, which serves everything: ", reason);
    return work;
  }
  int d = *std::lower_bound(hopper::kHeadSizes.begin(), hopper::kHeadSizes.end(), std::max(p.d_k, p.d_v));
  Terms terms = terms_of(p);
  Statistics statistics = statistics_of(p, terms != Terms::none);
  const std::int64_t group = p.q_heads / p.kv_heads;
  const bool few = statistics == Statistics::none && p.n_q * (group <= kFewRows ? group : 1) <= kFewRows;
  // Tiles of three warpgroups, unless there are hardly rows for two of them.
  const bool wide = p.n_q >= 384;
  if (terms != Terms::none && (few || !fits_single_term(p, terms, d, statistics))) terms = Terms::any;
  const bool rich = terms == Terms::any;
  if (rich) statistics = Statistics::moments;
  if ((few || rich || statistics != Statistics::none) && !hopper::serves_all(d))
    d = *std::upper_bound(hopper::kHeadSizes.begin(), hopper::kHeadSizes.end(), d);
  const Purpose purpose = rich                                ? Purpose::rich
                          : few                               ? Purpose::few
                          : terms != Terms::none              ? hopper::purpose_of(terms)
                          : statistics == Statistics::entropy ? Purpose::wide
                          : statistics == Statistics::moments ? Purpose::plain
                          : wide                              ? Purpose::wide
                                                              : Purpose::plain;
  work.hopper = true;
  work.choice = {hopper::shape_for(d, purpose), p.dtype == DType::bf16, terms, statistics};
  work.processors = gpu.processors;
  work.cut = cut_of(p, work.choice.shape, few);
  const std::int64_t tiles = std::int64_t{work.cut.blocks} * work.cut.heads * work.cut.entries * work.cut.chunks;
  if (tiles >= kMostRows) {
    because("the plain kernel: ", tiles, " tiles are more than 2^28");
    work.hopper = false;
    return work;
  }
  work.cut.tiles = static_cast<int>(tiles);
  work.stores_tiles = p.out.dtype == p.dtype && work.cut.share == 1 && unloadable("out", p.out).empty();
  because("head sizes ", p.d_k, " and ", p.d_v, " by the kernel for ", d);
  if (terms != Terms::none) {
    because("scores need ", rich ? "more than a mask by position or a single term" : hopper::name_of(terms));
  }
  if (work.cut.share > 1) because("few queries: the ", group, " query heads of a key-value head share a tile");
  if (work.cut.chunk > 0)
    because("few queries: chunks of ", kChunkKeys, " keys are tiles of their own, joined in order");
  return work;
}

BackwardWork plan_backward(const BackwardProblem& p, const Gpu& gpu, std::vector<std::string>* reasons) {
  const auto because = [&](const auto&... text) {
    if (reasons != nullptr) reasons->push_back(concat(text...));
  };
  const Problem& f = p.forward;
  BackwardWork work;
  work.call = BackwardCall(p);
  work.as_given = p.as_given;
  if (const std::string reason = unfit(p, gpu); !reason.empty()) {
    because("the plain kernels, which serve everything: ", reason);
    return work;
  }
  work.terms = needs_terms(f);
  const std::int64_t largest = std::max({f.d_k, f.d_v, std::int64_t{work.terms ? 128 : 0}});
  const int d = *std::lower_bound(hopper::kBackwardHeadSizes.begin(), hopper::kBackwardHeadSizes.end(), largest);
  work.shape = hopper::backward_shape_for(d, work.terms);
  work.bf16 = f.dtype == DType::bf16;
  work.ordered = f.options.order == Order::fixed;
  work.processors = gpu.processors;
  work.cut = cut_of(p, work.shape, gpu);
  const std::int64_t heads = f.sequences.batch * f.q_heads, rows = heads * work.cut.query_slots * work.shape.rows;
  const std::int64_t tasks = f.sequences.batch * f.kv_heads * work.cut.key_slots;
  if (std::max({tasks * work.shape.keys, rows, heads * f.n_k}) >= kMostItems) {
    because("the plain kernels: more rows of gradients than 2^31");
    return work;
  }
  if (std::max(f.sequences.batch, f.q_heads) > kMostOfAGrid) {
    because("the plain kernels: more heads or batch entries than ", kMostOfAGrid);
    return work;
  }
  if (f.sequences.packed() && rows > 3 * heads * f.n_q + kFewSlotRows) {
    because("the plain kernels: entries so short that blocks of ", work.shape.rows, " rows would be mostly empty");
    return work;
  }
  work.cut.tasks = static_cast<int>(tasks);
  work.hopper = true;
  because("head sizes ", f.d_k, " and ", f.d_v, " by the kernel for ", d);
  because("dq is summed over blocks of ", work.shape.keys, " keys ",
          work.ordered ? "in ascending order" : "as they come");
  if (work.terms) because("scores need more than a mask by position");
  const Gradients& g = p.gradients;
  if (work.terms) work.bias_sums = bias_sums_of(p, work.cut, gpu);
  if (g.dbias.given() && work.bias_sums == hopper::BiasSums::none) because("dbias by the plain kernels");
  return work;
}

}  // namespace keel::cuda
