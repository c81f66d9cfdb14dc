// Splits a planned backward call, or one of tangents, into tasks, each a call of the kernel, and runs them.
#include <hwy/base.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <memory>
#include <type_traits>
#include <vector>

#include "core/element.h"
#include "cpu/head.h"
#include "cpu/plan.h"
#include "cpu/relative_table.h"
#include "cpu/zero.h"
#include "runtime/parallel.h"
#include "runtime/workspace.h"

namespace keel::cpu {
namespace {

// A gradient's sum, written or added to what is there.
template <class View, class... Index>
void put(const View& view, bool accumulate, double sum, Index... index) {
  store_at(view, accumulate ? load_at(view, index...) + sum : sum, index...);
}

// One float64 per row of q, (B, H_q, N_q), for gradients that are sums over rows.
class RowValues {
 public:
  RowValues(const Call& call, bool wanted) : heads_(call.q_heads), rows_(call.sequences.n_q) {
    if (wanted) values_.assign(static_cast<std::size_t>(call.sequences.batch * heads_ * rows_), 0.0);
  }
  double at(std::int64_t b, std::int64_t h, std::int64_t i) const {
    return values_[static_cast<std::size_t>((b * heads_ + h) * rows_ + i)];
  }
  MutableRows of(std::int64_t b, std::int64_t h, std::int64_t i) {
    if (values_.empty()) return {};
    return {values_.data() + (b * heads_ + h) * rows_ + i, rows_, 1, 0};
  }

