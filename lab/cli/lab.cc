// keel lab: the experiments, the claims they decide, and a report.
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <map>
#include <memory>
#include <thread>

#include "cli/common/arguments.h"
#include "cli/common/interrupt.h"
#include "cli/common/program.h"
#include "cli/common/progress.h"
#include "cli/common/terminal.h"
#include "io/file.h"
#include "lab/cli/calling.h"
#include "lab/cli/commands.h"
#include "lab/cli/plot.h"
#include "lab/cli/say.h"
#include "lab/command.h"
#include "lab/experiment.h"
#include "lab/folder.h"
#include "lab/report/report.h"
#include "lab/translate/options.h"

namespace keel::cli {
namespace {

using lab::Experiment;
using lab::Json;
using lab::Record;

constexpr const char* kLabExamples =
    "Examples:\n"
    "  keel lab                      all experiments, some minutes on two cores\n"
    "  keel lab --open               and the report in a browser\n"
    "  keel lab list                 what each of them answers\n"
    "  keel lab variance entropy     two of them\n"
    "  keel lab claims --json        every claim with its verdict, as data\n"
    "  keel lab --full --out thorough\n"
    "  keel lab playground --out DIR the report's live figures as a page of their own\n"
    "  keel lab break --blind        find the line that is broken\n"
    "  keel lab break no-scale       break one line, predict, and see\n"
    "  keel lab translate            eleven models that translate: the whole comparison, about 2 minutes\n"
    "  keel lab translate --say \"the third of may at half past three\" --arm additive\n"
    "\n"
    "DIR gets index.html (one page that needs no network), one JSON file per experiment and one CSV\n"
    "file per figure. The same seed gives the same numbers on any number of threads.\n";

class Observer : public lab::Observer {
 public:
  Observer(Progress& progress, std::string what, double from, double to)
      : progress_(progress), what_(std::move(what)), from_(from), to_(to) {}
  void progress(double share) override { progress_.show(what_, from_ + share * (to_ - from_)); }
  bool stop() const override { return interrupted(); }

 private:
  Progress& progress_;
  std::string what_;
  double from_, to_;  // this experiment's share of the whole run
};

class Lab {
 public:
  void add_to(CLI::App& command) {
    command.add_option("what", what_, "Experiments by name; or 'list', 'claims' or 'playground'")->type_name("NAME");
    command.add_flag("--full", settings_.full, "The thorough profile: more repeats, longer training");
    command.add_option("--seed", seed_, "Seed of the random numbers")->type_name("N")->check(kNotEmpty);
    command.add_option("--repeats", repeats_, "Number of repeats, at least 2; that of the profile by default")
        ->type_name("N")
        ->check(kNotEmpty);
    command.add_option("--threads", settings_.threads, "At most this many threads; 0 for all")
        ->type_name("N")
        ->check(kNotEmpty);
    command.add_option("--out", out_, "Folder for the results")
        ->type_name("DIR")
        ->capture_default_str()
        ->check(kNotEmpty);
    command.add_flag("--open", open_, "Open the report once it is written");
    command.add_flag("--plots,!--no-plots", plots_, "Draw the curves of the experiments named; on by default");
    auto* json = command.add_flag("--json", json_, "Print results as JSON");
    command.add_flag("-q,--quiet", quiet_, "Print nothing")->excludes(json);
    command
        .add_option("--data", options_["data"], "translate: your own pairs, two columns of UTF-8 separated by a tab")
        ->type_name("FILE")
        ->check(kNotEmpty);
    command
        .add_option("--vocabulary", options_["vocabulary"],
                    "translate: words, bpe, or auto, which depends on the number of words")
        ->type_name("KIND")
        ->check(kNotEmpty);
    command.add_option("--arm", options_["arm"], "translate: only this kind of attention")
        ->type_name("ARM")
        ->check(kNotEmpty);
    command.add_option("--say", say_, "translate: translate this with one arm, and show what it attends to")
        ->type_name("TEXT")
        ->check(kNotEmpty);
    command.footer(kLabExamples);
  }

