#include "lab/report/breaks_html.h"

#include <fmt/format.h>

#include <algorithm>

#include "lab/breaks/breaks.h"
#include "lab/command.h"
#include "lab/random.h"
#include "lab/report/html.h"

namespace keel::lab {
namespace {

// A break as one of the cases: by chance, so that its place tells nothing about its name.
std::vector<const Break*> cases(std::uint64_t seed) {
  std::vector<std::pair<double, const Break*>> drawn;
  for (const Break& each : breaks()) {
    double place = 0;
    Random(seed, "case/" + each.name).normal({&place, 1});
    drawn.push_back({place, &each});
  }
  std::sort(drawn.begin(), drawn.end());
  std::vector<const Break*> order;
  for (const auto& [place, each] : drawn) order.push_back(each);
  return order;
}

std::string value(const Result& result, const Break& which, Version version, const Question& question) {
  const Measurement& m =
      result.measurements.at(fmt::format("broken.{}.{}.{}", which.name, name_of(version), question.id));
  return spread_text(m.value, m.spread);
}

// The quantities, for each of the versions.
std::string quantities(const Result& result, const Break& which, const std::vector<Version>& versions) {
  Table table{{"quantity"}, {}};
  for (const Version version : versions)
    table.columns.push_back(versions.size() == 1 ? "seen" : version == Version::broken ? "broken" : "fixed");
  for (const Question& question : which.questions) {
    table.rows.push_back({question.text});
    for (const Version version : versions) table.rows.back().push_back(value(result, which, version, question));
  }
  return table_html(table);
}

// "broken-NAME-VERSION-loss", for each figure of a version.
std::vector<std::pair<std::string, const Figure*>> figures(const Result& result, const Break& which, Version version) {
  std::vector<std::pair<std::string, const Figure*>> found;
  for (const Figure& figure : result.figures) {
    if (figure.id.starts_with(fmt::format("{}-{}-", which.name, name_of(version))))
      found.push_back({"broken-" + figure.id, &figure});
  }
  return found;
}

std::string chart(const std::string& id, const std::string& title, const std::string& beside = "") {
  return fmt::format("<figure><h4>{}</h4><div class=\"chart\" data-figure=\"{}\"{}></div></figure>\n", escaped(title),
                     id, beside.empty() ? "" : fmt::format(" data-beside=\"{}\"", beside));
}

std::string symptoms(const Result& result, const Break& which) {
  std::string html = fmt::format("<h3>What it shows</h3>\n<p>{}</p>\n<div class=\"symptoms\">{}", escaped(which.scene),
                                 quantities(result, which, {Version::broken}));
  for (const auto& [id, figure] : figures(result, which, Version::broken)) html += chart(id, figure->title);
  return html + "</div>\n";
}

std::string questions(const Break& which) {
  std::string html = "<h3>Which line is it?</h3>\n<div class=\"suspects\" role=\"group\" aria-label=\"Your guess\">\n";
  for (const Break& each : breaks()) {
    html += fmt::format("<button type=\"button\" data-guess=\"{}\">{}</button>\n", each.name, escaped(each.suspect));
  }
  html += "</div>\n<p class=\"said\" role=\"status\"></p>\n<ol class=\"hints\">\n";
  for (const std::string& hint : which.hints) html += fmt::format("<li hidden>{}</li>\n", escaped(hint));
  return html +
         "</ol>\n<p class=\"asking\"><button type=\"button\" class=\"hint\">Give me a hint</button> <button "
         "type=\"button\" class=\"give-up\">Show me the line</button></p>\n";
}

std::string solution(const Result& result, const Break& which) {
  std::string html = fmt::format(
      "<div class=\"solution\" hidden>\n<h3>The line</h3>\n<pre class=\"diff\" tabindex=\"0\" role=\"region\" "
      "aria-label=\"The line, broken and fixed\"><del>− {}</del><ins>+ {}</ins></pre>\n<p>{}</p>\n<h3>The "
      "fix</h3>\n<p>{}</p>\n<h3>Broken and fixed, side by side</h3>\n{}<div class=\"sides\">\n",
      escaped(which.after), escaped(which.before), escaped(which.cause), escaped(which.fix),
      quantities(result, which, {Version::broken, Version::healthy}));
  const auto broken = figures(result, which, Version::broken), fixed = figures(result, which, Version::healthy);
  for (std::size_t i = 0; i < std::min(broken.size(), fixed.size()); ++i) {
    html += chart(broken[i].first, "Broken: " + broken[i].second->title, fixed[i].first);
    html += chart(fixed[i].first, "Fixed: " + fixed[i].second->title, broken[i].first);
  }
  return html + fmt::format(
                    "</div>\n<p class=\"settings\">In the terminal, with predictions: <code>{} lab break "
                    "{}</code></p>\n</div>\n",
                    escaped(keel_command()), which.name);
}

}  // namespace

std::string breaks_html(const std::vector<Record>& records) {
  const auto found = std::find_if(records.begin(), records.end(),
                                  [](const Record& r) { return r.experiment->name() == std::string("broken"); });
  if (found == records.end()) return "";
  std::string tabs, html;
  std::size_t number = 0;
  for (const Break* which : cases(found->settings.seed)) {
    ++number;
    tabs += fmt::format("<button type=\"button\" data-case=\"{}\" aria-pressed=\"{}\">Case {}</button>\n", which->name,
                        number == 1, number);
    html += fmt::format("<div class=\"case\" data-name=\"{}\"{}>\n{}{}{}</div>\n", which->name,
                        number == 1 ? "" : " hidden", symptoms(found->result, *which), questions(*which),
                        solution(found->result, *which));
  }
  return fmt::format(
      "<section id=\"breaks\" aria-labelledby=\"breaks-title\"><h2 id=\"breaks-title\">Find the broken line</h2>\n"
      "<p class=\"see\">In each case one line of attention is wrong, yet nothing crashes. Find the line from what it "
      "does.</p>\n<div class=\"cases choice\" role=\"group\" aria-label=\"Case\">\n{}</div>\n<p class=\"tally\" "
      "role=\"status\"></p>\n{}</section>\n",
      tabs, html);
}

}  // namespace keel::lab
