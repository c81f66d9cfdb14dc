#include "io/safetensors.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <new>

#include "io/messages.h"
#include "io/safetensors_header.h"
#include "keel/error.h"

static_assert(std::endian::native == std::endian::little, "safetensors data is read and written as it is in memory");

namespace keel::io {
namespace {

std::string_view text_of(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

void check_header_length(std::uint64_t expected, std::uint64_t got, const std::string& path) {
  if (got < expected) raise_bad_safetensors(path, fmt::format("expected a header of {} bytes, got {}", expected, got));
}

// Called before the data is read, so that a false header costs no memory.
void check_data_size(std::uint64_t expected, std::uint64_t got, const std::string& path) {
  if (got != expected) raise_bad_safetensors(path, fmt::format("expected {} bytes of data, got {}", expected, got));
}

Array array_of(const SafetensorsEntry& entry, Buffer bytes, const std::string& path) {
  if (entry.dtype == DType::boolean) {
    const auto wrong = std::find_if(bytes.begin(), bytes.end(), [](std::byte b) { return b > std::byte{1}; });
    if (wrong != bytes.end()) {
      raise_bad_safetensors(
          path, fmt::format("expected bytes 0 and 1 in '{}' of BOOL, got {} at byte {} of it", printable(entry.name),
                            std::to_integer<int>(*wrong), wrong - bytes.begin()));
    }
  }
  return {.dtype = entry.dtype, .shape = entry.shape, .bytes = std::move(bytes)};
}

}  // namespace

Safetensors parse_safetensors(std::span<const std::byte> file, const std::string& path) {
  const std::uint64_t size =
      safetensors_header_size(text_of(file.first(std::min(file.size(), kSafetensorsPrefix))), path);
  file = file.subspan(kSafetensorsPrefix);
  check_header_length(size, file.size(), path);
  SafetensorsHeader header = parse_safetensors_header(text_of(file.first(size)), path);
  file = file.subspan(size);
  check_data_size(header.data_bytes, file.size(), path);
  Safetensors content{.metadata = std::move(header.metadata)};
  for (const SafetensorsEntry& entry : header.entries) {
    const auto data = file.first(entry.bytes);
    content.tensors.emplace_back(entry.name, array_of(entry, Buffer(data.begin(), data.end()), path));
    file = file.subspan(entry.bytes);
  }
  return content;
}

Safetensors read_safetensors(const std::string& path) try {
  InputFile file(path);
  Buffer start;
  file.append(start, kSafetensorsPrefix);
  const std::uint64_t size = safetensors_header_size(text_of(start), path);
  Buffer text;
  file.append(text, size);
  check_header_length(size, text.size(), path);
  SafetensorsHeader header = parse_safetensors_header(text_of(text), path);
  if (file.remaining()) check_data_size(header.data_bytes, *file.remaining(), path);
  Safetensors content{.metadata = std::move(header.metadata)};
  std::uint64_t got = 0;
  for (const SafetensorsEntry& entry : header.entries) {
    Buffer bytes;
    file.append(bytes, entry.bytes);
    got += bytes.size();
    if (bytes.size() < entry.bytes) check_data_size(header.data_bytes, got, path);
    content.tensors.emplace_back(entry.name, array_of(entry, std::move(bytes), path));
  }
  if (Buffer more; file.append(more, 1), !more.empty()) {
    raise_bad_safetensors(
        path, fmt::format("expected the end of the file after {} bytes of data, got more", header.data_bytes));
  }
  return content;
} catch (const std::bad_alloc&) {
  throw Error(ErrorCode::out_of_memory,
              fmt::format("[safetensors] {}: expected memory for its data, got none", path_text(path)));
}

void write_safetensors(const std::string& path, const Safetensors& content) {
  std::vector<const std::pair<std::string, Array>*> order;
  for (const auto& tensor : content.tensors) order.push_back(&tensor);
  std::stable_sort(order.begin(), order.end(),
                   [](const auto* a, const auto* b) { return size_of(a->second.dtype) > size_of(b->second.dtype); });
  std::vector<SafetensorsEntry> entries;
  entries.reserve(order.size());
  for (const auto* tensor : order) {
    entries.push_back({tensor->first, tensor->second.dtype, tensor->second.shape, tensor->second.bytes.size()});
  }
  OutputFile file(path);
  file.write(make_safetensors_header(entries, content.metadata, path));
  for (const auto* tensor : order) file.write(tensor->second.bytes);
  file.commit();
}

}  // namespace keel::io