  void run() {
    if (!seed_.empty()) settings_.seed = seed_number(seed_);
    if (!repeats_.empty()) settings_.repeats = repeats();
    if (settings_.threads < 0) {
      throw CLI::ValidationError("--threads", fmt::format("expected at least 0, got {}", settings_.threads));
    }
    take_options();
    const std::string opener = open_ ? page_opener() : "";
    if (what_ == std::vector<std::string>{"list"}) return list();
    if (what_ == std::vector<std::string>{"playground"}) return write_playground();
    if (!say_.empty()) return say({settings_, say_, out_, json_, quiet_});
    const bool claims = what_ == std::vector<std::string>{"claims"};
    const std::vector<const Experiment*> chosen = claims ? named({}) : named(what_);
    const lab::Folder folder(out_);
    const std::vector<Record> records = run(chosen, folder, /*again=*/!claims);
    if (open_) open_page(opener, folder.report_path());
    if (quiet_) return;
    if (claims) {
      print_claims(records);
    } else if (json_) {
      print_json(records, folder);
    } else {
      print_summary(what_.empty() ? records : only(records, chosen), folder);
    }
  }

 private:
  std::size_t repeats() const {
    const std::int64_t n = integers(repeats_, "--repeats").front();
    if (n < 2 || repeats_.find(',') != std::string::npos) {
      throw CLI::ValidationError("--repeats", fmt::format("expected an integer of at least 2, got '{}'", repeats_));
    }
    return static_cast<std::size_t>(n);
  }

  // The options given; they are for one experiment, which must then be the only one named.
  void take_options() {
    for (const auto& [name, value] : options_) {
      if (!value.empty()) settings_.options[name] = value;
    }
    if (settings_.options.empty() && say_.empty()) return;
    if (what_ != std::vector<std::string>{"translate"}) {
      const std::string option = say_.empty() ? "--" + settings_.options.begin()->first : "--say";
      throw CLI::ValidationError(option, fmt::format("expected only 'translate' with it, as in {} lab translate {}",
                                                     lab::keel_command(), option));
    }
    lab::translate::TranslateOptions{settings_};
    lab::translate::TranslateOptions::take_digests(settings_);
  }

  bool is_named(const Experiment& experiment) const {
    return std::count(what_.begin(), what_.end(), experiment.name()) > 0;
  }

  // What an experiment runs with, without the options of another; the short form if it was not named.
  lab::Settings settings_of(const Experiment& experiment) const {
    lab::Settings own = settings_;
    if (!experiment.has_short_form()) own.options.clear();
    own.short_form = experiment.has_short_form() && !is_named(experiment);
    return own;
  }

  // In the order of the report; if none is named, all except those that run by name only.
  static std::vector<const Experiment*> named(const std::vector<std::string>& names) {
    std::vector<const Experiment*> chosen;
    std::string known;
    for (const auto& experiment : lab::experiments()) {
      known.append(experiment->name()).append(", ");
      const bool is_named = std::count(names.begin(), names.end(), experiment->name()) > 0;
      if (is_named || names.empty()) chosen.push_back(experiment.get());
    }
    for (const std::string& name : names) {
      if (lab::find_experiment(name) == nullptr) {
        throw CLI::ValidationError(
            "what", fmt::format("expected one of {}or list, claims or playground alone, got '{}'", known, name));
      }
    }
    return chosen;
  }

  void write_playground() const {
    const lab::Folder folder(out_);
    io::write_file(folder.report_path(), lab::playground_page());
    if (!quiet_) fmt::print("Playground: {}\n", folder.report_path());
  }

  void list() const {
    if (json_) {
      Json all = Json::array();
      for (const auto& e : lab::experiments()) all.push_back({{"name", e->name()}, {"question", e->question()}});
      fmt::print("{}\n", all.dump(2));
      return;
    }
    for (const auto& e : lab::experiments())
      fmt::print("{}  {}\n", bold(fmt::format("{:<11}", e->name())), e->question());
  }

