#include "lab/translate/bleu.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <string_view>

namespace keel::lab::translate {
namespace {

constexpr std::size_t kOrder = 4;

// How many bytes of white space, as Unicode defines it, `text` begins with.
std::size_t space_at(std::string_view text) {
  const auto byte = [&](std::size_t i) { return i < text.size() ? static_cast<unsigned char>(text[i]) : 0u; };
  const unsigned a = byte(0), b = byte(1), c = byte(2);
  if (a == ' ' || (a >= 0x09 && a <= 0x0d) || (a >= 0x1c && a <= 0x1f)) return 1;
  if (a == 0xc2 && (b == 0x85 || b == 0xa0)) return 2;
  if (a == 0xe1 && b == 0x9a && c == 0x80) return 3;                                                          // U+1680
  if (a == 0xe2 && b == 0x80 && ((c >= 0x80 && c <= 0x8a) || c == 0xa8 || c == 0xa9 || c == 0xaf)) return 3;  // U+20xx
  if (a == 0xe2 && b == 0x81 && c == 0x9f) return 3;                                                          // U+205F
  if (a == 0xe3 && b == 0x80 && c == 0x80) return 3;                                                          // U+3000
  return 0;
}

// Without trailing white space.
std::string trimmed(std::string_view text) {
  std::size_t end = 0;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t space = space_at(text.substr(at));
    at += std::max<std::size_t>(space, 1);
    if (space == 0) end = at;
  }
  return std::string(text.substr(0, end));
}

std::vector<std::string> split(std::string_view text) {
  std::vector<std::string> words;
  std::size_t begin = 0, at = 0;
  const auto cut = [&] {
    if (at > begin) words.emplace_back(text.substr(begin, at - begin));
  };
  while (at < text.size()) {
    const std::size_t space = space_at(text.substr(at));
    if (space == 0) {
      ++at;
      continue;
    }
    cut();
    begin = at += space;
  }
  cut();
  return words;
}

void replace_all(std::string& text, std::string_view what, std::string_view with) {
  for (std::size_t at = text.find(what); at != std::string::npos; at = text.find(what, at + with.size())) {
    text.replace(at, what.size(), with);
  }
}

bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_stop(char c) { return c == '.' || c == ','; }
// ASCII except letters, digits, and ' , - .
bool stands_apart(char c) {
  return (c >= '{' && c <= '~') || (c >= '[' && c <= '`') || (c >= ' ' && c <= '&') || (c >= '(' && c <= '+') ||
         (c >= ':' && c <= '@') || c == '/';
}

// Each pair of neighbours for which `both` holds, neither yet part of one, with `before`, between and `after` it.
template <class Both>
std::string parted(const std::string& text, const Both& both, const char* before, const char* after) {
  std::string result;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (i + 1 < text.size() && both(text[i], text[i + 1])) {
      result += before;
      result += text[i];
      result += ' ';
      result += text[++i];
      result += after;
    } else {
      result += text[i];
    }
  }
  return result;
}

std::string parted_13a(std::string text) {
  replace_all(text, "<skipped>", "");
  replace_all(text, "-\n", "");
  replace_all(text, "\n", " ");
  replace_all(text, "&quot;", "\"");
  replace_all(text, "&amp;", "&");
  replace_all(text, "&lt;", "<");
  replace_all(text, "&gt;", ">");
  std::string apart;
  for (const char c : " " + text + " ") {
    if (stands_apart(c)) {
      apart += ' ';
      apart += c;
      apart += ' ';
    } else {
      apart += c;
    }
  }
  apart = parted(
      apart, [](char a, char b) { return !is_digit(a) && is_stop(b); }, "", " ");
  apart = parted(
      apart, [](char a, char b) { return is_stop(a) && !is_digit(b); }, " ", "");
  return parted(
      apart, [](char a, char b) { return is_digit(a) && b == '-'; }, "", " ");
}

// How often each run of 1 to 4 words occurs; words have no spaces, so joined runs stay distinct.
std::array<std::map<std::string, std::int64_t>, kOrder> runs_of(const std::vector<std::string>& words) {
  std::array<std::map<std::string, std::int64_t>, kOrder> runs;
  for (std::size_t i = 0; i < words.size(); ++i) {
    std::string run;
    for (std::size_t n = 0; n < kOrder && i + n < words.size(); ++n) {
      run += ' ';
      run += words[i + n];
      ++runs[n][run];
    }
  }
  return runs;
}

}  // namespace

std::vector<std::string> tokenised(const std::string& line, Tokens tokens) {
  return split(tokens == Tokens::none ? line : parted_13a(trimmed(line)));
}

BleuCounts count_matches(std::span<const std::string> translations,
                         std::span<const std::vector<std::string>> references, Tokens tokens) {
  BleuCounts counts;
  for (std::size_t i = 0; i < translations.size(); ++i) {
    const std::vector<std::string> words = tokenised(translations[i], tokens);
    std::array<std::map<std::string, std::int64_t>, kOrder> most;  // of each run, in any reference
    std::int64_t closest = 0;
    bool first = true;
    const auto length = std::ssize(words);
    for (const std::string& reference : references[i]) {
      const std::vector<std::string> of_reference = tokenised(reference, tokens);
      const auto n = std::ssize(of_reference);
      const auto off = std::abs(n - length), best = std::abs(closest - length);
      if (first || off < best || (off == best && n < closest)) closest = n;
      first = false;
      const auto runs = runs_of(of_reference);
      for (std::size_t order = 0; order < kOrder; ++order) {
        for (const auto& [run, count] : runs[order]) most[order][run] = std::max(most[order][run], count);
      }
    }
    counts.length += length;
    counts.reference_length += closest;
    const auto runs = runs_of(words);
    for (std::size_t order = 0; order < kOrder; ++order) {
      for (const auto& [run, count] : runs[order]) {
        const auto found = most[order].find(run);
        if (found != most[order].end()) counts.matches[order] += std::min(count, found->second);
        counts.totals[order] += count;
      }
    }
  }
  return counts;
}

double bleu(const BleuCounts& counts) {
  const auto& [matches, totals, length, reference_length] = counts;
  if (std::count(matches.begin(), matches.end(), 0) == std::ssize(matches)) return 0;
  double logs = 0, halvings = 1;
  for (std::size_t n = 0; n < kOrder; ++n) {
    if (totals[n] == 0) return 0;
    const auto total = static_cast<double>(totals[n]);
    if (matches[n] == 0) {  // half a match, then a quarter, …
      halvings *= 2;
      logs += std::log(100 / (halvings * total));
    } else {
      logs += std::log(100 * static_cast<double>(matches[n]) / total);
    }
  }
  double brevity = 1;
  if (length < reference_length) {
    brevity = length > 0 ? std::exp(1 - static_cast<double>(reference_length) / static_cast<double>(length)) : 0;
  }
  return brevity * std::exp(logs / static_cast<double>(kOrder));
}

}  // namespace keel::lab::translate
