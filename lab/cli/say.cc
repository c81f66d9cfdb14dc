#include "lab/cli/say.h"

#include <fmt/format.h>

#include <cmath>

#include "cli/common/interrupt.h"
#include "cli/common/program.h"
#include "cli/common/progress.h"
#include "cli/common/terminal.h"
#include "io/file.h"
#include "io/utf8.h"
#include "lab/cli/plot.h"
#include "lab/folder.h"
#include "lab/report/report.h"
#include "lab/translate/options.h"
#include "lab/translate/say.h"

namespace keel::cli {
namespace {

using lab::Json;
using namespace lab::translate;

constexpr const char* kDefaultArm = "scaled-64";
constexpr std::size_t kWidth = 100;

// One line per target word under a line of the source words; several blocks if those are too many for one line.
void print_map(const Said& said) {
  std::size_t margin = 0;
  for (const std::string& word : said.target) margin = std::max(margin, io::characters_in(word));
  for (std::size_t begin = 0, end = 0; begin < said.source.size(); begin = end) {
    std::size_t width = margin;
    std::string head = padded("", margin, true);
    for (end = begin; end < said.source.size(); ++end) {
      const std::size_t own = std::max<std::size_t>(2, io::characters_in(said.source[end])) + 1;
      if (end > begin && width + own > kWidth) break;
      width += own;
      head += " " + padded(said.source[end], own - 1, false);
    }
    fmt::print("\n{}\n", head);
    for (std::size_t i = 0; i < said.target.size(); ++i) {
      std::string line = padded(said.target[i], margin, true);
      for (std::size_t j = begin; j < end; ++j) {
        line += ' ';
        const std::size_t own = std::max<std::size_t>(2, io::characters_in(said.source[j]));
        for (std::size_t n = 0; n < own; ++n) line += shade(said.weights[i * said.source.size() + j]);
      }
      fmt::print("{}\n", line);
    }
  }
  fmt::print("\n{}\n", kShades);
}

Json to_json(const Said& said, const Arm& arm, const std::string& page) {
  Json rows = Json::array();
  for (std::size_t i = 0; !said.weights.empty() && i < said.target.size(); ++i) {
    const auto begin = said.weights.begin() + static_cast<std::ptrdiff_t>(i * said.source.size());
    rows.push_back(std::vector<double>(begin, begin + static_cast<std::ptrdiff_t>(said.source.size())));
  }
  return {{"arm", arm.id},
          {"translation", joined(said.translation)},
          {"unknown", said.unknown},
          {"source", said.source},
          {"target", said.target},
          {"weights", rows},
          {"page", page}};
}

// On stderr, since the translation goes on without them.
void warn(const std::vector<std::string>& unknown) {
  if (unknown.empty()) return;
  std::string words;
  for (const std::string& word : unknown) words += (words.empty() ? "'" : ", '") + word + "'";
  complain(
      fmt::format("--say: expected words of the training sentences, got {}; the translation is unreliable there", words)
          .c_str());
}

TrainedArm obtain(const SayRequest& request, const Arm& arm, const std::string& path) {
  const lab::Work work(request.settings);
  Json run = lab::identity(*lab::find_experiment("translate"), request.settings);
  run["arm"] = arm.id;
  if (auto found = load(path, run)) return std::move(*found);
  const InterruptGuard guard;
  Progress progress(!request.quiet);
  try {
    TrainedArm fresh = train_arm(arm, work, [&](double share) {
      if (interrupted()) throw lab::Stopped{};
      progress.show("training " + arm.name, share);
    });
    save(fresh, path, run);
    return fresh;
  } catch (const lab::Stopped&) {
    progress.clear();
    complain("interrupted, nothing was trained");
    end_interrupted();
  }
}

}  // namespace

void say(const SayRequest& request) {
  const TranslateOptions options(request.settings);
  const Arm& arm = arm_by_id(options.arm.empty() ? kDefaultArm : options.arm);
  check_sentence(request.sentence);
  const lab::Folder folder(request.folder);
  const TrainedArm trained = obtain(request, arm, fmt::format("{}/translate-{}.safetensors", request.folder, arm.id));
  const Said said = say(trained, request.sentence);
  if (!request.quiet) warn(said.unknown);
  const std::string page = fmt::format("{}/translate-say.html", request.folder);
  const std::string source = joined(words_of(request.sentence)), target = joined(said.translation);
  std::vector<lab::Figure> figures;
  if (!said.weights.empty()) {
    figures.push_back({"map", arm.name, "What each target word attended to.", said.heatmap()});
  }
  io::write_file(
      page, lab::figure_page(
                source + " → " + target,
                fmt::format("Translated by {}; {} parameters.", arm.name, trained.model->parameter_count()), figures));
  if (request.json) {
    fmt::print("{}\n", to_json(said, arm, page).dump(2, ' ', false, Json::error_handler_t::replace));
    return;
  }
  if (request.quiet) return;
  fmt::print("{}\n", bold(target));
  if (said.weights.empty())
    fmt::print("\n{} has no attention, so there is no heatmap\n", arm.name);
  else
    print_map(said);
  fmt::print("{}, as a page: {}\n", arm.name, page);
}

}  // namespace keel::cli
