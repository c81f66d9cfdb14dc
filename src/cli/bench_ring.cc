// keel bench ring: attention over many ranks against one process with as many threads.
#include "cli/bench_ring.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <nlohmann/json.hpp>

#include "cli/common/arguments.h"
#include "cli/common/progress.h"

namespace keel::cli {
namespace {

using bench::RingCase;
using bench::RingTimes;
using bench::Wire;
using Json = nlohmann::ordered_json;

constexpr const char* kBenchRingExamples =
    "Examples:\n"
    "  keel bench ring --ranks 2\n"
    "  mpirun -n 16 --bind-to none keel bench ring --ranks 2,4,8,16 --backward --contiguous\n"
    "  keel bench ring --ranks 2 --link 10,1000\n"
    "  keel bench ring --predict 64 --link 100,5 --cores 64\n"
    "\n"
    "Efficiency is the time of one process with as many threads, divided by that of the ranks; both\n"
    "have the same processors. Balance is the mean of the ranks' working times divided by the longest:\n"
    "ranks have equal shares, so where processors differ in speed, efficiency cannot be much higher.\n"
    "--link delays messages; what the model predicts for such a link is printed beside the times.\n";

// An efficiency above this means that the one process did not have the processors that the ranks had.
constexpr double kTooGood = 1.15;

class BenchRing {
 public:
  BenchRing(const bench::World& world) : world_(world) {}

  void add_to(CLI::App& command) {
    command.add_option("--ranks", ranks_, "Numbers of ranks; by default the largest")
        ->type_name("LIST")
        ->check(kNotEmpty);
    command.add_option("--rows", what_.rows, "Rows per rank")->type_name("N")->check(CLI::Range(1, 1 << 24));
    command.add_option("--heads", what_.heads, "Query heads")->type_name("N")->check(CLI::Range(1, 1024));
    command.add_option("--kv-heads", kv_heads_, "Key-value heads; as many as query heads by default")
        ->type_name("N")
        ->check(CLI::Range(1, 1024));
    command.add_option("--head-size", what_.d, "Head size")->type_name("N")->check(CLI::Range(1, 4096));
    command.add_option("--dtype", dtype_, "f32 or bf16")->type_name("TYPE")->check(CLI::IsMember({"f32", "bf16"}));
    command.add_option("--window", what_.window, "A window of this many keys, in the contiguous layout")
        ->type_name("N");
    command.add_flag("--full", full_, "Without a causal mask");
    command.add_flag("--backward", backward_, "Measure the backward pass too");
    command.add_flag("--contiguous", contiguous_, "Measure the contiguous layout too");
    command.add_option("--repeats", repeats_, "Visits to each row")->type_name("N")->check(CLI::Range(1, 100000));
    command.add_option("--link", link_, "Delay messages as a link of this many Gb/s and microseconds of latency would")
        ->type_name("GBIT,US")
        ->check(kNotEmpty);
    command.add_option("--predict", predict_, "Predict the time on this many machines from the speed of this one")
        ->type_name("N")
        ->check(CLI::Range(1, 1 << 20));
    command.add_option("--cores", cores_, "Cores of each of those machines, each as fast as one here")
        ->type_name("N")
        ->check(CLI::Range(1, 4096));
    command.add_flag("--json", json_, "Print JSON, with every repeat");
    command.add_flag("-q,--quiet", quiet_, "Show no progress");
    command.footer(kBenchRingExamples);
  }

  void run() {
    what_.kv_heads = kv_heads_ > 0 ? kv_heads_ : what_.heads;
    if (what_.heads % what_.kv_heads != 0) {
      throw CLI::ValidationError("--kv-heads",
                                 fmt::format("expected a divisor of {}, got {}", what_.heads, what_.kv_heads));
    }
    what_.dtype = dtype_ == "bf16" ? DType::bf16 : DType::f32;
    what_.causal = !full_;
    if (what_.window > 0) what_.layout = ring::Layout::contiguous;
    if (!link_.empty()) {
      const std::vector<double> numbers = floats(link_, "--link");
      if (numbers.size() != 2 || !(numbers[0] > 0) || !(numbers[1] >= 0)) {
        throw CLI::ValidationError("--link", fmt::format("expected Gb/s and microseconds, got '{}'", link_));
      }
      wire_ = Wire{numbers[0] * 1e9 / 8, numbers[1] * 1e-6};
    }
    if (predict_ > 0) return print_prediction();
    measure();
    if (!world_.root) return;
    fmt::print("{}", json_ ? json().dump(2) + "\n" : table());
  }

 private:
  std::vector<RingCase> cases() const {
    std::vector<RingCase> all;
    for (const bool backward : {false, true}) {
      for (const auto layout : {what_.layout, ring::Layout::contiguous}) {
        if (backward && !backward_) continue;
        if (layout != what_.layout && !contiguous_) continue;
        if (!all.empty() && all.back().layout == layout && all.back().backward == backward) continue;
        RingCase c = what_;
        c.backward = backward;
        c.layout = layout;
        all.push_back(c);
      }
    }
    return all;
  }

