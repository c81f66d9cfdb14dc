#include "lab/translate/tsv.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <string_view>
#include <unordered_set>

#include "io/digest.h"
#include "io/file.h"
#include "io/messages.h"
#include "io/utf8.h"
#include "keel/error.h"
#include "lab/translate/bleu.h"

namespace keel::lab::translate {
namespace {

constexpr std::size_t kShownProblems = 10;
constexpr std::uint64_t kChunk = 1 << 18;

// Why a line cannot be used, or its pair.
struct Line {
  std::string problem;
  Pair pair;
};

Line parse(std::string_view line) {
  if (const std::size_t at = io::invalid_utf8(line); at != std::string_view::npos) {
    return {fmt::format("expected UTF-8, got byte 0x{:02x} at column {}", static_cast<unsigned char>(line[at]), at + 1),
            {}};
  }
  const auto tabs = std::count(line.begin(), line.end(), '\t');
  if (tabs != 1) return {fmt::format("expected two columns separated by a tab, got {}", tabs + 1), {}};
  if (io::has_control_character(line)) return {"expected text, got a control character", {}};
  const std::size_t tab = line.find('\t');
  Pair pair{.source = tokenised(std::string(line.substr(0, tab)), Tokens::none),
            .target = tokenised(std::string(line.substr(tab + 1)), Tokens::none),
            .alignment = {}};
  for (const auto& [words, column] : {std::pair{&pair.source, "first"}, {&pair.target, "second"}}) {
    if (words->empty()) return {fmt::format("expected words in the {} column, got none", column), {}};
    if (words->size() > kMostInSentence) {
      return {fmt::format("expected at most {} words in the {} column, got {}", kMostInSentence, column, words->size()),
              {}};
    }
  }
  return {"", std::move(pair)};
}

// Lines as they arrive, keeping at most kLongestLine bytes of each.
class Reader {
 public:
  explicit Reader(PairFile& into) : into_(into) {}

  void feed(std::string_view bytes) {
    while (!bytes.empty()) {
      const std::size_t end = bytes.find('\n');
      const std::string_view part = bytes.substr(0, end);
      length_ += part.size();
      if (line_.size() < kLongestLine + 1) line_.append(part.substr(0, kLongestLine + 1 - line_.size()));
      if (end == std::string_view::npos) return;
      finish();
      bytes.remove_prefix(end + 1);
    }
  }

  void end() {
    if (length_ > 0) finish();
  }

 private:
  void finish() {
    ++into_.lines;
    if (into_.lines == 1 && line_.starts_with("\xef\xbb\xbf")) line_.erase(0, 3);  // byte order mark
    if (line_.ends_with('\r')) line_.pop_back();
    Line line;
    if (length_ > kLongestLine)
      line.problem = fmt::format("expected at most {} bytes, got {}", kLongestLine, length_);
    else
      line = parse(line_);
    if (!line.problem.empty()) {
      ++into_.bad;
      if (into_.problems.size() < kShownProblems) {
        into_.problems.push_back(fmt::format("line {}: {}", into_.lines, line.problem));
      }
    } else if (!known_.insert(joined(line.pair.source)).second) {
      ++into_.repeated;
    } else if (into_.pairs.size() < kMostPairs) {
      into_.pairs.push_back(std::move(line.pair));
    }
    line_.clear();
    length_ = 0;
  }

  PairFile& into_;
  std::unordered_set<std::string> known_;
  std::string line_;
  std::size_t length_ = 0;
};

}  // namespace

PairFile read_pairs(const std::string& path, const std::function<void(double)>& progress) {
  PairFile file;
  io::InputFile input(path);
  file.regular = input.remaining().has_value();
  const std::uint64_t whole = input.remaining().value_or(0);
  io::Digest digest;
  Reader reader(file);
  for (std::uint64_t done = 0;;) {
    io::Buffer chunk;
    input.append(chunk, kChunk);
    if (chunk.size() == 0) break;
    reader.feed({reinterpret_cast<const char*>(chunk.data()), chunk.size()});
    digest.add(chunk);
    done += chunk.size();
    progress(whole > 0 ? std::min(1.0, static_cast<double>(done) / static_cast<double>(whole)) : 0.0);
  }
  reader.end();
  file.digest = digest.text();
  if (file.pairs.size() < kFewestPairs) {
    std::string got = file.lines == 0 ? "an empty file" : fmt::format("{} in {} lines", file.pairs.size(), file.lines);
    for (const std::string& problem : file.problems) got += "; " + problem;
    if (file.repeated > 0) got += fmt::format("; {} lines repeat a sentence", file.repeated);
    throw Error(ErrorCode::bad_file, fmt::format("[translate] {}: expected at least {} pairs of sentences, got {}",
                                                 io::path_text(path), kFewestPairs, got));
  }
  return file;
}

Sets split_pairs(std::vector<Pair> pairs) {
  constexpr std::size_t kShare = 20, kMostTested = 500;
  std::vector<std::size_t> lengths;
  for (const Pair& pair : pairs) lengths.push_back(pair.source.size());
  const auto rank = lengths.begin() + static_cast<std::ptrdiff_t>(lengths.size() - 1 - lengths.size() / kShare);
  std::nth_element(lengths.begin(), rank, lengths.end());
  const std::size_t longest = *rank;
  const std::size_t tested = std::min(kMostTested, pairs.size() / kShare);
  Sets sets;
  for (std::size_t i = 0; i < pairs.size(); ++i) {
    const std::size_t turn = i % kShare;  // evenly through the file
    std::vector<Pair>* set = &sets.train;
    if (pairs[i].source.size() > longest)
      set = &sets.longer;
    else if (turn == 0 && sets.test.size() < tested)
      set = &sets.test;
    else if (turn == kShare / 2 && sets.validation.size() < tested)
      set = &sets.validation;
    if (set == &sets.longer && sets.longer.size() >= kMostTested) continue;  // too long to be trained on
    set->push_back(std::move(pairs[i]));
  }
  for (std::vector<Pair>* set : {&sets.test, &sets.validation}) {  // whatever the order of lengths in the file
    if (!set->empty()) continue;
    set->push_back(std::move(sets.train.back()));
    sets.train.pop_back();
  }
  return sets;
}

}  // namespace keel::lab::translate
