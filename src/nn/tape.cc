#include "nn/tape.h"

#include <algorithm>
#include <atomic>
#include <unordered_set>

#include "keel/nn/ops.h"
#include "nn/check.h"

namespace keel::nn {
namespace {

thread_local int no_grad_depth = 0;
std::atomic<std::uint64_t> next_order = 1;

std::shared_ptr<Node> node_of(const Tensor& x) { return x.given() ? x.impl()->node : nullptr; }

// Adds `more` to a gradient, in place if nothing else sees it.
void accumulate(Tensor& grad, const Tensor& more) {
  if (!grad.given()) {
    grad = more.detach();
  } else if (is_own(grad)) {
    add_in_place(grad, more);
  } else {
    grad = grad + more;
  }
}

// The nodes below `root` that have a backward, latest first.
std::vector<std::shared_ptr<Node>> nodes_below(const std::shared_ptr<Node>& root) {
  std::vector<std::shared_ptr<Node>> found, pending{root};
  std::unordered_set<const Node*> seen{root.get()};
  while (!pending.empty()) {
    std::shared_ptr<Node> node = std::move(pending.back());
    pending.pop_back();
    for (const auto& input : node->inputs) {
      if (input != nullptr && seen.insert(input.get()).second) pending.push_back(input);
    }
    if (node->used) {
      refuse("backward", "expected a tape that has not run yet, got the result of ", node->operation,
             " whose tape ran and was freed");
    }
    if (node->backward || node->into) found.push_back(std::move(node));
  }
  std::sort(found.begin(), found.end(), [](const auto& a, const auto& b) { return a->order > b->order; });
  return found;
}

void run(Node& node) {
  const NoGrad off;
  if (node.into) {
    Tensor& dx = node.inputs[0]->grad;
    if (!dx.given())
      dx = Tensor::zeros(node.shape, node.grad.dtype());
    else if (!is_own(dx))
      dx = dx.clone();
    node.into(node.grad, dx);
    return;
  }
  std::vector<Tensor> gradients = node.backward(node.grad);
  for (std::size_t i = 0; i < node.inputs.size(); ++i) {
    if (node.inputs[i] == nullptr || !gradients[i].given()) continue;
    // A leaf's gradient is for users to read: dense, not repeated or transposed.
    const bool leaf = node.inputs[i]->operation == nullptr;
    const Tensor gradient = leaf ? dense(gradients[i]) : std::move(gradients[i]);
    gradients[i] = Tensor();
    accumulate(node.inputs[i]->grad, gradient);
  }
}

}  // namespace

bool is_own(const Tensor& grad) {
  return grad.impl().use_count() == 1 && grad.impl()->storage.use_count() == 1 && grad.dense();
}

// A tape can be long (a recurrent network over a long sequence), too long to be freed by recursion.
Node::~Node() {
  thread_local std::vector<std::shared_ptr<Node>>* pending = nullptr;
  if (pending != nullptr) {
    for (auto& input : inputs) pending->push_back(std::move(input));
    return;
  }
  std::vector<std::shared_ptr<Node>> list = std::move(inputs);
  pending = &list;
  backward = nullptr;  // may hold tensors, which hold nodes
  into = nullptr;
  while (!list.empty()) {
    std::shared_ptr<Node> node = std::move(list.back());
    list.pop_back();
    node.reset();
  }
  pending = nullptr;
}

NoGrad::NoGrad() { ++no_grad_depth; }
NoGrad::~NoGrad() { --no_grad_depth; }

bool on_tape(std::initializer_list<Tensor> inputs) {
  return no_grad_depth == 0 &&
         std::any_of(inputs.begin(), inputs.end(), [](const Tensor& x) { return node_of(x) != nullptr; });
}

Tensor record(const char* operation, Tensor y, const std::vector<Tensor>& inputs, Backward backward) {
  if (no_grad_depth > 0) return y;
  auto node = std::make_shared<Node>();
  bool wanted = false;
  for (const Tensor& x : inputs) {
    node->inputs.push_back(node_of(x));
    wanted = wanted || node->inputs.back() != nullptr;
  }
  if (!wanted) return y;
  node->backward = std::move(backward);
  node->operation = operation;
  node->order = next_order++;
  y.impl()->node = std::move(node);
  return y;
}

Tensor record_into(const char* operation, Tensor y, const Tensor& input, BackwardInto into) {
  y = record(operation, std::move(y), {input}, nullptr);
  if (y.impl()->node != nullptr) {
    y.impl()->node->into = std::move(into);
    y.impl()->node->shape = input.shape();
  }
  return y;
}

Tensor& Tensor::require_grad() {
  check_floating("require_grad", "x", *this);
  if (impl_->node == nullptr) impl_->node = std::make_shared<Node>();
  if (impl_->node->operation != nullptr) {
    refuse("require_grad", "x: expected a leaf, got the result of ", impl_->node->operation, "; detach() it first");
  }
  return *this;
}

bool Tensor::requires_grad() const { return impl_ != nullptr && impl_->node != nullptr; }

Tensor Tensor::grad() const { return requires_grad() ? impl_->node->grad : Tensor(); }

void Tensor::set_grad(const Tensor& grad) const {
  if (!requires_grad()) refuse("set_grad", "expected a tensor that requires a gradient, got one that does not");
  if (grad.given()) check_shape("set_grad", "grad", grad, shape());
  impl_->node->grad = grad;
}

void Tensor::zero_grad() const {
  if (requires_grad()) impl_->node->grad = Tensor();
}

void Tensor::backward(const Tensor& seed) const {
  check_given("backward", "x", *this);
  if (!requires_grad()) refuse("backward", "expected a tensor on the tape, got one that no parameter led to");
  if (seed.given()) {
    check_shape("backward", "seed", seed, shape());
    check_same_dtype("backward", "seed", seed, "x", *this);
  } else if (elements() != 1) {
    refuse("backward", "expected a scalar, or a seed, got shape ", shape_text(shape()));
  }
  auto nodes = nodes_below(impl_->node);
  accumulate(impl_->node->grad, seed.given() ? seed : Tensor::full(shape(), 1.0, dtype()));
  for (auto& node : nodes) {
    if (node->grad.given()) run(*node);
    node->grad = Tensor();
    node->backward = nullptr;
    node->into = nullptr;
    node->inputs.clear();
    node->used = true;
    node.reset();
  }
}

}  // namespace keel::nn
