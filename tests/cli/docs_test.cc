// Every command that docs/cli.md shows after a "$ " runs.
#include <gtest/gtest.h>

#include <sstream>
#include <string>

#include "io/file.h"
#include "io/npy.h"
#include "program.h"

namespace keel::test {
namespace {

TEST(Docs, EveryExampleOfTheProgramRuns) {
  const TemporaryFolder folder;
  const auto write = [&](const std::string& name, DType dtype, std::vector<std::int64_t> shape) {
    io::write_npy(folder / (name + ".npy"), random_array(dtype, std::move(shape), 1));
  };
  for (const std::string name : {"q", "k", "v"}) write(name, DType::f32, {1, 8, 128, 64});
  write("k_of_another_size", DType::f32, {1, 8, 128, 32});
  write("mask", DType::boolean, {128, 128});
  write("bias", DType::f32, {128, 128});

  const io::Buffer page = io::read_file(KEEL_DOCS "/cli.md");
  std::istringstream lines(std::string(reinterpret_cast<const char*>(page.data()), page.size()));
  int examples = 0;
  for (std::string line; std::getline(lines, line);) {
    if (!line.starts_with("$ ")) continue;
    const Result result = shell(folder, line.substr(2));
    EXPECT_EQ(result.status, 0) << line << '\n' << result.err;
    // The one that shows a failure prints its status.
    if (line.find("echo") != std::string::npos) {
      EXPECT_EQ(result.out, "exit 3\n");
      EXPECT_TRUE(is_one_message(result.err));
    } else {
      EXPECT_EQ(result.err, "") << line;
    }
    ++examples;
  }
  EXPECT_GE(examples, 16);
}

}  // namespace
}  // namespace keel::test
