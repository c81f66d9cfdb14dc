#include <deque>
#include <span>
#include <string>

#include "core/checker.h"
#include "core/problem.h"

namespace keel {
namespace {

// The values that parts and results have per row.
struct RowStatistic {
  const char* name;
  RowView Partial::*part;
  MutableRowView Outputs::*result;
};
constexpr RowStatistic kStatistics[] = {{"lse", &Partial::lse, &Outputs::lse},
                                        {"max_logit", &Partial::max_logit, &Outputs::max_logit},
                                        {"entropy", &Partial::entropy, &Outputs::entropy},
                                        {"max_weight", &Partial::max_weight, &Outputs::max_weight},
                                        {"logit_mean", &Partial::logit_mean, &Outputs::logit_mean},
                                        {"logit_var", &Partial::logit_var, &Outputs::logit_var},
                                        {"visible", &Partial::visible, &Outputs::visible},
                                        {"logit_count", &Partial::logit_count, &Outputs::logit_count}};

// The result for which a part must have this statistic, or null.
const char* needed_for(const RowStatistic& statistic, const Outputs& outputs) {
  if ((outputs.*statistic.result).given()) return statistic.name;
  if (statistic.result == &Outputs::logit_mean && outputs.logit_var.given()) return "logit_var";
  if (statistic.result != &Outputs::logit_count) return nullptr;
  return outputs.logit_mean.given() ? "logit_mean" : outputs.logit_var.given() ? "logit_var" : nullptr;
}

DType dtype_of_rows(const RowStatistic& statistic, DType accumulation) {
  const bool counts = statistic.result == &Outputs::visible || statistic.result == &Outputs::logit_count;
  return counts ? DType::i64 : accumulation;
}

// An f32 result may have parts of any type that accumulates in f32, a 16-bit one parts of its own type or f32.
void check_part_dtype(const Checker& check, const char* name, const TensorView& part, DType out) {
  if (out == DType::f32) return check.dtype(name, part, {DType::f32, DType::f16, DType::bf16});
  check.dtype(name, part, {out, accumulation_dtype(out)});
}

void check_outputs(Checker& check, const Outputs& outputs, DType accumulation,
                   const std::array<std::int64_t, 3>& rows) {
  for (const RowStatistic& statistic : kStatistics) {
    const MutableRowView& view = outputs.*statistic.result;
    if (!view.given()) continue;
    check.dtype(statistic.name, view, {dtype_of_rows(statistic, accumulation)});
    check.output(statistic.name, view);
    check.shape(statistic.name, view, rows, "(B, H, N_q)");
  }
  if (outputs.weights.given()) {
    check.refuse("weights: expected none, as weights cannot be merged, got shape ", text_of(outputs.weights.shape));
  }
  if (outputs.scores.given()) {
    check.refuse("scores: expected none, as they cannot be merged, got shape ", text_of(outputs.scores.shape));
  }
  if (outputs.key_sums.given()) {
    check.refuse("key_sums: expected none, as they cannot be merged, got shape ", text_of(outputs.key_sums.shape));
  }
  if (!outputs.heads.empty()) {
    check.refuse("heads: expected none, as they cannot be merged, got ", outputs.heads.size());
  }
}

}  // namespace

MergeProblem make_merge_problem(std::span<const Partial> parts, const MutableTensorView& out, const Outputs& outputs,
                                int threads, void* stream) {
  Checker check("merge", Pointers::checked, out.device);
  if (parts.empty()) check.refuse("parts: expected at least one, got none");
  check.floating("out", out);
  check.output("out", out);
  const std::array<std::int64_t, 3> rows = {out.shape[0], out.shape[1], out.shape[2]};
  const DType accumulation = accumulation_dtype(out.dtype);
  check_outputs(check, outputs, accumulation, rows);
  std::deque<std::string> names;  // alive as long as the checker needs them
  for (std::size_t i = 0; i < parts.size(); ++i) {
    const auto name_of_part = [&](const char* field) {
      return names.emplace_back("parts[" + std::to_string(i) + "]." + field).c_str();
    };
    const Partial& part = parts[i];
    const char* const name = name_of_part("out");
    check_part_dtype(check, name, part.out, out.dtype);
    check.input(name, part.out, "out");
    check.shape(name, part.out, out.shape, "of out");
    for (const RowStatistic& statistic : kStatistics) {
      const RowView& view = part.*statistic.part;
      const bool always = statistic.part == &Partial::lse;
      if (!view.given() && !always) {
        if (const char* const result = needed_for(statistic, outputs)) {
          check.refuse("parts[", i, "].", statistic.name, ": expected a view, as ", result, " is requested, got none");
        }
        continue;
      }
      const char* const row_name = name_of_part(statistic.name);
      check.dtype(row_name, view, {dtype_of_rows(statistic, accumulation)});
      check.input(row_name, view, statistic.name);
      check.shape(row_name, view, rows, "(B, H, N_q)");
    }
  }
  if (threads < 0) check.refuse("threads: expected at least 0, got ", threads);
  check.check_memory();

  MergeProblem problem{
      {parts.begin(), parts.end()}, out, outputs, threads, stream, extent_of(layout_of(parts.front().lse)).count};
  tidy(problem.out);
  for (const RowStatistic& statistic : kStatistics) tidy(problem.outputs.*statistic.result);
  for (Partial& part : problem.parts) {
    tidy(part.out);
    for (const RowStatistic& statistic : kStatistics) tidy(part.*statistic.part);
  }
  return problem;
}

}  // namespace keel
