#include <algorithm>
#include <optional>
#include <vector>

#include "core/element.h"
#include "core/message.h"
#include "cpu/zero.h"
#include "keel/ring.h"
#include "ring/local.h"
#include "ring/portions.h"
#include "ring/terms.h"
#include "ring/tour.h"

namespace keel::ring {
namespace {

// Whether a gradient has one value for all queries, so that it is a sum over ranks. A rank with a single row cannot
// tell; the others can, or the stride of 0 says so.
enum class Together { no, yes, unknown };
template <std::size_t Rank>
Together over_queries(const BasicView<Rank, void*>& x, std::int64_t rows) {
  if (!x.given()) return Together::no;
  if (rows == 1) return Together::unknown;
  return x.shape[2] == 1 || (x.shape[2] > 1 && x.strides[2] == 0) ? Together::yes : Together::no;
}

// A gradient while it is being summed up: in the caller's array where that can hold the sums and they are complete on
// this rank, in memory of its own otherwise.
template <std::size_t Rank>
class Sum {
 public:
  Sum(const BasicView<Rank, void*>& wanted, DType sums, bool accumulate, Together over_ranks)
      : wanted_(wanted), view_(wanted), accumulate_(accumulate), over_ranks_(over_ranks == Together::yes) {
    if (!wanted.given() || (wanted.dtype == sums && over_ranks == Together::no)) return;
    const auto once = summed(wanted);
    std::int64_t count = 1;
    for (const std::int64_t n : once.shape) count *= n;
    memory_.resize(static_cast<std::size_t>(count * size_of(sums)));
    view_ = {memory_.data(), sums, wanted.shape, contiguous_strides(once.shape)};
    for (std::size_t i = 0; i < Rank; ++i) {
      if (wanted.strides[i] == 0 && wanted.shape[i] > 1) view_.strides[i] = 0;
    }
  }

  const BasicView<Rank, void*>& wanted() const { return wanted_; }
  const BasicView<Rank, void*>& view() const { return view_; }
  bool over_ranks() const { return over_ranks_ && wanted_.given(); }
  void set_over_ranks(bool yes) { over_ranks_ = yes; }

  void begin() const {
    if (!memory_.empty() || !accumulate_) cpu::zero(view_);
  }

  // Elements, for the sum over ranks.
  void append_to(std::vector<double>& values) const {
    for_elements(as_tensor(summed(view_)), [&](const auto& x, auto... at) { values.push_back(load_at(x, at...)); });
  }
  void take(const std::vector<std::vector<double>>& of_ranks, std::size_t& next) const {
    for_elements(as_tensor(summed(view_)), [&](const auto& x, auto... at) {
      double sum = 0.0;
      for (const auto& values : of_ranks) sum += values[next];
      store_at(x, sum, at...);
      ++next;
    });
  }

  // Rounded to the caller's array once.
  void finish(int threads) const {
    if (memory_.empty()) return;
    const auto from = as_tensor(summed(view_)), to = as_tensor(summed(wanted_));
    accumulate_ ? add(from, to, threads) : copy(from, to, threads);
  }

 private:
  template <class Work>
  static void for_elements(const MutableTensorView& x, Work work) {
    for (std::int64_t b = 0; b < x.shape[0]; ++b) {
      for (std::int64_t h = 0; h < x.shape[1]; ++h) {
        for (std::int64_t n = 0; n < x.shape[2]; ++n) {
          for (std::int64_t d = 0; d < x.shape[3]; ++d) work(x, b, h, n, d);
        }
      }
    }
  }

  BasicView<Rank, void*> wanted_, view_;
  bool accumulate_, over_ranks_;
  std::vector<std::byte> memory_;
};

class BackwardTour {
 public:
  BackwardTour(Link& link, const Sharding& sharding, const BackwardInputs& in, const Gradients& g,
               const Options& options, const Problem& p)
      : link_(link),
        geometry_(sharding, link.size(), p.batch, options),
        in_(in),
        options_(options),
        // Not by portions if dbias or dscale is requested: either may be summed over heads or entries, in an order that
        // must not depend on the number of threads.
        portions_(p, !is_on_one_thread(options) || options.dropout > 0 || g.dbias.given() || g.dscale.given()),
        everything_(p, true),
        sums_(accumulation_dtype(p.dtype)),
        queries_(stretches(geometry_.queries(link.rank()))),
        keys_(geometry_.keys(link.rank())),
        dq_(g.dq, sums_, g.accumulate, Together::no),
        dk_(g.dk, sums_, g.accumulate, Together::no),
        dv_(g.dv, sums_, g.accumulate, Together::no),
        dbias_(g.dbias, sums_, g.accumulate, over_queries(g.dbias, in.q.shape[2])),
        dscale_(g.dscale, sums_, g.accumulate, over_queries(g.dscale, in.q.shape[2])),
        dsinks_(g.dsinks, sums_, g.accumulate, sharding.own_sums ? Together::no : Together::yes),
        sent_{p.batch, p.kv_heads, p.d_k, p.d_v, p.dtype},
        returned_{p.batch, p.kv_heads, g.dk.given() ? p.d_k : 0, g.dv.given() ? p.d_v : 0, sums_},
        tour_(link, geometry_, sent_, returned_, options.threads) {}

