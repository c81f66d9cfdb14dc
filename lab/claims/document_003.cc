#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "lab/claims/criteria.h"

namespace keel::lab {

using namespace criteria;

namespace {

// The same at every length, or growing in proportion to it: what a chain of operations on the tape is against n.
Judgement constant_chain(Evidence& e, const char* what) {
  double least = INFINITY, most = 0;
  for (const int n : {8, 16, 32, 64, 128, 256}) {
    const double chain = e(fmt::format("scores.{}.scaled.n{}", what, n)).value;
    least = std::min(least, chain);
    most = std::max(most, chain);
  }
  return {fmt::format("{:.0f} to {:.0f} operations from 8 to 256 tokens", least, most), "exact", rule(most == least)};
}

// "Linear", "O(n²)": by the asymptote, the power of what is left without the constant part. One rule for operations
// and for times.
Truth grows(const Measurement& order, double power) { return agrees(order, power, kAbout); }

Judgement growing_chain(Evidence& e, const char* what) {
  const auto& m = e(fmt::format("scores.{}.gru.order", what));
  return {fmt::format("n to the power {:.2f} ({:.0f} operations at 8 tokens, {:.0f} at 256)", m.value,
                      e(fmt::format("scores.{}.gru.n8", what)).value, e(fmt::format("scores.{}.gru.n256", what)).value),
          "exact", rule(grows(m, 1))};
}

// The time of a score function, in d.
Judgement linear_time(Evidence& e, const char* function, const char* size) {
  const auto& m = e(fmt::format("scores.{}.order.d", function));
  return {fmt::format("{} to the power {:.2f}, 64 to 256", size, m.value), Spread{m, "", false, "rounds"}.text(),
          rule(grows(m, 1))};
}

// Two orders of time, in n and in d.
Judgement growth(Evidence& e, const char* what, double in_n, double in_d) {
  const auto &n = e(fmt::format("scores.meet.d128.{}_order", what)),
             &d = e(fmt::format("scores.meet.{}_order_d", what));
  return judge({{"n", fmt::format("power {:.2f}", n.value), grows(n, in_n)},
                {"d", fmt::format("power {:.2f}", d.value), grows(d, in_d)}},
               {n, "n", false, "rounds"}, {.before = "one looks at ", .name = ""});
}

}  // namespace

std::vector<Claim> claims_003() {
  return {
      {"003-mean", "variance", "For N(0, 1) components the mean of q·k is 0.", "0",
       [](Evidence& e) {
         return compare_by_size(e, "mean", {4, 64, 1024}, [](double) { return 0.0; });
       }},
      {"003-variance", "variance", "Its variance is d_k, its standard deviation grows as √d_k.", "d_k",
       [](Evidence& e) {
         return compare_by_size(e, "var", {4, 64, 1024}, [](double d) { return d; });
       }},
      {"003-magnitude", "variance", "At d_k = 64 a typical dot product is about 8 in magnitude.", "8",
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
         return compare_by_size(e, "scaled_var", {4, 64, 1024}, [](double) { return 1.0; });
       }},
      {"003-small-gradients", "gradient", "Unscaled, the softmax is pushed to where its gradients are extremely small.",
       "Jacobian ≈ 0 × the scaled one's, from some d_k on",
       [](Evidence& e) {
         std::vector<Tested> cases;
         for (const auto& [of, name] : {std::pair{"jacobian_median", "median"}, {"jacobian", "mean"}}) {
           for (const int n : {4, 16, 64}) {
             std::string ratios;
             Truth at_largest = Truth::no;
             for (const int d : {64, 256, 1024}) {
               const auto &raw = e(fmt::format("gradient.{}.raw.lecun.d{}.n{}", of, d, n)),
                          &scaled = e(fmt::format("gradient.{}.scaled.lecun.d{}.n{}", of, d, n));
               ratios += fmt::format("{}{:.2g}", ratios.empty() ? "" : ", ", raw.value / scaled.value);
               at_largest = at_most(raw, scaled, kZero);
             }
             cases.push_back({fmt::format("the {} row of {} keys", name, n), ratios + " ×", at_largest});
           }
         }
         Judgement j = judge(cases, {e("gradient.jacobian.raw.lecun.d64.n64"), "the mean row of 64 keys, d_k = 64"},
                             {.before = "one looks at "});
         j.measured = "at d_k = 64, 256, 1024: " + j.measured;
         return j;
       }},
      {"003-healthy", "gradient", "Scaling keeps the softmax where gradients are healthy.", "no row near 0",
       [](Evidence& e) {
         std::vector<Tested> cases;
         for (const int d : {4, 16, 64, 256}) {
           const auto& m = e(fmt::format("gradient.dead.scaled.lecun.d{}.n64", d));
           cases.push_back({fmt::format("{}", d), percent(m.value) + " of rows", at_most(m, kZero)});
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
         std::vector<Tested> cases;
         for (const int n : {10, 64}) {
           const auto& m = e(fmt::format("entropy.raw.d1024.n{}", n));
           const double largest = e(fmt::format("entropy.raw_max.d1024.n{}", n)).value;
           cases.push_back(
               {fmt::format("{}", n),
                fmt::format("{} of ln n (mean largest weight {:.3f})", percent(m.value / std::log(n)), largest),
                at_most(m, kCollapsed * std::log(n))});
         }
         return judge(cases, {e("entropy.raw.d1024.n64"), "64 keys"}, kThereAre);
       }},
      {"003-slow", "scores", "Additive scores are slow; a dot product is cheaper.", "dot takes less time",
       [](Evidence& e) {
         std::vector<Tested> cases;
         for (const int d : {16, 64, 256}) {
           const auto& m = e(fmt::format("scores.additive_to_dot.d{}.n256", d));
           cases.push_back({fmt::format("{}", d), fmt::format("additive takes {:.0f} ×", m.value), at_least(m, 1)});
         }
         return judge(cases, {e("scores.additive_to_dot.d64.n256"), "d = 64", false, "rounds"}, {.name = "d = "});
       }},
      {"003-linear-additive", "scores", "An additive score costs O(d_a).", "time ∝ d_a",
       [](Evidence& e) { return linear_time(e, "additive", "d_a"); }},
      {"003-linear-dot", "scores", "A dot product costs O(d).", "time ∝ d",
       [](Evidence& e) { return linear_time(e, "dot", "d"); }},
      {"003-sequential", "scores", "Additive scores have to be computed one after another; dot products do not.",
       "a chain that grows with n, against one that does not",
       [](Evidence& e) {
         const double first = e("scores.depth.additive.n8").value, last = e("scores.depth.additive.n256").value;
         const double dot_first = e("scores.depth.dot.n8").value, dot_last = e("scores.depth.dot.n256").value;
         return Judgement{fmt::format("additive {:.0f} operations at 8 tokens, {:.0f} at 256; dot {:.0f} and {:.0f}",
                                      first, last, dot_first, dot_last),
                          "exact", rule(last > first && dot_last == dot_first)};
       }},
      {"003-three", "scores", "Attention is three matrix multiplications.", "3",
       [](Evidence& e) {
         const auto& m = e("scores.shapes_003.products");
         return Judgement{fmt::format("{:.0f} in softmax(QKᵀ/√d_k)V", m.value), spread_text(m), rule(m.value == 3)};
       }},
      {"003-shapes", "scores",
       "Queries (2, 5, 64), keys (2, 7, 64), values (2, 7, 32): weights (2, 5, 7), outputs (2, 5, 32).",
       "(2, 5, 7), (2, 5, 32)",
       [](Evidence& e) {
         return shapes(e, "scores.shapes_003", {2, 5, 7}, {2, 5, 32});
       }},
      {"003-cosine", "example", "q·k is ‖q‖‖k‖cos θ.", "equal to rounding",
       [](Evidence& e) {
         const auto& m = e("example.score.angle_error");
         return Judgement{number_text(m.value) + " apart", spread_text(m), rule(m.value <= 1e-12)};
       }},
      {"003-steps-rnn", "scores", "A recurrent layer needs O(n) sequential operations.", "∝ n",
       [](Evidence& e) { return growing_chain(e, "depth"); }},
      {"003-steps-attention", "scores", "Attention needs O(1).", "the same for all n",
       [](Evidence& e) { return constant_chain(e, "depth"); }},
      {"003-path-rnn", "scores", "In a recurrent layer the path between two tokens is O(n) long.", "∝ n",
       [](Evidence& e) { return growing_chain(e, "path"); }},
      {"003-path-attention", "scores", "In attention it is O(1).", "the same for all n",
       [](Evidence& e) { return constant_chain(e, "path"); }},
      {"003-compute-attention", "scores", "Attention takes O(n²·d) time.", "time ∝ n² and ∝ d",
       [](Evidence& e) { return growth(e, "attention", 2, 1); }},
      {"003-compute-rnn", "scores", "A recurrent layer takes O(n·d²) time.", "time ∝ n and ∝ d²",
       [](Evidence& e) { return growth(e, "gru", 1, 2); }},
      {"003-wins", "scores", "For n < d attention wins on everything: time, sequential steps, path.",
       "less of each at n = d/2",
       [](Evidence& e) {
         std::vector<Tested> cases;
         for (const int d : {16, 32, 64, 128}) {
           const auto& m = e(fmt::format("scores.meet.d{}.n{}.ratio", d, d / 2));
           const bool chains = e("scores.depth.scaled.n8").value < e("scores.depth.gru.n8").value &&
                               e("scores.path.scaled.n8").value < e("scores.path.gru.n8").value;
           cases.push_back({fmt::format("{}", d), fmt::format("{:.2f} × the time of a GRU", m.value),
                            at_most(m, 1) && truth(chains)});
         }
         return judge(cases, {e("scores.meet.d64.n32.ratio"), "d = 64", false, "rounds"}, {.name = "d = "});
       }},
      {"003-crossover", "scores", "With O(n²·d) and O(n·d²), the two cost the same at n = d.", "n = d",
       [](Evidence& e) {
         std::vector<Tested> cases;
         for (const int d : {16, 32, 64, 128}) {
           const auto& m = e(fmt::format("scores.meet.d{}.crossing", d));
           cases.push_back({fmt::format("{}", d), fmt::format("n = {:.0f}", m.value), agrees(m, d, kAbout)});
         }
         return judge(cases, {e("scores.meet.d64.crossing"), "d = 64", false, "rounds"}, {.name = "d = "});
       }},
      {"003-additive-works", "translate", "Scores from a learned network (Bahdanau) work.",
       "at least halfway from a decoder without attention to 100 BLEU",
       [](Evidence& e) {
         const auto &additive = e("translate.additive.bleu"), &none = e("translate.none.bleu");
         return Judgement{fmt::format("BLEU {:.1f}; {:.1f} without attention", additive.value, none.value),
                          spread_text(additive),
                          rule(positive(additive.value - kHalf * (100 + none.value),
                                        std::hypot(noise(additive), kHalf * noise(none))))};
       }},
      {"003-additive-slow", "translate", "They are slow: with the dot product an epoch takes less time.",
       "more than 1 ×",
       [](Evidence& e) {
         const auto& additive = e("translate.additive.seconds_per_epoch");
         std::vector<Tested> cases;
         for (const int d : {16, 64, 256}) {
           const auto& scaled = e(fmt::format("translate.scaled-{}.seconds_per_epoch", d));
           cases.push_back({fmt::format("{}", d), fmt::format("{:.2f} ×", additive.value / scaled.value),
                            more(additive, scaled, 1 + kEqual)});
         }
         return judge(cases, {additive, "seconds"}, kSizeIs);
       }},
  };
}

}  // namespace keel::lab
