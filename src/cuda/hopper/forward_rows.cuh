#pragma once

#include <limits>

#include "cuda/hopper/loader.cuh"

// The rows of a warpgroup: where they stand, and what its threads hold of them.
//
// A thread holds two rows of its warpgroup's accumulators, lane / 4 and lane / 4 + 8 of its warp's 16, of these columns
// 8·i + 2·(lane mod 4) and the next. Element i of an array of accumulators belongs to row (i / 2) mod 2.
namespace keel::cuda::hopper {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

// A number that all lanes hold, for the compiler to know: it then stays out of the lanes' registers.
template <class T>
KEEL_DEVICE T same_in_all(T x) {
  return __shfl_sync(~0u, x, 0);
}

KEEL_DEVICE float quad_sum(float x) {
  x += __shfl_xor_sync(~0u, x, 1);
  return x + __shfl_xor_sync(~0u, x, 2);
}
KEEL_DEVICE float quad_max(float x) {
  x = fmaxf(x, __shfl_xor_sync(~0u, x, 1));
  return fmaxf(x, __shfl_xor_sync(~0u, x, 2));
}

template <class T>
KEEL_DEVICE T& at(const MutableStrided& x, int b, int h, int i, int c = 0) {
  return static_cast<T*>(x.data)[b * x.batch + h * x.head + i * x.row + c * x.column];
}

// A float of any dtype, from global memory.
KEEL_DEVICE float load_float(const void* data, DType dtype, std::int64_t index) {
  switch (dtype) {
    case DType::f64:
      return static_cast<float>(static_cast<const double*>(data)[index]);
    case DType::f32:
      return static_cast<const float*>(data)[index];
    case DType::f16:
      return __half2float(static_cast<const __half*>(data)[index]);
    default:
      return __bfloat162float(static_cast<const __nv_bfloat16*>(data)[index]);
  }
}

// Where a row of the thread stands.
struct RowPlace {
  int head, row;  // query head, and row of the entry
  Keys keys;      // that it may see by position; none for padding
  bool exists;    // in q
};

template <class Element, class S, Terms kTerms, Statistics kStatistics>
class Rows {
 protected:
  static constexpr bool kRich = kTerms == Terms::any;
  // Serves few rows too, whose tiles may hold several heads, or chunks of keys.
  static constexpr bool kFew = S::groups == 1 || kRich;
  static constexpr bool kTiled = S::term_bytes > 0;                          // the only term is a bias or mask
  static constexpr bool kLinear = kTerms == Terms::alibi && S::groups == 2;  // ALiBi takes a short way
  static constexpr bool kSkips = S::groups == 2;                             // a mask that hides nothing of a block
  static constexpr bool kEntropy = kStatistics != Statistics::none, kMoments = kStatistics == Statistics::moments;
  // A tile's first block is taken to hide something: code that is compiled once less, and seldom worth more.
  static constexpr bool kFirstHides = kTerms != Terms::none || kEntropy || !serves_all(S::d);
  static constexpr int kPanelQ = S::rows * 128, kPanelK = S::keys * 128, kStage = kPanelK * S::panels;
  static constexpr int kTurn = 1, kAlone = kTurn + S::groups + 1;       // named barriers, one per warpgroup
  static constexpr float kHidden = kRich ? -kInfinity : -1e38f;         // score of a hidden key
  static constexpr float kMaskedLog2 = -0x1p64f * 1.4426950408889634f;  // see core/masked_score.h
  static constexpr bool kKeeps = S::d <= 128;   // there are registers for the rows' scale and slope
  static constexpr float kDeepest = -16384.0f;  // whose power of two is 0

 public:
  KEEL_DEVICE Rows(Shared<Element, S>& shared, const Maps& maps, const ForwardArguments& a, int group)
      : shared_(shared),
        maps_(maps),
        a_(a),
        group_(group),
        thread_(threadIdx.x & 127),
        lane_(threadIdx.x & 31),
        warp_(thread_ >> 5),
        column_((lane_ & 3) * 2) {}

