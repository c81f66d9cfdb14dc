#include "io/safetensors_header.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <set>

#include "io/messages.h"
#include "keel/error.h"

namespace keel::io {
namespace {

using Json = nlohmann::json;

constexpr std::uint64_t kLongestHeader = 100'000'000;  // the limit of the format's own library
constexpr const char* kMetadata = "__metadata__";

constexpr std::array<std::pair<DType, const char*>, 6> kDtypes{{{DType::f64, "F64"},
                                                                {DType::f32, "F32"},
                                                                {DType::f16, "F16"},
                                                                {DType::bf16, "BF16"},
                                                                {DType::boolean, "BOOL"},
                                                                {DType::i64, "I64"}}};

// The name of a tensor in a message.
std::string in_quotes(const std::string& name) { return fmt::format("'{}'", printable(name)); }

// Rejects everything but JSON of the header's depth, with unique keys and arrays no longer than a shape, so that a
// hostile header costs no more than its own length. It runs before the parser proper, whose own hook for this walks
// over all earlier members at the end of each object.
class Watch {
 public:
  explicit Watch(const std::string& path) : path_(path) {}

  bool null() { return value(); }
  bool boolean(bool) { return value(); }
  bool number_integer(Json::number_integer_t) { return value(); }
  bool number_unsigned(Json::number_unsigned_t) { return value(); }
  bool number_float(Json::number_float_t, const std::string&) { return value(); }
  bool string(std::string&) { return value(); }
  bool binary(Json::binary_t&) { return value(); }

  bool start_object(std::size_t) {
    if (depth_ >= keys_.size()) too_deep();
    keys_[depth_++].clear();
    return true;
  }
  bool key(std::string& name) {
    if (!keys_[depth_ - 1].insert(name).second) {
      raise_bad_safetensors(path_, fmt::format("expected each key once, got {} twice", in_quotes(name)));
    }
    return true;
  }
  bool start_array(std::size_t) {
    if (depth_ > keys_.size()) too_deep();
    ++depth_;
    elements_ = 0;
    return true;
  }
  bool end_object() { return end(); }
  bool end_array() { return end(); }

  bool parse_error(std::size_t byte, const std::string&, const Json::exception& error) {
    if (dynamic_cast<const Json::out_of_range*>(&error) != nullptr) {
      raise_bad_safetensors(path_, "expected a header in JSON, got a number that no float64 holds");
    }
    raise_bad_safetensors(path_, fmt::format("expected a header in JSON, got something else at byte {} of it", byte));
  }

 private:
  bool value() {
    if (depth_ > keys_.size() && ++elements_ > kMostDimensions) {
      raise_bad_safetensors(path_, fmt::format("expected lists of at most {} numbers, got more", kMostDimensions));
    }
    return true;
  }
  bool end() {
    --depth_;
    return true;
  }
  [[noreturn]] void too_deep() const {
    raise_bad_safetensors(path_,
                          "expected no more than a list in an object in the header's object, got deeper nesting");
  }

