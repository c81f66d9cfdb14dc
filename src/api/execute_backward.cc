#include <algorithm>
#include <array>
#include <atomic>
#include <memory>
#include <vector>

#include "api/execute.h"
#include "api/rows.h"
#include "api/zero.h"
#include "core/element.h"
#include "runtime/parallel.h"
#include "runtime/workspace.h"

namespace keel {
namespace {

// One float64 a row of q, (B, H_q, N_q), for gradients that are sums over rows.
class RowValues {
 public:
  RowValues(const Problem& p, bool wanted) : heads_(p.q_heads), rows_(p.n_q) {
    if (wanted) values_.assign(static_cast<std::size_t>(p.batch * heads_ * rows_), 0.0);
  }
  double at(std::int64_t b, std::int64_t h, std::int64_t i) const {
    return values_[static_cast<std::size_t>((b * heads_ + h) * rows_ + i)];
  }
  cpu::MutableRows of(std::int64_t b, std::int64_t h, std::int64_t i) {
    if (values_.empty()) return {};
    return {values_.data() + (b * heads_ + h) * rows_ + i, rows_, 1, 0};
  }

 private:
  std::int64_t heads_, rows_;
  std::vector<double> values_;
};

// dbias where it is summed over a dimension: the sums, in the type that sums are kept in, dense over what is left.
class BiasSums {
 public:
  BiasSums(const MutableTensorView& dbias, DType accumulation) : dbias_(dbias), item_(size_of(accumulation)) {
    if (!dbias.given()) return;
    std::int64_t size = 1;
    for (std::size_t i = 4; i-- > 0;) {
      const bool summed = dbias.shape[i] > 1 && dbias.strides[i] == 0;
      counts_[i] = summed ? 1 : dbias.shape[i];
      strides_[i] = summed ? 0 : size;
      size *= counts_[i];
      wanted_ = wanted_ || summed;
    }
    if (wanted_) sums_.assign(static_cast<std::size_t>(size * item_), std::byte{0});
  }

  bool wanted() const { return wanted_; }
  cpu::MutableRows of(std::int64_t b, std::int64_t h, std::int64_t i, std::int64_t j) {
    if (!wanted_) return {};
    const std::int64_t at = b * strides_[0] + h * strides_[1] + i * strides_[2] + j * strides_[3];
    return {sums_.data() + at * item_, strides_[1], strides_[2], strides_[3]};
  }
  void write() const {
    const DType from = item_ == 8 ? DType::f64 : DType::f32;
    std::int64_t at = 0;
    for (std::int64_t b = 0; b < counts_[0]; ++b) {
      for (std::int64_t h = 0; h < counts_[1]; ++h) {
        for (std::int64_t i = 0; i < counts_[2]; ++i) {
          for (std::int64_t j = 0; j < counts_[3]; ++j, ++at) {
            store_at(dbias_, load(sums_.data(), from, at), b, h, i, j);
          }
        }
      }
    }
  }

 private:
  MutableTensorView dbias_;
  std::int64_t item_;
  bool wanted_ = false;
  std::array<std::int64_t, 4> counts_{}, strides_{};
  std::vector<std::byte> sums_;
};

// Whether every pair of a query and a key belongs to some task. A mask that all queries share may hide whole blocks.
bool covers_all_pairs(const Problem& p) {
  const Options& o = p.options;
  const auto& mask = o.mask.strides;
  if (o.mask.given() && is_shared(mask[1], mask[2], p.n_q, p.q_heads / p.kv_heads)) return false;
  return !p.packed() && o.q_lengths.empty() && o.k_lengths.empty() && o.causal == Causal::none &&
         o.window.left >= p.n_q + p.n_k && o.window.right >= p.n_q + p.n_k;
}

struct HeadTask {
  std::int64_t entry, kv_head;
};

class BackwardRun {
 public:
  BackwardRun(const BackwardProblem& problem, const Plan& plan)
      : problem_(problem),
        p_(problem.forward),
        plan_(plan),
        kernel_(backward_kernel(problem, plan)),
        call_(backward_call(problem, plan)),
        group_(p_.q_heads / p_.kv_heads),
        workspace_(kernel_.workspace_bytes(call_)),
        dbias_(problem.gradients.dbias, accumulation_dtype(p_.dtype)),
        dscale_(p_, call_.dscale),
        dsinks_(p_, call_.dsinks) {
    for (std::int64_t e = 0; e < p_.entries(); ++e) {
      for (std::int64_t h = 0; h < p_.kv_heads; ++h) heads_.push_back({e, h});
    }
  }

