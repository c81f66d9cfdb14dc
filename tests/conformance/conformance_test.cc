#include <gtest/gtest.h>

#include <set>

#include "conformance/expect.h"
#include "conformance/factors.h"
#include "conformance/random.h"
#include "conformance/seeds.h"
#include "conformance/slices.h"
#include "conformance/streaming.h"
#include "conformance/table.h"

namespace keel::conformance {
namespace {

TEST(Table, CoversEveryPairOfFeatures) {
  std::set<std::pair<std::string, std::string>> met;
  for (const Case& c : table()) {
    for (const std::string& a : c.features) {
      for (const std::string& b : c.features) met.insert({a, b});
    }
  }
  std::size_t pairs = 0;
  for (const Factor& f : factors()) {
    for (const Factor& g : factors()) {
      if (&f == &g) continue;
      for (const Level& a : f.levels) {
        for (const Level& b : g.levels) {
          ++pairs;
          EXPECT_TRUE(met.contains({label(f, a), label(g, b)})) << label(f, a) << " never meets " << label(g, b);
        }
      }
    }
  }
  RecordProperty("pairs", static_cast<int>(pairs / 2));
  RecordProperty("cases", static_cast<int>(table().size()));
}

TEST(Table, NamesAreUnique) {
  std::set<std::string> names;
  for (const Case& c : table()) EXPECT_TRUE(names.insert(c.name).second) << c.name;
}

TEST(Table, EveryCaseMatchesTheOracle) {
  for (const Case& c : table()) expect_matches_oracle(Instance(c));
}

TEST(Table, GradientsOfEveryCaseMatchTheOracle) {
  for (const Case& c : table()) expect_gradients_match_oracle(Instance(c));
}

TEST(Tolerances, HoldForAStreamingKernelOverTheTable) {
  for (const Case& c : table()) {
    const Instance instance(c);
    expect_matches_oracle(instance, streaming_attention);
    if (lse_tells_weights(instance.description())) {  // all it starts from
      expect_gradients_match_oracle(instance, streaming_attention_backward);
    }
  }
}

TEST(Tolerances, HoldForAStreamingKernelOverRandomProblems) {
  for (const std::uint64_t seed : seeds(300)) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    for (const Case& c : {random_case(seed), random_case_with_masking_bias(seed)}) {
      const Instance instance(c);
      expect_matches_oracle(instance, streaming_attention);
      if (lse_tells_weights(c)) {  // all it starts from
        expect_gradients_match_oracle(instance, streaming_attention_backward);
      }
    }
  }
}

TEST(Slices, OfEveryCaseMatchTheOracle) {
  std::uint64_t seed = 0;
  for (const Case& c : table()) {
    const Instance instance(c);
    if (!lse_tells_weights(c)) continue;  // which is what slices are merged by
    expect_matches_oracle(instance, sliced_attention(++seed));
    expect_gradients_match_oracle(instance, sliced_backward(seed));
  }
}

TEST(Slices, OfRandomProblemsMatchTheOracle) {
  for (const std::uint64_t seed : seeds(200)) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    const Instance instance(random_case(seed));
    if (!lse_tells_weights(instance.description())) continue;
    expect_matches_oracle(instance, sliced_attention(seed));
    expect_gradients_match_oracle(instance, sliced_backward(seed));
  }
}

TEST(RandomProblems, MatchTheOracle) {
  for (const std::uint64_t seed : seeds(300)) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    const Instance instance(random_case(seed));
    expect_matches_oracle(instance);
    expect_gradients_match_oracle(instance);
  }
}

}  // namespace
}  // namespace keel::conformance
