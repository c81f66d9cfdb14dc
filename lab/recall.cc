#include "lab/recall.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "keel/nn/nn.h"
#include "lab/statistics.h"

namespace keel::lab {
namespace {

using nn::Tensor;
using namespace recall;
static_assert(kHeads == 2);  // the better of their patterns is kept

constexpr std::int64_t kLength = kPairs + kQuestions;

// Pre-norm: x + W_O·attention(ln_1(x)), then x + W_2·gelu(W_1·ln_2(x)), one block. LeCun's weights after a norm give q
// and k components of variance 1, as the documents assume. There are no positions: what to look up is in the key.
class Model : public nn::Module {
 public:
  Model(const RecallSettings& s, nn::Random& random)
      : keys(kKeys, kModel, random),
        values(kValues + 1, kModel, random),
        ln_1(kModel),
        ln_2(kModel),
        ln_f(kModel),
        W_Q(kModel, kHeads * s.d_k, random, kLinear),
        W_K(kModel, kHeads * s.d_k, random, kLinear),
        W_V(kModel, kHeads * s.d_k, random, kLinear),
        W_O(kHeads * s.d_k, kModel, random, kLinear),
        W_1(kModel, 2 * kModel, random, kLinear),
        W_2(2 * kModel, kModel, random, kLinear),
        out(kModel, kValues, random, kLinear),
        attention(s.score ? s.score(kHeads, s.d_k) : std::make_unique<nn::ScaledDotScore>()),
        d_k_(s.d_k) {
    child("keys", keys);
    child("values", values);
    child("ln_1", ln_1);
    child("W_Q", W_Q);
    child("W_K", W_K);
    child("W_V", W_V);
    child("W_O", W_O);
    child("attention", attention);
    child("ln_2", ln_2);
    child("W_1", W_1);
    child("W_2", W_2);
    child("ln_f", ln_f);
    child("out", out);
  }

  // ids i64 (B, N) of keys, and of values or kValues where there is none → logits (B, questions, kValues). Nothing
  // depends on what the other rows of the block would give, so they are not computed.
  Tensor operator()(const Tensor& key_ids, const Tensor& value_ids, nn::AttentionReport* report = nullptr) const {
    const Tensor x = keys(key_ids) + values(value_ids), asked = questions(x), normal = ln_1(x);
    const Tensor o = attention(heads(W_Q(questions(normal))), heads(W_K(normal)), heads(W_V(normal)), {}, report);
    const Tensor y = asked + W_O(joined_heads(o));
    const Tensor z = y + W_2(gelu(W_1(ln_2(y))));
    return out(ln_f(z));
  }

  // q of each question, (B, heads, questions, d_k)
  Tensor query(const Tensor& key_ids, const Tensor& value_ids) const {
    return heads(W_Q(questions(ln_1(keys(key_ids) + values(value_ids)))));
  }

  nn::Embedding keys, values;
  nn::LayerNorm ln_1, ln_2, ln_f;
  nn::Linear W_Q, W_K, W_V, W_O, W_1, W_2, out;
  nn::Attention attention;

 private:
  static constexpr nn::Linear::Settings kLinear{.bias = false, .init = nn::Init::lecun_normal};

  static Tensor questions(const Tensor& x) { return nn::slice(x, 1, kPairs, kLength); }
  Tensor heads(const Tensor& x) const {
    return nn::transpose(nn::reshape(x, {x.size(0), x.size(1), kHeads, d_k_}), 1, 2);
  }
  Tensor joined_heads(const Tensor& x) const {
    return nn::reshape(nn::transpose(x, 1, 2), {x.size(0), x.size(2), kHeads * d_k_});
  }

