// Memory that runs out anywhere in a call: a status or keel::Error comes back every time, and the next call is as good
// as any. A program of its own, since it replaces operator new.
#include <gtest/gtest.h>
#include <pthread.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cmath>
#include <cstdlib>
#include <functional>
#include <new>
#include <string>
#include <thread>
#include <vector>

#include "keel/c_api.h"
#include "keel/keel.h"

namespace {

// The allocation that fails, counted from arm() on: that one alone, or all from it on. 0: none does.
std::atomic<std::int64_t> failing = 0, allocations = 0;
std::atomic<bool> for_good = false;

bool fails() {
  const std::int64_t at = failing.load();
  if (at == 0) return false;
  const std::int64_t now = ++allocations;
  return for_good ? now >= at : now == at;
}

void* allocate(std::size_t size, std::size_t alignment) {
  void* memory = nullptr;
  if (fails() || posix_memalign(&memory, std::max(alignment, sizeof(void*)), std::max<std::size_t>(size, 1)) != 0) {
    throw std::bad_alloc();
  }
  return memory;
}

}  // namespace

void* operator new(std::size_t size) { return allocate(size, alignof(std::max_align_t)); }
void* operator new(std::size_t size, std::align_val_t alignment) {
  return allocate(size, static_cast<std::size_t>(alignment));
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }
void operator delete(void* memory, std::align_val_t) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t, std::align_val_t) noexcept { std::free(memory); }

namespace keel {
namespace {

using Numbers = std::vector<float>;
using Results = std::vector<Numbers>;

Numbers numbers(std::int64_t count, float phase) {
  Numbers values(static_cast<std::size_t>(count));
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = std::sin(static_cast<float>(i) + phase);
  return values;
}

// Threads that begin anew with each call, and so have no scratch memory from the last one.
struct FreshTeam {
  static constexpr int kSize = 4;

  static void run(void (*work)(void*), void* data, unsigned, unsigned) {
    struct Call {
      void (*work)(void*);
      void* data;
    } call{work, data};
    std::array<pthread_t, kSize - 1> others;
    const auto start = [](void* each) -> void* {
      static_cast<Call*>(each)->work(static_cast<Call*>(each)->data);
      return nullptr;
    };
    for (pthread_t& thread : others) ASSERT_EQ(pthread_create(&thread, nullptr, start, &call), 0);
    work(data);
    for (pthread_t& thread : others) pthread_join(thread, nullptr);
  }
  static int size() { return kSize; }
};

// A call whose result is compared; it gives a status, in C++ too.
struct Call {
  Results results;
  std::function<keel_status()> call;
};

template <class Work>
keel_status status_of(Work work) {
  try {
    work();
    return KEEL_OK;
  } catch (const Error& error) {
    EXPECT_STRNE(error.what(), "");
    return error.code() == ErrorCode::out_of_memory ? KEEL_OUT_OF_MEMORY : KEEL_INVALID_ARGUMENT;
  } catch (const std::exception&) {  // which only Error may be
    return KEEL_INTERNAL;
  }
}

// Few rows over many keys: tasks are chunks of the keys. Every statistic is asked for.
struct Forward : Call {
  static constexpr std::int64_t kHeads = 2, kRows = 8, kKeys = 9000, kSize = 32;
  Numbers q = numbers(kHeads * kRows * kSize, 1), k = numbers(kHeads * kKeys * kSize, 2),
          v = numbers(kHeads * kKeys * kSize, 3);
  std::vector<HeadStatistics> heads = std::vector<HeadStatistics>(kHeads);

  Forward() {
    results.assign(3, Numbers(static_cast<std::size_t>(kHeads * kRows * kSize)));
    call = [this] { return status_of([&] { attention(qs(), ks(), vs(), out(), options(), outputs()); }); };
  }
  TensorView qs() const { return view(q.data(), {1, kHeads, kRows, kSize}); }
  TensorView ks() const { return view(k.data(), {1, kHeads, kKeys, kSize}); }
  TensorView vs() const { return view(v.data(), {1, kHeads, kKeys, kSize}); }
  MutableTensorView out() { return view(results[0].data(), {1, kHeads, kRows, kSize}); }
  static Options options() { return {.causal = Causal::bottom_right, .threads = FreshTeam::kSize}; }
  Outputs outputs() {
    return {.lse = row_view(results[1].data(), {1, kHeads, kRows}),
            .entropy = row_view(results[2].data(), {1, kHeads, kRows}),
            .heads = heads};
  }
};

// Fewer head groups than threads: tasks are blocks of keys that wait for each other.
struct Backward : Call {
  static constexpr std::int64_t kHeads = 2, kRows = 300, kSize = 32;
  std::vector<Numbers> inputs;
  Numbers lse = Numbers(kHeads * kRows), bias = numbers(kHeads * kRows * kRows, 5), sinks = numbers(kHeads, 6);
  bool sums;

