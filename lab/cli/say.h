#pragma once

#include <string>

#include "lab/work.h"

namespace keel::cli {

struct SayRequest {
  lab::Settings settings;
  std::string sentence, folder;
  bool json = false, quiet = false;
};

// keel lab translate --say: translates a sentence with one arm, which is trained first if the folder does not have
// it, prints what it attended to, and leaves the same as a page in the folder.
void say(const SayRequest& request);

}  // namespace keel::cli
