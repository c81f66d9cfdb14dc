#include "lab/translate/search.h"

#include <algorithm>
#include <limits>
#include <numeric>

#include "lab/translate/batch.h"

namespace keel::lab::translate {
namespace {

using nn::Tensor;

// Rows `which` of x, along its first dimension.
Tensor rows_of(const Tensor& x, const std::vector<std::int64_t>& which) {
  nn::Shape shape = x.shape();
  shape[0] = std::ssize(which);
  if (x.dtype() == DType::i64) {
    const auto from = x.data<std::int64_t>();
    const std::int64_t width = x.elements() / x.size(0);
    std::vector<std::int64_t> ids;
    for (const std::int64_t row : which) {
      const auto begin = from.begin() + row * width;
      ids.insert(ids.end(), begin, begin + width);
    }
    return Tensor::of(shape, ids);
  }
  const Tensor ids = Tensor::of({std::ssize(which)}, which);
  return reshape(embedding(reshape(x, {x.size(0), -1}), ids), shape);
}

struct Hypothesis {
  Sentence words;
  double score = 0;  // log probability
};

}  // namespace

std::vector<Sentence> greedy(const Model& model, const Tensor& source, std::int64_t longest) {
  const nn::NoGrad off;
  const std::int64_t batch = source.size(0);
  Rows rows = model.start(source);
  std::vector<Sentence> sentences(static_cast<std::size_t>(batch));
  std::vector<bool> ended(sentences.size());
  std::vector<std::int64_t> last(sentences.size(), kEnd);
  for (std::int64_t n = 0; n < longest && std::count(ended.begin(), ended.end(), false) > 0; ++n) {
    const Tensor logits = model.step(rows, Tensor::of({batch}, last));
    const auto values = logits.data<float>();
    const std::int64_t words = logits.size(1);
    for (std::size_t row = 0; row < sentences.size(); ++row) {
      const auto begin = values.begin() + static_cast<std::ptrdiff_t>(row) * words;
      last[row] = std::max_element(begin, begin + words) - begin;
      ended[row] = ended[row] || last[row] == kEnd;
      if (!ended[row]) sentences[row].push_back(last[row]);
    }
  }
  return sentences;
}

Sentence beam(const Model& model, const Tensor& source, std::int64_t width, std::int64_t longest) {
  const nn::NoGrad off;
  Rows rows = model.start(source);
  std::vector<Hypothesis> alive{{}};
  Hypothesis best{{}, -std::numeric_limits<double>::infinity()};  // its score per word
  const auto finish = [&](Hypothesis h, bool with_end) {
    h.score /= static_cast<double>(h.words.size() + (with_end ? 1 : 0));
    if (h.score > best.score) best = std::move(h);
  };
  for (std::int64_t n = 0; n < longest; ++n) {
    std::vector<std::int64_t> last;
    for (const Hypothesis& h : alive) last.push_back(h.words.empty() ? kEnd : h.words.back());
    const Tensor scores = log_softmax(model.step(rows, Tensor::of({std::ssize(last)}, last)));
    const auto values = scores.data<float>();
    const std::int64_t words = scores.size(1);
    const auto score_of = [&](std::int64_t i) {
      return alive[static_cast<std::size_t>(i / words)].score +
             static_cast<double>(values[static_cast<std::size_t>(i)]);
    };
    std::vector<std::int64_t> order(values.size());
    std::iota(order.begin(), order.end(), std::int64_t{0});
    const auto kept = std::min<std::int64_t>(width, std::ssize(order));
    std::partial_sort(order.begin(), order.begin() + kept, order.end(), [&](std::int64_t a, std::int64_t b) {
      return score_of(a) != score_of(b) ? score_of(a) > score_of(b) : a < b;
    });
    std::vector<Hypothesis> next;
    std::vector<std::int64_t> from;
    for (std::int64_t i = 0; i < kept; ++i) {
      const std::int64_t at = order[static_cast<std::size_t>(i)];
      Hypothesis h{alive[static_cast<std::size_t>(at / words)].words, score_of(at)};
      if (at % words == kEnd) {
        finish(std::move(h), true);
        continue;
      }
      h.words.push_back(at % words);
      next.push_back(std::move(h));
      from.push_back(at / words);
    }
    alive = std::move(next);
    if (alive.empty()) break;
    for (Tensor& row : rows) row = rows_of(row, from);
  }
  for (Hypothesis& h : alive) finish(std::move(h), false);
  return best.words;
}

}  // namespace keel::lab::translate
