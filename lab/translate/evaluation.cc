#include "lab/translate/evaluation.h"

#include <algorithm>

#include "lab/translate/bleu.h"
#include "lab/translate/search.h"

namespace keel::lab::translate {
namespace {

constexpr std::size_t kBatch = 64;

}  // namespace

Quality quality(const Model& model, const Task& task, const std::vector<Pair>& words, std::span<const Coded> pairs,
                std::int64_t width) {
  if (pairs.empty()) return {};
  const std::int64_t longest = task.longest();
  std::vector<std::string> translations(pairs.size());
  std::vector<std::vector<std::string>> references(pairs.size());
  for (const auto& members : grouped(pairs, width > 1 ? 1 : kBatch, nullptr)) {
    const nn::Tensor source = source_batch(pairs, members);
    const std::vector<Sentence> found =
        width > 1 ? std::vector<Sentence>{1, beam(model, source, width, longest)} : greedy(model, source, longest);
    for (std::size_t i = 0; i < members.size(); ++i) {
      translations[members[i]] = joined(task.target.words(found[i]));
      references[members[i]] = {joined(words[members[i]].target)};
    }
  }
  Quality result{.bleu = bleu(count_matches(translations, references, Tokens::none)), .exact = 0};
  for (std::size_t i = 0; i < pairs.size(); ++i) result.exact += translations[i] == references[i].front() ? 1 : 0;
  result.exact /= static_cast<double>(pairs.size());
  return result;
}

Looking looking(const Model& model, const std::vector<Pair>& words, std::span<const Coded> pairs) {
  const nn::NoGrad off;
  Looking found;
  double rows = 0, aligned_rows = 0;
  for (auto& members : grouped(pairs, kBatch, nullptr)) {
    const Batch batch = make_batch(pairs, std::move(members));
    nn::Tensor weights;
    model.logits(batch.source, batch.before, &weights);
    if (!weights.given()) return {};
    const auto values = weights.data<float>();
    const auto n = static_cast<std::size_t>(weights.size(1)), keys = static_cast<std::size_t>(weights.size(2));
    for (std::size_t b = 0; b < batch.members.size(); ++b) {
      const Pair& pair = words[batch.members[b]];
      for (std::size_t i = 0; i < pairs[batch.members[b]].target.size(); ++i) {
        const auto row = values.subspan((b * n + i) * keys, keys);
        found.sharpest += static_cast<double>(*std::max_element(row.begin(), row.end()));
        ++rows;
        if (i >= pair.alignment.size() || pair.alignment[i].empty()) continue;
        for (const std::size_t j : pair.alignment[i]) found.aligned += static_cast<double>(row[j]);
        found.even += static_cast<double>(pair.alignment[i].size()) / static_cast<double>(keys);
        ++aligned_rows;
      }
    }
  }
  found.sharpest /= std::max(rows, 1.0);
  found.aligned /= std::max(aligned_rows, 1.0);
  found.even /= std::max(aligned_rows, 1.0);
  return found;
}

nn::Tensor weights_of(const Model& model, const Coded& pair) {
  const nn::NoGrad off;
  const Batch batch = make_batch(std::span(&pair, 1), {0});
  nn::Tensor weights;
  model.logits(batch.source, batch.before, &weights);
  return weights.given() ? reshape(weights, {weights.size(1), weights.size(2)}) : weights;
}

}  // namespace keel::lab::translate
