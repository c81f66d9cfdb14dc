// What the CUDA backend decides without a GPU: which kernel, how a call is cut into tiles, and which keys a tile walks.
#include "cuda/plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <map>
#include <set>
#include <tuple>
#include <vector>

#include "conformance/instance.h"
#include "conformance/random.h"
#include "core/problem.h"
#include "cuda/hopper/backward.h"
#include "cuda/hopper/backward_workspace.h"
#include "cuda/hopper/dropout.h"
#include "cuda/hopper/tiles.h"

namespace keel::cuda {
namespace {

using hopper::Cut;
using hopper::Keys;
using hopper::Terms;
using hopper::Tile;
using testing::HasSubstr;

constexpr Gpu kHopper = {.name = "a Hopper GPU", .major = 9, .minor = 0, .processors = 132};

// Arrays at an address that is not read; rows without gaps.
TensorView array(std::array<std::int64_t, 4> shape, DType dtype = DType::bf16) {
  return {reinterpret_cast<void*>(std::uintptr_t{1} << 30), dtype, shape, contiguous_strides(shape)};
}

struct Call4 {
  std::int64_t batch = 2, q_heads = 4, kv_heads = 4, n_q = 1024, n_k = 1024, d_k = 64, d_v = 64;
  DType dtype = DType::bf16;
  Options options{};
  Outputs outputs{};

