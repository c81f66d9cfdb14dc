#include "program.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmath>
#include <filesystem>
#include <numbers>
#include <random>

#include "io/file.h"

namespace keel::test {
namespace {

std::string take(const std::string& path) {
  const io::Buffer bytes = io::read_file(path);
  std::filesystem::remove(path);
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

Result execute(const TemporaryFolder& folder, std::vector<std::string> command, const std::function<void()>& before) {
  // stdout and stderr go to files of another folder: the test counts what is in its own.
  const TemporaryFolder streams;
  std::vector<char*> arguments;
  for (std::string& argument : command) arguments.push_back(argument.data());
  arguments.push_back(nullptr);
  const pid_t child = ::fork();
  if (child == 0) {
    // Descriptors, not streams: the parent's unwritten output must not be written twice.
    const auto redirect = [&](const char* name, int descriptor) {
      const int file = ::open((streams / name).c_str(), O_WRONLY | O_CREAT, 0600);
      return file >= 0 && ::dup2(file, descriptor) == descriptor && ::close(file) == 0;
    };
    const bool ready =
        redirect("out", STDOUT_FILENO) && redirect("err", STDERR_FILENO) && ::chdir(folder.path().c_str()) == 0;
    if (!ready) ::_exit(126);
    if (before) before();
    ::execv(arguments[0], arguments.data());
    ::_exit(127);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  return {.status = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status),
          .out = take(streams / "out"),
          .err = take(streams / "err")};
}

}  // namespace

Result keel(const TemporaryFolder& folder, const std::vector<std::string>& arguments,
            const std::function<void()>& before) {
  std::vector<std::string> command = {KEEL_PROGRAM};
  command.insert(command.end(), arguments.begin(), arguments.end());
  return execute(folder, command, before);
}

Result shell(const TemporaryFolder& folder, const std::string& command) {
  return execute(folder, {"/bin/sh", "-c", command}, [] {
    const std::string path = std::filesystem::path(KEEL_PROGRAM).parent_path().string() + ":" + ::getenv("PATH");
    ::setenv("PATH", path.c_str(), 1);
  });
}

io::Array random_array(DType dtype, std::vector<std::int64_t> shape, unsigned seed) {
  io::Array array = io::make_array(dtype, std::move(shape));
  std::mt19937_64 random(seed);
  const auto uniform = [&] { return (static_cast<double>(random() >> 11) + 0.5) * 0x1p-53; };
  for (std::int64_t i = 0; i < array.elements(); ++i) {
    const auto at = static_cast<std::size_t>(i);
    const double x = std::sqrt(-2.0 * std::log(uniform())) * std::cos(2.0 * std::numbers::pi * uniform());
    switch (dtype) {
      case DType::f64:
        array.as<double>()[at] = x;
        break;
      case DType::f32:
        array.as<float>()[at] = static_cast<float>(x);
        break;
      case DType::f16:
        array.as<Float16>()[at] = to_float16(x);
        break;
      case DType::bf16:
        array.as<BFloat16>()[at] = to_bfloat16(x);
        break;
      case DType::boolean:
        array.as<bool>()[at] = x > -0.5;
        break;
      case DType::i64:
        array.as<std::int64_t>()[at] = static_cast<std::int64_t>(x * 10);
        break;
    }
  }
  return array;
}

testing::AssertionResult is_one_message(const std::string& text) {
  if (text.starts_with("keel: ") && text.ends_with("\n") && text.find('\n') == text.size() - 1) {
    return testing::AssertionSuccess();
  }
  return testing::AssertionFailure() << "expected one line 'keel: ...', got \"" << text << '"';
}

}  // namespace keel::test
