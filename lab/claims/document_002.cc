#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "lab/claims/criteria.h"
#include "lab/initialisation.h"

namespace keel::lab {

using namespace criteria;

std::vector<Claim> claims_002() {
  return {
      {"002-variance", "variance", "With zero-mean, unit-variance q and k the dot product has variance d_k.", "d_k",
       [](Evidence& e) {
         return compare_by_size(e, "var", {4, 64, 1024}, [](double d) { return d; });
       }},
      {"002-deviation", "variance", "At d_k = 64 the standard deviation is about 8.", "8",
       [](Evidence& e) { return compare(e("variance.unit.d64.sd"), 8, kEqual); }},
      {"002-easily", "saturation", "At d_k = 64 the scores of a row easily look like [−20, 3, 25, −15].",
       "a score of magnitude 25 in most rows",
       [](Evidence& e) {
         std::vector<Tested> cases;
         for (const int n : {4, 16, 64, 256, 1024}) {
           const auto& m = e(fmt::format("saturation.far.d64.n{}", n));
           cases.push_back({fmt::format("{}", n), percent(m.value) + " of rows", at_least(m, kHalf)});
         }
         return judge(cases, {e("saturation.far.d64.n4"), "4 keys", true}, {.before = "the row has ", .unit = " keys"});
       }},
      {"002-collapse", "softmax", "The softmax of such a row is nearly one-hot.", "one weight ≈ 1",
       [](Evidence& e) {
         const auto& m = e("softmax.row.wide_002.p2");
         return Judgement{fmt::format("largest weight 1 − {}", number_text(1 - m.value)), spread_text(m),
                          rule(m.value > 0.99)};
       }},
      {"002-small-gradients", "softmax", "There, the gradients at all other positions are extremely small.", "≈ 0",
       [](Evidence& e) {
         const auto& m = e("softmax.jacobian.wide_002");
         return Judgement{fmt::format("at most {}", number_text(m.value)), spread_text(m),
                          rule(m.value <= kZero * 0.25)};
       }},
      {"002-division", "softmax", "Divided by 8 the row looks like [−2.5, 0.4, 3.1, −1.9].", "equal to one decimal",
       [](Evidence& e) {
         const auto& m = e("softmax.division.002");
         return Judgement{fmt::format("at most {} apart", number_text(m.value)), spread_text(m),
                          rule(printed(m.value, 0, 1))};
       }},
      {"002-softer", "softmax", "That gives a softer distribution, which can be learned from.", "softer",
       [](Evidence& e) {
         const double wide = e("softmax.row.wide_002.p2").value, narrow = e("softmax.row.narrow_002.p2").value;
         const double before = e("softmax.row.wide_002.jacobian").value;
         const double after = e("softmax.row.narrow_002.jacobian").value;
         return Judgement{fmt::format("largest weight {:.3f}; Jacobian {} instead of {}", narrow, number_text(after),
                                      number_text(before)),
                          "exact", rule(narrow < wide && after > before)};
       }},
      {"002-unit", "variance", "Dividing by √d_k brings dot products back to about unit variance.", "1",
       [](Evidence& e) { return compare(e("variance.unit.d64.scaled_var"), 1, kEqual); }},
      {"002-depends", "variance", "Which scaling is right depends on the initialisation.", "differs between them",
       [](Evidence& e) {
         std::vector<Measurement> all;
         for (const Initialisation& start : initialisations()) {
           all.push_back(e(fmt::format("variance.init.{}.d64.scaled_var", start.id)));
         }
         const auto [least, most] = std::minmax_element(
             all.begin(), all.end(), [](const Measurement& a, const Measurement& b) { return a.value < b.value; });
         return Judgement{
             fmt::format("Var(q·k/√d_k) from {} to {}", number_text(least->value), number_text(most->value)),
             spread_text(e("variance.init.unit.d64.scaled_var")), rule(more(*most, *least, 2))};
       }},
      {"002-xavier", "variance", "1/√d_k is right because Xavier initialisation gives q and k unit variance.",
       "Var(q·k/√d_k) = 1",
       [](Evidence& e) {
         std::vector<Tested> cases;
         for (const Initialisation& start : initialisations()) {
           if (!start.id.starts_with("xavier")) continue;
           const auto& m = e(fmt::format("variance.init.{}.d64.scaled_var", start.id));
           cases.push_back({start.name, number_text(m.value), agrees(m, 1, kAbout)});
         }
         return judge(cases, {e("variance.init.xavier_square.d64.scaled_var")}, {.before = "it is "});
       }},
      {"002-typical", "variance", "Projections are typically initialised so that q and k have about unit variance.",
       "variance of q = 1",
       [](Evidence& e) {
         std::vector<Tested> cases;
         for (const Initialisation& start : initialisations()) {
           if (start.weight_variance == nullptr) continue;
           const auto& m = e(fmt::format("variance.init.{}.d64.activation", start.id));
           cases.push_back({start.name, number_text(m.value), agrees(m, 1, kAbout)});
         }
         return judge(cases, {e("variance.init.lecun.d64.activation")}, {.before = "it is "});
       }},
      {"002-aggressive", "ablation", "Unscaled, the trained model picks one token; scaled, it learns spread weights.",
       "largest weight ≈ 1 against far less",
       [](Evidence& e) {
         const auto &raw = e("ablation.raw.d64.end.max_weight"), &scaled = e("ablation.scaled.d64.end.max_weight");
         return Judgement{fmt::format("{:.2f} against {:.2f}, d_k = 64", raw.value, scaled.value), spread_text(raw),
                          rule(at_least(raw, kAll) && at_most(scaled, raw, 1 - kAbout))};
       }},
      {"002-learns", "ablation", "The softer distributions are easier to learn from.", "fewer steps than unscaled",
       [](Evidence& e) {
         std::vector<Tested> cases;
         for (const int d : {4, 16, 64}) {
           const auto& m = e(fmt::format("ablation.raw.d{}.slower", d));
           cases.push_back(
               {fmt::format("{}", d), fmt::format("unscaled takes {:.2f} × the steps", m.value), !at_most(m, 1)});
         }
         return judge(cases, {e("ablation.raw.d64.slower"), "d_k = 64"}, kSizeIs);
       }},
  };
}

}  // namespace keel::lab
