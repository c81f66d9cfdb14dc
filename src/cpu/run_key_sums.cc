// Splits the second pass of a planned forward call, which computes key_sums, into tasks and runs them.
#include <algorithm>
#include <cstring>

#include "cpu/head.h"
#include "cpu/key_sums.h"
#include "runtime/parallel.h"
#include "runtime/workspace.h"

namespace keel::cpu {
namespace {

std::int64_t rows_of_call(const ForwardCall& call) { return call.sequences.batch * call.q_heads * call.sequences.n_q; }

// 0 for keys [begin, end) of all heads of a batch entry.
void zero_keys(const ForwardCall& call, std::int64_t b, std::int64_t begin, std::int64_t end) {
  const MutableStrided& sums = call.key_sums;
  for (std::int64_t h = 0; h < call.q_heads; ++h) {
    for (std::int64_t j = begin; j < end; ++j) {
      std::memset(rows_of(sums, b, h, j).data, 0, static_cast<std::size_t>(size_of(sums.dtype)));
    }
  }
}

// A block of keys of one head group.
struct KeyTask {
  std::int64_t entry, kv_head, key_begin;
};

// Blocks of earlier keys come first: under a causal mask more rows see them.
std::vector<KeyTask> key_tasks(const ForwardCall& call) {
  const std::int64_t entries = call.sequences.entries(), block = call.tiles.key_block;
  std::int64_t longest = 0;
  for (std::int64_t e = 0; e < entries; ++e) longest = std::max(longest, call.sequences.entry(e).k_len);
  std::vector<KeyTask> tasks;
  for (std::int64_t j = 0; j < longest; j += block) {
    for (std::int64_t e = 0; e < entries; ++e) {
      if (j >= call.sequences.entry(e).k_len) continue;
      for (std::int64_t h = 0; h < call.kv_heads; ++h) tasks.push_back({e, h, j});
    }
  }
  return tasks;
}

}  // namespace

std::int64_t KeySums::bytes(const ForwardCall& call) {
  return call.key_sums ? 2 * rows_of_call(call) * size_of(call.key_sums.dtype) : 0;
}

KeySums::KeySums(const ForwardPlan& plan, ForwardCall& call) : plan_(plan), call_(call) {
  if (!plan.has_rows) return;
  memory_.resize(static_cast<std::size_t>(bytes(call)));
  const std::int64_t n_q = call.sequences.n_q;
  call.m = {memory_.data(), call.key_sums.dtype, call.q_heads * n_q, n_q, 1, 0};
  call.norm = call.m;
  call.norm.data = memory_.data() + memory_.size() / 2;
}

void KeySums::add() const {
  const Sequences& sequences = call_.sequences;
  if (!plan_.has_rows) {
    for (std::int64_t b = 0; b < sequences.batch; ++b) zero_keys(call_, b, 0, sequences.n_k);
    return;
  }
  if (!sequences.packed()) {  // padding
    for (std::int64_t b = 0; b < sequences.batch; ++b) zero_keys(call_, b, sequences.entry(b).k_len, sequences.n_k);
  }
  const std::vector<KeyTask> tasks = key_tasks(call_);
  parallel_tasks(std::ssize(tasks), plan_.key_threads, [&](std::int64_t i) {
    const KeyTask& t = tasks[static_cast<std::size_t>(i)];
    const ForwardHead head = head_of(call_, t.entry, t.kv_head);
    const std::int64_t first = first_summed_row(sequences.entry(t.entry), call_.key_sum_rows);
    plan_.kernel.key_sums(call_, {&head, first * call_.group, head.q_len * call_.group, t.key_begin},
                          thread_workspace(plan_.key_thread_bytes));
  });
}

}  // namespace keel::cpu
