// Whatever goes wrong on one rank, all ranks raise, say which one it was and why, and none waits forever.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <mutex>
#include <string>
#include <vector>

#include "ring/wrapped.h"

namespace keel::ring {
namespace {

using testing::Each;
using testing::HasSubstr;

constexpr int kSize = 4;
constexpr std::int64_t kN = 40, kD = 8;

// A small call, in which a test may spoil something on one rank.
struct Arguments {
  Sharding sharding{.n_q = kN, .n_k = kN};
  std::int64_t rows = 0;
  std::vector<float> q, k, v, out, lse, dout, dq, dk, dv, sinks{0.5f, 0.25f};
  Options options{.causal = Causal::top_left};
  Outputs outputs{};
  Gradients gradients{};  // beside those of q, k and v
  std::int64_t d_v = kD;

  explicit Arguments(int rank) : rows(shard(kN, kSize, rank, sharding.layout).size()) {
    for (auto* x : {&q, &k, &v, &out, &dout, &dq, &dk, &dv}) x->assign(static_cast<std::size_t>(2 * rows * kD), 0.5f);
    lse.assign(static_cast<std::size_t>(2 * rows), 0.0f);
    options.threads = 1;
  }
  MutableTensorView tensor(std::vector<float>& x, std::int64_t d = kD) { return view(x.data(), {1, 2, rows, d}); }

