#include "ring/heads.h"

#include <cmath>

#include "core/element.h"
#include "ring/local.h"

namespace keel::ring {
namespace {

struct Sums {
  double rows = 0, max_logit = -INFINITY, entropy = 0, min_entropy = INFINITY, normalised = 0, choosing = 0,
         saturated = 0;
};
static_assert(sizeof(Sums) == kHeadSums * sizeof(double));

// The larger or smaller; NaN is sticky.
void raise(double& most, double x) { most = std::isnan(x) || x > most ? x : most; }
void lower(double& least, double x) { least = std::isnan(x) || x < least ? x : least; }

}  // namespace

std::vector<double> head_sums(const Geometry& geometry, const Shard& queries, const RowResults& rows, bool sinks,
                              double threshold) {
  const Outputs& o = rows.outputs;
  std::vector<double> all;
  const std::int64_t heads = rows.out.shape[1];
  const std::int64_t entries = geometry.slice({}, {}).entries();
  for (std::int64_t e = 0; e < entries; ++e) {
    for (std::int64_t h = 0; h < heads; ++h) {
      Sums sums;
      for (const Queries& part : stretches(queries)) {
        const Entry entry = geometry.slice(part.rows, {}).entry(e);
        for (std::int64_t x = 0; x < entry.q_len; ++x) {
          const std::int64_t i = part.first + entry.q_begin + x;
          const double visible = load_at(o.visible, entry.batch, h, i);
          if (visible == 0.0) continue;
          const double entropy = load_at(o.entropy, entry.batch, h, i);
          const double max_weight = load_at(o.max_weight, entry.batch, h, i), outcomes = visible + (sinks ? 1.0 : 0.0);
          sums.rows += 1;
          raise(sums.max_logit, load_at(o.max_logit, entry.batch, h, i));
          lower(sums.min_entropy, entropy);
          sums.entropy += entropy;
          sums.saturated += std::isnan(max_weight) ? NAN : max_weight > threshold ? 1.0 : 0.0;
          if (outcomes < 2.0) continue;
          sums.normalised += entropy / std::log(outcomes);
          sums.choosing += 1;
        }
      }
      all.insert(all.end(), {sums.rows, sums.max_logit, sums.entropy, sums.min_entropy, sums.normalised, sums.choosing,
                             sums.saturated});
    }
  }
  return all;
}

void reduce_heads(const std::vector<std::vector<double>>& of_ranks, std::span<HeadStatistics> heads) {
  for (std::size_t head = 0; head < heads.size(); ++head) {
    Sums all;
    for (const std::vector<double>& rank : of_ranks) {
      const double* const x = rank.data() + head * kHeadSums;
      all.rows += x[0];
      raise(all.max_logit, x[1]);
      all.entropy += x[2];
      lower(all.min_entropy, x[3]);
      all.normalised += x[4];
      all.choosing += x[5];
      all.saturated += x[6];
    }
    const double rows = all.rows > 0 ? all.rows : 1, choosing = all.choosing > 0 ? all.choosing : 1;
    heads[head] = {.max_logit = all.max_logit,
                   .mean_entropy = all.entropy / rows,
                   .min_entropy = all.rows > 0 ? all.min_entropy : 0.0,
                   .normalised_entropy = all.normalised / choosing,
                   .saturated = all.saturated / rows,
                   .rows = static_cast<std::int64_t>(all.rows)};
  }
}

}  // namespace keel::ring
