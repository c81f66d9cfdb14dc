// How many bytes travel.
#include <gtest/gtest.h>

#include <vector>

#include "ring/wrapped.h"

namespace keel::ring {
namespace {

class Counting : public Wrapped {
 public:
  using Wrapped::Wrapped;
  Request irecv(int from, int tag, void* data, std::int64_t bytes) override {
    if (tag != 0) received += bytes, ++messages;  // 0: what ranks agree on
    return Wrapped::irecv(from, tag, data, bytes);
  }
  std::int64_t received = 0, messages = 0;
};

constexpr std::int64_t kHeads = 2, kD = 8, kHeader = 64;

struct Traffic {
  std::int64_t bytes, messages;
};

// What each rank receives in a forward call over n rows.
std::vector<Traffic> traffic(int size, const Sharding& sharding, const Options& options) {
  std::vector<Traffic> all(static_cast<std::size_t>(size));
  run_threads(size, [&](Transport& transport) {
    Counting counting(transport);
    const std::int64_t keys = shard(sharding.n_k, size, transport.rank(), sharding.layout).size();
    const std::int64_t queries = sharding.mode == Mode::decode
                                     ? sharding.n_q
                                     : shard(sharding.n_q, size, transport.rank(), sharding.layout).size();
    std::vector<float> q(static_cast<std::size_t>(kHeads * queries * kD), 0.1f), out = q;
    std::vector<float> k(static_cast<std::size_t>(kHeads * keys * kD), 0.1f);
    const auto kv = view(k.data(), {1, kHeads, keys, kD});
    Options o = options;
    o.threads = 1;
    attention(counting, sharding,
              {view(q.data(), {1, kHeads, queries, kD}), kv, kv, view(out.data(), {1, kHeads, queries, kD})}, o);
    all[static_cast<std::size_t>(transport.rank())] = {counting.received - kHeader * counting.messages,
                                                       counting.messages};
  });
  return all;
}

constexpr std::int64_t kBytesPerKey = kHeads * 2 * kD * 4;  // of k and v in f32

TEST(Traffic, OfFullAttentionIsAllKeysOfOthersOnce) {
  for (const Mode mode : {Mode::ring, Mode::ordered}) {
    for (const Traffic& each : traffic(4, {.n_q = 400, .n_k = 400, .mode = mode}, {})) {
      EXPECT_EQ(each.bytes, 300 * kBytesPerKey);
    }
  }
}

TEST(Traffic, OfAWindowIsItsWidthForAnyLength) {
  constexpr std::int64_t w = 50;
  for (const std::int64_t n : {800, 3200}) {
    const auto all = traffic(4, {.n_q = n, .n_k = n, .layout = Layout::contiguous},
                             {.causal = Causal::top_left, .window = {.left = w}});
    EXPECT_EQ(all[0].bytes, 0);
    for (std::size_t rank = 1; rank < 4; ++rank) EXPECT_EQ(all[rank].bytes, w * kBytesPerKey);  // 2·w·d per head
  }
}

TEST(Traffic, OfACausalMaskLeavesOutTheFuture) {
  const auto contiguous =
      traffic(4, {.n_q = 400, .n_k = 400, .layout = Layout::contiguous}, {.causal = Causal::top_left});
  for (std::size_t rank = 0; rank < 4; ++rank) {
    EXPECT_EQ(contiguous[rank].bytes, static_cast<std::int64_t>(rank) * 100 * kBytesPerKey);
  }
  // Of each other rank its first stretch, and the second of those whose second comes before.
  const auto zigzag = traffic(4, {.n_q = 400, .n_k = 400}, {.causal = Causal::top_left});
  for (std::size_t rank = 0; rank < 4; ++rank) {
    EXPECT_EQ(zigzag[rank].bytes, (3 + (3 - static_cast<std::int64_t>(rank))) * 50 * kBytesPerKey);
  }
}

TEST(Traffic, OfDecodingIsResultsAloneForAnyNumberOfKeys) {
  for (const std::int64_t n : {400, 1600}) {
    for (const Traffic& each : traffic(4, {.n_q = 1, .n_k = n, .mode = Mode::decode}, {})) {
      EXPECT_EQ(each.messages, 3);
      EXPECT_LE(each.bytes, 3 * (kHeads * kD * 4 + 128));  // out and lse, each padded to 64 bytes
    }
  }
}

}  // namespace
}  // namespace keel::ring
