#include "io/npy.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <new>

#include "io/messages.h"
#include "keel/error.h"

namespace keel::io {
namespace {

// Called before the data is read, so that a false header costs no memory.
void check_data_size(const NpyHeader& header, std::uint64_t got, const std::string& path) {
  if (got < header.data_bytes) {
    raise_bad_npy(path, fmt::format("expected {} bytes of data for shape {} of {}, got {}", header.data_bytes,
                                    shape_text(header.shape), name_of(header.dtype), got));
  }
  if (got > header.data_bytes) {
    raise_bad_npy(path, fmt::format("expected the end of the file after {} bytes of data, got {} more",
                                    header.data_bytes, got - header.data_bytes));
  }
}

// Whether the file's byte order is not this machine's.
bool foreign(const NpyLayout& layout) { return layout.big_endian != (std::endian::native == std::endian::big); }

void reverse_bytes(Buffer& bytes, std::size_t element) {
  for (std::size_t at = 0; at + element <= bytes.size(); at += element) {
    std::reverse(bytes.data() + at, bytes.data() + at + element);
  }
}

// The elements of an array whose first dimension is contiguous in `bytes`, in C order; with to_fortran, the reverse.
Buffer transpose(const Buffer& bytes, std::span<const std::int64_t> shape, std::size_t element, bool to_fortran) {
  Buffer result(bytes.size());
  std::vector<std::size_t> strides(shape.size());  // in bytes, of the Fortran side
  std::size_t step = element;
  for (std::size_t d = 0; d < shape.size(); ++d) {
    strides[d] = step;
    step *= static_cast<std::size_t>(shape[d]);
  }
  std::vector<std::int64_t> index(shape.size());
  std::size_t fortran = 0;
  for (std::size_t c = 0; c < bytes.size(); c += element) {
    std::memcpy(result.data() + (to_fortran ? fortran : c), bytes.data() + (to_fortran ? c : fortran), element);
    for (std::size_t d = shape.size(); d-- > 0;) {
      fortran += strides[d];
      if (++index[d] < shape[d]) break;
      fortran -= strides[d] * static_cast<std::size_t>(shape[d]);
      index[d] = 0;
    }
  }
  return result;
}

Buffer widen(const Buffer& bytes) {
  Buffer result(bytes.size() * 2);
  for (std::size_t i = 0; i < bytes.size() / 4; ++i) {
    std::int32_t narrow = 0;
    std::memcpy(&narrow, bytes.data() + i * 4, 4);
    const std::int64_t wide = narrow;
    std::memcpy(result.data() + i * 8, &wide, 8);
  }
  return result;
}

Array decode(NpyHeader header, Buffer bytes, const std::string& path) {
  if (header.dtype == DType::boolean) {
    const auto wrong = std::find_if(bytes.begin(), bytes.end(), [](std::byte b) { return b > std::byte{1}; });
    if (wrong != bytes.end()) {
      raise_bad_npy(path, fmt::format("expected bytes 0 and 1 in an array of bool, got {} at byte {} of the data",
                                      std::to_integer<int>(*wrong), wrong - bytes.begin()));
    }
  }
  const auto element = static_cast<std::size_t>(header.narrow ? 4 : size_of(header.dtype));
  if (foreign(header.layout) && element > 1) reverse_bytes(bytes, element);
  if (header.layout.fortran_order && header.shape.size() > 1) bytes = transpose(bytes, header.shape, element, false);
  if (header.narrow) bytes = widen(bytes);
  return {.dtype = header.dtype, .shape = std::move(header.shape), .bytes = std::move(bytes)};
}

}  // namespace

Array parse_npy(std::span<const std::byte> file, const std::string& path) {
  const std::size_t start = npy_header_size(file.first(std::min(file.size(), kNpyPrefix)), path);
  NpyHeader header = parse_npy_header(file.first(std::min(file.size(), start)), path);
  const std::span<const std::byte> data = file.subspan(start);
  check_data_size(header, data.size(), path);
  return decode(std::move(header), Buffer(data.begin(), data.end()), path);
}

Array read_npy(const std::string& path) try {
  InputFile file(path);
  Buffer start;
  file.append(start, kNpyPrefix);
  // Version 1 has the first two bytes of its dictionary in there, so nothing of the data: a header that short holds no
  // dictionary and is rejected.
  const std::size_t size = npy_header_size(start, path);
  if (size > start.size()) file.append(start, size - start.size());
  NpyHeader header = parse_npy_header(start, path);

  if (file.remaining()) check_data_size(header, *file.remaining(), path);
  Buffer data;
  file.append(data, header.data_bytes);
  check_data_size(header, data.size(), path);
  if (Buffer more; file.append(more, 1), !more.empty()) {
    raise_bad_npy(path,
                  fmt::format("expected the end of the file after {} bytes of data, got more", header.data_bytes));
  }
  return decode(std::move(header), std::move(data), path);
} catch (const std::bad_alloc&) {
  throw Error(ErrorCode::out_of_memory,
              fmt::format("[npy] {}: expected memory for its data, got none", path_text(path)));
}

void write_npy(OutputFile& file, const Array& array, const NpyLayout& layout) {
  file.write(make_npy_header(array.dtype, array.shape, layout));
  const auto element = static_cast<std::size_t>(size_of(array.dtype));
  const bool transposed = layout.fortran_order && array.shape.size() > 1;
  const bool reversed = foreign(layout) && element > 1;
  if (!transposed && !reversed) return file.write(array.bytes);
  Buffer bytes = transposed ? transpose(array.bytes, array.shape, element, true) : array.bytes;
  if (reversed) reverse_bytes(bytes, element);
  file.write(bytes);
}

void write_npy(const std::string& path, const Array& array, const NpyLayout& layout) {
  OutputFile file(path);
  write_npy(file, array, layout);
  file.commit();
}

}  // namespace keel::io
