#pragma once

#include <cstdint>

#include "core/call.h"
#include "cuda/hopper/dropout.h"
#include "cuda/hopper/shapes.h"
#include "cuda/hopper/tiles.h"

// What the Hopper forward kernel takes beside its tensor maps.
namespace keel::cuda::hopper {

// A chunk's part of a row, before it is divided by the sum of weights: out (d_v values), the largest score and the sum
// of weights relative to it, in units of log 2. (chunks, rows of q), rows counted (batch, head, row).
struct Partials {
  float* out = nullptr;
  struct Sums {
    float largest, sum;  // a sum of NaN: compute the row again
  };
  Sums* sums = nullptr;
  std::int64_t rows = 0;
};

// Rows that are computed again by the plain kernel.
struct OddRow {
  int entry, head, row;
  std::int64_t before;  // the row that the same CTA noted before
};
struct OddRows {
  OddRow* rows = nullptr;     // a place for each row of q
  unsigned* count = nullptr;  // of chunks: how many rows there are, one after the other
};

// A softcap c as the kernel takes it; u is (q·k)².
struct SoftcapArguments {
  float top = 0;       // c in units of q·k
  float to_power = 0;  // 2·log2(e)/c in those units
  float near = 0;      // up to which |q·k| the softcap is (q·k)·(p0 + p1·u + p2·u²), in units of log 2
  float p0 = 0, p1 = 0, p2 = 0;
};

struct ForwardArguments {
  Call call;
  Cut cut;
  Window window{};
  float scale_log2 = 0;     // scale · log2(e), positive unless the kernel is that for any terms,
  float inverse_scale = 0;  // and 1 / scale
  SoftcapArguments softcap{};
  DropoutArguments dropout{};
  bool stores_tiles = false;  // the tensor map of out may be used
  bool reports = false;       // there are arrays for statistics
  unsigned* next = nullptr;   // the next tile to take, counted from gridDim.x on, and 0 between calls; null: there is
                              // one for each CTA
  const TileIndex* listed = nullptr;       // packed batches: entries and blocks of rows, in the order to take them,
  const unsigned* listed_count = nullptr;  // and how many
  Partials partials{};
  OddRows odd{};
};

}  // namespace keel::cuda::hopper
