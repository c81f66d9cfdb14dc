// The comparison: reproducible, complete, and told from its measurements.
#include "lab/translate/comparison.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "keel/error.h"
#include "lab/json.h"
#include "lab/record.h"
#include "lab/translate/options.h"
#include "lab/translate/say.h"
#include "support/temporary_folder.h"
#include "tiny.h"

namespace keel::lab::translate {
namespace {

using test::TemporaryFolder;
using testing::HasSubstr;

TEST(Comparison, IsTheSameForAnyNumberOfThreads) {
  const auto written = [](int threads) {
    return to_json(test::tiny_comparison({.seed = 3, .repeats = 2, .threads = threads})).dump();
  };
  EXPECT_EQ(written(1), written(2));
}

TEST(Comparison, TheShortFormIsSmallerAndAnotherRun) {
  Settings whole, brief;
  brief.short_form = true;
  const auto ids = [](const Settings& settings) {
    std::vector<std::string> all;
    for (const Arm& arm : TranslateOptions(settings).arms()) all.push_back(arm.id);
    return all;
  };
  EXPECT_THAT(ids(brief), testing::ElementsAre("none", "additive", "dot-16", "dot-64", "dot-256", "scaled-16",
                                               "scaled-64", "scaled-256"));
  EXPECT_EQ(ids(whole).size(), arms().size());
  EXPECT_LT(comparison_settings(Work(brief)).training.steps, comparison_settings(Work(whole)).training.steps);
  const Experiment& translate = *find_experiment("translate");
  EXPECT_NE(identity(translate, brief), identity(translate, whole));
  EXPECT_LT(translate.cost(brief), translate.cost(whole));
}

TEST(Comparison, MeasuresAndDrawsEveryArm) {
  const Result result = test::tiny_comparison({.seed = 1, .repeats = 2});
  for (const Arm& arm : arms()) {
    for (const char* what : {"bleu", "bleu_longer", "exact", "loss", "parameters", "megabytes"}) {
      EXPECT_EQ(result.measurements.at("translate." + arm.id + "." + what).repeats, 2) << arm.id;
    }
    EXPECT_EQ(result.measurements.contains("translate." + arm.id + ".alignment"), arm.look != Look::none);
    EXPECT_GT(result.times.at("translate." + arm.id + ".seconds_per_epoch"), 0);
    const auto drawn = [&](const std::string& id) {
      return std::any_of(result.figures.begin(), result.figures.end(), [&](const Figure& f) { return f.id == id; });
    };
    EXPECT_EQ(drawn("map1-" + arm.id), arm.look != Look::none);
  }
  for (const char* d : {"64", "256"}) {  // unscaled scores begin sharper
    const auto largest = [&](const char* look) {
      return result.at(fmt::format("translate.{}-{}.largest_start", look, d));
    };
    EXPECT_GT(largest("dot"), 1.2 * largest("scaled"));
  }
  const std::string findings = testing::PrintToString(result.findings) + testing::PrintToString(result.times.findings);
  for (const char* said :
       {"Additive against scaled dot", "aligns best", "At d_k 16 the scaling", "At d_k 64 the scaling",
        "At d_k 256 the scaling", "Fastest is", "times as long as one with scaled dot"}) {
    EXPECT_THAT(findings, HasSubstr(said));
  }
}

TEST(Options, AreCheckedBeforeAnyWork) {
  const auto with = [](const char* name, const char* value) { TranslateOptions({.options = {{name, value}}}); };
  EXPECT_THROW(with("arm", "cosine"), Error);
  EXPECT_THROW(with("vocabulary", "letters"), Error);
  EXPECT_EQ(TranslateOptions({.options = {{"arm", "general"}}}).arms().size(), 1u);
}

TEST(Comparison, EachArmCanBeRunAlone) {
  for (const char* id : {"none", "additive", "scaled-64", "transformer"}) {
    const Result result = test::tiny_comparison({.seed = 1, .repeats = 2}, {arm_by_id(id)});
    EXPECT_FALSE(result.findings.empty()) << id;
    EXPECT_TRUE(result.measurements.contains(std::string("translate.") + id + ".bleu")) << id;
  }
}

TEST(Say, WhatWasTrainedIsSavedAndFound) {
  const TemporaryFolder folder;
  const Task task = make_task(generate_sets(1, {600, 20, 20, 20}), Units::automatic);
  const Json run = {{"arm", "additive"}, {"seed", 0}};
  const Arm& arm = arm_by_id("additive");
  const TrainedArm fresh{arm, task.source, task.target, task.longest(),
                         trained(arm, task, {.steps = 40, .lr = 0.01}, 1, [](std::int64_t) {}).model};
  const std::string path = folder / "arm.safetensors";
  EXPECT_FALSE(load(path, run));
  save(fresh, path, run);
  const auto again = load(path, run);
  ASSERT_TRUE(again);
  const std::string sentence = "The third of May at half past three zzz";
  const Said a = say(fresh, sentence), b = say(*again, sentence);
  EXPECT_EQ(a.translation, b.translation);
  EXPECT_EQ(a.weights, b.weights);
  EXPECT_THAT(a.unknown, testing::ElementsAre("zzz"));
  EXPECT_EQ(a.weights.size(), a.source.size() * a.target.size());
  EXPECT_FALSE(load(path, {{"arm", "additive"}, {"seed", 1}}));
  EXPECT_THROW(say(fresh, " "), Error);
  EXPECT_THROW(say(fresh, "a\x1b[0m"), Error);
  EXPECT_THROW(say(fresh, "\xff"), Error);
}

// Somebody may have edited the file: it is trained again then, and nothing hangs or runs out of memory.
TEST(Say, WhatTrainingDidNotWriteIsRejected) {
  const TemporaryFolder folder;
  const Task task = make_task(generate_sets(1, {600, 20, 20, 20}), Units::automatic);
  const Json run = {{"arm", "none"}, {"seed", 0}};
  const Arm& arm = arm_by_id("none");
  nn::Random random(0);
  const TrainedArm fresh{arm, task.source, task.target, task.longest(), make_model(arm, task.model_sizes(), random)};
  const std::string path = folder / "arm.safetensors";
  save(fresh, path, run);
  const nn::Checkpoint good = nn::load_checkpoint(path);
  const auto taken = [&](const nn::Checkpoint& checkpoint) {
    nn::save_checkpoint(path, checkpoint);
    return load(path, run).has_value();
  };
  EXPECT_TRUE(taken(good));
  const auto with = [&](const char* key, const std::string& text) {
    nn::Checkpoint edited = good;
    edited.metadata[key] = text;
    return taken(edited);
  };
  for (const char* longest : {"9000000000000000000", "501", "0", "-1", "many", ""}) {
    EXPECT_FALSE(with("longest", longest)) << longest;
  }
  const auto with_words = [&](const auto& edit) {
    Json words = task.target.json();
    edit(words);
    return with("target", words.dump());
  };
  EXPECT_FALSE(with_words([](Json& json) { json["words"] = Json::array(); }));
  EXPECT_FALSE(with_words([](Json& json) { json["words"] = std::vector<std::string>(2'000'000, "word"); }));
  EXPECT_FALSE(with_words([](Json& json) { json["words"][5] = "\x1b[2J"; }));
  EXPECT_FALSE(with_words([](Json& json) { json["words"][5] = ""; }));
  EXPECT_FALSE(with_words([](Json& json) { json["words"][5] = 5; }));
  EXPECT_FALSE(with_words([](Json& json) { json["merges"] = std::vector<Bpe::Merge>(1001, {"a@@", "b"}); }));
  EXPECT_FALSE(with("target", std::string(100'000, '[')));
  nn::Checkpoint edited = good;
  edited.tensors[0].second = nn::Tensor::full(edited.tensors[0].second.shape(), std::nan(""));
  EXPECT_FALSE(taken(edited));
  // How many parameters it has follows from its words, whatever the file says.
  EXPECT_TRUE(with("parameters", "1000000000000000000"));
}

}  // namespace
}  // namespace keel::lab::translate
