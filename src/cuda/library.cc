#include "cuda/library.h"

#include <dlfcn.h>

#include <array>
#include <cstdlib>
#include <cstring>
#include <mutex>

#include "core/message.h"

namespace keel::cuda {
namespace {

#if defined(__APPLE__)
constexpr const char* kFile = "libkeel_cuda.dylib";
#else
constexpr const char* kFile = "libkeel_cuda.so." KEEL_SOVERSION;
#endif

// The folder of the file that this code was loaded from, with a slash; empty where it cannot be told.
std::string own_folder() {
  static const char here = 0;
  Dl_info info;
  if (dladdr(&here, &info) == 0 || info.dli_fname == nullptr) return "";
  const std::string file = info.dli_fname;
  const std::size_t slash = file.rfind('/');
  return slash == std::string::npos ? "" : file.substr(0, slash + 1);
}

void* open_library(std::string& reason) {
  const auto open = [&](const std::string& file) {
    void* const handle = dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (handle == nullptr) {
      const char* const why = dlerror();
      reason = why != nullptr ? why : concat(file, " cannot be opened");
    }
    return handle;
  };
  if (const char* const named = std::getenv("KEEL_CUDA_LIBRARY"); named != nullptr && *named != '\0')
    return open(named);
  if (const std::string folder = own_folder(); !folder.empty()) {
    for (const char* const place : {"", "../lib/"}) {  // beside libkeel, or beside a program that it was linked into
      if (void* const handle = open(folder + place + kFile)) return handle;
    }
  }
  return open(kFile);
}

// What the library's function of this name returns; null without one.
template <class Function>
auto from(void* handle, const char* name) {
  void* const symbol = dlsym(handle, name);
  Function function = nullptr;
  std::memcpy(&function, &symbol, sizeof function);
  return function != nullptr ? function() : nullptr;
}

Library open_table() {
  Library library;
  void* const handle = open_library(library.reason);
  if (handle == nullptr) {
    library.reason = concat("no CUDA backend: ", library.reason);
    return library;
  }
  const Table* const table = from<TableFunction>(handle, kTableFunction);
  if (table == nullptr || table->size != sizeof(Table) || std::strcmp(table->version, KEEL_VERSION) != 0) {
    library.reason = concat("no CUDA backend: expected that of Keel ", KEEL_VERSION, ", found ",
                            table == nullptr ? "another library" : table->version);
    return library;
  }
  library.table = table;
  const Tools* const tools = from<ToolsFunction>(handle, kToolsFunction);
  if (tools != nullptr && tools->size == sizeof(Tools)) library.tools = tools;
  return library;
}

constexpr int kMostGpus = 64;

}  // namespace

const Library& library() {
  static const Library only = open_table();
  return only;
}

int count_gpus() {
  int count = 0;
  if (library().table == nullptr || library().table->count_gpus(&count) != nullptr) return 0;
  return count < kMostGpus ? count : kMostGpus;
}

const GpuOrReason& gpu(int index) {
  static std::array<GpuOrReason, kMostGpus> gpus;
  static std::array<std::once_flag, kMostGpus> found;
  static const GpuOrReason none{{}, "a device number that no GPU has"};
  if (index < 0 || index >= kMostGpus) return none;
  const auto at = static_cast<std::size_t>(index);
  std::call_once(found[at], [&] {
    const Library& with = library();
    if (with.table == nullptr) {
      gpus[at].reason = with.reason;
    } else if (const char* const why = with.table->describe_gpu(index, &gpus[at].gpu)) {
      gpus[at].reason = why;
    }
  });
  return gpus[at];
}

}  // namespace keel::cuda
