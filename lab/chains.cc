#include "lab/chains.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <unordered_map>
#include <unordered_set>

#include "nn/tape.h"

namespace keel::lab {

double depth_of(const nn::Tensor& y) {
  std::unordered_map<const nn::Node*, double> known;
  const std::function<double(const nn::Node*)> depth = [&](const nn::Node* node) -> double {
    if (node == nullptr || node->inputs.empty()) return 0;
    const auto found = known.find(node);
    if (found != known.end()) return found->second;
    double most = 0;
    for (const auto& input : node->inputs) most = std::max(most, depth(input.get()));
    return known[node] = most + 1;
  };
  return depth(y.impl()->node.get());
}

double path_of(const nn::Tensor& leaf, const nn::Tensor& y) {
  std::unordered_map<const nn::Node*, double> known;
  const std::function<double(const nn::Node*)> path = [&](const nn::Node* node) -> double {
    if (node == leaf.impl()->node.get()) return 0;
    if (node == nullptr || node->inputs.empty()) return INFINITY;
    const auto found = known.find(node);
    if (found != known.end()) return found->second;
    double least = INFINITY;
    for (const auto& input : node->inputs) least = std::min(least, path(input.get()));
    return known[node] = least + 1;
  };
  return path(y.impl()->node.get());
}

double count_of(std::string_view operation, const nn::Tensor& y) {
  std::unordered_set<const nn::Node*> seen;
  double count = 0;
  const std::function<void(const nn::Node*)> visit = [&](const nn::Node* node) {
    if (node == nullptr || !seen.insert(node).second) return;
    if (node->operation != nullptr && node->operation == operation) ++count;
    for (const auto& input : node->inputs) visit(input.get());
  };
  visit(y.impl()->node.get());
  return count;
}

}  // namespace keel::lab
