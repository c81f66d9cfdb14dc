#include <cmath>
#include <vector>

#include "core/element.h"
#include "reference/reference.h"

namespace keel::reference {
namespace {

// One row of one part that saw a key.
struct PartRow {
  const Partial* part;
  double ln_w, w;  // w = exp(lse of the part − lse of all)
};

// The larger; NaN is sticky.
double max_of(double a, double b) { return std::isnan(b) || b > a ? b : a; }

// The statistics of a row over all parts that saw a key. These lines define them.
struct RowStatistics {
  double lse = -INFINITY, max_logit = -INFINITY, entropy = 0.0, max_weight = 0.0, mean = 0.0, var = 0.0;
  std::int64_t visible = 0, count = 0;

  RowStatistics(const std::vector<PartRow>& rows, double lse_of_all, std::int64_t b, std::int64_t h, std::int64_t i)
      : lse(lse_of_all) {
    const auto value = [&](const RowView& view) { return view.given() ? load_at(view, b, h, i) : 0.0; };
    double from = 0.0;  // means are taken relative to the first, so that equal ones have no variance, however large
    for (const auto& [part, ln_w, w] : rows) {
      max_logit = max_of(max_logit, value(part->max_logit));
      entropy += w * (value(part->entropy) - ln_w);
      max_weight = max_of(max_weight, w * value(part->max_weight));
      visible += static_cast<std::int64_t>(value(part->visible));
      const auto more = static_cast<std::int64_t>(value(part->logit_count));
      if (count == 0 && more > 0 && std::isfinite(value(part->logit_mean))) from = value(part->logit_mean);
      count += more;
    }
    const auto share = [&](const Partial& part) { return value(part.logit_count) / static_cast<double>(count); };
    const auto counts = [&](const Partial& part) {
      return value(part.logit_count) > 0.0 || std::isnan(value(part.logit_mean));
    };
    for (const auto& [part, ln_w, w] : rows) {
      if (counts(*part)) mean += share(*part) * (value(part->logit_mean) - from);
    }
    for (const auto& [part, ln_w, w] : rows) {
      const double off = value(part->logit_mean) - from - mean;
      if (counts(*part)) var += share(*part) * (value(part->logit_var) + off * off);
    }
    mean += from;
  }

  void write(const Outputs& out, std::int64_t b, std::int64_t h, std::int64_t i) const {
    const auto put = [&](const MutableRowView& view, double number) {
      if (view.given()) store_at(view, number, b, h, i);
    };
    put(out.lse, lse);
    put(out.max_logit, max_logit);
    put(out.entropy, entropy);
    put(out.max_weight, max_weight);
    put(out.logit_mean, mean);
    put(out.logit_var, var);
    put(out.visible, static_cast<double>(visible));
    put(out.logit_count, static_cast<double>(count));
  }
};

// One row; read completely before it is written, as a part may be overwritten.
void merge_row(const MergeProblem& problem, std::int64_t b, std::int64_t h, std::int64_t i, std::vector<PartRow>& rows,
               std::vector<double>& o) {
  double top = -INFINITY, l = 0.0;
  rows.clear();
  for (const Partial& part : problem.parts) {
    const double lse = load_at(part.lse, b, h, i);
    if (lse == -INFINITY) continue;  // saw no key
    rows.push_back({&part, lse, 0.0});
    top = std::fmax(top, lse);
  }
  for (PartRow& row : rows) l += row.w = std::exp(row.ln_w -= top);
  o.assign(o.size(), 0.0);
  for (PartRow& row : rows) {
    row.ln_w -= std::log(l);  // not from lse, which cannot represent log l next to −1e30
    row.w /= l;
    for (std::size_t c = 0; c < o.size(); ++c) {
      o[c] += row.w * load_at(row.part->out, b, h, i, static_cast<std::int64_t>(c));
    }
  }
  const RowStatistics statistics(rows, rows.empty() ? -INFINITY : top + std::log(l), b, h, i);
  for (std::size_t c = 0; c < o.size(); ++c) store_at(problem.out, o[c], b, h, i, static_cast<std::int64_t>(c));
  statistics.write(problem.outputs, b, h, i);
}

}  // namespace

void merge(const MergeProblem& problem) {
  if (problem.rows == 0) return;  // otherwise the loops below could take 2^80 iterations
  const auto& shape = problem.out.shape;
  std::vector<PartRow> rows;
  std::vector<double> o(static_cast<std::size_t>(shape[3]));
  for (std::int64_t b = 0; b < shape[0]; ++b) {
    for (std::int64_t h = 0; h < shape[1]; ++h) {
      for (std::int64_t i = 0; i < shape[2]; ++i) merge_row(problem, b, h, i, rows, o);
    }
  }
}

}  // namespace keel::reference
