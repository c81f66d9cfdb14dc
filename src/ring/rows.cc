#include "ring/rows.h"

#include <cmath>
#include <vector>

#include "core/element.h"
#include "core/slice.h"
#include "ring/memory.h"

namespace keel::ring {
namespace {

constexpr std::int64_t padded(std::int64_t bytes) { return (bytes + 63) / 64 * 64; }

// The part of a sink: no output, and its logit as lse where some key is seen.
class SinkPart {
 public:
  SinkPart(const std::array<std::int64_t, 4>& shape, DType sums, const HeadView& sinks)
      : lse_({shape[0], shape[1], shape[2], 1}, sums, {true}), zero_(static_cast<std::size_t>(shape[3])) {
    const std::array<std::int64_t, 3> rows = {shape[0], shape[1], shape[2]};
    part_.out = {zero_.data(), sums, shape, {0, 0, 0, 1}};
    part_.lse = lse_.results().outputs.lse;
    part_.max_logit = {sums == DType::f64 ? static_cast<const void*>(&nothing64_) : &nothing32_, sums, rows, {}};
    part_.entropy = part_.max_weight = part_.logit_mean = part_.logit_var = {zero_.data(), sums, rows, {}};
    part_.visible = part_.logit_count = {zero_.data(), DType::i64, rows, {}};
    sinks_ = sinks;
  }

  // `seen_by(b, h, i)`: whether the row sees a key.
  template <class Seen>
  const Partial& make(Seen seen_by) {
    const MutableRowView& lse = lse_.results().outputs.lse;
    for (std::int64_t b = 0; b < lse.shape[0]; ++b) {
      for (std::int64_t h = 0; h < lse.shape[1]; ++h) {
        for (std::int64_t i = 0; i < lse.shape[2]; ++i) {
          store_at(lse, seen_by(b, h, i) ? load_at(sinks_, h) : -INFINITY, b, h, i);
        }
      }
    }
    return part_;
  }

 private:
  RowMemory lse_;
  std::vector<double> zero_;  // 0 in any dtype
  double nothing64_ = -INFINITY;
  float nothing32_ = -INFINITY;
  HeadView sinks_;
  Partial part_;
};

}  // namespace

Partial RowResults::partial() const {
  Partial part{.out = out};
  for (const RowStatistic& s : kRowStatistics) part.*s.part = outputs.*s.result;
  return part;
}

RowResults RowResults::slice(std::int64_t begin, std::int64_t end) const {
  RowResults part{keel::slice(out, 2, begin, end, out.shape[2]), {}};
  for (const RowStatistic& s : kRowStatistics) {
    part.outputs.*s.result = keel::slice(outputs.*s.result, 2, begin, end, out.shape[2]);
  }
  return part;
}

Kept kept_for(const Outputs& wanted) {
  Kept kept{};
  for (std::size_t s = 0; s < kept.size(); ++s) kept[s] = (wanted.*kRowStatistics[s].result).given();
  const auto keep = [&](MutableRowView Outputs::*result) {
    for (std::size_t s = 0; s < kept.size(); ++s) kept[s] = kept[s] || kRowStatistics[s].result == result;
  };
  keep(&Outputs::lse);
  if (wanted.logit_var.given()) keep(&Outputs::logit_mean);
  if (wanted.logit_mean.given() || wanted.logit_var.given()) keep(&Outputs::logit_count);
  if (!wanted.heads.empty()) {
    keep(&Outputs::max_logit), keep(&Outputs::entropy), keep(&Outputs::max_weight), keep(&Outputs::visible);
  }
  return kept;
}

RowMemory::RowMemory(const std::array<std::int64_t, 4>& out, DType sums, const Kept& kept)
    : shape_(out), sums_(sums), kept_(kept) {
  const std::int64_t rows = out[0] * out[1] * out[2];
  bytes_ = padded(rows * out[3] * size_of(sums));
  for (std::size_t s = 0; s < kept.size(); ++s) bytes_ += kept[s] ? padded(rows * 8) : 0;
  memory_ = take_memory(bytes_);
  results_ = at(memory_.get());
}

RowResults RowMemory::at(std::byte* memory) const {
  const std::array<std::int64_t, 3> rows = {shape_[0], shape_[1], shape_[2]};
  RowResults all{{memory, sums_, shape_, contiguous_strides(shape_)}, {}};
  std::byte* next = memory + padded(rows[0] * rows[1] * rows[2] * shape_[3] * size_of(sums_));
  for (std::size_t s = 0; s < kept_.size(); ++s) {
    if (!kept_[s]) continue;
    all.outputs.*kRowStatistics[s].result = {next, is_count(s) ? DType::i64 : sums_, rows, contiguous_strides(rows)};
    next += padded(rows[0] * rows[1] * rows[2] * 8);
  }
  return all;
}

RowResults with_callers(const RowResults& rows, const MutableTensorView& out, const Outputs& wanted) {
  RowResults all = rows;
  if (out.dtype == rows.out.dtype) all.out = out;
  for (const RowStatistic& s : kRowStatistics) {
    if ((wanted.*s.result).given()) all.outputs.*s.result = wanted.*s.result;
  }
  return all;
}

void join(std::vector<Partial> parts, const RowResults& result, const MutableTensorView& out, const HeadView& sinks,
          int threads) {
  if (!sinks.given()) return keel::merge(parts, out, result.outputs, threads);
  SinkPart sink(out.shape, parts.front().lse.dtype, sinks);
  const std::size_t keys = parts.size();
  parts.push_back(sink.make([&](std::int64_t b, std::int64_t h, std::int64_t i) {
    for (std::size_t p = 0; p < keys; ++p) {
      if (load_at(parts[p].lse, b, h, i) != -INFINITY) return true;
    }
    return false;
  }));
  keel::merge(parts, out, result.outputs, threads);
}

}  // namespace keel::ring