  void operator()() {
    const Gradients& g = problem_.gradients;
    if (!p_.options.k_lengths.empty()) zero(g.dk), zero(g.dv);  // keys beyond their length
    if (call_.dbias && !dbias_.wanted() && !covers_all_pairs(p_)) zero(g.dbias);
    if (plan_.split_keys) {
      run_blocks();
    } else {
      run_heads();
    }
    if (dbias_.wanted()) dbias_.write();
    sum_rows();
  }

 private:
  std::int64_t rows_of_head(const HeadTask& head) const { return p_.entry(head.entry).q_rows * group_; }
  std::int64_t blocks_of(const HeadTask& head) const {
    return (p_.entry(head.entry).k_len + plan_.tiles.key_block - 1) / plan_.tiles.key_block;
  }

  cpu::BackwardHead head_of_task(const HeadTask& task, std::byte* memory) {
    const Entry entry = p_.entry(task.entry);
    const std::int64_t b = entry.batch, hk = task.kv_head, h = hk * group_, q = entry.q_begin, k = entry.k_begin;
    const Gradients& g = problem_.gradients;
    cpu::BackwardHead head = {.forward = head_of(p_, task.entry, hk),
                              .out = rows_of(TensorView(p_.out), b, h, q),
                              .dout = rows_of(problem_.dout, b, h, q),
                              .lse = rows_of(problem_.lse, b, h, q),
                              .dlse = rows_of(problem_.dlse, b, h, q),
                              .dq = rows_of(g.dq, b, h, q),
                              .dk = rows_of(g.dk, b, hk, k),
                              .dv = rows_of(g.dv, b, hk, k),
                              .dbias = rows_of(g.dbias, b, h, q, k),
                              .dbias_sums = dbias_.of(b, h, q, k),
                              .dscale = dscale_.of(b, h, q),
                              .dsinks = dsinks_.of(b, h, q),
                              .memory = memory};
    return head;
  }

  void finish(const cpu::BackwardHead& head, std::int64_t begin, std::int64_t end, std::byte* workspace) const {
    if (call_.sums_dq()) kernel_.finish(call_, head, begin, end, workspace);
  }
  bool has_blocks() const { return call_.needs_ds() || call_.dv; }

  // A task is a head group from beginning to end.
  void run_heads() {
    parallel_tasks(std::ssize(heads_), plan_.threads, [&](std::int64_t at) {
      const HeadTask& task = heads_[static_cast<std::size_t>(at)];
      const std::int64_t rows = rows_of_head(task);
      std::byte* const scratch = thread_workspace(workspace_ + kernel_.head_bytes(call_, rows));
      const cpu::BackwardHead head = head_of_task(task, scratch + workspace_);
      kernel_.prepare(call_, head, 0, rows, scratch);
      for (std::int64_t block = 0; has_blocks() && block < blocks_of(task); ++block) {
        kernel_.run(call_, {&head, block}, scratch);
      }
      finish(head, 0, rows, scratch);
    });
  }

