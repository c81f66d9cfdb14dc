#pragma once

#include <stdexcept>
#include <string>

#include "keel/export.h"

namespace keel {

enum class ErrorCode {
  invalid_argument,  // an invalid argument; nothing was computed or written
  bad_file,          // a file whose content cannot be used
  io,                // a file that cannot be opened, read or written
  out_of_memory,     // the workspace of a call could not be allocated
  unsupported,       // no backend serves the call; nothing was computed or written
  wrong_dtype,       // an argument of a dtype not accepted there; nothing was computed or written
  device,            // the device or its driver failed; outputs are undefined
  peer,              // another process of the call was lost; outputs are undefined
};

// The only exception Keel throws. The message names the argument, what was expected and what it got:
// "[attention] k: expected d_k 64 as in q, got 32".
class KEEL_API Error : public std::runtime_error {
 public:
  Error(ErrorCode code, const std::string& message) : std::runtime_error(message), code_(code) {}
  [[nodiscard]] ErrorCode code() const noexcept { return code_; }

 private:
  ErrorCode code_;
};

}  // namespace keel
