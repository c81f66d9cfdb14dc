#include "io/file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <system_error>
#include <utility>

#include "io/messages.h"
#include "io/temporaries.h"
#include "keel/error.h"

namespace keel::io {
namespace {

namespace fs = std::filesystem;

[[noreturn]] void raise(const std::string& path, std::string_view expected, std::string_view got) {
  throw Error(ErrorCode::io, fmt::format("[file] {}: expected {}, got \"{}\"", path_text(path), expected, got));
}

[[noreturn]] void raise(const std::string& path, std::string_view expected, int error) {
  raise(path, expected, std::generic_category().message(error));
}

// Repeats a system call that a signal interrupted.
template <class Call>
auto retry(Call call) {
  auto result = call();
  while (result == -1 && errno == EINTR) result = call();
  return result;
}

}  // namespace

InputFile::InputFile(const std::string& path) : path_(path) {
  descriptor_ = retry([&] { return ::open(path_.c_str(), O_RDONLY | O_CLOEXEC); });
  if (descriptor_ < 0) raise(path_, "a file to read", errno);
  struct stat status {};
  const int error = ::fstat(descriptor_, &status) != 0 ? errno : S_ISDIR(status.st_mode) ? EISDIR : 0;
  if (error != 0) {
    ::close(descriptor_);
    raise(path_, "a file to read", error);
  }
  if (S_ISREG(status.st_mode)) remaining_ = static_cast<std::uint64_t>(status.st_size);
}

InputFile::~InputFile() { ::close(descriptor_); }

std::optional<std::uint64_t> InputFile::remaining() const { return remaining_; }

void InputFile::append(Buffer& buffer, std::uint64_t count) {
  constexpr std::uint64_t kFirstStep = 1 << 16;
  const std::size_t start = buffer.size();
  std::uint64_t done = 0;
  while (done < count) {
    // A regular file is read in one step. Otherwise the buffer doubles with each step.
    std::uint64_t step = std::min(count - done, std::max(kFirstStep, remaining_.value_or(done)));
    buffer.resize(start + done + step);
    const ssize_t got = retry([&] { return ::read(descriptor_, buffer.data() + start + done, step); });
    if (got < 0) raise(path_, "a file to read", errno);
    done += static_cast<std::uint64_t>(got);
    if (remaining_) *remaining_ -= std::min(*remaining_, static_cast<std::uint64_t>(got));
    if (got == 0) break;
  }
  buffer.resize(start + done);
}

OutputFile::OutputFile(const std::string& path) : path_(path), target_(path) {
  if (path_ == "-") raise(path_, "a file to write (/dev/stdout is one)", std::string_view("-"));
  std::error_code error;
  const fs::file_status status = fs::status(target_, error);
  if (fs::is_directory(status)) raise(path_, "a file to write", EISDIR);
  if (fs::exists(status)) {
    direct_ = !fs::is_regular_file(status);
    const int denied = ::access(target_.c_str(), W_OK) != 0 ? errno : 0;
    if (denied != 0) raise(path_, "a file to write", denied);
    // The link stays and what it points to is replaced.
    if (!direct_) target_ = fs::canonical(target_, error);
    if (error) raise(path_, "a file to write", error.value());
  }
  if (direct_) return;
  if (target_.filename().empty()) raise(path_, "a file to write", path_.empty() ? ENOENT : EISDIR);
  const fs::path folder = target_.has_parent_path() ? target_.parent_path() : fs::path(".");
  struct stat found {};
  if (::stat(folder.c_str(), &found) != 0) raise(path_, "a folder to write in", errno);
  if (!S_ISDIR(found.st_mode)) raise(path_, "a folder to write in", ENOTDIR);
  if (::access(folder.c_str(), W_OK | X_OK) != 0) raise(path_, "a folder to write in", errno);
}

OutputFile::~OutputFile() { discard(); }

void OutputFile::discard() noexcept {
  if (descriptor_ >= 0) ::close(descriptor_);
  descriptor_ = -1;
  if (!temporary_.empty()) ::unlink(temporary_.c_str());
  temporary_.clear();
  forget_temporary(noted_);
  noted_ = kNoPlace;
}

void OutputFile::fail(std::string_view expected, int error) {
  discard();
  raise(path_, expected, error);
}

void OutputFile::open() {
  if (direct_) {
    descriptor_ = retry([&] { return ::open(path_.c_str(), O_WRONLY | O_CLOEXEC); });
    if (descriptor_ < 0) fail("a file to write", errno);
    return;
  }
  // mkstemp would do, except for the mode: a file made with open() obeys the umask, as users expect of an output.
  struct stat old {};
  const bool replaces = ::stat(target_.c_str(), &old) == 0;
  for (int attempt = 0; descriptor_ < 0; ++attempt) {
    // A long name is cut, to stay within the file system's limit.
    const std::string name =
        fmt::format(".{}.{}-{}.tmp", target_.filename().string().substr(0, 100), ::getpid(), attempt);
    temporary_ = target_.parent_path() / name;
    noted_ = note_temporary(temporary_.c_str());  // before it exists: a signal may come at any time
    descriptor_ =
        retry([&] { return ::open(temporary_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, mode_t{0666}); });
    if (descriptor_ >= 0) break;
    const int error = errno;
    temporary_.clear();  // it is not ours
    forget_temporary(std::exchange(noted_, kNoPlace));
    if (error != EEXIST || attempt > 1000) fail("a file to write", error);
  }
  if (temporaries_removed()) ::unlink(temporary_.c_str());
  if (replaces && ::fchmod(descriptor_, old.st_mode & 07777) != 0) fail("a file to write", errno);
}

void OutputFile::write(std::span<const std::byte> bytes) {
  if (descriptor_ < 0) open();
  while (!bytes.empty()) {
    const ssize_t written = retry([&] { return ::write(descriptor_, bytes.data(), bytes.size()); });
    if (written < 0) fail(fmt::format("room for {} more bytes", bytes.size()), errno);
    bytes = bytes.subspan(static_cast<std::size_t>(written));
  }
}

void OutputFile::finish() {
  if (finished_) return;
  if (descriptor_ < 0) open();
  if (!direct_ && retry([&] { return ::fsync(descriptor_); }) != 0) fail("the bytes to reach the disk", errno);
  const int descriptor = descriptor_;
  descriptor_ = -1;
  if (::close(descriptor) != 0 && errno != EINTR) fail("the bytes to reach the disk", errno);
  finished_ = true;
}

void OutputFile::commit() {
  finish();
  if (direct_) return;
  if (::rename(temporary_.c_str(), target_.c_str()) != 0) fail("a file to replace", errno);
  temporary_.clear();
  forget_temporary(std::exchange(noted_, kNoPlace));
}

Buffer read_file(const std::string& path) {
  InputFile file(path);
  Buffer bytes;
  file.append(bytes, file.remaining().value_or(UINT64_MAX));
  return bytes;
}

void write_file(const std::string& path, std::span<const std::byte> bytes) {
  OutputFile file(path);
  file.write(bytes);
  file.commit();
}

void write_file(const std::string& path, std::string_view text) { write_file(path, std::as_bytes(std::span(text))); }

}  // namespace keel::io