  explicit Backward(bool sums_of_dbias) : sums(sums_of_dbias) {
    for (int i = 0; i < 5; ++i) inputs.push_back(numbers(kHeads * kRows * kSize, static_cast<float>(i)));
    attention(tensor(0), tensor(1), tensor(2), view(inputs[3].data(), shape()), options(),
              {.lse = row_view(lse.data(), {1, kHeads, kRows})});
    results.assign(6, Numbers(bias.size()));
    call = [this] { return status_of([&] { attention_backward(arguments(), gradients(), options()); }); };
  }
  static std::array<std::int64_t, 4> shape() { return {1, kHeads, kRows, kSize}; }
  TensorView tensor(std::size_t i) const { return view(inputs[i].data(), shape()); }
  Options options() const {
    return {.bias = view(bias.data(), {1, kHeads, kRows, kRows}),
            .sinks = head_view(sinks.data(), kHeads),
            .threads = FreshTeam::kSize};
  }
  BackwardInputs arguments() const {
    return {.q = tensor(0),
            .k = tensor(1),
            .v = tensor(2),
            .out = tensor(3),
            .lse = row_view(lse.data(), {1, kHeads, kRows}),
            .dout = tensor(4)};
  }
  Gradients gradients() {
    return {.dq = view(results[0].data(), shape()),
            .dk = view(results[1].data(), shape()),
            .dv = view(results[2].data(), shape()),
            .dbias = view(results[3].data(), {1, sums ? 1 : kHeads, kRows, kRows}),
            .dscale = row_view(results[4].data(), {1, kHeads, 1}),
            .dsinks = head_view(results[5].data(), kHeads)};
  }
};

struct Merge : Call {
  static constexpr std::int64_t kRows = 4096, kSize = 16;  // enough to be shared among threads
  std::vector<Numbers> outs, lses;
  std::vector<Partial> parts;

  Merge() {
    for (int i = 0; i < 3; ++i) {
      outs.push_back(numbers(kRows * kSize, static_cast<float>(i)));
      lses.push_back(numbers(kRows, static_cast<float>(i)));
      parts.push_back(
          {.out = view(outs.back().data(), {1, 1, kRows, kSize}), .lse = row_view(lses.back().data(), {1, 1, kRows})});
    }
    results.assign(2, Numbers(kRows * kSize));
    call = [this] { return status_of([&] { merge(parts, out(), {.lse = lse()}, 2); }); };
  }
  MutableTensorView out() { return view(results[0].data(), {1, 1, kRows, kSize}); }
  MutableRowView lse() { return row_view(results[1].data(), {1, 1, kRows}); }
};

// The same through the C interface.
template <std::size_t Rank, class Pointer>
keel_view to_c(const BasicView<Rank, Pointer>& view) {
  return keel_make_view(view.data, static_cast<std::int32_t>(view.dtype), static_cast<std::int32_t>(Rank),
                        view.shape.data());
}

struct CForward : Forward {
  explicit CForward(bool explains = false) {
    call = [this, explains] {
      const keel_view q_view = to_c(qs()), k_view = to_c(ks()), v_view = to_c(vs()), out_view = to_c(out());
      keel_options o;
      KEEL_INIT(&o);
      o.causal = KEEL_CAUSAL_BOTTOM_RIGHT;
      o.threads = FreshTeam::kSize;
      keel_outputs report;
      KEEL_INIT(&report);
      report.lse = to_c(outputs().lse);
      report.entropy = to_c(outputs().entropy);
      report.heads = reinterpret_cast<keel_head_statistics*>(heads.data());
      report.heads_count = kHeads;
      report.heads_size = sizeof(keel_head_statistics);
      if (!explains) return keel_attention(&q_view, &k_view, &v_view, &out_view, &o, &report);
      const char* const text = keel_explain(&q_view, &k_view, &v_view, &out_view, &o, &report);
      EXPECT_EQ(text == nullptr, keel_last_status() != KEEL_OK);
      return keel_last_status();
    };
  }
};

struct CBackward : Backward {
  explicit CBackward(bool sums_of_dbias) : Backward(sums_of_dbias) {
    call = [this] {
      const BackwardInputs in = arguments();
      const Gradients g = gradients();
      const keel_backward_inputs from{sizeof(from), to_c(in.q),   to_c(in.k),    to_c(in.v),
                                      to_c(in.out), to_c(in.lse), to_c(in.dout), to_c(in.dlse)};
      const keel_gradients to{sizeof(to),    to_c(g.dq),     to_c(g.dk),     to_c(g.dv),
                              to_c(g.dbias), to_c(g.dscale), to_c(g.dsinks), 0, {}};
      keel_options o;
      KEEL_INIT(&o);
      o.bias = to_c(options().bias);
      o.sinks = to_c(options().sinks);
      o.threads = FreshTeam::kSize;
      return keel_attention_backward(&from, &to, &o);
    };
  }
};

struct CMerge : Merge {
  CMerge() {
    call = [this] {
      std::array<keel_partial, 3> list;
      for (std::size_t i = 0; i < list.size(); ++i) {
        KEEL_INIT(&list[i]);
        list[i].out = to_c(parts[i].out);
        list[i].lse = to_c(parts[i].lse);
      }
      const keel_view out_view = to_c(out());
      keel_outputs outputs;
      KEEL_INIT(&outputs);
      outputs.lse = to_c(lse());
      return keel_merge(list.data(), std::ssize(list), &out_view, &outputs, 2);
    };
  }
};

// A call by a thread that has no scratch memory yet. `at`: the allocation that fails; whether it came to that.
struct Outcome {
  keel_status status;
  bool failed;
  std::string message;
};
Outcome run(Call& call, std::int64_t at, bool and_all_later) {
  Outcome outcome{};
  for (Numbers& result : call.results) result.assign(result.size(), 7.0f);
  std::thread([&] {
    for_good = and_all_later;
    allocations = 0;
    failing = at;
    outcome.status = call.call();
    failing = 0;
    outcome.failed = at > 0 && allocations >= at;
    outcome.message = keel_last_error();
  }).join();
  return outcome;
}

enum class Threads { team, tbb };

class Allocation : public testing::TestWithParam<Threads> {
 protected:
  void SetUp() override {
    alarm(300);  // a call that hangs ends the program
    use_team(GetParam() == Threads::team ? Team{FreshTeam::run, FreshTeam::size} : Team{});
  }
  void TearDown() override {
    use_team({});
    alarm(0);
  }

