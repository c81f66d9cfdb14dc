// Whatever goes wrong: one line, the right exit status, and no trace on the disk.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <unistd.h>

#include <filesystem>
#include <string>
#include <vector>

#include "io/file.h"
#include "io/npy.h"
#include "program.h"

namespace keel::test {
namespace {

using testing::HasSubstr;
using Arguments = std::vector<std::string>;

class Failure : public testing::Test {
 protected:
  void SetUp() override {
    for (const std::string name : {"q", "k", "v"}) {
      io::write_npy(folder_ / (name + ".npy"), random_array(DType::f32, {2, 64, 32}, 1));
    }
    io::write_npy(folder_ / "narrow.npy", random_array(DType::f32, {2, 64, 16}, 1));
    io::write_npy(folder_ / "double.npy", random_array(DType::f64, {2, 64, 32}, 1));
    io::write_npy(folder_ / "vector.npy", random_array(DType::f32, {64}, 1));
    io::write_npy(folder_ / "five.npy", random_array(DType::f32, {1, 1, 1, 1, 1}, 1));
    io::write_npy(folder_ / "mask.npy", random_array(DType::boolean, {64, 64}, 1));
    names_ = folder_.names();
  }

  // The program ends with this status and message, and the folder holds what it held.
  void expect_failure(const Arguments& arguments, int status, const std::string& message,
                      const std::function<void()>& before = {}) {
    SCOPED_TRACE(testing::PrintToString(arguments));
    const Result result = keel(folder_, arguments, before);
    EXPECT_EQ(result.status, status);
    EXPECT_TRUE(is_one_message(result.err));
    EXPECT_THAT(result.err, HasSubstr(message));
    EXPECT_EQ(result.out, "");
    EXPECT_EQ(folder_.names(), names_);
  }

  static Arguments attend(const Arguments& rest) {
    Arguments arguments = {"attend"};
    arguments.insert(arguments.end(), rest.begin(), rest.end());
    return arguments;
  }

