#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "keel/nn/nn.h"
#include "lab/chains.h"
#include "lab/experiments.h"
#include "lab/experiments/scores_against_gru.h"
#include "lab/recall.h"
#include "lab/statistics.h"
#include "lab/timing.h"
#include "nn/tape.h"

namespace keel::lab {
namespace scores_experiment {
namespace {

using nn::Tensor;

struct Function {
  const char *id, *name;
  std::unique_ptr<nn::ScoreFunction> (*make)(std::int64_t d, nn::Random& random);
};
constexpr std::array<Function, 4> kFunctions{
    {{"additive", "additive (d_a = d)",
      [](std::int64_t d, nn::Random& r) -> std::unique_ptr<nn::ScoreFunction> {
        return std::make_unique<nn::AdditiveScore>(d, d, d, r);
      }},
     {"dot", "dot",
      [](std::int64_t, nn::Random&) -> std::unique_ptr<nn::ScoreFunction> { return std::make_unique<nn::DotScore>(); }},
     {"general", "general",
      [](std::int64_t d, nn::Random& r) -> std::unique_ptr<nn::ScoreFunction> {
        return std::make_unique<nn::GeneralScore>(d, d, r);
      }},
     {"scaled", "scaled dot", [](std::int64_t, nn::Random&) -> std::unique_ptr<nn::ScoreFunction> {
        return std::make_unique<nn::ScaledDotScore>();
      }}}};

// Part 1: the four score functions, each followed by the softmax and the values.

struct Sizes {
  std::int64_t n, d;
};
const std::vector<Sizes>& sizes() {
  static const std::vector<Sizes> all = {{256, 16}, {256, 32}, {256, 64}, {256, 128}, {256, 256},
                                         {64, 64},  {128, 64}, {512, 64}, {1024, 64}};
  return all;
}

struct Layer {
  nn::Attention attention;
  Tensor q, k, v;  // (1, n, d)

