// The files under good/ (written by NumPy) and bad/; make_corpus.py makes both.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <map>
#include <string>
#include <thread>
#include <vector>

#include "io/npy.h"
#include "keel/error.h"
#include "support/temporary_folder.h"

namespace keel::io {
namespace {

using testing::ElementsAre;

std::string file(const std::string& name) { return std::string(KEEL_NPY_FILES) + "/" + name + ".npy"; }

std::vector<std::string> names_in(const std::string& folder) {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(std::string(KEEL_NPY_FILES) + "/" + folder)) {
    names.push_back(entry.path().stem().string());
  }
  return names;
}

double element(const Array& array, std::size_t i) {
  switch (array.dtype) {
    case DType::f64:
      return array.as<double>()[i];
    case DType::f32:
      return array.as<float>()[i];
    case DType::f16:
      return to_float(array.as<Float16>()[i]);
    case DType::bf16:
      return to_float(array.as<BFloat16>()[i]);
    case DType::boolean:
      return array.as<bool>()[i] ? 1 : 0;
    case DType::i64:
      return static_cast<double>(array.as<std::int64_t>()[i]);
  }
  return -1;
}

TEST(NpyRead, EveryDtypeByteOrderAndLayoutOfNumPy) {
  const std::map<std::string, DType> dtypes = {{"f64", DType::f64},   {"f32", DType::f32},      {"f16", DType::f16},
                                               {"bf16", DType::bf16}, {"bool", DType::boolean}, {"i64", DType::i64},
                                               {"i32", DType::i64}};
  int read = 0;
  for (const std::string& name : names_in("good")) {
    const auto dtype = dtypes.find(name.substr(0, name.find('_')));
    if (dtype == dtypes.end()) continue;
    SCOPED_TRACE(name);
    const Array array = read_npy(file("good/" + name));
    EXPECT_EQ(array.dtype, dtype->second);
    ASSERT_THAT(array.shape, ElementsAre(2, 3, 4));
    ASSERT_EQ(static_cast<std::int64_t>(array.bytes.size()), 24 * size_of(array.dtype));
    for (std::size_t i = 0; i < 24; ++i) {
      const auto step = static_cast<double>(i);
      const double expected = array.dtype == DType::boolean ? (i % 3 == 0 ? 1.0 : 0.0)
                              : array.dtype == DType::i64   ? step - 5
                                                            : step * 0.5;
      EXPECT_EQ(element(array, i), expected) << "element " << i;
    }
    ++read;
  }
  EXPECT_EQ(read, 7 * 2 * 2);
}

TEST(NpyRead, ScalarHasNoDimensions) {
  const Array array = read_npy(file("good/scalar"));
  EXPECT_TRUE(array.shape.empty());
  EXPECT_THAT(array.as<float>(), ElementsAre(1.5f));
}

TEST(NpyRead, EmptyArrayKeepsItsShape) {
  const Array array = read_npy(file("good/empty"));
  EXPECT_THAT(array.shape, ElementsAre(1, 2, 0, 64));
  EXPECT_TRUE(array.bytes.empty());
}

TEST(NpyRead, KeysMayComeInAnyOrderAndInEitherQuote) {
  EXPECT_THAT(read_npy(file("good/keys_in_another_order")).as<float>(), ElementsAre(1.5f, 2.5f));
}

TEST(NpyRead, EqualsSignIsThisMachinesByteOrder) {
  EXPECT_THAT(read_npy(file("good/native_order")).as<float>(), ElementsAre(1.5f, 2.5f));
}

TEST(NpyRead, DataStartsAtACacheLine) {
  const Array array = read_npy(file("good/f32_little_C_v2"));
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(array.bytes.data()) % 64, 0u);
}

TEST(NpyRead, PipeIsReadLikeAFile) {
  const test::TemporaryFolder folder;
  const std::string pipe = folder / "pipe";
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  std::thread writer([&] { write_npy(pipe, read_npy(file("good/f32_little_C_v2"))); });
  const Array array = read_npy(pipe);
  writer.join();
  EXPECT_EQ(array.bytes, read_npy(file("good/f32_little_C_v2")).bytes);
}

TEST(NpyRead, PipeThatEndsEarlyOrLateIsRefused) {
  for (const std::string name : {"shape_of_a_terabyte", "data_too_long"}) {
    const test::TemporaryFolder folder;
    const std::string pipe = folder / "pipe";
    ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
    std::thread writer([&] { write_file(pipe, read_file(file("bad/" + name))); });
    EXPECT_THROW(read_npy(pipe), Error) << name;
    writer.join();
  }
}

