#include "ring/forward.h"

#include "cpu/zero.h"
#include "ring/heads.h"
#include "ring/terms.h"

namespace keel::ring {
namespace {

class Ring final : public ForwardWay {
 public:
  explicit Ring(const ForwardCall& call)
      : call_(call), sums_(call, true), tour_(call.link, call.geometry, call.block_shape(), {}, call.options.threads) {}

  void run() override {
    const Options& o = call_.options;
    call_.link.attempt([&] { sums_.begin(); });
    tour_.run(own_block(call_.keys(), call_.tensors.k, call_.tensors.v),
              [&](int, const Block& block, void*) { sums_.add(block); });
    call_.link.attempt([&] {
      sums_.complete();
      if (o.sinks.given() || call_.tensors.out.dtype != sums_.total().out.dtype) {
        join({sums_.total().partial()}, sums_.total(), call_.tensors.out, o.sinks, o.threads);
      }
      sums_.weights().finish(sums_.total(), o.threads);
    });
  }
  const RowResults& rows() const override { return sums_.total(); }

 private:
  const ForwardCall& call_;
  RowSums sums_;
  Tour tour_;
};

std::unique_ptr<ForwardWay> make_way(const ForwardCall& call) {
  switch (call.geometry.sharding().mode) {
    case Mode::ordered:
      return make_ordered(call);
    case Mode::decode:
      return make_decode(call);
    case Mode::ring:
      break;
  }
  return std::make_unique<Ring>(call);
}

// What is computed together by all ranks, and in decode what their messages hold.
std::uint64_t requests_of(const Sharding& sharding, const Outputs& o) {
  std::uint64_t requests =
      (o.heads.empty() ? 0u : 1u) | (o.key_sums.given() ? 2u + (static_cast<std::uint64_t>(o.key_sum_rows) << 16) : 0u);
  const Kept kept = kept_for(o);
  for (std::size_t s = 0; sharding.mode == Mode::decode && s < kept.size(); ++s) requests |= kept[s] ? 4u << s : 0u;
  return requests;
}

}  // namespace

// By portions only where blocks are joined; weights are noted for all heads at once.
RowSums::RowSums(const ForwardCall& call, bool many_blocks)
    : call_(call),
      portions_(call.problem, !many_blocks || !is_on_one_thread(call.options) || call.options.dropout > 0 ||
                                  call.outputs.weights.given()),
      own_({call.problem.batch, call.problem.q_heads, call.queries().size(), call.problem.d_v},
           accumulation_dtype(call.problem.dtype), kept_for(call.outputs)),
      next_({portions_.entries(), portions_.q_heads(), call.queries().size(), call.problem.d_v},
            accumulation_dtype(call.problem.dtype), kept_for(call.outputs)),
      total_(many_blocks ? with_callers(own_.results(), call.tensors.out, call.outputs) : own_.results()),
      weights_(call.outputs.weights, call.geometry.sharding().n_k),
      queries_(stretches(call.queries())) {}

void RowSums::attend(const Portions& portions, std::int64_t at, const Queries& queries, const Rows& keys,
                     const TensorView& k, const TensorView& v, const RowResults& to) const {
  Outputs outputs = to.outputs;
  outputs.weights = portions.of_queries(weights_.view(queries, keys), at);
  keel::attention(
      portions.of_queries(queries.of_rows(call_.tensors.q), at), portions.of_keys(k, at), portions.of_keys(v, at),
      to.out, portions.of_queries(slice_options(call_.options, call_.geometry.sharding(), queries, keys), at), outputs);
}

void RowSums::add(const Block& block) {
  for (std::size_t part = 0; part < queries_.size(); ++part) {
    for (std::size_t stretch = 0; stretch < block.rows.size(); ++stretch) add(part, block, stretch);
  }
}

void RowSums::add(std::size_t part, const Block& block, std::size_t stretch) {
  const Queries& queries = queries_[part];
  const Rows keys = call_.geometry.visible(queries.rows, block.rows[stretch]);
  if (queries.rows.size() == 0 || keys.size() == 0) return;
  const RowResults all = total_.slice(queries.first, queries.first + queries.rows.size());
  const RowResults next = next_.results().slice(0, queries.rows.size());
  const TensorView k = of_block(block, block.k[stretch], stretch, keys);
  const TensorView v = of_block(block, block.v[stretch], stretch, keys);
  for (std::int64_t at = 0; at < portions_.count(); ++at) {
    const RowResults total = portions_.of_queries(all, at);
    const RowResults& to = begun_[part] ? next : total;
    attend(portions_, at, queries, keys, k, v, to);
    weights_.note(queries, keys, to.outputs.lse);
    if (!begun_[part]) continue;
    keel::merge(std::array{total.partial(), next.partial()}, total.out, total.outputs, call_.options.threads);
  }
  begun_[part] = true;
}

void RowSums::complete() {
  for (std::size_t part = 0; part < queries_.size(); ++part) {
    const Queries& queries = queries_[part];
    if (begun_[part] || queries.rows.size() == 0) continue;
    const Portions all(call_.problem, true);
    attend(all, 0, queries, {}, keel::slice(call_.tensors.k, 2, 0, 0, call_.tensors.k.shape[2]),
           keel::slice(call_.tensors.v, 2, 0, 0, call_.tensors.v.shape[2]),
           total_.slice(queries.first, queries.first + queries.rows.size()));
  }
}

void attention(Transport& transport, const Sharding& sharding, const Tensors& tensors, const Options& options,
               const Outputs& outputs) {
  Link link(transport);
  std::optional<Problem> problem;
  std::optional<ForwardCall> call;
  std::unique_ptr<ForwardWay> way;
  std::optional<KeySumsPass> key_sums;
  Terms terms(kTermCount);
  link.attempt([&] {
    problem.emplace(check(link, sharding, tensors, options, outputs));
    terms = terms_of(sharding, *problem, requests_of(sharding, outputs));
    call.emplace(ForwardCall{link, Geometry(sharding, link.size(), problem->batch, options), tensors, options, outputs,
                             *problem});
    way = make_way(*call);
    if (outputs.key_sums.given()) key_sums.emplace(*call);
  });
  link.agree(terms);

  way->run();
  if (key_sums) key_sums->run(way->rows());
  std::vector<double> sums;
  const bool together = sharding.mode != Mode::decode;  // else this rank has all rows
  const std::size_t entries = static_cast<std::size_t>(problem->entries() * problem->q_heads);
  if (!outputs.heads.empty()) {
    sums.resize(entries * kHeadSums);
    link.attempt([&] {
      sums =
          head_sums(call->geometry, call->queries(), way->rows(), options.sinks.given(), outputs.saturation_threshold);
    });
  }
  std::vector<std::vector<double>> of_ranks = link.share(together ? sums : std::vector<double>());
  if (!outputs.heads.empty()) {
    if (!together) of_ranks = {sums};
    reduce_heads(of_ranks, outputs.heads);
  }
}

}  // namespace keel::ring