  Layer(const Function& function, const Sizes& s, std::uint64_t seed)
      : Layer(function, s, nn::Random(seed, "scores")) {}
  Layer(const Function& function, const Sizes& s, nn::Random random)
      : attention(function.make(s.d, random)),
        q(random.normal({1, s.n, s.d})),
        k(random.normal({1, s.n, s.d})),
        v(random.normal({1, s.n, s.d})) {}
  Tensor operator()() const { return attention(q, k, v); }
};

std::string key_of(const Function& f, const Sizes& s) { return fmt::format("scores.{}.d{}.n{}", f.id, s.d, s.n); }

// Peak bytes of tensors beyond those at the start, per pair of a query and a key; forward only.
void measure_memory(Result& result, std::uint64_t seed) {
  const nn::NoGrad off;
  for (const Sizes& s : sizes()) {
    for (const Function& f : kFunctions) {
      const Layer layer(f, s, seed);
      nn::watch_memory();
      const std::int64_t before = nn::memory_use().now;
      layer();
      const double pairs = static_cast<double>(s.n) * static_cast<double>(s.n);
      result.exact(key_of(f, s) + ".bytes", static_cast<double>(nn::memory_use().most - before) / pairs);
    }
  }
}

// Seconds of every layer in every round.
Rounds time_layers(Work& work, double share, std::size_t rounds) {
  std::vector<std::unique_ptr<Layer>> layers;
  for (const Sizes& s : sizes()) {
    for (const Function& f : kFunctions) layers.push_back(std::make_unique<Layer>(f, s, work.settings().seed));
  }
  Rounds found(layers.size(), std::vector<double>(rounds));
  work.in_turn(share, rounds * layers.size(), [&](std::size_t i) {
    const nn::NoGrad off;
    const Layer& layer = *layers[i % layers.size()];
    found[i % layers.size()][i / layers.size()] = time_of([&] { layer(); });
  });
  return found;
}

void draw_functions(Result& result, const Rounds& found) {
  Findings& times = result.times;
  struct Along {
    const char *id, *name;
    std::int64_t Sizes::*size, Sizes::*other;
    std::int64_t fixed;
  };
  for (const Along& along :
       {Along{"d", "d", &Sizes::d, &Sizes::n, 256}, Along{"n", "keys", &Sizes::n, &Sizes::d, 64}}) {
    std::vector<Series> time, memory;
    for (std::size_t f = 0; f < kFunctions.size(); ++f) {
      time.push_back({kFunctions[f].name, {}});
      memory.push_back({kFunctions[f].name, {}});
      std::vector<std::pair<double, std::vector<double>>> rounds;  // by size
      for (std::size_t s = 0; s < sizes().size(); ++s) {
        if (sizes()[s].*along.other != along.fixed) continue;
        std::vector<double> per_pair;
        for (const double t : found[s * kFunctions.size() + f])
          per_pair.push_back(1e9 * t / static_cast<double>(sizes()[s].n * sizes()[s].n));
        const auto x = static_cast<double>(sizes()[s].*along.size);
        robust(times, key_of(kFunctions[f], sizes()[s]) + ".ns", per_pair);
        time.back().points.push_back(quartiles(x, per_pair));
        rounds.emplace_back(x, per_pair);
        const double bytes = result.at(key_of(kFunctions[f], sizes()[s]) + ".bytes");
        memory.back().points.push_back({x, bytes, bytes, bytes});
      }
      for (auto* series : {&time.back(), &memory.back()}) {
        std::sort(series->points.begin(), series->points.end(),
                  [](const Point& a, const Point& b) { return a.x < b.x; });
      }
      std::sort(rounds.begin(), rounds.end());
      std::vector<double> x;
      Rounds y;
      for (const auto& [size, per_pair] : rounds) {
        x.push_back(size);
        y.push_back(per_pair);
      }
      robust_order(times, fmt::format("scores.{}.order.{}", kFunctions[f].id, along.id), x, y);
    }
    const char* fixed = along.fixed == 256 ? "256 keys" : "d = 64";
    const auto ends = [](const std::vector<Series>& all) {
      std::string text;
      for (const Series& s : all) {
        text += fmt::format("{}{} from {:.3g} to {:.3g}", text.empty() ? "" : ", ", s.name, s.points.front().y,
                            s.points.back().y);
      }
      return text;
    };
    result.draw(fmt::format("memory-{}", along.id), fmt::format("Memory per pair against {}, {}", along.name, fixed),
                fmt::format("Bytes of tensors per pair of query and key, forward: {}. Additive scores are held as "
                            "a matrix; the others stream and hold only vectors.",
                            ends(memory)),
                Lines{{along.name, true}, {"bytes per pair", true}, memory, ""});
    times.draw(fmt::format("time-{}", along.id), fmt::format("Time per pair against {}, {}", along.name, fixed),
               fmt::format("Nanoseconds per pair of query and key, forward, one thread: {}.", ends(time)),
               Lines{{along.name, true}, {"ns per pair", true}, time, kQuartiles});
  }
  // Ratios round by round, so that a slow moment affects both.
  for (std::size_t s = 0; s < sizes().size(); ++s) {
    const auto ratio = [&](std::size_t above, std::size_t below) {
      std::vector<double> all;
      const auto &a = found[s * kFunctions.size() + above], &b = found[s * kFunctions.size() + below];
      for (std::size_t r = 0; r < a.size(); ++r) all.push_back(a[r] / b[r]);
      return all;
    };
    const std::string size = fmt::format("d{}.n{}", sizes()[s].d, sizes()[s].n);
    robust(times, "scores.additive_to_dot." + size, ratio(0, 1));
    robust(times, "scores.scaled_to_dot." + size, ratio(3, 1));
  }
}

// Part 2: what has to wait for what, read off the tape.

std::vector<Tensor> leaves(std::int64_t n, std::int64_t d, nn::Random& random) {
  std::vector<Tensor> all;
  for (std::int64_t i = 0; i < n; ++i) all.push_back(random.normal({1, 1, d}).require_grad());
  return all;
}

void count_steps(Result& result, std::uint64_t seed) {
  constexpr std::int64_t kSize = 8;
  nn::Random random(seed, "scores/steps");
  const nn::GRU gru(kSize, kSize, random);
  std::vector<Series> depth, path;
  for (const Function& f : kFunctions) {
    depth.push_back({fmt::format("attention, {}", f.name), {}});
    path.push_back(depth.back());
  }
  depth.push_back({"GRU", {}});
  path.push_back({"GRU", {}});
  for (const std::int64_t n : {8, 16, 32, 64, 128, 256}) {
    const auto x = static_cast<double>(n);
    const auto add = [&](std::size_t which, const char* id, double deep, double far) {
      depth[which].points.push_back({x, deep, deep, deep});
      path[which].points.push_back({x, far, far, far});
      result.exact(fmt::format("scores.depth.{}.n{}", id, n), deep);
      result.exact(fmt::format("scores.path.{}.n{}", id, n), far);
    };
    const std::vector<Tensor> tokens = leaves(n, kSize, random);
    for (std::size_t f = 0; f < kFunctions.size(); ++f) {
      const nn::Attention attention(kFunctions[f].make(kSize, random));
      const Tensor all = nn::concat(tokens, 1), last = nn::slice(attention(all, all, all), 1, n - 1, n);
      add(f, kFunctions[f].id, depth_of(last), path_of(tokens.front(), last));
    }
    Tensor h = Tensor::zeros({1, kSize});
    for (const Tensor& token : tokens) h = gru.step(nn::reshape(token, {1, kSize}), h);
    add(kFunctions.size(), "gru", depth_of(h), path_of(tokens.front(), h));
  }
  result.exact("scores.depth.gru.order", order(depth.back().points));
  result.exact("scores.path.gru.order", order(path.back().points));
  const auto text = [](const char* what, const std::vector<Series>& all) {
    return fmt::format(
        "{}: attention with scaled dot has {:.0f} at any length; the GRU has {:.0f} at 8 tokens and {:.0f} at 256.",
        what, all[3].points.back().y, all.back().points.front().y, all.back().points.back().y);
  };
  result.findings.push_back(text("Operations that must wait for one another, counted on the tape", depth));
  result.findings.push_back(text("Operations between the first token and the last output", path));
  result.draw("depth", "Sequential steps against the length", text("The longest chain of operations", depth),
              Lines{{"tokens", true}, {"operations in a chain", true}, depth, ""});
  result.draw("path", "From the first token to the last output",
              text("The shortest chain of operations between them", path),
              Lines{{"tokens", true}, {"operations on the way", true}, path, ""});
}

// The formula as written, and the shapes that 004 and 003 use.
void read_formula(Result& result, std::uint64_t seed) {
  nn::Random random(seed, "scores/formula");
  const auto compute = [&](const char* id, const nn::Shape& q_shape, const nn::Shape& k_shape,
                           const nn::Shape& v_shape) {
    Tensor q = random.normal(q_shape);
    q.require_grad();
    const Tensor k = random.normal(k_shape), v = random.normal(v_shape);
    const Tensor weights = nn::softmax(nn::matmul(q, nn::transpose(k, -2, -1)) / 8.0), out = nn::matmul(weights, v);
    for (int i = 0; i < out.rank(); ++i) {
      result.exact(fmt::format("scores.{}.weights.{}", id, i), static_cast<double>(weights.size(i)));
      result.exact(fmt::format("scores.{}.out.{}", id, i), static_cast<double>(out.size(i)));
    }
    result.exact(fmt::format("scores.{}.products", id), count_of("matmul", out));
  };
  compute("shapes_004", {4, 8, 100, 64}, {4, 8, 100, 64}, {4, 8, 100, 64});
  compute("shapes_003", {2, 5, 64}, {2, 7, 64}, {2, 7, 32});
}

class Scores : public Experiment {
 public:
  std::string name() const override { return "scores"; }
  std::string question() const override {
    return "What do score functions cost, in time and memory, and when is attention cheaper than a GRU?";
  }
  Cost cost() const override { return {30, 120}; }