  std::int64_t d_k_;
};

struct Batch {
  Tensor keys, values;                // i64 (B, N)
  Tensor labels;                      // i64 (B, questions)
  std::vector<std::int64_t> answers;  // (B, questions): the pair's position
};

Batch draw(nn::Random& random, std::int64_t sequences) {
  std::vector<std::int64_t> keys, values, labels, answers;
  std::vector<std::int64_t> deck(static_cast<std::size_t>(kKeys));
  std::iota(deck.begin(), deck.end(), std::int64_t{0});
  for (std::int64_t b = 0; b < sequences; ++b) {
    for (std::int64_t i = 0; i < kPairs; ++i) {  // the first cards of a shuffled deck
      std::swap(deck[static_cast<std::size_t>(i)], deck[static_cast<std::size_t>(i + random.below(kKeys - i))]);
    }
    const std::size_t start = values.size();
    for (std::int64_t i = 0; i < kPairs; ++i) {
      keys.push_back(deck[static_cast<std::size_t>(i)]);
      values.push_back(random.below(kValues));
    }
    for (std::int64_t i = 0; i < kQuestions; ++i) {
      const std::int64_t asked = random.below(kPairs);
      answers.push_back(asked);
      keys.push_back(deck[static_cast<std::size_t>(asked)]);
      labels.push_back(values[start + static_cast<std::size_t>(asked)]);
      values.push_back(kValues);
    }
  }
  const nn::Shape shape{sequences, kLength};
  return {Tensor::of(shape, keys), Tensor::of(shape, values), Tensor::of({sequences, kQuestions}, labels),
          std::move(answers)};
}

// The mean of f over rows.
template <class F>
double mean_of(const Tensor& rows, F f) {
  const std::vector<double> all = rows.values();
  double sum = 0;
  for (const double x : all) sum += f(x);
  return sum / static_cast<double>(all.size());
}

double accuracy(const Tensor& logits, const Tensor& labels) {
  const auto scores = logits.data<float>();
  const auto wanted = labels.data<std::int64_t>();
  double right = 0;
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    const auto row = scores.subspan(i * kValues, kValues);
    right += std::max_element(row.begin(), row.end()) - row.begin() == wanted[i] ? 1 : 0;
  }
  return right / static_cast<double>(wanted.size());
}

double gradient_norm(const nn::Linear& layer) { return norm(layer.weight.grad().values()); }

Snapshot examine(const Model& model, const Batch& batch) {
  const nn::NoGrad off;
  nn::AttentionReport report;
  const Tensor logits = model(batch.keys, batch.values, &report);
  const auto same = [](double x) { return x; };
  Snapshot s;
  s.loss = nn::cross_entropy(logits, batch.labels).item();
  s.accuracy = accuracy(logits, batch.labels);
  s.max_weight = mean_of(report.max_weight, same);
  s.saturated = mean_of(report.max_weight, [](double p) { return p > 0.99 ? 1.0 : 0.0; });
  s.entropy = mean_of(report.entropy, same);
  s.logit_var = mean_of(report.logit_var, same);
  return s;
}

// What q·k is multiplied by in the end, × √d_k, if that is learned.
std::vector<double> sharpness(const Model& model, const Batch& batch, std::int64_t d_k) {
  const nn::NoGrad off;
  std::vector<double> found;
  if (const auto* learned = dynamic_cast<const nn::TemperatureScore*>(&model.attention.score())) {
    for (const double tau : learned->tau.values()) found.push_back(std::sqrt(static_cast<double>(d_k)) / tau);
  } else if (const auto* by_query = dynamic_cast<const nn::QueryScaleScore*>(&model.attention.score())) {
    const Tensor q = model.query(batch.keys, batch.values);
    const Tensor scale = (*by_query)(q, q).scale_tensor;  // (B, heads, questions)
    for (const double x : scale.values()) found.push_back(x * std::sqrt(static_cast<double>(d_k)));
  }
  return found;
}

// The weights of the first sequence's questions, one matrix per head: (questions, tokens).
std::vector<Matrix> patterns(const Model& model, const Batch& batch) {
  const nn::NoGrad off;
  nn::AttentionReport report;
  report.with_weights = true;
  model(batch.keys, batch.values, &report);
  const std::vector<double> all = report.weights.values();  // (B, heads, questions, N)
  std::vector<Matrix> heads;
  for (std::int64_t h = 0; h < kHeads; ++h) {
    Matrix& weights = heads.emplace_back(kQuestions, kLength);
    std::copy_n(all.begin() + h * kQuestions * kLength, kQuestions * kLength, weights.values.begin());
  }
  return heads;
}

// The mean weight that a question gives to its answer.
double on_answer(const Matrix& weights, const std::vector<std::int64_t>& answers) {
  double sum = 0;
  for (std::int64_t i = 0; i < weights.rows; ++i) sum += weights.at(i, answers[static_cast<std::size_t>(i)]);
  return sum / static_cast<double>(weights.rows);
}

}  // namespace

