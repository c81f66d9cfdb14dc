// The pages in a browser: drawn, silent, asking the network for nothing, and with the numbers of the program.
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <cstdlib>

#include "io/file.h"
#include "lab/report/report.h"
#include "run.h"
#include "support/temporary_folder.h"

namespace keel::test {
namespace {

// Opens a page; skips the test where no browser starts.
void open(const std::string& html, const std::string& options) {
  const TemporaryFolder folder;
  const std::string path = folder / "index.html", log = folder / "log";
  io::write_file(path, html);
  const std::string command = "python3 -B " KEEL_BROWSER " '" + path + "' " + options + " >'" + log + "' 2>&1";
  const int status = std::system(command.c_str());
  ASSERT_TRUE(WIFEXITED(status));
  if (WEXITSTATUS(status) == 77) GTEST_SKIP() << "there is no Chromium here, or none that starts";
  const io::Buffer said = io::read_file(log);
  EXPECT_EQ(WEXITSTATUS(status), 0) << std::string(reinterpret_cast<const char*>(said.data()), said.size());
}

// The kernels are compared with this program, where the build has them.
std::string with_kernels() { return lab::assets::kernels().empty() ? "" : "--keel '" KEEL_PROGRAM "'"; }

TEST(Browser, DrawsTheReportAsTheProgramComputesIt) {
  open(lab::report(everything(), ledger(everything())), with_kernels());
}

TEST(Browser, DrawsRecordedRowsWithoutKernels) { open(lab::report({everything().front()}, {}, {.kernels = ""}), ""); }

TEST(Browser, DrawsThePlaygroundAsTheProgramComputesIt) { open(lab::playground_page(), with_kernels()); }

}  // namespace
}  // namespace keel::test
