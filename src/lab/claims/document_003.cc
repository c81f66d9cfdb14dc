#include <fmt/format.h>

#include <cmath>

#include "lab/claims/criteria.h"

namespace keel::lab {

using namespace criteria;

std::vector<Claim> claims_003() {
  return {
      {"003-mean", "variance", "For N(0, 1) components the mean of q·k is 0.", "0",
       [](Evidence& e) {
         std::vector<Case> cases;
         for (const int d : {4, 64, 1024}) {
           const auto& m = e(fmt::format("variance.unit.d{}.mean", d));
           cases.push_back({fmt::format("{}", d), number_text(m.value), agrees(m, 0, kEqual)});
         }
         return judge(cases, {e("variance.unit.d64.mean"), "d_k = 64"}, kSizeIs);
       }},
      {"003-variance", "variance", "Its variance is d_k, its standard deviation grows as √d_k.", "d_k",
       [](Evidence& e) {
         std::vector<Case> cases;
         for (const int d : {4, 64, 1024}) {
           const auto& m = e(fmt::format("variance.unit.d{}.var", d));
           cases.push_back({fmt::format("{}", d), number_text(m.value), agrees(m, d, kEqual)});
         }
         return judge(cases, {e("variance.unit.d64.var"), "d_k = 64"}, kSizeIs);
       }},
      {"003-magnitude", "variance", "At d_k = 64 a typical dot product is about 8 in size.", "8",
       [](Evidence& e) {
         Judgement j = compare(e("variance.unit.d64.sd"), 8, kAbout);
         j.measured +=
             fmt::format(" (root mean square; mean size {})", number_text(e("variance.unit.d64.absolute").value));
         return j;
       }},
      {"003-ten", "softmax", "softmax([10, 0, 0]) is [0.9999, 0.00005, 0.00005].", "[0.9999, 0.00005, 0.00005]",
       [](Evidence& e) {
         const double first = e("softmax.row.ten_003.p0").value, second = e("softmax.row.ten_003.p1").value;
         return Judgement{fmt::format("[{:.6f}, {:.7f}, {:.7f}]", first, second, e("softmax.row.ten_003.p2").value),
                          "exact", rule(printed(first, 0.9999, 4) && printed(second, 0.00005, 5))};
       }},
      {"003-derivative", "softmax", "Its derivative p(1 − p) vanishes where p is near 1 or 0.", "≈ 0",
       [](Evidence& e) {
         const auto& m = e("softmax.row.ten_003.jacobian");
         return Judgement{"norm of the Jacobian " + number_text(m.value), spread_text(m), rule(m.value <= kZero * 0.5)};
       }},
      {"003-unit", "variance", "Scaling by √d_k restores a variance of about 1.", "1",
       [](Evidence& e) {
         std::vector<Case> cases;
         for (const int d : {4, 64, 1024}) {
           const auto& m = e(fmt::format("variance.unit.d{}.scaled_var", d));
           cases.push_back({fmt::format("{}", d), number_text(m.value), agrees(m, 1, kEqual)});
         }
         return judge(cases, {e("variance.unit.d64.scaled_var"), "d_k = 64"}, kSizeIs);
       }},
      {"003-small-gradients", "gradient", "Unscaled, the softmax is pushed to where its gradients are extremely small.",
       "Jacobian far below the scaled one's",
       [](Evidence& e) {
         std::vector<Case> cases;
         for (const int d : {16, 64, 256}) {
           const double raw = e(fmt::format("gradient.jacobian.raw.lecun.d{}.n64", d)).value;
           const double scaled = e(fmt::format("gradient.jacobian.scaled.lecun.d{}.n64", d)).value;
           const double dead = e(fmt::format("gradient.dead.raw.lecun.d{}.n64", d)).value;
           cases.push_back({fmt::format("{}", d),
                            fmt::format("{:.3g} × scaled, {} of rows near 0", raw / scaled, percent(dead)),
                            raw <= kZero * scaled});
         }
         return judge(cases, {e("gradient.jacobian.raw.lecun.d64.n64"), "d_k = 64"}, kSizeIs);
       }},
      {"003-healthy", "gradient", "Scaling keeps the softmax where gradients are healthy.", "no row near 0",
       [](Evidence& e) {
         std::vector<Case> cases;
         for (const int d : {4, 16, 64, 256}) {
           const auto& m = e(fmt::format("gradient.dead.scaled.lecun.d{}.n64", d));
           cases.push_back({fmt::format("{}", d), percent(m.value) + " of rows", m.value <= kZero});
         }
         return judge(cases, {e("gradient.dead.scaled.lecun.d64.n64"), "d_k = 64", true}, kSizeIs);
       }},
      {"003-row-sums", "example", "Each row of weights adds up to 1, to 1e-5.", "1 ± 1e-5",
       [](Evidence& e) {
         const auto& m = e("example.row_sum_error");
         return Judgement{fmt::format("1 ± {}", number_text(m.value)), spread_text(m), rule(m.value <= 1e-5)};
       }},
      {"003-causal-zero", "example", "Under the causal mask the upper triangle of the weights is zero.", "0",
       [](Evidence& e) {
         const auto& m = e("example.causal.above");
         return Judgement{"largest " + number_text(m.value), spread_text(m), rule(m.value == 0)};
       }},
      {"003-causal-sees", "example", "Token i sees tokens 0 to i.", "1, 2, 3, 4 keys",
       [](Evidence& e) {
         std::string measured;
         bool all = true;
         for (int i = 0; i < 4; ++i) {
           const double seen = e(fmt::format("example.causal.visible.{}", i)).value;
           all = all && seen == i + 1;
           measured += fmt::format("{}{:.0f}", i == 0 ? "" : ", ", seen);
         }
         return Judgement{measured + " keys", "exact", rule(all)};
       }},
      {"003-collapse", "entropy", "Unscaled, entropy collapses as d_k grows to 1024.", "entropy → 0",
       [](Evidence& e) {
         std::vector<Case> cases;
         for (const int n : {10, 64}) {
           const auto& m = e(fmt::format("entropy.raw.d1024.n{}", n));
           const double share = m.value / std::log(n);
           const double largest = e(fmt::format("entropy.raw_max.d1024.n{}", n)).value;
           cases.push_back({fmt::format("{}", n),
                            fmt::format("{} of ln n (mean largest weight {:.3f})", percent(share), largest),
                            share <= kCollapsed});
         }
         return judge(cases, {e("entropy.raw.d1024.n64"), "64 keys"}, kThereAre);
       }},
      {"003-additive-works", "translate", "Scores by a learned network (Bahdanau) work.",
       "well above a decoder without attention",
       [](Evidence& e) {
         const auto &additive = e("translate.additive.bleu"), &none = e("translate.none.bleu");
         return Judgement{fmt::format("BLEU {:.1f}; {:.1f} without attention", additive.value, none.value),
                          spread_text(additive), rule(none.value < (1 - kAbout) * additive.value)};
       }},
      {"003-additive-slow", "translate", "They are slow: with the dot product an epoch takes less time.",
       "more than 1 ×",
       [](Evidence& e) {
         const auto& additive = e("translate.additive.seconds_an_epoch");
         std::vector<Case> cases;
         for (const int d : {16, 64, 256}) {
           const double ratio = additive.value / e(fmt::format("translate.scaled-{}.seconds_an_epoch", d)).value;
           cases.push_back({fmt::format("{}", d), fmt::format("{:.2f} ×", ratio), ratio > 1 + kEqual});
         }
         return judge(cases, {additive, "seconds"}, kSizeIs);
       }},
  };
}

}  // namespace keel::lab
