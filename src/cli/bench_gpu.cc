// keel bench gpu: the operator's speed on a GPU, next to what the GPU can do.
#include "cli/bench_gpu.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>

#include "bench/gpu.h"
#include "bench/ring.h"
#include "cli/common/progress.h"
#include "cuda/library.h"
#include "keel/error.h"

namespace keel::cli {
namespace {

using bench::GpuRow;
using bench::GpuTimes;
using bench::median;
using Json = nlohmann::ordered_json;

constexpr const char* kBenchGpuExamples =
    "Examples:\n"
    "  keel bench gpu\n"
    "  keel bench gpu --group decode,statistics --repeats 31\n"
    "  keel bench gpu --backward --dtype f16 --json\n"
    "\n"
    "FLOPs are those of visible scores, 4·d each, and 2.5 times as many backward. Shares are relative\n"
    "to matrix products alone and to a copy in memory, both measured in every repeat; a row under\n"
    "statistics or options is relative to the plain call, measured before and after it. To compare\n"
    "with PyTorch's kernels: python -m keel.bench --device cuda.\n";

constexpr int kVisits = 9, kQuickVisits = 3;
const std::vector<std::string> kGroups{"forward", "backward", "statistics", "options", "decode"};

class BenchGpu {
 public:
  void add_to(CLI::App& command) {
    command.add_option("--group", groups_, "Measure only these: forward, backward, statistics, options, decode")
        ->type_name("NAME")
        ->delimiter(',')
        ->check(CLI::IsMember(kGroups));
    command.add_flag("--backward", backward_, "Measure the backward pass too");
    command.add_option("--dtype", dtype_, "bf16 or f16")->type_name("TYPE")->check(CLI::IsMember({"bf16", "f16"}));
    command.add_option("--device", device_, "Number of the GPU")->type_name("N")->check(CLI::Range(0, 63));
    command.add_option("--repeats", repeats_, fmt::format("Visits to each row; {} by default", kVisits))
        ->type_name("N")
        ->check(CLI::Range(1, 100000));
    command.add_flag("--quick", quick_, "Fewer rows and repeats, for a first look");
    command.add_flag("--json", json_, "Print JSON, with every repeat");
    command.add_flag("-q,--quiet", quiet_, "Show no progress");
    command.footer(kBenchGpuExamples);
  }

  void run() {
    if (const std::string& reason = cuda::gpu(device_).reason; !reason.empty()) {
      throw Error(ErrorCode::unsupported, fmt::format("expected a GPU numbered {}, got none: {}", device_, reason));
    }
    if (cuda::library().tools == nullptr) {
      throw Error(ErrorCode::unsupported, "expected a libkeel_cuda that can measure, got one without these functions");
    }
    measure(chosen_rows());
    fmt::print("{}", json_ ? json().dump(2) + "\n" : table());
  }

 private:
  std::vector<GpuRow> chosen_rows() const {
    const bool all = groups_.empty();
    const auto named = [&](const std::string& name) {
      return std::find(groups_.begin(), groups_.end(), name) != groups_.end();
    };
    const bool backward = backward_ || named("backward");
    std::vector<GpuRow> rows = bench::gpu_rows(dtype_ == "f16" ? DType::f16 : DType::bf16, backward, quick_);
    if (!all)
      std::erase_if(rows,
                    [&](const GpuRow& row) { return !named(row.group) && !(backward_ && row.group == "backward"); });
    return rows;
  }

  void measure(const std::vector<GpuRow>& rows) {
    Progress progress(!quiet_);
    for (const GpuRow& row : rows) {
      progress.show(text_of(row.subject), static_cast<double>(results_.size()) / static_cast<double>(rows.size()));
      results_.push_back(bench::measure_gpu(device_, row, repeats_ > 0 ? repeats_ : quick_ ? kQuickVisits : kVisits));
    }
    progress.clear();
  }

