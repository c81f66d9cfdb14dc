#pragma once

namespace keel::cli {

// Hands over to another of Keel's programs: the one next to this program, or on the PATH. `arguments` follow its name
// and end with a null. Returns only if there is none; raises keel::Error if it cannot run, for `operation`.
void become(const char* operation, const char* program, char** arguments);

}  // namespace keel::cli
