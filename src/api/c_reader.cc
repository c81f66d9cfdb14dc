#include "api/c_reader.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <utility>

#include "api/sized.h"

namespace keel::c_api {
namespace {

// The size of each structure in its first version, the least that any program has; given by its last field, so that
// fields can be appended. None ends in padding: a later field there would hold arbitrary bytes.
template <class T>
constexpr std::uint64_t kFirstSize = 0;
#define KEEL_FIRST_SIZE(type, last)                                                                    \
  template <>                                                                                          \
  constexpr std::uint64_t kFirstSize<type> = offsetof(type, last) + sizeof(std::declval<type>().last); \
  static_assert(kFirstSize<type> % alignof(type) == 0)
KEEL_FIRST_SIZE(keel_options, seed);
KEEL_FIRST_SIZE(keel_outputs, key_sum_rows);
KEEL_FIRST_SIZE(keel_backward_inputs, dlse);
KEEL_FIRST_SIZE(keel_gradients, accumulate);
KEEL_FIRST_SIZE(keel_tangents, tsinks);
KEEL_FIRST_SIZE(keel_jvp_inputs, lse);
KEEL_FIRST_SIZE(keel_jvp_outputs, accumulate);
KEEL_FIRST_SIZE(keel_double_gradients, accumulate);
KEEL_FIRST_SIZE(keel_partial, visible);
KEEL_FIRST_SIZE(keel_block_mask, tiles);
#undef KEEL_FIRST_SIZE

// The library writes these statistics where the caller wants them: both structures are the same in memory.
#define KEEL_SAME_PLACE(field) (offsetof(HeadStatistics, field) == offsetof(keel_head_statistics, field))
static_assert(sizeof(HeadStatistics) == sizeof(keel_head_statistics) && KEEL_SAME_PLACE(max_logit) &&
              KEEL_SAME_PLACE(mean_entropy) && KEEL_SAME_PLACE(min_entropy) && KEEL_SAME_PLACE(normalised_entropy) &&
              KEEL_SAME_PLACE(saturated) && KEEL_SAME_PLACE(rows));
#undef KEEL_SAME_PLACE

// What does not fit one of our enumerations becomes 255, which none of them has.
template <class Enum>
Enum code(std::int64_t number) {
  return static_cast<Enum>(number < 0 ? 255 : std::min<std::int64_t>(number, 255));
}

}  // namespace

template <class T>
T Reader::read(const T* from, const std::string& name) const {
  if (from == nullptr) refuse(name, ": expected a structure, got null");
  return read_sized<T>(from, kFirstSize<T>, operation_, name);
}

template <std::size_t Rank>
BasicView<Rank, void*> Reader::view(const keel_view& from, const char* name, const std::string& of) const {
  BasicView<Rank, void*> result{from.data, code<DType>(from.dtype), {}, {}};
  result.device = {static_cast<DeviceKind>(from.device.kind), from.device.index};
  std::copy_n(from.shape, Rank, result.shape.begin());
  std::copy_n(from.strides, Rank, result.strides.begin());
  if (std::any_of(from.shape + Rank, std::end(from.shape), [](std::int64_t size) { return size != 0; })) {
    refuse(of, name, ": expected ", Rank, Rank == 1 ? " dimension" : " dimensions", ", and 0 for the other sizes, ",
           "got shape ", text_of(std::to_array(from.shape)));
  }
  for (const std::uint32_t reserved : from.reserved) {
    if (reserved != 0) refuse(of, name, ".reserved: expected 0, got ", reserved);
  }
  return result;
}

MutableTensorView Reader::tensor(const keel_view* from, const char* name) const {
  if (from == nullptr) refuse(name, ": expected a view, got null");
  return view<4>(*from, name);
}

ListView Reader::list(const keel_view& from, const char* name) const {
  return BasicView<1, const void*>(view<1>(from, name));
}

bool Reader::flag(std::int64_t value, const char* name) const {
  if (value != 0 && value != 1) refuse(name, ": expected 0 or 1, got ", value);
  return value == 1;
}

void Reader::check_list(const void* data, std::int64_t count, const char* name) const {
  if (count < 0 || (data == nullptr && count > 0)) {
    refuse(name, ": expected a pointer to a count of at least 0, got count ", count, data == nullptr ? " at null" : "");
  }
}

Options Reader::options(const keel_options* from) {
  Options options;
  if (from == nullptr) return options;
  const keel_options o = read(from, "options");
  if (flag(o.has_scale, "has_scale")) {
    options.scale = o.scale;
  } else if (o.scale != 0.0) {
    refuse("has_scale: expected 1 with scale ", o.scale, ", got 0");
  }
  options.scale_tensor = view<3>(o.scale_tensor, "scale_tensor");
  if (o.softcap != 0.0) options.softcap = o.softcap;
  options.mask = view<4>(o.mask, "mask");
  options.bias = view<4>(o.bias, "bias");
  options.causal = code<Causal>(o.causal);
  if (flag(o.has_window, "has_window")) {
    options.window = {o.window_left, o.window_right};
  } else if (o.window_left != 0 || o.window_right != 0) {
    refuse("has_window: expected 1 with window_left ", o.window_left, " and window_right ", o.window_right, ", got 0");
  }
  options.origin = {o.origin.query, o.origin.key, o.origin.n_q, o.origin.n_k};
  options.q_lengths = list(o.q_lengths, "q_lengths");
  options.k_lengths = list(o.k_lengths, "k_lengths");
  options.q_offsets = list(o.q_offsets, "q_offsets");
  options.k_offsets = list(o.k_offsets, "k_offsets");
  if (o.alibi.shape[1] == 0) {
    options.alibi = view<1>(o.alibi, "alibi");
  } else {
    options.alibi = view<2>(o.alibi, "alibi");
  }
  options.sinks = view<1>(o.sinks, "sinks");
  options.dropout = o.dropout;
  options.seed = o.seed;
  options.threads = o.threads;
  options.stream = o.stream;
  options.relative_bias = view<2>(o.relative_bias, "relative_bias");
  options.k_starts = list(o.k_starts, "k_starts");
  if (o.block_mask != nullptr) {
    const keel_block_mask mask = read(o.block_mask, "block_mask");
    const std::string of = "block_mask.";
    block_mask_ = {.offsets = view<3>(mask.offsets, "offsets", of),
                   .blocks = view<2>(mask.blocks, "blocks", of),
                   .tiles = view<3>(mask.tiles, "tiles", of)};
    options.block_mask = &block_mask_;
  }
  options.order = code<Order>(o.order);
  options.split_products = o.split_products != 0;
  return options;
}

Outputs Reader::outputs(const keel_outputs* from) const {
  if (from == nullptr) return {};
  const keel_outputs o = read(from, "outputs");
  check_list(o.heads, o.heads_count, "heads");
  if (o.heads_count > 0 && o.heads_size != sizeof(keel_head_statistics)) {
    refuse("heads_size: expected ", sizeof(keel_head_statistics),
           ", the sizeof(keel_head_statistics) of this version, ", "got ", o.heads_size);
  }
  Outputs outputs{.lse = view<3>(o.lse, "lse"),
                  .max_logit = view<3>(o.max_logit, "max_logit"),
                  .entropy = view<3>(o.entropy, "entropy"),
                  .max_weight = view<3>(o.max_weight, "max_weight"),
                  .logit_mean = view<3>(o.logit_mean, "logit_mean"),
                  .logit_var = view<3>(o.logit_var, "logit_var"),
                  .visible = view<3>(o.visible, "visible"),
                  .logit_count = view<3>(o.logit_count, "logit_count"),
                  .weights = view<4>(o.weights, "weights"),
                  .heads = {reinterpret_cast<HeadStatistics*>(o.heads), static_cast<std::size_t>(o.heads_count)}};
  if (o.saturation_threshold != 0.0) outputs.saturation_threshold = o.saturation_threshold;
  outputs.key_sums = view<3>(o.key_sums, "key_sums");
  outputs.key_sum_rows = o.key_sum_rows;
  outputs.scores = view<4>(o.scores, "scores");
  outputs.score_stage = code<ScoreStage>(o.score_stage);
  return outputs;
}

BackwardInputs Reader::backward_inputs(const keel_backward_inputs* from) const {
  const keel_backward_inputs in = read(from, "inputs");
  return {.q = view<4>(in.q, "q"),
          .k = view<4>(in.k, "k"),
          .v = view<4>(in.v, "v"),
          .out = view<4>(in.out, "out"),
          .lse = view<3>(in.lse, "lse"),
          .dout = view<4>(in.dout, "dout"),
          .dlse = view<3>(in.dlse, "dlse")};
}

Gradients Reader::gradients(const keel_gradients* from) const {
  const keel_gradients g = read(from, "gradients");
  return {.dq = view<4>(g.dq, "dq"),
          .dk = view<4>(g.dk, "dk"),
          .dv = view<4>(g.dv, "dv"),
          .dbias = view<4>(g.dbias, "dbias"),
          .dscale = view<3>(g.dscale, "dscale"),
          .dsinks = view<1>(g.dsinks, "dsinks"),
          .drelative_bias = view<2>(g.drelative_bias, "drelative_bias"),
          .accumulate = flag(g.accumulate, "accumulate")};
}

Tangents Reader::tangents(const keel_tangents* from) const {
  const keel_tangents t = read(from, "tangents");
  return {.tq = view<4>(t.tq, "tq"),
          .tk = view<4>(t.tk, "tk"),
          .tv = view<4>(t.tv, "tv"),
          .tbias = view<4>(t.tbias, "tbias"),
          .tscale = view<3>(t.tscale, "tscale"),
          .tsinks = view<1>(t.tsinks, "tsinks")};
}

JvpInputs Reader::jvp_inputs(const keel_jvp_inputs* from) const {
  const keel_jvp_inputs in = read(from, "inputs");
  return {.q = view<4>(in.q, "q"),
          .k = view<4>(in.k, "k"),
          .v = view<4>(in.v, "v"),
          .out = view<4>(in.out, "out"),
          .lse = view<3>(in.lse, "lse")};
}

JvpOutputs Reader::jvp_outputs(const keel_jvp_outputs* from) const {
  const keel_jvp_outputs o = read(from, "outputs");
  return {
      .tout = view<4>(o.tout, "tout"), .tlse = view<3>(o.tlse, "tlse"), .accumulate = flag(o.accumulate, "accumulate")};
}

DoubleGradients Reader::double_gradients(const keel_double_gradients* from) const {
  const keel_double_gradients g = read(from, "gradients");
  return {.gradients = {.dq = view<4>(g.dq, "dq"),
                        .dk = view<4>(g.dk, "dk"),
                        .dv = view<4>(g.dv, "dv"),
                        .dbias = view<4>(g.dbias, "dbias"),
                        .dscale = view<3>(g.dscale, "dscale"),
                        .dsinks = view<1>(g.dsinks, "dsinks"),
                        .accumulate = flag(g.accumulate, "accumulate")},
          .ddout = view<4>(g.ddout, "ddout"),
          .ddlse = view<3>(g.ddlse, "ddlse")};
}

// The first element's size, as in the program's header, is the distance between elements.
std::vector<Partial> Reader::parts(const keel_partial* from, std::int64_t count) const {
  check_list(from, count, "parts");
  std::vector<Partial> list;
  const std::uint64_t size = count > 0 ? from->size : 0;
  for (std::int64_t i = 0; i < count; ++i) {
    const auto* const at = reinterpret_cast<const char*>(from) + static_cast<std::uint64_t>(i) * size;
    const std::string name = concat("parts[", i, "]");
    const keel_partial p = read(reinterpret_cast<const keel_partial*>(at), name);
    if (p.size != size) refuse(name, ".size: expected ", size, " as in parts[0], got ", p.size);
    const std::string of = name + ".";
    list.push_back({.out = view<4>(p.out, "out", of),
                    .lse = view<3>(p.lse, "lse", of),
                    .max_logit = view<3>(p.max_logit, "max_logit", of),
                    .entropy = view<3>(p.entropy, "entropy", of),
                    .max_weight = view<3>(p.max_weight, "max_weight", of),
                    .logit_mean = view<3>(p.logit_mean, "logit_mean", of),
                    .logit_var = view<3>(p.logit_var, "logit_var", of),
                    .visible = view<3>(p.visible, "visible", of),
                    .logit_count = view<3>(p.logit_count, "logit_count", of)});
  }
  return list;
}

}  // namespace keel::c_api
