#pragma once

#include <ucontext.h>

#include <array>
#include <bit>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <iostream>
#include <vector>

#include "cuda/lanes.h"

// A warp on the CPU: kLanes fibers on one thread, which wait for each other wherever the lanes of a warp must meet.
// Lanes that meet at different places end the program: on a GPU they would wait for ever, or exchange nonsense.
namespace keel::cuda {

template <int kLanes>
class Fibers {
 public:
  // Runs body(lane) in every lane, to its end.
  void run(const std::function<void(int)>& body) {
    body_ = &body;
    for (int lane = 0; lane < kLanes; ++lane) prepare(lane);
    ended_ = 0;
    while (ended_ == 0) {  // a turn: every lane runs to where it meets the others, or to its end
      turn_ += 1;
      for (int lane = 0; lane < kLanes; ++lane) swapcontext(&main_, &contexts_[lane]);
      for (int lane = 1; lane < kLanes && ended_ == 0; ++lane) {
        if (kinds_[lane] != kinds_[0]) fail("lanes wait at different places");
      }
      if (ended_ != 0 && ended_ != kLanes) fail("a lane ended while others wait for it");
    }
  }

  // What every lane brought to the place where they meet.
  template <class T>
  std::array<T, kLanes> meet(int lane, char kind, T x) {
    static_assert(sizeof(T) <= sizeof(std::uint64_t));
    auto& values = values_[turn_ % 2];  // a lane may be at the next place before another has read these
    std::memcpy(&values[lane], &x, sizeof(T));
    kinds_[lane] = kind;
    swapcontext(&contexts_[lane], &main_);
    std::array<T, kLanes> all;
    for (int other = 0; other < kLanes; ++other) std::memcpy(&all[other], &values[other], sizeof(T));
    return all;
  }

 private:
  void prepare(int lane) {
    stacks_[lane].resize(256 * 1024);
    getcontext(&contexts_[lane]);
    contexts_[lane].uc_stack = {.ss_sp = stacks_[lane].data(), .ss_flags = 0, .ss_size = stacks_[lane].size()};
    contexts_[lane].uc_link = &main_;
    const auto self = reinterpret_cast<std::uintptr_t>(this);
    makecontext(&contexts_[lane], reinterpret_cast<void (*)()>(&Fibers::begin), 3, static_cast<unsigned>(self >> 32),
                static_cast<unsigned>(self), lane);
  }

  static void begin(unsigned high, unsigned low, int lane) {
    auto* const self = reinterpret_cast<Fibers*>(std::uintptr_t{high} << 32 | low);
    (*self->body_)(lane);
    self->ended_ += 1;
  }

  [[noreturn]] static void fail(const char* what) {
    std::cerr << "lockstep: " << what << std::endl;
    std::abort();
  }

  const std::function<void(int)>* body_ = nullptr;
  ucontext_t main_{};
  std::array<ucontext_t, kLanes> contexts_{};
  std::array<std::vector<char>, kLanes> stacks_;
  std::array<std::array<std::uint64_t, kLanes>, 2> values_{};
  std::array<char, kLanes> kinds_{};
  std::int64_t turn_ = 0;
  int ended_ = 0;
};

template <int kLanes>
class Lockstep {
 public:
  static constexpr int kCount = kLanes;

  Lockstep(Fibers<kLanes>& fibers, int lane) : fibers_(fibers), lane_(lane) {}

  int lane() const { return lane_; }
  template <class T>
  T sum(T x) const {
    std::array<T, kLanes> all = fibers_.meet(lane_, 's', x);
    for (int step = kLanes / 2; step > 0; step /= 2) {
      const std::array<T, kLanes> before = all;
      for (int lane = 0; lane < kLanes; ++lane) all[lane] = before[lane] + before[lane ^ step];
    }
    return all[lane_];
  }
  template <class T>
  T max(T x) const {
    const std::array<T, kLanes> all = fibers_.meet(lane_, 'm', x);
    T most = all[0];
    for (const T other : all) most = larger_of(most, other);
    return most;
  }
  template <class T>
  T broadcast(T x, int lane) const {
    return fibers_.meet(lane_, 'b', x)[lane];
  }
  std::uint32_t which(bool x) const {
    const std::array<bool, kLanes> all = fibers_.meet(lane_, 'w', x);
    std::uint32_t bits = 0;
    for (int lane = 0; lane < kLanes; ++lane) bits |= static_cast<std::uint32_t>(all[lane]) << lane;
    return bits;
  }
  void sync() const { fibers_.meet(lane_, 'y', 0); }

 private:
  static_assert(std::has_single_bit(static_cast<unsigned>(kLanes)));

  Fibers<kLanes>& fibers_;
  int lane_;
};

}  // namespace keel::cuda
