#include <fmt/format.h>
#include <signal.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <exception>
#include <new>
#include <string>

#include "cli/commands.h"
#include "keel/attention.h"
#include "keel/error.h"

namespace {

using namespace keel::cli;

// One line on stderr, whatever the message holds.
int fail(int status, std::string message) {
  for (char& c : message) {
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7F) c = ' ';
  }
  fmt::print(stderr, "keel: {}\n", message);
  return status;
}

// A command line that cannot be understood, with where to look.
int usage(const CLI::App& app, const CLI::ParseError& error) {
  std::string command = "keel";
  for (const CLI::App* sub : app.get_subcommands()) command += " " + sub->get_name();
  return fail(kUsage, fmt::format("{} (see {} --help)", error.what(), command));
}

// "attend, info"
std::string subcommands(const CLI::App& app) {
  std::string names;
  for (const CLI::App* sub : app.get_subcommands({})) names += (names.empty() ? "" : ", ") + sub->get_name();
  return names;
}

int run(int argc, char** argv) {
  CLI::App app("Scaled dot-product attention: run it, look at it, explain it.", "keel");
  app.set_version_flag("--version", std::string("keel ") + keel::version());
  app.set_help_flag("-h,--help", "Print this help and exit");
  app.require_subcommand(1);
  app.get_formatter()->column_width(34);
  add_attend(app);
  add_info(app);
  add_lab(app);
  add_bench(app);
  try {
    app.parse(argc, argv);
  } catch (const CLI::Success& request) {  // --help or --version
    return app.exit(request);
  } catch (const CLI::RequiredError& error) {
    if (!app.get_subcommands().empty()) return usage(app, error);
    const std::string got = argc > 1 ? fmt::format("'{}'", argv[1]) : "none";
    return fail(kUsage, fmt::format("expected a subcommand ({}), got {} (see keel --help)", subcommands(app), got));
  } catch (const CLI::ParseError& error) {
    return usage(app, error);
  } catch (const CheckFailed& error) {
    return fail(kCheckFailed, error.what());
  } catch (const keel::Error& error) {
    return fail(kBadInput, error.what());
  } catch (const std::bad_alloc&) {
    return fail(kBadInput, "expected memory for the arrays, got none from the system");
  } catch (const std::exception& error) {
    return fail(kBadInput, error.what());
  }
  return kOk;
}

}  // namespace

int main(int argc, char** argv) {
  // A file over the limit is an error of write(), to be reported like a full disk, not the end of the process.
  ::signal(SIGXFSZ, SIG_IGN);
  const int status = run(argc, argv);
  // Data that did not reach stdout is a failure too.
  if ((std::fflush(stdout) != 0 || std::ferror(stdout) != 0) && status == kOk) {
    return fail(kBadInput, fmt::format("stdout: expected room for the output, got \"{}\"", std::strerror(errno)));
  }
  return status;
}
