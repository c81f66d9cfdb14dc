#include <gtest/gtest.h>

#include <cmath>

#include "conformance/compare.h"
#include "conformance/streaming.h"
#include "conformance/table.h"
#include "core/element.h"

// The comparison with the oracle must be able to fail: each test hands it a kernel with one thing wrong.
namespace keel::conformance {
namespace {

// A case in which every feature acts.
Case full_case() {
  Case c;
  c.name = "sabotage";
  c.batch = 2, c.q_heads = 4, c.kv_heads = 2, c.n_q = 19, c.n_k = 23, c.d_k = 8, c.d_v = 5;
  c.out = Storage::gaps;
  c.softcap = 3.0;
  c.mask = MaskKind::one_row;
  c.bias = BiasKind::normal;
  c.causal = Causal::bottom_right;
  c.window = {.left = 12};
  c.k_lengths = {23, 17};
  c.alibi = c.sinks = true;
  c.dropout = 0.2;
  c.statistics = c.heads = c.key_sums = c.dlse = true;
  c.weights = Weights::q_dtype;
  return c;
}

void expect_seen(const Case& c, const char* what, const Forward& run) {
  const std::string text = forward_mismatch(Instance(c), run);
  EXPECT_NE(text.find(what), std::string::npos) << "expected a complaint about " << what << ", got: " << text;
}

using Change = void (*)(Options&);

TEST(Comparison, AcceptsTheHonestKernel) {
  EXPECT_EQ(forward_mismatch(Instance(full_case()), streaming_attention), "");
  EXPECT_EQ(backward_mismatch(Instance(full_case()), streaming_attention_backward), "");
}

TEST(Comparison, SeesAForgottenOption) {
  const std::pair<const char*, Change> changes[] = {
      {"softcap", [](Options& o) { o.softcap.reset(); }},      {"mask", [](Options& o) { o.mask = {}; }},
      {"causal", [](Options& o) { o.causal = Causal::none; }}, {"window", [](Options& o) { o.window = {}; }},
      {"lengths", [](Options& o) { o.k_lengths = {}; }},       {"alibi", [](Options& o) { o.alibi = {}; }},
      {"dropout", [](Options& o) { o.dropout = 0.0; }},        {"seed", [](Options& o) { o.seed += 1; }}};
  for (const auto& [name, change] : changes) {
    SCOPED_TRACE(name);
    expect_seen(full_case(), "out: error",
                [change = change](auto& q, auto& k, auto& v, auto& out, Options options, auto& outputs) {
                  change(options);
                  streaming_attention(q, k, v, out, options, outputs);
                });
    const Instance instance(full_case());
    EXPECT_NE(backward_mismatch(instance,
                                [change = change](auto& inputs, auto& gradients, Options options) {
                                  change(options);
                                  streaming_attention_backward(inputs, gradients, options);
                                }),
              "");
  }
}

TEST(Comparison, SeesOneOutputElementOffByAThousandth) {
  expect_seen(full_case(), "out: error", [](auto& q, auto& k, auto& v, auto& out, auto& options, auto& outputs) {
    streaming_attention(q, k, v, out, options, outputs);
    store_at(out, load_at(out, 1, 2, 3, 4) * 1.001, 1, 2, 3, 4);
  });
}

TEST(Comparison, SeesAMaskedRowThatIsNotExactlyZero) {
  expect_seen(full_case(), "exactly 0", [](auto& q, auto& k, auto& v, auto& out, auto& options, auto& outputs) {
    streaming_attention(q, k, v, out, options, outputs);
    store_at(out, 1e-30, 0, 0, 9, 0);
  });
}

TEST(Comparison, SeesAWriteIntoAGap) {
  expect_seen(full_case(), "outside", [](auto& q, auto& k, auto& v, auto& out, auto& options, auto& outputs) {
    streaming_attention(q, k, v, out, options, outputs);
    store(out.data, out.dtype, offset(out, 0, 0, 0, 4) + 1, 0.0);
  });
}

TEST(Comparison, SeesARowLeftUnwritten) {
  Case c = full_case();
  c.values = Values::nan_visible;  // the row's expected value is NaN
  expect_seen(c, "entropy", [](auto& q, auto& k, auto& v, auto& out, auto& options, auto& outputs) {
    const auto mark = static_cast<const float*>(outputs.entropy.data)[0];
    streaming_attention(q, k, v, out, options, outputs);
    for (std::int64_t i = 0; i < 19; ++i) store_at(outputs.entropy, mark, 0, 0, i);
  });
}

TEST(Comparison, SeesNanTurnedIntoZero) {
  Case c = full_case();
  c.values = Values::nan_visible;
  expect_seen(c, "out at", [](auto& q, auto& k, auto& v, auto& out, auto& options, auto& outputs) {
    streaming_attention(q, k, v, out, options, outputs);
    for (std::int64_t i = 0; i < 19; ++i) {
      if (std::isnan(load_at(out, 0, 0, i, 0))) store_at(out, 0.0, 0, 0, i, 0);
    }
  });
}

TEST(Comparison, SeesWrongStatistics) {
  using Member = MutableRowView Outputs::*;
  const std::pair<const char*, Member> members[] = {{"lse", &Outputs::lse},
                                                    {"max_logit", &Outputs::max_logit},
                                                    {"entropy", &Outputs::entropy},
                                                    {"max_weight", &Outputs::max_weight},
                                                    {"logit_mean", &Outputs::logit_mean},
                                                    {"logit_var", &Outputs::logit_var}};
  for (const auto& [name, member] : members) {
    expect_seen(full_case(), name,
                [member = member](auto& q, auto& k, auto& v, auto& out, auto& options, auto& outputs) {
                  streaming_attention(q, k, v, out, options, outputs);
                  store_at(outputs.*member, load_at(outputs.*member, 1, 1, 5) + 1e-3, 1, 1, 5);
                });
  }
  expect_seen(full_case(), "visible", [](auto& q, auto& k, auto& v, auto& out, auto& options, auto& outputs) {
    streaming_attention(q, k, v, out, options, outputs);
    store_at(outputs.visible, load_at(outputs.visible, 1, 1, 5) + 1, 1, 1, 5);
  });
  expect_seen(full_case(), "logit_count", [](auto& q, auto& k, auto& v, auto& out, auto& options, auto& outputs) {
    streaming_attention(q, k, v, out, options, outputs);
    store_at(outputs.logit_count, load_at(outputs.logit_count, 1, 1, 5) + 1, 1, 1, 5);
  });
  expect_seen(full_case(), "saturated", [](auto& q, auto& k, auto& v, auto& out, auto& options, auto& outputs) {
    streaming_attention(q, k, v, out, options, outputs);
    outputs.heads[3].saturated += 0.1;
  });
}

TEST(Comparison, SeesWrongKeySums) {
  expect_seen(full_case(), "key_sums: error", [](auto& q, auto& k, auto& v, auto& out, auto& options, auto& outputs) {
    streaming_attention(q, k, v, out, options, outputs);
    store_at(outputs.key_sums, load_at(outputs.key_sums, 1, 1, 5) * 1.001, 1, 1, 5);
  });
  expect_seen(full_case(), "exactly 0", [](auto& q, auto& k, auto& v, auto& out, auto& options, auto& outputs) {
    streaming_attention(q, k, v, out, options, outputs);
    store_at(outputs.key_sums, 1e-20, 1, 1, 20);  // padding
  });
  Case last = full_case();
  last.key_sum_rows = 3;
  expect_seen(last, "key_sums: error", [](auto& q, auto& k, auto& v, auto& out, auto& options, Outputs outputs) {
    outputs.key_sum_rows = 4;
    streaming_attention(q, k, v, out, options, outputs);
  });
}

TEST(Comparison, SeesWrongScores) {
  for (const ScoreStage stage : {ScoreStage::raw, ScoreStage::capped, ScoreStage::masked}) {
    Case c = full_case();
    c.scores = stage;
    EXPECT_EQ(forward_mismatch(Instance(c), streaming_attention), "");
    expect_seen(c, "scores: error", [](auto& q, auto& k, auto& v, auto& out, auto& options, auto& outputs) {
      streaming_attention(q, k, v, out, options, outputs);
      std::int64_t j = 0;
      while (!std::isfinite(load_at(outputs.scores, 1, 1, 18, j))) ++j;
      store_at(outputs.scores, load_at(outputs.scores, 1, 1, 18, j) * 1.0001, 1, 1, 18, j);
    });
    expect_seen(c, "scores at", [](auto& q, auto& k, auto& v, auto& out, auto& options, auto& outputs) {
      streaming_attention(q, k, v, out, options, outputs);
      store_at(outputs.scores, -1e30, 1, 1, 5, 20);  // padding
    });
    expect_seen(c, "scores", [](auto& q, auto& k, auto& v, auto& out, auto& options, Outputs outputs) {
      outputs.score_stage = outputs.score_stage == ScoreStage::masked ? ScoreStage::raw : ScoreStage::masked;
      streaming_attention(q, k, v, out, options, outputs);
    });
  }
}

TEST(Comparison, SeesSlopesOfAnotherEntry) {
  Case c = full_case();
  c.alibi_per_entry = true;
  expect_seen(c, "out: error", [](auto& q, auto& k, auto& v, auto& out, Options options, auto& outputs) {
    options.alibi.strides[0] = 0;
    streaming_attention(q, k, v, out, options, outputs);
  });
}

TEST(Comparison, SeesAForgottenGradientOfLse) {
  const Instance instance(full_case());
  EXPECT_NE(backward_mismatch(instance,
                              [](BackwardInputs inputs, auto& gradients, auto& options) {
                                inputs.dlse = {};
                                streaming_attention_backward(inputs, gradients, options);
                              }),
            "");
}

// The 16-bit rule leaves room for the rounding of 16-bit intermediates, and no more.
TEST(Comparison, SeesAnErrorOfEightUnitsIn16Bits) {
  for (const DType dtype : {DType::f16, DType::bf16}) {
    Case c;
    c.dtype = dtype, c.n_q = 9, c.n_k = 33, c.d_k = c.d_v = 16;
    EXPECT_EQ(forward_mismatch(Instance(c), streaming_attention), "");
    expect_seen(c, "out: error", [&](auto& q, auto& k, auto& v, auto& out, auto& options, auto& outputs) {
      streaming_attention(q, k, v, out, options, outputs);
      const double unit = dtype == DType::f16 ? 0x1p-10 : 0x1p-7;
      double most = 0.0;
      for (std::int64_t i = 0; i < 9; ++i) most = std::max(most, std::fabs(load_at(out, 0, 0, i, 0)));
      store_at(out, load_at(out, 0, 0, 0, 0) + 8.0 * unit * most, 0, 0, 0, 0);
    });
  }
}

}  // namespace
}  // namespace keel::conformance