  void forward(Transport& transport) {
    attention(transport, sharding, {tensor(q), tensor(k), tensor(v, d_v), tensor(out, d_v)}, options, outputs);
  }
  void backward(Transport& transport) {
    gradients.dq = tensor(dq), gradients.dk = tensor(dk), gradients.dv = tensor(dv);
    attention_backward(transport, sharding,
                       {.q = tensor(q),
                        .k = tensor(k),
                        .v = tensor(v),
                        .out = tensor(out),
                        .lse = row_view(lse.data(), {1, 2, rows}),
                        .dout = tensor(dout)},
                       gradients, options);
  }
};

// What each rank raises, "" for nothing.
template <class Work>
std::vector<std::string> errors(Work work) {
  std::vector<std::string> texts(kSize);
  run_threads(kSize, [&](Transport& transport) {
    try {
      work(transport);
    } catch (const Error& error) {
      texts[static_cast<std::size_t>(transport.rank())] = error.what();
    }
  });
  return texts;
}

std::vector<std::string> errors_where(int rank, const std::function<void(Arguments&)>& spoil, bool backward = false) {
  return errors([&](Transport& transport) {
    Arguments arguments(transport.rank());
    if (transport.rank() == rank) spoil(arguments);
    backward ? arguments.backward(transport) : arguments.forward(transport);
  });
}

TEST(Failure, NothingSpoiledRaisesNothing) {
  EXPECT_THAT(errors_where(0, [](Arguments&) {}), Each(""));
  EXPECT_THAT(errors_where(
                  0, [](Arguments&) {}, true),
              Each(""));
}

TEST(Failure, AWrongArgumentOfOneRankIsRaisedByAll) {
  EXPECT_THAT(errors_where(2, [](Arguments& a) { a.options.threads = -1; }),
              Each("[ring] rank 2: [attention] threads: expected at least 0, got -1"));
  EXPECT_THAT(errors_where(1, [](Arguments& a) { a.rows -= 1; }),
              Each(HasSubstr("[ring] rank 1: [ring] q: expected 10 rows, as this rank has of the whole's 40, got 9")));
  EXPECT_THAT(errors_where(
                  3, [](Arguments& a) { a.options.origin.key = 3; }, true),
              Each(HasSubstr("rank 3: [ring] origin: expected none")));
  static const BlockMask kMask{};
  EXPECT_THAT(errors_where(
                  3, [](Arguments& a) { a.options.block_mask = &kMask; }, true),
              Each(HasSubstr("rank 3: [ring] block_mask: expected none")));
  EXPECT_THAT(errors_where(
                  3,
                  [](Arguments& a) {
                    a.options.relative_bias = table_view(a.sinks.data(), {2, 1});
                  },
                  true),
              Each(HasSubstr("rank 3: [ring] relative_bias: expected none")));
  static const std::vector<std::int64_t> kStarts = {1};
  EXPECT_THAT(errors_where(
                  3, [](Arguments& a) { a.options.k_starts = kStarts; }, true),
              Each(HasSubstr("rank 3: [ring] k_starts: expected none")));
  EXPECT_THAT(errors_where(3, [](Arguments& a) { a.outputs.scores = a.tensor(a.dq, kN); }),
              Each(HasSubstr("rank 3: [ring] scores: expected none")));
}

TEST(Failure, OptionsThatDifferAreFoundBeforeAnyWork) {
  const auto expect_found = [](const char* what, const std::function<void(Arguments&)>& spoil) {
    EXPECT_THAT(errors_where(2, spoil),
                Each(std::string("[ring] rank 2: expected the ") + what + " of rank 0, got others"));
  };
  expect_found("causal mask and window", [](Arguments& a) { a.options.causal = Causal::none; });
  expect_found("causal mask and window", [](Arguments& a) { a.options.window.left = 3; });
  expect_found("scale and softcap", [](Arguments& a) { a.options.scale = 0.5; });
  expect_found("scale and softcap", [](Arguments& a) { a.options.softcap = 5.0; });
  expect_found("sinks", [](Arguments& a) { a.options.sinks = head_view(a.sinks.data(), 2); });
  expect_found("slopes of ALiBi", [](Arguments& a) { a.options.alibi = head_view(a.sinks.data(), 2); });
  static const std::vector<float> slopes(2, 0.5F);
  expect_found("slopes of ALiBi", [](Arguments& a) { a.options.alibi = table_view(slopes.data(), {1, 2}); });
  expect_found("dropout and seed", [](Arguments& a) { a.options.dropout = 0.5; });
  expect_found("sharding", [](Arguments& a) { a.sharding.mode = Mode::ordered; });
  expect_found("dtype, batch, heads and head sizes of q, k and v", [](Arguments& a) { a.d_v = 4; });
  static const std::vector<std::int64_t> lengths = {17};
  expect_found("lengths and offsets", [](Arguments& a) { a.options.k_lengths = lengths; });
  static std::vector<HeadStatistics> heads(2);
  expect_found("choice of results", [](Arguments& a) { a.outputs.heads = heads; });
}

// Statistics that every rank merges, all of one size, so that no message tells them apart.
TEST(Failure, StatisticsThatDifferInDecodingAreFoundBeforeAnyWork) {
  const auto of_ranks = [](MutableRowView Outputs::*of_rank_2, MutableRowView Outputs::*of_others) {
    return errors([&](Transport& transport) {
      Arguments arguments(transport.rank());
      arguments.sharding.mode = Mode::decode;
      arguments.sharding.n_q = arguments.rows;
      std::vector<float> statistic(arguments.lse.size());
      arguments.outputs.*(transport.rank() == 2 ? of_rank_2 : of_others) =
          row_view(statistic.data(), {1, 2, arguments.rows});
      arguments.forward(transport);
    });
  };
  EXPECT_THAT(of_ranks(&Outputs::entropy, &Outputs::entropy), Each(""));
  EXPECT_THAT(of_ranks(&Outputs::entropy, &Outputs::max_weight),
              Each("[ring] rank 2: expected the choice of results of rank 0, got others"));
  EXPECT_THAT(of_ranks(&Outputs::lse, &Outputs::max_logit),
              Each("[ring] rank 2: expected the choice of results of rank 0, got others"));
}

TEST(Failure, ThresholdsOfHeadsThatDifferAreFoundBeforeAnyWork) {
  const std::vector<std::string> texts = errors([&](Transport& transport) {
    Arguments arguments(transport.rank());
    std::vector<HeadStatistics> heads(2);
    arguments.outputs.heads = heads;
    if (transport.rank() == 1) arguments.outputs.saturation_threshold = 0.75;
    arguments.forward(transport);
  });
  EXPECT_THAT(texts, Each("[ring] rank 1: expected the choice of results of rank 0, got others"));
}

// Sums over ranks: of one shape, or what travels means something else on each.
TEST(Failure, ShapesOfSummedGradientsThatDifferAreFoundBeforeAnyWork) {
  const auto of_dbias = [](std::int64_t heads_of_rank_2, std::int64_t rows_of_rank_2) {
    return errors([&](Transport& transport) {
      Arguments arguments(transport.rank());
      const bool spoiled = transport.rank() == 2;
      const std::vector<float> bias(2 * kN);
      std::vector<float> dbias(2 * 10 * kN);
      arguments.options.bias = view(bias.data(), {1, 2, 1, kN});
      arguments.gradients.dbias =
          view(dbias.data(), {1, spoiled ? heads_of_rank_2 : 2, spoiled ? rows_of_rank_2 : 1, kN});
      try {
        arguments.backward(transport);
      } catch (const Error&) {
        EXPECT_THAT(arguments.dk, Each(0.5f)) << "was written to";
        throw;
      }
    });
  };
  EXPECT_THAT(of_dbias(2, 1), Each(""));
  EXPECT_THAT(of_dbias(1, 1),
              Each("[ring] rank 2: dbias: expected sums of shape (1, 2, 1, 40) as on rank 0, got (1, 1, 1, 40)"));
  EXPECT_THAT(of_dbias(2, 10),
              Each("[ring] rank 2: dbias: expected sums of shape (1, 2, 1, 40) as on rank 0, got (1, 2, 10, 40)"));

  const std::vector<std::string> of_dscale = errors([&](Transport& transport) {
    Arguments arguments(transport.rank());
    std::vector<float> dscale(2);
    arguments.gradients.dscale = row_view(dscale.data(), {1, transport.rank() == 3 ? 2 : 1, 1});
    arguments.backward(transport);
  });
  EXPECT_THAT(of_dscale, Each("[ring] rank 3: dscale: expected sums of shape (1, 1, 1) as on rank 0, got (1, 2, 1)"));
}

TEST(Failure, ARankThatCannotMakeTheCallFailsItForAll) {
  const std::vector<std::string> texts = errors([&](Transport& transport) {
    Arguments arguments(transport.rank());
    transport.rank() == 3 ? fail(transport, "no such file") : arguments.forward(transport);
  });
  EXPECT_THAT(texts, Each("[ring] rank 3: no such file"));
}

// Fails in the middle: after so many pieces of work.
class Failing : public Wrapped {
 public:
  Failing(Transport& inner, int after) : Wrapped(inner), left_(after) {}
  void progress() override {
    if (--left_ == 0) throw std::runtime_error("the work went wrong");
  }

