#include "ring/link.h"

#include <algorithm>
#include <cstring>

#include "core/message.h"
#include "ring/memory.h"

namespace keel::ring {
// What a rank tells all others before and after the work.
struct Link::Report {
  std::int32_t failed = 0;
  std::int32_t lost = 0;
  std::int32_t code = 0;
  std::int32_t heard = 0;  // whether the report arrived; set by the receiver
  char reason[496] = {};
};

Message::Message(std::int64_t capacity, bool failed) : memory_(take_memory(kHeader + capacity)), capacity_(capacity) {
  std::memset(memory_.get(), 0, kHeader);
  if (failed) memory_[0] = std::byte{1};
}

Message Message::shared() const {
  Message other;
  other.memory_ = memory_;
  other.capacity_ = capacity_;
  return other;
}

void Link::fail(ErrorCode code, const std::string& reason) {
  if (failed_ && !reason_.empty()) return;
  failed_ = true;
  code_ = code;
  reason_ = reason;
}

// The transport may still use the memory of a transfer that it gave up: it is left to it.
void Link::lose(Message& message, const std::string& reason) {
  lost_ = lost_ || reason_.empty();
  fail(ErrorCode::peer, concat("lost rank ", message.peer_, ": ", reason));
  [[maybe_unused]] auto* const left = new std::shared_ptr<std::byte[]>(std::move(message.memory_));
  message.memory_ = take_memory(Message::kHeader + message.capacity_);
  std::memset(message.memory_.get(), 0, Message::kHeader);
  message.state_ = Message::State::idle;
}

void Link::send(int to, Tag tag, Message& message, std::int64_t bytes) {
  if (bytes == 0) return;
  if (failed_ && message.memory_.use_count() == 1) message.memory_[0] = std::byte{1};
  message.peer_ = to;
  try {
    message.request_ = transport_.isend(to, tag, message.memory_.get(), Message::kHeader + bytes);
    message.state_ = Message::State::sending;
  } catch (const std::exception& error) {
    lose(message, error.what());
  }
}

void Link::receive(int from, Tag tag, Message& message, std::int64_t bytes) {
  if (bytes == 0) return;
  message.peer_ = from;
  try {
    message.request_ = transport_.irecv(from, tag, message.memory_.get(), Message::kHeader + bytes);
    message.state_ = Message::State::receiving;
  } catch (const std::exception& error) {
    lose(message, error.what());
  }
}

bool Link::wait(Message& message) {
  if (message.state_ == Message::State::idle) return false;
  const bool received = message.state_ == Message::State::receiving;
  message.state_ = Message::State::idle;
  try {
    transport_.wait(message.request_);
  } catch (const std::exception& error) {
    lose(message, error.what());
    return false;
  }
  if (received && message.memory_[0] != std::byte{0}) failed_ = true;
  return true;
}

Link::Report Link::report() const {
  Report mine;
  mine.failed = failed_ ? 1 : 0;
  mine.lost = lost_ ? 1 : 0;
  mine.code = static_cast<std::int32_t>(code_);
  reason_.copy(mine.reason, sizeof(mine.reason) - 1);
  return mine;
}

void Link::exchange(const void* data, std::vector<std::vector<std::byte>>& all) {
  const auto size = static_cast<std::size_t>(size_), self = static_cast<std::size_t>(rank_);
  const std::size_t bytes = all.front().size();
  const Report mine = report();
  std::vector<Report> reports(size);
  std::vector<Message> out(size), in(size);
  const auto length = static_cast<std::int64_t>(sizeof(Report) + bytes);
  for (int step = 1; step < size_; ++step) {
    const int to = (rank_ + step) % size_, from = (rank_ + size_ - step) % size_;
    Message& sent = out[static_cast<std::size_t>(to)] = Message(length);
    std::memcpy(sent.data(), &mine, sizeof(mine));
    if (bytes > 0) std::memcpy(sent.data() + sizeof(mine), data, bytes);
    receive(from, kControl, in[static_cast<std::size_t>(from)] = Message(length), length);
    send(to, kControl, sent, length);
  }
  for (std::size_t rank = 0; rank < size; ++rank) {
    if (rank == self || !wait(in[rank])) continue;
    std::memcpy(&reports[rank], in[rank].data(), sizeof(Report));
    reports[rank].heard = 1;
    if (bytes > 0) std::memcpy(all[rank].data(), in[rank].data() + sizeof(Report), bytes);
  }
  for (Message& message : out) wait(message);
  reports[self] = report();
  reports[self].heard = 1;
  if (bytes > 0) std::memcpy(all[self].data(), data, bytes);
  if (std::any_of(reports.begin(), reports.end(), [](const Report& r) { return r.failed != 0 || r.heard == 0; })) {
    raise(reports);
  }
}

// The first rank that failed by itself; or the first that lost another.
void Link::raise(const std::vector<Report>& reports) const {
  for (const bool lost : {false, true}) {
    for (std::size_t rank = 0; rank < reports.size(); ++rank) {
      const Report& report = reports[rank];
      if (report.heard == 0 || report.failed == 0 || report.reason[0] == '\0' || (report.lost != 0) != lost) continue;
      throw Error(static_cast<ErrorCode>(report.code), concat("[ring] rank ", rank, ": ", report.reason));
    }
  }
  throw Error(ErrorCode::peer, "[ring] a rank failed, and was lost before it could say why");
}

void Link::agree(const Terms& terms) {
  std::vector<std::vector<std::byte>> all(static_cast<std::size_t>(size_),
                                          std::vector<std::byte>(terms.size() * sizeof(terms[0])));
  exchange(terms.data(), all);
  for (std::size_t rank = 1; rank < all.size(); ++rank) {
    for (std::size_t term = 0; term < terms.size(); ++term) {
      const std::size_t at = term * sizeof(terms[0]);
      if (std::memcmp(all[rank].data() + at, all[0].data() + at, sizeof(terms[0])) == 0) continue;
      throw Error(ErrorCode::invalid_argument,
                  concat("[ring] rank ", rank, ": expected the ", name_of_term(term), " of rank 0, got others"));
    }
  }
}

std::vector<std::vector<double>> Link::share(const std::vector<double>& mine) {
  std::vector<std::vector<std::byte>> all(static_cast<std::size_t>(size_),
                                          std::vector<std::byte>(mine.size() * sizeof(double)));
  exchange(mine.data(), all);
  std::vector<std::vector<double>> values(all.size(), std::vector<double>(mine.size()));
  for (std::size_t rank = 0; rank < all.size(); ++rank) {
    if (!mine.empty()) std::memcpy(values[rank].data(), all[rank].data(), all[rank].size());
  }
  return values;
}

void fail(Transport& transport, const std::string& reason) {
  Link link(transport);
  link.attempt([&] { throw Error(ErrorCode::invalid_argument, reason); });
  link.agree(Terms(kTermCount));
  throw Error(ErrorCode::invalid_argument, reason);  // not reached: agree() raises
}

std::vector<std::vector<double>> share(Transport& transport, const std::vector<double>& mine,
                                       const std::string& failure) {
  Link link(transport);
  link.attempt([&] {
    if (!failure.empty()) throw Error(ErrorCode::invalid_argument, failure);
  });
  return link.share(mine);
}

}  // namespace keel::ring
