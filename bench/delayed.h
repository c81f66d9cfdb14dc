#pragma once

#include <algorithm>
#include <chrono>
#include <map>
#include <thread>

#include "keel/ring.h"

namespace keel::bench {

// What a link of a network can do.
struct Wire {
  double bytes_per_second = 0;
  double seconds = 0;  // latency
};

// A transport whose messages take as long as a network's would: one after the other over each rank's link, from when
// both sides are ready, and `seconds` on the way. Waiting costs no processor time, as with a network card that moves
// data by itself. For ranks on one machine, whose clock they share.
class Delayed final : public ring::Transport {
 public:
  Delayed(ring::Transport& inner, const Wire& link) : inner_(inner), link_(link) {}
  int rank() const override { return inner_.rank(); }
  int size() const override { return inner_.size(); }
  void progress() override { inner_.progress(); }

  Request isend(int to, int tag, const void* data, std::int64_t bytes) override {
    Transfer& transfer = open_[++last_];
    transfer.ready = clock();
    transfer.stamp = inner_.isend(to, tag + kStamps, &transfer.ready, sizeof(transfer.ready));
    transfer.data = inner_.isend(to, tag, data, bytes);
    return last_;
  }
  Request irecv(int from, int tag, void* data, std::int64_t bytes) override {
    Transfer& transfer = open_[++last_];
    transfer.posted = clock();
    transfer.bytes = bytes;
    transfer.stamp = inner_.irecv(from, tag + kStamps, &transfer.ready, sizeof(transfer.ready));
    transfer.data = inner_.irecv(from, tag, data, bytes);
    return last_;
  }
  void wait(Request request) override {
    const auto found = open_.find(request);
    const Transfer& transfer = found->second;
    inner_.wait(transfer.stamp);
    inner_.wait(transfer.data);
    if (transfer.bytes > 0) {
      free_ = std::max({free_, transfer.posted, transfer.ready}) +
              static_cast<double>(transfer.bytes) / link_.bytes_per_second;
      const double left = free_ + link_.seconds - clock();
      if (left > 0) std::this_thread::sleep_for(std::chrono::duration<double>(left));
    }
    open_.erase(found);
  }

 private:
  static constexpr int kStamps = 8;  // tags from here on carry the times at which messages were sent
  struct Transfer {
    Request stamp = 0, data = 0;
    double ready = 0;        // when it was sent
    double posted = 0;       // when it was expected
    std::int64_t bytes = 0;  // to receive
  };
  static double clock() {
    return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
  }

  ring::Transport& inner_;
  Wire link_;
  double free_ = 0;  // when this rank's link has brought all that was waited for
  Request last_ = 0;
  std::map<Request, Transfer> open_;
};

}  // namespace keel::bench
