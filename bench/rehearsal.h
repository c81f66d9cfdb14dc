#pragma once

#include <cstring>
#include <map>
#include <vector>

#include "bench/clock.h"
#include "keel/ring.h"

namespace keel::bench {

// A transport to nobody: a rank that calls keel::ring over it does all that it would do among others, at once, with
// whatever its memory holds instead of their blocks. What each step takes then is the rank's own work.
class Rehearsal final : public ring::Transport {
 public:
  Rehearsal(int rank, int size) : rank_(rank), size_(size), steps_(static_cast<std::size_t>(size)) {}
  int rank() const override { return rank_; }
  int size() const override { return size_; }

  Request isend(int, int tag, const void* data, std::int64_t) override {
    if (tag == kAgreement) mine_ = data;
    return 0;
  }
  Request irecv(int from, int tag, void* data, std::int64_t bytes) override {
    if (tag == kGradients) return 0;
    open_[++last_] = {tag, from, data, bytes};
    return last_;
  }
  // All agree with this rank. A step ends where the block of the next is waited for.
  void wait(Request request) override {
    const auto found = open_.find(request);
    if (found == open_.end()) return;
    const Receipt& r = found->second;
    if (r.tag == kAgreement) {
      std::memcpy(r.data, mine_, static_cast<std::size_t>(r.bytes));
    } else {
      end_step((rank_ + size_ - r.from) % size_);
    }
    open_.erase(found);
  }

  // Runs the call; returns the seconds of each step.
  template <class Call>
  std::vector<double> steps(Call call) {
    steps_.assign(static_cast<std::size_t>(size_), 0.0);
    at_ = 0;
    watch_ = {};
    call();
    end_step(size_);
    return steps_;
  }

 private:
  static constexpr int kAgreement = 0, kGradients = 2;  // tags
  struct Receipt {
    int tag, from;
    void* data;
    std::int64_t bytes;
  };
  void end_step(int next) {
    steps_[at_] = watch_.seconds();
    watch_ = {};
    at_ = static_cast<std::size_t>(next);
  }

  int rank_, size_;
  const void* mine_ = nullptr;
  Request last_ = 0;
  std::map<Request, Receipt> open_;
  std::vector<double> steps_;
  std::size_t at_ = 0;
  Stopwatch watch_;
};

}  // namespace keel::bench