double recall_chance() { return std::log(static_cast<double>(kValues)); }

bool Trained::reached(double target) const {
  return std::any_of(snapshots.begin(), snapshots.end(), [&](const Snapshot& s) { return s.loss <= target; });
}

double Trained::steps_to(double target) const {
  for (std::size_t i = 0; i < snapshots.size(); ++i) {
    const Snapshot& s = snapshots[i];
    if (s.loss > target) continue;
    if (i == 0) return s.step;
    const Snapshot& before = snapshots[i - 1];
    return before.step + (s.step - before.step) * (before.loss - target) / (before.loss - s.loss);
  }
  return last().step;
}

double Trained::settled() const {
  const double near = 0.05 * std::abs(snapshots.front().loss - last().loss);
  std::size_t i = snapshots.size() - 1;
  while (i > 1 && std::abs(snapshots[i - 1].loss - last().loss) <= near) --i;
  return snapshots[i].step;
}

nn::ScoreMaker fixed_temperature(double factor) {
  class Fixed : public nn::ScoreFunction {
   public:
    explicit Fixed(double scale) : scale_(scale) {}
    nn::Scored operator()(const nn::Tensor& q, const nn::Tensor& k) const override {
      return {.q = q, .k = k, .scale = scale_};
    }

   private:
    double scale_;
  };
  return [=](std::int64_t, std::int64_t d_k) {
    return std::make_unique<Fixed>(1 / (factor * std::sqrt(static_cast<double>(d_k))));
  };
}

Trained train_recall(const RecallSettings& settings) {
  const std::string& stream = settings.stream;
  nn::Random start(settings.seed, stream + "/weights"), data(settings.seed, stream + "/data");
  nn::Random held_out(settings.seed, stream + "/examined");
  const Batch examined = draw(held_out, kExamined);
  const Model model(settings, start);
  nn::Adam optimiser(model.parameters(), {.lr = settings.lr});
  Trained trained;
  const std::vector<Matrix> before = patterns(model, examined);
  for (std::int64_t step = 0; step <= settings.steps; ++step) {
    const Batch batch = draw(data, kBatch);
    optimiser.zero_grad();
    nn::cross_entropy(model(batch.keys, batch.values), batch.labels).backward();
    if (step % settings.every == 0 || step == settings.steps) {
      Snapshot s = examine(model, examined);
      s.step = static_cast<double>(step);
      s.dw_q = gradient_norm(model.W_Q);
      s.dw_k = gradient_norm(model.W_K);
      s.dw_v = gradient_norm(model.W_V);
      trained.snapshots.push_back(s);
    }
    if (step == settings.steps) break;
    optimiser.set_lr(settings.lr * nn::warmup_cosine(step + 1, settings.steps / 10, settings.steps));
    optimiser.step();
  }
  trained.sharpness = sharpness(model, examined, settings.d_k);
  trained.answers.assign(examined.answers.begin(), examined.answers.begin() + kQuestions);
  const std::vector<Matrix> after = patterns(model, examined);
  const auto found = [&](const Matrix& head) { return on_answer(head, trained.answers); };
  const std::size_t best = found(after[0]) >= found(after[1]) ? 0 : 1;
  trained.weights_before = before[best];
  trained.weights = after[best];
  trained.found_before = found(before[best]);
  trained.found = found(after[best]);
  return trained;
}

}  // namespace keel::lab
