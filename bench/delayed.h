#pragma once

#include <chrono>
#include <deque>
#include <map>
#include <thread>

#include "keel/ring.h"

namespace keel::bench {

// What a link of a network can do.
struct Wire {
  double bytes_per_second = 0;
  double seconds = 0;  // latency
};

// A transport whose messages take as long as a network's would: one after the other onto each rank's link, `seconds`
// on the way. Waiting costs no processor time, as with a network card that moves data by itself. For ranks on one
// machine, whose clock they share.
class Delayed final : public ring::Transport {
 public:
  Delayed(ring::Transport& inner, const Wire& link) : inner_(inner), link_(link) {}
  int rank() const override { return inner_.rank(); }
  int size() const override { return inner_.size(); }
  void progress() override { inner_.progress(); }

  Request isend(int to, int tag, const void* data, std::int64_t bytes) override {
    const double now = clock();
    free_ = (free_ > now ? free_ : now) + static_cast<double>(bytes) / link_.bytes_per_second;
    Transfer& transfer = add();
    transfer.stamp = free_ + link_.seconds;
    transfer.until = free_;  // the sender's memory is free once all of it is on the link
    transfer.first = inner_.isend(to, tag + kStamps, &transfer.stamp, sizeof(transfer.stamp));
    transfer.second = inner_.isend(to, tag, data, bytes);
    return last_;
  }
  Request irecv(int from, int tag, void* data, std::int64_t bytes) override {
    Transfer& transfer = add();
    transfer.first = inner_.irecv(from, tag + kStamps, &transfer.stamp, sizeof(transfer.stamp));
    transfer.second = inner_.irecv(from, tag, data, bytes);
    return last_;
  }
  void wait(Request request) override {
    const auto found = open_.find(request);
    Transfer& transfer = found->second;
    inner_.wait(transfer.first);
    inner_.wait(transfer.second);
    const double until = transfer.until > 0 ? transfer.until : transfer.stamp;
    const double left = until - clock();
    if (left > 0) std::this_thread::sleep_for(std::chrono::duration<double>(left));
    open_.erase(found);
  }

 private:
  static constexpr int kStamps = 8;  // tags from here on carry the times at which messages arrive
  struct Transfer {
    Request first = 0, second = 0;
    double stamp = 0, until = 0;
  };
  Transfer& add() { return open_[++last_]; }
  static double clock() {
    return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
  }

  ring::Transport& inner_;
  Wire link_;
  double free_ = 0;  // when this rank's link has sent all
  Request last_ = 0;
  std::map<Request, Transfer> open_;
};

}  // namespace keel::bench
