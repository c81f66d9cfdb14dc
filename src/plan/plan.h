#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <memory>
#include <new>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/problem.h"
#include "plan/tiles.h"
#include "runtime/machine.h"

// From a validated problem to a plan: which backend serves it, and how. A backend belongs to a kind of device and
// has three tasks: say whether it can serve a problem (or why not), plan how, and do it. The CPU's answers are in
// src/cpu.
namespace keel {
namespace cpu {
struct UnitKernels;
}

// What a test or a benchmark overrides; 0 and nullopt leave the choice to the planner. A backend ignores what does not
// apply to it. Forced key tiles are multiples of 64.
struct Forced {
  std::int64_t target = 0;  // SIMD target, as Highway counts them
  Tiles tiles = {};
  std::optional<bool> split_keys = {};
  bool share_small = false;                          // among threads, however little work there is
  bool plain = false;                                // on a GPU: by the plain kernel
  std::optional<const cpu::UnitKernels*> unit = {};  // the matrix unit for bf16; null: none
};

// What a plan depends on besides the problem, and where its reasons go.
struct Planning {
  Resources resources;
  Forced forced = {};
  std::vector<std::string>* reasons = nullptr;  // if given, gets one line per choice
};

// A backend's part of a plan: a call, and everything needed to run it. It copies what it needs from the problem; the
// arrays are the caller's.
class PlannedCall {
 public:
  virtual ~PlannedCall() = default;
  virtual void execute() const = 0;
  // What describe() prints: name and value.
  virtual std::vector<std::pair<std::string, std::string>> facts() const = 0;
};

class Backend;

// How a call is served: a pure function of the problem and Planning.
class Plan {
 public:
  template <class AnyProblem>
  Plan(const Backend& backend, const AnyProblem& problem, const Planning& planning);
  Plan(const Plan&) = delete;
  Plan& operator=(const Plan&) = delete;
  ~Plan() {
    if (!own_) call_->~PlannedCall();
  }

  const char* backend = "";
  const char* kernel = "";
  int threads = 1;
  std::int64_t tasks = 1;
  std::int64_t workspace_bytes = 0;  // beyond inputs and outputs, all threads together

  void execute() const { call_->execute(); }
  const PlannedCall& call() const { return *call_; }

  // Creates the backend's part, once. It is stored in the plan itself if it fits: a small call then allocates nothing.
  template <class Part, class... Arguments>
  Part& emplace(const Arguments&... arguments) {
    static_assert(alignof(Part) <= alignof(std::max_align_t));
    if constexpr (sizeof(Part) <= kRoom) {
      Part* const part = new (room_) Part(arguments...);
      call_ = part;
      return *part;
    } else {
      auto part = std::make_unique<Part>(arguments...);
      Part& reference = *part;
      call_ = part.get();
      own_ = std::move(part);
      return reference;
    }
  }

 private:
  static constexpr std::size_t kRoom = 2048;
  PlannedCall* call_ = nullptr;
  std::unique_ptr<PlannedCall> own_;
  alignas(std::max_align_t) std::byte room_[kRoom];
};

class Backend {
 public:
  virtual ~Backend() = default;
  virtual const char* name() const = 0;

  // Why it cannot serve a call; empty if it can.
  virtual std::string refusal(const Problem& problem) const = 0;
  virtual std::string refusal(const BackwardProblem& problem) const = 0;
  virtual std::string refusal(const MergeProblem& problem) const = 0;
  virtual std::string refusal(const TangentProblem& problem) const = 0;

  // Fills the plan and emplaces its part.
  virtual void plan(const Problem& problem, const Planning& planning, Plan& plan) const = 0;
  virtual void plan(const BackwardProblem& problem, const Planning& planning, Plan& plan) const = 0;
  virtual void plan(const MergeProblem& problem, const Planning& planning, Plan& plan) const = 0;
  virtual void plan(const TangentProblem& problem, const Planning& planning, Plan& plan) const = 0;
};

template <class AnyProblem>
Plan::Plan(const Backend& with, const AnyProblem& problem, const Planning& planning) : backend(with.name()) {
  with.plan(problem, planning, *this);
}

// The backends of a process: at most one per kind of device.
class Backends {
 public:
  const Backend* of(DeviceKind kind) const {
    const auto at = static_cast<std::size_t>(kind);
    return at < all_.size() ? all_[at].load() : nullptr;
  }
  void set(DeviceKind kind, const Backend* backend) { all_.at(static_cast<std::size_t>(kind)) = backend; }

 private:
  std::array<std::atomic<const Backend*>, 3> all_{};
};

// The plan of the backend that the problem's device has. Raises keel::Error (unsupported) if there is none or it
// refuses.
[[nodiscard]] Plan make_plan(const Problem& problem, const Backends& backends, const Planning& planning);
[[nodiscard]] Plan make_plan(const BackwardProblem& problem, const Backends& backends, const Planning& planning);
[[nodiscard]] Plan make_plan(const MergeProblem& problem, const Backends& backends, const Planning& planning);
[[nodiscard]] Plan make_plan(const TangentProblem& problem, const Backends& backends, const Planning& planning);

// The plan as text, one fact per line.
[[nodiscard]] std::string describe(const Plan& plan, const std::vector<std::string>& reasons);

}  // namespace keel
