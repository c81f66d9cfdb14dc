#include "cli/statistics.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "cli/common/terminal.h"

namespace keel::cli {
namespace {

constexpr std::size_t kMostLines = 16;

std::string line(const std::string& label, const HeadStatistics& head) {
  if (head.rows == 0) return fmt::format("{:<12}  sees no key\n", label);
  return fmt::format("{:<12}  {:>10.4f}  {:>12.4f}  {:>11.4f}  {:>12.4f}  {:>8.2f}%\n", label, head.max_logit,
                     head.mean_entropy, head.min_entropy, head.normalised_entropy, head.saturated * 100);
}

nlohmann::ordered_json to_json(const HeadStatistics& head) {
  return {{"rows", head.rows},
          {"max_logit", head.max_logit},
          {"mean_entropy", head.mean_entropy},
          {"min_entropy", head.min_entropy},
          {"normalised_entropy", head.normalised_entropy},
          {"saturated", head.saturated}};
}

}  // namespace

HeadStatistics over_all(std::span<const HeadStatistics> heads) {
  HeadStatistics all{.max_logit = -INFINITY, .min_entropy = INFINITY};
  for (const HeadStatistics& head : heads) {
    if (head.rows == 0) continue;
    const auto rows = static_cast<double>(head.rows);
    // NaN is sticky: comparisons with it are false.
    if (!(head.max_logit <= all.max_logit)) all.max_logit = head.max_logit;
    if (!(head.min_entropy >= all.min_entropy)) all.min_entropy = head.min_entropy;
    all.mean_entropy += head.mean_entropy * rows;
    all.normalised_entropy += head.normalised_entropy * rows;
    all.saturated += head.saturated * rows;
    all.rows += head.rows;
  }
  if (all.rows == 0) {
    all.min_entropy = 0.0;
    return all;
  }
  const auto rows = static_cast<double>(all.rows);
  all.mean_entropy /= rows;
  all.normalised_entropy /= rows;
  all.saturated /= rows;
  return all;
}

std::string statistics_table(std::span<const HeadStatistics> heads, std::int64_t q_heads) {
  const bool entries = static_cast<std::int64_t>(heads.size()) > q_heads;
  std::string text = bold(fmt::format("{:<12}  {:>10}  {:>12}  {:>11}  {:>12}  {:>9}", entries ? "entry.head" : "head",
                                      "max logit", "mean entropy", "min entropy", "/ ln visible", "saturated"));
  text += '\n';
  for (std::size_t i = 0; i < std::min(heads.size(), kMostLines); ++i) {
    const auto at = static_cast<std::int64_t>(i);
    text += line(entries ? fmt::format("{}.{}", at / q_heads, at % q_heads) : fmt::format("{}", at), heads[i]);
  }
  if (heads.size() > kMostLines) text += fmt::format("... {} more; --stats FILE has all\n", heads.size() - kMostLines);
  if (heads.size() != 1) text += line("all", over_all(heads));
  return text;
}

nlohmann::ordered_json statistics_json(std::span<const HeadStatistics> heads, std::int64_t q_heads) {
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  for (std::size_t i = 0; i < heads.size(); ++i) {
    const auto at = static_cast<std::int64_t>(i);
    nlohmann::ordered_json head = {{"entry", at / q_heads}, {"head", at % q_heads}};
    head.update(to_json(heads[i]));
    list.push_back(std::move(head));
  }
  return {{"all", to_json(over_all(heads))}, {"heads", std::move(list)}};
}

}  // namespace keel::cli
