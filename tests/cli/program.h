#pragma once

#include <functional>
#include <string>
#include <vector>

#include "io/array.h"
#include "support/temporary_folder.h"

namespace keel::test {

struct Result {
  int status = -1;  // exit status; 128 + the signal when one ended it
  std::string out;  // what it wrote on stdout
  std::string err;  // and on stderr
};

// Runs the program with these arguments in `folder`; `before` runs in the new process just ahead of it.
Result keel(const TemporaryFolder& folder, const std::vector<std::string>& arguments,
            const std::function<void()>& before = {});

// A shell command that may call the program as `keel`.
Result shell(const TemporaryFolder& folder, const std::string& command);

// Normally distributed numbers, the same for the same seed.
io::Array random_array(DType dtype, std::vector<std::int64_t> shape, unsigned seed);

// One line that starts as every message of the program does.
testing::AssertionResult is_one_message(const std::string& text);

}  // namespace keel::test
