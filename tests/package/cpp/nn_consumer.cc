// The training layer outside the source tree: a few steps of a small model, and an error caught across the library's
// edge.
#include <keel/nn/nn.h>

#include <cstdio>
#include <cstring>

int main() {
  using namespace keel::nn;
  GPT model({.vocabulary = 4, .context = 4, .d_model = 8, .heads = 2, .layers = 1});
  AdamW optimiser(model.parameters(), {.lr = 1e-2});
  const Tensor ids = Tensor::of<std::int64_t>({1, 4}, {0, 1, 2, 3}),
               next = Tensor::of<std::int64_t>({1, 4}, {1, 2, 3, 0});
  double first = 0, last = 0;
  for (int step = 0; step < 20; ++step) {
    const Tensor loss = model.loss(ids, next);
    loss.backward();
    optimiser.step();
    optimiser.zero_grad();
    (step == 0 ? first : last) = loss.item();
  }
  if (!(last < first)) {
    std::fprintf(stderr, "FAILED: the loss fell, from %f, got %f\n", first, last);
    return 1;
  }
  try {
    matmul(Tensor::zeros({2, 3}), Tensor::zeros({2, 3}));
    std::fprintf(stderr, "FAILED: shapes that do not fit raise keel::Error\n");
    return 1;
  } catch (const keel::Error& error) {
    return std::strncmp(error.what(), "[matmul]", 8) == 0 ? 0 : 1;
  }
}
