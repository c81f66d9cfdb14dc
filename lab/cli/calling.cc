#include "lab/cli/calling.h"

#include <fmt/format.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <sstream>

#include "cli/common/program.h"

namespace keel::cli {
namespace {

namespace fs = std::filesystem;

// The first program of this name on the PATH; empty if there is none.
fs::path on_the_path(const std::string& name) {
  const char* path = std::getenv("PATH");
  std::istringstream folders(path == nullptr ? "" : path);
  for (std::string folder; std::getline(folders, folder, ':');) {
    const fs::path file = fs::path(folder.empty() ? "." : folder) / name;
    if (fs::is_regular_file(file) && ::access(file.c_str(), X_OK) == 0) return file;
  }
  return {};
}

// In quotes where a shell would need them.
std::string quoted(const std::string& text) {
  const std::string plain = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789/._-+,@%";
  if (text.find_first_not_of(plain) == std::string::npos) return text;
  std::string result = "'";
  for (const char c : text) result += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return result + "'";
}

}  // namespace

std::string keel_command() {
  // Set by whoever runs it under another name: the Python package.
  if (const char* called = std::getenv("KEEL_COMMAND"); called != nullptr && *called != '\0') return called;
  std::error_code error;
  const fs::path self = fs::read_symlink("/proc/self/exe", error).parent_path() / "keel";
  if (error || !fs::exists(self, error)) return "keel";
  const fs::path found = on_the_path("keel");
  if (!found.empty() && fs::equivalent(found, self, error) && !error) return "keel";
  const std::string near = self.lexically_relative(fs::current_path(error)).string();
  return quoted(!error && !near.empty() && !near.starts_with("..") ? near : self.string());
}

void name_as_called(CLI::App& app) {
  const std::string name = keel_command();
  const auto renamed = [&](std::string text) {
    for (std::size_t at = 0; (at = text.find("keel lab", at)) != std::string::npos; at += name.size()) {
      text.replace(at, 4, name);
    }
    return text;
  };
  app.name(renamed(app.get_name()));
  app.footer(renamed(app.get_footer()));
  for (CLI::App* command : app.get_subcommands({})) command->footer(renamed(command->get_footer()));
}

std::string page_opener() {
  if (const char* browser = std::getenv("BROWSER"); browser != nullptr && *browser != '\0') return browser;
  for (const char* name : {"xdg-open", "open"}) {
    if (const fs::path found = on_the_path(name); !found.empty()) return found;
  }
  throw UsageError("--open: expected xdg-open on the PATH or $BROWSER to open the report with, got neither");
}

void open_page(const std::string& opener, const std::string& path) {
  const pid_t child = ::fork();
  if (child == 0) {
    // A grandchild, so that a browser that stays open does not keep this program waiting.
    if (::fork() == 0) ::execlp(opener.c_str(), opener.c_str(), path.c_str(), nullptr);
    ::_exit(0);
  }
  if (child > 0) ::waitpid(child, nullptr, 0);
}

}  // namespace keel::cli