 private:
  std::int64_t heads_, rows_;
  std::vector<double> values_;
};

// A dbias that is summed over a dimension: the sums, in the accumulation type, dense over what is left.
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
  MutableRows of(std::int64_t b, std::int64_t h, std::int64_t i, std::int64_t j) {
    if (!wanted_) return {};
    const std::int64_t at = b * strides_[0] + h * strides_[1] + i * strides_[2] + j * strides_[3];
    return {sums_.data() + at * item_, strides_[1], strides_[2], strides_[3]};
  }
  void write(bool accumulate) const {
    const DType from = item_ == 8 ? DType::f64 : DType::f32;
    std::int64_t at = 0;
    for (std::int64_t b = 0; b < counts_[0]; ++b) {
      for (std::int64_t h = 0; h < counts_[1]; ++h) {
        for (std::int64_t i = 0; i < counts_[2]; ++i) {
          for (std::int64_t j = 0; j < counts_[3]; ++j, ++at) {
            put(dbias_, accumulate, load(sums_.data(), from, at), b, h, i, j);
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
bool covers_all_pairs(const Call& call) {
  const Sequences& s = call.sequences;
  if (call.block_tiles) return false;
  if (call.mask && is_shared(call.mask.head, call.mask.row, s.n_q, call.group)) return false;
  const std::int64_t all = s.whole_q + s.whole_k;  // a wider window hides nothing
  return !s.packed() && s.q_lengths.empty() && s.k_lengths.empty() && s.k_starts.empty() && s.window_left >= all &&
         s.window_right >= all;
}

struct HeadTask {
  std::int64_t entry, kv_head;
  std::int64_t rows, keys;  // of all query heads that share the key-value head
};

// What the kernels differ in: which side of the scores is divided into blocks, and which has lines.
std::int64_t blocks_of(const BackwardCall& call, std::int64_t, std::int64_t keys) {
  return hwy::DivCeil(keys, call.tiles.key_block);
}
std::int64_t blocks_of(const TangentCall& call, std::int64_t rows, std::int64_t) {
  return hwy::DivCeil(rows, call.task_rows);
}
std::int64_t lines_of(const BackwardCall&, std::int64_t rows, std::int64_t) { return rows; }
std::int64_t lines_of(const TangentCall& call, std::int64_t, std::int64_t keys) { return call.sums_keys() ? keys : 0; }
const BackwardCall& backward_of(const BackwardCall& call) { return call; }
const BackwardCall& backward_of(const TangentCall& call) { return call.backward; }
bool has_blocks(const BackwardCall& call) { return call.needs_ds() || call.dv; }
bool has_blocks(const TangentCall&) { return true; }
bool has_sums(const BackwardCall& call) { return call.sums_dq(); }
bool has_sums(const TangentCall& call) { return call.sums_keys(); }

TangentHead with_tangents(const TangentCall& call, const Entry& entry, std::int64_t kv_head, const BackwardHead& head) {
  const std::int64_t b = entry.batch, h = kv_head * call.backward.forward.group, q = entry.q_begin, k = entry.k_begin;
  return {.backward = head,
          .tq = rows_of(call.tq, b, h, q),
          .tk = rows_of(call.tk, b, kv_head, k),
          .tv = rows_of(call.tv, b, kv_head, k),
          .tbias = rows_of(call.tbias, b, h, q, k),
          .tscale = rows_of(call.tscale, b, h, q),
          .tsinks = rows_of(call.tsinks, b, h, q),
          .tout = rows_of(call.tout, b, h, q),
          .tlse = rows_of(call.tlse, b, h, q)};
}

template <class AnyPlan>
class BackwardRun {
  using Head = typename AnyPlan::Head;

 public:
  BackwardRun(const AnyPlan& plan, const typename AnyPlan::AnyCall& call)
      : plan_(plan),
        all_(call),
        call_(backward_of(call)),
        forward_(call_.forward),
        kernel_(plan.kernel),
        dbias_(plan.gradients.dbias, accumulation_dtype(forward_.dtype)),
        dscale_(forward_, plan.gradients.dscale.given()),
        dsinks_(forward_, plan.gradients.dsinks.given()) {
    const std::int64_t tables = forward_.sequences.entries() * forward_.q_heads;
    if (call_.drelative_bias) drelative_.assign(static_cast<std::size_t>(tables * distances()), 0.0);
    heads_.reserve(static_cast<std::size_t>(forward_.sequences.entries() * forward_.kv_heads));
    for (std::int64_t e = 0; e < forward_.sequences.entries(); ++e) {
      const Entry entry = forward_.sequences.entry(e);
      for (std::int64_t h = 0; h < forward_.kv_heads; ++h) {
        heads_.push_back({e, h, entry.q_rows * forward_.group, entry.k_len});
      }
    }
  }

  void operator()() {
    const Gradients& g = plan_.gradients;
    if (!g.accumulate) {
      if (!forward_.sequences.k_lengths.empty()) zero(g.dk), zero(g.dv);  // keys beyond their length
      if (call_.dbias && !dbias_.wanted() && !covers_all_pairs(forward_)) zero(g.dbias);
    }
    if (plan_.split_keys) {
      run_blocks();
    } else {
      run_heads();
    }
    if (dbias_.wanted()) dbias_.write(g.accumulate);
    sum_sinks();
    sum_scale();
    sum_relative_bias();
  }

 private:
  std::int64_t distances() const { return 2 * forward_.radius + 1; }
  std::int64_t blocks(const HeadTask& head) const {
    return has_blocks(all_) ? blocks_of(all_, head.rows, head.keys) : 0;
  }
  std::int64_t lines(const HeadTask& head) const { return lines_of(all_, head.rows, head.keys); }
  std::int64_t head_bytes(const HeadTask& head) const { return kernel_.head_bytes(all_, head.rows, head.keys); }

  Head head_of_task(const HeadTask& task, std::byte* memory) {
    const Entry entry = forward_.sequences.entry(task.entry);
    const std::int64_t b = entry.batch, hk = task.kv_head, h = hk * forward_.group;
    const std::int64_t q = entry.q_begin, k = entry.k_begin;
    BackwardHead head = {.forward = head_of(forward_, task.entry, hk),
                         .out = rows_of(call_.out, b, h, q),
                         .dout = rows_of(call_.dout, b, h, q),
                         .lse = rows_of(call_.lse, b, h, q),
                         .dlse = rows_of(call_.dlse, b, h, q),
                         .dq = rows_of(call_.dq, b, h, q),
                         .dk = rows_of(call_.dk, b, hk, k),
                         .dv = rows_of(call_.dv, b, hk, k),
                         .dbias = rows_of(call_.dbias, b, h, q, k),
                         .dbias_sums = dbias_.of(b, h, q, k),
                         .dscale = dscale_.of(b, h, q),
                         .dsinks = dsinks_.of(b, h, q),
                         .drelative = {},
                         .memory = memory};
    if (call_.drelative_bias) {
      head.drelative = {drelative_.data() + (task.entry * forward_.q_heads + h) * distances(), distances(), 0, 1};
    }
    if constexpr (std::is_same_v<Head, BackwardHead>) {
      return head;
    } else {
      return with_tangents(all_, entry, hk, head);
    }
  }

  // A task is a head group from beginning to end.
  void run_heads() {
    parallel_tasks(std::ssize(heads_), plan_.threads, [&](std::int64_t at) {
      const HeadTask& task = heads_[static_cast<std::size_t>(at)];
      std::byte* const scratch = thread_workspace(plan_.thread_bytes + head_bytes(task));
      const Head head = head_of_task(task, scratch + plan_.thread_bytes);
      kernel_.whole(all_, head, lines(task), blocks(task), scratch);
    });
  }

  // A task is a block of keys, of one head group or of a chain of them. Blocks of the same head group follow each other
  // through its lines: a task waits for one that has begun before it, never for a later one.
  void run_blocks() {
    std::vector<std::int64_t> offsets = {0};
    for (const HeadTask& head : heads_) offsets.push_back(offsets.back() + head_bytes(head));
    constexpr std::int64_t kAlign = 64;
    const auto memory = std::make_unique_for_overwrite<std::byte[]>(static_cast<std::size_t>(offsets.back() + kAlign));
    auto* const base = memory.get() + (kAlign - reinterpret_cast<std::uintptr_t>(memory.get()) % kAlign) % kAlign;
    std::vector<Head> heads;
    for (std::size_t at = 0; at < heads_.size(); ++at) heads.push_back(head_of_task(heads_[at], base + offsets[at]));

    for_lines([&](std::size_t at, std::int64_t begin, std::int64_t end) {
      kernel_.prepare(all_, heads[at], begin, end, thread_workspace(plan_.thread_bytes));
    });
    if (has_blocks(all_)) {
      std::int64_t most = 0;
      for (const HeadTask& head : heads_) most = std::max(most, blocks(head));
      std::vector<std::atomic<std::int64_t>> done(static_cast<std::size_t>(most) * heads_.size());
      const auto take = [&](std::int64_t block, std::size_t at) {
        if (block >= blocks(heads_[at])) return;
        std::atomic<std::int64_t>* const own = &done[static_cast<std::size_t>(block) * heads_.size() + at];
        try {
          kernel_.run(all_, {&heads[at], block, block > 0 ? own - heads_.size() : nullptr, own},
                      thread_workspace(plan_.thread_bytes));
        } catch (...) {  // no memory for the scratch: no task must wait for this one
          for (auto& each : done) each.store(INT64_MAX);
          throw;
        }
      };
      // Heads of a chain share sums of dbias: one task takes them in turn.
      const std::int64_t lanes = plan_.chain_heads ? 1 : forward_.kv_heads;
      std::vector<std::vector<std::size_t>> chains(
          static_cast<std::size_t>((plan_.chain_entries ? 1 : forward_.sequences.entries()) * lanes));
      for (std::size_t at = 0; at < heads_.size(); ++at) {
        const std::int64_t entry = plan_.chain_entries ? 0 : heads_[at].entry;
        chains[static_cast<std::size_t>(entry * lanes + (plan_.chain_heads ? 0 : heads_[at].kv_head))].push_back(at);
      }
      const auto count = std::ssize(chains);
      parallel_tasks(most * count, plan_.threads, [&](std::int64_t i) {
        for (const std::size_t at : chains[static_cast<std::size_t>(i % count)]) take(i / count, at);
      });
    }
    if (!has_sums(all_)) return;
    for_lines([&](std::size_t at, std::int64_t begin, std::int64_t end) {
      kernel_.finish(all_, heads[at], begin, end, thread_workspace(plan_.thread_bytes));
    });
  }

  template <class Work>
  void for_lines(const Work& work) {
    struct Part {
      std::size_t head;
      std::int64_t begin, end;
    };
    std::vector<Part> parts;
    const std::int64_t step = 8 * call_.tiles.row_block;
    for (std::size_t at = 0; at < heads_.size(); ++at) {
      const std::int64_t lines_of_head = lines(heads_[at]);
      for (std::int64_t begin = 0; begin < lines_of_head; begin += step)
        parts.push_back({at, begin, std::min(begin + step, lines_of_head)});
    }
    parallel_tasks(std::ssize(parts), plan_.threads, [&](std::int64_t i) {
      const Part& part = parts[static_cast<std::size_t>(i)];
      work(part.head, part.begin, part.end);
    });
  }

  // dscale and dsinks: sums over rows, in order.
  void sum_sinks() const {
    const Gradients& g = plan_.gradients;
    if (!g.dsinks.given()) return;
    for (std::int64_t h = 0; h < forward_.q_heads; ++h) {
      double sum = 0;
      for (std::int64_t b = 0; b < forward_.sequences.batch; ++b) {
        for (std::int64_t i = 0; i < forward_.sequences.n_q; ++i) sum += dsinks_.at(b, h, i);
      }
      put(g.dsinks, g.accumulate, sum, h);
    }
  }

  // drelative_bias: sums over entries, and over heads where they share it.
  void sum_relative_bias() const {
    const Gradients& g = plan_.gradients;
    if (!g.drelative_bias.given()) return;
    const bool shared = g.drelative_bias.strides[0] == 0;
    const std::int64_t heads = forward_.q_heads, entries = forward_.sequences.entries();
    for (std::int64_t h = 0; h < (shared ? 1 : heads); ++h) {
      for (std::int64_t x = 0; x < distances(); ++x) {
        double sum = 0;
        for (std::int64_t table = h; table < entries * heads; table += shared ? 1 : heads) {
          sum += drelative_[static_cast<std::size_t>(table * distances() + x)];
        }
        put(g.drelative_bias, g.accumulate, sum, h, x);
      }
    }
  }

  void sum_scale() const {
    const Gradients& g = plan_.gradients;
    if (!g.dscale.given()) return;
    const auto summed = [&](std::size_t i) { return g.dscale.shape[i] > 1 && g.dscale.strides[i] == 0; };
    const std::array<std::int64_t, 3> shape = {forward_.sequences.batch, forward_.q_heads, forward_.sequences.n_q};
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
          put(g.dscale, g.accumulate, sum, b, h, i);
        }
      }
    }
  }

  const AnyPlan& plan_;
  const typename AnyPlan::AnyCall& all_;
  const BackwardCall& call_;
  const Call& forward_;
  const BlockKernel<typename AnyPlan::AnyCall, Head>& kernel_;
  BiasSums dbias_;
  RowValues dscale_, dsinks_;
  std::vector<double> drelative_;  // (entries, H_q, distances)
  std::vector<HeadTask> heads_;
};

// Empty sums; those over a dimension of size 0 still have memory.
void write_zeros(const Gradients& g) {
  zero(g.dq), zero(g.dk), zero(g.dv), zero(g.dbias);
  zero(g.dscale), zero(g.dsinks), zero(g.drelative_bias);
}

}  // namespace

void BackwardPlan::execute() const {
  if (has_rows && !call.forward.relative_bias) return BackwardRun(*this, call)();
  if (has_rows) {
    BackwardCall with_table = call;
    const RelativeTable table(with_table.forward, call.tiles);
    return BackwardRun(*this, with_table)();
  }
  if (!gradients.accumulate) write_zeros(gradients);
}

void TangentPlan::execute() const {
  if (has_rows) {
    TangentCall with_table = call;
    const RelativeTable table(with_table.backward.forward, call.backward.tiles);
    return BackwardRun(*this, with_table)();
  }
  if (gradients.accumulate) return;
  write_zeros(gradients);
  zero(tout), zero(tlse);
}

}  // namespace keel::cpu
