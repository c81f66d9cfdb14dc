#include <gtest/gtest.h>

#include "api/arguments.h"
#include "conformance/seeds.h"

// Whatever the arguments, a call runs or raises keel::Error, and nothing else happens.
namespace keel {
namespace {

using conformance::Generator;
using namespace testing_arguments;

struct Tally {
  int accepted = 0, refused = 0;

  template <class Call>
  void count(bool must_fail, Call call) {
    try {
      call();
      ++accepted;
      EXPECT_FALSE(must_fail) << "a wrong argument was accepted";
    } catch (const Error& error) {
      ++refused;
      EXPECT_TRUE(error.code() == ErrorCode::invalid_argument || error.code() == ErrorCode::wrong_dtype ||
                  error.code() == ErrorCode::unsupported)
          << error.what();
    } catch (const std::exception& error) {
      ADD_FAILURE() << "raised something else: " << error.what();
    }
  }

  void expect_both() const {
    EXPECT_GT(accepted, refused / 20);
    EXPECT_GT(refused, accepted / 20);
    testing::Test::RecordProperty("accepted", accepted);
    testing::Test::RecordProperty("refused", refused);
  }
};

// Runs `one(random, arena, tally)` for each seed; memory is filled anew now and then, as calls write into it.
template <class One>
void run_all(std::uint64_t count, One one) {
  Tally tally;
  Arena arena;
  for (const std::uint64_t seed : conformance::seeds(count)) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    if (seed % 512 == 0) {
      Generator bits(seed, 0xF1);
      arena.fill(bits);
    }
    Generator random(seed, 0xA6);
    one(random, arena, tally);
    if (testing::Test::HasFailure()) return;
  }
  if (std::getenv("KEEL_TEST_SEED") == nullptr) tally.expect_both();
}

TEST(RandomArguments, OfAttentionRunOrRaiseKeelError) {
  run_all(100'000, [](Generator& random, Arena& arena, Tally& tally) {
    bool must_fail = false;
    const ForwardArguments a = random_forward(random, arena, must_fail);
    tally.count(must_fail, [&] { attention(a.q, a.k, a.v, a.out, a.options, a.outputs); });
  });
}

TEST(RandomArguments, OfTheBackwardPassRunOrRaiseKeelError) {
  run_all(60'000, [](Generator& random, Arena& arena, Tally& tally) {
    bool must_fail = false;
    const BackwardArguments a = random_backward(random, arena, must_fail);
    tally.count(must_fail, [&] { attention_backward(a.inputs, a.gradients, a.forward.options); });
  });
}

TEST(RandomArguments, OfMergeRunOrRaiseKeelError) {
  run_all(40'000, [](Generator& random, Arena& arena, Tally& tally) {
    bool must_fail = false;
    const MergeArguments a = random_merge(random, arena, must_fail);
    tally.count(must_fail, [&] { merge(a.parts, a.out, a.outputs, a.threads); });
  });
}

TEST(RandomArguments, OfExplainRunOrRaiseKeelError) {
  run_all(20'000, [](Generator& random, Arena& arena, Tally& tally) {
    bool must_fail = false;
    ForwardArguments a = random_forward(random, arena, must_fail);
    a.q.data = a.k.data = a.v.data = nullptr;
    tally.count(false, [&] { static_cast<void>(explain(a.q, a.k, a.v, a.out, a.options, a.outputs)); });
  });
}

}  // namespace
}  // namespace keel
