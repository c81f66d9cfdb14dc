#include "cli/bench_report.h"

#include <fmt/format.h>
#include <hwy/targets.h>

#include <algorithm>
#include <functional>

#include "bench/summary.h"
#include "cli/common/terminal.h"
#include "keel/attention.h"
#include "runtime/machine.h"

namespace keel::cli {
namespace {

using bench::Metric;
using bench::Repeat;
using bench::Result;
using bench::Summary;
using What = bench::Yardsticks::What;
using Json = nlohmann::ordered_json;

const char* name_of(Metric metric) {
  switch (metric) {
    case Metric::peak_share:
      return "peak_share";
    case Metric::bandwidth_share:
      return "bandwidth_share";
    case Metric::update_share:
      return "update_share";
    case Metric::rate:
      return "rate";
    case Metric::speedup:
      return "speedup";
    case Metric::cost:
      return "cost";
    case Metric::call_seconds:
      return "call_seconds";
    case Metric::extra_bytes:
      return "extra_bytes";
  }
  return "unknown";
}

const char* name_of(What what) {
  switch (what) {
    case What::fma:
      return "fma";
    case What::unit:
      return "unit";
    case What::read:
      return "read";
    case What::update:
      return "update";
  }
  return "unknown";
}

bool is_memory(What what) { return what == What::read || what == What::update; }

// Of the matrix unit that bf16 is multiplied with.
const char* unit_name() {
  for (const MatrixUnitState& state : machine().units) {
    if (machine().bf16_unit == state.unit) return state.name;
  }
  return "none";
}

std::string number_text(Metric metric, double value) {
  switch (metric) {
    case Metric::cost:
      return fmt::format("{:.1f} %", 100 * value);
    case Metric::call_seconds:
      return duration_text(value);
    case Metric::extra_bytes:
      return bytes_text(static_cast<long long>(value));
    case Metric::speedup:
      return fmt::format("{:.2f}", value);
    default:
      return fmt::format("{:.3f}", value);
  }
}

// What the number is a share or a multiple of.
std::string unit_text(const bench::Row& row, bool by_unit = false) {
  switch (row.metric) {
    case Metric::peak_share:
      return by_unit ? fmt::format("of {}", unit_name()) : "of peak";
    case Metric::bandwidth_share:
      return "of read";
    case Metric::update_share:
      return "of read and write";
    case Metric::rate:
      return fmt::format("of {}", row.baseline_name);
    case Metric::speedup:
      return fmt::format("× {}", row.baseline_name);
    case Metric::cost:
      return fmt::format("over {}", row.baseline_name);
    case Metric::call_seconds:
      return "a call";
    case Metric::extra_bytes:
      return "extra";
  }
  return "";
}

Summary summary_of(const Result& result, const std::function<double(const Repeat&)>& number) {
  std::vector<double> values;
  for (const Repeat& repeat : result.repeats) values.push_back(number(repeat));
  return bench::summary_of(values);
}
Summary values_of(const Result& result) {
  return summary_of(result, [](const Repeat& r) { return r.value; });
}

bool meets(const bench::Row& row, double value) {
  return bench::larger_is_better(row.metric) ? value >= *row.goal : value <= *row.goal;
}

using Cells = std::vector<std::string>;

std::size_t width_of(const std::string& text) {  // characters, not bytes
  return static_cast<std::size_t>(
      std::count_if(text.begin(), text.end(), [](char c) { return (static_cast<unsigned char>(c) & 0xC0u) != 0x80u; }));
}

// Columns as wide as their widest cell; the last cell of a short row may extend beyond.
std::string table_text(const std::vector<Cells>& rows) {
  std::vector<std::size_t> widths(rows.front().size());
  for (const Cells& cells : rows) {
    for (std::size_t i = 0; i < cells.size(); ++i) {
      if (i + 1 < cells.size() || cells.size() == widths.size()) widths[i] = std::max(widths[i], width_of(cells[i]));
    }
  }
  std::string text;
  for (const Cells& cells : rows) {
    std::string line;
    for (std::size_t i = 0; i < cells.size(); ++i) {
      line += cells[i];
      if (i + 1 < cells.size()) line.append(widths[i] + 2 - width_of(cells[i]), ' ');
    }
    line.resize(line.find_last_not_of(' ') + 1);
    text += &cells == &rows.front() ? bold(line) : line;
    text += '\n';
  }
  return text;
}

const Cells kHeadings = {"scenario", "heads×queries:keys×size",
                         "dtype",    "threads",
                         "time",     "GFLOP/s",
                         "median",   "quartiles",
                         "fastest",  "goal",
                         "met"};

Cells cells_of(const Result& result) {
  const bench::Row& row = result.row;
  Cells cells = {row.scenario, text_of(row.subject), keel::name_of(row.subject.dtype)};
  if (!result.skipped.empty()) {
    cells.push_back("not measured: " + result.skipped);
    return cells;
  }
  const Summary value = values_of(result);
  const double seconds = summary_of(result, [](const Repeat& r) { return r.seconds; }).median;
  const auto number = [&](double x) { return number_text(row.metric, x); };
  const bool spread = result.repeats.size() > 1;
  cells.push_back(fmt::format("{}", result.threads));
  cells.push_back(duration_text(seconds));
  cells.push_back(fmt::format("{:.1f}", result.flops / seconds * 1e-9));
  cells.push_back(number(value.median) + " " + unit_text(row, result.by_unit));
  cells.push_back(spread ? number(value.lower) + " – " + number(value.upper) : "");
  cells.push_back(spread ? number(fastest_value(result)) : "");
  if (row.goal) {
    cells.push_back((bench::larger_is_better(row.metric) ? "≥ " : "≤ ") + number(*row.goal));
    cells.emplace_back(meets(row, value.median) ? "yes" : "no");
  }
  return cells;
}

Json json_of(const Summary& s) {
  return {{"median", s.median},
          {"lower_quartile", s.lower},
          {"upper_quartile", s.upper},
          {"least", s.least},
          {"greatest", s.greatest}};
}

Json shape_json(const bench::Case& c) {
  return {{"q", {1, c.q_heads, c.n_q, c.d}}, {"k", {1, c.kv_heads, c.n_k, c.d}}, {"v", {1, c.kv_heads, c.n_k, c.d}}};
}

Json repeat_json(const Repeat& repeat) {
  Json json = {{"seconds", repeat.seconds}, {"yardstick", repeat.yardstick}};
  if (repeat.baseline_seconds) json["baseline_seconds"] = *repeat.baseline_seconds;
  json["yardstick_share"] = repeat.yardstick_share;
  json["value"] = repeat.value;
  return json;
}

Json row_json(const Result& result) {
  const bench::Row& row = result.row;
  Json json = {{"scenario", row.scenario},         {"problem", text_of(row.subject)},
               {"shape", shape_json(row.subject)}, {"dtype", keel::name_of(row.subject.dtype)},
               {"metric", name_of(row.metric)},    {"unit", unit_text(row, result.by_unit)}};
  if (!result.skipped.empty()) {
    json["skipped"] = result.skipped;
    return json;
  }
  const Summary value = values_of(result);
  const Summary seconds = summary_of(result, [](const Repeat& r) { return r.seconds; });
  json["threads"] = result.threads;
  json["target"] = hwy::TargetName(result.target);
  json["plan"] = result.plan;
  json["flops"] = result.flops;
  json["bytes"] = result.bytes;
  json["workspace_bytes"] = result.workspace_bytes;
  if (row.metric == Metric::extra_bytes) {
    json["resident_growth_bytes"] = result.resident_growth ? Json(*result.resident_growth) : Json(nullptr);
  }
  json["calls_a_sample"] = result.calls;
  json["seconds"] = json_of(seconds);
  json["gflops"] = result.flops / seconds.median * 1e-9;
  const bool by_memory = row.metric == Metric::bandwidth_share || row.metric == Metric::update_share;
  json[by_memory ? name_of(row.metric) : "peak_share"] =
      json_of(summary_of(result, [](const Repeat& r) { return r.yardstick_share; }));
  json["value"] = json_of(value);
  json["fastest"] = fastest_value(result);
  if (row.goal) {
    json["goal"] = {{bench::larger_is_better(row.metric) ? "at_least" : "at_most", *row.goal},
                    {"met", meets(row, value.median)}};
  }
  for (const Repeat& repeat : result.repeats) json["repeats"].push_back(repeat_json(repeat));
  return json;
}

}  // namespace

std::string bench_table(const bench::Measurements& m) {
  std::string text = fmt::format("{} {}\n", bold(fmt::format("{:<10}", "cpu")), machine().cpu);
  for (const auto& [kind, rates] : m.yardsticks.measured()) {
    const Summary s = bench::summary_of(rates);
    const bool memory = is_memory(kind.what);
    const std::string what = memory ? fmt::format("{} {}", kind.what == What::read ? "reading" : "reading and writing",
                                                  bytes_text(m.yardsticks.memory_bytes()))
                             : kind.what == What::unit ? fmt::format("products by {}", unit_name())
                                                       : fmt::format("FMA peak {} {}", hwy::TargetName(kind.target),
                                                                     keel::name_of(kind.dtype));
    text += fmt::format("{} {}, {} thread{}: {:.1f} {} (quartiles {:.1f} – {:.1f}, best {:.1f})\n",
                        bold(fmt::format("{:<10}", memory ? "bandwidth" : "peak")), what, kind.threads,
                        kind.threads > 1 ? "s" : "", s.median * 1e-9, memory ? "GB/s" : "GFLOP/s", s.lower * 1e-9,
                        s.upper * 1e-9, s.greatest * 1e-9);
  }
  std::vector<Cells> rows = {kHeadings};
  for (const Result& result : m.results) rows.push_back(cells_of(result));
  return text + '\n' + table_text(rows);
}

nlohmann::ordered_json bench_json(const bench::Measurements& m, const bench::Procedure& procedure, bool quick) {
  const Machine& facts = machine();
  Json json = {{"keel", version()},
               {"machine",
                {{"cpu", facts.cpu},
                 {"targets", facts.targets},
                 {"threads", facts.threads},
                 {"l1_bytes", facts.l1_bytes},
                 {"l2_bytes", facts.l2_bytes},
                 {"l3_bytes", facts.l3_bytes}}},
               {"settings",
                {{"repeats", procedure.repeats},
                 {"quick", quick},
                 {"seed", procedure.seed},
                 {"sample_seconds", procedure.sample_seconds},
                 {"yardstick_seconds", procedure.yardstick_seconds}}},
               {"seconds", m.seconds},
               {"yardsticks", Json::array()},
               {"rows", Json::array()}};
  for (const auto& [kind, rates] : m.yardsticks.measured()) {
    Json& entry = json["yardsticks"].emplace_back();
    const bool memory = is_memory(kind.what);
    entry = {{"kind", name_of(kind.what)},
             {"dtype", memory ? Json(nullptr) : Json(keel::name_of(kind.dtype))},
             {"target", kind.what == What::unit ? unit_name() : hwy::TargetName(kind.target)},
             {"threads", kind.threads}};
    if (memory) entry["memory_bytes"] = m.yardsticks.memory_bytes();
    entry["rate"] = json_of(bench::summary_of(rates));
    entry["samples"] = rates.size();
  }
  for (const Result& result : m.results) json["rows"].push_back(row_json(result));
  return json;
}

}  // namespace keel::cli
