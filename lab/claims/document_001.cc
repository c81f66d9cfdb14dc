#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "lab/claims/criteria.h"

namespace keel::lab {

using namespace criteria;

namespace {

// The weights measured under key.p0, key.p1, … against a printed row.
Judgement printed_row(Evidence& e, const std::string& key, const std::vector<double>& row, int decimals) {
  std::string measured;
  bool all = true;
  for (std::size_t i = 0; i < row.size(); ++i) {
    const double p = e(fmt::format("{}.p{}", key, i)).value;
    all = all && printed(p, row[i], decimals);
    measured += fmt::format("{}{:.{}f}", i == 0 ? "[" : ", ", p, decimals);
  }
  return {measured + "]", "exact", rule(all)};
}

// exp(entropy): how many keys share the attention.
double effective_keys(const Measurement& entropy) { return std::exp(entropy.value); }

}  // namespace

std::vector<Claim> claims_001() {
  return {
      {"001-product", "variance", "The product of two independent N(0, 1) numbers has variance 1.", "1",
       [](Evidence& e) { return compare(e("variance.independent.d1.var"), 1, kEqual); }},
      {"001-mean", "variance", "The dot product of unit normal q and k has mean 0.", "0",
       [](Evidence& e) { return compare(e("variance.unit.d64.mean"), 0, kEqual); }},
      {"001-linear", "variance", "Its variance grows linearly with the dimension.", "Var(q·k) = d_k, 1 to 1024",
       [](Evidence& e) {
         return compare_by_size(e, "var", {1, 8, 64, 512, 1024}, [](double d) { return d; });
       }},
      {"001-deviation", "variance", "At d_k = 64 the standard deviation of the scores is 8.", "8",
       [](Evidence& e) { return compare(e("variance.unit.d64.sd"), 8, kEqual); }},
      {"001-deviation-512", "variance", "Exercise 1: at d_k = 512 it is √512.", "22.6",
       [](Evidence& e) { return compare(e("variance.unit.d512.sd"), std::sqrt(512.0), kEqual); }},
      {"001-unit", "variance", "Divided by √d_k the scores have unit variance, whatever the dimension.", "1",
       [](Evidence& e) {
         return compare_by_size(e, "scaled_var", {1, 8, 64, 512, 1024}, [](double) { return 1.0; });
       }},
      {"001-normal", "variance", "At random initialisation the scores are nearly N(0, d_k).", "excess kurtosis ≈ 0",
       [](Evidence& e) {
         const auto& m = e("variance.range.excess_kurtosis");
         return Judgement{"excess kurtosis " + number_text(m.value), spread_text(m),
                          rule(positive(kAbout - std::abs(m.value), noise(m)))};
       }},
      {"001-peaked-row", "softmax", "Scores [8.5, −2.1, 7.9, …] give weights of about [0.99, 0.00, 0.01, …].",
       "first to third 99 : 1",
       [](Evidence& e) {
         const double first = e("softmax.row.peaked_001.p0").value, third = e("softmax.row.peaked_001.p2").value;
         return Judgement{fmt::format("{:.2f} : 1 ({:.3f} and {:.3f})", first / third, first, third), "exact",
                          rule(std::abs(first / third - 99) <= kAbout * 99)};
       }},
      {"001-unscaled-row", "softmax", "softmax([9.2, −3.1, 8.8, −5.4, 1.2]) is [0.599, 0.000, 0.401, 0.000, 0.000].",
       "[0.599, 0.000, 0.401, 0.000, 0.000]",
       [](Evidence& e) {
         return printed_row(e, "softmax.row.unscaled_001", {0.599, 0, 0.401, 0, 0}, 3);
       }},
      {"001-two-positions", "softmax", "There, attention is concentrated on just two positions.",
       "two weights add up to 1",
       [](Evidence& e) {
         const double two = e("softmax.row.unscaled_001.p0").value + e("softmax.row.unscaled_001.p2").value;
         return Judgement{fmt::format("{:.4f}", two), "exact", rule(two > 0.99)};
       }},
      {"001-division", "softmax", "Those scores divided by 8 are [1.15, −0.39, 1.10, −0.68, 0.15].",
       "equal to two decimals",
       [](Evidence& e) {
         const auto& m = e("softmax.division.001");
         return Judgement{fmt::format("at most {} apart", number_text(m.value)), spread_text(m),
                          rule(printed(m.value, 0, 2))};
       }},
      {"001-scaled-row", "softmax", "Their softmax is [0.31, 0.07, 0.30, 0.05, 0.12].",
       "[0.31, 0.07, 0.30, 0.05, 0.12], which sums to 0.85",
       [](Evidence& e) {
         return printed_row(e, "softmax.row.scaled_001", {0.31, 0.07, 0.30, 0.05, 0.12}, 2);
       }},
      {"001-spreads", "entropy", "Scaling lets attention spread over several positions (d_k = 64, 64 keys).",
       "several, and more than unscaled",
       [](Evidence& e) {
         const auto &scaled = e("entropy.scaled.d64.n64"), &raw = e("entropy.raw.d64.n64");
         return Judgement{
             fmt::format("{:.1f} keys share it; unscaled {:.2f}", effective_keys(scaled), effective_keys(raw)),
             spread_text(scaled), rule(at_least(scaled, std::log(2.0)) && more(scaled, raw))};
       }},
      {"001-one-position", "entropy", "Unscaled at d_k = 64, only one position contributes.", "1 key",
       [](Evidence& e) {
         std::vector<Tested> cases;
         for (const int n : {10, 64}) {
           const auto& m = e(fmt::format("entropy.raw.d64.n{}", n));
           cases.push_back({fmt::format("{}", n), fmt::format("{:.2f} share it", effective_keys(m)),
                            at_most(m, std::log(1 + kEqual))});
         }
         return judge(cases, {e("entropy.raw.d64.n64"), "64 keys"}, kThereAre);
       }},
      {"001-jacobian", "softmax", "The derivative of weight i with respect to score j is p_i(δ_ij − p_j).",
       "the formula",
       [](Evidence& e) {
         const auto& m = e("softmax.jacobian.difference_error");
         return Judgement{fmt::format("{} from central differences", number_text(m.value)), spread_text(m),
                          rule(m.value <= 1e-8)};
       }},
      {"001-vanishing", "softmax", "For a softmax of about [1, 0, 0, …] the gradients are about 0.", "≈ 0",
       [](Evidence& e) {
         const auto& m = e("softmax.jacobian.one_hot");
         return Judgement{"norm " + number_text(m.value), spread_text(m), rule(m.value <= kZero)};
       }},
      {"001-healthy", "softmax", "For [0.3, 0.3, 0.2, 0.2] they are about [0.21, 0.21, 0.16, 0.16].",
       "[0.21, 0.21, 0.16, 0.16]",
       [](Evidence& e) {
         const std::array<double, 4> claimed = {0.21, 0.21, 0.16, 0.16};
         std::string measured;
         bool all = true;
         for (std::size_t i = 0; i < claimed.size(); ++i) {
           const double d = e(fmt::format("softmax.jacobian.moderate.{}", i)).value;
           all = all && printed(d, claimed[i], 2);
           measured += fmt::format("{}{:.2f}", i == 0 ? "[" : ", ", d);
         }
         return Judgement{measured + "] on the diagonal", "exact", rule(all)};
       }},
      {"001-tiny-gradients", "gradient", "Unscaled at d_k = 64, gradients are tiny; scaled they are healthy.",
       "unscaled far below scaled",
       [](Evidence& e) {
         std::vector<Tested> cases;
         for (const int n : {4, 16, 64, 256}) {
           const auto& m = e(fmt::format("gradient.ratio.lecun.d64.n{}.ds", n));
           cases.push_back({fmt::format("{}", n), fmt::format("dS {:.3g} × scaled", m.value), at_most(m, kTiny)});
         }
         return judge(cases, {e("gradient.ratio.lecun.d64.n64.ds"), "64 keys"}, kThereAre);
       }},
      {"001-cold", "entropy", "A temperature below √d_k makes attention sharper.", "less entropy at τ = √d_k / 2",
       [](Evidence& e) {
         const auto &cold = e("entropy.temperature.0.5.entropy"), &unit = e("entropy.temperature.1.entropy");
         return Judgement{fmt::format("{} nats against {}", number_text(cold.value), number_text(unit.value)),
                          spread_text(cold), rule(more(unit, cold))};
       }},
      {"001-hot", "entropy", "A temperature above √d_k makes it softer.", "more entropy at τ = 2 √d_k",
       [](Evidence& e) {
         const auto &hot = e("entropy.temperature.2.entropy"), &unit = e("entropy.temperature.1.entropy");
         return Judgement{fmt::format("{} nats against {}", number_text(hot.value), number_text(unit.value)),
                          spread_text(hot), rule(more(hot, unit))};
       }},
      {"001-overflow", "softmax", "A naive softmax overflows for large inputs.", "overflows",
       [](Evidence& e) {
         std::vector<Tested> cases;
         for (const char* dtype : {"f64", "f32", "f16", "bf16"}) {
           const auto& m = e(fmt::format("softmax.overflow.{}.from", dtype));
           cases.push_back({dtype, fmt::format("from {:.1f}", m.value), m.value < 1000});
         }
         return judge(cases, {e("softmax.overflow.f32.from")}, {.before = "the dtype is "});
       }},
      {"001-shift", "softmax", "Subtracting the largest score prevents that and gives the same result.",
       "no overflow, equal to rounding",
       [](Evidence& e) {
         std::vector<Tested> cases;
         const std::array<std::pair<const char*, double>, 4> roundings = {
             {{"f64", 0x1p-52}, {"f32", 0x1p-23}, {"f16", 0x1p-10}, {"bf16", 0x1p-7}}};
         for (const auto& [dtype, epsilon] : roundings) {
           const double error = e(fmt::format("softmax.overflow.{}.shifted_error", dtype)).value;
           const double apart = e(fmt::format("softmax.overflow.{}.apart", dtype)).value;
           cases.push_back({dtype, fmt::format("{} apart", number_text(apart)), error <= epsilon && apart <= epsilon});
         }
         return judge(cases, {e("softmax.overflow.f32.apart")}, {.before = "the dtype is "});
       }},
      {"001-no-learning", "ablation", "Without scaling the model cannot adjust where it attends.",
       "answers no better than chance at d_k = 64",
       [](Evidence& e) {
         const auto& m = e("ablation.raw.d64.accuracy");
         return Judgement{percent(m.value) + " right; chance 6.25 %", Spread{m, "", true}.text(),
                          rule(agrees(m, 1.0 / 16, kAbout))};
       }},
      {"001-stable", "ablation", "Divided by √d_k, training is stable whatever the dimension.", "every run converges",
       [](Evidence& e) {
         std::vector<Tested> cases;
         for (const int d : {4, 16, 64}) {
           const auto& m = e(fmt::format("ablation.scaled.d{}.reached", d));
           cases.push_back({fmt::format("{}", d), percent(m.value) + " of runs", at_least(m, kAll)});
         }
         return judge(cases, {e("ablation.scaled.d64.reached"), "d_k = 64", true}, kSizeIs);
       }},
      {"001-prevents", "ablation", "Scaling prevents instability.", "tolerates a learning rate that unscaled does not",
       [](Evidence& e) {
         std::vector<Tested> cases;
         for (const int d : {16, 64}) {
           const auto &raw = e(fmt::format("ablation.raw.d{}.lr0.03.area", d)),
                      &scaled = e(fmt::format("ablation.scaled.d{}.lr0.03.area", d));
           cases.push_back({fmt::format("{}", d),
                            fmt::format("mean loss at 0.03: {} against {} unscaled", number_text(scaled.value),
                                        number_text(raw.value)),
                            at_most(scaled, raw, 1 - kAbout)});
         }
         return judge(cases, {e("ablation.raw.d64.lr0.03.area"), "d_k = 64, unscaled"}, kSizeIs);
       }},
      {"001-high", "ablation", "Scaling matters more when d_k is high than when it is low.",
       "unscaled costs more steps at 64 than at 4",
       [](Evidence& e) {
         const auto &low = e("ablation.raw.d4.slower"), &high = e("ablation.raw.d64.slower");
         return Judgement{fmt::format("{:.2f} × the steps at d_k = 64, {:.2f} at 4", high.value, low.value),
                          Spread{high, "d_k = 64"}.text(), rule(more(high, low))};
       }},
      {"001-trained", "ablation", "In a trained model the scores may be under control, so that scaling matters less.",
       "unscaled scores vary less at the end than at the start",
       [](Evidence& e) {
         std::vector<Tested> cases;
         for (const int d : {4, 16, 64}) {
           const auto &start = e(fmt::format("ablation.raw.d{}.start.logit_var", d)),
                      &end = e(fmt::format("ablation.raw.d{}.end.logit_var", d));
           cases.push_back({fmt::format("{}", d),
                            fmt::format("variance {} → {}", number_text(start.value), number_text(end.value)),
                            more(start, end)});
         }
         return judge(cases, {e("ablation.raw.d64.end.logit_var"), "d_k = 64"}, kSizeIs);
       }},
      {"001-works", "ablation", "Attention does not work in practice without the scaling.",
       "unscaled, less than half of the gain is left",
       [](Evidence& e) {
         return fails_unscaled(e, {4, 16, 64}, {16, 64, 256});
       },
       "translate"},
      {"001-negligible", "scores", "The division costs next to nothing.",
       "no more than the time of a plain dot product",
       [](Evidence& e) {
         std::vector<Tested> cases;
         for (const int d : {16, 64, 256}) {
           const auto& m = e(fmt::format("scores.scaled_to_dot.d{}.n256", d));
           cases.push_back({fmt::format("{}", d), fmt::format("{:.2f} ×", m.value), at_most(m, 1 + kAbout)});
         }
         return judge(cases, {e("scores.scaled_to_dot.d64.n256"), "d = 64", false, "rounds"}, {.name = "d = "});
       }},
      {"001-query-sharpness", "temperature", "A scale that depends on the query gives queries different sharpness.",
       "differs between queries",
       [](Evidence& e) {
         const auto &apart = e("temperature.query.apart"), &mean = e("temperature.query.sharpness");
         return Judgement{
             fmt::format("{} ± {} between the questions of a run", number_text(mean.value), number_text(apart.value)),
             spread_text(apart), rule(more(apart, mean, kEqual))};
       }},
      {"001-trained-cold", "temperature", "A temperature below √d_k leaves trained attention sharper.",
       "less entropy after training with √d_k / 2",
       [](Evidence& e) {
         const auto &cold = e("temperature.half.end.entropy"), &unit = e("temperature.unit.end.entropy");
         return Judgement{fmt::format("{} nats against {}", number_text(cold.value), number_text(unit.value)),
                          spread_text(cold), rule(more(unit, cold))};
       }},
      {"001-trained-hot", "temperature", "A temperature above √d_k leaves it softer.",
       "more entropy after training with 2 √d_k",
       [](Evidence& e) {
         const auto &hot = e("temperature.double.end.entropy"), &unit = e("temperature.unit.end.entropy");
         return Judgement{fmt::format("{} nats against {}", number_text(hot.value), number_text(unit.value)),
                          spread_text(hot), rule(more(hot, unit))};
       }},
      {"001-critical-where", "translate", "Scaling is critical at a high d_k and less so at a low one.",
       "more is lost without it at 256 than at 16",
       [](Evidence& e) {
         std::string measured;
         std::vector<Measurement> lost;
         for (const int d : {16, 64, 256}) {
           const auto &scaled = e(fmt::format("translate.scaled-{}.bleu", d)),
                      &dot = e(fmt::format("translate.dot-{}.bleu", d));
           lost.push_back({scaled.value - dot.value, std::hypot(scaled.spread, dot.spread), dot.repeats});
           measured += fmt::format("{}d_k = {}: {:.1f} of {:.1f} BLEU", d == 16 ? "" : "; ", d, lost.back().value,
                                   scaled.value);
         }
         return Judgement{measured, spread_text(e("translate.dot-256.bleu")),
                          rule(more(lost[2], lost[0]) && more(lost[2], Measurement{}))};
       }},
      {"001-universal", "", "Large language models universally use √d_k.", "all of them",
       [](Evidence&) {
         return Judgement{"nothing: it is about the models that others have built, and the lab trains only its own",
                          "none",
                          {Ruling::undecided, "out of reach of a measurement"}};
       }},
  };
}

}  // namespace keel::lab
