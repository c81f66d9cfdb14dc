#include "cli/common/program.h"

#include <cxxabi.h>
#include <fmt/format.h>
#include <signal.h>  // NOLINT(modernize-deprecated-headers): POSIX
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <exception>
#include <new>
#include <string>
#include <system_error>
#include <typeinfo>

#include "cli/common/interrupt.h"
#include "cli/common/manual.h"
#include "io/temporaries.h"
#include "keel/attention.h"
#include "keel/error.h"

namespace keel::cli {
namespace {

int fail(int status, const char* message) noexcept {
  complain(message);
  return status;
}

constexpr const char* kNoMemory = "expected memory for the work, got none from the system";

// Errors that no handler can catch end in std::terminate: out of memory before main(), in the destructors of the JSON
// library, which allocate, or for the exception itself.
[[noreturn]] void give_up() noexcept {
  io::remove_temporaries();
  const std::type_info* type = abi::__cxa_current_exception_type();
  const bool memory = type == nullptr || *type == typeid(std::bad_alloc);
  complain(memory ? kNoMemory : "expected a result, got an unhandled error");
  ::_exit(kBadInput);
}

// Runs before every object that is constructed before main(): CLI11's headers and libhwy have many.
__attribute__((no_sanitize("address", "thread", "undefined"))) void prepare_to_give_up() {
  std::set_terminate(give_up);
}
__attribute__((section(".preinit_array"), used)) void (*const kBeforeAllOthers)() = prepare_to_give_up;

int fail_stdout(int error) noexcept {
  std::array<char, 256> message;
  std::snprintf(message.data(), message.size(), "stdout: expected room for the output, got \"%s\"",
                std::strerror(error));
  return fail(kBadInput, message.data());
}

[[noreturn]] void usage(const CLI::App& app, const CLI::ParseError& error) {
  std::string command = app.get_name();
  for (const CLI::App* sub : app.get_subcommands()) command += " " + sub->get_name();
  throw UsageError(fmt::format("{} (see {} --help)", error.what(), command));
}

// "attend, info"
std::string subcommands(const CLI::App& app) {
  std::string names;
  for (const CLI::App* sub : app.get_subcommands({})) names += (names.empty() ? "" : ", ") + sub->get_name();
  return names;
}

int run(const std::function<void()>& body) {
  try {
    body();
    return kOk;
  } catch (const UsageError& error) {
    return fail(kUsage, error.what());
  } catch (const keel::Error& error) {
    return fail(kBadInput, error.what());
  } catch (const std::bad_alloc&) {
    return fail(kBadInput, kNoMemory);
  } catch (const std::system_error& error) {
    return std::ferror(stdout) != 0 ? fail_stdout(error.code().value()) : fail(kBadInput, error.what());
  } catch (const std::exception& error) {
    return fail(kBadInput, error.what());
  } catch (...) {
    return fail(kBadInput, "expected a result, got an error without a description");
  }
}

}  // namespace

void complain(const char* message) noexcept {
  std::array<char, 512> part;
  std::fputs("keel: ", stderr);
  std::size_t used = 0;
  for (; *message != '\0'; ++message) {
    const auto byte = static_cast<unsigned char>(message[0]), next = static_cast<unsigned char>(message[1]);
    // C1, which has two bytes in UTF-8, is an escape sequence in one character.
    const bool c1 = byte == 0xC2 && next >= 0x80 && next < 0xA0;
    if (c1) ++message;
    part[used++] = c1 || byte < 0x20 || byte == 0x7F ? ' ' : *message;
    if (used < part.size()) continue;
    std::fwrite(part.data(), 1, used, stderr);
    used = 0;
  }
  std::fwrite(part.data(), 1, used, stderr);
  std::fputc('\n', stderr);
}

void prepare(CLI::App& app) {
  app.set_version_flag("--version", std::string("keel ") + keel::version());
  app.set_help_flag("-h,--help", "Print this help and exit");
  app.get_formatter()->column_width(34);
}

void parse(CLI::App& app, int argc, const char* const* argv) {
  // About the program itself, ahead of everything that it checks.
  const std::string first = argc > 1 ? argv[1] : "";
  if (first == "--man" && argc == 2) return void(fmt::print("{}", manual_page(app)));
  if (first == "--complete") return void(fmt::print("{}", completions(app, {argv + 2, argv + argc})));
  if (first == "--completion") return void(fmt::print("{}", completion_script(argc > 2 ? argv[2] : "")));
  try {
    app.parse(argc, argv);
  } catch (const CLI::Success& request) {  // --help or --version
    app.exit(request);
  } catch (const CLI::RequiredError& error) {
    if (app.get_require_subcommand_min() == 0 || !app.get_subcommands().empty()) usage(app, error);
    throw UsageError(fmt::format("expected a subcommand ({}), got {} (see {} --help)", subcommands(app),
                                 argc > 1 ? fmt::format("'{}'", argv[1]) : "none", app.get_name()));
  } catch (const CLI::ParseError& error) {
    usage(app, error);
  }
}

int run_program(const std::function<void()>& body) noexcept {
  leave_no_temporaries();
  // A file over the limit is an error of write(), to be reported like a full disk, not the end of the process.
  ::signal(SIGXFSZ, SIG_IGN);
  const int status = run(body);
  if ((std::fflush(stdout) != 0 || std::ferror(stdout) != 0) && status == kOk) return fail_stdout(errno);
  return status;
}

}  // namespace keel::cli
