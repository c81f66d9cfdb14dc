// The report in a browser: drawn, silent, and asking the network for nothing.
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <cstdlib>

#include "io/file.h"
#include "lab/report/report.h"
#include "run.h"
#include "support/temporary_folder.h"

namespace keel::test {
namespace {

TEST(Browser, DrawsEveryChartOfTheReport) {
  const TemporaryFolder folder;
  const std::string path = folder / "index.html", log = folder / "log";
  io::write_file(path, lab::report(everything(), ledger(everything())));
  const int status = std::system(("python3 -B " KEEL_BROWSER " '" + path + "' >'" + log + "' 2>&1").c_str());
  ASSERT_TRUE(WIFEXITED(status));
  if (WEXITSTATUS(status) == 77) GTEST_SKIP() << "there is no Chromium here, or none that starts";
  const io::Buffer said = io::read_file(log);
  EXPECT_EQ(WEXITSTATUS(status), 0) << std::string(reinterpret_cast<const char*>(said.data()), said.size());
}

}  // namespace
}  // namespace keel::test