  void measure() {
    std::vector<int> sizes;
    for (const std::int64_t n : ranks_.empty() ? std::vector<std::int64_t>{world_.most} : integers(ranks_, "--ranks")) {
      if (n < 1 || n > world_.most) {
        throw CLI::ValidationError("--ranks", fmt::format("expected from 1 to {}, got {}", world_.most, n));
      }
      sizes.push_back(static_cast<int>(n));
    }
    Progress progress(!quiet_ && world_.root);
    const double count = static_cast<double>(sizes.size() * cases().size());
    for (const RingCase& c : cases()) {
      for (const int size : sizes) {
        progress.show(fmt::format("{} on {} ranks", text_of(c), size), static_cast<double>(results_.size()) / count);
        results_.push_back(bench::measure_ring(world_, c, size, repeats_, wire_));
      }
    }
    progress.clear();
  }

  static double efficiency(const RingTimes& t) {
    std::vector<double> each;
    for (std::size_t i = 0; i < t.one.size(); ++i) each.push_back(t.one[i] / t.many[i]);
    return bench::median(each);
  }

  std::string table() const {
    std::string text = fmt::format("{:<44} {:>5} {:>11} {:>11} {:>10} {:>8} {:>11} {:>9} {:>12}\n", "per rank", "ranks",
                                   "one process", "ranks", "efficiency", "balance", "model", "÷ model", "MB received");
    for (const RingTimes& t : results_) {
      const double many = bench::median(t.many);
      text += fmt::format("{:<44} {:>5} {:>11} {:>9.1f}ms {:>10} {:>8.3f} {:>9.1f}ms {:>9.2f} {:>12.2f}\n",
                          text_of(t.what), t.ranks, wire_ ? "" : fmt::format("{:.1f}ms", 1e3 * bench::median(t.one)),
                          1e3 * many, wire_ ? "" : fmt::format("{:.3f}", efficiency(t)), bench::median(t.balance),
                          1e3 * t.predicted, many / t.predicted, t.bytes / 1e6);
      if (!wire_ && efficiency(t) > kTooGood) {
        text += fmt::format(
            "  not a fair comparison: the one process was slowed down, or had fewer than {} processors\n", t.ranks);
      }
    }
    return text;
  }

  Json json() const {
    Json rows = Json::array();
    for (const RingTimes& t : results_) {
      Json row = {
          {"case", text_of(t.what)},      {"ranks", t.ranks},
          {"backward", t.what.backward},  {"layout", t.what.layout == ring::Layout::zigzag ? "zigzag" : "contiguous"},
          {"one_process_seconds", t.one}, {"ranks_seconds", t.many},
          {"balance", t.balance},         {"work_seconds", t.work},
          {"model_seconds", t.predicted}, {"bytes_received", t.bytes}};
      if (!wire_) row["efficiency"] = efficiency(t);
      rows.push_back(std::move(row));
    }
    return {{"rows", std::move(rows)}};
  }

  // From the speed of one core here; `--cores` of them make a machine.
  void print_prediction() {
    if (!wire_) throw CLI::ValidationError("--link", "expected the link between machines, got none");
    if (!world_.root) return;
    fmt::print("{:<44} {:>8} {:>12} {:>10} {:>14}\n", "per machine", "machines", "model", "efficiency", "rows to hide");
    for (const RingCase& c : cases()) {
      auto work = bench::rehearse_ring(c, predict_, repeats_);
      for (double& step : work.front()) step /= cores_;
      const double seconds = bench::predict_ring(c, predict_, work, *wire_);
      const double alone = bench::predict_ring(c, predict_, work, Wire{INFINITY, 0});
      fmt::print("{:<44} {:>8} {:>10.1f}ms {:>10.3f} {:>14}\n", text_of(c), predict_, 1e3 * seconds, alone / seconds,
                 hiding_rows(c, work.front()));
    }
  }

  // From how many rows per machine on a step's transfer takes no longer than its work: that grows with their square,
  // the bytes with their number. What a window needs does not.
  std::string hiding_rows(const RingCase& c, const std::vector<double>& steps) const {
    if (predict_ < 2 || c.window > 0) return "";
    const bench::RingBytes bytes(c, predict_);
    double most = 0;
    for (int rank = 0; rank < predict_; ++rank) most = std::max(most, bytes.blocks(rank, 1) + bytes.gradients(rank, 1));
    return fmt::format("{:.0f}", static_cast<double>(c.rows) * most / wire_->bytes_per_second / steps[1]);
  }

  const bench::World& world_;
  RingCase what_;
  std::string ranks_, dtype_ = "f32", link_;
  std::int64_t kv_heads_ = 0;
  bool full_ = false, backward_ = false, contiguous_ = false, json_ = false, quiet_ = false;
  int repeats_ = 5, predict_ = 0, cores_ = 1;
  std::optional<Wire> wire_;
  std::vector<RingTimes> results_;
};

}  // namespace

void add_bench_ring(CLI::App& bench, const bench::World& world) {
  CLI::App* command = bench.add_subcommand("ring", "Attention over many ranks against one process");
  const auto ring = std::make_shared<BenchRing>(world);
  ring->add_to(*command);
  command->callback([ring] { ring->run(); });
}

}  // namespace keel::cli