  TemporaryFolder folder_;
  std::set<std::string> names_;
};

TEST_F(Failure, UsageIs2) {
  const std::vector<std::pair<Arguments, std::string>> cases = {
      {{}, "expected a subcommand (attend, info"},
      {{"atend"}, "got 'atend' (see keel --help)"},
      {{"--frobnicate"}, "got '--frobnicate'"},
      {{"attend"}, "q is required (see keel attend --help)"},
      {{"attend", "q.npy", "k.npy"}, "v is required"},
      {{"attend", "q.npy", "k.npy", "v.npy", "more.npy"}, "not expected: more.npy"},
      {{"attend", "q.npy", "k.npy", "v.npy", "--frobnicate"}, "not expected: --frobnicate"},
      {{"attend", "q.npy", "k.npy", "v.npy", "-o"}, "--out"},
      {{"attend", "q.npy", "k.npy", "v.npy", "-o", ""}, "--out: expected a value, got an empty one"},
      {{"attend", "", "k.npy", "v.npy"}, "q: expected a value, got an empty one"},
      {{"attend", "q.npy", "k.npy", "v.npy", "-o", "x.npy", "--lse", "./x.npy"},
       "expected different files, got ./x.npy twice"},
      {{"attend", "q.npy", "k.npy", "v.npy", "--quiet", "--json"}, "excludes"},
      {{"attend", "q.npy", "k.npy", "v.npy", "--causal", "diagonal"}, "--causal: diagonal not in"},
      {{"attend", "q.npy", "k.npy", "v.npy", "--window", "3"}, "--window: expected LEFT,RIGHT"},
      {{"attend", "q.npy", "k.npy", "v.npy", "--window", "inf,x"}, "--window: expected integers"},
      {{"attend", "q.npy", "k.npy", "v.npy", "--origin", "3"}, "--origin: expected QUERY,KEY or QUERY,KEY,N_Q,N_K"},
      {{"attend", "q.npy", "k.npy", "v.npy", "--origin", "1,x"}, "--origin: expected integers"},
      {{"info", "--plan", "--shape", "1,8,64,64", "--backward", "--lse"}, " excludes --"},
      {{"info", "--backward"}, "--backward: expected --plan with it"},
      {{"attend", "q.npy", "k.npy", "v.npy", "--scale", "large"}, "--scale"},
      {{"attend", "q.npy", "k.npy", "v.npy", "--k-lengths", "3,"}, "--k-lengths: expected integers"},
      {{"attend", "q.npy", "k.npy", "v.npy", "--alibi", "1,,2"}, "--alibi: expected numbers"},
      {{"attend", "q.npy", "k.npy", "v.npy", "--seed", "-1"}, "--seed: expected an integer from 0 to 2^64 - 1"},
      {{"attend", "q.npy", "k.npy", "v.npy", "--threads", "two"}, "--threads"},
      {{"info", "--plan"}, "--plan: expected --shape"},
      {{"info", "--shape", "1,8,1024,64"}, "--shape: expected --plan"},
      {{"info", "--causal", "top_left"}, "--causal: expected --plan"},
      {{"info", "--plan", "--shape", "1,8,1024"}, "--shape: expected 4 sizes"},
      {{"info", "--plan", "--shape", "1,8,1024,64", "--dtype", "f8"}, "--dtype: f8 not in"},
      {{"bench", "forwards"}, "scenario: expected some of forward, head-sizes, targets, dtypes, units, threads"},
      {{"bench", "small,fast"}, "got 'fast'"},
      {{"bench", ""}, "got ''"},
      {{"bench", "dtypes", "--dtype", "f32"}, "expected rows to measure, got none"},
      {{"bench", "--repeats", "0"}, "--repeats"},
      {{"bench", "--threads", "0"}, "--threads"},
      {{"bench", "--target", "AVX1024"}, "--target: AVX1024 not in"},
      {{"bench", "--dtype", "f8"}, "--dtype: f8 not in"},
      {{"bench", "--seed", "-1"}, "--seed: expected an integer from 0 to 2^64 - 1"},
  };
  for (const auto& [arguments, message] : cases) expect_failure(arguments, 2, message);
}

TEST_F(Failure, ArraysThatDoNotFitAre3) {
  const std::vector<std::pair<Arguments, std::string>> cases = {
      {{"q.npy", "narrow.npy", "v.npy"}, "[attention] k: expected d_k 32 as in q, got 16"},
      {{"q.npy", "k.npy", "double.npy"}, "[attention] v: expected dtype f32, got f64"},
      {{"vector.npy", "k.npy", "v.npy"}, "[attention] vector.npy: expected 2, 3 or 4 dimensions, got shape (64,)"},
      {{"five.npy", "k.npy", "v.npy"},
       "[attention] five.npy: expected 2, 3 or 4 dimensions, got shape (1, 1, 1, 1, 1)"},
      {{"mask.npy", "mask.npy", "mask.npy"}, "[attention] q: expected dtype f64, f32, f16 or bf16, got bool"},
      {{"q.npy", "k.npy", "v.npy", "--mask", "q.npy"}, "[attention] mask: expected dtype bool, got f32"},
      {{"q.npy", "k.npy", "v.npy", "--bias", "narrow.npy"}, "[attention] bias: expected"},
      {{"q.npy", "k.npy", "v.npy", "--scale-tensor", "mask.npy"},
       "[attention] mask.npy: expected 1 dimension (H) or 3"},
      {{"q.npy", "k.npy", "v.npy", "--alibi", "q.npy"},
       "[attention] q.npy: expected 1 dimension (H) or 2 dimensions (B, H)"},
      {{"q.npy", "k.npy", "v.npy", "--sinks", "1,2,3"}, "[attention] sinks: expected"},
      {{"q.npy", "k.npy", "v.npy", "--k-lengths", "vector.npy"}, "expected 1 dimension of integers"},
      {{"q.npy", "k.npy", "v.npy", "--k-lengths", "65"},
       "[attention] k_lengths: expected lengths from 0 to 64, got 65"},
      {{"q.npy", "k.npy", "v.npy", "--dropout", "2"}, "[attention] dropout: expected from 0 to 1, got 2"},
      {{"q.npy", "k.npy", "v.npy", "--scale", "nan"}, "[attention] scale: expected a finite number"},
      {{"q.npy", "k.npy", "v.npy", "--softcap", "0"}, "[attention] softcap: expected a positive finite number"},
      {{"q.npy", "k.npy", "v.npy", "--origin", "-1,0"}, "[attention] origin.query: expected a position from 0"},
      {{"q.npy", "k.npy", "v.npy", "--window", "-1,0"}, "[attention] window.left: expected at least 0"},
      {{"q.npy", "k.npy", "v.npy", "--threads", "-1"}, "[attention] threads: expected at least 0"},
  };
  for (auto [arguments, message] : cases) {
    arguments.insert(arguments.end(), {"-o", "out.npy", "--lse", "lse.npy", "--stats", "stats.json"});
    expect_failure(attend(arguments), 3, message);
  }
}

TEST_F(Failure, MissingFileIs3) {
  expect_failure({"attend", "none.npy", "k.npy", "v.npy", "-o", "out.npy"}, 3,
                 "[file] none.npy: expected a file to read, got \"No such file or directory\"");
  expect_failure({"attend", "q.npy", "k.npy", "v.npy", "-o", "out.npy", "--mask", "none.npy"}, 3, "[file] none.npy");
  expect_failure({"attend", ".", "k.npy", "v.npy", "-o", "out.npy"}, 3, "got \"Is a directory\"");
}

TEST_F(Failure, MissingFolderForAnOutputIs3) {
  expect_failure({"attend", "q.npy", "k.npy", "v.npy", "-o", "none/out.npy"}, 3,
                 "[file] none/out.npy: expected a folder to write in, got \"No such file or directory\"");
  expect_failure({"attend", "q.npy", "k.npy", "v.npy", "-o", "out.npy", "--stats", "none/stats.json"}, 3,
                 "[file] none/stats.json");
  expect_failure({"attend", "q.npy", "k.npy", "v.npy", "-o", "."}, 3, "got \"Is a directory\"");
}

TEST_F(Failure, EveryBadNpyFileIs3) {
  int files = 0;
  for (const auto& entry : std::filesystem::directory_iterator(KEEL_NPY_FILES "/bad")) {
    expect_failure({"attend", entry.path().string(), "k.npy", "v.npy", "-o", "out.npy"}, 3, "[npy]");
    ++files;
  }
  EXPECT_GT(files, 50);
}

TEST_F(Failure, FullDeviceLeavesNoneOfTheOutputs) {
  expect_failure({"attend", "q.npy", "k.npy", "v.npy", "-o", "/dev/full"}, 3, "got \"No space left on device\"");
  expect_failure({"attend", "q.npy", "k.npy", "v.npy", "-o", "out.npy", "--weights", "/dev/full"}, 3,
                 "[file] /dev/full: expected room for");
  expect_failure({"attend", "q.npy", "k.npy", "v.npy", "-o", "out.npy", "--lse", "lse.npy", "--stats", "/dev/full"}, 3,
                 "[file] /dev/full: expected room for");
}

TEST_F(Failure, FullStdoutIs3) {
  for (const std::string command : {"keel info", "keel --help", "keel attend q.npy k.npy v.npy --json"}) {
    const Result result = shell(folder_, command + " > /dev/full");
    EXPECT_EQ(result.status, 3) << command;
    EXPECT_TRUE(is_one_message(result.err)) << command;
    EXPECT_THAT(result.err, HasSubstr("stdout: expected room for the output, got \"No space left on device\""));
  }
}

TEST_F(Failure, FullStdoutIs3ForOutputThatFillsItsBuffer) {
  io::write_npy(folder_ / "heads.npy", random_array(DType::f32, {64, 1, 4}, 1));
  const Result result = shell(folder_, "keel attend heads.npy heads.npy heads.npy --json > /dev/full");
  EXPECT_EQ(result.status, 3);
  EXPECT_TRUE(is_one_message(result.err));
  EXPECT_THAT(result.err, HasSubstr("stdout: expected room for the output, got \"No space left on device\""));
}

TEST_F(Failure, FullStderrLeavesTheStatusAsItIs) {
  for (const auto& [command, status] : {std::pair{"keel nosuch 2>/dev/full", 2},
                                        {"keel attend none.npy k.npy v.npy 2>/dev/full", 3},
                                        {"keel info >/dev/full 2>/dev/full", 3},
                                        {"keel lab nosuch 2>/dev/full", 2},
                                        {"keel nosuch 2>&-", 2}}) {
    const Result result = shell(folder_, command);
    EXPECT_EQ(result.status, status) << command;
    EXPECT_EQ(result.out, "") << command;
  }
}

// Sanitizers reserve more than any limit leaves.
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
TEST_F(Failure, LittleMemoryIsEnoughForWhatNeedsLittle) {
  const auto little = [] {
    const rlimit limit{150 << 20, 150 << 20};
    ::setrlimit(RLIMIT_AS, &limit);
    ::alarm(60);  // a program that waits for memory to come would wait for ever
  };
  const Result version = keel(folder_, {"--version"}, little);
  EXPECT_EQ(version.status, 0);
  EXPECT_TRUE(version.out.starts_with("keel ")) << version.out;
  EXPECT_EQ(keel(folder_, {"attend", "q.npy", "k.npy", "v.npy"}, little).status, 0);
}
#endif

// Another folder with the program alone in it.
TEST_F(Failure, WithoutTheProgramOfTheLabItSaysHowToGetIt) {
  const TemporaryFolder alone;
  std::filesystem::copy_file(KEEL_PROGRAM, alone / "keel");
  const Result result = shell(alone, "PATH=/nowhere; ./keel lab list");
  EXPECT_EQ(result.status, 2);
  EXPECT_EQ(result.out, "");
  EXPECT_TRUE(is_one_message(result.err));
  EXPECT_THAT(result.err, HasSubstr("lab: expected the program keel-lab next to keel or on the PATH, got none"));
  EXPECT_THAT(result.err, HasSubstr("-DKEEL_BUILD_NN=ON"));
}

// The first output is there under its other name, and the second waits for somebody to read it.
TEST_F(Failure, ASignalDuringTheWriteLeavesNothing) {
  for (const auto& [signal, status] : {std::pair{"INT", 130}, {"TERM", 143}, {"HUP", 129}, {"QUIT", 131}}) {
    // A shell has what it starts in the background ignore Ctrl-C; env undoes that.
    const Result result = shell(folder_, std::string("ulimit -c 0; mkfifo pipe; env --default-signal ") +
                                             "keel attend q.npy k.npy v.npy -o out.npy --weights pipe & "
                                             "until ls .out.npy.*.tmp; do sleep 0.01; done >&2 2>/dev/null; "
                                             "kill -" +
                                             signal + " $!; wait $!; echo status $?");
    EXPECT_THAT(result.out, testing::EndsWith("status " + std::to_string(status) + "\n")) << result.err;
    std::filesystem::remove(folder_ / "pipe");
    EXPECT_EQ(folder_.names(), names_) << signal;
  }
}

// A file of 16 KiB where 4 are allowed.
void limit_files() {
  const rlimit limit{4096, 4096};
  ::setrlimit(RLIMIT_FSIZE, &limit);
}

TEST_F(Failure, FileOverTheLimitLeavesNothing) {
  expect_failure({"attend", "q.npy", "k.npy", "v.npy", "-o", "out.npy", "--lse", "lse.npy"}, 3,
                 "[file] out.npy: expected room for", limit_files);
}

TEST_F(Failure, OutputOverAnInputLeavesTheInput) {
  const io::Buffer before = io::read_file(folder_ / "q.npy");
  expect_failure({"attend", "q.npy", "k.npy", "v.npy", "-o", "q.npy"}, 3, "[file] q.npy: expected room for",
                 limit_files);
  EXPECT_EQ(io::read_file(folder_ / "q.npy"), before);
  EXPECT_EQ(keel(folder_, {"attend", "q.npy", "k.npy", "v.npy", "-q", "-o", "q.npy"}).status, 0);
  EXPECT_NE(io::read_file(folder_ / "q.npy"), before);
}

TEST_F(Failure, FullDiskLeavesNothing) {
  const std::string disk = folder_ / "disk";
  std::filesystem::create_directory(disk);
  names_ = folder_.names();
  if (::mount("keel", disk.c_str(), "tmpfs", 0, "size=8k") != 0) {
    GTEST_SKIP() << "no right to mount a small disk; FileOverTheLimitLeavesNothing stands in";
  }
  expect_failure({"attend", "q.npy", "k.npy", "v.npy", "-o", "disk/out.npy", "--lse", "disk/lse.npy"}, 3,
                 "[file] disk/out.npy: expected room for");
  EXPECT_TRUE(std::filesystem::is_empty(disk));
  // Nor is what was there touched, or another output written.
  io::write_file(disk + "/out.npy", std::string_view("old"));
  expect_failure({"attend", "q.npy", "k.npy", "v.npy", "--lse", "lse.npy", "-o", "disk/out.npy"}, 3,
                 "got \"No space left on device\"");
  EXPECT_EQ(std::filesystem::file_size(disk + "/out.npy"), 3u);
  EXPECT_EQ(::umount(disk.c_str()), 0);
}

}  // namespace
}  // namespace keel::test
