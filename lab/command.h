#pragma once

#include <string>

namespace keel::lab {

// How `keel` can be called from here: "keel" if that is this one on the PATH, else the path of it, as a shell takes it.
std::string keel_command();

// The first program of this name on the PATH; empty if there is none.
std::string on_the_path(const std::string& name);

// In quotes where a shell would need them.
std::string quoted(const std::string& text);

}  // namespace keel::lab
