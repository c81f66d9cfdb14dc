// keel lab at the command line.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

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
                                 "ablation", "temperature", "scores", "translate", "broken"));
  EXPECT_TRUE(folder.names().empty());
}

TEST(Lab, IsAProgramOfItsOwnThatGetsEveryArgumentAsItCame) {
  const TemporaryFolder folder;
  // Beside the program, by whatever name that was called, or on the PATH.
  const TemporaryFolder elsewhere;
  std::filesystem::create_symlink(KEEL_PROGRAM, elsewhere / "linked");
  std::filesystem::copy_file(KEEL_PROGRAM, elsewhere / "copied");
  for (const std::string& program :
       {std::string("keel"), "PATH=/nowhere; " + elsewhere / "linked", elsewhere / "copied"}) {
    EXPECT_EQ(shell(folder, program + " lab list").out, shell(folder, "keel-lab list").out) << program;
  }
  EXPECT_THAT(shell(folder, "keel lab --help").out, HasSubstr("Usage: keel lab [OPTIONS]"));
  EXPECT_THAT(shell(folder, "keel lab break --help").out, HasSubstr("--no-predict"));
  EXPECT_THAT(shell(folder, "keel lab -- --full").err, HasSubstr("got '--full'"));
  EXPECT_THAT(shell(folder, "keel lab ''").err, HasSubstr("got ''"));
  EXPECT_THAT(shell(folder, "keel lab --seed").err, HasSubstr("(see keel lab --help)"));
  EXPECT_TRUE(folder.names().empty());
}

// Sanitizers reserve more than any limit leaves.
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
TEST(Lab, IsListedWithLittleMemory) {
  const TemporaryFolder folder;
  const Result result = keel(folder, {"lab", "list"}, [] {
    const rlimit limit{150 << 20, 150 << 20};
    ::setrlimit(RLIMIT_AS, &limit);
    ::alarm(60);  // OpenBLAS waits for ever for memory that its threads do not get
  });
  EXPECT_EQ(result.status, 0);
}
#endif

TEST(Lab, AnExperimentLeavesItsResultsAndAReport) {
  const TemporaryFolder folder;
  const Result result = keel(folder, {"lab", "example", "--repeats", "2"});
  EXPECT_EQ(result.status, 0);
  EXPECT_EQ(result.err, "");  // progress is for terminals
  EXPECT_THAT(result.out, HasSubstr("on three tokens"));
  EXPECT_THAT(result.out, HasSubstr("7 claims: 7 hold"));
  EXPECT_THAT(result.out, testing::EndsWith("Report: lab-report/index.html\n"));
  for (const char* name : {"index.html", "example.json", "example-causal.csv", "claims.json", "claims.csv"}) {
    EXPECT_TRUE(std::filesystem::exists(folder / (std::string("lab-report/") + name))) << name;
  }
}

TEST(Lab, OpensTheReportOnRequest) {
  const TemporaryFolder folder;
  io::write_file(folder / "browser", "#!/bin/sh\necho \"$1\" > opened\n");
  const Result result = shell(folder,
                              "chmod +x browser; BROWSER=./browser keel lab example --repeats 2 -q --open; "
                              "for i in $(seq 100); do [ -e opened ] && break; sleep 0.1; done; cat opened");
  EXPECT_EQ(result.out, "lab-report/index.html\n");
  const TemporaryFolder empty;
  const Result none = shell(empty, "BROWSER= PATH=/nowhere exec \"$(command -v keel)\" lab example --open");
  EXPECT_EQ(none.status, 2);
  EXPECT_THAT(none.err, HasSubstr("--open: expected xdg-open on the PATH or $BROWSER"));
  EXPECT_TRUE(empty.names().empty());  // before any work
}

TEST(Lab, DrawsCurvesInTheTerminalUnlessToldNotTo) {
  const TemporaryFolder folder;
  const std::string drawn = keel(folder, {"lab", "softmax", "--repeats", "2"}).out;
  EXPECT_THAT(drawn, testing::ContainsRegex("│.*\xe2\xa0"));  // braille
  EXPECT_THAT(drawn, HasSubstr("a "));                        // the legend
  EXPECT_THAT(keel(folder, {"lab", "softmax", "--repeats", "2", "--no-plots"}).out, Not(HasSubstr("\xe2\xa0")));
}

