#pragma once

#include "cpu/backward.h"
#include "cpu/forward.h"
#include "cpu/head_statistics.h"
#include "cpu/tangent.h"
#include "cpu/unit.h"
#include "plan/plan.h"

// The CPU backend's part of a plan: kernel, SIMD target, tiles and tasks, and the call itself. plan.cc makes it,
// run_forward.cc, run_key_sums.cc and run_backward.cc run it.
namespace keel::cpu {

// Whether f32 is multiplied in three parts of bf16. For any numbers of rows, keys and threads alike, so that a row has
// the same bits alone, among others and in a slice.
bool splits_floats(const Problem& p, const Machine& machine);

struct ForwardPlan : PlannedCall {
  explicit ForwardPlan(const Problem& problem) : call(problem) {}

  ForwardCall call;
  ForwardKernel kernel;
  HeadOutputs heads;
  std::int64_t target = 0;            // one of Highway's
  const UnitKernels* unit = nullptr;  // the matrix unit, if one multiplies
  bool has_rows = false;              // else there is nothing to run
  bool split_keys = false;            // chunks of keys become separate tasks, merged in order
  std::int64_t heads_together = 1;    // head groups that such a task takes block by block
  bool uneven_rows = false;           // later rows see more keys
  int threads = 1;
  std::int64_t tasks = 1;
  std::int64_t thread_bytes = 0;  // of scratch memory, per thread

  int key_threads = 1;  // of the second pass, which adds up key_sums
  std::int64_t key_tasks = 0, key_thread_bytes = 0;

  void execute() const override;
  std::vector<std::pair<std::string, std::string>> facts() const override;
};

// What plans of backward() and of tangents share.
struct BlockPlan : PlannedCall {
  Gradients gradients;
  std::int64_t target = 0;
  const UnitKernels* unit = nullptr;
  bool has_rows = false;                            // else, or without keys, every gradient is 0
  bool split_keys = false;                          // blocks (of keys; of rows for tangents) become separate tasks
  bool chain_entries = false, chain_heads = false;  // one task takes these in turn, as they share sums of dbias
  int threads = 1;
  std::int64_t tasks = 1;
  std::int64_t thread_bytes = 0;
};

struct BackwardPlan : BlockPlan {
  using AnyCall = BackwardCall;
  using Head = BackwardHead;
  explicit BackwardPlan(const BackwardProblem& problem) : call(problem) {}

  BackwardCall call;
  BackwardKernel kernel;

  const BackwardCall& backward() const { return call; }
  void execute() const override;
  std::vector<std::pair<std::string, std::string>> facts() const override;
};

struct TangentPlan : BlockPlan {
  using AnyCall = TangentCall;
  using Head = TangentHead;
  explicit TangentPlan(const TangentProblem& problem)
      : call(problem, problem.backward), tout(problem.tout), tlse(problem.tlse) {}

  TangentCall call;
  TangentKernel kernel;
  MutableTensorView tout;
  MutableRowView tlse;

  const BackwardCall& backward() const { return call.backward; }
  void execute() const override;
  std::vector<std::pair<std::string, std::string>> facts() const override;
};

}  // namespace keel::cpu
