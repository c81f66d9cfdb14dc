#pragma once

#include "cuda/hopper/forward_results.cuh"
#include "wgmma.cuh"

// The streaming forward pass on Hopper, 16-bit in, sums in f32. A CTA takes tiles of 64 rows per warpgroup, one tile
// after another. One thread loads: tiles of q, blocks of k and v, two of each on the way. Each warpgroup owns 64 rows
// and walks the blocks of keys from the last to the first; the products of block n with v and of block n − 1 with q run
// while the softmax of a block is computed. The warpgroups issue their products in turn, so that one is in its softmax
// while another fills the matrix units.
//
// What is hidden is taken out of the scores, so it has weight 0; but 0 · NaN and 0 · inf of a hidden value are NaN in
// the product with v. NaN stays NaN in a sum, so it is enough to look at the end: rows with a NaN are noted, and
// computed again by plain_row(), which never touches what is hidden, when the CTA has no tile left.
namespace keel::cuda::hopper {

// All that a warpgroup does.
template <class Element, class S, Terms kTerms, Statistics kStatistics>
class Group : private Results<Element, S, kTerms, kStatistics> {
  using Base = Results<Element, S, kTerms, kStatistics>;
  using Base::a_factor_, Base::across_begin_, Base::across_end_, Base::await_term, Base::begin, Base::compute_odd_rows,
      Base::convert, Base::finish, Base::group_, Base::hides_by_position, Base::kAlone, Base::kFirstHides,
      Base::kLinear, Base::kPanelK, Base::kPanelQ, Base::kRich, Base::kStage, Base::kTurn, Base::lane_, Base::n_,
      Base::o_, Base::p_, Base::place, Base::q_stage_, Base::release, Base::release_by_warp, Base::release_term,
      Base::result, Base::s_, Base::shared_, Base::softmax, Base::step_;
  using typename Base::RowResult;

 public:
  using Base::Base, Base::kFew;

  KEEL_DEVICE void run() {
    using namespace ptx;
    if (S::groups > 1 && !kRich && group_ == S::groups - 1) signal(kTurn, 256);
    for (int round = 0;; ++round) {
      const Tile& tile = take(round);
      if (tile.index < 0) break;
      n_ = same_in_all(tile.group_end[group_]) - 1;
      skip(tile);
      if (n_ < tile.block_begin) {
        release(shared_.q_empty[round % S::queries]);
        release_by_warp(shared_.tile_empty[round & 1]);
        continue;
      }
      begin(tile);
      if constexpr (kRich) {
        walk_in_steps(tile, round);
      } else {
        walk(tile, round);
      }
      RowPlace places[2];
      RowResult results[2];
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        places[r] = place(tile, r);
        results[r] = result(tile, places[r], r);
      }
      if constexpr (!kRich) await_values();
      finish(tile, places, results);
      release_by_warp(shared_.tile_empty[round & 1]);
    }
    if (lane_ == 0) wait_until_stored();
    compute_odd_rows();
  }

 private:
  // The tile of a round, once its rows of q are there.
  KEEL_DEVICE const Tile& take(int round) {
    ptx::wait(ptx::shared_address(&shared_.q_full[round % S::queries]), round / S::queries & 1);
    return shared_.tile[round & 1];
  }

  KEEL_DEVICE void await_values() {
    ptx::wait_products<0>();
    ptx::hold(o_);
    release(shared_.v_empty[(step_ - 1) & 1]);
  }

  // The blocks of which the warpgroup sees nothing, those after n_: all, where it has no rows. It takes part in turns,
  // of which there is one for each block but the first.
  KEEL_DEVICE void skip(const Tile& tile) {
    using namespace ptx;
    int unseen = same_in_all(tile.block_end) - 1 - n_;
    const int without_turn = kRich ? unseen : n_ < tile.block_begin ? 1 : 0;
#pragma unroll 1
    for (; unseen > 0; --unseen, ++step_) {
      const int stage = step_ & 1, phase = (step_ >> 1) & 1;
      wait(shared_address(&shared_.k_full[stage]), phase);
      wait(shared_address(&shared_.v_full[stage]), phase);
      await_term(step_);
      // None of the warps falls behind by a phase.
      if (unseen > without_turn) {
        sync(kTurn + group_, 256);
      } else {
        sync(kAlone + group_, 128);
      }
      release(shared_.k_empty[stage]);
      release(shared_.v_empty[stage]);
      release_term();
      if (unseen > without_turn) signal(kTurn + (group_ + 1) % S::groups, 256);
    }
  }

