#pragma once

#include <string>

#include "lab/work.h"

namespace keel::cli {

struct SayRequest {
  lab::Settings settings;
  std::string sentence, folder;
  bool json = false, quiet = false;
};

// keel lab translate --say: translates a sentence with one arm, which is trained first where the folder does not have
// it, prints what it looked at, and leaves the same as a page in the folder.
void say(const SayRequest& request);

}  // namespace keel::cli
