#include "lab/command.h"

#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <sstream>

namespace keel::lab {
namespace fs = std::filesystem;

std::string on_the_path(const std::string& name) {
  const char* path = std::getenv("PATH");
  std::istringstream folders(path == nullptr ? "" : path);
  for (std::string folder; std::getline(folders, folder, ':');) {
    const fs::path file = fs::path(folder.empty() ? "." : folder) / name;
    if (fs::is_regular_file(file) && ::access(file.c_str(), X_OK) == 0) return file.string();
  }
  return {};
}

std::string quoted(const std::string& text) {
  const std::string plain = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789/._-+,@%";
  if (text.find_first_not_of(plain) == std::string::npos) return text;
  std::string result = "'";
  for (const char c : text) result += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return result + "'";
}

std::string keel_command() {
  // Set by whoever runs it under another name: the Python package.
  if (const char* called = std::getenv("KEEL_COMMAND"); called != nullptr && *called != '\0') return called;
  std::error_code error;
  const fs::path self = fs::read_symlink("/proc/self/exe", error).parent_path() / "keel";
  if (error || !fs::exists(self, error)) return "keel";
  const std::string found = on_the_path("keel");
  if (!found.empty() && fs::equivalent(found, self, error) && !error) return "keel";
  const std::string near = self.lexically_relative(fs::current_path(error)).string();
  return quoted(!error && !near.empty() && !near.starts_with("..") ? near : self.string());
}

}  // namespace keel::lab
