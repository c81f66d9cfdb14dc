#pragma once

#include <cstdint>

namespace keel {

// How a kernel splits its problem; chosen only by the planner. The order of every sum depends on the keys' tiles and
// not on the number of rows or threads, so a row's bits depend on nothing else: keys are taken in blocks of key_block,
// blocks in chunks of key_chunk, and the chunks' results are merged in order.
struct Tiles {
  std::int64_t row_block = 0;  // query rows per task
  std::int64_t key_block = 0;  // keys whose k and v stay in the cache for all rows of a task
  std::int64_t key_chunk = 0;  // keys that one running (m, l, o) covers; a multiple of key_block
};

}  // namespace keel
