#include "api/execute.h"

#include <algorithm>
#include <vector>

#include "cpu/forward.h"
#include "reference/reference.h"
#include "runtime/parallel.h"
#include "runtime/workspace.h"

namespace keel {
namespace {

template <class View>
auto* address(const View& x, std::int64_t offset) {
  using Byte = std::conditional_t<std::is_same_v<decltype(x.data), void*>, std::byte, const std::byte>;
  return x.data == nullptr ? nullptr : static_cast<Byte*>(x.data) + offset * size_of(x.dtype);
}

// The rows of a view that belong to one sequence (from `row` on) and one head group (from `head` on).
cpu::Rows rows_of(const TensorView& x, std::int64_t batch, std::int64_t head, std::int64_t row,
                  std::int64_t column = 0) {
  const auto& s = x.strides;
  return {address(x, batch * s[0] + head * s[1] + row * s[2] + column * s[3]), s[1], s[2], s[3]};
}
cpu::MutableRows rows_of(const MutableTensorView& x, std::int64_t batch, std::int64_t head, std::int64_t row,
                         std::int64_t column = 0) {
  const auto& s = x.strides;
  return {address(x, batch * s[0] + head * s[1] + row * s[2] + column * s[3]), s[1], s[2], s[3]};
}
cpu::Rows rows_of(const RowView& x, std::int64_t batch, std::int64_t head, std::int64_t row) {
  const auto& s = x.strides;
  return {address(x, batch * s[0] + head * s[1] + row * s[2]), s[1], s[2], 0};
}
cpu::MutableRows rows_of(const MutableRowView& x, std::int64_t batch, std::int64_t head, std::int64_t row) {
  const auto& s = x.strides;
  return {address(x, batch * s[0] + head * s[1] + row * s[2]), s[1], s[2], 0};
}
cpu::Rows rows_of(const HeadView& x, std::int64_t head) {
  return {address(x, head * x.strides[0]), x.strides[0], 0, 0};
}

cpu::ForwardHead head_of(const Problem& p, std::int64_t e, std::int64_t kv_head) {
  const Entry entry = p.entry(e);
  const std::int64_t b = entry.batch, h = kv_head * (p.q_heads / p.kv_heads), q = entry.q_begin, k = entry.k_begin;
  const Options& o = p.options;
  const Outputs& out = p.outputs;
  return {.q = rows_of(p.q, b, h, q),
          .k = rows_of(p.k, b, kv_head, k),
          .v = rows_of(p.v, b, kv_head, k),
          .out = rows_of(p.out, b, h, q),
          .n_q = entry.q_rows,
          .q_len = entry.q_len,
          .k_len = entry.k_len,
          .diagonal = p.diagonal(entry),
          .entry = e,
          .first_head = h,
          .scale = rows_of(o.scale_tensor, b, h, q),
          .mask = rows_of(o.mask, b, h, q, k),
          .bias = rows_of(o.bias, b, h, q, k),
          .alibi = rows_of(o.alibi, h),
          .sinks = rows_of(o.sinks, h),
          .lse = rows_of(out.lse, b, h, q),
          .max_logit = rows_of(out.max_logit, b, h, q),
          .entropy = rows_of(out.entropy, b, h, q),
          .max_weight = rows_of(out.max_weight, b, h, q),
          .logit_mean = rows_of(out.logit_mean, b, h, q),
          .logit_var = rows_of(out.logit_var, b, h, q),
          .visible = rows_of(out.visible, b, h, q),
          .weights = rows_of(out.weights, b, h, q, k),
          .weights_before = k,
          .weights_after = p.n_k - k - entry.k_len};
}

// A block of rows of one head group. Blocks of later rows come first: under a causal mask they see more keys.
struct RowTask {
  std::int64_t entry, kv_head, row_begin, row_end;
};

std::vector<RowTask> row_tasks(const Problem& p, const Plan& plan) {
  std::vector<RowTask> tasks;
  const std::int64_t group = p.kv_heads > 0 ? p.q_heads / p.kv_heads : 1;
  for (std::int64_t e = 0; e < p.entries(); ++e) {
    const std::int64_t rows = p.entry(e).q_rows * group, block = plan.tiles.row_block;
    for (std::int64_t h = 0; h < p.kv_heads; ++h) {
      for (std::int64_t begin = (rows - 1) / block * block; begin >= 0 && rows > 0; begin -= block) {
        tasks.push_back({e, h, begin, std::min(begin + block, rows)});
      }
    }
  }
  if (p.options.causal != Causal::none) {
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

}  // namespace keel
