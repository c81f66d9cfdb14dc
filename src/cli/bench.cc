// keel bench: the operator's speed on this machine, as shares of what the machine can do.
#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>

#include "bench/measure.h"
#include "bench/scenarios/scenarios.h"
#include "cli/bench_report.h"
#include "cli/commands.h"
#include "cli/common/arguments.h"
#include "cli/common/progress.h"
#include "cli/operator_flags.h"
#include "runtime/machine.h"

namespace keel::cli {
namespace {

using bench::About;
using bench::Row;
using Json = nlohmann::ordered_json;

constexpr const char* kBenchExamples =
    "Examples:\n"
    "  keel bench\n"
    "  keel bench --list\n"
    "  keel bench forward decode --repeats 31\n"
    "  keel bench backward --target AVX2 --json\n"
    "\n"
    "In every repeat each number is measured right next to the limit it is compared with; the median\n"
    "is reported. Goals apply to the rows as they are: rows changed by --dtype, --threads or --target\n"
    "have none.\n";

constexpr int kRepeats = 15, kQuickRepeats = 3;

class Bench {
 public:
  void add_to(CLI::App& command) {
    command.add_option("scenario", scenarios_, "Measure only these")->type_name("NAME")->delimiter(',');
    command.add_flag("--list", list_, "List the scenarios and exit");
    command.add_option("--repeats", repeats_, fmt::format("Visits to each row; {} by default", kRepeats))
        ->type_name("N")
        ->check(CLI::Range(1, 100000));
    command.add_flag("--quick", quick_, "Smaller calls and fewer repeats, for a first look");
    command.add_option("--threads", threads_, "Threads of every row")
        ->type_name("N")
        ->check(CLI::Range(1, machine().threads));
    command.add_option("--target", target_, "SIMD target of every row, compared with its own peak")
        ->type_name("NAME")
        ->check(CLI::IsMember(machine().targets));
    command.add_option("--dtype", dtype_, "f64, f32, f16 or bf16 for every row")
        ->type_name("TYPE")
        ->check(CLI::IsMember({"f64", "f32", "f16", "bf16"}));
    command.add_option("--seed", seed_, "Seed of the random numbers that fill the arrays")
        ->type_name("N")
        ->check(kNotEmpty);
    command.add_flag("--json", json_, "Print JSON, with every repeat");
    command.add_flag("-q,--quiet", quiet_, "Show no progress");
    command.footer(kBenchExamples);
  }

  void run() {
    const std::vector<bench::Scenario> chosen = chosen_scenarios();
    if (list_) return print_list(chosen);
    std::vector<Row> rows;
    for (const bench::Scenario& scenario : chosen) {
      for (Row row : scenario.rows(quick_)) {
        row.scenario = scenario.name;
        if (adapt(row)) rows.push_back(std::move(row));
      }
    }
    if (rows.empty()) throw CLI::ValidationError("scenario", "expected rows to measure, got none with these options");
    procedure_.repeats = repeats_.value_or(quick_ ? kQuickRepeats : kRepeats);
    procedure_.target = target();
    if (!seed_.empty()) procedure_.seed = seed_number(seed_);
    Progress progress(!quiet_);
    const bench::Measurements measurements =
        bench::measure(rows, procedure_, [&](const std::string& what, double share) { progress.show(what, share); });
    progress.clear();
    if (json_) {
      fmt::print("{}\n",
                 bench_json(measurements, procedure_, quick_).dump(2, ' ', false, Json::error_handler_t::replace));
    } else {
      fmt::print("{}", bench_table(measurements));
    }
  }

 private:
  // The named scenarios, each once and in their own order; all of them if none is named.
  std::vector<bench::Scenario> chosen_scenarios() const {
    const auto all = bench::scenarios();
    if (scenarios_.empty()) return {all.begin(), all.end()};
    std::set<std::string> named(scenarios_.begin(), scenarios_.end());
    std::vector<bench::Scenario> chosen;
    std::string known;
    for (const bench::Scenario& s : all) {
      if (named.erase(std::string(s.name)) > 0) chosen.push_back(s);
      known += fmt::format("{}{}", known.empty() ? "" : ", ", s.name);
    }
    if (!named.empty()) {
      throw CLI::ValidationError("scenario", fmt::format("expected some of {}, got '{}'", known, *named.begin()));
    }
    return chosen;
  }

  void print_list(const std::vector<bench::Scenario>& chosen) const {
    Json list = Json::array();
    for (const bench::Scenario& s : chosen) {
      list.push_back({{"name", s.name}, {"about", s.about}});
      if (!json_) fmt::print("{:<11} {}\n", s.name, s.about);
    }
    if (json_) fmt::print("{}\n", list.dump(2));
  }

  std::int64_t target() const {
    const Machine& m = machine();
    const auto at = std::find(m.targets.begin(), m.targets.end(), target_);
    return at == m.targets.end() ? 0 : m.target_bits[static_cast<std::size_t>(at - m.targets.begin())];
  }

  // The row as --dtype, --threads and --target ask for it; false if the row is about one of them and needs another
  // value. A row that was changed has no goal.
  bool adapt(Row& row) const {
    const auto set = [&](auto bench::Case::*member, auto value, About about) {
      if (row.subject.*member == value) return true;
      if (about != About::threads && (row.about == about || row.about == About::unit)) return false;
      row.subject.*member = value;
      if (row.baseline && row.about != about) *row.baseline.*member = value;
      row.goal.reset();
      return true;
    };
    for (const DType dtype : {DType::f64, DType::f32, DType::f16, DType::bf16}) {
      if (dtype_ == keel::name_of(dtype) && !set(&bench::Case::dtype, dtype, About::dtype)) return false;
    }
    if (threads_ && !set(&bench::Case::threads, *threads_, About::threads)) return false;
    return target() == 0 || set(&bench::Case::target, target(), About::target);
  }

  std::vector<std::string> scenarios_;
  bool list_ = false, quick_ = false, json_ = false, quiet_ = false;
  std::optional<int> repeats_, threads_;
  std::string target_, dtype_, seed_;
  bench::Procedure procedure_;
};

}  // namespace

CLI::App& add_bench(CLI::App& app) {
  CLI::App* command = app.add_subcommand("bench", "Speed on this machine, as shares of what it can do");
  const auto bench = std::make_shared<Bench>();
  bench->add_to(*command);
  command->callback([bench, command] {
    if (command->get_subcommands().empty()) bench->run();
  });
  return *command;
}

}  // namespace keel::cli
