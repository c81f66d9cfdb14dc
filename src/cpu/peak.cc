#include "cpu/peak.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/peak.cc"
#include <hwy/foreach_target.h>  // must come first
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace keel::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Twelve chains: more than latency times ports of any known core, and they fit sixteen registers with their operands.
template <class T>
double FmaLoop(std::int64_t steps) {
  const hn::ScalableTag<T> d;
  auto a0 = hn::Set(d, T(0.1)), a1 = hn::Set(d, T(0.2)), a2 = hn::Set(d, T(0.3)), a3 = hn::Set(d, T(0.4));
  auto a4 = hn::Set(d, T(0.5)), a5 = hn::Set(d, T(0.6)), a6 = hn::Set(d, T(0.7)), a7 = hn::Set(d, T(0.8));
  auto a8 = hn::Set(d, T(0.9)), a9 = hn::Set(d, T(1.1)), a10 = hn::Set(d, T(1.2)), a11 = hn::Set(d, T(1.3));
  auto x = hn::Set(d, T(0.999999)), y = hn::Set(d, T(1e-6));
  for (std::int64_t i = 0; i < steps; ++i) {
    a0 = hn::MulAdd(a0, x, y);
    a1 = hn::MulAdd(a1, x, y);
    a2 = hn::MulAdd(a2, x, y);
    a3 = hn::MulAdd(a3, x, y);
    a4 = hn::MulAdd(a4, x, y);
    a5 = hn::MulAdd(a5, x, y);
    a6 = hn::MulAdd(a6, x, y);
    a7 = hn::MulAdd(a7, x, y);
    a8 = hn::MulAdd(a8, x, y);
    a9 = hn::MulAdd(a9, x, y);
    a10 = hn::MulAdd(a10, x, y);
    a11 = hn::MulAdd(a11, x, y);
  }
  const auto low = hn::Add(hn::Add(hn::Add(a0, a1), hn::Add(a2, a3)), hn::Add(a4, a5));
  const auto high = hn::Add(hn::Add(hn::Add(a6, a7), hn::Add(a8, a9)), hn::Add(a10, a11));
  volatile T keep = hn::GetLane(hn::Add(low, high));
  (void)keep;
  return 2.0 * 12.0 * static_cast<double>(hn::Lanes(d)) * static_cast<double>(steps);
}
double FmaLoopF32(std::int64_t steps) { return FmaLoop<float>(steps); }
double FmaLoopF64(std::int64_t steps) { return FmaLoop<double>(steps); }

std::uint64_t ReadLoop(const void* data, std::int64_t bytes) {
  const hn::ScalableTag<std::uint64_t> d;
  const auto n = static_cast<std::int64_t>(hn::Lanes(d));
  const auto* words = static_cast<const std::uint64_t*>(data);
  auto a = hn::Zero(d), b = a, c = a, e = a;
  for (std::int64_t i = 0; i < bytes / 8; i += 4 * n) {
    a = hn::Xor(a, hn::LoadU(d, words + i));
    b = hn::Xor(b, hn::LoadU(d, words + i + n));
    c = hn::Xor(c, hn::LoadU(d, words + i + 2 * n));
    e = hn::Xor(e, hn::LoadU(d, words + i + 3 * n));
  }
  return hn::GetLane(hn::Xor(hn::Xor(a, b), hn::Xor(c, e)));
}

void UpdateLoop(void* to, const void* from, std::int64_t bytes) {
  const hn::ScalableTag<std::uint64_t> d;
  const auto n = static_cast<std::int64_t>(hn::Lanes(d));
  auto* const sums = static_cast<std::uint64_t*>(to);
  const auto* const words = static_cast<const std::uint64_t*>(from);
  const auto add = [&](std::int64_t i) {
    hn::StoreU(hn::Add(hn::LoadU(d, sums + i), hn::LoadU(d, words + i)), d, sums + i);
  };
  for (std::int64_t i = 0; i < bytes / 8; i += 4 * n) add(i), add(i + n), add(i + 2 * n), add(i + 3 * n);
}

}  // namespace keel::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace keel::cpu {
namespace {
std::size_t index_of(std::int64_t target) {
  hwy::ChosenTarget chosen;
  chosen.Update(target);
  return chosen.GetIndex();
}
HWY_EXPORT(FmaLoopF32);
HWY_EXPORT(FmaLoopF64);
HWY_EXPORT(ReadLoop);
HWY_EXPORT(UpdateLoop);
}  // namespace

double fma_loop_f32(std::int64_t target, std::int64_t steps) {
  return HWY_DISPATCH_TABLE(FmaLoopF32)[index_of(target)](steps);
}
double fma_loop_f64(std::int64_t target, std::int64_t steps) {
  return HWY_DISPATCH_TABLE(FmaLoopF64)[index_of(target)](steps);
}
std::uint64_t read_loop(std::int64_t target, const void* data, std::int64_t bytes) {
  return HWY_DISPATCH_TABLE(ReadLoop)[index_of(target)](data, bytes);
}
void update_loop(std::int64_t target, void* to, const void* from, std::int64_t bytes) {
  HWY_DISPATCH_TABLE(UpdateLoop)[index_of(target)](to, from, bytes);
}
}  // namespace keel::cpu
#endif
