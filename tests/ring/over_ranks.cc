#include "ring/over_ranks.h"

#include <algorithm>
#include <cstring>
#include <deque>
#include <mutex>
#include <vector>

#include "conformance/dense.h"
#include "core/message.h"
#include "core/row_statistics.h"
#include "core/slice.h"

namespace keel::conformance {
namespace {

// The arrays of one rank.
class Local {
 public:
  explicit Local(const ring::Shard& shard, std::int64_t n) : shard_(shard), n_(n) {}

  // This rank's rows along dimension 2 of something with n; what is broadcast there stays as it is.
  template <std::size_t Rank, class Pointer>
  BasicView<Rank, Pointer> rows(const BasicView<Rank, Pointer>& x) {
    if (!x.given() || (x.shape[2] == 1 && n_ != 1)) return x;
    if (shard_.parts[1].size() == 0) return part(x, 0);
    auto mine = x;
    mine.shape[2] = shard_.size();
    mine.strides = contiguous_strides(mine.shape);
    for (std::size_t i = 0; i < Rank; ++i) {
      if (x.strides[i] == 0) mine.strides[i] = 0;  // as it is, so that gradients are summed over it
    }
    std::int64_t count = 1;
    for (const std::int64_t size : mine.shape) count *= size;
    memory_.emplace_back(static_cast<std::size_t>(count * size_of(x.dtype) + 8));
    const BasicView<Rank, void*> own = {memory_.back().data(), x.dtype, mine.shape, mine.strides};
    for (int which : {0, 1}) copy(part(x, which), local_part(own, which));
    mine.data = own.data;
    if constexpr (std::is_same_v<Pointer, void*>) {
      later_.push_back([this, own, x] {
        for (int which : {0, 1}) copy(local_part(own, which), part(x, which));
      });
    }
    return mine;
  }

  // Puts results where the caller wants them. Sums over queries are the same on all ranks: one does.
  void finish() {
    for (const auto& each : later_) each();
  }

 private:
  template <std::size_t Rank, class Pointer>
  BasicView<Rank, Pointer> part(const BasicView<Rank, Pointer>& x, int which) const {
    const ring::Rows& rows = shard_.parts[static_cast<std::size_t>(which)];
    return slice(x, 2, rows.begin, rows.end, n_);
  }
  template <std::size_t Rank>
  BasicView<Rank, void*> local_part(const BasicView<Rank, void*>& x, int which) const {
    const std::int64_t cut = shard_.parts[0].size();
    return which == 0 ? slice(x, 2, 0, cut, shard_.size()) : slice(x, 2, cut, shard_.size(), shard_.size());
  }

