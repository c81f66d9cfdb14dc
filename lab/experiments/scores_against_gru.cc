#include "lab/experiments/scores_against_gru.h"

#include <fmt/format.h>

#include <cmath>

#include "keel/nn/nn.h"
#include "lab/timing.h"

namespace keel::lab {
namespace {

using nn::Tensor;

struct Meeting {
  std::int64_t d, n;
};

struct Pair {
  nn::GRU gru;
  nn::ScaledDotProductAttention attention;
  Tensor x;  // (batch, n, d)

  Pair(const Meeting& m, std::uint64_t seed) : Pair(m, nn::Random(seed, "scores/gru")) {}
  Pair(const Meeting& m, nn::Random random) : gru(m.d, m.d, random), x(random.normal({kGruSequences, m.n, m.d})) {}
};

// Time against d alone, at widths where the products outweigh the calls.
void widen(Work& work, double share, std::size_t rounds, Findings& times) {
  const std::vector<Meeting> recurrent = {{128, 32}, {256, 32}, {512, 32}},
                             attending = {{32, 512}, {64, 512}, {128, 512}, {256, 512}};
  const auto time = [&](const char* key, const std::vector<Meeting>& all,
                        const std::function<void(const Pair&)>& forward) {
    std::vector<std::unique_ptr<Pair>> pairs;
    for (const Meeting& m : all) pairs.push_back(std::make_unique<Pair>(m, work.settings().seed));
    Rounds found(all.size(), std::vector<double>(rounds));
    work.in_turn(share / 2, rounds * all.size(), [&](std::size_t i) {
      const nn::NoGrad off;
      found[i % all.size()][i / all.size()] = time_of([&] { forward(*pairs[i % all.size()]); });
    });
    std::vector<double> widths;
    for (const Meeting& m : all) widths.push_back(static_cast<double>(m.d));
    robust_order(times, key, widths, found);
  };
  time("scores.meet.gru_order_d", recurrent, [](const Pair& p) { p.gru(p.x); });
  time("scores.meet.attention_order_d", attending, [](const Pair& p) { p.attention(p.x, p.x, p.x); });
}

// Of the measured range: beyond where they meet.
std::int64_t longest(std::int64_t d, bool brief) { return brief ? 256 : d < 64 ? 4096 : 2048; }

// Where two curves over the same x cross in one round, by lines in logarithms between neighbours; beyond the last by
// its last slope.
double crossing(const std::vector<double>& x, const Rounds& a, const Rounds& b, std::size_t round) {
  const auto apart = [&](std::size_t i) { return std::log(a[i][round] / b[i][round]); };
  std::size_t i = 1;
  while (i + 1 < x.size() && apart(i) < 0) ++i;
  const double x0 = std::log(x[i - 1]), x1 = std::log(x[i]);
  return std::exp(x0 - apart(i - 1) * (x1 - x0) / (apart(i) - apart(i - 1)));
}

void meet(Work& work, double share, std::size_t rounds, Findings& times) {
  const std::vector<std::int64_t> widths = {16, 32, 64, 128};
  const bool brief = work.settings().brief;
  std::vector<Meeting> meetings;
  for (const std::int64_t d : widths) {
    for (std::int64_t n = 8; n <= longest(d, brief); n *= 2) meetings.push_back({d, n});
  }
  std::vector<std::unique_ptr<Pair>> pairs;
  for (const Meeting& m : meetings) pairs.push_back(std::make_unique<Pair>(m, work.settings().seed));
  Rounds gru(pairs.size(), std::vector<double>(rounds)), attention = gru;
  work.in_turn(share, rounds * pairs.size(), [&](std::size_t i) {
    const nn::NoGrad off;
    const Pair& p = *pairs[i % pairs.size()];
    gru[i % pairs.size()][i / pairs.size()] = time_of([&] { p.gru(p.x); });
    attention[i % pairs.size()][i / pairs.size()] = time_of([&] { p.attention(p.x, p.x, p.x); });
  });

  Series measured{"measured", {}}, counted{"by operations: 3d", {}, Role::theory}, even{"n = d", {}, Role::reference};
  std::string crossings;
  for (std::size_t w = 0; w < widths.size(); ++w) {
    Series a{"attention", {}}, g{"GRU", {}};
    std::vector<double> lengths;
    Rounds by_length_a, by_length_g;
    for (std::size_t i = 0; i < meetings.size(); ++i) {
      if (meetings[i].d != widths[w]) continue;
      const auto n = static_cast<double>(meetings[i].n);
      a.points.push_back(quartiles(n, attention[i]));
      g.points.push_back(quartiles(n, gru[i]));
      lengths.push_back(n);
      by_length_a.push_back(attention[i]);
      by_length_g.push_back(gru[i]);
      std::vector<double> ratio;
      for (std::size_t r = 0; r < rounds; ++r) ratio.push_back(attention[i][r] / gru[i][r]);
      robust(times, fmt::format("scores.meet.d{}.n{}.ratio", meetings[i].d, meetings[i].n), ratio);
    }
    const auto d = static_cast<double>(widths[w]);
    std::vector<double> meetings_at;
    for (std::size_t r = 0; r < rounds; ++r) meetings_at.push_back(crossing(lengths, by_length_a, by_length_g, r));
    const std::string key = fmt::format("scores.meet.d{}", widths[w]);
    const double at = robust(times, key + ".crossing", meetings_at);
    robust_order(times, key + ".attention_order", lengths, by_length_a);
    robust_order(times, key + ".gru_order", lengths, by_length_g);
    measured.points.push_back({d, at, at, at});
    counted.points.push_back({d, 3 * d, 3 * d, 3 * d});
    even.points.push_back({d, d, d, d});
    crossings += fmt::format("{}{:.0f} tokens at d = {}", crossings.empty() ? "" : ", ", at, widths[w]);
    times.draw(
        fmt::format("meet-d{}", widths[w]), fmt::format("Attention and a GRU against the length, d = {}", widths[w]),
        fmt::format("Forward, {} sequences, one thread. At {} tokens attention takes {:.3g} ms and the GRU {:.3g} ms; "
                    "they meet near {:.0f} tokens.",
                    kGruSequences, longest(widths[w], brief), 1e3 * a.points.back().y, 1e3 * g.points.back().y, at),
        Lines{{"tokens", true}, {"seconds", true}, {a, g}, kQuartiles});
  }
  times.draw(
      "crossing", "The length at which a GRU becomes faster",
      fmt::format("{}. Counted in multiplications, attention's 2n²d and the GRU's 6nd² meet at n = 3d.", crossings),
      Lines{{"d", true}, {"tokens", true}, {measured, counted, even}, ""});
  times.findings.push_back(fmt::format(
      "Attention and a GRU take the same time at {} (a forward pass of {} sequences on one thread). A GRU has "
      "six products of d × d per token, so counting operations alone, they meet at n = 3d, not n = d.",
      crossings, kGruSequences));
}

}  // namespace

void time_against_gru(Work& work, double share, std::size_t rounds, Findings& times) {
  meet(work, 0.8 * share, rounds, times);
  widen(work, 0.2 * share, rounds, times);
}

}  // namespace keel::lab