  // Runs what is chosen, or with `again` false only what the folder does not hold yet. The folder is up to date after
  // each experiment. Returns everything that belongs to this run: what was chosen, and what else the folder holds.
  std::vector<Record> run(const std::vector<const Experiment*>& chosen, const lab::Folder& folder, bool again) const {
    std::vector<Record> records;
    std::vector<const Experiment*> due;
    for (const auto& experiment : lab::experiments()) {
      const bool is_chosen = std::count(chosen.begin(), chosen.end(), experiment.get()) > 0;
      lab::Settings settings = settings_of(*experiment);
      std::optional<Record> earlier;
      if (settings.short_form) {  // the whole is better
        settings.short_form = false;
        earlier = folder.load(*experiment, settings);
        settings.short_form = true;
      }
      if (!earlier && (!is_chosen || !again)) earlier = folder.load(*experiment, settings);
      if (earlier) {
        records.push_back(std::move(*earlier));
      } else if (is_chosen) {
        due.push_back(experiment.get());
      }
    }
    const auto cost = [&](const Experiment* e) { return e->cost(settings_of(*e)); };
    double total = 0, done = 0;
    for (const Experiment* e : due) total += cost(e);
    const InterruptGuard guard;
    const int threads =
        settings_.threads > 0 ? settings_.threads : static_cast<int>(std::thread::hardware_concurrency());
    Progress progress(!quiet_, total / std::max(threads, 1));
    std::size_t finished = 0;
    for (const Experiment* e : due) {
      Observer observer(progress, e->name(), done / total, (done + cost(e)) / total);
      lab::Work work(settings_of(*e), observer);
      try {
        insert(records, {e, settings_of(*e), e->run(work)});
      } catch (const lab::Stopped&) {
        progress.clear();
        stop(finished, due.size(), folder);
      }
      folder.save(*std::find_if(records.begin(), records.end(), [&](const Record& r) { return r.experiment == e; }));
      folder.publish(records);
      done += cost(e);
      ++finished;
    }
    if (due.empty()) folder.publish(records);
    return records;
  }

  // Keeps the order of the report.
  static void insert(std::vector<Record>& records, Record record) {
    const auto& all = lab::experiments();
    const auto place = [&](const Record& r) {
      return std::find_if(all.begin(), all.end(), [&](const auto& e) { return e.get() == r.experiment; });
    };
    const auto at =
        std::find_if(records.begin(), records.end(), [&](const Record& r) { return place(record) < place(r); });
    records.insert(at, std::move(record));
  }

  // After saying what there is to read.
  [[noreturn]] static void stop(std::size_t finished, std::size_t due, const lab::Folder& folder) {
    std::string where;
    if (finished > 0) where = fmt::format(", their results are in {}", folder.report_path());
    complain(fmt::format("interrupted, {} of {} experiments finished{}", finished, due, where).c_str());
    end_interrupted();
  }

  static std::vector<Record> only(std::vector<Record> records, const std::vector<const Experiment*>& chosen) {
    std::erase_if(records,
                  [&](const Record& r) { return std::count(chosen.begin(), chosen.end(), r.experiment) == 0; });
    return records;
  }

  void print_json(const std::vector<Record>& records, const lab::Folder& folder) const {
    Json all = Json::array();
    for (const Record& record : records) all.push_back(lab::to_json(record));
    Json times = Json::array();
    for (const Record& record : records) {
      if (!record.result.times.empty()) times.push_back(lab::times_json(record));
    }
    const Json printed = {{"experiments", std::move(all)},
                          {"times", std::move(times)},
                          {"claims", lab::to_json(lab::ledger(records))},
                          {"report", folder.report_path()}};
    fmt::print("{}\n", printed.dump(2, ' ', false, Json::error_handler_t::replace));
  }

  void print_claims(const std::vector<Record>& records) const {
    const std::vector<lab::Entry> ledger = lab::ledger(records);
    if (json_) {
      fmt::print("{}\n", lab::to_json(ledger).dump(2));
      return;
    }
    std::string document;
    for (const lab::Entry& entry : ledger) {
      if (entry.document != document) fmt::print("{}{}\n\n", document.empty() ? "" : "\n", bold(entry.document));
      document = entry.document;
      fmt::print("{}  {}\n", entry.id, bold(entry.verdict.text()));
      fmt::print("  {}\n", wrapped(entry.claim, 96, 2));
      fmt::print("  claimed    {}\n", wrapped(entry.claimed, 86, 13));
      fmt::print("  measured   {}\n", wrapped(entry.measured, 86, 13));
      fmt::print("  spread     {}\n  decided by {}\n\n", entry.spread, entry.experiment);
    }
    print_counts(ledger);
  }

