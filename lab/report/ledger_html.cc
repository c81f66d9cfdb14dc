#include "lab/report/ledger_html.h"

#include <fmt/format.h>

#include <array>

#include "lab/report/html.h"

namespace keel::lab {
namespace {

struct Kind {
  Ruling ruling;
  const char *id, *one, *many;

  const char* label(std::size_t n) const { return n == 1 ? one : many; }
};
constexpr std::array<Kind, 4> kKinds{
    {{Ruling::holds, "holds", "holds", "hold"},
     {Ruling::holds_if, "holds-if", "holds under a condition", "hold under a condition"},
     {Ruling::does_not_hold, "fails", "does not hold", "do not hold"},
     {Ruling::undecided, "undecided", "is undecided", "are undecided"}}};

const char* class_of(Ruling ruling) {
  for (const Kind& kind : kKinds) {
    if (kind.ruling == ruling) return kind.id;
  }
  return "";
}

// The ledger by document, in its order.
std::vector<std::vector<Entry>> by_document(const std::vector<Entry>& ledger) {
  std::vector<std::vector<Entry>> documents;
  for (const Entry& entry : ledger) {
    if (documents.empty() || documents.back().back().document != entry.document) documents.emplace_back();
    documents.back().push_back(entry);
  }
  return documents;
}

// "document-003"
std::string anchor(const std::string& document) { return "document-" + document.substr(0, document.find(' ')); }

// "5 hold, 1 does not hold"
std::string counts_text(const std::vector<Entry>& entries) {
  std::string text;
  for (const Kind& kind : kKinds) {
    const std::size_t n = count(entries, kind.ruling);
    if (n > 0) text += fmt::format("{}{} {}", text.empty() ? "" : ", ", n, kind.label(n));
  }
  return text;
}

// The measurements a verdict was computed from.
std::string evidence_html(const Entry& entry) {
  if (entry.evidence.empty()) return "";
  Table table{{"measurement", "mean", "standard deviation", "repeats"}, {}};
  for (const auto& [key, m] : entry.evidence) {
    table.rows.push_back({key, m.value, m.spread, static_cast<double>(m.repeats)});
  }
  return fmt::format("<details><summary>Evidence</summary>{}</details>", table_html(table));
}

std::string entry_html(const Entry& entry) {
  const std::string decider =
      entry.experiment.empty() ? "no measurement" : fmt::format("<a href=\"#{0}\">{0}</a>", entry.experiment);
  return fmt::format(
      "<tr class=\"entry {0}\" id=\"{1}\"><td data-label=\"Verdict\"><span class=\"verdict {0}\">{2}</span></td><td "
      "data-label=\"Claim\">{3} <a class=\"id\" href=\"#{1}\">{1}</a></td><td data-label=\"Claimed\">{4}</td><td "
      "data-label=\"Measured\">{5} <span class=\"spread\">{6}</span>{7}</td><td data-label=\"Decided "
      "by\">{8}</td></tr>\n",
      class_of(entry.verdict.ruling), entry.id, escaped(entry.verdict.text()), escaped(entry.claim),
      escaped(entry.claimed), escaped(with_minus(entry.measured)), escaped(entry.spread), evidence_html(entry),
      decider);
}

}  // namespace

std::string counts_html(const std::vector<Entry>& ledger) {
  std::string html = "<div class=\"counts\" role=\"group\" aria-label=\"Show only claims that …\">\n";
  for (const Kind& kind : kKinds) {
    const std::size_t n = count(ledger, kind.ruling);
    html += fmt::format(
        "<button type=\"button\" class=\"count {0}\" data-filter=\"{0}\" aria-pressed=\"false\"><b>{1}</b> "
        "{2}</button>\n",
        kind.id, n, kind.label(n));
  }
  return html + "</div>\n";
}

std::string ledger_html(const std::vector<Entry>& ledger) {
  std::string html;
  for (const std::vector<Entry>& entries : by_document(ledger)) {
    const std::string& document = entries.front().document;
    html += fmt::format(
        "<details class=\"document\" id=\"{}\"><summary><b>{}</b> <span class=\"spread\">{}</span></summary>\n"
        "<table class=\"ledger\"><thead><tr><th scope=\"col\">Verdict</th><th scope=\"col\">Claim</th><th "
        "scope=\"col\">Claimed</th><th scope=\"col\">Measured</th><th scope=\"col\">Decided "
        "by</th></tr></thead><tbody>\n",
        anchor(document), escaped(document), counts_text(entries));
    for (const Entry& entry : entries) html += entry_html(entry);
    html += "</tbody></table></details>\n";
  }
  return html;
}

std::string verdict_bars_html(const std::vector<Entry>& ledger) {
  std::string html = "<ul class=\"verdict-bars\">\n";
  for (const std::vector<Entry>& entries : by_document(ledger)) {
    const std::string& document = entries.front().document;
    html += fmt::format("<li><a href=\"#{}\">{}</a><span class=\"bar\" role=\"img\" aria-label=\"{}\">",
                        anchor(document), escaped(document), counts_text(entries));
    for (const Kind& kind : kKinds) {
      const std::size_t n = count(entries, kind.ruling);
      if (n > 0) html += fmt::format("<i class=\"{}\" style=\"flex-grow:{}\">{}</i>", kind.id, n, n);
    }
    html += "</span></li>\n";
  }
  return html + "</ul>\n";
}

std::string decided_html(const std::vector<Entry>& ledger, const std::string& experiment) {
  std::string decided;
  for (const Entry& entry : ledger) {
    if (entry.experiment != experiment) continue;
    decided +=
        fmt::format("<li><span class=\"verdict {}\">{}</span> <a href=\"#{}\">{}</a></li>\n",
                    class_of(entry.verdict.ruling), escaped(entry.verdict.text()), entry.id, escaped(entry.claim));
  }
  if (decided.empty()) return "";
  return fmt::format("<details><summary>Claims decided here</summary><ul>{}</ul></details>\n", decided);
}

}  // namespace keel::lab
