#include "bench/yardsticks.h"

#include <barrier>
#include <functional>
#include <thread>

#include "bench/clock.h"
#include "cpu/peak.h"
#include "cpu/unit.h"
#include "runtime/machine.h"

namespace keel::bench {
namespace {

// What is read: far more than the caches hold, within reason.
constexpr std::int64_t kLeast = std::int64_t{512} << 20, kMost = std::int64_t{2} << 30;

// Runs work(0) … work(threads − 1) at once, one thread each, and returns the seconds from their common start to the
// last one's end. Uses its own threads: the library's pool promises only that the work gets done.
double seconds_together(int threads, const std::function<void(int)>& work) {
  std::barrier start(threads), end(threads);
  std::vector<std::thread> others;
  for (int t = 1; t < threads; ++t) {
    others.emplace_back([&, t] {
      start.arrive_and_wait();
      work(t);
      end.arrive_and_wait();
    });
  }
  start.arrive_and_wait();
  const Stopwatch watch;
  work(0);
  end.arrive_and_wait();
  const double seconds = watch.seconds();
  for (std::thread& other : others) other.join();
  return seconds;
}

// Steps of the loop that take about `seconds`.
std::int64_t steps_for(double seconds, const std::function<double(std::int64_t)>& loop) {
  for (std::int64_t steps = 1 << 16;; steps *= 2) {
    const Stopwatch watch;
    loop(steps);
    const double took = watch.seconds();
    if (took > seconds / 4) return static_cast<std::int64_t>(static_cast<double>(steps) * seconds / took) + 1;
  }
}

}  // namespace

double Yardsticks::loop(const Kind& kind, const Loop& run) {
  std::int64_t& steps = steps_[{kind.what, kind.dtype, kind.target}];
  if (steps == 0) steps = steps_for(seconds_, run);
  std::vector<double> flops(static_cast<std::size_t>(kind.threads));
  const double seconds =
      seconds_together(kind.threads, [&](int t) { flops[static_cast<std::size_t>(t)] = run(steps); });
  double rate = 0;
  for (const double x : flops) rate += x / seconds;
  measured_[kind].push_back(rate);
  return rate;
}

double Yardsticks::fma(DType dtype, std::int64_t target, int threads) {
  return loop({What::fma, dtype, target, threads}, [&](std::int64_t steps) {
    return dtype == DType::f64 ? cpu::fma_loop_f64(target, steps) : cpu::fma_loop_f32(target, steps);
  });
}

double Yardsticks::unit(int threads) {
  return loop({What::unit, DType::bf16, 0, threads}, cpu::unit_kernels(*machine().bf16_unit).peak);
}

void Yardsticks::take_memory() {
  if (memory_.bytes() == 0) memory_ = Buffer(std::clamp(2 * machine().l3_bytes, kLeast, kMost) / 4096 * 4096);
}

double Yardsticks::read(std::int64_t target, int threads) {
  take_memory();
  const std::int64_t part = memory_.bytes() / threads / 4096 * 4096;
  const double seconds = seconds_together(threads, [&](int t) {
    volatile std::uint64_t keep = cpu::read_loop(target, memory_.data() + t * part, part);
    (void)keep;
  });
  const double rate = static_cast<double>(part * threads) / seconds;
  measured_[{What::read, DType::f32, target, threads}].push_back(rate);
  return rate;
}

double Yardsticks::update(std::int64_t target, int threads) {
  take_memory();
  const std::int64_t part = memory_.bytes() / 2 / threads / 4096 * 4096;
  const double seconds = seconds_together(threads, [&](int t) {
    std::byte* const to = memory_.data() + std::int64_t{2} * t * part;
    cpu::update_loop(target, to, to + part, part);
  });
  const double rate = 3.0 * static_cast<double>(part * threads) / seconds;
  measured_[{What::update, DType::f32, target, threads}].push_back(rate);
  return rate;
}

}  // namespace keel::bench