  void run() {
    settle("dbias", dbias_, false);
    settle("dscale", dscale_, !options_.scale_tensor.given());
    link_.attempt([&] {
      dq_.begin(), dk_.begin(), dv_.begin(), dbias_.begin(), dscale_.begin(), dsinks_.begin();
      if (dsinks_.view().given()) add_sinks();
    });
    tour_.run(
        own_block(keys_, in_.k, in_.v), [&](int, const Block& block, void* returned) { compute(block, returned); },
        [&](const Needs& rows, const void* returned) { receive(rows, returned); });
    std::vector<double> sums;
    each_over_ranks([&](const auto& sum) { sum.append_to(sums); });
    const std::vector<std::vector<double>> of_ranks = link_.share(sums);
    std::size_t next = 0;
    each_over_ranks([&](const auto& sum) { sum.take(of_ranks, next); });
    for (const auto* const sum : {&dq_, &dk_, &dv_, &dbias_}) sum->finish(options_.threads);
    dscale_.finish(options_.threads);
    dsinks_.finish(options_.threads);
  }

 private:
  template <class Work>
  void each_over_ranks(Work work) const {
    if (dbias_.over_ranks()) work(dbias_);
    if (dscale_.over_ranks()) work(dscale_);
    if (dsinks_.over_ranks()) work(dsinks_);
  }

  // Whether a gradient is a sum over ranks, for all ranks alike, and then of one shape.
  template <std::size_t Rank>
  void settle(const char* name, Sum<Rank>& sum, bool of_one_number) {
    if (!sum.view().given() || geometry_.sharding().own_sums) return sum.set_over_ranks(false);
    const auto mine = static_cast<double>(over_queries(sum.wanted(), in_.q.shape[2]));
    const double by_stride = of_one_number || sum.wanted().strides[2] == 0 ? 1.0 : 0.0;
    std::vector<double> told = {mine, by_stride};
    for (const std::int64_t n : summed(sum.wanted()).shape) told.push_back(static_cast<double>(n));
    const auto of_ranks = link_.share(told);
    const auto any = [&](Together what) {
      return std::any_of(of_ranks.begin(), of_ranks.end(),
                         [&](const auto& rank) { return rank[0] == static_cast<double>(what); });
    };
    sum.set_over_ranks(any(Together::yes) || (!any(Together::no) && of_ranks[0][1] != 0.0));
    if (sum.over_ranks()) check_shapes<Rank>(name, of_ranks);
  }

  // All ranks raise the same.
  template <std::size_t Rank>
  static void check_shapes(const char* name, const std::vector<std::vector<double>>& of_ranks) {
    std::array<std::int64_t, Rank> first, shape;
    for (std::size_t rank = 0; rank < of_ranks.size(); ++rank) {
      std::transform(of_ranks[rank].begin() + 2, of_ranks[rank].end(), shape.begin(),
                     [](double n) { return static_cast<std::int64_t>(n); });
      if (rank == 0) first = shape;
      const auto empty = [](const auto& x) { return std::find(x.begin(), x.end(), 0) != x.end(); };
      if (shape == first || (empty(shape) && empty(first))) continue;
      throw Error(ErrorCode::invalid_argument, concat("[ring] rank ", rank, ": ", name, ": expected sums of shape ",
                                                      text_of(first), " as on rank 0, got ", text_of(shape)));
    }
  }

  BackwardInputs inputs(const Portions& portions, std::int64_t at, const Queries& queries, const TensorView& k,
                        const TensorView& v) const {
    const auto mine = [&](const auto& x) { return portions.of_queries(queries.of_rows(x), at); };
    return {.q = mine(in_.q),
            .k = portions.of_keys(k, at),
            .v = portions.of_keys(v, at),
            .out = mine(in_.out),
            .lse = mine(in_.lse),
            .dout = mine(in_.dout),
            .dlse = mine(in_.dlse)};
  }

  // A sum over rows that belongs to no key: from a call without keys.
  void add_sinks() const {
    for (const Queries& queries : queries_) {
      if (queries.rows.size() == 0) continue;
      Options o = slice_options(options_, geometry_.sharding(), queries, {});
      o.sinks = options_.sinks;
      keel::attention_backward(
          inputs(everything_, 0, queries, slice(in_.k, 2, 0, 0, in_.k.shape[2]), slice(in_.v, 2, 0, 0, in_.v.shape[2])),
          {.dsinks = dsinks_.view(), .accumulate = true}, o);
    }
  }

