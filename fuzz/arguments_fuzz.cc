// Any bytes as a call of attention(), attention_backward(), merge() or explain(), see faults.h.
#include <cstdio>
#include <cstdlib>

#include "fuzz/faults.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string fault = keel::fuzz::fault_of({data, size});
  if (fault.empty()) return 0;
  std::fprintf(stderr, "%s\n", fault.c_str());
  std::abort();
}
