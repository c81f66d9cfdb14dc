#include "lab/translate/say.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>

#include "io/utf8.h"
#include "keel/error.h"
#include "lab/translate/bleu.h"
#include "lab/translate/options.h"
#include "lab/translate/search.h"
#include "lab/translate/tsv.h"

namespace keel::lab::translate {
namespace {

constexpr std::int64_t kBeam = 4;

// ASCII alone.
std::string in_lower_case(std::string word) {
  for (char& c : word) c = c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  return word;
}

// Raises keel::Error, Json::exception or std::logic_error for what save() did not write.
TrainedArm read(const nn::Checkpoint& checkpoint, const Arm& arm) {
  TrainedArm trained{arm, Language(Json::parse(checkpoint.text("source"))),
                     Language(Json::parse(checkpoint.text("target"))), std::stoll(checkpoint.text("longest")), nullptr};
  const auto refuse = [](const std::string& what) { throw Error(ErrorCode::bad_file, "[translate] " + what); };
  if (trained.longest < 1 || trained.longest > kLongestTranslation) {
    refuse(fmt::format("longest: expected from 1 to {}, got {}", kLongestTranslation, trained.longest));
  }
  nn::Random random(0);
  trained.model = make_model(arm, model_sizes(trained.source, trained.target), random);
  trained.model->load(checkpoint.tensors);
  for (const auto& [name, tensor] : trained.model->parameters()) {
    for (const float x : tensor.data<float>()) {
      if (!std::isfinite(x)) refuse(fmt::format("{}: expected finite numbers, got {}", name, x));
    }
  }
  return trained;
}

}  // namespace

void check_sentence(const std::string& sentence) {
  const auto refuse = [](const std::string& what) {
    throw Error(ErrorCode::invalid_argument, "[translate] --say: expected " + what);
  };
  if (io::invalid_utf8(sentence) != std::string::npos) refuse("UTF-8, got other bytes");
  if (io::has_control_character(sentence)) refuse("text, got a control character");
  const std::size_t words = tokenised(sentence, Tokens::none).size();
  if (words == 0) refuse("a sentence, got no words");
  if (words > kMostInSentence) refuse(fmt::format("at most {} words, got {}", kMostInSentence, words));
}

void save(const TrainedArm& arm, const std::string& path, const Json& run) {
  nn::save_checkpoint(path, {.tensors = arm.model->parameters(),
                             .metadata = {{"run", run.dump()},
                                          {"source", arm.source.json().dump()},
                                          {"target", arm.target.json().dump()},
                                          {"longest", fmt::format("{}", arm.longest)}}});
}

std::optional<TrainedArm> load(const std::string& path, const Json& run) {
  if (!std::filesystem::is_regular_file(path)) return {};
  try {
    const nn::Checkpoint checkpoint = nn::load_checkpoint(path);
    if (Json::parse(checkpoint.text("run")) != run) return {};
    return read(checkpoint, arm_by_id(run.at("arm")));
  } catch (const Error&) {  // not ours, or damaged: train again
    return {};
  } catch (const Json::exception&) {
    return {};
  } catch (const std::logic_error&) {
    return {};
  }
}

TrainedArm train_arm(const Arm& arm, const Work& work, const std::function<void(double)>& progress) {
  const ComparisonSettings settings = comparison_settings(work);
  const TranslateOptions options(work.settings());
  constexpr double kReading = 0.05;
  const Loaded loaded =
      load_task(options, settings.sizes, work.settings().seed, [&](double share) { progress(kReading * share); });
  const auto steps = static_cast<double>(settings.training.steps);
  TrainedModel found = trained(arm, loaded.task, settings.training, first_seed(work), [&](std::int64_t step) {
    progress(kReading + (1 - kReading) * static_cast<double>(step - 1) / steps);
  });
  return {arm, loaded.task.source, loaded.task.target, loaded.task.longest(), std::move(found.model)};
}

Heatmap Said::heatmap() const { return {"target", "source", "weight", target, source, weights, 0, 1}; }

Said say(const TrainedArm& arm, const std::string& sentence) {
  check_sentence(sentence);
  Said said;
  std::vector<std::string> words = tokenised(sentence, Tokens::none);
  for (std::string& word : words) {
    const auto known = arm.source.numbers({word});
    if (std::count(known.begin(), known.end(), kUnknown) > 0) word = in_lower_case(std::move(word));
  }
  const std::vector<std::int64_t> numbers = arm.source.numbers(words);
  said.source = arm.source.units(words);
  for (std::size_t i = 0; i < numbers.size(); ++i) {
    if (numbers[i] == kUnknown) said.unknown.push_back(said.source[i]);
  }
  Coded pair{numbers, {}};
  pair.target = beam(*arm.model, source_batch(std::span(&pair, 1), {0}), kBeam, arm.longest);
  said.translation = arm.target.words(pair.target);
  said.target = arm.target.units(said.translation);
  if (const nn::Tensor weights = weights_of(*arm.model, pair); weights.given()) said.weights = weights.values();
  said.source.emplace_back("</s>");
  said.target.emplace_back("</s>");
  return said;
}

}  // namespace keel::lab::translate
