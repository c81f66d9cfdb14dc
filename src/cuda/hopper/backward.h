#pragma once

#include <cstdint>

#include "core/call.h"
#include "cuda/hopper/key_tiles.h"
#include "cuda/plain_backward.h"

// What the Hopper backward kernels take beside their tensor maps.
namespace keel::cuda::hopper {

// Rows of a gradient that are computed again by the plain kernel: numbers of rows of the tensor, (batch, head, row).
struct OddGradients {
  unsigned* rows = nullptr;
  unsigned* count = nullptr;
};

struct BackwardArguments {
  BackwardCall call;
  BackwardCut cut;
  Window window{};
  bool ordered = true;
  bool whole_rows = false;  // of out and dout: 16-bit, 8 columns at multiples of 16 bytes
  BiasSums bias = BiasSums::none;

  // Workspace. Arrays in slots: (batch, query head, slot, row of the block).
  float* lse_log2 = nullptr;  // in slots; infinite where a row sees nothing, NaN where it must be computed again
  float* delta = nullptr;     // in slots
  float* scale = nullptr;     // in slots, of kernels for any terms
  float* dq = nullptr;        // in slots, 64 rows at a time in the order of accumulators: see dq_place()
  int* turn = nullptr;        // one per slot: how many blocks of keys have been added to dq
  int* next = nullptr;        // task to take
  KeyTile* tiles = nullptr;   // of the tasks
  RowNumbers<float>* rows = nullptr;
  double* dscale = nullptr;    // of each row, where it is asked for
  float* bias_sums = nullptr;  // of tiles: (slice, block of keys, block of rows, 64 × 64); of keys: (batch, head, key)
  int* bias_turns = nullptr;   // one per tile: 1 + the number of what was added last
  int* bias_before = nullptr;  // where entries differ: see order_bias_tiles()
  OddGradients odd_dq{}, odd_dk{}, odd_dv{};
};

// Where element (row, column) of a block of rows lies in its part of dq. A warpgroup's 128 threads hold 64 rows and 8
// columns as four floats each.
constexpr int dq_place(int row, int column, int d) {
  const int thread = row % 64 / 16 * 32 + row % 8 * 4 + column % 8 / 2;
  return row / 64 * 64 * d + column / 8 * 512 + thread * 4 + row % 16 / 8 * 2 + column % 2;
}

}  // namespace keel::cuda::hopper
