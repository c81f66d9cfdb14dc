#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <string>
#include <vector>

#include "api/c_calls.h"
#include "api/sized.h"

// Structures that begin with their size: those of older and of newer programs are read right or refused by name.
namespace keel {
namespace {

// A structure in its second version, and as programs have it that were compiled against the first or the third.
struct Second {
  std::uint64_t size;
  std::int64_t old;
  double added;
};
struct First {
  std::uint64_t size;
  std::int64_t old;
};
struct Third {
  std::uint64_t size;
  std::int64_t old;
  double added;
  std::int32_t newest[2];
};

Second read(const void* from) { return read_sized<Second>(from, sizeof(First), "attention", "options"); }

std::string message_of(const void* from) {
  try {
    read(from);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
    return error.what();
  }
  return "nothing was raised";
}

TEST(CStructures, FieldsThatAnOlderProgramDoesNotHaveAreZero) {
  // What lies behind the old structure in memory is not part of it.
  const struct {
    First first;
    double behind;
  } program = {{sizeof(First), 3}, 7.0};
  const Second got = read(&program);
  EXPECT_EQ(got.old, 3);
  EXPECT_EQ(got.added, 0.0);
}

TEST(CStructures, AStructureOfThisVersionIsReadWhole) {
  const Second program = {sizeof(Second), 3, 7.0};
  EXPECT_EQ(read(&program).old, 3);
  EXPECT_EQ(read(&program).added, 7.0);
}

TEST(CStructures, FieldsThatThisVersionDoesNotKnowMustBeZero) {
  Third program = {sizeof(Third), 3, 7.0, {0, 0}};
  EXPECT_EQ(read(&program).added, 7.0);
  program.newest[1] = 1;
  EXPECT_EQ(
      message_of(&program),
      "[attention] options.size: expected 24, or 0 in the fields beyond, which this version does not know, got 32 "
      "with a field at byte 28");
}

TEST(CStructures, ASizeThatNoVersionHadIsRefused) {
  for (const std::uint64_t size : {std::uint64_t{0}, std::uint64_t{15}, std::uint64_t{4097}, UINT64_MAX}) {
    const Second program = {size, 3, 7.0};
    EXPECT_EQ(message_of(&program),
              "[attention] options.size: expected its sizeof, from 16 to 4096, got " + std::to_string(size));
  }
}

// `structure` is refused when its size is missing, or that of too little; `call` passes it.
template <class T, class Call>
void expect_size_is_read(T& structure, const std::string& name, const Call& call) {
  for (const std::uint64_t size : {0, 8}) {
    structure.size = size;
    EXPECT_EQ(call(), KEEL_INVALID_ARGUMENT) << name;
    const std::string said = keel_last_error();
    EXPECT_TRUE(said.starts_with(name + ".size: expected its sizeof, from ")) << said;
    EXPECT_TRUE(said.ends_with(", got " + std::to_string(size))) << said;
  }
  structure.size = sizeof(T);
  EXPECT_EQ(call(), KEEL_OK) << keel_last_error();
}

TEST(CStructures, EachBeginsWithItsSize) {
  CForward f;
  expect_size_is_read(f.options, "[attention] options", f);
  expect_size_is_read(f.outputs, "[attention] outputs", f);
  CBackward b;
  expect_size_is_read(b.inputs, "[attention_backward] inputs", b);
  expect_size_is_read(b.gradients, "[attention_backward] gradients", b);
  expect_size_is_read(b.options, "[attention_backward] options", b);
  CMerge m;
  expect_size_is_read(m.parts[0], "[merge] parts[0]", m);
  expect_size_is_read(m.outputs, "[merge] outputs", m);
}

// As a program has it whose header knows one more field of each structure.
template <class T>
struct Longer {
  T known;
  std::uint64_t more = 0;
  explicit Longer(const T& from) : known(from) { known.size = sizeof(*this); }
};

TEST(CStructures, ThoseOfANewerHeaderAreTakenWithoutItsFields) {
  CForward f;
  Longer<keel_options> options(f.options);
  options.known.threads = 1;
  EXPECT_EQ(keel_attention(&f.q, &f.k, &f.v, &f.out, &options.known, nullptr), KEEL_OK) << keel_last_error();
  options.more = 1;
  EXPECT_EQ(keel_attention(&f.q, &f.k, &f.v, &f.out, &options.known, nullptr), KEEL_INVALID_ARGUMENT);
  EXPECT_EQ(std::string(keel_last_error()).find("[attention] options.size: expected "), 0u) << keel_last_error();
}

TEST(CStructures, PartsAreAsFarApartAsTheirSizeSays) {
  CMerge plain;
  for (int part = 0; part < 2; ++part) {
    for (int i = 0; i < 144; ++i) plain.blocks[part][0].data()[i] = static_cast<float>(i + 1000 * part);
  }
  ASSERT_EQ(plain(), KEEL_OK);
  const auto expected = plain.out_block.memory;
  std::fill(plain.out_block.memory.begin(), plain.out_block.memory.end(), 0.0);

  std::array<Longer<keel_partial>, 2> longer = {Longer(plain.parts[0]), Longer(plain.parts[1])};
  const auto merge_them = [&] { return keel_merge(&longer[0].known, 2, &plain.out, nullptr, 0); };
  ASSERT_EQ(merge_them(), KEEL_OK) << keel_last_error();
  EXPECT_EQ(plain.out_block.memory, expected);

  longer[1].known.size = sizeof(keel_partial);
  EXPECT_EQ(merge_them(), KEEL_INVALID_ARGUMENT);
  EXPECT_EQ(keel_last_error(), "[merge] parts[1].size: expected " + std::to_string(sizeof(longer[0])) +
                                   " as in parts[0], got " + std::to_string(sizeof(keel_partial)));
}

// Zero bytes and a size are the defaults of C++, whatever the structure.
TEST(CStructures, ZeroIsTheDefaultOfEveryField) {
  CForward c;
  for (int i = 0; i < 3; ++i) {
    for (int at = 0; at < 256; ++at) c.blocks[i].data()[at] = std::sin(static_cast<float>(at + i));
  }
  c.ask_for_heads(std::ssize(c.head_list), c.head_list.data());
  ASSERT_EQ(c(), KEEL_OK) << keel_last_error();
  Block out;
  std::vector<HeadStatistics> heads_of_cpp(kB * kHq);
  attention(c.blocks[0].tensor(kQShape), c.blocks[1].tensor(kKShape), c.blocks[2].tensor(kVShape),
            out.tensor(kOutShape), {}, {.heads = heads_of_cpp});
  EXPECT_EQ(c.blocks[3].memory, out.memory);
  EXPECT_EQ(c.head_list[0].saturated, heads_of_cpp[0].saturated);  // by the threshold
}

}  // namespace
}  // namespace keel
