#include "lab/report/report.h"

#include <fmt/format.h>

#include "io/messages.h"
#include "keel/attention.h"
#include "lab/command.h"
#include "lab/report/breaks_html.h"
#include "lab/report/html.h"
#include "lab/report/ledger_html.h"
#include "lab/report/recorded.h"
#include "lab/report/story.h"

namespace keel::lab {
namespace {

using Parts = std::vector<std::pair<std::string_view, std::string>>;

std::string command(const Record& record) {
  std::string text =
      fmt::format("{} lab {} --seed {}{}{}", keel_command(), record.experiment->name(), record.settings.seed,
                  record.settings.full ? " --full" : "",
                  record.settings.repeats > 0 ? fmt::format(" --repeats {}", record.settings.repeats) : "");
  for (const auto& [option, value] : record.settings.options)
    text += fmt::format(" --{} {}", option, quoted(io::path_text(value)));
  return escaped(text);
}

std::string section_html(const Record& record, const std::vector<Entry>& ledger) {
  const std::string name = record.experiment->name();
  std::string html = fmt::format(
      "<section id=\"{0}\" aria-labelledby=\"{0}-title\"><details><summary><h3 id=\"{0}-title\">{0}</h3> <span "
      "class=\"question\">{1}</span></summary>\n<ul class=\"findings\">",
      name, escaped(record.experiment->question()));
  for (const Findings* part : record.result.parts()) {
    for (const std::string& finding : part->findings) html += fmt::format("<li>{}</li>\n", escaped(finding));
  }
  html += "</ul>\n<div class=\"figures\">\n";
  std::vector<const Figure*> figures;
  for (const Findings* part : record.result.parts()) {
    for (const Figure& figure : part->figures) figures.push_back(&figure);
  }
  html += figures_html(name, figures) + "</div>\n" + decided_html(ledger, name);
  return html + fmt::format("<p class=\"settings\">{} Run it again: <code>{}</code></p></details></section>\n",
                            escaped(record.result.settings), command(record));
}

// Six digits: more than a chart can show, and half the bytes.
void round_numbers(Json& json) {
  if (json.is_number_float()) json = std::stod(fmt::format("{:.6g}", json.get<double>()));
  if (!json.is_structured()) return;
  for (Json& part : json) round_numbers(part);
}

// What charts.js draws: every figure but the tables, by the id of its place.
Json data_json(const std::vector<Record>& records) {
  Json data = Json::object();
  for (const Record& record : records) {
    for (const Findings* part : record.result.parts()) {
      for (const Figure& figure : part->figures) {
        if (std::holds_alternative<Table>(figure.body)) continue;
        data[fmt::format("{}-{}", record.experiment->name(), figure.id)] = to_json(figure);
      }
    }
  }
  round_numbers(data);
  return data;
}

std::string notices_html(const Tools& tools) {
  std::string html;
  if (tools.d3.empty()) {
    html +=
        "<p class=\"notice\">This program was built without D3, so charts are left out. Their numbers are under each "
        "figure. To have the charts, install Debian's node-d3 (or give -DKEEL_D3=file to CMake) and build again.</p>\n";
  }
  if (tools.kernels.empty()) {
    html +=
        "<p class=\"notice\">This program was built without a compiler for WebAssembly, so the live figure steps "
        "through "
        "recorded rows, and the worked example and the playground are left out. To have them, install Debian's "
        "clang-19, "
        "lld-19, libc++-19-dev-wasm32 and libclang-rt-19-dev-wasm32, and build again.</p>\n";
  }
  return html;
}

// The page's own text with its style and scripts around it.
std::string page(const Tools& tools, std::string_view body, const Json& data, std::uint64_t seed, Parts parts) {
  const std::string inner = filled(body, parts);
  const auto text = [](std::string_view asset) { return std::string(asset); };
  const bool live = inner.find("class=\"live") != std::string::npos;
  return filled(assets::page(), {{"title", parts.front().second},
                                 {"style", text(assets::style()) + text(assets::playground_style())},
                                 {"body", inner},
                                 {"d3", data.empty() ? "" : text(tools.d3)},
                                 {"data", tools.d3.empty() ? "{}" : script_json(data)},
                                 {"kernels", live ? text(tools.kernels) : ""},
                                 {"recorded", live && tools.kernels.empty() ? script_json(recorded_rows(seed)) : ""},
                                 {"charts", text(assets::charts()) + text(assets::breaks())},
                                 {"playground", live ? text(assets::playground()) : ""}});
}

// The places that web/example.js and web/editor.js fill; nothing without kernels.
std::string playground_html(const Tools& tools) {
  return tools.kernels.empty() ? "" : std::string(assets::playground_html());
}

}  // namespace

std::string figure_page(const std::string& title, const std::string& text, const std::vector<Figure>& figures,
                        const Tools& tools) {
  Json data = Json::object();
  std::vector<const Figure*> all;
  for (const Figure& figure : figures) {
    all.push_back(&figure);
    data["figure-" + figure.id] = to_json(figure);
  }
  const std::string html = figures_html("figure", all);
  return page(tools,
              "<header><h1>{{title}}</h1><p>{{text}}</p></header>\n<main><section><div "
              "class=\"figures\">\n{{figures}}</div></section></main>\n",
              data, 0, {{"title", escaped(title)}, {"text", escaped(text)}, {"figures", html}});
}

std::string playground_page(const Tools& tools) {
  return page(tools, assets::playground_page(), Json::object(), 0,
              {{"title", "attention to play with"},
               {"version", version()},
               {"notice", tools.kernels.empty() ? notices_html({.d3 = "none needed", .kernels = ""}) : ""},
               {"playground", playground_html(tools)}});
}

std::string report(const std::vector<Record>& records, const std::vector<Entry>& ledger, const Tools& tools) {
  std::string sections;
  const std::string broken = breaks_html(records);
  for (const Record& record : records) {
    if (record.experiment->name() != "broken") sections += section_html(record, ledger);
  }
  const Settings settings = records.empty() ? Settings{} : records.front().settings;
  return page(tools, assets::story(), data_json(records), settings.seed,
              {{"title", "what 1/√d_k does, measured"},
               {"version", version()},
               {"profile", settings.full ? "full" : "quick"},
               {"seed", fmt::format("{}", settings.seed)},
               {"answer", answer_html(records)},
               {"notice", notices_html(tools)},
               {"steps", steps_html(records, ledger)},
               {"playground", playground_html(tools)},
               {"breaks", broken},
               {"sections", sections},
               {"counts", counts_html(ledger)},
               {"ledger", ledger_html(ledger)}});
}

}  // namespace keel::lab
