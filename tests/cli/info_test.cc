#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <pty.h>
#include <stdlib.h>
#include <unistd.h>

#include <nlohmann/json.hpp>
#include <string>

#include "keel/attention.h"
#include "program.h"
#include "runtime/machine.h"

namespace keel::test {
namespace {

using testing::HasSubstr;

TEST(Info, NamesTheMachine) {
  const TemporaryFolder folder;
  const Result result = keel(folder, {"info"});
  EXPECT_EQ(result.status, 0);
  EXPECT_EQ(result.err, "");
  EXPECT_THAT(result.out, HasSubstr(version()));
  EXPECT_THAT(result.out, HasSubstr(machine().cpu));
  for (const std::string& target : machine().targets) EXPECT_THAT(result.out, HasSubstr(target));
}

TEST(Info, JsonHasTheSameFacts) {
  const TemporaryFolder folder;
  const auto facts = nlohmann::json::parse(keel(folder, {"info", "--json"}).out);
  EXPECT_EQ(facts["keel"], version());
  EXPECT_EQ(facts["cpu"], machine().cpu);
  EXPECT_EQ(facts["targets"], machine().targets);
  EXPECT_EQ(facts["threads"], machine().threads);
  EXPECT_EQ(facts["l2_bytes"], machine().l2_bytes);
}

TEST(Info, TellsWhichMatrixUnitsAreUsedAndWhyNotTheOthers) {
  const TemporaryFolder folder;
  const auto units_with = [&](const char* variable) {
    const auto switch_off = [variable] {
      if (variable != nullptr) setenv(variable, "0", 1);
    };
    return nlohmann::json::parse(keel(folder, {"info", "--json"}, switch_off).out)["units"];
  };
  const auto all = units_with(nullptr);
  ASSERT_EQ(all.size(), machine().units.size());
  for (std::size_t i = 0; i < all.size(); ++i) {
    const MatrixUnitState& unit = machine().units[i];
    EXPECT_EQ(all[i]["name"], unit.name);
    EXPECT_EQ(all[i]["why_not"], unit.why_not);
    EXPECT_EQ(all[i]["used"], machine().bf16_unit == unit.unit);
    const std::string variable = unit.unit == MatrixUnit::amx ? "KEEL_AMX" : "KEEL_AVX512_BF16";
    const auto off = units_with(variable.c_str())[i];
    EXPECT_EQ(off["used"], false);
    EXPECT_EQ(off["why_not"], unit.why_not.empty() ? "switched off by " + variable + "=0" : unit.why_not);
  }
}

TensorView described(DType dtype, const std::array<std::int64_t, 4>& shape) {
  return {nullptr, dtype, shape, contiguous_strides(shape)};
}

MutableTensorView described_out(DType dtype, const std::array<std::int64_t, 4>& shape) {
  return {nullptr, dtype, shape, contiguous_strides(shape)};
}

TEST(Info, PlanIsWhatTheLibraryExplains) {
  const TemporaryFolder folder;
  const TensorView q = described(DType::f32, {1, 8, 1024, 64});
  const MutableTensorView out = described_out(DType::f32, {1, 8, 1024, 64});
  const Result result =
      keel(folder, {"info", "--plan", "--shape", "1,8,1024,64", "--causal", "top_left", "--threads", "1"});
  EXPECT_EQ(result.status, 0) << result.err;
  EXPECT_THAT(result.out, testing::StartsWith("q (1, 8, 1024, 64), k (1, 8, 1024, 64), v (1, 8, 1024, 64), f32\n"));
  EXPECT_THAT(result.out, testing::EndsWith(explain(q, q, q, out, {.causal = Causal::top_left, .threads = 1})));
}

TEST(Info, PlanOfGroupedQueriesOverACache) {
  const TemporaryFolder folder;
  const Result result = keel(folder, {"info",     "--plan",       "--shape", "2,32,1,128", "--kv-heads", "8",
                                      "--n-k",    "4096",         "--d-v",   "64",         "--dtype",    "bf16",
                                      "--causal", "bottom_right", "--mask",  "1,1,1,4096", "--bias",     "2,1,1,4096",
                                      "--alibi",  "--sinks",      "--lse",   "--weights",  "--stats",    "--json"});
  ASSERT_EQ(result.status, 0) << result.err;
  const auto plan = nlohmann::json::parse(result.out);
  EXPECT_EQ(plan["k"], nlohmann::json({2, 8, 4096, 128}));
  EXPECT_EQ(plan["v"], nlohmann::json({2, 8, 4096, 64}));
  EXPECT_EQ(plan["dtype"], "bf16");
  EXPECT_FALSE(plan["plan"].empty());
}

TEST(Info, PlanOfTheGradientsIsWhatTheLibraryExplains) {
  const TemporaryFolder folder;
  const MutableTensorView q = described_out(DType::f32, {1, 8, 1024, 64}),
                          bias = described_out(DType::f32, {1, 1, 1024, 1024});
  const MutableRowView lse = {nullptr, DType::f32, {1, 8, 1024}, {8192, 1024, 1}};
  const MutableHeadView sinks = {nullptr, DType::f32, {8}, {1}};
  const Result result = keel(folder, {"info", "--plan", "--shape", "1,8,1024,64", "--causal", "top_left", "--threads",
                                      "1", "--bias", "1,1,1024,1024", "--sinks", "--backward"});
  EXPECT_EQ(result.status, 0) << result.err;
  const std::string expected = explain({.q = q, .k = q, .v = q, .out = q, .lse = lse, .dout = q},
                                       {.dq = q, .dk = q, .dv = q, .dbias = bias, .dsinks = sinks},
                                       {.bias = bias, .causal = Causal::top_left, .sinks = sinks, .threads = 1});
  EXPECT_THAT(result.out, testing::EndsWith(expected));
  EXPECT_NE(expected, explain(q, q, q, q, {.bias = bias, .causal = Causal::top_left, .sinks = sinks, .threads = 1}));

  const Result mixed = keel(folder, {"info", "--plan", "--shape", "1,8,1024,64", "--backward", "--weights"});
  EXPECT_EQ(mixed.status, 2);
  EXPECT_TRUE(is_one_message(mixed.err)) << mixed.err;
}

TEST(Info, PlanOfAWrongProblemIs3) {
  const TemporaryFolder folder;
  for (const std::vector<std::string>& rest : {std::vector<std::string>{"1,8,1024,64", "--kv-heads", "3"},
                                               {"-1,8,1024,64", "--stats"},
                                               {"1,8,9223372036854775807,64"},
                                               {"1,8,1024,64", "--mask", "1,1,3,3"}}) {
    std::vector<std::string> arguments = {"info", "--plan", "--shape"};
    arguments.insert(arguments.end(), rest.begin(), rest.end());
    const Result result = keel(folder, arguments);
    EXPECT_EQ(result.status, 3) << rest[0];
    EXPECT_TRUE(is_one_message(result.err));
    EXPECT_EQ(result.out, "");
  }
}

TEST(Program, HelpAndVersion) {
  const TemporaryFolder folder;
  EXPECT_EQ(keel(folder, {"--version"}).out, std::string("keel ") + version() + "\n");
  for (const std::vector<std::string>& arguments : {std::vector<std::string>{"--help"},
                                                    {"attend", "--help"},
                                                    {"info", "--help"},
                                                    {"bench", "--help"},
                                                    {"attend", "-h"}}) {
    const Result result = keel(folder, arguments);
    EXPECT_EQ(result.status, 0);
    EXPECT_EQ(result.err, "");
    EXPECT_THAT(result.out, HasSubstr("Usage: keel"));
  }
}

TEST(Program, TheManualPageHasEveryOption) {
  const TemporaryFolder folder;
  const Result page = shell(folder, "keel --man");
  EXPECT_EQ(page.status, 0);
  EXPECT_THAT(page.out, testing::StartsWith(".TH keel 1"));
  for (const char* text : {"keel attend", "\\-\\-causal", "keel bench"}) EXPECT_THAT(page.out, HasSubstr(text));
}

TEST(Program, CompletesSubcommandsAndOptions) {
  const TemporaryFolder folder;
  const auto after = [&](const std::string& words) { return shell(folder, "keel --complete " + words).out; };
  EXPECT_THAT(after(""), HasSubstr("attend\n"));
  EXPECT_THAT(after(""), testing::Not(HasSubstr("--causal")));
  EXPECT_THAT(after("attend q.npy"), HasSubstr("--causal\n"));
  EXPECT_THAT(shell(folder, "keel --completion tcsh").err, HasSubstr("--completion: expected bash, zsh or fish"));
  // In bash itself.
  const std::string ask =
      "eval \"$(keel --completion bash)\"; COMP_WORDS=(keel attend --caus); COMP_CWORD=2; _keel; echo ";
  EXPECT_EQ(shell(folder, "bash -c '" + ask + "${COMPREPLY[@]}'").out, "--causal\n");
}

// What `keel info` prints on a terminal, with these environment variables.
std::string on_a_terminal(const std::vector<std::pair<std::string, std::string>>& environment) {
  const TemporaryFolder folder;
  int terminal = -1, program = -1;
  if (::openpty(&terminal, &program, nullptr, nullptr, nullptr) != 0) return "";
  keel(folder, {"info"}, [&] {
    ::dup2(program, STDOUT_FILENO);
    ::unsetenv("NO_COLOR");
    ::setenv("TERM", "xterm", 1);
    for (const auto& [name, value] : environment) ::setenv(name.c_str(), value.c_str(), 1);
  });
  std::string text(4096, '\0');
  const ssize_t length = ::read(terminal, text.data(), text.size());
  text.resize(length > 0 ? static_cast<std::size_t>(length) : 0);
  ::close(terminal);
  ::close(program);
  return text;
}

TEST(Program, BoldOnATerminalUnlessNoColor) {
  if (on_a_terminal({}).empty()) GTEST_SKIP() << "no terminal to be had";
  EXPECT_THAT(on_a_terminal({}), HasSubstr("\x1b["));
  EXPECT_THAT(on_a_terminal({{"NO_COLOR", "1"}}), testing::Not(HasSubstr("\x1b[")));
  EXPECT_THAT(on_a_terminal({{"TERM", "dumb"}}), testing::Not(HasSubstr("\x1b[")));
}

}  // namespace
}  // namespace keel::test
