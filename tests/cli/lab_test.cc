// keel lab at the command line.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "io/file.h"
#include "program.h"

namespace keel::test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;
using Json = nlohmann::json;

TEST(Lab, ListNamesEveryExperimentAndItsQuestion) {
  const TemporaryFolder folder;
  const Result result = keel(folder, {"lab", "list", "--json"});
  EXPECT_EQ(result.status, 0);
  std::vector<std::string> names;
  for (const Json& experiment : Json::parse(result.out)) {
    names.push_back(experiment.at("name"));
    EXPECT_FALSE(experiment.at("question").get<std::string>().empty());
  }
  EXPECT_THAT(names, ElementsAre("example", "softmax", "variance", "saturation", "entropy", "gradient", "length",
                                 "ablation", "temperature", "translate"));
  EXPECT_TRUE(folder.names().empty());
}

TEST(Lab, AnExperimentLeavesItsResultsAndAReport) {
  const TemporaryFolder folder;
  const Result result = keel(folder, {"lab", "example", "--repeats", "2"});
  EXPECT_EQ(result.status, 0);
  EXPECT_EQ(result.err, "");  // progress is for terminals
  EXPECT_THAT(result.out, HasSubstr("on three tokens"));
  EXPECT_THAT(result.out, HasSubstr("5 claims: 5 hold"));
  EXPECT_THAT(result.out, testing::EndsWith("Report: lab-report/index.html\n"));
  for (const char* name : {"index.html", "example.json", "example-causal.csv", "claims.json", "claims.csv"}) {
    EXPECT_TRUE(std::filesystem::exists(folder / (std::string("lab-report/") + name))) << name;
  }
}

TEST(Lab, JsonIsTheSameForAnyNumberOfThreads) {
  const TemporaryFolder folder;
  const auto printed = [&](const char* threads) {
    return keel(folder, {"lab", "softmax", "example", "--repeats", "3", "--seed", "5", "--threads", threads, "--json"})
        .out;
  };
  const std::string one = printed("1");
  EXPECT_EQ(one, printed("2"));
  const Json json = Json::parse(one);
  EXPECT_EQ(json.at("experiments").size(), 2u);
  EXPECT_EQ(json.at("experiments")[0].at("experiment"), "example");  // in the order of the report
  EXPECT_EQ(json.at("experiments")[0].at("seed"), 5);
  EXPECT_FALSE(json.at("claims").empty());
}

TEST(Lab, ASecondExperimentJoinsTheReportOfTheSameRunAlone) {
  const TemporaryFolder folder;
  const auto report = [&] {
    const io::Buffer bytes = io::read_file(folder / "lab-report/index.html");
    return std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  };
  EXPECT_EQ(keel(folder, {"lab", "example", "--repeats", "2", "-q"}).out, "");
  keel(folder, {"lab", "softmax", "--repeats", "2", "-q"});
  EXPECT_THAT(report(), HasSubstr("<section id=\"example\""));
  keel(folder, {"lab", "softmax", "--repeats", "2", "--seed", "1", "-q"});
  EXPECT_THAT(report(), Not(HasSubstr("<section id=\"example\"")));
}

TEST(Lab, WrongArgumentsEndBeforeAnyWork) {
  const TemporaryFolder folder;
  io::write_file(folder / "file", "x");
  const std::vector<std::pair<std::vector<std::string>, std::pair<int, std::string>>> cases = {
      {{"lab", "--out", "file"}, {3, "[lab] file: expected a folder to write in"}},
      {{"lab", "--out", "file/below"}, {3, "expected a folder to write in"}},
      {{"lab", "--out", ""}, {2, "--out: expected a value"}},
      {{"lab", "variants"}, {2, "expected one of example, softmax,"}},
      {{"lab", "variance", "list"}, {2, "got 'list'"}},
      {{"lab", "--seed", "x"}, {2, "--seed: expected an integer"}},
      {{"lab", "--repeats", "1"}, {2, "--repeats: expected an integer of at least 2"}},
      {{"lab", "--threads", "-1"}, {2, "--threads: expected at least 0"}},
      {{"lab", "--json", "-q"}, {2, "--quiet"}},
      {{"lab", "--data", "x.tsv"}, {2, "--data: expected 'translate' alone beside it"}},
      {{"lab", "softmax", "--arm", "none"}, {2, "--arm: expected 'translate' alone"}},
      {{"lab", "softmax", "translate", "--say", "x"}, {2, "--say: expected 'translate' alone"}},
      {{"lab", "translate", "--arm", "cosine"}, {3, "[translate] arm: expected one of none, additive, dot-16,"}},
      {{"lab", "translate", "--vocabulary", "letters"}, {3, "expected auto, words or bpe, got 'letters'"}},
      {{"lab", "translate", "--say", "  "}, {3, "--say: expected a sentence, got no words"}},
      {{"lab", "translate", "--say", "a\x1b[2J"}, {3, "--say: expected text, got a control character"}},
  };
  for (const auto& [arguments, expected] : cases) {
    SCOPED_TRACE(testing::PrintToString(arguments));
    const Result result = keel(folder, arguments);
    EXPECT_EQ(result.status, expected.first);
    EXPECT_TRUE(is_one_message(result.err));
    EXPECT_THAT(result.err, HasSubstr(expected.second));
    EXPECT_THAT(folder.names(), ElementsAre("file"));
  }
}

TEST(Lab, ABadFileOfPairsIsRefusedWithTheLine) {
  const TemporaryFolder folder;
  io::write_file(folder / "empty.tsv", "");
  io::write_file(folder / "one.tsv", "no tab here\n");
  io::write_file(folder / "latin1.tsv", "caf\xe9\tx\n");
  for (const auto& [name, message] :
       {std::pair{"missing.tsv", "missing.tsv"},
        {"empty.tsv", "empty.tsv: expected at least 100 pairs of sentences, got an empty file"},
        {"one.tsv", "line 1: expected two columns with a tab between, got 1"},
        {"latin1.tsv", "line 1: expected UTF-8, got byte 0xe9 at column 4"}}) {
    const Result result = keel(folder, {"lab", "translate", "--data", name});
    EXPECT_EQ(result.status, 3) << name;
    EXPECT_TRUE(is_one_message(result.err)) << result.err;
    EXPECT_THAT(result.err, HasSubstr(message));
  }
}

TEST(Lab, CtrlCLeavesFinishedExperimentsReadable) {
  const TemporaryFolder folder;
  const Result result = shell(folder,
                              "keel lab --repeats 60 & run=$!; "
                              "while [ ! -e lab-report/softmax.json ]; do sleep 0.05; done; kill -INT $run; wait $run; "
                              "echo status $?");
  EXPECT_EQ(result.out, "status 130\n");
  EXPECT_THAT(result.err, HasSubstr("keel: interrupted, 2 of 9 experiments finished"));
  const io::Buffer bytes = io::read_file(folder / "lab-report/softmax.json");
  const auto* text = reinterpret_cast<const char*>(bytes.data());
  EXPECT_EQ(Json::parse(text, text + bytes.size()).at("experiment"), "softmax");
  EXPECT_TRUE(std::filesystem::exists(folder / "lab-report/index.html"));
}

}  // namespace
}  // namespace keel::test