 protected:
  KEEL_DEVICE void release(std::uint64_t& barrier) {
    if (thread_ == 0) ptx::arrive(ptx::shared_address(&barrier));
  }
  KEEL_DEVICE void release_by_warp(std::uint64_t& barrier) {
    __syncwarp();
    if (lane_ == 0) ptx::arrive(ptx::shared_address(&barrier));
  }

  KEEL_DEVICE RowPlace place(const Tile& tile, int r) const {
    const int at = tile.first_row + group_ * 64 + warp_ * 16 + lane_ / 4 + 8 * r;
    const int share = kFew ? a_.cut.share : 1, row = share == 1 ? at : at / share;
    RowPlace p;
    p.head = share == 1 ? tile.head : tile.head * share + at % share;
    p.row = row;
    p.exists = at < tile.first_row + tile.rows;
    // Rows past the end see what the last one sees: a tile at the end of q needs no mask for their sake.
    p.keys = keys_of(tile, a_.window, min(row, max(tile.q_len - 1, 0)));
    p.keys.end = max(p.keys.end, p.keys.begin);
    return p;
  }

  // Where an array has its values for a row; those of padding are not used, but read.
  KEEL_DEVICE std::int64_t place_of(const Strided& x, const Tile& tile, const RowPlace& p) const {
    const int row = tile.q_begin + min(p.row, max(tile.q_len - 1, 0));
    return tile.batch * x.batch + p.head * x.head + row * x.row;
  }

  KEEL_DEVICE float scale_log2(const Tile& tile, const RowPlace& p) const {
    const Strided& x = a_.call.scale_tensor;
    const float scale = x ? load_float(x.data, x.dtype, place_of(x, tile, p)) : static_cast<float>(a_.call.scale);
    return scale * 1.4426950408889634f;
  }
  KEEL_DEVICE float slope_log2(const Tile& tile, const RowPlace& p) const {
    const Strided& x = a_.call.alibi;
    return x ? 1.4426950408889634f * load_float(x.data, x.dtype, tile.batch * x.batch + p.head * x.head) : 0.0f;
  }

  // The thread's first key of the block.
  KEEL_DEVICE int first_key(const Tile& tile) const { return n_ * S::keys - tile.shift + column_; }

  // Whether block n_ hides some key from some row.
  KEEL_DEVICE bool hides_by_position(const Tile& tile) const {
    return n_ < same_in_all(tile.full_begin) || n_ >= same_in_all(tile.full_end);
  }

  KEEL_DEVICE void begin(const Tile& tile) {
#pragma unroll
    for (int i = 0; i < S::d / 2; ++i) o_[i] = 0;
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const RowPlace p = place(tile, r);
      m_[r] = kHidden;
      l_[r] = e_[r] = f1_[r] = f2_[r] = 0;
      count_[r] = visible_[r] = 0;
      zero_[r] = 0;
      if (kTerms == Terms::alibi) slope_log2_[r] = slope_log2(tile, p) / a_.scale_log2;
      if (kRich && kKeeps) {
        scale_log2_[r] = scale_log2(tile, p);
        slope_log2_[r] = slope_log2(tile, p);
      }
    }
  }

  Shared<Element, S>& shared_;
  const Maps& maps_;
  const ForwardArguments& a_;
  const int group_, thread_, lane_, warp_, column_;
  int step_ = 0;                           // blocks of keys done, of all tiles
  int n_ = 0;                              // the block whose scores are in s_
  int q_stage_ = 0;                        // where the tile's q is
  int across_begin_ = 0, across_end_ = 0;  // blocks with keys on both sides of some row's position

  float o_[S::d / 2], s_[S::keys / 2];
  std::uint32_t p_[S::keys / 4];
  float a_factor_[2];
  float m_[2], l_[2];                    // largest score, sum of weights
  float e_[2];                           // Σ weight · (score − largest)
  float f1_[2], f2_[2];                  // sums of scores and their squares, less the largest, in units of log 2
  int count_[2], visible_[2];            // scores in those sums, and visible ones where they are counted
  float zero_[2];                        // NaN where a score was infinite or NaN
  float scale_log2_[2], slope_log2_[2];  // the slope divided by the scale, where it is the only term
  float base_[2];                        // of ALiBi alone
};

}  // namespace keel::cuda::hopper
