#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "io/array.h"

// Files; every failure is raised as keel::Error (ErrorCode::io): "[file] out.npy: expected …, got …".
namespace keel::io {

// A file read from its start to its end.
class InputFile {
 public:
  explicit InputFile(const std::string& path);
  ~InputFile();
  InputFile(const InputFile&) = delete;
  InputFile& operator=(const InputFile&) = delete;

  // Bytes not read yet; unknown for a pipe or a device.
  std::optional<std::uint64_t> remaining() const;

  // Appends the next `count` bytes to `buffer`, fewer if the file ends first. Memory grows with what arrives, so a
  // false count costs nothing.
  void append(Buffer& buffer, std::uint64_t count);

 private:
  std::string path_;
  int descriptor_ = -1;
  std::optional<std::uint64_t> remaining_;
};

// A file that appears complete or not at all: bytes go to a temporary file next to it, which commit() renames. Until
// then, and after any failure, what was at `path` is unchanged and the temporary file is removed. A device or a pipe
// (/dev/stdout) cannot be renamed over and is written directly. A signal that ends the process leaves the temporary
// file, unless its handler calls remove_temporaries().
//
// Several files of one result: construct all (this finds a missing folder before any work), write and finish all, then
// commit all.
class OutputFile {
 public:
  explicit OutputFile(const std::string& path);  // checks; creates nothing yet
  ~OutputFile();
  OutputFile(const OutputFile&) = delete;
  OutputFile& operator=(const OutputFile&) = delete;

  void write(std::span<const std::byte> bytes);
  void write(std::string_view text) { write(std::as_bytes(std::span(text))); }
  void finish();  // the bytes have reached the disk; no write may follow
  void commit();  // the file is at its path; finishes first if that was not done

 private:
  void open();
  void discard() noexcept;  // closes, and removes the temporary file
  [[noreturn]] void fail(std::string_view expected, int error);

  std::string path_;
  std::filesystem::path target_;     // where path_ leads through symbolic links
  std::filesystem::path temporary_;  // empty when there is none
  bool direct_ = false;              // not a regular file
  bool finished_ = false;
  int descriptor_ = -1;
  int noted_ = -1;  // where remove_temporaries() finds the temporary file
};

// The whole file.
Buffer read_file(const std::string& path);

void write_file(const std::string& path, std::span<const std::byte> bytes);
void write_file(const std::string& path, std::string_view text);

}  // namespace keel::io
