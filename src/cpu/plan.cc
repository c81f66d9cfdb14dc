#include "cpu/plan.h"

#include <hwy/base.h>
#include <hwy/targets.h>

#include <algorithm>

#include "core/message.h"
#include "cpu/backend.h"
#include "cpu/key_sums.h"
#include "cpu/merge_plan.h"
#include "cpu/relative_table.h"
#include "cpu/round.h"

namespace keel::cpu {
namespace {

constexpr std::int64_t kRowGranule = 12;     // two register tiles of rows; a matrix unit has its own
constexpr std::int64_t kMaxRows = 768;       // beyond that packing is one percent of the work
constexpr std::int64_t kMaxUnitRows = 1024;  // a matrix unit leaves packing a larger share
constexpr std::int64_t kMinRows = 96;        // below that packing shows
constexpr std::int64_t kUnitPackRows = 48;   // rows of a matrix unit that take as long as packing the keys
constexpr std::int64_t kTasksPerThread = 4;  // enough for uneven tasks to even out
constexpr std::int64_t kStreamedRows = 6;    // up to so many, k and v are read in place
constexpr std::int64_t kSplitSizes = 128;    // d_k + d_v from which on f32 in three parts of bf16 can be faster:
                                             // on a Sapphire Rapids 1.43 × at d = 64, 0.98 × at d = 32
constexpr double kWakeFlops = 2e6;           // waking another thread costs about as much as this many,
constexpr double kCallFlops = 1.5e5;  // and calling a team, which waits awake for a while, as this many per thread
constexpr std::int64_t kKeyBlock = 512;
constexpr std::int64_t kKeyChunk = 4096;
constexpr std::int64_t kTangentBytes = 16 << 20;  // that a thread may keep of its rows' scores for larger blocks

// Keys per block: every strip of rows reads k and v of the block again, so they should stay in half the second-level
// cache. A function of the head sizes and the machine alone, never of the number of queries, because the order of sums
// follows it.
std::int64_t choose_key_block(std::int64_t bytes_per_key, std::int64_t most, const Machine& machine) {
  std::int64_t keys = most;
  while (keys > 64 && keys * bytes_per_key > machine.l2_bytes / 2) keys /= 2;
  return keys;
}

// With a block mask, blocks are no larger than its tiles, and divide them if they can: one that is not listed for a row
// then costs nothing.
std::int64_t within_tiles(const Problem& p, std::int64_t key_block) {
  if (p.options.block_mask == nullptr) return key_block;
  const std::int64_t tile = std::max<std::int64_t>(p.options.block_mask->tiles.shape[2] / 64 * 64, 64);
  const std::int64_t least = hwy::DivCeil(tile, key_block);
  for (std::int64_t parts = least; parts <= 2 * least; ++parts) {
    if (tile % (64 * parts) == 0) return tile / parts;
  }
  return std::min(key_block, tile);
}

// Rows per task: many, as they share the packing of keys, but few enough for no thread to go idle. They need not fit
// into a cache: between two blocks of keys a strip's q and o have time to come from memory.
std::int64_t choose_row_block(std::int64_t rows, std::int64_t heads, std::int64_t most, std::int64_t granule,
                              int threads) {
  std::int64_t block = most;
  if (threads > 1) block = std::min(block, std::max(kMinRows, hwy::DivCeil(rows * heads, kTasksPerThread * threads)));
  return RoundUp(std::clamp<std::int64_t>(block, 1, std::max<std::int64_t>(rows, 1)), granule);
}

// The same with a matrix unit, beside which packing is dear, for rows that see the same keys: of all even divisions
// whose time on equal threads is within a quarter of the shortest, the one into the most blocks, which balances best
// where threads are not equal.
std::int64_t choose_unit_rows(std::int64_t rows, std::int64_t heads, std::int64_t granule, int threads) {
  const auto size = [&](std::int64_t blocks) { return RoundUp(hwy::DivCeil(rows, blocks), granule); };
  const auto time = [&](std::int64_t block) {
    return hwy::DivCeil<std::int64_t>(heads * hwy::DivCeil(rows, block), threads) * (block + kUnitPackRows);
  };
  const std::int64_t fewest = hwy::DivCeil(rows, kMaxUnitRows);
  std::int64_t most = std::max(fewest, hwy::DivCeil<std::int64_t>(kTasksPerThread * threads, heads)), best = INT64_MAX;
  for (std::int64_t blocks = fewest; blocks <= most; ++blocks) best = std::min(best, time(size(blocks)));
  while (most > fewest && time(size(most)) > best + best / 4) --most;
  return size(most);
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
  if (p.sequences.packed() || !p.options.k_lengths.empty()) {
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

// Adds a line to the reasons, if requested.
class Because {
 public:
  explicit Because(const Planning& planning) : reasons_(planning.reasons) {}
  template <class... Text>
  void operator()(const Text&... text) const {
    if (reasons_ != nullptr) reasons_->push_back(concat(text...));
  }

 private:
  std::vector<std::string>* reasons_;
};

std::int64_t choose_target(const Planning& planning, const Because& because) {
  const std::int64_t forced = planning.forced.target;
  const std::int64_t target = forced != 0 ? forced : planning.resources.machine->target_bits.front();
  because("target ", hwy::TargetName(target), forced != 0 ? ", as requested" : ", the best of this CPU");
  return target;
}

// f32 is split on request alone. Where that is faster depends on the numbers of rows and keys and on what else the core
// does; but a row's bits must not depend on the other rows, nor on how a sequence is sliced, so that a rule may go by
// nothing but the machine, the dtype and the head sizes.
const UnitKernels* choose_split(const Problem& p, const Planning& planning, const Because& because) {
  if (!p.options.split_products) return nullptr;
  if (planning.forced.target != 0) return nullptr;
  if (splits_floats(p, *planning.resources.machine)) return &split_kernels();
  if (planning.resources.machine->bf16_unit != MatrixUnit::amx) {
    because("products are not split: amx is not there or not used");
  } else {
    because("products are not split: d_k + d_v is ", p.d_k + p.d_v, ", and below ", kSplitSizes, " that is not faster");
  }
  return nullptr;
}

// bf16 is multiplied as it is if the machine has a unit that is faster than widening it. A forced target does not. For
// so few rows that k and v are read once, tiles would have to pack them first: 0.44 of the read bandwidth, widening
// 0.83.
const UnitKernels* choose_unit(const Problem& p, const Planning& planning, std::int64_t rows, const Because& because) {
  const bool splits = p.dtype == DType::f32;
  if (p.dtype != DType::bf16 && !splits) return nullptr;
  const UnitKernels* unit = nullptr;
  const std::optional<MatrixUnit> own = planning.resources.machine->bf16_unit;
  if (planning.forced.unit) {
    unit = *planning.forced.unit;
    if (unit != nullptr && unit->dtype != p.dtype) unit = nullptr;
  } else if (splits) {
    unit = choose_split(p, planning, because);
  } else if (own == MatrixUnit::amx && rows <= kStreamedRows) {
    because("no products by amx: ", rows, " rows per head group, which read k and v in place");
  } else if (own && planning.forced.target == 0) {
    unit = &unit_kernels(*own);
  }
  if (unit != nullptr) {
    because("products by ", unit->name, splits ? ": f32 in three parts of bf16" : ": bf16 in pairs", ", sums in f32");
  }
  return unit;
}

int choose_threads(const Problem& p, const Planning& planning, double flops, const Because& because) {
  const Resources& resources = planning.resources;
  const int threads = p.options.threads > 0 ? p.options.threads : resources.machine->threads;
  if (threads > 1 && !resources.machine->own_threads && !resources.has_team(threads)) {
    because("one thread: this library was built without oneTBB, and no team has ", threads, " threads");
    return 1;
  }
  if (threads <= 1 || planning.forced.share_small) return threads;
  if (flops >= (resources.has_team(threads) ? std::min(kCallFlops * threads, kWakeFlops) : kWakeFlops)) return threads;
  because("one thread: ", flops / 1e6, " MFLOP are done before another could start");
  return 1;
}

// Bytes per element of k and v in a kernel's scratch memory.
std::int64_t item_of(const Problem& p, const UnitKernels* unit) {
  return unit != nullptr ? unit->item : size_of(accumulation_dtype(p.dtype));
}
std::int64_t granule_of(const UnitKernels* unit) { return unit != nullptr ? unit->row_granule : kRowGranule; }

Tiles choose_tiles(const Problem& p, const Planning& planning, const UnitKernels* unit, const Extent& extent,
                   int threads, const Because& because) {
  const Tiles& forced = planning.forced.tiles;
  const Machine& machine = *planning.resources.machine;
  const std::int64_t item = item_of(p, unit), most = unit != nullptr ? unit->key_block : kKeyBlock;
  const std::int64_t most_rows = unit != nullptr ? kMaxUnitRows : kMaxRows;
  // Rows that see the same keys; not so many of them that keys are divided among tasks too.
  const bool alike = unit != nullptr && threads > 1 && p.options.causal == Causal::none && extent.keys <= kKeyChunk &&
                     extent.rows > 0 && extent.heads > 0;
  Tiles tiles;
  const std::int64_t forced_keys =  // split operands have no room for more
      unit != nullptr && unit->dtype == DType::f32 ? std::min(forced.key_block, most) : forced.key_block;
  tiles.key_block =
      forced.key_block > 0 ? forced_keys : within_tiles(p, choose_key_block((p.d_k + p.d_v) * item, most, machine));
  tiles.key_chunk = RoundUp(forced.key_chunk > 0 ? forced.key_chunk : kKeyChunk, tiles.key_block);
  tiles.row_block = forced.row_block > 0 ? RoundUp(forced.row_block, granule_of(unit))
                    : alike              ? choose_unit_rows(extent.rows, extent.heads, granule_of(unit), threads)
                            : choose_row_block(extent.rows, extent.heads, most_rows, granule_of(unit), threads);
  because("blocks of ", tiles.row_block, " rows by ", tiles.key_block, " keys: (", p.d_k, " + ", p.d_v, ") × ", item,
          " bytes per key in a second-level cache of ", machine.l2_bytes / 1024, " KiB");
  return tiles;
}

Tiles choose_backward_tiles(const Problem& p, const Planning& planning, const UnitKernels* unit, const Extent& extent,
                            std::int64_t panel_bytes, const Because& because) {
  const Tiles& forced = planning.forced.tiles;
  const Machine& machine = *planning.resources.machine;
  const std::int64_t item = item_of(p, unit), granule = granule_of(unit);
  Tiles tiles;
  // A register tile's width of do and q stays in half the first-level cache for all keys of the block.
  tiles.row_block = std::clamp<std::int64_t>(machine.l1_bytes / 2 / panel_bytes, 48, 96) / granule * granule;
  // k three times (as it is, transposed, its gradient) and v twice, padding aside, should leave a third of the
  // second-level cache to rows; a short sequence should have a few blocks, for causal masks to leave some out and
  // threads to share them. So should what a block mask leaves of a long one.
  const auto fits = [&](std::int64_t keys) {
    return keys * (3 * p.d_k + 2 * p.d_v) * item <= machine.l2_bytes * 2 / 3;
  };
  // Lengths do not count: else the bits of an entry's gradients would depend on the lengths of others.
  const std::int64_t keys = p.sequences.packed() ? extent.keys : p.n_k;
  const bool is_long = keys / 384 >= 4 && p.options.block_mask == nullptr;
  const bool in_tiles = p.options.block_mask != nullptr && fits(256);  // which usually divide a power of two
  tiles.key_block = is_long && fits(384) ? 384 : in_tiles ? 256 : fits(192) ? 192 : fits(128) ? 128 : 64;
  tiles.key_block = within_tiles(p, tiles.key_block);
  if (forced.row_block > 0) tiles.row_block = RoundUp(forced.row_block, granule);
  if (forced.key_block > 0) tiles.key_block = forced.key_block;
  tiles.key_chunk = tiles.key_block;
  because("blocks of ", tiles.row_block, " rows by ", tiles.key_block, " keys: (3 × ", p.d_k, " + 2 × ", p.d_v, ") × ",
          item, " bytes per key in a second-level cache of ", machine.l2_bytes / 1024, " KiB");
  return tiles;
}

// Whether dbias is summed over a dimension.
bool is_summed(const MutableTensorView& dbias, std::size_t dimension) {
  return dbias.given() && dbias.shape[dimension] > 1 && dbias.strides[dimension] == 0;
}

std::string text_of(const Tiles& tiles) {
  return concat(tiles.row_block, " rows × ", tiles.key_block, " keys, merged every ", tiles.key_chunk, " keys");
}

std::string target_text(std::int64_t target, const UnitKernels* unit) {
  return unit != nullptr ? concat(hwy::TargetName(target), ", products by ", unit->name) : hwy::TargetName(target);
}

// The part that all passes share.
template <class Part>
void describe(const char* kernel, const Part& part, std::int64_t workspace_bytes, Plan& plan) {
  plan.kernel = kernel;
  plan.threads = part.threads;
  plan.tasks = part.tasks;
  plan.workspace_bytes = workspace_bytes;
}

// Likewise for plans of blocks, with the memory that they need.
template <class Part>
void describe_blocks(const char* kernel, const Extent& extent, Part& part, Plan& plan) {
  part.thread_bytes = part.kernel.workspace_bytes(part.call);
  const std::int64_t heads = part.split_keys ? extent.heads : static_cast<std::int64_t>(part.threads);
  const std::int64_t head_bytes = part.kernel.head_bytes(part.call, extent.rows, extent.keys);
  describe(kernel, part, part.thread_bytes * part.threads + head_bytes * heads, plan);
}

// The second pass, for key_sums: tasks are blocks of keys. Returns the memory it needs beyond the first's.
std::int64_t choose_key_tasks(const Extent& extent, int threads, ForwardPlan& part) {
  part.key_tasks = extent.heads * hwy::DivCeil(extent.keys, part.call.tiles.key_block);
  part.key_threads = static_cast<int>(std::clamp<std::int64_t>(part.key_tasks, 1, threads));
  part.key_thread_bytes = part.kernel.key_sums_bytes(part.call);
  return KeySums::bytes(part.call) +
         std::max<std::int64_t>(part.key_thread_bytes * part.key_threads - part.thread_bytes * part.threads, 0);
}

void plan_forward(const Problem& p, const Planning& planning, Plan& plan) {
  const Because because(planning);
  ForwardPlan& part = plan.emplace<ForwardPlan>(p);
  part.target = choose_target(planning, because);
  part.heads = {p.outputs.heads, p.outputs.saturation_threshold};
  part.uneven_rows = p.options.causal != Causal::none;
  part.call.keeps_entropy = p.outputs.entropy.given() || !p.outputs.heads.empty();
  part.call.keeps_moments =
      p.outputs.logit_mean.given() || p.outputs.logit_var.given() || p.outputs.logit_count.given();
  part.call.flushes_weights = planning.resources.machine->slow_denormals;
  part.has_rows = p.has_rows();
  if (!part.has_rows) return describe("none", part, 0, plan);  // sizes without memory may overflow

  const Extent extent = extent_of(p);
  part.unit = choose_unit(p, planning, extent.rows, because);
  part.kernel = part.unit != nullptr    ? part.unit->forward
                : p.dtype == DType::f64 ? forward_kernel_f64(part.target)
                                        : forward_kernel_f32(part.target);
  const int threads = choose_threads(p, planning, extent.flops, because);
  const Tiles& tiles = part.call.tiles = choose_tiles(p, planning, part.unit, extent, threads, because);
  const std::int64_t row_tasks = std::max<std::int64_t>(extent.heads * hwy::DivCeil(extent.rows, tiles.row_block), 1);
  const std::int64_t chunks = std::max<std::int64_t>(hwy::DivCeil(extent.keys, tiles.key_chunk), 1);
  const bool can_split = chunks > 1 && !p.outputs.weights.given();
  // The heads of a key side by side, and so few rows that k and v are read in place.
  const bool side_by_side =
      extent.rows <= kStreamedRows && p.kv_heads > 1 && std::abs(p.k.strides[1]) < std::abs(p.k.strides[2]);
  part.split_keys = can_split && planning.forced.split_keys.value_or(
                                     side_by_side || (threads > 1 && row_tasks < kTasksPerThread * threads));
  if (part.split_keys && side_by_side) {
    part.heads_together = std::max<std::int64_t>(row_tasks * chunks / (kTasksPerThread * threads), 1);
    because("keys split into ", chunks, " chunks, ", part.heads_together,
            " heads at a time: those of a key lie side by side");
  } else if (part.split_keys) {
    because("keys split into ", chunks, " chunks: ", row_tasks, " blocks of rows are too few for ", threads,
            " threads");
  }
  part.tasks = part.split_keys ? row_tasks * chunks : row_tasks;
  part.threads = static_cast<int>(std::min<std::int64_t>(threads, part.tasks));
  part.thread_bytes = part.kernel.workspace_bytes(part.call);
  std::int64_t bytes = part.thread_bytes * part.threads + HeadRows::bytes(part.call, part.heads);
  if (part.split_keys) bytes += part.tasks * part.kernel.partial_bytes(part.call, tiles.row_block);
  if (p.outputs.key_sums.given()) bytes += choose_key_tasks(extent, threads, part);
  describe("streaming", part, bytes, plan);
}

// How a call is split into tasks: by head groups, or by blocks of keys (tangents: of rows) too. dbias must not be
// summed over what the tasks divide.
struct Blocks {
  const char* name;    // "keys"
  std::int64_t count;  // per head group
  bool divides_sums;   // dbias is summed over the dimension that blocks divide
  double flops;        // of the whole call
};
void choose_block_tasks(const Problem& p, const Planning& planning, const Extent& extent, const Blocks& blocks,
                        const Because& because, BlockPlan& part) {
  const MutableTensorView& dbias = part.gradients.dbias;
  int threads = choose_threads(p, planning, blocks.flops, because);
  if (threads > 1 && blocks.divides_sums) {
    threads = 1;
    because("one thread: dbias is summed over ", blocks.name, ", which the tasks divide");
  }
  const bool over_entries = is_summed(dbias, 0), over_heads = is_summed(dbias, 1);
  const bool shared = over_entries || over_heads;
  const bool splits = planning.forced.split_keys.value_or(threads > 1 && extent.heads < kTasksPerThread * threads);
  part.split_keys = !blocks.divides_sums && (splits || (threads > 1 && shared));
  part.chain_entries = part.split_keys && over_entries;
  part.chain_heads = part.split_keys && over_heads;
  if (part.split_keys && shared) {
    because("a task takes its ", blocks.name, " through ",
            !over_heads     ? "all entries"
            : !over_entries ? "all heads"
                            : "all heads of all entries",
            ": dbias is summed over them");
  } else if (part.split_keys) {
    because("a task is one of ", blocks.count, " blocks of ", blocks.name, ": ", extent.heads,
            " head groups are too few for ", threads, " threads");
  }
  const std::int64_t chains =
      (part.chain_entries ? 1 : p.entries()) * (part.chain_heads ? 1 : std::max<std::int64_t>(p.kv_heads, 1));
  part.tasks = chains * (part.split_keys ? blocks.count : 1);
  part.threads = static_cast<int>(std::clamp<std::int64_t>(part.tasks, 1, threads));
}

std::int64_t count_of(std::int64_t n, std::int64_t block) { return std::max<std::int64_t>(hwy::DivCeil(n, block), 1); }

void plan_backward(const BackwardProblem& problem, const Planning& planning, Plan& plan) {
  const Because because(planning);
  const Problem& p = problem.forward;
  BackwardPlan& part = plan.emplace<BackwardPlan>(problem);
  part.target = choose_target(planning, because);
  part.has_rows = p.has_rows() && (p.n_k > 0 || !p.sequences.has_all_keys());
  part.gradients = part.has_rows ? problem.gradients : problem.as_given;
  if (!part.has_rows) return describe("none", part, 0, plan);
  const Extent extent = extent_of(p);
  if (p.dtype == DType::bf16 && problem.dout.dtype == DType::bf16) {  // f32 must stay f32
    part.unit = choose_unit(p, planning, extent.rows, because);
  }
  part.kernel = part.unit != nullptr    ? part.unit->backward
                : p.dtype == DType::f64 ? backward_kernel_f64(part.target)
                                        : backward_kernel_f32(part.target);
  part.call.tiles = choose_backward_tiles(p, planning, part.unit, extent, part.kernel.panel_bytes, because);
  part.call.forward.relative_pad = RelativeTable::pad_of(part.call.tiles);
  const Blocks blocks = {.name = "keys",
                         .count = count_of(extent.keys, part.call.tiles.key_block),
                         .divides_sums = is_summed(problem.gradients.dbias, 3),
                         .flops = 2.5 * extent.flops};
  choose_block_tasks(p, planning, extent, blocks, because, part);
  describe_blocks("streaming, backward", extent, part, plan);
}

// Rows per task of a jvp: many, as they share the packing of keys, in whole blocks.
std::int64_t choose_task_rows(const Extent& extent, std::int64_t row_block, int threads) {
  const std::int64_t rows = choose_row_block(extent.rows, extent.heads, kMaxRows, row_block, threads);
  return std::max(rows / row_block * row_block, row_block);
}

void plan_tangent(const TangentProblem& problem, const Planning& planning, Plan& plan) {
  const Because because(planning);
  const Problem& p = problem.backward.forward;
  TangentPlan& part = plan.emplace<TangentPlan>(problem);
  part.target = choose_target(planning, because);
  part.has_rows = p.has_rows() && (p.n_k > 0 || !p.sequences.has_all_keys());
  part.gradients = part.has_rows ? problem.backward.gradients : problem.backward.as_given;
  const char* const name = problem.is_double ? "streaming, double backward" : "streaming, jvp";
  if (!part.has_rows) return describe("none", part, 0, plan);
  const Extent extent = extent_of(p);
  part.kernel = p.dtype == DType::f64 ? tangent_kernel_f64(part.target) : tangent_kernel_f32(part.target);
  Tiles& tiles = part.call.backward.tiles =
      choose_backward_tiles(p, planning, nullptr, extent, part.kernel.panel_bytes, because);
  // Rows share the packing of keys: twice as many, if what is kept of their scores does not grow too large.
  const std::int64_t kept = 2 * 2 * tiles.row_block * extent.keys * size_of(accumulation_dtype(p.dtype));
  if (problem.is_double && planning.forced.tiles.row_block == 0 && kept <= kTangentBytes) tiles.row_block *= 2;
  part.call.backward.forward.relative_pad = RelativeTable::pad_of(tiles);
  const double flops = (problem.is_double ? 6.0 : 2.5) * extent.flops;
  part.call.most_keys = extent.keys;
  part.call.task_rows = problem.is_double ? tiles.row_block
                                          : choose_task_rows(extent, tiles.row_block,
                                                             choose_threads(p, planning, flops, Because(Planning{})));
  const MutableTensorView& dbias = part.gradients.dbias;
  const bool shares_rows = is_summed(dbias, 1) && p.q_heads > p.kv_heads;  // a query's heads may be in two tasks
  const Blocks blocks = {.name = "rows",
                         .count = count_of(extent.rows, part.call.task_rows),
                         .divides_sums = is_summed(dbias, 2) || shares_rows,
                         .flops = flops};
  choose_block_tasks(p, planning, extent, blocks, because, part);
  describe_blocks(name, extent, part, plan);
}

class CpuBackend final : public Backend {
 public:
  const char* name() const override { return "cpu"; }
  std::string refusal(const Problem&) const override { return ""; }
  std::string refusal(const BackwardProblem&) const override { return ""; }
  std::string refusal(const MergeProblem&) const override { return ""; }
  std::string refusal(const TangentProblem&) const override { return ""; }
  void plan(const Problem& problem, const Planning& planning, Plan& plan) const override {
    plan_forward(problem, planning, plan);
  }
  void plan(const BackwardProblem& problem, const Planning& planning, Plan& plan) const override {
    plan_backward(problem, planning, plan);
  }
  void plan(const MergeProblem& problem, const Planning& planning, Plan& plan) const override {
    plan_merge(problem, planning, plan);
  }
  void plan(const TangentProblem& problem, const Planning& planning, Plan& plan) const override {
    plan_tangent(problem, planning, plan);
  }
};

const CpuBackend kBackend;

}  // namespace

std::vector<std::pair<std::string, std::string>> ForwardPlan::facts() const {
  const std::string rows = concat(tasks, split_keys ? " (rows × chunks of keys)" : " (blocks of rows)");
  return {{"target", target_text(target, unit)},
          {"tiles", text_of(call.tiles)},
          {"tasks", key_tasks > 0 ? concat(rows, ", then ", key_tasks, " (blocks of keys, for key_sums)") : rows}};
}

std::vector<std::pair<std::string, std::string>> BackwardPlan::facts() const {
  const Tiles& tiles = call.tiles;
  return {{"target", target_text(target, unit)},
          {"tiles", concat(tiles.row_block, " rows × ", tiles.key_block, " keys")},
          {"tasks", concat(tasks, split_keys ? " (blocks of keys)" : " (head groups)")}};
}

std::vector<std::pair<std::string, std::string>> TangentPlan::facts() const {
  const Tiles& tiles = call.backward.tiles;
  return {{"target", target_text(target, nullptr)},
          {"tiles", concat(tiles.row_block, " rows × ", tiles.key_block, " keys, ", call.task_rows, " rows per task")},
          {"tasks", concat(tasks, split_keys ? " (blocks of rows)" : " (head groups)")}};
}

bool splits_floats(const Problem& p, const Machine& machine) {
  return p.dtype == DType::f32 && p.options.split_products && machine.bf16_unit == MatrixUnit::amx &&
         p.d_k + p.d_v >= kSplitSizes;
}

const Backend& backend() { return kBackend; }

}  // namespace keel::cpu
