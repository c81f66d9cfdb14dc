#pragma once

#include <cstddef>
#include <exception>
#include <functional>
#include <memory>
#include <new>
#include <string>
#include <vector>

#include "keel/ring.h"
#include "runtime/between.h"

namespace keel::ring {

enum Tag : int { kControl = 0, kBlocks = 1, kGradients = 2 };

// Memory for one message at a time: whether its sender has failed, and a payload. Messages may share their memory, so
// that one payload goes to many ranks.
class Message {
 public:
  Message() = default;
  explicit Message(std::int64_t capacity, bool failed = false);  // bytes of payload; whether its sender has failed
  Message shared() const;                                        // another message with this one's payload

  std::byte* data() const { return memory_.get() + kHeader; }
  std::int64_t capacity() const { return capacity_; }

 private:
  friend class Link;
  static constexpr std::int64_t kHeader = 64;  // keeps the payload aligned
  std::shared_ptr<std::byte[]> memory_;
  std::int64_t capacity_ = 0;
  Transport::Request request_ = 0;
  int peer_ = -1;
  enum class State { idle, sending, receiving } state_ = State::idle;
};

// What all ranks must have in common, as hashes.
using Terms = std::vector<std::uint64_t>;
inline constexpr std::size_t kTermCount = 9;
const char* name_of_term(std::size_t term);

// A transport and what has gone wrong so far. A rank that fails does not leave: it goes on sending and receiving as all
// ranks expect of it, without computing, so that nobody waits for it. Its messages say that it has failed, which
// spreads, and in share() everybody learns who it was and why. So no transport needs a way to interrupt others.
class Link {
 public:
  explicit Link(Transport& transport) : transport_(transport), rank_(transport.rank()), size_(transport.size()) {}

  int rank() const { return rank_; }
  int size() const { return size_; }
  bool failed() const { return failed_; }

  // Runs `work` if all is well; an exception becomes this rank's failure.
  template <class Work>
  void attempt(Work work) {
    if (failed_) return;
    const std::function<void()> progress = [this] { transport_.progress(); };
    const BetweenTasks between(progress);
    try {
      work();
      progress();
    } catch (const Error& error) {
      fail(error.code(), error.what());
    } catch (const std::bad_alloc&) {
      fail(ErrorCode::out_of_memory, "expected memory, got none from the system");
    } catch (const std::exception& error) {
      fail(ErrorCode::peer, error.what());
    }
  }

  // Nothing is sent for 0 bytes.
  void send(int to, Tag tag, Message& message, std::int64_t bytes);
  void receive(int from, Tag tag, Message& message, std::int64_t bytes);
  bool wait(Message& message);  // whether a transfer was under way, and is complete

  // Exchanges what all ranks must agree on, and raises on all of them if one has failed or has other terms.
  void agree(const Terms& terms);

  // Exchanges numbers, as many on all ranks, and raises on all of them if one has failed. Returns them in the order of
  // ranks.
  std::vector<std::vector<double>> share(const std::vector<double>& mine);

 private:
  struct Report;

  void fail(ErrorCode code, const std::string& reason);
  void lose(Message& message, const std::string& reason);
  Report report() const;
  void exchange(const void* data, std::vector<std::vector<std::byte>>& all);
  [[noreturn]] void raise(const std::vector<Report>& reports) const;

  Transport& transport_;
  const int rank_, size_;
  bool failed_ = false;
  bool lost_ = false;  // by losing another rank
  ErrorCode code_ = ErrorCode::peer;
  std::string reason_;  // empty where another rank's message told
};

}  // namespace keel::ring