  // A task is a block of keys, of one head group or of a chain of them. Blocks of the same head group follow each other
  // through its rows: a task waits for one that has begun before it, never for a later one.
  void run_blocks() {
    std::vector<std::int64_t> offsets = {0};
    for (const HeadTask& head : heads_)
      offsets.push_back(offsets.back() + kernel_.head_bytes(call_, rows_of_head(head)));
    constexpr std::int64_t kAlign = 64;
    const auto memory = std::make_unique_for_overwrite<std::byte[]>(static_cast<std::size_t>(offsets.back() + kAlign));
    auto* const base = memory.get() + (kAlign - reinterpret_cast<std::uintptr_t>(memory.get()) % kAlign) % kAlign;
    std::vector<cpu::BackwardHead> heads;
    for (std::size_t at = 0; at < heads_.size(); ++at) heads.push_back(head_of_task(heads_[at], base + offsets[at]));

    for_blocks_of_rows([&](std::size_t at, std::int64_t begin, std::int64_t end) {
      kernel_.prepare(call_, heads[at], begin, end, thread_workspace(workspace_));
    });
    if (has_blocks()) {
      std::int64_t most = 0;
      for (const HeadTask& head : heads_) most = std::max(most, blocks_of(head));
      std::vector<std::atomic<std::int64_t>> done(static_cast<std::size_t>(most) * heads_.size());
      const auto take = [&](std::int64_t block, std::size_t at) {
        if (block >= blocks_of(heads_[at])) return;
        std::atomic<std::int64_t>* const own = &done[static_cast<std::size_t>(block) * heads_.size() + at];
        try {
          kernel_.run(call_, {&heads[at], block, block > 0 ? own - heads_.size() : nullptr, own},
                      thread_workspace(workspace_));
        } catch (...) {  // no memory for the scratch: nobody must wait for this task
          for (auto& each : done) each.store(INT64_MAX);
          throw;
        }
      };
      // Heads of a chain share sums of dbias: one task takes them in turn.
      const std::int64_t lanes = plan_.chain_heads ? 1 : p_.kv_heads;
      std::vector<std::vector<std::size_t>> chains(
          static_cast<std::size_t>((plan_.chain_entries ? 1 : p_.entries()) * lanes));
      for (std::size_t at = 0; at < heads_.size(); ++at) {
        const std::int64_t entry = plan_.chain_entries ? 0 : heads_[at].entry;
        chains[static_cast<std::size_t>(entry * lanes + (plan_.chain_heads ? 0 : heads_[at].kv_head))].push_back(at);
      }
      const auto count = std::ssize(chains);
      parallel_tasks(most * count, plan_.threads, [&](std::int64_t i) {
        for (const std::size_t at : chains[static_cast<std::size_t>(i % count)]) take(i / count, at);
      });
    }
    for_blocks_of_rows([&](std::size_t at, std::int64_t begin, std::int64_t end) {
      finish(heads[at], begin, end, thread_workspace(workspace_));
    });
  }

  template <class Work>
  void for_blocks_of_rows(const Work& work) {
    struct Block {
      std::size_t head;
      std::int64_t begin, end;
    };
    std::vector<Block> blocks;
    const std::int64_t step = 8 * plan_.tiles.row_block;
    for (std::size_t at = 0; at < heads_.size(); ++at) {
      const std::int64_t rows = rows_of_head(heads_[at]);
      for (std::int64_t begin = 0; begin < rows; begin += step)
        blocks.push_back({at, begin, std::min(begin + step, rows)});
    }
    parallel_tasks(std::ssize(blocks), plan_.threads, [&](std::int64_t i) {
      const Block& block = blocks[static_cast<std::size_t>(i)];
      work(block.head, block.begin, block.end);
    });
  }

  // dscale and dsinks: sums over rows, in their order.
  void sum_rows() const {
    const Gradients& g = problem_.gradients;
    if (call_.dsinks) {
      for (std::int64_t h = 0; h < p_.q_heads; ++h) {
        double sum = 0;
        for (std::int64_t b = 0; b < p_.batch; ++b) {
          for (std::int64_t i = 0; i < p_.n_q; ++i) sum += dsinks_.at(b, h, i);
        }
        store_at(g.dsinks, sum, h);
      }
    }
    if (!call_.dscale) return;
    const auto summed = [&](std::size_t i) { return g.dscale.shape[i] > 1 && g.dscale.strides[i] == 0; };
    const std::array<std::int64_t, 3> shape = {p_.batch, p_.q_heads, p_.n_q};
    std::array<std::int64_t, 3> outer{}, inner{};
    for (std::size_t i = 0; i < 3; ++i) outer[i] = summed(i) ? 1 : shape[i], inner[i] = summed(i) ? shape[i] : 1;
    for (std::int64_t b = 0; b < outer[0]; ++b) {
      for (std::int64_t h = 0; h < outer[1]; ++h) {
        for (std::int64_t i = 0; i < outer[2]; ++i) {
          double sum = 0;
          for (std::int64_t x = 0; x < inner[0]; ++x) {
            for (std::int64_t y = 0; y < inner[1]; ++y) {
              for (std::int64_t z = 0; z < inner[2]; ++z) sum += dscale_.at(b + x, h + y, i + z);
            }
          }
          store_at(g.dscale, sum, b, h, i);
        }
      }
    }
  }

  const BackwardProblem& problem_;
  const Problem& p_;
  const Plan& plan_;
  const cpu::BackwardKernel kernel_;
  const cpu::BackwardCall call_;
  const std::int64_t group_, workspace_;
  BiasSums dbias_;
  RowValues dscale_, dsinks_;
  std::vector<HeadTask> heads_;
};

}  // namespace

void run_streaming_backward(const BackwardProblem& problem, const Plan& plan) { BackwardRun(problem, plan)(); }

}  // namespace keel
