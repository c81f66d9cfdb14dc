#include "cli/common/manual.h"

#include <fmt/format.h>

#include <algorithm>

#include "cli/common/program.h"
#include "keel/attention.h"

namespace keel::cli {
namespace {

// Text as troff takes it: nothing in it is a command.
std::string plain(const std::string& text) {
  std::string result;
  for (const char c : text) {
    if (c == '\\' || c == '-') result += '\\';
    if ((c == '.' || c == '\'') && (result.empty() || result.back() == '\n')) result += "\\&";
    result += c;
  }
  return result;
}

void describe(const CLI::App& app, std::string& page) {
  for (const CLI::Option* option : app.get_options()) {
    const bool typed = option->get_type_size() > 0 && !option->get_type_name().empty();
    const std::string type = typed ? " " + option->get_type_name() : "";
    const bool named = option->nonpositional();
    page += fmt::format(".TP\n.B {}\n{}\n", plain((named ? option->get_name(false, true) : option->get_name()) + type),
                        plain(option->get_description()));
  }
  if (!app.get_footer().empty()) page += fmt::format(".PP\n.nf\n{}\n.fi\n", plain(app.get_footer()));
}

}  // namespace

std::string manual_page(const CLI::App& app) {
  std::string file = app.get_name();
  std::replace(file.begin(), file.end(), ' ', '-');
  std::string page = fmt::format(".TH {} 1 \"\" \"keel {}\"\n.SH NAME\n{} \\- {}\n.SH SYNOPSIS\n.B {}\n[OPTIONS]{}\n",
                                 file, version(), plain(app.get_name()), plain(app.get_description()),
                                 plain(app.get_name()), app.get_subcommands({}).empty() ? "" : " [SUBCOMMAND]");
  page += ".SH OPTIONS\n";
  describe(app, page);
  for (const CLI::App* command : app.get_subcommands({})) {
    page += fmt::format(".SH {} {}\n{}\n", plain(app.get_name()), plain(command->get_name()),
                        plain(command->get_description()));
    describe(*command, page);
  }
  return page;
}

std::string completions(const CLI::App& app, const std::vector<std::string>& words) {
  const CLI::App* at = &app;
  for (const std::string& word : words) {
    for (const CLI::App* command : at->get_subcommands({})) {
      if (command->get_name() == word) {
        at = command;
        break;
      }
    }
  }
  std::string lines;
  for (const CLI::App* command : at->get_subcommands({})) lines += command->get_name() + "\n";
  for (const CLI::Option* option : at->get_options()) {
    for (const std::string& name : option->get_lnames()) lines += "--" + name + "\n";
  }
  return lines;
}

std::string completion_script(const std::string& shell) {
  std::string bash =
      "_keel() {\n"
      "  local words=\"$(\"${COMP_WORDS[0]}\" --complete \"${COMP_WORDS[@]:1:COMP_CWORD-1}\" 2>/dev/null)\"\n"
      "  COMPREPLY=($(compgen -W \"$words\" -- \"${COMP_WORDS[COMP_CWORD]}\"))\n"
      "}\n"
      "complete -o default -F _keel keel\n";
  if (shell == "bash") return bash;
  if (shell == "zsh") return "autoload -U bashcompinit && bashcompinit\n" + bash;
  if (shell == "fish") return "complete -c keel -a '(keel --complete (commandline -opc)[2..-1])'\n";
  throw UsageError(fmt::format("--completion: expected bash, zsh or fish, got '{}'", shell));
}

}  // namespace keel::cli
