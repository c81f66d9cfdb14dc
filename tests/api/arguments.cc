#include "api/arguments.h"

#include <cmath>
#include <cstring>
#include <limits>

namespace keel::testing_arguments {
namespace {

using conformance::Generator;
constexpr std::int64_t kMax = std::numeric_limits<std::int64_t>::max();
constexpr std::int64_t kMin = std::numeric_limits<std::int64_t>::min();
constexpr std::int64_t kFarthest = std::int64_t{1} << 40;  // size or position

constexpr DType kFloats[] = {DType::f64, DType::f32, DType::f16, DType::bf16};

struct Sizes {
  std::int64_t b, hq, hkv, nq, nk, dk, dv;
};

Sizes random_sizes(Generator& random) {
  const std::int64_t hkv = random.integer(1, 2);
  return {random.integer(1, 2), hkv * random.integer(1, 2), hkv, random.integer(0, 4), random.integer(0, 5),
          random.integer(1, 4), random.integer(1, 4)};
}

template <class View, class Shape>
View placed(Arena& arena, int slot, DType dtype, const Shape& shape) {
  return {arena.slot(slot), dtype, shape, contiguous_strides(shape)};
}

// What the library refuses whatever the other arguments are. So it does a view on another device: the other views are
// not there, or no backend is.
template <std::size_t Rank, class Pointer>
bool hopeless(const BasicView<Rank, Pointer>& view) {
  if (view.device != Device{}) return true;
  bool empty = false;
  double elements = 1.0, bytes = 0.0;
  for (std::size_t i = 0; i < Rank; ++i) {
    if (view.shape[i] < 0 || view.shape[i] > kFarthest) return true;
    empty = empty || view.shape[i] == 0;
  }
  if (size_of(view.dtype) == 0) return true;
  if (empty) return false;
  for (std::size_t i = 0; i < Rank; ++i) {
    elements *= static_cast<double>(view.shape[i]);
    bytes += std::fabs(static_cast<double>(view.strides[i])) * static_cast<double>(view.shape[i] - 1);
    if (view.strides[i] == kMin) return true;
  }
  if (elements > 0x1p57 || bytes * static_cast<double>(size_of(view.dtype)) > 0x1p61) return true;
  return view.data == nullptr ||
         reinterpret_cast<std::uintptr_t>(view.data) % static_cast<std::uintptr_t>(size_of(view.dtype)) != 0;
}

std::int64_t wild_size(Generator& random) {
  constexpr std::int64_t wild[] = {-1,
                                   0,
                                   1,
                                   2,
                                   3,
                                   7,
                                   1 << 20,
                                   std::int64_t{1} << 40,
                                   (std::int64_t{1} << 40) + 1,
                                   kMax,
                                   kMin,
                                   std::int64_t{1} << 62,
                                   -(std::int64_t{1} << 40)};
  return random.pick(wild);
}
std::int64_t wild_stride(Generator& random) {
  constexpr std::int64_t wild[] = {
      0, 1, -1, 2, -3, 5, 16, -16, std::int64_t{1} << 40, -(std::int64_t{1} << 40), kMax, kMin, std::int64_t{1} << 62};
  return random.chance(0.5) ? random.pick(wild) : random.integer(-20, 20);
}
double wild_number(Generator& random) {
  constexpr double wild[] = {0.0, -0.0, 1.0, -1.0, 0.5, 2.0, 1e300, -1e300, 1e-300, INFINITY, -INFINITY, NAN};
  return random.pick(wild);
}

// Spoils one thing of a view; what then looks valid but lies outside the arena is put back.
template <std::size_t Rank, class Pointer>
void spoil(Generator& random, Arena& arena, BasicView<Rank, Pointer>& view) {
  const BasicView<Rank, Pointer> before = view;
  const auto i = static_cast<std::size_t>(random.integer(0, Rank - 1));
  switch (random.integer(0, 9)) {
    case 0:
      view.shape[i] = wild_size(random);
      break;
    case 1:
      view.shape[i] = random.integer(-1, 6);
      break;
    case 2:
    case 3:
      view.strides[i] = wild_stride(random);
      break;
    case 4:
      view.data = random.chance(0.5) ? nullptr : arena.slot(static_cast<int>(random.integer(0, Arena::kSlots - 1)));
      break;
    case 5:
      view.data = arena.slot(static_cast<int>(random.integer(0, Arena::kSlots - 1))) + random.integer(-9, 9);
      break;
    case 6:
      view.dtype = static_cast<DType>(random.chance(0.7) ? random.integer(0, 5) : random.integer(6, 255));
      break;
    case 7:
      view = {};
      break;
    case 8: {
      const auto j = static_cast<std::size_t>(random.integer(0, Rank - 1));
      std::swap(view.shape[i], view.shape[j]);
      std::swap(view.strides[i], view.strides[j]);
      break;
    }
    case 9:
      view.device = {static_cast<DeviceKind>(random.integer(-1, 3)), static_cast<std::int32_t>(random.integer(-1, 1))};
      break;
  }
  if (!view.given() || hopeless(view)) return;
  for (const std::int64_t size : view.shape) {
    if (size == 0) return;
  }
  if (!arena.holds(view)) view = before;
}

// Visits every view of a call; `visit` gets it by reference.
template <class Visit>
void for_views(ForwardArguments& a, Visit visit, bool inputs_only = false) {
  visit(a.q), visit(a.k), visit(a.v);
  Options& o = a.options;
  visit(o.scale_tensor), visit(o.mask), visit(o.bias), visit(o.alibi), visit(o.sinks);
  if (inputs_only) return;
  visit(a.out);
  Outputs& p = a.outputs;
  visit(p.lse), visit(p.max_logit), visit(p.entropy), visit(p.max_weight), visit(p.logit_mean), visit(p.logit_var);
  visit(p.visible), visit(p.logit_count), visit(p.weights), visit(p.key_sums), visit(p.scores);
}
template <class Visit>
void for_views(BackwardArguments& a, Visit visit) {
  for_views(a.forward, visit, true);
  BackwardInputs& in = a.inputs;
  visit(in.out), visit(in.lse), visit(in.dout), visit(in.dlse);
  Gradients& g = a.gradients;
  visit(g.dq), visit(g.dk), visit(g.dv), visit(g.dbias), visit(g.dscale), visit(g.dsinks);
}
template <class Visit>
void for_views(MergeArguments& a, Visit visit) {
  for (Partial& part : a.parts) {
    visit(part.out), visit(part.lse), visit(part.max_logit), visit(part.entropy), visit(part.max_weight);
    visit(part.logit_mean), visit(part.logit_var), visit(part.visible), visit(part.logit_count);
  }
  visit(a.out);
  Outputs& o = a.outputs;
  visit(o.lse), visit(o.max_logit), visit(o.entropy), visit(o.max_weight), visit(o.logit_mean), visit(o.logit_var);
  visit(o.visible), visit(o.logit_count);
}

template <class Arguments>
void spoil_views(Generator& random, Arena& arena, Arguments& arguments) {
  int views = 0;
  for_views(arguments, [&](auto&) { ++views; });
  for (std::int64_t n = random.chance(0.3) ? 0 : random.integer(1, 3); n > 0; --n) {
    const std::int64_t chosen = random.integer(0, views - 1);
    std::int64_t at = 0;
    for_views(arguments, [&](auto& view) {
      if (at++ == chosen) spoil(random, arena, view);
    });
  }
}

template <class Arguments>
bool any_hopeless(Arguments& arguments) {
  bool found = false;
  for_views(arguments, [&](auto& view) { found = found || (view.given() && hopeless(view)); });
  return found;
}

bool hopeless_options(const Options& o) {
  return (o.scale && !std::isfinite(*o.scale)) || (o.softcap && !(*o.softcap > 0 && std::isfinite(*o.softcap))) ||
         !(o.dropout >= 0 && o.dropout <= 1) || o.threads < 0 || o.window.left < 0 || o.window.right < 0 ||
         static_cast<int>(o.causal) > 2 || o.origin.query < 0 || o.origin.query > kFarthest || o.origin.key < 0 ||
         o.origin.key > kFarthest || o.origin.n_q < 0 || o.origin.n_q > kFarthest || o.origin.n_k < 0 ||
         o.origin.n_k > kFarthest;
}

void spoil_options(Generator& random, ForwardArguments& a) {
  Options& o = a.options;
  if (random.chance(0.75)) return;
  switch (random.integer(0, 9)) {
    case 0:
      o.scale = wild_number(random);
      break;
    case 1:
      o.softcap = wild_number(random);
      break;
    case 2:
      o.dropout = wild_number(random);
      break;
    case 3:
      o.causal = static_cast<Causal>(random.integer(0, 255));
      break;
    case 4:
      o.window = {wild_stride(random), wild_stride(random)};
      break;
    case 5:
      o.threads = static_cast<int>(random.integer(std::numeric_limits<int>::min(), std::numeric_limits<int>::max()));
      break;
    case 6:
    case 7: {  // a wrong value, or one too many or too few
      std::vector<std::int64_t>& list = a.lists[random.integer(0, 3)];
      if (list.empty() || random.chance(0.3)) list.push_back(random.integer(-1, 6));
      if (random.chance(0.3)) list.pop_back();
      if (!list.empty()) list[static_cast<std::size_t>(random.integer(0, std::ssize(list) - 1))] = wild_size(random);
      break;
    }
    case 8:
      a.outputs.saturation_threshold = wild_number(random);
      a.heads.resize(static_cast<std::size_t>(random.integer(0, 9)));
      break;
    case 9: {
      std::int64_t* const all[] = {&o.origin.query, &o.origin.key, &o.origin.n_q, &o.origin.n_k};
      *random.pick(all) = random.chance(0.5) ? wild_size(random) : random.integer(-1, 9);
      break;
    }
  }
}

// A call with room for everything it may ask for, and each feature there with some probability.
ForwardArguments valid_forward(Generator& random, Arena& arena, Sizes& s) {
  s = random_sizes(random);
  ForwardArguments a;
  const DType dtype = random.pick(kFloats), side = accumulation_dtype(dtype);
  const bool packed = random.chance(0.2);
  if (packed) s.b = 1;
  using Shape4 = std::array<std::int64_t, 4>;
  using Shape3 = std::array<std::int64_t, 3>;
  a.q = placed<TensorView>(arena, 0, dtype, Shape4{s.b, s.hq, s.nq, s.dk});
  a.k = placed<TensorView>(arena, 1, dtype, Shape4{s.b, s.hkv, s.nk, s.dk});
  a.v = placed<TensorView>(arena, 2, dtype, Shape4{s.b, s.hkv, s.nk, s.dv});
  a.out = placed<MutableTensorView>(arena, 3, dtype, Shape4{s.b, s.hq, s.nq, s.dv});
  Options& o = a.options;
  const auto one_or = [&](std::int64_t size) { return random.chance(0.4) ? 1 : size; };
  if (random.chance(0.2)) {
    o.scale_tensor = placed<RowView>(arena, 4, random.pick(kFloats), Shape3{one_or(s.b), one_or(s.hq), one_or(s.nq)});
  } else if (random.chance(0.3)) {
    o.scale = random.normal();
  }
  const auto scores = [&] { return Shape4{one_or(s.b), one_or(s.hq), one_or(s.nq), one_or(s.nk)}; };
  if (random.chance(0.3)) o.mask = placed<TensorView>(arena, 5, DType::boolean, scores());
  if (random.chance(0.3)) o.bias = placed<TensorView>(arena, 6, random.chance(0.5) ? dtype : DType::f32, scores());
  if (random.chance(0.2)) {
    o.alibi = placed<TableView>(arena, 7, random.pick(kFloats), std::array{one_or(s.b), s.hq});
  }
  if (random.chance(0.2)) o.sinks = placed<HeadView>(arena, 8, random.pick(kFloats), std::array{s.hq});
  o.causal = static_cast<Causal>(random.integer(0, 2));
  if (random.chance(0.2)) o.window = {random.integer(0, 4), random.integer(0, 4)};
  if (random.chance(0.2)) o.softcap = random.uniform(0.1, 9.0);
  if (random.chance(0.2)) o.dropout = random.uniform();
  o.seed = random.next();
  std::int64_t whole_q = s.nq, whole_k = s.nk;
  if (random.chance(0.3)) {
    o.origin = {.query = random.integer(0, 5), .key = random.integer(0, 5)};
    whole_q += o.origin.query;
    whole_k += o.origin.key;
    if (random.chance(0.7)) o.origin.n_q = whole_q += random.integer(0, 4);
    if (random.chance(0.7)) o.origin.n_k = whole_k += random.integer(0, 4);
  }
  if (packed) {
    const std::int64_t q_cut = random.integer(0, whole_q), k_cut = random.integer(0, whole_k);
    a.lists[2] = {0, q_cut, whole_q};
    a.lists[3] = {0, k_cut, whole_k};
  } else {
    for (std::int64_t b = 0; b < s.b && random.chance(0.7); ++b) a.lists[0].push_back(random.integer(0, whole_q));
    for (std::int64_t b = 0; b < s.b && random.chance(0.7); ++b) a.lists[1].push_back(random.integer(0, whole_k));
    for (int list = 0; list < 2; ++list) {
      if (std::ssize(a.lists[list]) != s.b) a.lists[list].clear();
    }
  }
  Outputs& p = a.outputs;
  int slot = 9;
  for (MutableRowView* rows : {&p.lse, &p.max_logit, &p.entropy, &p.max_weight, &p.logit_mean, &p.logit_var}) {
    if (random.chance(0.3)) *rows = placed<MutableRowView>(arena, slot, side, Shape3{s.b, s.hq, s.nq});
    ++slot;
  }
  if (random.chance(0.3)) p.visible = placed<MutableRowView>(arena, 15, DType::i64, Shape3{s.b, s.hq, s.nq});
  if (random.chance(0.3)) {
    p.weights =
        placed<MutableTensorView>(arena, 16, random.chance(0.5) ? dtype : DType::f32, Shape4{s.b, s.hq, s.nq, s.nk});
  }
  if (random.chance(0.3)) p.logit_count = placed<MutableRowView>(arena, 18, DType::i64, Shape3{s.b, s.hq, s.nq});
  if (random.chance(0.3)) p.key_sums = placed<MutableRowView>(arena, 17, side, Shape3{s.b, s.hq, s.nk});
  if (random.chance(0.2)) {
    p.scores =
        placed<MutableTensorView>(arena, 19, random.chance(0.5) ? dtype : DType::f32, Shape4{s.b, s.hq, s.nq, s.nk});
    p.score_stage = static_cast<ScoreStage>(random.chance(0.95) ? random.integer(0, 2) : random.integer(3, 255));
  }
  if (random.chance(0.3)) p.key_sum_rows = random.chance(0.9) ? random.integer(0, 5) : wild_size(random);
  if (random.chance(0.3)) a.heads.resize(static_cast<std::size_t>((packed ? 2 : s.b) * s.hq));
  return a;
}

void attach_lists(ForwardArguments& a) {
  a.options.q_lengths = a.lists[0];
  a.options.k_lengths = a.lists[1];
  a.options.q_offsets = a.lists[2];
  a.options.k_offsets = a.lists[3];
  a.outputs.heads = a.heads;
}

// Spoils one of the lists as the call shows it, but not what it counts: that is a lie which no library can see.
void spoil_lists(Generator& random, ForwardArguments& a) {
  if (random.chance(0.9)) return;
  Options& o = a.options;
  ListView* const all[] = {&o.q_lengths, &o.k_lengths, &o.q_offsets, &o.k_offsets};
  ListView& list = *random.pick(all);
  if (list.empty()) return;
  switch (random.integer(0, 5)) {
    case 0:
      list.data = nullptr;
      break;
    case 1:
      list.dtype = static_cast<DType>(random.integer(0, 9));
      break;
    case 2:
      list.device = {DeviceKind::cuda, 0};
      break;
    case 3:
      list.data = static_cast<const unsigned char*>(list.data) + 1;
      break;
    case 4:
      list.strides[0] = 0;
      break;
    case 5:
      list.data = static_cast<const std::int64_t*>(list.data) + (list.size() - 1);
      list.strides[0] = -1;
      break;
  }
}

// Sizes that are valid, agree with each other and mean hours of work: possible only where stride 0 makes a view small.
bool endless(const TensorView& q, const TensorView& k, const TensorView& v) {
  double work = 1.0;
  for (const std::int64_t size : {q.shape[0], q.shape[1], q.shape[2], k.shape[2], q.shape[3], v.shape[3]}) {
    work *= static_cast<double>(std::max<std::int64_t>(size, 1));
  }
  return work > 1e5;
}

}  // namespace

void Arena::fill(Generator& random) {
  for (double& value : memory_) {
    const std::uint64_t bits = random.next();
    std::memcpy(&value, &bits, sizeof(value));
  }
}

void Arena::fill_with_numbers(Generator& random) {
  // In any order: exponents of small numbers, or of 0.
  constexpr unsigned char kBytes[16] = {0x00, 0x00, 0x80, 0x80, 0x3C, 0x3D, 0x3E, 0x3E,
                                        0x3F, 0x3F, 0xBC, 0xBD, 0xBE, 0xBE, 0xBF, 0xBF};
  std::uint64_t bits = 0;
  for (std::size_t at = 0; at < bytes().size(); ++at, bits >>= 4) {
    if (at % 16 == 0) bits = random.next();
    bytes()[at] = kBytes[bits % 16];
  }
}

namespace {

template <class Arguments>
std::vector<Place> find_places(Arguments& arguments) {
  std::vector<Place> found;
  for_views(arguments, [&]<std::size_t Rank, class Pointer>(const BasicView<Rank, Pointer>& view) {
    if (view.given()) found.push_back({layout_of(view), std::is_same_v<Pointer, void*>});
  });
  return found;
}

}  // namespace

std::vector<Place> places_of(ForwardArguments& arguments) { return find_places(arguments); }
std::vector<Place> places_of(BackwardArguments& arguments) { return find_places(arguments); }
std::vector<Place> places_of(MergeArguments& arguments) { return find_places(arguments); }

ForwardArguments random_forward(Generator& random, Arena& arena, bool& must_fail) {
  while (true) {
    Sizes s{};
    ForwardArguments a = valid_forward(random, arena, s);
    spoil_views(random, arena, a);
    spoil_options(random, a);
    if (endless(a.q, a.k, a.v) && !any_hopeless(a)) continue;
    attach_lists(a);
    spoil_lists(random, a);
    must_fail = any_hopeless(a) || hopeless(a.q) || hopeless(a.k) || hopeless(a.v) || hopeless(a.out) ||
                hopeless_options(a.options) || a.outputs.key_sum_rows < 0 ||
                a.outputs.score_stage > ScoreStage::masked ||
                !(a.outputs.saturation_threshold >= 0 && a.outputs.saturation_threshold <= 1);
    return a;
  }
}

BackwardArguments random_backward(Generator& random, Arena& arena, bool& must_fail) {
  while (true) {
    Sizes s{};
    BackwardArguments a{valid_forward(random, arena, s), {}, {}};
    ForwardArguments& f = a.forward;
    const DType dtype = f.q.dtype, side = accumulation_dtype(dtype);
    using Shape4 = std::array<std::int64_t, 4>;
    using Shape3 = std::array<std::int64_t, 3>;
    const Shape4 out = {s.b, s.hq, s.nq, s.dv};
    const Shape3 rows = {s.b, s.hq, s.nq};
    a.inputs.out = placed<TensorView>(arena, 17, dtype, out);
    a.inputs.lse = placed<RowView>(arena, 18, side, rows);
    a.inputs.dout = placed<TensorView>(arena, 19, dtype, out);
    if (random.chance(0.5)) a.inputs.dlse = placed<RowView>(arena, 20, side, rows);
    Gradients& g = a.gradients;
    if (random.chance(0.7)) g.dq = placed<MutableTensorView>(arena, 21, dtype, f.q.shape);
    if (random.chance(0.7)) g.dk = placed<MutableTensorView>(arena, 22, dtype, f.k.shape);
    if (random.chance(0.7)) g.dv = placed<MutableTensorView>(arena, 23, dtype, f.v.shape);
    const auto one_or = [&](std::int64_t size) { return random.chance(0.4) ? 1 : size; };
    if (f.options.bias.given()) {
      g.dbias = placed<MutableTensorView>(arena, 24, random.chance(0.5) ? dtype : DType::f32,
                                          Shape4{one_or(s.b), one_or(s.hq), one_or(s.nq), one_or(s.nk)});
    }
    if (random.chance(0.5)) {
      g.dscale =
          placed<MutableRowView>(arena, 25, random.pick(kFloats), Shape3{one_or(s.b), one_or(s.hq), one_or(s.nq)});
    }
    if (f.options.sinks.given()) g.dsinks = placed<MutableHeadView>(arena, 26, random.pick(kFloats), std::array{s.hq});
    g.accumulate = random.chance(0.3);
    spoil_views(random, arena, a);
    spoil_options(random, f);
    if (endless(f.q, f.k, f.v) && !any_hopeless(a)) continue;
    attach_lists(f);
    spoil_lists(random, f);
    a.inputs.q = f.q;
    a.inputs.k = f.k;
    a.inputs.v = f.v;
    must_fail = any_hopeless(a) || hopeless(f.q) || hopeless(f.k) || hopeless(f.v) || hopeless(a.inputs.out) ||
                hopeless(a.inputs.lse) || hopeless(a.inputs.dout) || hopeless_options(f.options);
    return a;
  }
}

MergeArguments random_merge(Generator& random, Arena& arena, bool& must_fail) {
  const std::array<std::int64_t, 4> shape = {random.integer(0, 2), random.integer(0, 3), random.integer(0, 4),
                                             random.integer(0, 4)};
  const std::array<std::int64_t, 3> rows = {shape[0], shape[1], shape[2]};
  const DType dtype = random.pick(kFloats), side = accumulation_dtype(dtype);
  MergeArguments a;
  const auto chance = [&] { return random.chance(0.4); };
  // What is asked for, parts have; some of what is not, too.
  struct Pair {
    RowView Partial::*part;
    MutableRowView Outputs::*result;
    DType dtype;
    bool wanted;
  };
  const Pair pairs[] = {{&Partial::lse, &Outputs::lse, side, chance()},
                        {&Partial::max_logit, &Outputs::max_logit, side, chance()},
                        {&Partial::entropy, &Outputs::entropy, side, chance()},
                        {&Partial::max_weight, &Outputs::max_weight, side, chance()},
                        {&Partial::logit_mean, &Outputs::logit_mean, side, chance()},
                        {&Partial::logit_var, &Outputs::logit_var, side, chance()},
                        {&Partial::visible, &Outputs::visible, DType::i64, chance()},
                        {&Partial::logit_count, &Outputs::logit_count, DType::i64, chance()}};
  int slot = 0;
  a.out = placed<MutableTensorView>(arena, slot++, dtype, shape);
  for (const Pair& pair : pairs) {
    if (pair.wanted) a.outputs.*pair.result = placed<MutableRowView>(arena, slot, pair.dtype, rows);
    ++slot;
  }
  const bool moments = a.outputs.logit_mean.given() || a.outputs.logit_var.given();
  for (int n = static_cast<int>(random.integer(0, 5)); n > 0; --n) {
    Partial& part = a.parts.emplace_back();
    part.out = placed<TensorView>(arena, slot++, random.chance(0.5) ? dtype : side, shape);
    for (const Pair& pair : pairs) {
      const bool needed = pair.wanted || pair.part == &Partial::lse ||
                          (moments && (pair.part == &Partial::logit_mean || pair.part == &Partial::logit_count));
      if (needed || chance()) part.*pair.part = placed<RowView>(arena, slot, pair.dtype, rows);
      ++slot;
    }
  }
  if (!a.parts.empty() && chance()) {  // in place of a part, where its dtype allows it
    Partial& part = a.parts[static_cast<std::size_t>(random.integer(0, std::ssize(a.parts) - 1))];
    part.out.data = a.out.data;
    if (a.outputs.entropy.given()) part.entropy.data = a.outputs.entropy.data;
  }
  a.threads = static_cast<int>(random.chance(0.05) ? random.integer(-3, -1) : random.integer(0, 3));
  spoil_views(random, arena, a);
  must_fail = any_hopeless(a) || a.parts.empty() || hopeless(a.out) || a.threads < 0;
  return a;
}

}  // namespace keel::testing_arguments
