// keel lab: hands over to keel-lab, so that this program needs neither the training layer nor a BLAS.
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <system_error>
#include <vector>

#include "cli/commands.h"
#include "cli/common/program.h"
#include "keel/error.h"

namespace keel::cli {
namespace {

constexpr const char* kProgram = "keel-lab";

// Returns only if it was not found next to this program or on the PATH.
void become(char** arguments) {
  std::string name = kProgram;
  std::vector<char*> command = {name.data()};
  for (; *arguments != nullptr; ++arguments) command.push_back(*arguments);
  command.push_back(nullptr);
  // The lab calls the BLAS from its own threads. Threads that OpenBLAS starts would only take memory.
  ::setenv("OPENBLAS_NUM_THREADS", "1", /*overwrite=*/0);
  const auto not_there = [] { return errno == ENOENT || errno == ENOTDIR || errno == EACCES; };
  std::error_code error;
  const std::filesystem::path self = std::filesystem::read_symlink("/proc/self/exe", error);
  if (!error) ::execv((self.parent_path() / kProgram).c_str(), command.data());
  if (error || not_there()) ::execvp(kProgram, command.data());
  if (not_there()) return;
  throw Error(ErrorCode::io, fmt::format("[lab] {}: expected a program to run, got \"{}\"", kProgram,
                                         std::generic_category().message(errno)));
}

}  // namespace

void add_lab(CLI::App& app, char** arguments) {
  CLI::App* command = app.add_subcommand("lab", "What 1/sqrt(d_k) does: experiments, claims and a report");
  command->footer("keel lab --help lists its options.");
  command->callback([arguments] {
    become(arguments);
    throw UsageError(
        fmt::format("lab: expected the program {0} next to keel or on the PATH, got none: build Keel with "
                    "-DKEEL_BUILD_NN=ON, or install {0} next to keel",
                    kProgram));
  });
}

}  // namespace keel::cli