  const std::string& path_;
  std::array<std::set<std::string>, 2> keys_;  // of the header, and of the object in it
  std::size_t depth_ = 0, elements_ = 0;
};

Json parse_json(std::string_view text, const std::string& path) {
  Watch watch(path);
  Json::sax_parse(text, &watch);
  return Json::parse(text);
}

DType dtype_of_name(const std::string& name, const Json& value, const std::string& path) {
  if (!value.is_string())
    raise_bad_safetensors(path,
                          fmt::format("expected a dtype in quotes for {}, got {}", in_quotes(name), value.type_name()));
  const auto& code = value.get_ref<const std::string&>();
  for (const auto& [dtype, known] : kDtypes) {
    if (code == known) return dtype;
  }
  raise_bad_safetensors(path, fmt::format("expected dtype F64, F32, F16, BF16, BOOL or I64 for {}, got {}",
                                          in_quotes(name), in_quotes(code)));
}

std::vector<std::int64_t> shape_of(const std::string& name, const Json& value, const std::string& path) {
  if (!value.is_array())
    raise_bad_safetensors(path,
                          fmt::format("expected a list as shape of {}, got {}", in_quotes(name), value.type_name()));
  std::vector<std::int64_t> shape;
  for (const Json& size : value) {
    if (!size.is_number_unsigned() || size.get<std::uint64_t>() > INT64_MAX) {
      raise_bad_safetensors(path, fmt::format("expected sizes from 0 to 2^63 - 1 in the shape of {}, got {}",
                                              in_quotes(name), printable(size.dump(-1, ' ', true))));
    }
    shape.push_back(size.get<std::int64_t>());
  }
  return shape;
}

std::uint64_t bytes_of(const SafetensorsEntry& entry, const std::string& path) {
  std::int64_t bytes = size_of(entry.dtype);
  bool empty = false;
  for (const std::int64_t size : entry.shape) {
    empty = empty || size == 0;
    if (__builtin_mul_overflow(bytes, std::max<std::int64_t>(size, 1), &bytes)) {
      raise_bad_safetensors(path, fmt::format("expected an array that memory can hold, got shape {} of {} for {}",
                                              shape_text(entry.shape), name_of(entry.dtype), in_quotes(entry.name)));
    }
  }
  return empty ? 0 : static_cast<std::uint64_t>(bytes);
}

struct Placed {
  SafetensorsEntry entry;
  std::uint64_t begin = 0;
};

Placed entry_of(const std::string& name, const Json& value, const std::string& path) {
  if (!value.is_object())
    raise_bad_safetensors(path, fmt::format("expected an object for {}, got {}", in_quotes(name), value.type_name()));
  for (const char* key : {"dtype", "shape", "data_offsets"}) {
    if (!value.contains(key))
      raise_bad_safetensors(path, fmt::format("expected the key {} for {}, got none", key, in_quotes(name)));
  }
  if (value.size() > 3) {
    raise_bad_safetensors(path, fmt::format("expected the keys dtype, shape and data_offsets for {}, got {} keys",
                                            in_quotes(name), value.size()));
  }
  Placed placed{.entry = {.name = name,
                          .dtype = dtype_of_name(name, value["dtype"], path),
                          .shape = shape_of(name, value["shape"], path)}};
  const Json& offsets = value["data_offsets"];
  if (!offsets.is_array() || offsets.size() != 2 || !offsets[0].is_number_unsigned() ||
      !offsets[1].is_number_unsigned()) {
    raise_bad_safetensors(path, fmt::format("expected two offsets of at least 0 as data_offsets of {}, got {}",
                                            in_quotes(name), printable(offsets.dump(-1, ' ', true))));
  }
  placed.begin = offsets[0].get<std::uint64_t>();
  const auto end = offsets[1].get<std::uint64_t>();
  placed.entry.bytes = bytes_of(placed.entry, path);
  if (end < placed.begin || end - placed.begin != placed.entry.bytes) {
    raise_bad_safetensors(path, fmt::format("expected {} bytes for shape {} of {} of {}, got data_offsets {} to {}",
                                            placed.entry.bytes, shape_text(placed.entry.shape),
                                            name_of(placed.entry.dtype), in_quotes(name), placed.begin, end));
  }
  return placed;
}

}  // namespace

std::uint64_t safetensors_header_size(std::string_view start, const std::string& path) {
  if (start.empty()) raise_bad_safetensors(path, "expected a .safetensors file, got an empty one");
  if (start.size() < kSafetensorsPrefix) {
    raise_bad_safetensors(path, fmt::format("expected the {} bytes of the header's length, got {} bytes",
                                            kSafetensorsPrefix, start.size()));
  }
  std::uint64_t size = 0;
  for (std::size_t i = kSafetensorsPrefix; i-- > 0;) size = size << 8 | static_cast<unsigned char>(start[i]);
  if (size > kLongestHeader) {
    raise_bad_safetensors(path,
                          fmt::format("expected a header of at most {} bytes, got {} (is this a .safetensors file?)",
                                      kLongestHeader, size));
  }
  return size;
}

SafetensorsHeader parse_safetensors_header(std::string_view text, const std::string& path) {
  if (text.empty() || text.front() != '{') {
    raise_bad_safetensors(path, fmt::format("expected a header that starts with '{{', got '{}'", printable(text, 8)));
  }
  const Json json = parse_json(text, path);
  SafetensorsHeader header;
  std::vector<Placed> placed;
  for (const auto& [name, value] : json.items()) {
    if (name != kMetadata) {
      placed.push_back(entry_of(name, value, path));
      continue;
    }
    if (!value.is_object())
      raise_bad_safetensors(path, fmt::format("expected an object as {}, got {}", kMetadata, value.type_name()));
    for (const auto& [key, entry] : value.items()) {
      if (!entry.is_string()) {
        raise_bad_safetensors(
            path, fmt::format("expected texts in {}, got {} for {}", kMetadata, entry.type_name(), in_quotes(key)));
      }
      header.metadata[key] = entry.get<std::string>();
    }
  }
  // Empty tensors share their place with what follows.
  std::stable_sort(placed.begin(), placed.end(), [](const Placed& a, const Placed& b) {
    return std::pair(a.begin, a.entry.bytes) < std::pair(b.begin, b.entry.bytes);
  });
  for (Placed& next : placed) {
    if (next.begin != header.data_bytes) {
      raise_bad_safetensors(path, fmt::format("expected the data of {} at byte {}, after that of the others, got {}",
                                              in_quotes(next.entry.name), header.data_bytes, next.begin));
    }
    if (__builtin_add_overflow(header.data_bytes, next.entry.bytes, &header.data_bytes) ||
        header.data_bytes > INT64_MAX) {
      raise_bad_safetensors(
          path, fmt::format("expected arrays that memory can hold, got more with {}", in_quotes(next.entry.name)));
    }
    header.entries.push_back(std::move(next.entry));
  }
  return header;
}

std::string make_safetensors_header(const std::vector<SafetensorsEntry>& entries,
                                    const std::map<std::string, std::string>& metadata, const std::string& path) {
  const auto refuse = [&](const std::string& what) {
    throw Error(ErrorCode::invalid_argument, fmt::format("[safetensors] {}: {}", path_text(path), what));
  };
  std::string text;
  const auto member = [&](const std::string& name, const std::string& value) {
    text += (text.empty() ? '{' : ',') + Json(name).dump() + ':' + value;
  };
  std::set<std::string> names{kMetadata};
  std::uint64_t at = 0;
  try {
    if (!metadata.empty()) member(kMetadata, Json(metadata).dump());
    for (const SafetensorsEntry& entry : entries) {
      if (!names.insert(entry.name).second)
        refuse(fmt::format("expected each name once, got {} again", in_quotes(entry.name)));
      const auto code =
          std::find_if(kDtypes.begin(), kDtypes.end(), [&](const auto& d) { return d.first == entry.dtype; });
      const nlohmann::ordered_json value = {
          {"dtype", code->second}, {"shape", entry.shape}, {"data_offsets", {at, at + entry.bytes}}};
      member(entry.name, value.dump());
      at += entry.bytes;
    }
  } catch (const Json::type_error&) {
    refuse("expected names and metadata in UTF-8, got other bytes");
  }
  text += text.empty() ? "{}" : "}";
  text.append((8 - text.size() % 8) % 8, ' ');
  if (text.size() > kLongestHeader)
    refuse(fmt::format("expected a header of at most {} bytes, got {}", kLongestHeader, text.size()));
  std::string start;
  for (std::size_t i = 0; i < kSafetensorsPrefix; ++i) start += static_cast<char>(text.size() >> (8 * i) & 0xFF);
  return start + text;
}

}  // namespace keel::io