// What is wrong with each file of bad/, as its message says it.
const std::map<std::string, std::string> kMessages = {
    {"empty_file", "expected a .npy file, got an empty one"},
    {"no_magic", "expected a .npy file, which starts '\\x93NUMPY', got 'hello,'"},
    {"zip", "expected a .npy file, got a zip archive (.npz?)"},
    {"magic_only", "expected a .npy header, got 6 bytes"},
    {"no_header_length", "expected a .npy header, got 9 bytes"},
    {"version_0", "expected format version 1.0, 2.0 or 3.0, got 0.0"},
    {"version_4", "expected format version 1.0, 2.0 or 3.0, got 4.0"},
    {"version_1_1", "expected format version 1.0, 2.0 or 3.0, got 1.1"},
    {"header_of_4_gigabytes", "expected a header of at most 65535 bytes, got 4294967295"},
    {"header_cut", "expected a header of 70 bytes, got 40"},
    {"data_cut", "expected 24 bytes of data for shape (2, 3) of f32, got 23"},
    {"data_missing", "expected 24 bytes of data for shape (2, 3) of f32, got 0"},
    {"data_too_long", "expected the end of the file after 24 bytes of data, got 2 more"},
    {"shape_of_a_terabyte", "expected 1099511627776 bytes of data for shape (1024, 1024, 1024, 256) of f32, got 24"},
    {"shape_overflows", "expected an array that memory can hold, got shape (4294967296, 4294967296) of f32"},
    {"shape_overflows_but_for_a_zero",
     "expected an array that memory can hold, got shape (9223372036854775807, 9223372036854775807, 0) of f32"},
    {"size_over_64_bits", "expected sizes from 0 to 2^63 - 1 in shape, got 99999999999999999999"},
    {"size_negative", "expected sizes from 0 to 2^63 - 1 in shape, got -3"},
    {"size_float", "expected ',' or ')' at byte 52 of the header's dictionary, got '.'"},
    {"size_missing", "expected a size at byte 54 of the header's dictionary, got ','"},
    {"rank_33", "expected at most 32 dimensions, got more"},
    {"shape_a_number", "expected '(' at byte 50 of the header's dictionary, got '6'"},
    {"shape_in_parentheses", "expected a tuple as shape, got (6)"},
    {"shape_a_list", "expected '(' at byte 50 of the header's dictionary, got '['"},
    {"shape_without_comma", "expected ',' or ')' at byte 53 of the header's dictionary, got '3'"},
    {"shape_unclosed", "expected ',' or ')' at byte 55 of the header's dictionary, got its end"},
    {"no_brace", "expected '{' at byte 0 of the header's dictionary, got '''"},
    {"brace_unclosed", "expected a key in quotes at byte 58 of the header's dictionary, got its end"},
    {"no_colon", "expected ':' at byte 9 of the header's dictionary, got '''"},
    {"no_comma", "expected ',' or '}' at byte 16 of the header's dictionary, got '''"},
    {"key_unquoted", "expected a key in quotes at byte 1 of the header's dictionary, got 'd'"},
    {"quote_unclosed", "expected the closing quote at byte 14 of the header's dictionary, got its end"},
    {"quote_escaped", "expected the closing quote at byte 13 of the header's dictionary, got '\\'"},
    {"key_twice", "expected the key descr once, got it twice"},
    {"key_unknown", "expected the keys descr, fortran_order and shape, got 'extra'"},
    {"descr_missing", "expected the key descr in the header, got none"},
    {"order_missing", "expected the key fortran_order in the header, got none"},
    {"shape_missing", "expected the key shape in the header, got none"},
    {"after_the_brace", "expected nothing after '}' at byte 60 of the header's dictionary, got 'i'"},
    {"zero_bytes_after_the_brace", "expected nothing after '}' at byte 59 of the header's dictionary, got '\\x00'"},
    {"order_0", "expected True or False at byte 34 of the header's dictionary, got '0'"},
    {"descr_a_number", "expected the dtype in quotes at byte 10 of the header's dictionary, got '4'"},
    {"descr_empty", "expected a dtype such as '<f4', got ''"},
    {"descr_without_byte_order", "expected a dtype such as '<f4', got 'f4'"},
    {"descr_unprintable", "got an unknown type ('<\\x1b[2J\\x07')"},
    {"dtype_complex64", "expected dtype f64, f32, f16, bf16, bool or i64, got complex64 ('<c8')"},
    {"dtype_complex128", "got complex128 ('<c16')"},
    {"dtype_longdouble", "got float128 ('<f16')"},
    {"dtype_int8", "got int8 ('|i1')"},
    {"dtype_int16", "got int16 ('<i2')"},
    {"dtype_uint8", "got uint8 ('|u1')"},
    {"dtype_uint64", "got uint64 ('<u8')"},
    {"dtype_bytes", "got byte strings ('|S5')"},
    {"dtype_string", "got strings ('<U2')"},
    {"dtype_object", "got Python objects (a pickle) ('|O')"},
    {"dtype_datetime", "got datetime64 ('<M8[s]')"},
    {"dtype_timedelta", "got timedelta64 ('<m8[s]')"},
    {"dtype_raw", "got raw bytes ('|V3')"},
    {"dtype_structured", "got a structured dtype"},
    {"dtype_unknown", "got an unknown type ('<z4')"},
    {"bool_of_7", "expected bytes 0 and 1 in an array of bool, got 7 at byte 3 of the data"},
};

std::string message_of(const std::string& path, bool in_memory) {
  try {
    in_memory ? parse_npy(read_file(path), path) : read_npy(path);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::bad_file);
    return error.what();
  }
  return "";
}

TEST(NpyRead, EveryBadFileSaysWhatIsWrongWithIt) {
  int seen = 0;
  for (const std::string& name : names_in("bad")) {
    SCOPED_TRACE(name);
    const auto expected = kMessages.find(name);
    ASSERT_NE(expected, kMessages.end());
    const std::string path = file("bad/" + name);
    const std::string message = message_of(path, false);
    EXPECT_THAT(message, testing::StartsWith("[npy] " + path + ": expected "));
    EXPECT_THAT(message, testing::EndsWith(expected->second));
    EXPECT_THAT(message, testing::Not(testing::HasSubstr("\n")));
    EXPECT_EQ(message_of(path, true), message);
    ++seen;
  }
  EXPECT_EQ(seen, static_cast<int>(kMessages.size()));
}

TEST(NpyRead, MissingFileAndFolderAreNamed) {
  const test::TemporaryFolder folder;
  for (const std::string& path : {folder / "none.npy", folder.path()}) {
    try {
      read_npy(path);
      ADD_FAILURE() << path << " was read";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::io);
      EXPECT_THAT(error.what(), testing::StartsWith("[file] " + path + ": expected a file to read, got \""));
    }
  }
}

}  // namespace
}  // namespace keel::io
