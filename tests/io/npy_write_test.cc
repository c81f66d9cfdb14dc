#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <numeric>
#include <string>

#include "io/npy.h"
#include "keel/error.h"
#include "support/temporary_folder.h"

namespace keel::io {
namespace {

// Bytes 0, 1, 2 ...: every element differs, in each of its bytes where there is room.
Array counting(DType dtype, std::vector<std::int64_t> shape) {
  Array array = make_array(dtype, std::move(shape));
  for (std::size_t i = 0; i < array.bytes.size(); ++i) {
    array.bytes[i] = static_cast<std::byte>(dtype == DType::boolean ? i % 3 == 0 : i % 251);
  }
  return array;
}

constexpr DType kDtypes[] = {DType::f64, DType::f32, DType::f16, DType::bf16, DType::boolean, DType::i64};

TEST(NpyWrite, ComesBackTheSameInEveryLayout) {
  const test::TemporaryFolder folder;
  const std::string path = folder / "array.npy";
  const std::vector<std::vector<std::int64_t>> shapes = {{},        {1},          {7},    {2, 3},
                                                         {2, 3, 4}, {2, 3, 4, 5}, {3, 0}, {1, 2, 1, 3, 1, 2}};
  for (const DType dtype : kDtypes) {
    for (const auto& shape : shapes) {
      const Array array = counting(dtype, shape);
      for (const int version : {1, 2, 3}) {
        for (const bool big_endian : {false, true}) {
          for (const bool fortran_order : {false, true}) {
            write_npy(path, array, {version, big_endian, fortran_order});
            const Array back = read_npy(path);
            EXPECT_EQ(back.dtype, array.dtype);
            EXPECT_EQ(back.shape, array.shape);
            EXPECT_EQ(back.bytes, array.bytes) << name_of(dtype) << " version " << version << " big " << big_endian
                                               << " fortran " << fortran_order << " rank " << shape.size();
          }
        }
      }
    }
  }
}

TEST(NpyWrite, BytesAreThoseOfNumPy) {
  // Version 1 as numpy.save writes it, byte for byte; NumPy pads a header to a multiple of 64 too.
  const test::TemporaryFolder folder;
  const std::string path = folder / "array.npy";
  for (const std::string name :
       {"f64_little_C_v1", "f32_big_C_v1", "f64_big_F_v1", "f16_little_F_v1", "i64_little_F_v1", "bool_big_C_v1",
        "bf16_little_C_v1", "f32_little_C_v2", "f32_little_F_v3"}) {
    const Buffer original = read_file(std::string(KEEL_NPY_FILES) + "/good/" + name + ".npy");
    NpyLayout layout = parse_npy_header(original, name).layout;
    write_npy(path, parse_npy(original, name), layout);
    EXPECT_EQ(read_file(path), original) << name;
  }
}

TEST(NpyWrite, DataStartsAtAMultipleOf64Bytes) {
  std::vector<std::int64_t> shape;
  for (int rank = 0; rank <= 32; ++rank, shape.push_back(1)) {
    for (const int version : {1, 2, 3}) {
      const std::string header = make_npy_header(DType::f32, shape, {.version = version});
      EXPECT_EQ(header.size() % 64, 0u);
      EXPECT_EQ(header.back(), '\n');
      EXPECT_EQ(npy_header_size(std::as_bytes(std::span(header)).first(kNpyPrefix), "memory"), header.size());
    }
  }
}

}  // namespace
}  // namespace keel::io