  // All blocks of a tile, one thing after the other: where scores take far longer than products, it is enough that the
  // warpgroups overlap, and the code of a softmax with any terms, which is long, is compiled once.
  KEEL_DEVICE void walk_in_steps(const Tile& tile, int round) {
    using namespace ptx;
    q_stage_ = same_in_all(round % S::queries);
    const int first = same_in_all(tile.block_begin);
#pragma unroll 1
    for (; n_ >= first; --n_) {
      wait(shared_address(&shared_.k_full[step_ & 1]), (step_ >> 1) & 1);
      scores(same_in_all(step_ & 1));
      wait_products<0>();
      hold(s_);
      release(shared_.k_empty[step_ & 1]);
      softmax<true>(tile);
      rescale();
      convert();
      wait(shared_address(&shared_.v_full[step_ & 1]), (step_ >> 1) & 1);
      values(same_in_all(step_ & 1));
      ++step_;
      await_values();
    }
    release(shared_.q_empty[round % S::queries]);
  }

  // All blocks of a tile, up to the products with the last values, which it leaves under way.
  KEEL_DEVICE void walk(const Tile& tile, int round) {
    using namespace ptx;
    q_stage_ = same_in_all(round % S::queries);
    if constexpr (kLinear) {
      static_assert(S::keys == 128);
      const int at = tile.first_row + tile.diagonal + tile.shift;  // of the first row
      across_begin_ = same_in_all(((at - S::keys + 1) >> 7) + 1);
      across_end_ = same_in_all((at + S::rows - 1 + S::keys - 1) >> 7);
    }
    wait(shared_address(&shared_.k_full[step_ & 1]), (step_ >> 1) & 1);
    scores(same_in_all(step_ & 1));
    await_term(step_);
    wait_products<0>();
    hold(s_);
    release(shared_.k_empty[step_ & 1]);
    if (kFirstHides || hides(tile)) {
      softmax<true>(tile);
    } else {
      softmax<false>(tile);
    }
    convert();
    --n_;
    // Apart, blocks that hide nothing have no branch between their products and the softmax, across which the compiler
    // would not overlap them.
    while (is_in(tile)) {
#pragma unroll 1
      for (; is_in(tile) && hides(tile); --n_) block<true>(tile);
#pragma unroll 1
      for (const int end = full_until(tile); n_ >= end; --n_) block<false>(tile);
    }
    release(shared_.q_empty[round % S::queries]);
    wait(shared_address(&shared_.v_full[step_ & 1]), (step_ >> 1) & 1);
    values(same_in_all(step_ & 1));
    ++step_;
  }

  // What all warps read of a tile stays in shared memory until it is needed: registers are few.
  KEEL_DEVICE bool is_in(const Tile& tile) const { return n_ >= same_in_all(tile.block_begin); }
  // Whether block n_ hides some key from some row, or has keys on both sides of some row's position where that matters.
  KEEL_DEVICE bool hides(const Tile& tile) const {
    if (kLinear && n_ >= across_begin_ && n_ < across_end_) return true;
    return hides_by_position(tile);
  }
  // The last block, from n_ down, of those that do not.
  KEEL_DEVICE int full_until(const Tile& tile) const {
    const int begin = same_in_all(max(tile.full_begin, tile.block_begin));
    return kLinear && n_ >= across_end_ ? max(begin, across_end_) : begin;
  }

