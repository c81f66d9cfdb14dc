// keel bench: what it promises to print. How fast anything is, no test says.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>

#include "io/file.h"
#include "keel/attention.h"
#include "program.h"
#include "runtime/machine.h"

namespace keel::test {
namespace {

using testing::HasSubstr;
using Json = nlohmann::json;

const std::vector<std::string> kQuick = {"bench", "--quick", "small", "--repeats", "2"};

std::vector<std::string> quick(const std::vector<std::string>& rest) {
  std::vector<std::string> arguments = kQuick;
  arguments.insert(arguments.end(), rest.begin(), rest.end());
  return arguments;
}

Json json_of(const std::vector<std::string>& arguments) {
  const TemporaryFolder folder;
  const Result result = keel(folder, arguments);
  EXPECT_EQ(result.status, 0) << result.err;
  EXPECT_EQ(result.err, "");
  return Json::parse(result.out);
}

TEST(Bench, JsonHasMachineLimitsRowsAndRepeats) {
  const Json run = json_of(quick({"--json", "--seed", "7"}));
  EXPECT_EQ(run["keel"], version());
  EXPECT_EQ(run["machine"]["cpu"], machine().cpu);
  EXPECT_EQ(run["machine"]["targets"], machine().targets);
  EXPECT_EQ(run["settings"]["repeats"], 2);
  EXPECT_EQ(run["settings"]["seed"], 7);
  EXPECT_EQ(run["settings"]["quick"], true);

  std::vector<std::string> peaks;
  for (const Json& yardstick : run["yardsticks"]) {
    EXPECT_EQ(yardstick["kind"], "fma");
    EXPECT_EQ(yardstick["target"], machine().targets.front());
    EXPECT_EQ(yardstick["threads"], 1);
    EXPECT_GT(yardstick["rate"]["median"], 0);
    EXPECT_GE(yardstick["samples"], 2);
    peaks.push_back(yardstick["dtype"]);
  }
  EXPECT_THAT(peaks, testing::UnorderedElementsAre("f32", "f64"));

  ASSERT_EQ(run["rows"].size(), 1u);
  const Json& row = run["rows"][0];
  EXPECT_EQ(row["scenario"], "small");
  EXPECT_EQ(row["shape"]["q"], Json({1, 1, 16, 64}));
  EXPECT_EQ(row["dtype"], "f32");
  EXPECT_EQ(row["threads"], 1);
  EXPECT_EQ(row["flops"], 4 * 64 * 16 * 16);
  EXPECT_EQ(row["goal"]["at_most"], 3e-6);
  EXPECT_EQ(row["goal"]["met"], row["value"]["median"] <= 3e-6);
  for (const char* field : {"seconds", "peak_share", "value"}) {
    EXPECT_LE(row[field]["lower_quartile"], row[field]["median"]);
    EXPECT_LE(row[field]["median"], row[field]["upper_quartile"]);
  }
  ASSERT_EQ(row["repeats"].size(), 2u);
  for (const Json& repeat : row["repeats"]) {
    EXPECT_GT(repeat["seconds"], 0);
    EXPECT_EQ(repeat["yardstick"].size(), 2u);
  }
}

TEST(Bench, OptionsThatChangeARowTakeItsGoal) {
  const Json row = json_of(quick({"--json", "--dtype", "f64"}))["rows"][0];
  EXPECT_EQ(row["dtype"], "f64");
  EXPECT_FALSE(row.contains("goal"));
  const Json forced = json_of(quick({"--json", "--target", machine().targets.back()}));
  EXPECT_EQ(forced["rows"][0]["target"], machine().targets.back());
  for (const Json& yardstick : forced["yardsticks"]) EXPECT_EQ(yardstick["target"], machine().targets.back());
}

TEST(Bench, TableNamesLimitsAndRows) {
  const TemporaryFolder folder;
  const Result result = keel(folder, kQuick);
  EXPECT_EQ(result.status, 0);
  EXPECT_EQ(result.err, "") << "progress is for terminals";
  for (const std::string text : {"FMA peak", "scenario", "small", "1×16×64", "a call", "≤ 3.0 µs"}) {
    EXPECT_THAT(result.out, HasSubstr(text));
  }
  EXPECT_THAT(result.out, HasSubstr(machine().cpu));
}

TEST(Bench, ListNamesTheScenariosAndMeasuresNothing) {
  const TemporaryFolder folder;
  const Result result = keel(folder, {"bench", "--list"});
  EXPECT_EQ(result.status, 0);
  for (const std::string name : {"forward", "head-sizes", "targets", "dtypes", "threads", "decode", "statistics",
                                 "mask", "dropout", "documents", "small", "tangents", "merge", "memory"}) {
    EXPECT_THAT(result.out, HasSubstr(name + " "));
  }
  const Json list = json_of({"bench", "--list", "--json", "small,forward"});
  ASSERT_EQ(list.size(), 2u);
  EXPECT_EQ(list[0]["name"], "forward");
}

TEST(Bench, JsonBecomesMarkdown) {
  const TemporaryFolder folder;
  io::write_file(folder / "page.md", std::string_view("before\n<!-- bench_table.py: begin -->\nold\n"
                                                      "<!-- bench_table.py: end -->\nafter\n"));
  const Result result = shell(folder,
                              "keel bench --quick small,targets --repeats 2 --json > run.json && "
                              "python3 -B " KEEL_SCRIPTS "/bench_table.py run.json --into page.md && cat page.md");
  EXPECT_EQ(result.status, 0) << result.err;
  EXPECT_THAT(result.out, testing::StartsWith("before\n<!-- bench_table.py: begin -->\nKeel "));
  EXPECT_THAT(result.out, testing::EndsWith("|\n<!-- bench_table.py: end -->\nafter\n"));
  EXPECT_THAT(result.out, HasSubstr("| small | 1×16×64 | f32 | 1 | "));
  EXPECT_THAT(result.out, HasSubstr("| targets | 2×2048×128 on "));
  EXPECT_THAT(result.out, testing::Not(HasSubstr("old")));
}

TEST(BenchGpu, SaysWhatIsMissingWithoutAGpu) {
  const TemporaryFolder folder;
  const Result result = shell(folder, "KEEL_CUDA_LIBRARY=/nowhere/libkeel_cuda.so keel bench gpu");
  EXPECT_EQ(result.status, 3);
  EXPECT_EQ(result.out, "");
  EXPECT_TRUE(is_one_message(result.err));
  EXPECT_THAT(result.err,
              testing::HasSubstr("expected a GPU numbered 0, got none: no CUDA backend: /nowhere/libkeel_cuda.so"));
}

TEST(BenchGpu, RefusesGroupsThatItDoesNotHave) {
  const TemporaryFolder folder;
  const Result result = keel(folder, {"bench", "gpu", "--group", "sideways"});
  EXPECT_EQ(result.status, 2);
  EXPECT_THAT(result.err, testing::HasSubstr("--group"));
}

}  // namespace
}  // namespace keel::test