  static void expect_a_status_every_time(Call& call, bool in_c) {
    ASSERT_EQ(run(call, 0, false).status, KEEL_OK);
    const Results expected = call.results;
    for (const bool and_all_later : {true, false}) {
      std::int64_t at = 1, refused = 0;
      for (;; ++at) {
        const Outcome outcome = run(call, at, and_all_later);
        if (outcome.status == KEEL_OK) {  // not reached, or not needed
          EXPECT_EQ(call.results, expected) << "allocation " << at;
          if (!outcome.failed) break;
        } else {
          EXPECT_EQ(outcome.status, KEEL_OUT_OF_MEMORY) << "allocation " << at;
          EXPECT_EQ(outcome.message.empty(), !in_c) << "allocation " << at;
          ++refused;
        }
        ASSERT_EQ(run(call, 0, false).status, KEEL_OK) << "after allocation " << at << " had failed";
        ASSERT_EQ(call.results, expected) << "after allocation " << at << " had failed";
      }
      EXPECT_GT(refused, 0);
    }
  }
};

TEST_P(Allocation, AttentionSaysThatMemoryRanOut) {
  Forward cpp;
  const std::string plan = explain(cpp.qs(), cpp.ks(), cpp.vs(), cpp.out(), cpp.options(), cpp.outputs());
  ASSERT_NE(plan.find("keys split"), std::string::npos) << plan;
  expect_a_status_every_time(cpp, false);
  CForward c;
  expect_a_status_every_time(c, true);
}

TEST_P(Allocation, ExplainSaysThatMemoryRanOut) {
  Forward cpp;
  const auto text = [&] { return explain(cpp.qs(), cpp.ks(), cpp.vs(), cpp.out(), cpp.options(), cpp.outputs()); };
  const std::string expected = text();
  cpp.call = [&] {
    return status_of([&] {
      const bool whole = text() == expected;
      failing = 0;
      EXPECT_TRUE(whole);
    });
  };
  expect_a_status_every_time(cpp, false);
  CForward c(/*explains=*/true);
  expect_a_status_every_time(c, true);
}

TEST_P(Allocation, BackwardSaysThatMemoryRanOut) {
  for (const bool sums_of_dbias : {false, true}) {
    Backward cpp(sums_of_dbias);
    expect_a_status_every_time(cpp, false);
    CBackward c(sums_of_dbias);
    expect_a_status_every_time(c, true);
  }
}

TEST_P(Allocation, MergeSaysThatMemoryRanOut) {
  Merge cpp;
  expect_a_status_every_time(cpp, false);
  CMerge c;
  expect_a_status_every_time(c, true);
}

TEST_P(Allocation, AWrongArgumentIsRefusedOrMemoryRanOut) {
  CForward c;
  c.call = [] { return keel_merge(nullptr, 2, nullptr, nullptr, 0); };
  for (std::int64_t at = 1;; ++at) {
    const Outcome outcome = run(c, at, true);
    EXPECT_NE(outcome.message, "");
    EXPECT_EQ(outcome.status, outcome.failed ? KEEL_OUT_OF_MEMORY : KEEL_INVALID_ARGUMENT);
    if (!outcome.failed) break;
  }
}

INSTANTIATE_TEST_SUITE_P(On, Allocation, testing::Values(Threads::team, Threads::tbb),
                         [](const auto& test) { return test.param == Threads::team ? "ATeam" : "OneTbb"; });

}  // namespace
}  // namespace keel
