#include "lab/translate/batch.h"

#include <algorithm>
#include <map>
#include <numeric>

#include "keel/nn/ops.h"

namespace keel::lab::translate {
namespace {

template <class T>
void shuffle(std::vector<T>& items, nn::Random& random) {
  for (std::size_t i = items.size(); i > 1; --i) {
    std::swap(items[i - 1], items[static_cast<std::size_t>(random.below(static_cast<std::int64_t>(i)))]);
  }
}

}  // namespace

std::vector<std::vector<std::size_t>> grouped(std::span<const Coded> pairs, std::size_t size, nn::Random* random) {
  std::vector<std::size_t> order(pairs.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  if (random != nullptr) shuffle(order, *random);
  std::map<std::size_t, std::vector<std::size_t>> by_length;
  for (const std::size_t i : order) by_length[pairs[i].source.size()].push_back(i);
  std::vector<std::vector<std::size_t>> groups;
  for (const auto& [length, members] : by_length) {
    for (std::size_t begin = 0; begin < members.size(); begin += size) {
      const std::size_t end = std::min(begin + size, members.size());
      groups.emplace_back(members.begin() + static_cast<std::ptrdiff_t>(begin),
                          members.begin() + static_cast<std::ptrdiff_t>(end));
    }
  }
  if (random != nullptr) shuffle(groups, *random);
  return groups;
}

nn::Tensor source_batch(std::span<const Coded> pairs, const std::vector<std::size_t>& members) {
  std::vector<std::int64_t> ids;
  for (const std::size_t i : members) {
    ids.insert(ids.end(), pairs[i].source.begin(), pairs[i].source.end());
    ids.push_back(kEnd);
  }
  const auto rows = static_cast<std::int64_t>(members.size());
  return nn::Tensor::of({rows, static_cast<std::int64_t>(ids.size()) / rows}, ids);
}

Batch make_batch(std::span<const Coded> pairs, std::vector<std::size_t> members) {
  std::size_t longest = 0, words = 0;
  for (const std::size_t i : members) {
    longest = std::max(longest, pairs[i].target.size() + 1);
    words += pairs[i].target.size() + 1;
  }
  std::vector<std::int64_t> before, labels;
  for (const std::size_t i : members) {
    const std::vector<std::int64_t>& target = pairs[i].target;
    before.push_back(kEnd);
    before.insert(before.end(), target.begin(), target.end());
    before.resize(before.size() + longest - target.size() - 1, kEnd);
    labels.insert(labels.end(), target.begin(), target.end());
    labels.push_back(kEnd);
    labels.resize(labels.size() + longest - target.size() - 1, nn::kIgnored);
  }
  const nn::Shape shape{std::ssize(members), static_cast<std::int64_t>(longest)};
  return {.source = source_batch(pairs, members),
          .before = nn::Tensor::of(shape, before),
          .labels = nn::Tensor::of(shape, labels),
          .words = static_cast<std::int64_t>(words),
          .members = std::move(members)};
}

}  // namespace keel::lab::translate
