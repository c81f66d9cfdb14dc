// Dropout: which weights of a row it drops depends only on the seed and the positions (core/dropout.h).
#if defined(KEEL_CPU_DROPOUT_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef KEEL_CPU_DROPOUT_INL_H_
#undef KEEL_CPU_DROPOUT_INL_H_
#else
#define KEEL_CPU_DROPOUT_INL_H_
#endif

#include <hwy/highway.h>

#include <algorithm>
#include <cstdint>

#include "core/dropout.h"
#include "cpu/forward.h"
#include "cpu/mask-inl.h"

HWY_BEFORE_NAMESPACE();
namespace keel::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

#if HWY_TARGET != HWY_SCALAR
// The high words of 32-bit products.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V MulHigh(D d, V a, V b) {
  const hn::RepartitionToWide<D> dw;
  const auto even = hn::ShiftRight<32>(hn::MulEven(a, b));
  const auto odd_a = hn::BitCast(d, hn::ShiftRight<32>(hn::BitCast(dw, a)));
  const auto odd_b = hn::BitCast(d, hn::ShiftRight<32>(hn::BitCast(dw, b)));
  return hn::OddEven(hn::BitCast(d, hn::MulEven(odd_a, odd_b)), hn::BitCast(d, even));
}

#endif

// core/dropout.h's random bits for keys [64·block, 64·block + 64), those of eight counters.
HWY_INLINE void RandomBits(const Dropout& dropout, const ForwardHead& head, const RowBlock& row, std::int64_t block,
                           std::uint32_t* HWY_RESTRICT bits) {
#if HWY_TARGET == HWY_SCALAR
  for (std::int64_t x = 0; x < 8; ++x) {
    const auto words = philox<Dropout::kRounds>(
        {Dropout::counter_of(64 * block + x), static_cast<std::uint32_t>(head.first_query + row.i),
         static_cast<std::uint32_t>(head.first_head + row.g), static_cast<std::uint32_t>(head.entry)},
        dropout.key);
    for (std::int64_t j = x; j < 64; j += 8) bits[j] = Dropout::bits_of(words, j);
  }
#else
  const hn::CappedTag<std::uint32_t, 8> d;
  const auto n = static_cast<std::uint32_t>(hn::Lanes(d));
  for (std::uint32_t x = 0; x < 8; x += n) {
    auto c0 = hn::Iota(d, Dropout::counter_of(64 * block) + x);
    auto c1 = hn::Set(d, static_cast<std::uint32_t>(head.first_query + row.i));
    auto c2 = hn::Set(d, static_cast<std::uint32_t>(head.first_head + row.g));
    auto c3 = hn::Set(d, static_cast<std::uint32_t>(head.entry));
    auto key0 = dropout.key[0], key1 = dropout.key[1];
    const auto m0 = hn::Set(d, 0xD2511F53u), m1 = hn::Set(d, 0xCD9E8D57u);
    for (int round = 0; round < Dropout::kRounds; ++round) {
      const auto high_a = MulHigh(d, m0, c0), high_b = MulHigh(d, m1, c2);
      const auto low_a = hn::Mul(m0, c0), low_b = hn::Mul(m1, c2);
      c0 = hn::Xor(hn::Xor(high_b, c1), hn::Set(d, key0));
      c1 = low_b;
      c2 = hn::Xor(hn::Xor(high_a, c3), hn::Set(d, key1));
      c3 = low_a;
      key0 += 0x9E3779B9;
      key1 += 0xBB67AE85;
    }
    const auto store = [&](auto word, std::uint32_t* to) {
      hn::StoreU(hn::And(word, hn::Set(d, 0xFFFFu)), d, to);
      hn::StoreU(hn::ShiftRight<16>(word), d, to + 8);
    };
    store(c0, bits + x);
    store(c1, bits + x + 16);
    store(c2, bits + x + 32);
    store(c3, bits + x + 48);
  }
#endif
}

// Zeroes the weights that dropout drops and scales the others. Blocks of random bits are counted from the first key of
// the whole sequence.
template <class T>
HWY_NOINLINE void ApplyDropout(const Dropout& dropout, const ForwardHead& head, const RowBlock& row,
                               T* HWY_RESTRICT p) {
  HWY_ALIGN std::uint32_t bits[64];
  const T factor = static_cast<T>(dropout.factor);
  const std::int64_t before = head.first_key + row.first;  // keys of the sequence before p[0]
  for (std::int64_t x = row.computed.begin; x < row.computed.end;) {
    const std::int64_t block = (before + x) / 64, start = block * 64 - before;
    const std::int64_t end = std::min(start + 64, row.computed.end);
    RandomBits(dropout, head, row, block, bits);
    for (; x < end; ++x) p[x] *= bits[x - start] >= dropout.threshold ? factor : T{0};
  }
}

}  // namespace keel::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