  ring::Shard shard_;
  std::int64_t n_;
  std::deque<std::vector<std::byte>> memory_;
  std::vector<std::function<void()>> later_;
};

// A gradient that every rank gets whole, in memory of each rank's own; rank 0's counts.
template <std::size_t Rank>
BasicView<Rank, void*> alone(const BasicView<Rank, void*>& x, int rank, std::deque<std::vector<std::byte>>& memory) {
  if (!x.given() || rank == 0) return x;
  std::int64_t count = 1;
  for (std::size_t i = 0; i < Rank; ++i) count *= x.shape[i];
  memory.emplace_back(static_cast<std::size_t>(count * size_of(x.dtype) + 8));
  auto mine = x;
  mine.data = memory.back().data();
  mine.strides = contiguous_strides(x.shape);
  for (std::size_t i = 0; i < Rank; ++i) {
    if (x.strides[i] == 0 && x.shape[i] > 1) mine.strides[i] = 0;
  }
  return mine;
}

template <std::size_t Rank>
bool over_queries(const BasicView<Rank, void*>& x, std::int64_t n_q) {
  return x.given() && ((x.shape[2] == 1 && n_q != 1) || (x.shape[2] > 1 && x.strides[2] == 0));
}

// The same bits on all ranks, which for numbers means: the same as rank 0 has.
bool same(const HeadStatistics& a, const HeadStatistics& b) { return std::memcmp(&a, &b, sizeof(a)) == 0; }

}  // namespace

std::string describe(const Ranks& r) {
  return concat(r.size, r.layout == ring::Layout::zigzag ? " zigzag" : " contiguous", " ranks, mode ",
                r.mode == ring::Mode::ring      ? "ring"
                : r.mode == ring::Mode::ordered ? "ordered"
                                                : "decode");
}

Forward over_ranks(const Ranks& ranks) {
  return [ranks](const TensorView& q, const TensorView& k, const TensorView& v, const MutableTensorView& out,
                 const Options& options, const Outputs& outputs) {
    const std::int64_t n_q = q.shape[2], n_k = k.shape[2];
    std::vector<std::vector<HeadStatistics>> heads(static_cast<std::size_t>(ranks.size),
                                                   std::vector<HeadStatistics>(outputs.heads.size()));
    std::mutex writing;
    std::vector<std::size_t> here;  // ranks of this process
    ranks.run(ranks.size, [&](ring::Transport& transport) {
      const int rank = transport.rank();
      const bool all_queries = ranks.mode == ring::Mode::decode;
      Local queries(
          all_queries ? ring::Shard{{{{0, n_q}, {n_q, n_q}}}} : ring::shard(n_q, ranks.size, rank, ranks.layout), n_q);
      Local keys(ring::shard(n_k, ranks.size, rank, ranks.layout), n_k);
      std::deque<std::vector<std::byte>> memory;
      const auto result = [&](const auto& x) { return all_queries ? alone(x, rank, memory) : queries.rows(x); };
      Options o = options;
      o.threads = ranks.threads;
      o.scale_tensor = queries.rows(o.scale_tensor);
      o.mask = queries.rows(o.mask);
      o.bias = queries.rows(o.bias);
      Outputs mine = outputs;
      for (const RowStatistic& s : kRowStatistics) mine.*s.result = result(outputs.*s.result);
      mine.weights = result(outputs.weights);
      mine.key_sums = keys.rows(outputs.key_sums);
      mine.heads = heads[static_cast<std::size_t>(rank)];
      ring::attention(transport, ranks.sharding(n_q, n_k), {queries.rows(q), keys.rows(k), keys.rows(v), result(out)},
                      o, mine);
      const std::lock_guard lock(writing);
      queries.finish();
      keys.finish();
      here.push_back(static_cast<std::size_t>(rank));
    });
    const std::vector<HeadStatistics>& first = heads[here.front()];
    for (const std::size_t rank : here) {
      if (!std::equal(first.begin(), first.end(), heads[rank].begin(), same)) {
        throw Error(ErrorCode::peer,
                    concat("the statistics of heads differ between ranks ", here.front(), " and ", rank));
      }
    }
    std::copy(first.begin(), first.end(), outputs.heads.begin());
  };
}

Backward backward_over_ranks(const Ranks& ranks) {
  return [ranks](const BackwardInputs& in, const Gradients& gradients, const Options& options) {
    const std::int64_t n_q = in.q.shape[2], n_k = in.k.shape[2];
    std::mutex writing;
    ranks.run(ranks.size, [&](ring::Transport& transport) {
      const int rank = transport.rank();
      const auto mine_of = [&](std::int64_t n) { return ring::shard(n, ranks.size, rank, ranks.layout); };
      Local queries(mine_of(n_q), n_q), keys(mine_of(n_k), n_k);
      std::deque<std::vector<std::byte>> memory;
      const auto sum_or_rows = [&](const auto& x) {
        if (!over_queries(x, n_q)) return queries.rows(x);
        auto sum = alone(x, rank, memory);
        sum.strides[2] = 0;
        if (sum.shape[2] > 1) sum.shape[2] = std::max<std::int64_t>(mine_of(n_q).size(), 1);
        return sum;
      };
      Options o = options;
      o.threads = ranks.threads;
      o.scale_tensor = queries.rows(o.scale_tensor);
      o.mask = queries.rows(o.mask);
      o.bias = queries.rows(o.bias);
      Gradients g = gradients;
      g.dq = queries.rows(gradients.dq);
      g.dk = keys.rows(gradients.dk);
      g.dv = keys.rows(gradients.dv);
      g.dbias = sum_or_rows(gradients.dbias);
      g.dscale = sum_or_rows(gradients.dscale);
      g.dsinks = alone(gradients.dsinks, rank, memory);
      const BackwardInputs mine = {.q = queries.rows(in.q),
                                   .k = keys.rows(in.k),
                                   .v = keys.rows(in.v),
                                   .out = queries.rows(in.out),
                                   .lse = queries.rows(in.lse),
                                   .dout = queries.rows(in.dout),
                                   .dlse = queries.rows(in.dlse)};
      ring::attention_backward(transport, ranks.sharding(n_q, n_k), mine, g, o);
      const std::lock_guard lock(writing);
      queries.finish();
      keys.finish();
    });
  };
}

}  // namespace keel::conformance
