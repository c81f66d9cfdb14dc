#include "lab/cli/calling.h"

#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>

#include "cli/common/program.h"
#include "lab/command.h"

namespace keel::cli {

void name_as_called(CLI::App& app) {
  const std::string name = lab::keel_command();
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
    if (const std::string found = lab::on_the_path(name); !found.empty()) return found;
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
