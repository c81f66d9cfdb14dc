#pragma once

#include <optional>
#include <string>
#include <vector>

#include "core/problem.h"
#include "cpu/backward.h"
#include "cpu/forward.h"
#include "runtime/machine.h"

namespace keel {

enum class Kernel { reference, streaming };

// How a call is served. A pure function of problem, machine and what is forced. Tile sizes live here alone.
struct Plan {
  Kernel kernel = Kernel::reference;
  std::int64_t target = 0;  // SIMD target, as Highway counts them
  cpu::Tiles tiles;
  bool split_keys = false;  // chunks of keys become tasks of their own, merged in order
  bool chain_entries = false,
       chain_heads = false;  // backward: one task takes these in turn, as they share sums of dbias
  int threads = 1;
  std::int64_t tasks = 1;
  std::int64_t workspace_bytes = 0;  // beyond inputs and outputs, all threads together
};

// What a test or a benchmark wants otherwise than the planner; 0 and nullopt leave the choice to it. Forced key tiles
// are multiples of 64.
struct Forced {
  std::optional<Kernel> kernel = {};
  std::int64_t target = 0;
  cpu::Tiles tiles = {};
  std::optional<bool> split_keys = {};
  bool share_small = false;  // among threads, however little there is to do
};

// `reasons`, where given, gets a line for each choice.
Plan make_plan(const Problem& problem, const Machine& machine, const Forced& forced = {},
               std::vector<std::string>* reasons = nullptr);

Plan make_plan(const BackwardProblem& problem, const Machine& machine, const Forced& forced = {},
               std::vector<std::string>* reasons = nullptr);

// The plan as text, a line a fact.
std::string describe(const Plan& plan, const std::vector<std::string>& reasons);

// What holds for a whole call, as the kernel wants it.
cpu::ForwardCall forward_call(const Problem& problem, const Plan& plan);
cpu::ForwardKernel forward_kernel(const Problem& problem, const Plan& plan);
cpu::BackwardCall backward_call(const BackwardProblem& problem, const Plan& plan);
cpu::BackwardKernel backward_kernel(const BackwardProblem& problem, const Plan& plan);

}  // namespace keel