 private:
  int left_;
};

TEST(Failure, OfTheWorkOnOneRankIsRaisedByAll) {
  for (const bool backward : {false, true}) {
    for (int after = 1; after < 9; ++after) {
      const std::vector<std::string> texts = errors([&](Transport& transport) {
        Failing failing(transport, transport.rank() == 1 ? after : 0);
        Arguments arguments(transport.rank());
        backward ? arguments.backward(failing) : arguments.forward(failing);
      });
      EXPECT_THAT(texts, Each("[ring] rank 1: the work went wrong")) << "after " << after;
    }
  }
}

TEST(Failure, OfTheWorkInOtherModesIsRaisedByAll) {
  for (const Mode mode : {Mode::ordered, Mode::decode}) {
    const std::vector<std::string> texts = errors([&](Transport& transport) {
      Failing failing(transport, transport.rank() == 3 ? 2 : 0);
      Arguments arguments(transport.rank());
      arguments.sharding.mode = mode;
      if (mode == Mode::decode) arguments.sharding.n_q = arguments.rows = 10, arguments.sharding.n_k = 40;
      arguments.forward(failing);
    });
    EXPECT_THAT(texts, Each("[ring] rank 3: the work went wrong"));
  }
}

// A rank that leaves: its connections break, as those of a killed process do.
class Leaving : public Wrapped {
 public:
  Leaving(Transport& inner, int after) : Wrapped(inner), left_(after) {}
  void wait(Request request) override {
    if (--left_ == 0) throw 0;  // no std::exception: nothing on the way catches it
    Wrapped::wait(request);
  }

 private:
  int left_;
};

// What the others raise when rank 2 leaves after so many waits.
std::vector<std::string> errors_when_leaving(int after) {
  std::vector<std::string> texts(kSize);
  EXPECT_ANY_THROW(run_threads(kSize, [&](Transport& transport) {
    Leaving leaving(transport, transport.rank() == 2 ? after : 0);
    Arguments arguments(transport.rank());
    try {
      arguments.forward(leaving);
    } catch (const Error& error) {
      texts[static_cast<std::size_t>(transport.rank())] = error.what();
      EXPECT_EQ(error.code(), ErrorCode::peer);
    }
  }));
  texts.erase(texts.begin() + 2);
  return texts;
}

// Before the work there are as many waits as messages to and from the others, and in it as many again.
constexpr int kToAgree = 2 * (kSize - 1);

TEST(Failure, ARankThatIsLostInTheWorkIsNamedByAllOthers) {
  for (int after = kToAgree + 1; after <= 2 * kToAgree; ++after) {
    EXPECT_THAT(errors_when_leaving(after), Each(HasSubstr("lost rank 2"))) << "after " << after;
  }
}

// Some may have heard from it, and notice only those that have not, and leave.
TEST(Failure, ARankThatIsLostBeforeTheWorkMakesAllOthersRaise) {
  for (int after = 1; after <= kToAgree; ++after) {
    const std::vector<std::string> texts = errors_when_leaving(after);
    EXPECT_THAT(texts, Each(HasSubstr("lost rank"))) << "after " << after;
    EXPECT_THAT(texts, testing::Contains(HasSubstr("lost rank 2"))) << "after " << after;
  }
}

TEST(Failure, AnExceptionOfTheProgramReachesTheCallerOfRunThreads) {
  try {
    run_threads(3, [](Transport& transport) {
      if (transport.rank() == 1) throw std::runtime_error("not today");
      Arguments arguments(0);
      char byte = 0;
      transport.wait(transport.irecv(1, 0, &byte, 1));
    });
    FAIL();
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("not today"));
  }
}

}  // namespace
}  // namespace keel::ring