  void compute(const Block& block, void* returned) const {
    const auto to = returned_.views<void*>(block.rows, returned);
    std::array<std::array<Rows, 2>, 2> visible;  // of a stretch of keys, by a stretch of queries
    for (std::size_t x = 0; x < block.rows.size(); ++x) {
      for (std::size_t y = 0; y < queries_.size(); ++y) {
        visible[x][y] = geometry_.visible(queries_[y].rows, block.rows[x]);
      }
    }
    for (std::int64_t at = 0; at < portions_.count(); ++at) {
      for (std::size_t x = 0; x < block.rows.size(); ++x) {
        if (block.rows[x].size() == 0) continue;
        compute(at, block, x, visible[x],
                {.dk = returned_.d_k > 0 ? portions_.of_keys(to[2 * x], at) : MutableTensorView{},
                 .dv = returned_.d_v > 0 ? portions_.of_keys(to[2 * x + 1], at) : MutableTensorView{}});
      }
    }
  }

  // What a portion of the queries gives to one stretch of keys, and takes from it.
  void compute(std::int64_t at, const Block& block, std::size_t stretch, const std::array<Rows, 2>& visible,
               const Gradients& of_stretch) const {
    const Rows& all = block.rows[stretch];
    cpu::zero(of_stretch.dk);
    cpu::zero(of_stretch.dv);
    for (std::size_t y = 0; y < queries_.size(); ++y) {
      const Queries& queries = queries_[y];
      const Rows& keys = visible[y];
      if (queries.rows.size() == 0 || keys.size() == 0) continue;
      const auto part = [&](const MutableTensorView& y) {
        return slice(y, 2, keys.begin - all.begin, keys.end - all.begin, all.size());
      };
      const auto mine = [&](const auto& y) { return portions_.of_queries(queries.of_rows(y), at); };
      const Gradients gradients = {.dq = mine(dq_.view()),
                                   .dk = part(of_stretch.dk),
                                   .dv = part(of_stretch.dv),
                                   .dbias = of_keys(mine(dbias_.view()), keys, geometry_.sharding().n_k),
                                   .dscale = mine(dscale_.view()),
                                   .accumulate = true};
      const Options options = slice_options(options_, geometry_.sharding(), queries, keys);
      keel::attention_backward(inputs(portions_, at, queries, of_block(block, block.k[stretch], stretch, keys),
                                      of_block(block, block.v[stretch], stretch, keys)),
                               gradients, portions_.of_queries(options, at));
    }
  }

  void receive(const Needs& rows, const void* returned) const {
    const auto from = returned_.views<const void*>(rows, returned);
    std::int64_t first = 0;
    for (std::size_t x = 0; x < rows.size(); ++x) {
      const std::int64_t begin = first + rows[x].begin - keys_.parts[x].begin, end = begin + rows[x].size();
      first += keys_.parts[x].size();
      if (rows[x].size() == 0) continue;
      const auto part = [&](const MutableTensorView& y) { return slice(y, 2, begin, end, keys_.size()); };
      if (returned_.d_k > 0) add(from[2 * x], part(dk_.view()), options_.threads);
      if (returned_.d_v > 0) add(from[2 * x + 1], part(dv_.view()), options_.threads);
    }
  }

  Link& link_;
  Geometry geometry_;
  const BackwardInputs& in_;
  const Options& options_;
  Portions portions_, everything_;
  DType sums_;
  std::array<Queries, 2> queries_;
  Shard keys_;
  Sum<4> dq_, dk_, dv_, dbias_;
  Sum<3> dscale_;
  Sum<1> dsinks_;
  BlockShape sent_, returned_;
  Tour tour_;
};

// Whether gradients are sums over ranks must be the same on all ranks.
std::uint64_t requests_of(const Gradients& g) {
  return (g.dk.given() ? 1u : 0u) | (g.dv.given() ? 2u : 0u) | (g.dsinks.given() ? 4u : 0u) |
         (g.dbias.given() ? 8u : 0u) | (g.dscale.given() ? 16u : 0u);
}

}  // namespace

void attention_backward(Transport& transport, const Sharding& sharding, const BackwardInputs& inputs,
                        const Gradients& gradients, const Options& options) {
  Link link(transport);
  std::optional<BackwardTour> tour;
  Terms terms(kTermCount);
  link.attempt([&] {
    const BackwardProblem problem = check(link, sharding, inputs, gradients, options);
    terms = terms_of(sharding, problem.forward, requests_of(gradients));
    tour.emplace(link, sharding, inputs, gradients, options, problem.forward);
  });
  link.agree(terms);
  tour->run();
}

}  // namespace keel::ring
