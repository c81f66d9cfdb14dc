#include "io/npy_header.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <charconv>
#include <string_view>

#include "io/messages.h"
#include "io/npy_dictionary.h"

namespace keel::io {
namespace {

constexpr std::string_view kMagic = "\x93NUMPY";
constexpr std::size_t kLongestDictionary = 65535;

std::string_view characters(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

// NumPy's name of a type that Keel does not read.
std::string numpy_name(char kind, std::string_view size) {
  int bytes = 0;
  std::from_chars(size.data(), size.data() + size.size(), bytes);
  const bool plausible = bytes >= 1 && bytes <= 32;
  switch (kind) {
    case 'i':
      return plausible ? fmt::format("int{}", bytes * 8) : "an integer";
    case 'u':
      return plausible ? fmt::format("uint{}", bytes * 8) : "an unsigned integer";
    case 'f':
      return plausible ? fmt::format("float{}", bytes * 8) : "a float";
    case 'c':
      return plausible ? fmt::format("complex{}", bytes * 8) : "a complex number";
    case 'O':
      return "Python objects (a pickle)";
    case 'S':
    case 'a':
      return "byte strings";
    case 'U':
      return "strings";
    case 'M':
      return "datetime64";
    case 'm':
      return "timedelta64";
    case 'V':
      return "raw bytes";
    default:
      return "an unknown type";
  }
}

// NumPy has no bfloat16. That of ml_dtypes, which JAX and others use, is stored as two raw bytes, 'V2', so 'V2' is bf16
// here, for reading and writing.
void read_descr(const std::string& descr, const std::string& path, NpyHeader& header) {
  const auto refuse = [&](const std::string& got) {
    raise_bad_npy(path, fmt::format("expected dtype {}, got {} ('{}')", kNpyDtypes, got, printable(descr)));
  };
  if (descr.starts_with("O") || descr.starts_with("|O")) refuse(numpy_name('O', ""));
  if (descr.size() < 3 || std::string_view("<>=|").find(descr[0]) == std::string_view::npos) {
    raise_bad_npy(path, fmt::format("expected a dtype such as '<f4', got '{}'", printable(descr)));
  }
  constexpr bool kNativeBig = std::endian::native == std::endian::big;
  header.layout.big_endian = descr[0] == '>' || (descr[0] != '<' && kNativeBig);
  const std::string_view type = std::string_view(descr).substr(1);
  header.narrow = type == "i4";
  if (type == "f8") {
    header.dtype = DType::f64;
  } else if (type == "f4") {
    header.dtype = DType::f32;
  } else if (type == "f2") {
    header.dtype = DType::f16;
  } else if (type == "V2") {
    header.dtype = DType::bf16;
  } else if (type == "b1") {
    header.dtype = DType::boolean;
  } else if (type == "i8" || type == "i4") {
    header.dtype = DType::i64;
  } else {
    refuse(numpy_name(type[0], type.substr(1)));
  }
}

const char* descr_of(DType dtype) {
  switch (dtype) {
    case DType::f64:
      return "f8";
    case DType::f32:
      return "f4";
    case DType::f16:
      return "f2";
    case DType::bf16:
      return "V2";
    case DType::boolean:
      return "b1";
    case DType::i64:
      return "i8";
  }
  return "";
}

}  // namespace

std::size_t npy_header_size(std::span<const std::byte> start, const std::string& path) {
  const std::string_view text = characters(start);
  if (text.empty()) raise_bad_npy(path, "expected a .npy file, got an empty one");
  if (!text.starts_with(kMagic)) {
    if (text.starts_with("PK")) raise_bad_npy(path, "expected a .npy file, got a zip archive (.npz?)");
    raise_bad_npy(
        path, fmt::format("expected a .npy file, which starts '\\x93NUMPY', got '{}'", printable(text.substr(0, 6))));
  }
  if (text.size() < 8) raise_bad_npy(path, fmt::format("expected a .npy header, got {} bytes", text.size()));
  const auto byte = [&](std::size_t i) { return std::to_integer<std::size_t>(start[i]); };
  if (byte(6) < 1 || byte(6) > 3 || byte(7) != 0) {
    raise_bad_npy(path, fmt::format("expected format version 1.0, 2.0 or 3.0, got {}.{}", byte(6), byte(7)));
  }
  const std::size_t prefix = byte(6) == 1 ? 10 : 12;
  if (text.size() < prefix) raise_bad_npy(path, fmt::format("expected a .npy header, got {} bytes", text.size()));
  std::size_t dictionary = byte(8) | byte(9) << 8;
  if (prefix == 12) dictionary |= byte(10) << 16 | byte(11) << 24;
  if (dictionary > kLongestDictionary) {
    raise_bad_npy(path, fmt::format("expected a header of at most {} bytes, got {}", kLongestDictionary, dictionary));
  }
  return prefix + dictionary;
}

NpyHeader parse_npy_header(std::span<const std::byte> bytes, const std::string& path) {
  const std::size_t size = npy_header_size(bytes.first(std::min(bytes.size(), kNpyPrefix)), path);
  if (bytes.size() < size)
    raise_bad_npy(path, fmt::format("expected a header of {} bytes, got {}", size, bytes.size()));
  NpyHeader header;
  header.layout.version = std::to_integer<int>(bytes[6]);
  const std::size_t prefix = header.layout.version == 1 ? 10 : 12;
  NpyDictionary dictionary = parse_npy_dictionary(characters(bytes.subspan(prefix, size - prefix)), path);
  read_descr(dictionary.descr, path, header);
  header.layout.fortran_order = dictionary.fortran_order;
  header.shape = std::move(dictionary.shape);

  const std::int64_t element = header.narrow ? 4 : size_of(header.dtype);
  std::int64_t most = size_of(header.dtype);  // bytes, if every 0 were a 1
  bool empty = false;
  for (const std::int64_t n : header.shape) {
    empty = empty || n == 0;
    if (n > 0 && __builtin_mul_overflow(most, n, &most)) {
      raise_bad_npy(path, fmt::format("expected an array that memory can hold, got shape {} of {}",
                                      shape_text(header.shape), name_of(header.dtype)));
    }
  }
  header.data_bytes = empty ? 0 : static_cast<std::uint64_t>(most / size_of(header.dtype) * element);
  return header;
}

std::string make_npy_header(DType dtype, std::span<const std::int64_t> shape, const NpyLayout& layout) {
  const char order = dtype == DType::boolean ? '|' : layout.big_endian ? '>' : '<';
  std::string dictionary = fmt::format("{{'descr': '{}{}', 'fortran_order': {}, 'shape': {}, }}", order,
                                       descr_of(dtype), layout.fortran_order ? "True" : "False", shape_text(shape));
  const std::size_t prefix = layout.version == 1 ? 10 : 12;
  const std::size_t size = (prefix + dictionary.size() + 1 + 63) / 64 * 64;
  dictionary.resize(size - prefix - 1, ' ');
  dictionary += '\n';

  std::string header(kMagic);
  header += static_cast<char>(layout.version);
  header += '\0';
  for (std::size_t i = 8; i < prefix; ++i) header += static_cast<char>(dictionary.size() >> (8 * (i - 8)) & 0xFF);
  return header + dictionary;
}

}  // namespace keel::io