  static void print_counts(const std::vector<lab::Entry>& ledger) {
    const auto holds = count(ledger, lab::Ruling::holds), holds_if = count(ledger, lab::Ruling::holds_if),
               does_not = count(ledger, lab::Ruling::does_not_hold);
    fmt::print("{} {}: {} {}, {} {} under a condition, {} {} not hold, {} undecided\n", ledger.size(),
               ledger.size() == 1 ? "claim" : "claims", holds, holds == 1 ? "holds" : "hold", holds_if,
               holds_if == 1 ? "holds" : "hold", does_not, does_not == 1 ? "does" : "do",
               count(ledger, lab::Ruling::undecided));
  }

  static constexpr std::size_t kWidth = 76, kIndent = 23;  // of the summary's text

  void print_summary(const std::vector<Record>& records, const lab::Folder& folder) const {
    for (const Record& record : records) {
      if (what_.empty()) break;  // the report has them
      fmt::print("{}\n", bold(record.experiment->question()));
      for (const lab::Findings* part : record.result.parts()) {
        for (const std::string& finding : part->findings) fmt::print("  {}\n", wrapped(finding, 98, 2));
      }
      fmt::print("\n");
      if (plots_) print_plots(record);
    }
    const std::vector<lab::Entry> ledger = lab::ledger(records);
    for (const auto& [ruling, title] : {std::pair{lab::Ruling::does_not_hold, "Does not hold"},
                                        {lab::Ruling::undecided, "Undecided"},
                                        {lab::Ruling::holds_if, "Holds under a condition"}}) {
      if (count(ledger, ruling) == 0) continue;
      fmt::print("{}\n", bold(title));
      for (const lab::Entry& entry : ledger) {
        if (entry.verdict.ruling != ruling) continue;
        fmt::print("  {:<20} {}\n", entry.id, wrapped(entry.claim, kWidth, kIndent));
        if (ruling == lab::Ruling::holds_if) {
          fmt::print("{:>{}}{}\n", "", kIndent, wrapped(entry.verdict.text(), kWidth, kIndent));
        } else {
          fmt::print("{:>{}}claimed  {}\n", "", kIndent, wrapped(entry.claimed, kWidth - 9, kIndent + 9));
          fmt::print("{:>{}}measured {}\n", "", kIndent, wrapped(entry.measured, kWidth - 9, kIndent + 9));
        }
      }
      fmt::print("\n");
    }
    if (!ledger.empty()) print_counts(ledger);
    if (what_.empty()) print_shortened(records);
    fmt::print("Report: {}\n", linked(folder.report_path()));
  }

  static void print_plots(const Record& record) {
    for (const lab::Findings* part : record.result.parts()) {
      for (const lab::Figure& figure : part->figures) {
        const Picture picture = draw(figure, {});
        if (picture.empty()) continue;  // a table or bars: in the report
        fmt::print("  {}\n", bold(figure.title));
        for (const std::string& line : picture) fmt::print("  {}\n", line);
        fmt::print("\n");
      }
    }
  }

  static void print_shortened(const std::vector<Record>& records) {
    for (const Record& r : records) {
      if (!r.settings.short_form) continue;
      fmt::print("The comparison of {0} is a short one. The whole, in minutes: {1} lab {0}\n", r.experiment->name(),
                 lab::keel_command());
    }
  }

  std::vector<std::string> what_;
  lab::Settings settings_;
  std::map<std::string, std::string> options_;
  std::string say_;
  std::string seed_, repeats_, out_ = "lab-report";
  bool json_ = false, quiet_ = false, open_ = false, plots_ = true;
};

}  // namespace

void add_lab(CLI::App& app) {
  const auto lab = std::make_shared<Lab>();
  lab->add_to(app);
  const CLI::App* exercise = add_break(app);
  app.callback([lab, exercise] {
    if (!exercise->parsed()) lab->run();
  });
}

}  // namespace keel::cli