TEST(Lab, EveryCommandOfItsHelpCanBePasted) {
  const TemporaryFolder folder;
  const std::string program = KEEL_PROGRAM, bin = std::filesystem::path(program).parent_path(),
                    build = std::filesystem::path(bin).parent_path();
  EXPECT_THAT(shell(folder, "keel lab --help").out, HasSubstr("\n  keel lab list "));  // on the PATH
  EXPECT_THAT(keel(folder, {"lab", "--help"}).out, HasSubstr("\n  " + program + " lab list "));
  EXPECT_THAT(shell(folder, "cd " + build + " && PATH=/usr/bin:/bin bin/keel lab --help").out,
              HasSubstr("\n  bin/keel lab list "));
  EXPECT_THAT(keel(folder, {"lab", "--seed"}).err, HasSubstr("(see " + program + " lab --help)"));
  const TemporaryFolder spaced;
  std::filesystem::create_directory(spaced / "a b");
  for (const char* name : {"keel", "keel-lab"}) {
    std::filesystem::copy_file(std::filesystem::path(bin) / name, spaced / ("a b/" + std::string(name)));
  }
  EXPECT_THAT(shell(spaced, "'a b/keel' lab --help").out, HasSubstr("\n  'a b/keel' lab list "));
}

TEST(Lab, HasAManualPageAndCompletionsOfItsOwn) {
  const TemporaryFolder folder;
  EXPECT_THAT(shell(folder, "keel-lab --man").out, HasSubstr("\\-\\-blind"));
  EXPECT_THAT(shell(folder, "keel --complete lab").out, HasSubstr("--open\n"));
  EXPECT_THAT(shell(folder, "keel --complete lab break").out, HasSubstr("--blind\n"));
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
      {{"lab", "--data", "x.tsv"}, {2, "--data: expected only 'translate' with it"}},
      {{"lab", "softmax", "--arm", "none"}, {2, "--arm: expected only 'translate' with it"}},
      {{"lab", "softmax", "translate", "--say", "x"}, {2, "--say: expected only 'translate' with it"}},
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

TEST(LabBreak, ListsTheBreaks) {
  const TemporaryFolder folder;
  const Result result = keel(folder, {"lab", "break"});
  EXPECT_EQ(result.status, 0);
  EXPECT_THAT(result.out, HasSubstr("softmax-over-queries"));
  EXPECT_EQ(Json::parse(keel(folder, {"lab", "break", "--json"}).out).size(), 5u);
  EXPECT_TRUE(folder.names().empty());
}

TEST(LabBreak, TakesPredictionsFromStdinAndGivesHintsOneAtATime) {
  const TemporaryFolder folder;
  const Result result =
      shell(folder, "printf 'less\n\nsame\nmore\nh\n\n' | keel lab break softmax-over-queries; echo status $?");
  EXPECT_THAT(result.out, HasSubstr("- weights = softmax(scores, dim=-1)\n  + weights = softmax(scores, dim=-2)"));
  EXPECT_THAT(result.out, HasSubstr("less   you said less"));
  EXPECT_THAT(result.out, HasSubstr("3 of 3 predictions were right."));  // one was passed over
  EXPECT_THAT(result.out, HasSubstr("Hint 1 of 3"));
  EXPECT_THAT(result.out, Not(HasSubstr("Hint 2 of 3")));
  EXPECT_THAT(result.out, HasSubstr("Cause"));
  EXPECT_THAT(result.out, testing::EndsWith("status 0\n"));
}

TEST(LabBreak, NeedsNobodyToAnswer) {
  const TemporaryFolder folder;
  for (const char* command : {"keel lab break causal-off-by-alignment --no-predict --hints 1 </dev/null",
                              "keel lab break causal-off-by-alignment --hints 1 </dev/null"}) {
    const Result result = shell(folder, command);
    EXPECT_THAT(result.out, HasSubstr("healthy 16"));
    EXPECT_THAT(result.out, HasSubstr("Hint 1 of 3"));
    EXPECT_THAT(result.out, HasSubstr("Fix"));
    EXPECT_THAT(result.out, Not(HasSubstr("you said")));
  }
}

TEST(LabBreak, TakesPredictionsFromAFile) {
  const TemporaryFolder folder;
  io::write_file(folder / "mine", "# before running\nnan-rows: more\n leak-seeing : m \n");
  const Json json =
      Json::parse(keel(folder, {"lab", "break", "mask-before-scale-in-f16", "--predict", "mine", "--json"}).out);
  EXPECT_EQ(json.at("observations")[0].at("predicted"), "more");
  EXPECT_EQ(json.at("observations")[0].at("change"), "more");
  EXPECT_TRUE(json.at("observations")[1].at("predicted").is_null());
  EXPECT_EQ(json.at("observations")[2].at("predicted"), "more");
  EXPECT_EQ(json.at("observations")[2].at("change"), "same");
}

TEST(LabBreak, ControlCharactersOfAFileDoNotReachTheTerminal) {
  const TemporaryFolder folder;
  io::write_file(folder / "mine", "nan-rows: \x1b[2J\xc2\x9b\x7f\n");
  const Result file = keel(folder, {"lab", "break", "mask-before-scale-in-f16", "--predict", "mine"});
  EXPECT_EQ(file.status, 3);
  EXPECT_THAT(file.err, HasSubstr("got 'nan-rows: \\x1b[2J\\xc2\\x9b\\x7f'"));
  const Result piped = shell(folder, "printf '\\033[2J\\n' | keel lab break mask-before-scale-in-f16");
  EXPECT_EQ(piped.status, 3);
  EXPECT_THAT(piped.out, Not(HasSubstr("\x1b[2J")));
  EXPECT_THAT(piped.out, HasSubstr("\\x1b[2J"));
  EXPECT_THAT(piped.err, HasSubstr("got '\\x1b[2J'"));
}

TEST(LabBreak, WrongArgumentsEndBeforeAnyWork) {
  const TemporaryFolder folder;
  io::write_file(folder / "id", "nan-rows: more\nrows: more\n");
  io::write_file(folder / "word", "nan-rows: worse\n");
  const std::string name = "mask-before-scale-in-f16";
  const std::vector<std::pair<std::vector<std::string>, std::pair<int, std::string>>> cases = {
      {{"lab", "break", "scale"}, {2, "expected one of no-scale,"}},
      {{"lab", "break", name, "--predict", "nowhere"}, {3, "nowhere"}},
      {{"lab", "break", name, "--predict", "id"}, {3, "id, line 2: expected one of nan-rows, nan-gradient,"}},
      {{"lab", "break", name, "--predict", "word"}, {3, "word, line 1: expected"}},
      {{"lab", "break", name, "--predict", "id", "--no-predict"}, {2, "--no-predict"}},
      {{"lab", "break", name, "--hints", "-1"}, {2, "--hints"}},
      {{"lab", "break", name, "--seed", "x"}, {2, "--seed: expected an integer"}},
  };
  for (const auto& [arguments, expected] : cases) {
    SCOPED_TRACE(testing::PrintToString(arguments));
    const Result result = keel(folder, arguments);
    EXPECT_EQ(result.status, expected.first);
    EXPECT_EQ(result.out, "");
    EXPECT_TRUE(is_one_message(result.err));
    EXPECT_THAT(result.err, HasSubstr(expected.second));
  }
  const Result said = shell(folder, "printf 'worse\n' | keel lab break no-scale; echo status $?");
  EXPECT_THAT(said.err, HasSubstr("stdin: expected less, same or more, got 'worse'"));
  EXPECT_THAT(said.out, testing::EndsWith("status 3\n"));
}

TEST(Lab, ABadFileOfPairsIsRefusedWithTheLine) {
  const TemporaryFolder folder;
  io::write_file(folder / "empty.tsv", "");
  io::write_file(folder / "one.tsv", "no tab here\n");
  io::write_file(folder / "latin1.tsv", "caf\xe9\tx\n");
  for (const auto& [name, message] :
       {std::pair{"missing.tsv", "missing.tsv"},
        {"empty.tsv", "empty.tsv: expected at least 100 pairs of sentences, got an empty file"},
        {"one.tsv", "line 1: expected two columns separated by a tab, got 1"},
        {"latin1.tsv", "line 1: expected UTF-8, got byte 0xe9 at column 4"}}) {
    const Result result = keel(folder, {"lab", "translate", "--data", name});
    EXPECT_EQ(result.status, 3) << name;
    EXPECT_TRUE(is_one_message(result.err)) << result.err;
    EXPECT_THAT(result.err, HasSubstr(message));
  }
}

// Pairs of one word each, which train in a second.
void write_pairs(const std::string& path, const std::string& word) {
  std::string text;
  for (int i = 100; i < 300; ++i) text += word + std::to_string(i) + "\t" + std::to_string(i) + word + "\n";
  io::write_file(path, text);
}

TEST(Lab, SayWarnsOfWordsThatItDoesNotKnow) {
  const TemporaryFolder folder;
  write_pairs(folder / "w.tsv", "a");
  const auto warning = [&](const std::string& sentence) {
    const Result result = keel(folder, {"lab", "translate", "--data", "w.tsv", "--arm", "none", "--say", sentence});
    EXPECT_EQ(result.status, 0);
    EXPECT_FALSE(result.out.empty());
    return result.err;
  };
  EXPECT_EQ(warning("a111"), "");
  EXPECT_TRUE(is_one_message(warning("a111 zebra")));
  EXPECT_THAT(warning("a111 zebra"), HasSubstr("--say: expected words of the training sentences, got 'zebra'"));
}

TEST(Lab, SayTrainsAgainWhenTheDataChangedAndOnlyThen) {
  const TemporaryFolder folder;
  const auto unknown = [&](const std::string& file, const std::string& sentence) -> Json {
    const Result result =
        keel(folder, {"lab", "translate", "--data", file, "--arm", "none", "--say", sentence, "--json"});
    EXPECT_EQ(result.status, 0) << result.err;
    return Json::parse(result.out).at("unknown");
  };
  const auto trained = [&] {
    return std::filesystem::last_write_time(folder / "lab-report/translate-none.safetensors");
  };
  write_pairs(folder / "w.tsv", "a");
  EXPECT_TRUE(unknown("w.tsv", "a111").empty());
  const auto first = trained();
  std::filesystem::rename(folder / "w.tsv", folder / "moved.tsv");  // the same content under another name
  EXPECT_TRUE(unknown("moved.tsv", "a111").empty());
  EXPECT_EQ(trained(), first);
  write_pairs(folder / "moved.tsv", "b");  // of the same name and length
  EXPECT_TRUE(unknown("moved.tsv", "b111").empty());
  EXPECT_NE(trained(), first);
}

TEST(Lab, NamesThatAreNotUtf8AreEscapedWhereTextMustBe) {
  const TemporaryFolder folder;
  write_pairs(folder / "caf\xe9.tsv", "a");
  const Result said = keel(folder, {"lab", "translate", "--data", "caf\xe9.tsv", "--arm", "none", "--say", "a111",
                                    "--out", "out\xff", "--json"});
  EXPECT_EQ(said.status, 0) << said.err;
  EXPECT_FALSE(Json::parse(said.out).at("target").empty());
  const Result run = keel(folder, {"lab", "translate", "--data", "caf\xe9.tsv", "--arm", "none", "--repeats", "2",
                                   "--out", "out\xff", "--json"});
  EXPECT_EQ(run.status, 0) << run.err;
  EXPECT_THAT(Json::parse(run.out).at("experiments")[0].at("settings").get<std::string>(), HasSubstr("caf\\xe9.tsv"));
}

TEST(Lab, CtrlCLeavesFinishedExperimentsReadable) {
  const TemporaryFolder folder;
  const Result result = shell(folder,
                              "keel lab --repeats 60 & run=$!; "
                              "while [ ! -e lab-report/softmax.json ]; do sleep 0.05; done; kill -INT $run; wait $run; "
                              "echo status $?");
  EXPECT_EQ(result.out, "status 130\n");
  EXPECT_THAT(result.err, HasSubstr("keel: interrupted, 2 of 12 experiments finished"));
  const io::Buffer bytes = io::read_file(folder / "lab-report/softmax.json");
  const auto* text = reinterpret_cast<const char*>(bytes.data());
  EXPECT_EQ(Json::parse(text, text + bytes.size()).at("experiment"), "softmax");
  EXPECT_TRUE(std::filesystem::exists(folder / "lab-report/index.html"));
}

}  // namespace
}  // namespace keel::test
