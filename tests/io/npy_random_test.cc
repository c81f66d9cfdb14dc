// Random damage: parse_npy returns an array that is what it says, or raises keel::Error. fuzz/npy_fuzz.cc goes further.
#include <gtest/gtest.h>

#include <filesystem>
#include <random>
#include <string>
#include <vector>

#include "io/npy.h"
#include "keel/error.h"

namespace keel::io {
namespace {

void parse(const Buffer& file) {
  try {
    const Array array = parse_npy(file, "memory");
    ASSERT_EQ(array.bytes.size(), static_cast<std::size_t>(array.elements() * size_of(array.dtype)));
  } catch (const Error& error) {
    ASSERT_EQ(std::string(error.what()).find("[npy] memory: expected "), 0u) << error.what();
  }
}

std::vector<Buffer> corpus() {
  std::vector<Buffer> files;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(KEEL_NPY_FILES)) {
    if (entry.path().extension() == ".npy") files.push_back(read_file(entry.path().string()));
  }
  return files;
}

TEST(NpyRandom, BytesBehindTheMagicString) {
  std::mt19937 random(1);
  for (int i = 0; i < 20000; ++i) {
    Buffer file(random() % 200);
    for (std::byte& byte : file) byte = static_cast<std::byte>(random());
    const std::string start = "\x93NUMPY\x01";
    for (std::size_t at = 0; at < std::min(start.size(), file.size()); ++at)
      file[at] = static_cast<std::byte>(start[at]);
    if (file.size() > 9) file[7] = file[9] = std::byte{0};
    ASSERT_NO_FATAL_FAILURE(parse(file));
  }
}

TEST(NpyRandom, DamagedFiles) {
  std::mt19937 random(2);
  const std::vector<Buffer> files = corpus();
  ASSERT_GT(files.size(), 50u);
  for (int i = 0; i < 40000; ++i) {
    Buffer file = files[random() % files.size()];
    for (std::uint32_t damage = random() % 4 + 1; damage > 0 && !file.empty(); --damage) {
      const std::size_t at = random() % file.size();
      switch (random() % 4) {
        case 0:
          file[at] = static_cast<std::byte>(random());
          break;
        case 1:
          file[at] ^= static_cast<std::byte>(1u << (random() % 8));
          break;
        case 2:
          file.erase(file.begin() + static_cast<std::ptrdiff_t>(at));
          break;
        default:
          file.insert(file.begin() + static_cast<std::ptrdiff_t>(at), file[random() % file.size()]);
      }
    }
    ASSERT_NO_FATAL_FAILURE(parse(file));
  }
}

TEST(NpyRandom, FilesCutAtEveryLength) {
  for (const Buffer& file : corpus()) {
    for (std::size_t length = 0; length < file.size(); ++length) {
      ASSERT_NO_FATAL_FAILURE(parse(Buffer(file.begin(), file.begin() + static_cast<std::ptrdiff_t>(length))));
    }
  }
}

}  // namespace
}  // namespace keel::io
