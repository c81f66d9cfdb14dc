#include "lab/translate/options.h"

#include <fmt/format.h>
#include <unistd.h>

#include <chrono>

#include "io/digest.h"
#include "io/messages.h"
#include "keel/error.h"
#include "lab/translate/tsv.h"

namespace keel::lab::translate {
namespace {

Units units_by_name(const std::string& name) {
  if (name.empty() || name == "auto") return Units::automatic;
  if (name == "words") return Units::words;
  if (name == "bpe") return Units::bpe;
  throw Error(ErrorCode::invalid_argument,
              fmt::format("[translate] vocabulary: expected auto, words or bpe, got '{}'", io::printable(name)));
}

}  // namespace

TranslateOptions::TranslateOptions(const Settings& settings) {
  const auto option = [&](const char* name) {
    const auto found = settings.options.find(name);
    return found == settings.options.end() ? std::string() : found->second;
  };
  data = option("data");
  if (const auto found = settings.digests.find("data"); found != settings.digests.end()) digest = found->second;
  arm = option("arm");
  units = units_by_name(option("vocabulary"));
  few = settings.short_form && !settings.full;
  arms();
}

void TranslateOptions::take_digests(Settings& settings) {
  const auto data = settings.options.find("data");
  if (data == settings.options.end()) return;
  // What can be read only once cannot be identified beforehand: its run is unique.
  settings.digests["data"] = io::file_digest(data->second)
                                 .value_or(fmt::format("a stream read by process {} at {}", ::getpid(),
                                                       std::chrono::system_clock::now().time_since_epoch().count()));
}

std::vector<Arm> TranslateOptions::arms() const {
  if (!arm.empty()) return {arm_by_id(arm)};
  std::vector<Arm> all = translate::arms();
  if (few) std::erase_if(all, [](const Arm& a) { return !a.in_short_form(); });
  return all;
}

Loaded load_task(const TranslateOptions& options, const SetSizes& sizes, std::uint64_t seed,
                 const std::function<void(double)>& progress) {
  if (options.data.empty()) {
    return {
        make_task(generate_sets(seed, sizes), options.units), "English and German sentences of Keel's own grammar", {}};
  }
  PairFile file = read_pairs(options.data, progress);
  if (file.regular && !options.digest.empty() && file.digest != options.digest) {
    throw Error(
        ErrorCode::bad_file,
        fmt::format(
            "[translate] {}: expected the content it had when the run began (digest {}), got different content ({})",
            io::path_text(options.data), options.digest, file.digest));
  }
  std::vector<std::string> notes;
  if (file.bad > 0 || file.repeated > 0) {
    std::string text = fmt::format("{}: {} of {} lines are left out, {} because they repeat a sentence",
                                   io::path_text(options.data), file.bad + file.repeated, file.lines, file.repeated);
    for (const std::string& problem : file.problems) text += "; " + problem;
    if (file.bad > file.problems.size()) text += fmt::format("; and {} more", file.bad - file.problems.size());
    notes.push_back(text + ".");
  }
  Task task = make_task(split_pairs(std::move(file.pairs)), options.units);
  const bool pieces = task.source.splits_words() || task.target.splits_words();
  return {std::move(task), io::path_text(options.data) + (pieces ? ", words in pieces (BPE)" : ""), std::move(notes)};
}

}  // namespace keel::lab::translate
