// The files under safetensors/ (the good ones by the format's own library); make_safetensors.py makes them.
#include "io/safetensors.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <map>
#include <thread>

#include "core/element.h"
#include "keel/error.h"
#include "support/temporary_folder.h"

namespace keel::io {
namespace {

using testing::ElementsAre;

const std::string kFiles = KEEL_SAFETENSORS_FILES;

std::string file(const std::string& name) { return kFiles + "/" + name + ".safetensors"; }

std::map<std::string, Array> tensors_of(const Safetensors& content) {
  return {content.tensors.begin(), content.tensors.end()};
}

TEST(Safetensors, EveryDtypeOfTheFormatsOwnLibrary) {
  const Safetensors content = read_safetensors(file("good/all_dtypes"));
  std::map<std::string, Array> all = tensors_of(content);
  all["bf16"] = read_safetensors(file("good/bf16")).tensors.at(0).second;
  EXPECT_EQ(all.size(), 6u);
  for (const auto& [name, array] : all) {
    SCOPED_TRACE(name);
    EXPECT_EQ(name, name_of(array.dtype));
    ASSERT_THAT(array.shape, ElementsAre(2, 3));
    for (std::int64_t i = 0; i < 6; ++i) {
      const auto step = static_cast<double>(i);
      const double expected = name == "bool" ? (i % 3 == 0 ? 1.0 : 0.0) : name == "i64" ? step - 5 : step * 0.5;
      EXPECT_EQ(load(array.bytes.data(), array.dtype, i), expected);
    }
  }
  EXPECT_THAT(content.metadata, ElementsAre(std::pair("made by", "safetensors"), std::pair("ü", "ß")));
}

TEST(Safetensors, ScalarsEmptyTensorsAndEmptyFiles) {
  EXPECT_TRUE(read_safetensors(file("good/nothing")).tensors.empty());
  const auto all = tensors_of(read_safetensors(file("good/scalar_and_empty")));
  EXPECT_THAT(all.at("scalar").as<float>(), ElementsAre(1.5f));
  EXPECT_TRUE(all.at("scalar").shape.empty());
  EXPECT_THAT(all.at("empty").shape, ElementsAre(2, 0, 3));
}

TEST(Safetensors, NamesMayComeInAnyOrder) {
  const auto all = tensors_of(read_safetensors(file("good/names_out_of_order")));
  EXPECT_THAT(all.at("a").as<float>(), ElementsAre(0, 1, 2, 3, 4, 5));
  EXPECT_THAT(all.at("b").as<float>(), ElementsAre(6, 7, 8, 9, 10, 11));
}

TEST(Safetensors, WhatIsWrittenComesBack) {
  const test::TemporaryFolder folder;
  for (const auto& entry : std::filesystem::directory_iterator(kFiles + "/good")) {
    SCOPED_TRACE(entry.path());
    const Safetensors content = read_safetensors(entry.path());
    write_safetensors(folder / "copy", content);
    const Safetensors again = read_safetensors(folder / "copy");
    EXPECT_EQ(again.metadata, content.metadata);
    ASSERT_EQ(again.tensors.size(), content.tensors.size());
    const auto before = tensors_of(content);
    for (const auto& [name, array] : again.tensors) {
      EXPECT_EQ(array.dtype, before.at(name).dtype);
      EXPECT_EQ(array.shape, before.at(name).shape);
      EXPECT_EQ(array.bytes, before.at(name).bytes);
    }
    EXPECT_EQ(parse_safetensors(read_file(folder / "copy"), "copy").tensors.size(), content.tensors.size());
  }
}

TEST(Safetensors, WriterRefusesNamesItCannotKeepAndLeavesTheOldFile) {
  const test::TemporaryFolder folder;
  const std::string path = folder / "x";
  write_file(path, "old");
  const Array array = make_array<float>({1}, std::vector<float>{1});
  for (const std::vector<std::string>& names :
       {std::vector<std::string>{"a", "a"}, {"__metadata__"}, {std::string("\xff")}}) {
    Safetensors content;
    for (const std::string& name : names) content.tensors.emplace_back(name, array);
    EXPECT_THROW(write_safetensors(path, content), Error);
    EXPECT_EQ(read_file(path).size(), 3u);
  }
  EXPECT_EQ(folder.names(), std::set<std::string>{"x"});
}

// What is wrong with each file of bad/, as its message says it.
const std::map<std::string, std::string> kMessages = {
    {"empty_file", "expected a .safetensors file, got an empty one"},
    {"length_cut", "expected the 8 bytes of the header's length, got 3 bytes"},
    {"header_of_8_exabytes",
     "expected a header of at most 100000000 bytes, got 9223372036854775808 (is this a .safetensors file?)"},
    {"zip", "expected a header of at most 100000000 bytes, got 85966670672 (is this a .safetensors file?)"},
    {"header_cut", "expected a header of 100 bytes, got 2"},
    {"no_header", "expected a header that starts with '{', got ''"},
    {"no_brace", "expected a header that starts with '{', got '[]'"},
    {"space_first", "expected a header that starts with '{', got ' {}'"},
    {"not_json", "expected a header in JSON, got something else at byte 7 of it"},
    {"cut_json", "expected a header in JSON, got something else at byte 22 of it"},
    {"two_values", "expected a header in JSON, got something else at byte 4 of it"},
    {"not_utf8", "expected a header in JSON, got something else at byte 3 of it"},
    {"number_overflows", "expected a header in JSON, got a number that no float64 holds"},
    {"deep", "expected no more than a list in an object in the header's object, got deeper nesting"},
    {"deep_lists", "expected no more than a list in an object in the header's object, got deeper nesting"},
    {"long_list", "expected lists of at most 32 numbers, got more"},
    {"name_twice", "expected each key once, got 'x' twice"},
    {"key_twice", "expected each key once, got 'dtype' twice"},
    {"tensor_a_number", "expected an object for 'x', got number"},
    {"dtype_missing", "expected the key dtype for 'x', got none"},
    {"shape_missing", "expected the key shape for 'x', got none"},
    {"offsets_missing", "expected the key data_offsets for 'x', got none"},
    {"key_unknown", "expected the keys dtype, shape and data_offsets for 'x', got 4 keys"},
    {"dtype_a_number", "expected a dtype in quotes for 'x', got number"},
    {"dtype_unknown", "expected dtype F64, F32, F16, BF16, BOOL or I64 for 'x', got 'F8_E4M3'"},
    {"dtype_unprintable", "expected dtype F64, F32, F16, BF16, BOOL or I64 for 'x', got '\\x1b[2J'"},
    {"shape_a_number", "expected a list as shape of 'x', got number"},
    {"size_negative", "expected sizes from 0 to 2^63 - 1 in the shape of 'x', got -3"},
    {"size_float", "expected sizes from 0 to 2^63 - 1 in the shape of 'x', got 3.0"},
    {"size_text", "expected sizes from 0 to 2^63 - 1 in the shape of 'x', got \"3\""},
    {"size_over_63_bits", "expected sizes from 0 to 2^63 - 1 in the shape of 'x', got 9223372036854775808"},
    {"size_over_64_bits", "expected sizes from 0 to 2^63 - 1 in the shape of 'x', got 1.1805916207174113e+21"},
    {"shape_overflows", "expected an array that memory can hold, got shape (4294967296, 4294967296) of f32 for 'x'"},
    {"shape_overflows_but_for_a_zero",
     "expected an array that memory can hold, got shape (4611686018427387904, 4611686018427387904, 0) of f32 for 'x'"},
    {"offsets_three", "expected two offsets of at least 0 as data_offsets of 'x', got [0,24,24]"},
    {"offsets_negative", "expected two offsets of at least 0 as data_offsets of 'x', got [-4,20]"},
    {"offsets_reversed", "expected 24 bytes for shape (2, 3) of f32 of 'x', got data_offsets 24 to 0"},
    {"offsets_too_short", "expected 24 bytes for shape (2, 3) of f32 of 'x', got data_offsets 0 to 20"},
    {"data_cut", "expected 24 bytes of data, got 23"},
    {"data_missing", "expected 24 bytes of data, got 0"},
    {"data_too_long", "expected 24 bytes of data, got 26"},
    {"terabyte", "expected 1099511627776 bytes of data, got 24"},
    {"starts_late", "expected the data of 'x' at byte 0, after that of the others, got 4"},
    {"hole", "expected the data of 'y' at byte 24, after that of the others, got 28"},
    {"overlap", "expected the data of 'y' at byte 24, after that of the others, got 20"},
    {"same_data_twice", "expected the data of 'y' at byte 24, after that of the others, got 0"},
    {"metadata_a_list", "expected an object as __metadata__, got array"},
    {"metadata_a_number", "expected texts in __metadata__, got number for 'step'"},
    {"bool_of_7", "expected bytes 0 and 1 in 'x' of BOOL, got 7 at byte 1 of it"},
};

std::string message_of(const std::string& path, bool in_memory) {
  try {
    in_memory ? parse_safetensors(read_file(path), path) : read_safetensors(path);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::bad_file);
    return error.what();
  }
  return "";
}

TEST(Safetensors, EveryBadFileSaysWhatIsWrongWithIt) {
  std::size_t seen = 0;
  for (const auto& entry : std::filesystem::directory_iterator(kFiles + "/bad")) {
    const std::string path = entry.path(), name = entry.path().stem();
    SCOPED_TRACE(name);
    const auto expected = kMessages.find(name);
    ASSERT_NE(expected, kMessages.end());
    EXPECT_EQ(message_of(path, false), "[safetensors] " + path + ": " + expected->second);
    EXPECT_EQ(message_of(path, true), message_of(path, false));
    ++seen;
  }
  EXPECT_EQ(seen, kMessages.size());
}

// Each of these took minutes where one tensor costs as much as there are others: the alarm ends the test then.
TEST(Safetensors, HundredThousandTensorsAreReadAndWrittenAtOnce) {
  constexpr int kTensors = 100'000;
  constexpr unsigned kSeconds = 60;
  ::alarm(kSeconds);
  Safetensors content;
  for (int i = 0; i < kTensors; ++i) {
    content.tensors.emplace_back("layer." + std::to_string(i) + ".weight", make_array(DType::f32, {0}));
    content.metadata["key " + std::to_string(i)] = "text";
  }
  const test::TemporaryFolder folder;
  write_safetensors(folder / "many.safetensors", content);
  const Safetensors again = read_safetensors(folder / "many.safetensors");
  EXPECT_EQ(again.tensors.size(), content.tensors.size());
  EXPECT_EQ(again.metadata, content.metadata);
  ::alarm(0);
}

TEST(Safetensors, PipeThatEndsEarlyOrLateIsRefused) {
  for (const std::string name : {"terabyte", "data_too_long", "data_cut"}) {
    const test::TemporaryFolder folder;
    const std::string pipe = folder / "pipe";
    ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
    std::thread writer([&] { write_file(pipe, read_file(file("bad/" + name))); });
    EXPECT_THROW(read_safetensors(pipe), Error) << name;
    writer.join();
  }
}

}  // namespace
}  // namespace keel::io
