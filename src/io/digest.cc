#include "io/digest.h"

#include <fmt/format.h>

#include "io/file.h"

namespace keel::io {

std::string Digest::text() const { return fmt::format("{:016x}", hash_); }

std::optional<std::string> file_digest(const std::string& path) {
  constexpr std::uint64_t kChunk = 1 << 18;
  InputFile file(path);
  if (!file.remaining()) return {};
  Digest digest;
  for (Buffer chunk;; chunk.clear()) {
    file.append(chunk, kChunk);
    if (chunk.empty()) return digest.text();
    digest.add(chunk);
  }
}

}  // namespace keel::io
