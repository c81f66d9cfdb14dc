#include "plan/plan.h"

#include <hwy/targets.h>

#include <algorithm>

#include "core/message.h"
#include "runtime/parallel.h"

namespace keel {
namespace {

constexpr std::int64_t kRowGranule = 12;     // a strip of the kernel
constexpr std::int64_t kMaxRows = 768;       // beyond that packing is a hundredth of the work
constexpr std::int64_t kMinRows = 96;        // below that packing shows
constexpr std::int64_t kTasksPerThread = 4;  // enough for uneven tasks to even out
constexpr double kWakeFlops = 2e6;           // waking another thread costs about as much as this many,
constexpr double kCallFlops = 1.5e5;         // and calling a team, which waits awake for a while, as this many a thread
constexpr std::int64_t kKeyBlock = 512;
constexpr std::int64_t kKeyChunk = 4096;

std::int64_t whole(std::int64_t n, std::int64_t of) { return (n + of - 1) / of * of; }
std::int64_t parts(std::int64_t n, std::int64_t of) { return (n + of - 1) / of; }

// Keys a block: every strip of rows reads k and v of the block again, so they should stay in half the second-level
// cache. A function of the head sizes and the machine alone, never of the number of queries, because the order of sums
// follows it.
std::int64_t choose_key_block(std::int64_t bytes_a_key, const Machine& machine) {
  std::int64_t keys = kKeyBlock;
  while (keys > 64 && keys * bytes_a_key > machine.l2_bytes / 2) keys /= 2;
  return keys;
}

// Rows a task: many, as they share the packing of keys, but few enough for no thread to go idle. They need not fit into
// a cache: between two blocks of keys a strip's q and o have time to come from memory.
std::int64_t choose_row_block(std::int64_t rows, std::int64_t heads, int threads) {
  std::int64_t block = kMaxRows;
  if (threads > 1) block = std::min(block, std::max(kMinRows, parts(rows * heads, kTasksPerThread * threads)));
  return whole(std::clamp<std::int64_t>(block, 1, std::max<std::int64_t>(rows, 1)), kRowGranule);
}

// How large a problem is.
struct Extent {
  std::int64_t keys = 0;   // of its longest entry
  std::int64_t rows = 0;   // of its longest entry's head group
  std::int64_t heads = 0;  // head groups of all entries
  double flops = 0;        // of the forward pass, masks aside
};

Extent extent_of(const Problem& p) {
  const std::int64_t group = p.kv_heads > 0 ? p.q_heads / p.kv_heads : 1;
  Extent extent = {p.n_k, p.n_q * group, p.entries() * p.kv_heads};
  if (p.packed() || !p.options.k_lengths.empty()) {
    extent.keys = extent.rows = 0;
    for (std::int64_t e = 0; e < p.entries(); ++e) {
      const Entry entry = p.entry(e);
      extent.keys = std::max(extent.keys, entry.k_len);
      extent.rows = std::max(extent.rows, entry.q_rows * group);
    }
  }
  extent.flops = 2.0 * static_cast<double>(p.d_k + p.d_v) * static_cast<double>(p.q_heads) *
                 static_cast<double>(p.n_q) * static_cast<double>(p.batch) * static_cast<double>(extent.keys);
  return extent;
}

template <class Because>
std::int64_t choose_target(const Machine& machine, const Forced& forced, const Because& because) {
  const std::int64_t target = forced.target != 0 ? forced.target : machine.target_bits.front();
  because("target ", hwy::TargetName(target), forced.target != 0 ? ", as asked for" : ", the best of this CPU");
  return target;
}

template <class Because>
int choose_threads(const Problem& p, const Machine& machine, const Forced& forced, double flops,
                   const Because& because) {
  const int threads = p.options.threads > 0 ? p.options.threads : machine.threads;
  if (threads > 1 && !machine.own_threads && !has_team(threads)) {
    because("one thread: this library was built without oneTBB, and no team has ", threads, " threads");
    return 1;
  }
  if (threads <= 1 || forced.share_small) return threads;
  if (flops >= (has_team(threads) ? std::min(kCallFlops * threads, kWakeFlops) : kWakeFlops)) return threads;
  because("one thread: ", flops / 1e6, " MFLOP are done before another begins");
  return 1;
}

}  // namespace

Plan make_plan(const Problem& p, const Machine& machine, const Forced& forced, std::vector<std::string>* reasons) {
  const auto because = [&](const auto&... text) {
    if (reasons != nullptr) reasons->push_back(concat(text...));
  };
  Plan plan;
  plan.kernel = forced.kernel.value_or(Kernel::streaming);
  if (plan.kernel == Kernel::reference) {
    because("the float64 oracle was asked for");
    plan.workspace_bytes = p.n_k * 41 + (p.n_q * p.d_k + p.n_k * (p.d_k + p.d_v)) * 8;
    return plan;
  }
  plan.target = choose_target(machine, forced, because);
  const auto [longest, rows, heads, flops] = extent_of(p);
  const std::int64_t item = size_of(accumulation_dtype(p.dtype));
  const std::int64_t width = (p.d_k + p.d_v) * item;
  const int threads = choose_threads(p, machine, forced, flops, because);

  cpu::Tiles& tiles = plan.tiles;
  tiles.key_block = forced.tiles.key_block > 0 ? forced.tiles.key_block : choose_key_block(width, machine);
  tiles.key_chunk = whole(forced.tiles.key_chunk > 0 ? forced.tiles.key_chunk : kKeyChunk, tiles.key_block);
  tiles.row_block =
      forced.tiles.row_block > 0 ? whole(forced.tiles.row_block, kRowGranule) : choose_row_block(rows, heads, threads);
  because("blocks of ", tiles.row_block, " rows by ", tiles.key_block, " keys: (", p.d_k, " + ", p.d_v, ") × ", item,
          " bytes a key in a second-level cache of ", machine.l2_bytes / 1024, " KiB");

  const std::int64_t row_tasks = std::max<std::int64_t>(heads * parts(rows, tiles.row_block), 1);
  const std::int64_t chunks = std::max<std::int64_t>(parts(longest, tiles.key_chunk), 1);
  const bool can_split = chunks > 1 && !p.outputs.weights.given();
  plan.split_keys = can_split && forced.split_keys.value_or(threads > 1 && row_tasks < kTasksPerThread * threads);
  if (plan.split_keys) {
    because("keys split into ", chunks, " chunks: ", row_tasks, " blocks of rows are too few for ", threads,
            " threads");
  }
  plan.tasks = plan.split_keys ? row_tasks * chunks : row_tasks;
  plan.threads = static_cast<int>(std::min<std::int64_t>(threads, plan.tasks));
  const cpu::ForwardKernel kernel = forward_kernel(p, plan);
  const cpu::ForwardCall call = forward_call(p, plan);
  plan.workspace_bytes = kernel.workspace_bytes(call) * plan.threads;
  if (plan.split_keys) plan.workspace_bytes += plan.tasks * kernel.partial_bytes(call, tiles.row_block);
  return plan;
}

std::string describe(const Plan& plan, const std::vector<std::string>& reasons) {
  std::string text;
  if (plan.kernel == Kernel::reference) {
    text = "kernel     reference (float64 oracle)\n";
  } else {
    text =
        concat("kernel     streaming\ntarget     ", hwy::TargetName(plan.target), "\ntiles      ", plan.tiles.row_block,
               " rows × ", plan.tiles.key_block, " keys, merged every ", plan.tiles.key_chunk, " keys\ntasks      ",
               plan.tasks, plan.split_keys ? " (rows × chunks of keys)\n" : " (blocks of rows)\n");
  }
  text += concat("threads    ", plan.threads, "\nworkspace  ", (plan.workspace_bytes + 1023) / 1024, " KiB\n");
  for (const std::string& reason : reasons) text += "because    " + reason + "\n";
  return text;
}

cpu::ForwardCall forward_call(const Problem& p, const Plan& plan) {
  const Options& o = p.options;
  return {.dtype = p.dtype,
          .d_k = p.d_k,
          .d_v = p.d_v,
          .group = p.kv_heads > 0 ? p.q_heads / p.kv_heads : 1,
          .tiles = plan.tiles,
          .scale = p.scale,
          .softcap = o.softcap.value_or(0.0),
          .window_left = o.window.left,
          .window_right = o.causal == Causal::none ? o.window.right : 0,
          .scale_dtype = o.scale_tensor.dtype,
          .bias_dtype = o.bias.dtype,
          .alibi_dtype = o.alibi.dtype,
          .sinks_dtype = o.sinks.dtype,
          .dropout = o.dropout,
          .seed = o.seed,
          .weights_dtype = p.outputs.weights.dtype,
          .entropy = p.outputs.entropy.given(),
          .moments = p.outputs.logit_mean.given() || p.outputs.logit_var.given()};
}

Plan make_plan(const BackwardProblem& problem, const Machine& machine, const Forced& forced,
               std::vector<std::string>* reasons) {
  const auto because = [&](const auto&... text) {
    if (reasons != nullptr) reasons->push_back(concat(text...));
  };
  const Problem& p = problem.forward;
  Plan plan;
  plan.kernel = forced.kernel.value_or(Kernel::streaming);
  if (plan.kernel == Kernel::reference) {
    because("the float64 oracle was asked for");
    return plan;
  }
  plan.target = choose_target(machine, forced, because);
  const Extent extent = extent_of(p);
  const std::int64_t item = size_of(accumulation_dtype(p.dtype));
  const cpu::BackwardKernel kernel = backward_kernel(problem, plan);

  cpu::Tiles& tiles = plan.tiles;
  // A register tile's width of do and q stays in half the first-level cache for all keys of the block.
  tiles.row_block = std::clamp<std::int64_t>(machine.l1_bytes / 2 / kernel.panel_bytes, 48, 96) / 12 * 12;
  // k three times (as it is, transposed, its gradient) and v twice, padding aside, should leave a third of the
  // second-level cache to rows; a short sequence should have a few blocks, for causal masks to leave some out and
  // threads to share them.
  const auto fits = [&](std::int64_t keys) {
    return keys * (3 * p.d_k + 2 * p.d_v) * item <= machine.l2_bytes * 2 / 3;
  };
  tiles.key_block = extent.keys / 384 >= 4 && fits(384) ? 384 : fits(192) ? 192 : fits(128) ? 128 : 64;
  if (forced.tiles.row_block > 0) tiles.row_block = whole(forced.tiles.row_block, kRowGranule);
  if (forced.tiles.key_block > 0) tiles.key_block = forced.tiles.key_block;
  tiles.key_chunk = tiles.key_block;
  because("blocks of ", tiles.row_block, " rows by ", tiles.key_block, " keys: (3 × ", p.d_k, " + 2 × ", p.d_v, ") × ",
          item, " bytes a key in a second-level cache of ", machine.l2_bytes / 1024, " KiB");

  const MutableTensorView& dbias = problem.gradients.dbias;
  const auto summed = [&](std::size_t i) { return dbias.given() && dbias.shape[i] > 1 && dbias.strides[i] == 0; };
  int threads = choose_threads(p, machine, forced, 2.5 * extent.flops, because);
  if (threads > 1 && summed(3)) {
    threads = 1;
    because("one thread: dbias is summed over keys, which the tasks divide");
  }
  const bool shared = summed(0) || summed(1);
  const std::int64_t blocks = std::max<std::int64_t>(parts(extent.keys, tiles.key_block), 1);
  plan.split_keys =
      (threads > 1 && shared) || forced.split_keys.value_or(threads > 1 && extent.heads < kTasksPerThread * threads);
  plan.chain_entries = plan.split_keys && summed(0);
  plan.chain_heads = plan.split_keys && summed(1);
  if (plan.split_keys && shared) {
    because("a task takes its keys through ",
            !summed(1)   ? "all entries"
            : !summed(0) ? "all heads"
                         : "all heads of all entries",
            ": dbias is summed over them");
  } else if (plan.split_keys) {
    because("a task is one of ", blocks, " blocks of keys: ", extent.heads, " head groups are too few for ", threads,
            " threads");
  }
  const std::int64_t chains =
      (plan.chain_entries ? 1 : p.entries()) * (plan.chain_heads ? 1 : std::max<std::int64_t>(p.kv_heads, 1));
  plan.tasks = chains * (plan.split_keys ? blocks : 1);
  plan.threads = static_cast<int>(std::clamp<std::int64_t>(plan.tasks, 1, threads));
  const cpu::BackwardCall call = backward_call(problem, plan);
  const std::int64_t head_bytes = kernel.head_bytes(call, extent.rows);
  plan.workspace_bytes = kernel.workspace_bytes(call) * plan.threads +
                         head_bytes * (plan.split_keys ? extent.heads : static_cast<std::int64_t>(plan.threads));
  return plan;
}

cpu::BackwardCall backward_call(const BackwardProblem& problem, const Plan& plan) {
  const Gradients& g = problem.gradients;
  return {.forward = forward_call(problem.forward, plan),
          .dbias_dtype = g.dbias.dtype,
          .dq = g.dq.given(),
          .dk = g.dk.given(),
          .dv = g.dv.given(),
          .dbias = g.dbias.given(),
          .dscale = g.dscale.given(),
          .dsinks = g.dsinks.given()};
}

cpu::BackwardKernel backward_kernel(const BackwardProblem& problem, const Plan& plan) {
  return problem.forward.dtype == DType::f64 ? cpu::backward_kernel_f64(plan.target)
                                             : cpu::backward_kernel_f32(plan.target);
}

cpu::ForwardKernel forward_kernel(const Problem& problem, const Plan& plan) {
  return problem.dtype == DType::f64 ? cpu::forward_kernel_f64(plan.target) : cpu::forward_kernel_f32(plan.target);
}

}  // namespace keel
