#include <fmt/format.h>

#include <cmath>

#include "lab/claims/criteria.h"

namespace keel::lab {

using namespace criteria;

namespace {

// All values lie within ± claimed, and come close enough to it.
Judgement range(const Measurement& reach, double claimed) {
  return {fmt::format("[−{0}, {0}]", number_text(reach.value)), spread_text(reach),
          rule(at_most(reach, claimed) && at_least(reach, claimed / kRangeFactor))};
}

}  // namespace

std::vector<Claim> claims_004() {
  return {
      {"004-range", "variance", "At d_k = 64, unscaled dot products range over about [−500, 500].", "[−500, 500]",
       [](Evidence& e) { return range(e("variance.range.raw"), 500); }},
      {"004-scaled-range", "variance", "Divided by 8 they range over about [−7, 7].", "[−7, 7]",
       [](Evidence& e) { return range(e("variance.range.scaled"), 7); }},
      {"004-shrinks", "variance", "Dividing by √64 takes the first range to the second.", "71 times narrower",
       [](Evidence& e) {
         const auto &raw = e("variance.range.raw"), &scaled = e("variance.range.scaled");
         const double ratio = raw.value / scaled.value;
         return Judgement{fmt::format("{} times narrower", number_text(ratio)), spread_text(raw),
                          rule(std::abs(ratio - 500.0 / 7) <= kAbout * 500 / 7)};
       }},
      {"004-one-hot", "saturation", "Unscaled at d_k = 64 the softmax is nearly one-hot.", "every row: a weight ≈ 1",
       [](Evidence& e) {
         std::vector<Tested> cases;
         for (const int n : {16, 64, 256}) {
           const auto& share = e(fmt::format("saturation.raw.d64.n{}.share", n));
           const double median = e(fmt::format("saturation.raw.d64.n{}.median", n)).value;
           cases.push_back({fmt::format("{}", n),
                            fmt::format("{} of rows (median weight {:.2f})", percent(share.value), median),
                            at_least(share, kOneHot)});
         }
         return judge(cases, {e("saturation.raw.d64.n64.share"), "64 keys", true}, kThereAre);
       }},
      {"004-tiny-dq", "gradient", "Unscaled at d_k = 64, dL/dq is tiny.", "far below the scaled one",
       [](Evidence& e) {
         std::vector<Tested> cases;
         for (const int n : {4, 16, 64, 256}) {
           const auto& m = e(fmt::format("gradient.ratio.lecun.d64.n{}.dq", n));
           cases.push_back({fmt::format("{}", n), fmt::format("{:.3g} × scaled", m.value), at_most(m, kTiny)});
         }
         return judge(cases, {e("gradient.ratio.lecun.d64.n64.dq"), "64 keys"}, kThereAre);
       }},
      {"004-smooth", "entropy", "Scaled, the softmax is smooth.", "no key dominates",
       [](Evidence& e) {
         std::vector<Tested> cases;
         for (const int n : {10, 64}) {
           const auto& m = e(fmt::format("entropy.scaled.d64.n{}", n));
           const auto& largest = e(fmt::format("entropy.scaled_max.d64.n{}", n));
           cases.push_back({fmt::format("{}", n),
                            fmt::format("{:.1f} share it, largest {:.2f}", std::exp(m.value), largest.value),
                            at_least(m, std::log(n / 2.0)) && at_most(largest, kHalf)});
         }
         return judge(cases, {e("entropy.scaled.d64.n64"), "64 keys"}, kThereAre);
       }},
      {"004-unit", "variance", "q and k of mean 0 and variance 1 give variance d_k; the factor brings it back to 1.",
       "1", [](Evidence& e) { return compare(e("variance.unit.d64.scaled_var"), 1, kEqual); }},
      {"004-aligned", "variance", "The dot product of aligned vectors is large.", "far above a random one",
       [](Evidence& e) {
         const auto &same = e("variance.same.d64.mean"), &sd = e("variance.unit.d64.sd");
         return Judgement{fmt::format("q·q = {}, {:.1f} standard deviations of a random q·k", number_text(same.value),
                                      same.value / sd.value),
                          spread_text(same), rule(more(same, sd, kErrors))};
       }},
      {"004-mask", "example", "Filling future scores with −1e9 zeroes their weights.", "0",
       [](Evidence& e) {
         const auto& m = e("example.causal.big_above");
         return Judgement{"largest " + number_text(m.value), spread_text(m), rule(m.value == 0)};
       }},
      {"004-row-sums", "example", "The rows of weights add up to 1.", "1",
       [](Evidence& e) {
         const auto& m = e("example.causal.row_sum_error");
         return Judgement{fmt::format("1 ± {}", number_text(m.value)), spread_text(m), rule(m.value <= 1e-12)};
       }},
      {"004-healthy", "length", "1/√d_k keeps the softmax in a healthy regime.", "largest weight between 1 % and 50 %",
       [](Evidence& e) {
         std::vector<Tested> cases;
         for (const int n : {16, 64, 256, 1024, 4096, 16384, 65536}) {
           const auto& m = e(fmt::format("length.scaled.n{}.max_weight", n));
           cases.push_back({fmt::format("{}", n), percent(m.value), at_least(m, 0.01) && at_most(m, kHalf)});
         }
         return judge(cases, {e("length.scaled.n65536.max_weight"), "65536 keys", true}, kThereAre);
       }},
      {"004-shapes", "scores",
       "q, k and v of (4, 8, 100, 64) give weights of (4, 8, 100, 100) and outputs of (4, 8, 100, 64).",
       "(4, 8, 100, 100), (4, 8, 100, 64)",
       [](Evidence& e) {
         return shapes(e, "scores.shapes_004", {4, 8, 100, 100}, {4, 8, 100, 64});
       }},
      {"004-orthogonal", "example", "The dot product of orthogonal vectors is near 0.", "0",
       [](Evidence& e) { return compare(e("example.score.orthogonal"), 0, kEqual); }},
      {"004-kills", "ablation", "Without scaling, gradients are killed during training.",
       "dW_Q ≈ 0 over the run at d_k = 64",
       [](Evidence& e) {
         const auto &raw = e("ablation.raw.d64.dw_q"), &scaled = e("ablation.scaled.d64.dw_q");
         return Judgement{fmt::format("{:.3g} × scaled, averaged over the run", raw.value / scaled.value),
                          spread_text(raw), rule(at_most(raw, scaled, kZero))};
       }},
  };
}

}  // namespace keel::lab
