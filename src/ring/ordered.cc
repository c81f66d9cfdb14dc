// Every rank collects the keys that it needs and lets one call sum them up, so that its rows have the bits of a single
// process. One key-value head of one batch entry at a time, while the next one's keys are under way: with as many heads
// as ranks that is no more memory than a block of all heads. (But all at once with dropout, which counts heads.)
#include <algorithm>

#include "ring/forward.h"

namespace keel::ring {
namespace {

class Ordered final : public ForwardWay {
 public:
  explicit Ordered(const ForwardCall& call)
      : call_(call),
        own_({call.problem.batch, call.problem.q_heads, call.queries().size(), 1},
             accumulation_dtype(call.problem.dtype), kept_for(call.outputs)),
        rows_(with_callers(own_.results(), call.tensors.out, call.outputs)),
        shape_(call.block_shape()),
        heads_(call.problem, call.options.dropout > 0),
        collected_(call.geometry.collected(call.link.rank())) {
    rows_.out = call.tensors.out;
    shape_.batch = heads_.entries(), shape_.heads = heads_.kv_heads();
    const Rows all = collected_;
    for (Wave& wave : waves_) {
      wave.memory = std::make_unique_for_overwrite<std::byte[]>(static_cast<std::size_t>(shape_.bytes({all, {}})));
      for (int rank = 0; rank < call.link.size(); ++rank) {
        wave.in.emplace_back(shape_.bytes(call.geometry.to_collect(call.link.rank(), rank)));
        wave.out.emplace_back(shape_.bytes(call.geometry.to_collect(rank, call.link.rank())));
      }
    }
  }

  void run() override {
    begin(0);
    for (std::int64_t at = 0; at < heads_.count(); ++at) {
      begin(at + 1);
      Wave& wave = waves_[static_cast<std::size_t>(at % 2)];
      for (Message& message : wave.in) call_.link.wait(message);
      call_.link.attempt([&] { compute(at, wave); });
    }
    for (Wave& wave : waves_) {
      for (Message& message : wave.out) call_.link.wait(message);
    }
  }
  const RowResults& rows() const override { return rows_; }

 private:
  // The keys and values of one head.
  struct Wave {
    std::vector<Message> in, out;  // by rank
    std::unique_ptr<std::byte[]> memory;
  };

  void begin(std::int64_t at) {
    if (at >= heads_.count()) return;
    Wave& wave = waves_[static_cast<std::size_t>(at % 2)];
    const Block own = own_block(call_.keys(), heads_.of_keys(call_.tensors.k, at), heads_.of_keys(call_.tensors.v, at));
    const int rank = call_.link.rank(), size = call_.link.size();
    for (int step = 1; step < size; ++step) {
      const int from = (rank + size - step) % size, to = (rank + step) % size;
      call_.link.receive(from, kBlocks, wave.in[static_cast<std::size_t>(from)],
                         shape_.bytes(call_.geometry.to_collect(rank, from)));
      Message& message = wave.out[static_cast<std::size_t>(to)];
      const Needs rows = call_.geometry.to_collect(to, rank);
      call_.link.wait(message);
      call_.link.attempt([&] { pack(shape_, own, rows, message.data(), call_.options.threads); });
      call_.link.send(to, kBlocks, message, shape_.bytes(rows));
    }
    call_.link.attempt([&] {
      const Needs rows = call_.geometry.to_collect(rank, rank);
      pack(shape_, own, rows, wave.in[static_cast<std::size_t>(rank)].data(), call_.options.threads);
    });
  }

  void compute(std::int64_t at, Wave& wave) const {
    const auto all = shape_.views<void*>({collected_, {}}, wave.memory.get());
    for (int rank = 0; rank < call_.link.size(); ++rank) {
      const Needs rows = call_.geometry.to_collect(call_.link.rank(), rank);
      const Block block = shape_.block(rows, wave.in[static_cast<std::size_t>(rank)].data());
      for (std::size_t x = 0; x < rows.size(); ++x) {
        const std::int64_t begin = rows[x].begin - collected_.begin, end = rows[x].end - collected_.begin;
        if (rows[x].size() == 0) continue;
        copy(block.k[x], slice(all[0], 2, begin, end, collected_.size()), call_.options.threads);
        copy(block.v[x], slice(all[1], 2, begin, end, collected_.size()), call_.options.threads);
      }
    }
    for (const Queries& queries : stretches(call_.queries())) {
      if (queries.rows.size() > 0) attend(at, queries, all[0], all[1]);
    }
  }

  void attend(std::int64_t at, const Queries& queries, const TensorView& k, const TensorView& v) const {
    const std::int64_t n_k = call_.geometry.sharding().n_k;
    Options o = slice_options(call_.options, call_.geometry.sharding(), queries, collected_);
    o.sinks = call_.options.sinks;
    RowResults to = heads_.of_queries(rows_.slice(queries.first, queries.first + queries.rows.size()), at);
    const MutableTensorView weights = heads_.of_queries(queries.of_rows(call_.outputs.weights), at);
    cpu::zero(of_keys(weights, {0, collected_.begin}, n_k));
    cpu::zero(of_keys(weights, {collected_.end, n_k}, n_k));
    to.outputs.weights = of_keys(weights, collected_, n_k);
    keel::attention(heads_.of_queries(queries.of_rows(call_.tensors.q), at), k, v, to.out, heads_.of_queries(o, at),
                    to.outputs);
  }

  const ForwardCall& call_;
  RowMemory own_;
  RowResults rows_;
  BlockShape shape_;
  Portions heads_;
  Rows collected_;
  std::array<Wave, 2> waves_;
};

}  // namespace

std::unique_ptr<ForwardWay> make_ordered(const ForwardCall& call) { return std::make_unique<Ordered>(call); }

}  // namespace keel::ring