  Result run(Work& work) const override {
    const OneThreadEach one_thread_each;
    const std::uint64_t seed = work.settings().seed;
    const std::size_t rounds = work.repeats(7, 31);
    Result result;
    result.settings = fmt::format(
        "f32, forward, processor time of one thread, medians of {} rounds in which everything is measured in turn. "
        "Score functions: whole attention with one sequence, one head, d_a = d. GRU: d inputs and d hidden units, {} "
        "sequences. Chains of operations are counted on the tape, at d = 8. Times are in scores-times.json; the same "
        "seed reproduces everything but the times.",
        rounds, kGruSequences);
    measure_memory(result, seed);
    count_steps(result, seed);
    read_formula(result, seed);
    const Rounds layers = time_layers(work, 0.4, rounds);
    draw_functions(result, layers);
    time_against_gru(work, 0.6, rounds, result.times);
    const auto at = [&](const char* key) { return result.times.at(key); };
    result.times.findings.push_back(
        fmt::format("At d = 64 and 256 keys a pair takes {:.2f} ns with scaled dot, {:.2f} with dot, {:.2f} with "
                    "general and {:.1f} with additive scores.",
                    at("scores.scaled.d64.n256.ns"), at("scores.dot.d64.n256.ns"), at("scores.general.d64.n256.ns"),
                    at("scores.additive.d64.n256.ns")));
    return result;
  }
};

}  // namespace
}  // namespace scores_experiment

std::unique_ptr<Experiment> make_scores() { return std::make_unique<scores_experiment::Scores>(); }

}  // namespace keel::lab
