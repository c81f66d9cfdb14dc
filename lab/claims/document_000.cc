#include <fmt/format.h>

#include <cmath>

#include "lab/claims/criteria.h"
#include "lab/initialisation.h"

namespace keel::lab {

using namespace criteria;

namespace {

const std::vector<int> kKeyCounts = {4, 16, 64, 256, 1024};

// Share of rows with a weight above 0.99, unscaled, d_k = 64, by number of keys.
Judgement one_hot(Evidence& evidence) {
  std::vector<Tested> cases;
  for (const int n : kKeyCounts) {
    const auto& m = evidence(fmt::format("saturation.raw.d64.n{}.share", n));
    cases.push_back({fmt::format("{}", n), percent(m.value) + " of rows", at_least(m, kOneHot)});
  }
  return judge(cases, {evidence("saturation.raw.d64.n64.share"), "64 keys", true}, kThereAre);
}

// Each initialisation's value under a key against what is claimed.
Judgement by_initialisation(Evidence& evidence, const std::string& key, double claimed) {
  std::vector<Tested> cases;
  for (const Initialisation& start : initialisations()) {
    const auto& m = evidence(fmt::format("saturation.init.scaled.{}.{}", start.id, key));
    cases.push_back({start.name, number_text(m.value), agrees(m, claimed, kAbout)});
  }
  return judge(cases, {evidence(fmt::format("saturation.init.scaled.unit.{}", key))},
               {.before = "the initialisation is "});
}

}  // namespace

std::vector<Claim> claims_000() {
  return {
      {"000-variance", "variance", "Without the division, logits at d_k = 64 have 64 times the variance.", "64",
       [](Evidence& e) { return compare(e("variance.unit.d64.var"), 64, kEqual); }},
      {"000-proportional", "variance", "The variance of a logit is proportional to d_k.", "d_k to the power 1",
       [](Evidence& e) {
         Judgement j = compare(e("variance.unit.exponent"), 1, kEqual);
         j.measured = "d_k to the power " + j.measured;
         return j;
       }},
      {"000-sharper", "saturation", "Unscaled weights are sharper by a factor of about exp(√d_k).",
       "e^√d_k between two keys",
       [](Evidence& e) {
         std::vector<Tested> cases;
         for (const int d : {4, 16, 64, 256, 1024}) {
           const auto& m = e(fmt::format("saturation.log_sharper.d{}", d));
           cases.push_back({fmt::format("{}", d), fmt::format("e^{:.3g}", m.value), agrees(m, std::sqrt(d), kAbout)});
         }
         return judge(cases, {e("saturation.log_sharper.d64"), "d_k = 64"}, kSizeIs);
       }},
      {"000-largest-logit", "saturation", "At d_k = 64 the largest logit of a row is about √64.", "8",
       [](Evidence& e) {
         std::vector<Tested> cases;
         for (const int n : kKeyCounts) {
           const auto& m = e(fmt::format("saturation.max_logit.d64.n{}", n));
           cases.push_back({fmt::format("{}", n), number_text(m.value), agrees(m, 8, kAbout)});
         }
         return judge(cases, {e("saturation.max_logit.d64.n64"), "64 keys"}, kThereAre);
       }},
      {"000-exp", "softmax", "exp(−8) is about 3e-4.", "3e-4",
       [](Evidence& e) {
         const auto& m = e("softmax.eight.exp");
         return Judgement{number_text(m.value), spread_text(m), rule(printed(m.value, 3e-4, 4))};
       }},
      {"000-row", "softmax", "A row whose largest logit is 8 above the others is [0.9997, ε, …].", "0.9997",
       [](Evidence& e) {
         std::vector<Tested> cases;
         for (const int n : {2, 4, 8, 64}) {
           const double p = e(fmt::format("softmax.eight.n{}", n)).value;
           cases.push_back({fmt::format("{}", n), fmt::format("{:.4f}", p), printed(p, 0.9997, 4)});
         }
         return judge(cases, {e("softmax.eight.n2"), "2 keys"}, {.before = "the row has ", .unit = " keys"});
       }},
      {"000-off-diagonal", "softmax",
       "In such a row the derivative of one weight with respect to another's score is near 0.", "≈ 0",
       [](Evidence& e) {
         const auto& m = e("softmax.jacobian.eight");
         const double most = 0.25;  // of two equal weights
         return Judgement{fmt::format("{} (two equal weights: {})", number_text(m.value), most), spread_text(m),
                          rule(m.value <= kZero * most)};
       }},
      {"000-one-hot", "saturation", "Unscaled at d_k = 64, attention is one-hot from the first step on.",
       "every row: a weight ≈ 1", one_hot},
      {"000-min", "saturation", "Unscaled at d_k = 64, attn.max(axis=-1).min() is above 0.99.", "> 0.99",
       [](Evidence& e) {
         std::vector<Tested> cases;
         for (const int n : kKeyCounts) {
           const auto& m = e(fmt::format("saturation.raw.d64.n{}.min", n));
           cases.push_back({fmt::format("{}", n), number_text(m.value), at_least(m, 0.99)});
         }
         return judge(cases, {e("saturation.raw.d64.n64.min"), "64 keys"}, kThereAre);
       }},
      {"000-healthy-row", "saturation", "A healthy row of four keys looks like [0.25, 0.30, 0.20, 0.25].",
       "largest weight 0.30", [](Evidence& e) { return by_initialisation(e, "n4.mean", 0.30); }},
      {"000-one-over-t", "saturation", "In a healthy run the mean of the largest weight begins near 1/T.",
       "1/64 = 0.0156", [](Evidence& e) { return by_initialisation(e, "n64.mean", 1.0 / 64); }},
      {"000-subtle", "saturation", "At d_k = 4 the missing scaling is subtle: sharper rows, but not saturated.",
       "sharper, not one-hot",
       [](Evidence& e) {
         std::vector<Tested> cases;
         for (const int n : kKeyCounts) {
           const auto &raw = e(fmt::format("saturation.raw.d4.n{}.mean", n)),
                      &scaled = e(fmt::format("saturation.scaled.d4.n{}.mean", n)),
                      &share = e(fmt::format("saturation.raw.d4.n{}.share", n));
           cases.push_back({fmt::format("{}", n),
                            fmt::format("{} against {} scaled", number_text(raw.value), number_text(scaled.value)),
                            more(raw, scaled) && at_most(share, kTiny)});
         }
         return judge(cases, {e("saturation.raw.d4.n64.mean"), "64 keys"}, kThereAre);
       }},
      {"000-any-16", "saturation", "Unscaled, the softmax saturates for any d_k from about 16 on.",
       "saturated from d_k = 16",
       [](Evidence& e) {
         std::vector<Tested> cases;
         for (const int d : {16, 64, 256, 1024}) {
           const auto& m = e(fmt::format("saturation.raw.d{}.n64.share", d));
           cases.push_back({fmt::format("{}", d), percent(m.value) + " of rows", at_least(m, kOneHot)});
         }
         return judge(cases, {e("saturation.raw.d16.n64.share"), "d_k = 16", true}, kSizeIs);
       }},
      {"000-eight", "saturation", "Unscaled, rows are healthy at d_k = 8 and saturated at d_k = 64.",
       "not one-hot at 8, one-hot at 64",
       [](Evidence& e) {
         std::vector<Tested> cases;
         for (const int n : kKeyCounts) {
           const auto &small = e(fmt::format("saturation.raw.d8.n{}.share", n)),
                      &large = e(fmt::format("saturation.raw.d64.n{}.share", n));
           cases.push_back({fmt::format("{}", n),
                            fmt::format("{} and {} of rows", percent(small.value), percent(large.value)),
                            at_most(small, kTiny) && at_least(large, kOneHot)});
         }
         return judge(cases, {e("saturation.raw.d64.n64.share"), "64 keys", true}, kThereAre);
       }},
      {"000-projection", "gradient",
       "Unscaled at d_k = 64, the gradient at the Q, K and V projections is about 0 at the first step.", "≈ 0",
       [](Evidence& e) {
         std::vector<Tested> cases;
         for (const auto& [place, name] : {std::pair{"dw_q", "dW_Q"}, {"dw_k", "dW_K"}, {"dw_v", "dW_V"}}) {
           const auto& m = e(fmt::format("gradient.ratio.lecun.d64.n64.{}", place));
           cases.push_back({name, fmt::format("{:.3g} × scaled", m.value), at_most(m, kZero)});
         }
         return judge(cases, {e("gradient.ratio.lecun.d64.n64.dw_q")}, {.before = "one looks at "});
       }},
      {"000-vanish-16", "gradient", "Unscaled, gradients vanish for any d_k from about 16 on.", "≈ 0 from d_k = 16",
       [](Evidence& e) {
         std::vector<Tested> cases;
         for (const int d : {16, 64, 256}) {
           const auto& m = e(fmt::format("gradient.ratio.lecun.d{}.n64.ds", d));
           cases.push_back({fmt::format("{}", d), fmt::format("dS {:.3g} × scaled", m.value), at_most(m, kZero)});
         }
         return judge(cases, {e("gradient.ratio.lecun.d64.n64.ds"), "d_k = 64"}, kSizeIs);
       }},
      {"000-block", "gradient", "Unscaled at d_k = 64, the gradient through the attention block vanishes.", "≈ 0",
       [](Evidence& e) {
         std::vector<Tested> cases;
         for (const int n : {4, 16, 64, 256}) {
           const auto& m = e(fmt::format("gradient.ratio.lecun.d64.n{}.dx", n));
           cases.push_back({fmt::format("{}", n), fmt::format("dX {:.3g} × scaled", m.value), at_most(m, kZero)});
         }
         return judge(cases, {e("gradient.ratio.lecun.d64.n64.dx"), "64 keys"}, kThereAre);
       }},
      {"000-small-trains", "ablation", "At d_k = 4 training works without the scaling.",
       "the loss falls by more than half",
       [](Evidence& e) {
         const auto& m = e("ablation.raw.d4.moved");
         return Judgement{
             fmt::format("falls by {} (scaled {})", percent(m.value), percent(e("ablation.scaled.d4.moved").value)),
             Spread{m, "", true}.text(), rule(at_least(m, kHalf))};
       }},
      {"000-plateau-16", "ablation", "At d_k = 16 the unscaled loss goes flat 30 to 50 % sooner.",
       "0.5 to 0.7 × the steps",
       [](Evidence& e) {
         const auto& m = e("ablation.raw.d16.flat");
         return Judgement{fmt::format("{:.2f} × the steps", m.value), spread_text(m),
                          rule(at_least(m, 0.5) && at_most(m, 0.7))};
       }},
      {"000-slower-16", "ablation", "At d_k = 16 unscaled training converges 30 % slower.", "1.3 × the steps",
       [](Evidence& e) {
         const auto& m = e("ablation.raw.d16.slower");
         return Judgement{fmt::format("{:.2f} × the steps to half of chance", m.value), spread_text(m),
                          rule(agrees(m, 1.3, kEqual))};
       }},
      {"000-flat-64", "ablation", "At d_k = 64 the unscaled loss is flat.", "falls by ≈ 0",
       [](Evidence& e) {
         const auto& m = e("ablation.raw.d64.moved");
         return Judgement{
             fmt::format("falls by {} (scaled {})", percent(m.value), percent(e("ablation.scaled.d64.moved").value)),
             Spread{m, "", true}.text(), rule(at_most(m, kTiny))};
       }},
      {"000-stops", "ablation", "A saturated attention block stops learning.",
       "no run converges, right answers: 1 in 16",
       [](Evidence& e) {
         const auto &right = e("ablation.saturated.accuracy"), &rows = e("ablation.saturated.start.saturated"),
                    &reached = e("ablation.saturated.reached");
         Judgement j =
             judge({{"that no run converges", percent(reached.value) + " of runs", at_most(reached, kTiny)},
                    {"that answers stay at chance", percent(right.value) + " right", agrees(right, 1.0 / 16, kAbout)}},
                   {right, "right answers", true}, {.before = "stopping means "});
         j.measured += fmt::format("; {} of rows begin with a weight above 0.99", percent(rows.value));
         if (at_least(rows, kOneHot) == Truth::no)
           j.verdict = {Ruling::undecided, "the block does not begin saturated"};
         return j;
       }},
      {"000-immediately", "ablation", "Unscaled, a row's largest weight is near 1 from the first step of training on.",
       "every row: a weight ≈ 1",
       [](Evidence& e) {
         std::vector<Tested> cases;
         for (const int d : {4, 16, 64}) {
           const auto& m = e(fmt::format("ablation.raw.d{}.start.saturated", d));
           const double mean = e(fmt::format("ablation.raw.d{}.start.max_weight", d)).value;
           cases.push_back({fmt::format("{}", d),
                            fmt::format("{} of rows (mean largest weight {:.2f})", percent(m.value), mean),
                            at_least(m, kOneHot)});
         }
         return judge(cases, {e("ablation.raw.d64.start.saturated"), "d_k = 64", true}, kSizeIs);
       }},
      {"000-first-gradient", "ablation",
       "In a transformer with d_k = 64, the gradient at W_Q, W_K and W_V is about 0 at the first step.", "≈ 0",
       [](Evidence& e) {
         std::vector<Tested> cases;
         for (const auto& [place, name] : {std::pair{"dw_q", "dW_Q"}, {"dw_k", "dW_K"}, {"dw_v", "dW_V"}}) {
           const auto &raw = e(fmt::format("ablation.raw.d64.start.{}", place)),
                      &scaled = e(fmt::format("ablation.scaled.d64.start.{}", place));
           cases.push_back(
               {name, fmt::format("{:.3g} × scaled", raw.value / scaled.value), at_most(raw, scaled, kZero)});
         }
         return judge(cases, {e("ablation.raw.d64.start.dw_q"), "dW_Q"}, {.before = "one looks at "});
       }},
      {"000-essential", "ablation", "At any realistic size (d_k = 64 and more) the scaling is essential.",
       "unscaled, less than half of the gain is left",
       [](Evidence& e) {
         return fails_unscaled(e, {64}, {64, 256});
       },
       "translate"},
  };
}

}  // namespace keel::lab
