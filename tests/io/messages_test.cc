#include "io/messages.h"

#include <gtest/gtest.h>

#include "io/utf8.h"

namespace keel::io {
namespace {

TEST(Utf8, AcceptsWhatUnicodeAllows) {
  EXPECT_EQ(invalid_utf8("äß中😀"), std::string::npos);
  EXPECT_EQ(invalid_utf8("a\xc0\x80"), 1u);         // overlong
  EXPECT_EQ(invalid_utf8("\xf4\x90\x80\x80"), 0u);  // past U+10FFFF
  EXPECT_EQ(invalid_utf8("ab\xe4\xb8"), 2u);        // cut short
  EXPECT_TRUE(has_control_character("a\xc2\x9b"));  // a terminal's escape in one character
  EXPECT_FALSE(has_control_character("a\tb"));
  EXPECT_EQ(characters_in("fünf"), 4u);
}

TEST(Messages, PathsKeepUnicodeAndNothingThatATerminalObeysOrJsonRefuses) {
  EXPECT_EQ(path_text("fünf/中 😀.npy"), "fünf/中 😀.npy");
  EXPECT_EQ(path_text("a\x1b[2J\n\t\x7f"), "a\\x1b[2J\\x0a\\x09\\x7f");
  EXPECT_EQ(path_text("a\xc2\x9b"), "a\\xc2\\x9b");
  EXPECT_EQ(path_text("caf\xe9.tsv"), "caf\\xe9.tsv");
  EXPECT_EQ(path_text("\xe4\xb8"), "\\xe4\\xb8");
}

}  // namespace
}  // namespace keel::io
