// OpenBLAS's number of threads belongs to the program: the training layer leaves it as it found it.
#include "nn/blas_threads.h"

#include <gtest/gtest.h>

#include <optional>
#include <thread>
#include <vector>

#include "keel/nn/nn.h"

extern "C" {
int openblas_get_num_threads() __attribute__((weak));
void openblas_set_num_threads(int threads) __attribute__((weak));
int openblas_get_parallel() __attribute__((weak));
}

namespace keel::nn {
namespace {

constexpr int kThreads = 3;  // neither one nor what this machine is likely to have

class BlasThreads : public testing::Test {
 protected:
  void SetUp() override {
    if (openblas_set_num_threads == nullptr) GTEST_SKIP() << "BLAS is not OpenBLAS";
    openblas_set_num_threads(kThreads);
    if (openblas_get_num_threads() != kThreads) GTEST_SKIP() << "OpenBLAS was built for fewer than 3 threads";
  }
};

// A product large enough for OpenBLAS to use all of its threads, and for Keel to cut it; then its gradients.
void multiply() {
  Random random(1);
  Tensor a = random.normal({256, 256}), b = random.normal({256, 256});
  a.require_grad();
  b.require_grad();
  sum(matmul(a, b)).backward();
}

TEST_F(BlasThreads, AreAsManyAfterAProductAsBefore) {
  multiply();
  EXPECT_EQ(openblas_get_num_threads(), kThreads);
  openblas_set_num_threads(2);
  multiply();
  EXPECT_EQ(openblas_get_num_threads(), 2);
}

TEST_F(BlasThreads, AreAsManyAfterProductsOfSeveralThreadsAtOnce) {
  std::vector<std::thread> callers;
  for (int i = 0; i < 4; ++i) {
    callers.emplace_back([] {
      for (int round = 0; round < 20; ++round) multiply();
    });
  }
  for (std::thread& caller : callers) caller.join();
  EXPECT_EQ(openblas_get_num_threads(), kThreads);
}

TEST_F(BlasThreads, AreAsManyAfterATrainingStep) {
  GPT model({.vocabulary = 11, .context = 16, .d_model = 32, .heads = 2, .layers = 1});
  AdamW optimiser(model.parameters(), {});
  const Tensor ids = Tensor::of({2, 8}, std::vector<std::int64_t>(16, 1));
  model.loss(ids, ids).backward();
  optimiser.step();
  EXPECT_EQ(openblas_get_num_threads(), kThreads);
}

TEST_F(BlasThreads, AreOneWhileAProductRuns) {
  constexpr int kOwn = 1;  // not OpenMP's
  if (openblas_get_parallel() != kOwn) GTEST_SKIP() << "OpenBLAS has no threads of its own";
  std::optional<OneThreadInBlas> first, second;
  first.emplace();
  EXPECT_EQ(openblas_get_num_threads(), 1);
  second.emplace();
  first.reset();
  EXPECT_EQ(openblas_get_num_threads(), 1) << "the second product still runs";
  second.reset();
  EXPECT_EQ(openblas_get_num_threads(), kThreads);
}

TEST_F(BlasThreads, SetByTheProgramMeanwhileStay) {
  {
    const OneThreadInBlas product;
    openblas_set_num_threads(2);
  }
  EXPECT_EQ(openblas_get_num_threads(), 2);
}

}  // namespace
}  // namespace keel::nn