  // Both with a stage that is the same in all lanes, for the compiler too.
  KEEL_DEVICE void scores(int stage) {
    using namespace ptx;
    const std::uint32_t q = operand_part(shared_address(shared_.q[0]) + group_ * 64 * 128, 16) +
                            static_cast<std::uint32_t>(q_stage_ * (kPanelQ * S::panels >> 4));
    const std::uint32_t k =
        operand_part(shared_address(shared_.k[0]), 16) + static_cast<std::uint32_t>(stage * (kStage >> 4));
    begin_products();
    hold(s_);
#pragma unroll
    for (int c = 0; c < S::d / 16; ++c) {
      RowsByRows<Element, S::keys>::run(s_, operand_of(q + (c / 4 * kPanelQ + c % 4 * 32 >> 4)),
                                        operand_of(k + (c / 4 * kPanelK + c % 4 * 32 >> 4)), c > 0);
    }
    commit_products();
    hold(s_);
  }

  KEEL_DEVICE void values(int stage) {
    using namespace ptx;
    const std::uint32_t v =
        operand_part(shared_address(shared_.v[0]), kPanelK) + static_cast<std::uint32_t>(stage * (kStage >> 4));
    begin_products();
    hold(o_);
#pragma unroll
    for (int c = 0; c < S::keys / 16; ++c) {
      RegistersByColumns<Element, S::d>::run(o_, p_ + 4 * c, operand_of(v + (c * 2048 >> 4)));
    }
    commit_products();
    hold(o_);
  }

  // The next block's scores and this block's values at once, then the softmax of the next.
  template <bool kPartial>
  KEEL_DEVICE void block(const Tile& tile) {
    using namespace ptx;
    const int next = step_ + 1, stage = same_in_all(step_ & 1);
    wait(shared_address(&shared_.k_full[next & 1]), (next >> 1) & 1);
    if (S::groups > 1) sync(kTurn + group_, 256);
    scores(stage ^ 1);
    wait(shared_address(&shared_.v_full[step_ & 1]), (step_ >> 1) & 1);
    values(stage);
    if (S::groups > 1) signal(kTurn + (group_ + 1) % S::groups, 256);
    await_term(next);
    wait_products<1>();
    hold(s_);
    release(shared_.k_empty[next & 1]);
    softmax<kPartial>(tile);
    wait_products<0>();
    hold(o_);
    release(shared_.v_empty[step_ & 1]);
    rescale();
    convert();
    step_ = next;
  }

  KEEL_DEVICE void rescale() {
#pragma unroll
    for (int i = 0; i < S::d / 2; ++i) o_[i] *= a_factor_[(i >> 1) & 1];
  }
};

template <class Element, class S, Terms kTerms, Statistics kStatistics>
__global__ void __launch_bounds__(S::threads, 1)
    forward(const __grid_constant__ Maps maps, const __grid_constant__ ForwardArguments a) {
  using namespace ptx;
  extern __shared__ __align__(1024) char memory[];
  auto& shared = *reinterpret_cast<Shared<Element, S>*>(memory);
  const int group = __shfl_sync(~0u, threadIdx.x / 128, 0);
  if (threadIdx.x == 0) {
    const auto init = [](auto& barriers, int arrivals) {
      for (std::uint64_t& barrier : barriers) init_barrier(shared_address(&barrier), arrivals);
    };
    init(shared.tile_full, 1);
    init(shared.q_full, 1);
    init(shared.k_full, 1);
    init(shared.v_full, 1);
    init(shared.tile_empty, 4 * S::groups);
    init(shared.q_empty, S::groups);
    init(shared.k_empty, S::groups);
    init(shared.v_empty, S::groups);
    init(shared.term_full, 1);
    init(shared.term_empty, 4);
    shared.odd = -1;
    publish_barriers();
    for (const CUtensorMap* map : {&maps.q, &maps.k, &maps.v, &maps.out}) prefetch_map(*map);
  }
  __syncthreads();
  wait_for_last_kernel();
  if (group == 0) {
    give_registers<S::loader_registers>();
    if (threadIdx.x == 0) load_tiles<S, Element>(shared, maps, a);
    if (threadIdx.x == 32) choose_tiles<Group<Element, S, kTerms, kStatistics>::kFew, S>(shared, a);
    if constexpr (S::term_bytes > 0) {
      if (threadIdx.x == 64) load_terms<S, Element>(shared, maps, a);
    }
  } else {
    take_registers<S::group_registers>();
    Group<Element, S, kTerms, kStatistics>(shared, maps, a, group - 1).run();
  }
}

}  // namespace keel::cuda::hopper