  Problem problem() const {
    const std::array<std::int64_t, 4> out = {batch, q_heads, n_q, d_v};
    return make_problem(array({batch, q_heads, n_q, d_k}, dtype), array({batch, kv_heads, n_k, d_k}, dtype),
                        array({batch, kv_heads, n_k, d_v}, dtype),
                        {reinterpret_cast<void*>(std::uintptr_t{1} << 40), dtype, out, contiguous_strides(out)},
                        options, outputs, Pointers::ignored);
  }
};

// The last reason that the planner gives.
std::string reason_of(const Problem& problem, const Gpu& gpu = kHopper) {
  std::vector<std::string> reasons;
  EXPECT_FALSE(plan_forward(problem, gpu, &reasons).hopper);
  return reasons.empty() ? "" : reasons.back();
}

TEST(CudaPlan, AHopperKernelServes16BitsUpTo256) {
  for (const std::int64_t d : {8, 64, 72, 96, 128, 192, 256}) {
    const ForwardWork work = plan_forward(Call4{.d_k = d, .d_v = d}.problem(), kHopper, nullptr);
    EXPECT_TRUE(work.hopper) << d;
    EXPECT_GE(work.choice.shape.d, d);
  }
}

TEST(CudaPlan, ThePlainKernelServesTheRestAndSaysWhy) {
  EXPECT_THAT(reason_of(Call4{.dtype = DType::f32}.problem()), HasSubstr("dtype f32"));
  EXPECT_THAT(reason_of(Call4{.d_k = 264, .d_v = 264}.problem()), HasSubstr("head size 264"));
  EXPECT_THAT(reason_of(Call4{.d_k = 20, .d_v = 20}.problem()), HasSubstr("head sizes 20 and 20, not multiples of 8"));
  EXPECT_THAT(reason_of(Call4{.n_k = 0}.problem()), HasSubstr("no pair"));
  EXPECT_THAT(reason_of(Call4{}.problem(), {.major = 8, .minor = 0}), HasSubstr("compute capability 8.0"));
  EXPECT_THAT(reason_of(Call4{.options = {.dropout = 1.0}}.problem()), HasSubstr("dropout of 1"));
  EXPECT_THAT(reason_of(Call4{.options = {.softcap = 300.0}}.problem()), HasSubstr("softcap above 256"));
  const float table[] = {0, 1, 2};
  EXPECT_THAT(reason_of(Call4{.options = {.relative_bias = table_view(table, {1, 3})}}.problem()),
              HasSubstr("a bias by distance"));
}

// The copy engine writes past the end of rows that end between multiples of 16 bytes.
TEST(CudaPlan, RowsThatEndBetweenMultiplesOf16BytesArePlain) {
  const auto padded = [](std::int64_t d) {
    TensorView x = array({1, 2, 256, d}, DType::f16);
    x.strides = {2 * 256 * 40, 256 * 40, 40, 1};
    return x;
  };
  const TensorView q = padded(37);
  const MutableTensorView out{reinterpret_cast<void*>(std::uintptr_t{1} << 40), DType::f16, q.shape, q.strides};
  EXPECT_THAT(reason_of(make_problem(q, q, q, out, {}, {}, Pointers::ignored)), HasSubstr("not multiples of 8"));
}

Terms terms_of(const Call4& call) { return plan_forward(call.problem(), kHopper, nullptr).choice.terms; }

TEST(CudaPlan, ASingleTermHasItsOwnKernelAndSeveralShareOne) {
  const auto terms = [](const Options& options) { return terms_of({.options = options}); };
  const TensorView scores = array({2, 4, 1024, 1024}), mask = array({1, 1, 1024, 1024}, DType::boolean);
  EXPECT_EQ(terms({}), Terms::none);
  EXPECT_EQ(terms({.causal = Causal::bottom_right, .window = {128, 0}}), Terms::none);
  EXPECT_EQ(terms({.softcap = 50.0}), Terms::softcap);
  EXPECT_EQ(terms({.dropout = 0.1}), Terms::dropout);
  EXPECT_EQ(terms({.bias = scores}), Terms::bias);
  EXPECT_EQ(terms({.mask = mask}), Terms::mask);
  EXPECT_EQ(terms({.mask = mask, .bias = scores}), Terms::any);
  EXPECT_EQ(terms({.softcap = 50.0, .dropout = 0.1}), Terms::any);
  EXPECT_EQ(terms({.scale = -1.0}), Terms::any);
  EXPECT_EQ(terms({.scale = 0.0}), Terms::any);
}

// Tiles of a bias or mask lie in shared memory beside those of k and v.
TEST(CudaPlan, SingleTermsHaveTheShapesThatTheirKernelsAreCompiledFor) {
  const auto shape = [](std::int64_t d, const Options& options) {
    const Call4 call{.batch = 16, .n_q = 4096, .n_k = 4096, .d_k = d, .d_v = d, .options = options};
    return plan_forward(call.problem(), kHopper, nullptr).choice.shape;
  };
  const TensorView bias = array({16, 4, 4096, 4096}), mask = array({16, 4, 4096, 4096}, DType::boolean);
  for (const int d : {64, 128}) {
    EXPECT_EQ(shape(d, {.bias = bias}), hopper::shape_for(d, hopper::Purpose::tiled)) << d;
    EXPECT_EQ(shape(d, {.mask = mask}), hopper::shape_for(d, hopper::Purpose::tiled)) << d;
    EXPECT_EQ(shape(d, {.softcap = 50.0}), hopper::shape_for(d, hopper::Purpose::wide)) << d;
    EXPECT_EQ(shape(d, {.dropout = 0.1}), hopper::shape_for(d, hopper::Purpose::plain)) << d;
  }
}

TEST(CudaPlan, WhatASingleTermsKernelCannotReadTakesTheOneForAny) {
  const auto off = [](TensorView view, std::size_t dimension) {
    view.strides[dimension] += 4;
    return view;
  };
  const TensorView bias = array({2, 4, 1024, 1024}), mask = array({2, 4, 1024, 1024}, DType::boolean);
  EXPECT_EQ(terms_of({.options = {.bias = array({2, 4, 1024, 1024}, DType::f32)}}), Terms::any);
  for (std::size_t dimension = 0; dimension < 3; ++dimension) {
    EXPECT_EQ(terms_of({.options = {.bias = off(bias, dimension)}}), Terms::any) << dimension;
    EXPECT_EQ(terms_of({.options = {.mask = off(mask, dimension)}}), Terms::any) << dimension;
  }
  TensorView backwards = bias;
  backwards.strides[2] = -1024;
  EXPECT_EQ(terms_of({.options = {.bias = backwards}}), Terms::any);
  TensorView late = bias;
  late.data = static_cast<const std::uint16_t*>(late.data) + 1;
  EXPECT_EQ(terms_of({.options = {.bias = late}}), Terms::any);
  EXPECT_EQ(terms_of({.n_q = 1, .options = {.softcap = 50.0}}), Terms::any);  // decoding
  EXPECT_EQ(terms_of({.d_k = 256, .d_v = 256, .options = {.softcap = 50.0}}), Terms::any);
  float entropy = 0;
  EXPECT_EQ(terms_of({.options = {.softcap = 50.0}, .outputs = {.entropy = row_view(&entropy, {2, 4, 1024})}}),
            Terms::any);
}

// Entropy has no kernel of two warpgroups at head size 64, and statistics have none for head sizes 96 and 192.
TEST(CudaPlan, StatisticsHaveTheShapesThatTheirKernelsAreCompiledFor) {
  float entropy = 0, mean = 0;
  const auto shape = [](std::int64_t d, const Outputs& outputs) {
    Call4 call{.n_q = 256, .n_k = 256, .d_k = d, .d_v = d, .outputs = outputs};
    call.options.causal = Causal::top_left;
    return plan_forward(call.problem(), kHopper, nullptr).choice.shape;
  };
  const Outputs entropies{.entropy = row_view(&entropy, {2, 4, 256})};
  const Outputs means{.logit_mean = row_view(&mean, {2, 4, 256})};
  const std::map<int, int> served_by = {{64, 64}, {96, 128}, {128, 128}, {192, 256}, {256, 256}};
  for (const auto& [d, served] : served_by) {
    EXPECT_EQ(shape(d, {}), hopper::shape_for(d, hopper::Purpose::plain)) << d;
    EXPECT_EQ(shape(d, entropies), hopper::shape_for(served, hopper::Purpose::wide)) << d;
    EXPECT_EQ(shape(d, means), hopper::shape_for(served, hopper::Purpose::plain)) << d;
  }
}

TEST(CudaPlan, FewQueriesShareTilesAmongHeadsAndSplitTheKeys) {
  const ForwardWork work =
      plan_forward(Call4{.q_heads = 32, .kv_heads = 8, .n_q = 1, .n_k = 32768}.problem(), kHopper, nullptr);
  EXPECT_EQ(work.cut.share, 4);
  EXPECT_EQ(work.cut.heads, 8);
  EXPECT_EQ(work.cut.chunks, 16);
}

// The tiles of a cut, as the kernel takes them.
std::vector<Tile> tiles_of(const ForwardWork& work) {
  std::vector<Tile> tiles;
  if (!work.call.sequences.packed()) {
    for (int t = 0; t < work.cut.tiles; ++t)
      tiles.push_back(make_tile(work.call, work.cut, tile_index(work.cut, t), t));
    return tiles;
  }
  for (int e = 0; e < work.cut.entries; ++e) {
    for (int h = 0; h < work.cut.heads; ++h) {
      const auto rows = work.call.sequences.entry(e).q_rows * work.cut.share;
      for (int block = 0; block * work.cut.tile_rows < rows; ++block) {
        tiles.push_back(make_tile(work.call, work.cut, {e, h, block, 0}, 0));
      }
    }
  }
  return tiles;
}

// Every row of the call is in one tile per chunk, and sees there the keys that Sequences says.
void expect_tiles_cover(const ForwardWork& work) {
  const Sequences& s = work.call.sequences;
  std::set<std::tuple<int, int, int, int>> seen;  // batch, head, row of the tensor, chunk
  for (const Tile& bare : tiles_of(work)) {
    const Tile tile =
        hopper::with_groups(hopper::with_a_block(bare, work.cut.key_block), hopper::window_of(s), work.cut);
    for (int r = tile.first_row; r < tile.first_row + tile.rows; ++r) {
      const int i = r / work.cut.share, head = tile.head * work.cut.share + r % work.cut.share;
      EXPECT_TRUE(seen.insert({tile.batch, head, tile.q_begin + i, tile.chunk}).second) << "a row in two tiles";
      const Entry entry = s.entry(tile.entry);
      const KeyRange expected = s.key_range(entry, i);
      if (expected.begin == expected.end) continue;
      const Keys keys = keys_of(tile, hopper::window_of(s), i);
      EXPECT_EQ(keys.begin, expected.begin);
      EXPECT_EQ(keys.end, expected.end);
      const int size = work.cut.key_block, shift = tile.shift;
      if (work.cut.chunk == 0) {
        EXPECT_LE(tile.block_begin * size - shift, keys.begin);
        EXPECT_GE(tile.block_end * size - shift, keys.end);
      }
      const int end = tile.group_end[(r - tile.first_row) / 64];
      EXPECT_TRUE(end == tile.block_end || end * size - shift >= keys.end) << "a warpgroup leaves out a key";
      for (int n = std::max(tile.full_begin, tile.block_begin); n < std::min(tile.full_end, tile.block_end); ++n) {
        EXPECT_GE(n * size - shift, keys.begin) << "a block that is called full hides a key";
        EXPECT_LE((n + 1) * size - shift, keys.end) << "a block that is called full hides a key";
      }
    }
  }
  EXPECT_EQ(std::ssize(seen), s.batch * work.call.q_heads * s.n_q * work.cut.chunks);
}

TEST(CudaTiles, CoverEveryRowOnceAndWalkItsKeys) {
  int served = 0;
  for (std::uint64_t seed = 0; seed < 400; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    const conformance::Instance instance(conformance::random_case_for_matrix_units(seed, 400'000));
    const auto memory = instance.forward_memory();
    const Problem problem = make_problem(instance.q(), instance.k(), instance.v(), memory.out_view(),
                                         instance.options(), memory.outputs(), Pointers::ignored);
    const ForwardWork work = plan_forward(problem, kHopper, nullptr);
    if (!work.hopper) continue;
    ++served;
    expect_tiles_cover(work);
  }
  EXPECT_GT(served, 100);
}

// 192 rows from row 192 on, and blocks of 128 keys: rows up to 255 see none of the third block.
TEST(CudaTiles, WarpgroupsLeaveOutBlocksThatNoneOfTheirRowsSees) {
  const Call4 call{.n_q = 4096, .n_k = 4096, .d_k = 64, .d_v = 64, .options = {.causal = Causal::top_left}};
  const ForwardWork work = plan_forward(call.problem(), kHopper, nullptr);
  ASSERT_EQ(work.cut.tile_rows, 192);
  const auto ends = [&](int block) {
    const Tile tile = make_tile(work.call, work.cut, {0, 0, block, 0}, 0);
    const auto& end = hopper::with_groups(tile, hopper::window_of(work.call.sequences), work.cut).group_end;
    return std::array{end[0], end[1], end[2]};
  };
  EXPECT_EQ(ends(0), (std::array{1, 1, 2}));
  EXPECT_EQ(ends(1), (std::array{2, 3, 3}));
  EXPECT_EQ(ends(21), (std::array{32, 0, 0})) << "64 rows are left: two warpgroups have none";
}

TEST(CudaTiles, OfASliceBeginWhereDropoutsNumbersDo) {
  Call4 call{
      .n_q = 100, .n_k = 300, .options = {.origin = {.query = 37, .key = 101, .n_q = 500, .n_k = 500}, .dropout = 0.5}};
  call.options.causal = Causal::bottom_right;
  const ForwardWork work = plan_forward(call.problem(), kHopper, nullptr);
  ASSERT_TRUE(work.hopper);
  for (const Tile& tile : tiles_of(work)) EXPECT_EQ((tile.k_position - tile.shift) % 64, 0);
  expect_tiles_cover(work);
}

// ---- The backward pass.

struct Backward4 {
  Call4 call{};
  DType dout = DType::bf16, gradients = DType::bf16;
  std::array<std::int64_t, 4> dbias{};  // its shape, where it is asked for
  bool accumulate = false;

  BackwardProblem problem() const {
    const auto& c = call;
    const std::array<std::int64_t, 4> q = {c.batch, c.q_heads, c.n_q, c.d_k}, out = {c.batch, c.q_heads, c.n_q, c.d_v};
    const std::array<std::int64_t, 4> k = {c.batch, c.kv_heads, c.n_k, c.d_k}, v = {c.batch, c.kv_heads, c.n_k, c.d_v};
    const auto result = [&](int place, const std::array<std::int64_t, 4>& shape) -> MutableTensorView {
      const auto address = (std::uintptr_t{1} << 40) + (static_cast<std::uintptr_t>(place) << 38);
      return {reinterpret_cast<void*>(address), gradients, shape, contiguous_strides(shape)};
    };
    const std::array<std::int64_t, 3> rows = {c.batch, c.q_heads, c.n_q};
    const RowView lse{reinterpret_cast<void*>(std::uintptr_t{1} << 36), DType::f32, rows, contiguous_strides(rows)};
    return make_backward_problem({.q = array(q, c.dtype),
                                  .k = array(k, c.dtype),
                                  .v = array(v, c.dtype),
                                  .out = array(out, c.dtype),
                                  .lse = lse,
                                  .dout = array(out, dout)},
                                 {.dq = result(0, q),
                                  .dk = result(1, k),
                                  .dv = result(2, v),
                                  .dbias = dbias[0] > 0 ? result(3, dbias) : MutableTensorView{},
                                  .accumulate = accumulate},
                                 c.options, Pointers::ignored);
  }
};

std::string reason_of(const Backward4& call) {
  std::vector<std::string> reasons;
  EXPECT_FALSE(plan_backward(call.problem(), kHopper, &reasons).hopper);
  return reasons.empty() ? "" : reasons.back();
}

TEST(CudaBackwardPlan, AHopperKernelServesMasksByPosition) {
  for (const std::int64_t d : {8, 64, 72, 96, 128, 192, 256}) {
    for (const Options& options : {Options{}, Options{.causal = Causal::top_left}, Options{.window = {100, 0}}}) {
      const BackwardWork work =
          plan_backward(Backward4{.call = {.d_k = d, .d_v = d, .options = options}}.problem(), kHopper, nullptr);
      EXPECT_TRUE(work.hopper) << d;
      EXPECT_GE(work.shape.d, d);
    }
  }
  EXPECT_TRUE(plan_backward(Backward4{.gradients = DType::f32}.problem(), kHopper, nullptr).hopper);
  EXPECT_TRUE(plan_backward(Backward4{.call = {.q_heads = 32, .kv_heads = 8}}.problem(), kHopper, nullptr).hopper);
}

TEST(CudaBackwardPlan, WhatScoresNeedBeyondAMaskByPositionHasItsOwnKernel) {
  const auto terms = [](const Call4& call) {
    const BackwardWork work = plan_backward(Backward4{.call = call}.problem(), kHopper, nullptr);
    EXPECT_TRUE(work.hopper);
    return work.terms;
  };
  const auto scale = [](std::array<std::int64_t, 3> shape) {
    return RowView{reinterpret_cast<void*>(std::uintptr_t{1} << 30), DType::f32, shape, contiguous_strides(shape)};
  };
  EXPECT_FALSE(terms({.options = {.causal = Causal::bottom_right, .window = {128, 0}}}));
  EXPECT_FALSE(terms({.options = {.scale = -1.0}}));
  EXPECT_FALSE(terms({.options = {.scale_tensor = scale({1, 4, 1})}}));
  EXPECT_TRUE(terms({.options = {.scale_tensor = scale({1, 4, 1024})}}));
  EXPECT_TRUE(terms({.kv_heads = 2, .options = {.scale_tensor = scale({1, 4, 1})}}));
  EXPECT_TRUE(terms({.options = {.softcap = 50.0}}));
  EXPECT_TRUE(terms({.options = {.mask = array({1, 1, 1024, 1024}, DType::boolean)}}));
  EXPECT_TRUE(terms({.options = {.bias = array({2, 4, 1024, 1024})}}));
  EXPECT_TRUE(terms({.options = {.dropout = 0.1}}));
}

TEST(CudaBackwardPlan, WorkspaceIsAtMostThreeTimesDqInF32) {
  for (const std::int64_t n : {128, 1000, 4096, 1 << 20}) {
    for (const std::int64_t d : {8, 64, 128, 192, 256}) {
      for (const double dropout : {0.0, 0.1}) {
        const Call4 call{.batch = 1,
                         .q_heads = 8,
                         .kv_heads = 8,
                         .n_q = n,
                         .n_k = n,
                         .d_k = d,
                         .d_v = d,
                         .options = {.dropout = dropout}};
        const BackwardWork work = plan_backward(Backward4{.call = call}.problem(), kHopper, nullptr);
        ASSERT_TRUE(work.hopper);
        EXPECT_LE(hopper::workspace_bytes(work), 3 * 4 * 8 * n * d) << n << " × " << d;
      }
    }
  }
}

BackwardWork with_bias(const std::array<std::int64_t, 4>& shape, bool accumulate = false) {
  const Call4 call{.batch = 3, .q_heads = 4, .kv_heads = 2, .n_q = 200, .n_k = 300, .options = {.bias = array(shape)}};
  return plan_backward(Backward4{.call = call, .dbias = shape, .accumulate = accumulate}.problem(), kHopper, nullptr);
}

TEST(CudaBackwardPlan, DbiasIsSummedWhereItIsBroadcastOrAccumulated) {
  using enum hopper::BiasSums;
  EXPECT_EQ(with_bias({3, 4, 200, 300}).bias_sums, pairs);
  EXPECT_EQ(with_bias({3, 4, 200, 300}, true).bias_sums, tiles);
  EXPECT_EQ(with_bias({1, 4, 200, 300}).bias_sums, tiles);
  EXPECT_EQ(with_bias({1, 1, 200, 300}, true).bias_sums, tiles);
  EXPECT_EQ(with_bias({3, 4, 1, 300}).bias_sums, keys);
  EXPECT_EQ(with_bias({1, 1, 1, 300}, true).bias_sums, keys);
  EXPECT_EQ(with_bias({3, 4, 200, 1}).bias_sums, none);
  EXPECT_EQ(with_bias({1, 1, 1, 1}).bias_sums, none);
}

TEST(CudaBackwardPlan, SumsOfDbiasTakeItsSizeInF32) {
  const std::int64_t without = hopper::workspace_bytes(with_bias({3, 4, 200, 300})), tile = 64 * 64 * 4 + 4;
  EXPECT_EQ(hopper::workspace_bytes(with_bias({3, 4, 200, 300}, true)) - without, 3 * 4 * 4 * 5 * tile);
  EXPECT_EQ(hopper::workspace_bytes(with_bias({1, 4, 200, 300})) - without, 4 * 4 * 5 * tile);
  EXPECT_EQ(hopper::workspace_bytes(with_bias({1, 1, 200, 300})) - without, 4 * 5 * tile);
  EXPECT_EQ(hopper::workspace_bytes(with_bias({1, 1, 1, 300})) - without, 3 * 4 * 5 * 64 * 4);
}

TEST(CudaBackwardPlan, AnyOrderIsOnRequest) {
  const Backward4 free{.call = {.options = {.order = Order::free}}};
  EXPECT_TRUE(plan_backward(Backward4{}.problem(), kHopper, nullptr).ordered);
  EXPECT_FALSE(plan_backward(free.problem(), kHopper, nullptr).ordered);
}

// 16,384 tokens of 2048 / d heads.
int section_of(std::int64_t n, std::int64_t d, const Options& options) {
  const Call4 call{.batch = 16384 / n,
                   .q_heads = 2048 / d,
                   .kv_heads = 2048 / d,
                   .n_q = n,
                   .n_k = n,
                   .d_k = d,
                   .d_v = d,
                   .options = options};
  const BackwardWork work = plan_backward(Backward4{.call = call}.problem(), kHopper, nullptr);
  EXPECT_TRUE(work.hopper);
  return work.cut.section;
}

TEST(CudaBackwardPlan, HeadsSideBySideFitTheCacheAndAreAtLeastFour) {
  for (const std::int64_t d : {64, 128, 256}) {
    for (const std::int64_t n : {512, 1024, 2048, 4096, 8192, 16384}) {
      const std::int64_t fit = (32 << 20) / (n * d * 8), heads = 16384 / n * 2048 / d;
      const int section = section_of(n, d, {});
      EXPECT_EQ(section, std::min(std::max<std::int64_t>(fit, 4), heads)) << n << " × " << d;
      EXPECT_EQ(heads % section, 0) << n << " × " << d << ": sections of different sizes";
      EXPECT_EQ(section_of(n, d, {.causal = Causal::top_left, .order = Order::free}), section) << n << " × " << d;
    }
  }
}

TEST(CudaBackwardPlan, MoreHeadsAreSideBySideWhereBlocksOfKeysWaitForEachOther) {
  const Options causal{.causal = Causal::top_left};
  EXPECT_EQ(section_of(512, 256, causal), 32);   // 33 would do, and 32 fit
  EXPECT_EQ(section_of(1024, 256, causal), 26);  // 23 would do: five sections of 128 heads
  EXPECT_EQ(section_of(8192, 256, causal), 8);
  EXPECT_EQ(section_of(16384, 256, causal), 8);  // all of them: 6 and 2 would be uneven
  EXPECT_EQ(section_of(1024, 64, causal), 64);   // fit
  EXPECT_EQ(section_of(8192, 64, causal), 16);
  EXPECT_EQ(section_of(8192, 128, causal), 11);
  EXPECT_EQ(section_of(16384, 128, causal), 8);
}

TEST(CudaBackwardPlan, ThePlainKernelsServeTheRestAndSayWhy) {
  EXPECT_THAT(reason_of(Backward4{.call = {.dtype = DType::f32}, .dout = DType::f32, .gradients = DType::f32}),
              HasSubstr("dtype f32"));
  EXPECT_THAT(reason_of(Backward4{.dout = DType::f32}), HasSubstr("dout is f32"));
  EXPECT_THAT(reason_of(Backward4{.call = {.d_k = 264, .d_v = 264}}), HasSubstr("head size 264"));
  EXPECT_THAT(reason_of(Backward4{.call = {.options = {.softcap = 300.0}}}), HasSubstr("softcap"));
}

// Every pair that a row may see by position is in one block of one task; blocks that are called full hide nothing; and
// a block of rows meets its blocks of keys from first_key_block() on, without a gap, in tasks of ascending numbers.
void expect_key_tiles_cover(const BackwardWork& work) {
  const Call& f = work.call.forward;
  const Sequences& s = f.sequences;
  const hopper::BackwardCut& cut = work.cut;
  const hopper::Window window = hopper::window_of(s);
  std::set<std::tuple<int, int, int>> keys;                   // batch, head, key of the tensor
  std::map<std::tuple<int, int, int>, int> turns;             // entry, head, block of rows
  std::map<std::tuple<int, int>, std::pair<int, int>> slots;  // batch, slot: whose it is
  std::int64_t pairs = 0, expected = 0;
  for (int t = 0; t < cut.tasks; ++t) {
    const hopper::KeyTile tile = make_key_tile(s, cut, key_task(s, cut, t));
    for (int j = 0; j < tile.keys; ++j) {
      EXPECT_TRUE(keys.insert({tile.batch, tile.head, tile.k_begin + tile.first_key + j}).second) << "a key twice";
    }
    for (int m = tile.block_begin; m < tile.block_end; ++m) {
      int& turn = turns[{tile.entry, tile.head, m}];
      EXPECT_EQ(turn, tile.block - first_key_block(tile, window, cut, m));
      ++turn;
      EXPECT_LT(tile.slot + m, cut.query_slots);
      const auto owner = slots.insert({{tile.batch, tile.slot + m}, {tile.entry, m}}).first->second;
      EXPECT_EQ(owner, std::pair(tile.entry, m)) << "a slot of two blocks";
    }
    for (int j = tile.first_key; j < tile.first_key + tile.keys; ++j) {
      const Keys rows = rows_of(tile, window, j);
      EXPECT_GE(rows.end, rows.begin);
      for (int i = rows.begin; i < rows.end; ++i) {
        const KeyRange range = s.key_range(s.entry(tile.entry), i);
        EXPECT_TRUE(j >= range.begin && j < range.end);
      }
      pairs += rows.end - rows.begin;
      if (rows.begin == rows.end) continue;
      EXPECT_LE(tile.block_begin * cut.query_block, rows.begin);
      EXPECT_GE(tile.block_end * cut.query_block, rows.end);
    }
    for (int m = std::max(tile.full_begin, tile.block_begin); m < std::min(tile.full_end, tile.block_end); ++m) {
      for (int j = tile.first_key; j < tile.first_key + cut.key_block; ++j) {
        const Keys rows = rows_of(tile, window, j);
        EXPECT_LE(rows.begin, m * cut.query_block) << "a block that is called full hides a pair";
        EXPECT_GE(rows.end, (m + 1) * cut.query_block) << "a block that is called full hides a pair";
      }
    }
  }
  for (std::int64_t e = 0; e < s.entries(); ++e) {
    const Entry entry = s.entry(e);
    for (std::int64_t i = 0; i < entry.q_rows; ++i) {
      const KeyRange range = s.key_range(entry, i);
      expected += (range.end - range.begin) * f.kv_heads;
      const auto slot = hopper::first_slot(s, static_cast<int>(e), entry.q_begin, cut.query_block) +
                        static_cast<int>(i) / cut.query_block;
      const auto block = s.packed() ? hopper::query_block_in_slot(s, slot, cut.query_block)
                                    : hopper::BlockIndex{static_cast<int>(e), 0, slot};
      EXPECT_EQ(block.entry, e);
      EXPECT_EQ(block.block, i / cut.query_block);
    }
  }
  EXPECT_EQ(pairs, expected);
  EXPECT_EQ(std::ssize(keys), s.batch * f.kv_heads * s.n_k);
}

TEST(CudaKeyTiles, CoverEveryPairOnceInOrder) {
  int served = 0;
  for (std::uint64_t seed = 0; seed < 500; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    const conformance::Instance instance(conformance::random_case_for_matrix_units(seed, 400'000));
    if (!instance.description().gradients) continue;
    const auto memory = instance.gradient_memory();
    const BackwardWork work = plan_backward(
        make_backward_problem(instance.backward_inputs(), memory.gradients(), instance.options()), kHopper, nullptr);
    if (!work.hopper) continue;
    ++served;
    expect_key_tiles_cover(work);
  }
  EXPECT_GT(served, 100);
}

TEST(CudaKeyTiles, DqHasAPlaceForEveryElement) {
  for (const int rows : {64, 128}) {
    for (const int d : {8, 40, 64, 128, 256}) {
      std::set<int> places;
      for (int row = 0; row < rows; ++row) {
        for (int column = 0; column < d; ++column) places.insert(hopper::dq_place(row, column, d));
      }
      EXPECT_EQ(std::ssize(places), rows * d);
      EXPECT_EQ(*places.rbegin(), rows * d - 1);
    }
  }
}

// The forward pass takes two rows and, of each 64 keys, those that are column, column + 1 mod 8.
TEST(HopperDropout, BitsOfAccumulatorsAreThoseOfTheDefinition) {
  const Dropout dropout(0.3, 0x123456789abcdef0);
  const hopper::DropoutArguments a = hopper::dropout_arguments(dropout);
  const int heads[] = {3, 11}, queries[] = {70'001, 9}, entry = 5;
  for (const int group : {0, 1, 77}) {
    for (const int column : {0, 2, 4, 6}) {
      hopper::DropoutRow rows[2];
      hopper::DropoutKey keys[2][2];
      for (int r = 0; r < 2; ++r) {
        rows[r] = hopper::dropout_row(a, heads[r], queries[r]);
        for (int b = 0; b < 2; ++b) keys[r][b] = hopper::dropout_key(a, heads[r], entry, 8 * group + column + b);
      }
      std::uint32_t words[4][4];
      hopper::dropout_words(a, rows, keys, words);
      for (int i = 0; i < 4; ++i) {
        for (int eight = 0; eight < 8; ++eight) {
          const int j = 64 * group + 8 * eight + column + i % 2, r = i / 2;
          const std::uint32_t word = words[i][eight / 2], upper = eight % 2 == 0 ? word << 16 : word;
          EXPECT_EQ(upper >= a.threshold, dropout.multiplier(entry, heads[r], queries[r], j) != 0) << j;
        }
      }
    }
  }
}

TEST(HopperDropout, BitsOfPairsAreThoseOfTheDefinition) {
  const Dropout dropout(0.3, 42);
  for (int key = 0; key < 200; ++key) {
    const hopper::DropoutPair bits = hopper::dropout_pair(dropout, 5, 3, 70'001, key);
    EXPECT_EQ(bits.first >= dropout.threshold, dropout.multiplier(5, 3, 70'001, key) != 0) << key;
    EXPECT_EQ(bits.second >= dropout.threshold, dropout.multiplier(5, 3, 70'001, key + 8) != 0) << key;
  }
}

}  // namespace
}  // namespace keel::cuda