  // Medians of a row.
  struct Line {
    double seconds, tflops, terabytes, peak_share, copy_share, relative;
  };
  static Line line_of(const GpuTimes& t) {
    const double seconds = median(t.seconds), peak = median(t.peak);
    Line line{seconds, t.flops / seconds * 1e-12, t.bytes / seconds * 1e-12, 0, t.bytes / seconds / median(t.copy), 0};
    if (peak > 0) line.peak_share = t.flops / seconds / peak;
    if (t.baseline.empty()) return line;
    std::vector<double> ratios;
    for (std::size_t i = 0; i < t.seconds.size(); ++i) ratios.push_back(t.baseline[i] / t.seconds[i]);
    line.relative = median(ratios);
    // A window leaves scores out: what counts is the rate at which the others are computed.
    if (t.row.subject.window > 0) line.relative *= t.flops / plain_flops(t);
    return line;
  }
  static double plain_flops(const GpuTimes& t) {
    const bench::GpuCase& c = *t.row.baseline;
    const double scores = static_cast<double>(c.batch * c.q_heads * c.n_q) * static_cast<double>(c.n_k + 1) / 2;
    return 4.0 * scores * static_cast<double>(c.d);
  }

  std::string table() const {
    std::string text = fmt::format("{}, medians of {}\n", cuda::gpu(device_).gpu.name,
                                   results_.empty() ? 0 : results_.front().seconds.size());
    std::string group;
    for (const GpuTimes& t : results_) {
      if (t.row.group != group) {
        group = t.row.group;
        text += fmt::format("\n{:<58}{:>10}{:>10}{:>9}{:>8}{:>8}{:>9}\n", group, "ms", "TFLOP/s", "of peak", "TB/s",
                            "of copy", "of plain");
      }
      if (!t.skipped.empty()) {
        text += fmt::format("{:<58}  {}\n", text_of(t.row.subject), t.skipped);
        continue;
      }
      const Line l = line_of(t);
      text += fmt::format("{:<58}{:>10.3f}{:>10.0f}{:>9}{:>8.2f}{:>8.2f}{:>9}\n", text_of(t.row.subject),
                          1e3 * l.seconds, l.tflops, l.peak_share > 0 ? fmt::format("{:.2f}", l.peak_share) : "",
                          l.terabytes, l.copy_share, l.relative > 0 ? fmt::format("{:.2f}", l.relative) : "");
    }
    return text;
  }

  Json json() const {
    Json rows = Json::array();
    for (const GpuTimes& t : results_) {
      Json row = {{"group", t.row.group}, {"case", text_of(t.row.subject)}, {"kernel", t.kernel}};
      if (!t.skipped.empty()) {
        row["skipped"] = t.skipped;
      } else {
        const Line l = line_of(t);
        row.update({{"flops", t.flops},
                    {"key_value_bytes", t.bytes},
                    {"seconds", t.seconds},
                    {"baseline_seconds", t.baseline},
                    {"peak_flops_per_second", t.peak},
                    {"copied_bytes_per_second", t.copy},
                    {"tflops", l.tflops},
                    {"peak_share", l.peak_share},
                    {"copy_share", l.copy_share},
                    {"of_plain", l.relative}});
      }
      rows.push_back(std::move(row));
    }
    return {{"gpu", cuda::gpu(device_).gpu.name}, {"rows", std::move(rows)}};
  }

  std::vector<std::string> groups_;
  std::string dtype_ = "bf16";
  int device_ = 0, repeats_ = 0;
  bool backward_ = false, quick_ = false, json_ = false, quiet_ = false;
  std::vector<GpuTimes> results_;
};

}  // namespace

void add_bench_gpu(CLI::App& bench) {
  CLI::App* command = bench.add_subcommand("gpu", "Speed on a GPU, next to what it can do");
  const auto gpu = std::make_shared<BenchGpu>();
  gpu->add_to(*command);
  command->callback([gpu] { gpu->run(); });
}

}  // namespace keel::cli
