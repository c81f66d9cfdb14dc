#include "cli/common/become.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <string>
#include <system_error>
#include <vector>

#include "keel/error.h"

namespace keel::cli {

void become(const char* operation, const char* program, char** arguments) {
  std::string name = program;
  std::vector<char*> command = {name.data()};
  for (; *arguments != nullptr; ++arguments) command.push_back(*arguments);
  command.push_back(nullptr);
  const auto not_there = [] { return errno == ENOENT || errno == ENOTDIR || errno == EACCES; };
  std::error_code error;
  const std::filesystem::path self = std::filesystem::read_symlink("/proc/self/exe", error);
  if (!error) ::execv((self.parent_path() / program).c_str(), command.data());
  if (error || not_there()) ::execvp(program, command.data());
  if (not_there()) return;
  throw Error(ErrorCode::io, fmt::format("[{}] {}: expected a program to run, got \"{}\"", operation, program,
                                         std::generic_category().message(errno)));
}

}  // namespace keel::cli
