#include "api/execute.h"

#include <algorithm>
#include <vector>

#include "api/rows.h"
#include "cpu/forward.h"
#include "reference/reference.h"
#include "runtime/parallel.h"
#include "runtime/workspace.h"

namespace keel {
namespace {

// A block of rows of one head group. Blocks of later rows come first: under a causal mask they see more keys.
struct RowTask {
  std::int64_t entry, kv_head, row_begin, row_end;
};

std::vector<RowTask> row_tasks(const Problem& p, const Plan& plan) {
  std::vector<RowTask> tasks;
  tasks.reserve(static_cast<std::size_t>(p.entries() * p.kv_heads));
  const std::int64_t group = p.kv_heads > 0 ? p.q_heads / p.kv_heads : 1;
  bool uneven = false;
  for (std::int64_t e = 0; e < p.entries(); ++e) {
    const std::int64_t rows = p.entry(e).q_rows * group, block = plan.tiles.row_block;
    uneven = uneven || rows > block;
    for (std::int64_t h = 0; h < p.kv_heads; ++h) {
      for (std::int64_t begin = (rows - 1) / block * block; begin >= 0 && rows > 0; begin -= block) {
        tasks.push_back({e, h, begin, std::min(begin + block, rows)});
      }
    }
  }
  if (p.options.causal != Causal::none && uneven) {
    std::stable_sort(tasks.begin(), tasks.end(),
                     [](const RowTask& a, const RowTask& b) { return a.row_begin > b.row_begin; });
  }
  return tasks;
}

void run_streaming(const Problem& p, const Plan& plan) {
  const cpu::ForwardKernel kernel = forward_kernel(p, plan);
  const cpu::ForwardCall call = forward_call(p, plan);
  const std::vector<RowTask> tasks = row_tasks(p, plan);
  const std::int64_t workspace = kernel.workspace_bytes(call), chunk = plan.tiles.key_chunk;
  const auto chunks_of = [&](const RowTask& t) {
    return std::max<std::int64_t>((p.entry(t.entry).k_len + chunk - 1) / chunk, 1);
  };
  const auto run = [&](const RowTask& t, std::int64_t chunk_begin, std::int64_t chunk_end, void* partial) {
    const cpu::ForwardHead head = head_of(p, t.entry, t.kv_head);
    kernel.run(call, {&head, t.row_begin, t.row_end, chunk_begin, chunk_end, partial}, thread_workspace(workspace));
  };
  if (!plan.split_keys) {
    parallel_tasks(std::ssize(tasks), plan.threads, [&](std::int64_t i) {
      const RowTask& t = tasks[static_cast<std::size_t>(i)];
      run(t, 0, chunks_of(t), nullptr);
    });
    return;
  }

  // Every (rows, chunk) is a task of its own; the states of a row's chunks are merged in order once all are there.
  const std::int64_t stride = kernel.partial_bytes(call, plan.tiles.row_block);
  std::vector<std::int64_t> first = {0};  // a row task's first chunk task
  for (const RowTask& t : tasks) first.push_back(first.back() + chunks_of(t));
  std::vector<std::byte> partials(static_cast<std::size_t>(first.back() * stride));
  const auto partial = [&](std::int64_t i) { return partials.data() + i * stride; };
  parallel_tasks(first.back(), plan.threads, [&](std::int64_t i) {
    const auto at = std::upper_bound(first.begin(), first.end(), i) - first.begin() - 1;
    const std::int64_t c = i - first[static_cast<std::size_t>(at)];
    run(tasks[static_cast<std::size_t>(at)], c, c + 1, partial(i));
  });
  parallel_tasks(std::ssize(tasks), plan.threads, [&](std::int64_t i) {
    const RowTask& t = tasks[static_cast<std::size_t>(i)];
    const cpu::ForwardHead head = head_of(p, t.entry, t.kv_head);
    kernel.finish_split(call, {&head, t.row_begin, t.row_end, 0, 0, partial(first[static_cast<std::size_t>(i)])},
                        chunks_of(t), stride, thread_workspace(workspace));
  });
}

}  // namespace

void execute(const Problem& problem, const Plan& plan) {
  switch (plan.kernel) {
    case Kernel::reference:
      return reference::attention(problem);
    case Kernel::streaming:
      return run_streaming(problem, plan);
  }
}

void execute(const BackwardProblem& problem, const Plan& plan) {
  switch (plan.kernel) {
    case Kernel::reference:
      return reference::attention_backward(problem);
    case Kernel::streaming:
      return run_streaming_backward(problem, plan);
  }
}

}  // namespace keel
