// Splits a planned forward call into tasks, each a call of the kernel, and runs them.
#include <hwy/base.h>

#include <algorithm>
#include <cstddef>
#include <memory_resource>
#include <vector>

#include "cpu/head.h"
#include "cpu/key_sums.h"
#include "cpu/plan.h"
#include "cpu/relative_table.h"
#include "runtime/parallel.h"
#include "runtime/workspace.h"

namespace keel::cpu {
namespace {

// A block of rows of one head group. Blocks of later rows come first: under a causal mask they see more keys.
struct RowTask {
  std::int64_t entry, kv_head, row_begin, row_end;
};

void list_tasks(const ForwardPlan& plan, std::pmr::vector<RowTask>& tasks) {
  const ForwardCall& call = plan.call;
  const std::int64_t entries = call.sequences.entries(), block = call.tiles.row_block;
  tasks.reserve(static_cast<std::size_t>(entries * call.kv_heads));
  bool several = false;
  for (std::int64_t e = 0; e < entries; ++e) {
    const std::int64_t rows = call.sequences.entry(e).q_rows * call.group;
    several = several || rows > block;
    for (std::int64_t h = 0; h < call.kv_heads; ++h) {
      for (std::int64_t begin = (rows - 1) / block * block; begin >= 0 && rows > 0; begin -= block) {
        tasks.push_back({e, h, begin, std::min(begin + block, rows)});
      }
    }
  }
  if (plan.uneven_rows && several) {
    std::stable_sort(tasks.begin(), tasks.end(),
                     [](const RowTask& a, const RowTask& b) { return a.row_begin > b.row_begin; });
  }
}

class ForwardRun {
 public:
  ForwardRun(const ForwardPlan& plan, const ForwardCall& call) : plan_(plan), call_(call) { list_tasks(plan, tasks_); }

  void operator()() const {
    if (plan_.split_keys) return run_chunks();
    parallel_tasks(std::ssize(tasks_), plan_.threads, [&](std::int64_t i) {
      const RowTask& t = tasks_[static_cast<std::size_t>(i)];
      const ForwardHead head = head_of(call_, t.entry, t.kv_head);
      plan_.kernel.run(call_, {&head, t.row_begin, t.row_end, 0, chunks_of(t)}, thread_workspace(plan_.thread_bytes));
    });
  }

 private:
  std::int64_t chunks_of(const RowTask& t) const {
    return std::max<std::int64_t>(hwy::DivCeil(call_.sequences.entry(t.entry).k_len, call_.tiles.key_chunk), 1);
  }

  // Every (rows, chunk) is a separate task; the states of a row's chunks are merged in order once all are done. Where
  // the heads of a key lie side by side and are read in place, a task takes several heads together: read head by head,
  // memory would deliver twice as much, as what is fetched ahead belongs to the next head.
  void run_chunks() const {
    const std::int64_t stride = plan_.kernel.partial_bytes(call_, call_.tiles.row_block);
    std::vector<std::int64_t> first = {0};  // where a row task's partial results begin
    std::int64_t most = 0;
    for (const RowTask& t : tasks_) {
      first.push_back(first.back() + chunks_of(t));
      most = std::max(most, chunks_of(t));
    }
    std::vector<std::byte> partials(static_cast<std::size_t>(first.back() * stride));
    const auto partial = [&](std::int64_t i) { return partials.data() + i * stride; };
    const std::int64_t count = std::ssize(tasks_), together = std::min(plan_.heads_together, count);
    const std::int64_t groups = hwy::DivCeil(count, together);
    parallel_tasks(most * groups, plan_.threads, [&](std::int64_t i) {
      const std::int64_t c = i / groups, begin = i % groups * together, end = std::min(begin + together, count);
      ForwardHead heads[kHeadsTogether];
      ForwardTask parts[kHeadsTogether];
      std::size_t found = 0;
      for (std::int64_t x = begin; x < end; ++x) {
        const RowTask& t = tasks_[static_cast<std::size_t>(x)];
        if (c >= chunks_of(t)) continue;
        heads[found] = head_of(call_, t.entry, t.kv_head);
        parts[found] = {
            &heads[found], t.row_begin, t.row_end, c, c + 1, partial(first[static_cast<std::size_t>(x)] + c)};
        ++found;
      }
      std::byte* const workspace = thread_workspace(plan_.thread_bytes);
      if (found == 1) plan_.kernel.run(call_, parts[0], workspace);
      if (found > 1) plan_.kernel.run_together(call_, {parts, found}, workspace);
    });
    parallel_tasks(std::ssize(tasks_), plan_.threads, [&](std::int64_t i) {
      const RowTask& t = tasks_[static_cast<std::size_t>(i)];
      const ForwardHead head = head_of(call_, t.entry, t.kv_head);
      plan_.kernel.finish_split(call_,
                                {&head, t.row_begin, t.row_end, 0, 0, partial(first[static_cast<std::size_t>(i)])},
                                chunks_of(t), stride, thread_workspace(plan_.thread_bytes));
    });
  }

  const ForwardPlan& plan_;
  const ForwardCall& call_;
  // The tasks of a small call need no allocation.
  alignas(RowTask) std::byte room_[16 * sizeof(RowTask)];
  std::pmr::monotonic_buffer_resource pool_{room_, sizeof(room_)};
  std::pmr::vector<RowTask> tasks_{&pool_};
};

// The pass that writes scores, which the others do not keep.
void write_scores(const ForwardPlan& plan, const ForwardCall& call) {
  ForwardCall staged = call;
  keep_score_stage(staged);
  staged.weights = staged.scores;
  const std::int64_t rows = call.sequences.n_q * call.group, block = call.tiles.row_block;
  const std::int64_t blocks = hwy::DivCeil(rows, block);
  parallel_tasks(call.sequences.entries() * call.kv_heads * blocks, plan.threads, [&](std::int64_t i) {
    const ForwardHead head = head_of(staged, i / blocks / call.kv_heads, i / blocks % call.kv_heads);
    const std::int64_t begin = i % blocks * block, end = std::min(begin + block, head.n_q * call.group);
    if (begin < end) plan.kernel.scores(staged, {&head, begin, end}, thread_workspace(plan.thread_bytes));
  });
}

}  // namespace

void ForwardPlan::execute() const {
  const auto run = [&](const ForwardCall& with) {
    if (with.scores && has_rows) write_scores(*this, with);
    if (!with.key_sums) {
      if (has_rows) ForwardRun(*this, with)();
      return;
    }
    ForwardCall noting = with;
    const KeySums sums(*this, noting);
    if (has_rows) ForwardRun(*this, noting)();
    sums.add();
  };
  if (heads.heads.empty() && !call.relative_bias) return run(call);
  ForwardCall with_rows = call;
  const RelativeTable table(with_rows, with_rows.tiles);
  const HeadRows rows(with_rows, heads);
  run(with_rows);
  rows.reduce(threads);
}

}  // namespace keel::cpu
