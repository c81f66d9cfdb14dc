#include "io/file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <functional>
#include <string>

#include "keel/error.h"
#include "support/temporary_folder.h"

namespace keel::io {
namespace {

using test::TemporaryFolder;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

std::string text_of(const std::string& path) {
  const Buffer bytes = read_file(path);
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

std::string io_error(const std::function<void()>& action) {
  try {
    action();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::io);
    return error.what();
  }
  ADD_FAILURE() << "nothing was raised";
  return "";
}

void ignore(int) {}

// What `action` raises after `setup`, in a process of its own: what setup takes away cannot be had back.
std::string message_in_another_process(const std::function<void()>& setup, const std::function<void()>& action) {
  int ends[2];
  if (::pipe(ends) != 0) return "no pipe";
  const pid_t child = ::fork();
  if (child == 0) {
    setup();
    std::string message = "nothing was raised";
    try {
      action();
    } catch (const Error& error) {
      message = error.what();
    }
    ignore(static_cast<int>(::write(ends[1], message.data(), message.size())));
    ::_exit(0);
  }
  ::close(ends[1]);
  std::string message(4096, '\0');
  const ssize_t length = ::read(ends[0], message.data(), message.size());
  ::close(ends[0]);
  ::waitpid(child, nullptr, 0);
  message.resize(length > 0 ? static_cast<std::size_t>(length) : 0);
  return message;
}

TEST(OutputFile, IsThereOnlyOnceCommitted) {
  const TemporaryFolder folder;
  {
    OutputFile file(folder / "out");
    EXPECT_THAT(folder.names(), IsEmpty());
    file.write("whole");
    file.finish();
    EXPECT_FALSE(folder.names().contains("out"));
    file.commit();
    EXPECT_THAT(folder.names(), ElementsAre("out"));
  }
  EXPECT_EQ(text_of(folder / "out"), "whole");
}

TEST(OutputFile, ADashIsNotTheNameOfAFile) { EXPECT_THROW(OutputFile("-"), Error); }

TEST(OutputFile, LeavesNothingWhenNotCommitted) {
  const TemporaryFolder folder;
  write_file(folder / "out", std::string_view("old"));
  {
    OutputFile file(folder / "out");
    file.write("new");
    file.finish();
  }
  EXPECT_THAT(folder.names(), ElementsAre("out"));
  EXPECT_EQ(text_of(folder / "out"), "old");
}

TEST(OutputFile, WithoutAWriteIsAnEmptyFile) {
  const TemporaryFolder folder;
  write_file(folder / "out", std::string_view());
  EXPECT_EQ(std::filesystem::file_size(folder / "out"), 0u);
}

TEST(OutputFile, ReplacesAndKeepsTheMode) {
  const TemporaryFolder folder;
  write_file(folder / "out", std::string_view("old"));
  ASSERT_EQ(::chmod((folder / "out").c_str(), 0640), 0);
  write_file(folder / "out", std::string_view("new"));
  EXPECT_EQ(text_of(folder / "out"), "new");
  EXPECT_EQ(std::filesystem::status(folder / "out").permissions(), std::filesystem::perms(0640));
}

TEST(OutputFile, NewFileObeysTheUmask) {
  const TemporaryFolder folder;
  const mode_t old = ::umask(027);
  write_file(folder / "out", std::string_view("new"));
  ::umask(old);
  EXPECT_EQ(std::filesystem::status(folder / "out").permissions(), std::filesystem::perms(0640));
}

TEST(OutputFile, WritesThroughASymbolicLink) {
  const TemporaryFolder folder;
  write_file(folder / "real", std::string_view("old"));
  std::filesystem::create_symlink("real", folder / "link");
  write_file(folder / "link", std::string_view("new"));
  EXPECT_TRUE(std::filesystem::is_symlink(folder / "link"));
  EXPECT_EQ(text_of(folder / "real"), "new");
}

TEST(OutputFile, LongestNameOfAFileWorks) {
  const TemporaryFolder folder;
  const std::string name(255, 'x');
  write_file(folder / name, std::string_view("new"));
  EXPECT_THAT(folder.names(), ElementsAre(name));
}

TEST(OutputFile, MissingFolderIsFoundBeforeAnyWork) {
  const TemporaryFolder folder;
  EXPECT_THAT(io_error([&] { OutputFile file(folder / "none/out"); }),
              HasSubstr("out: expected a folder to write in, got \"No such file or directory\""));
}

TEST(OutputFile, FolderInItsPlaceIsRefused) {
  const TemporaryFolder folder;
  EXPECT_THAT(io_error([&] { OutputFile file(folder.path()); }), HasSubstr("got \"Is a directory\""));
  EXPECT_THAT(io_error([&] { OutputFile file(folder / "none/"); }), HasSubstr("got \"Is a directory\""));
  EXPECT_THAT(io_error([&] { OutputFile file(""); }), HasSubstr("got \"No such file or directory\""));
}

TEST(OutputFile, FolderWithoutPermissionIsFoundBeforeAnyWork) {
  const TemporaryFolder folder;
  ASSERT_EQ(::chmod(folder.path().c_str(), 0555), 0);
  EXPECT_EQ(message_in_another_process(
                [] {
                  if (::geteuid() == 0) ignore(::setuid(65534));  // root may write anywhere
                },
                [&] { OutputFile file(folder / "out"); }),
            "[file] " + (folder / "out") + ": expected a folder to write in, got \"Permission denied\"");
  ASSERT_EQ(::chmod(folder.path().c_str(), 0700), 0);
}

TEST(OutputFile, FullDeviceIsReported) {
  EXPECT_THAT(io_error([&] { write_file("/dev/full", std::string_view("bytes")); }),
              HasSubstr("/dev/full: expected room for 5 more bytes, got \"No space left on device\""));
}

TEST(OutputFile, DeviceIsWrittenNotReplaced) {
  write_file("/dev/null", std::string_view("bytes"));
  EXPECT_TRUE(std::filesystem::is_character_file("/dev/null"));
}

TEST(OutputFile, WriteThatFailsHalfwayLeavesTheOldFile) {
  const TemporaryFolder folder;
  write_file(folder / "out", std::string_view("old"));
  // A limit on the size of files stands in for a full disk.
  EXPECT_EQ(message_in_another_process(
                [] {
                  ::signal(SIGXFSZ, SIG_IGN);
                  const rlimit limit{100, 100};
                  ignore(::setrlimit(RLIMIT_FSIZE, &limit));
                },
                [&] { write_file(folder / "out", std::string(1000, 'x')); }),
            "[file] " + (folder / "out") + ": expected room for 900 more bytes, got \"File too large\"");
  EXPECT_THAT(folder.names(), ElementsAre("out"));
  EXPECT_EQ(text_of(folder / "out"), "old");
}

TEST(InputFile, EndsWhereTheFileEnds) {
  const TemporaryFolder folder;
  write_file(folder / "in", std::string_view("12345"));
  InputFile file(folder / "in");
  EXPECT_EQ(file.remaining(), 5u);
  Buffer bytes;
  file.append(bytes, 2);
  EXPECT_EQ(file.remaining(), 3u);
  file.append(bytes, UINT64_MAX);
  EXPECT_EQ(bytes.size(), 5u);
  EXPECT_EQ(file.remaining(), 0u);
}

TEST(InputFile, NameWithControlCharactersStaysOnOneLine) {
  EXPECT_THAT(io_error([] { InputFile file("no\nsuch"); }), HasSubstr("no\\x0asuch: expected a file to read"));
}

}  // namespace
}  // namespace keel::io
