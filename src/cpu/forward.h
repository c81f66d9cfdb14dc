#pragma once

#include <cstddef>
#include <cstdint>

#include "core/call.h"
#include "plan/tiles.h"

// The streaming forward kernel. It computes
//
//   o_i = Σ_j p_ij v_j,   p_ij = exp(s_ij − lse_i)
//
// for a block of query rows over blocks of keys, keeping for each row only a running maximum m, sum l and output o. All
// query heads that share a key-value head are stacked as rows, so k and v are read once for them: row r of a sequence
// is query r / group of head r mod group.
namespace keel::cpu {

// Rows of an array for one sequence and one key-value head: element c of row (g, i) is at
// data[g·head_stride + i·row_stride + c·column_stride]. Strides count elements.
struct Rows {
  const void* data = nullptr;
  std::int64_t head_stride = 0, row_stride = 0, column_stride = 0;
};
struct MutableRows {
  void* data = nullptr;
  std::int64_t head_stride = 0, row_stride = 0, column_stride = 0;
};

// A call as this kernel takes it.
struct ForwardCall : Call {
  ForwardCall() = default;
  explicit ForwardCall(const Problem& problem) : Call(problem) {}

  Tiles tiles;
  bool keeps_entropy = false;    // what entropy needs
  bool keeps_moments = false;    // what logit_mean, logit_var and logit_count need
  bool flushes_weights = false;  // those below the smallest normal number are 0, as they would take long

  // What a second pass, if there is one, needs per row: p = 2^(s·log₂e − m)·norm. Of the accumulation type.
  MutableStrided m{}, norm{};
};

// One sequence and one key-value head. Views not given have data == nullptr.
struct ForwardHead {
  ForwardHead() = default;
  // Field by field: an aggregate of this size would be cleared first, which takes a good part of a small call.
  ForwardHead(const Call& call, const Entry& at, std::int64_t e, std::int64_t h, std::int64_t kv_head);

  Rows q, k, v;  // k and v: head_stride unused
  MutableRows out;
  std::int64_t n_q = 0;  // rows of out; those from q_len on are padding
  std::int64_t q_len = 0, k_len = 0;
  std::int64_t k_begin = 0, k_end = INT64_MAX;  // the keys that padding and a mask shared by all queries leave
  std::int64_t diagonal = 0;                    // query i has its diagonal at key i + diagonal

  // In dropout's terms: the entry, and the positions of its first head, query and key here.
  std::int64_t entry = 0, first_head = 0, first_query = 0, first_key = 0;

  Rows scale;         // column_stride unused: one value per row
  Rows mask, bias;    // columns are keys
  Rows alibi, sinks;  // one value per head: only head_stride is used
  Rows relative;      // the padded table of relative_table.h: only head_stride is used
  std::int64_t relative_pad = 0;
  BlockTiles tiles{};                         // of the first head of the group
  std::int64_t tiles_row = 0, tiles_key = 0;  // how the tiles count the first row and key
  MutableRows lse, max_logit, entropy, max_weight, logit_mean, logit_var, visible, logit_count;  // one value per row
  MutableRows m, norm;                                                                           // likewise
  MutableRows key_sums;  // row_stride is that of keys
  MutableRows weights;
  std::int64_t weights_before = 0, weights_after = 0;  // columns beside this sequence's keys, to be zeroed
};

// Rows [row_begin, row_end) over chunks [chunk_begin, chunk_end). With `partial` set, the running state is written
// there instead of the outputs, for finish_split(); a task may then take only `keys` of its chunk, the first of them
// or, if it resumes, those that follow what `partial` holds.
struct ForwardTask {
  const ForwardHead* head = nullptr;
  std::int64_t row_begin = 0, row_end = 0;
  std::int64_t chunk_begin = 0, chunk_end = 0;
  void* partial = nullptr;
  std::int64_t key_begin = 0, key_end = INT64_MAX;  // multiples of key_block
  bool resumes = false;
};

// Rows [row_begin, row_end), whose m and norm are known, against the block of keys from key_begin on. Writes the
// key_sums of those keys.
struct KeySumsTask {
  const ForwardHead* head = nullptr;
  std::int64_t row_begin = 0, row_end = 0;
  std::int64_t key_begin = 0;  // a multiple of key_block
};

// The kernel's entry points for one accumulation type on one SIMD target.
struct ForwardKernel {
  std::int64_t (*workspace_bytes)(const ForwardCall&) = nullptr;                        // one thread's scratch
  std::int64_t (*partial_bytes)(const ForwardCall&, std::int64_t rows) = nullptr;       // one chunk's state
  void (*run)(const ForwardCall&, const ForwardTask&, std::byte* workspace) = nullptr;  // workspace aligned to 64 bytes
  // Merges the states of chunks [0, chunks), `stride` bytes apart from task.partial on, and writes the outputs.
  void (*finish_split)(const ForwardCall&, const ForwardTask&, std::int64_t chunks, std::int64_t stride,
                       std::byte* workspace) = nullptr;

  // Scores instead of weights, in nats, to where call.weights says.
  void (*scores)(const ForwardCall&, const ForwardTask&, std::byte* workspace) = nullptr;

  std::int64_t (*key_sums_bytes)(const ForwardCall&) = nullptr;  // one thread's scratch for key_sums()
  void (*key_sums)(const ForwardCall&, const KeySumsTask&, std::byte* workspace) = nullptr;
};

// The kernel that accumulates in f32 or f64, for one of Machine::target_bits.
ForwardKernel forward_kernel_f32(std::int64_t target);
ForwardKernel forward_kernel_f64(std::int64_t target);

}  // namespace keel::cpu
