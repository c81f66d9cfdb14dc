#include <gtest/gtest.h>

#include <array>
#include <vector>

#include "api/backends.h"
#include "keel/c_api.h"
#include "plan/plan.h"

namespace keel {
namespace {

// What a GPU would be told: a backend that only remembers.
class Remembers final : public Backend {
 public:
  const char* name() const override { return "remembers"; }
  std::string refusal(const Problem&) const override { return ""; }
  std::string refusal(const BackwardProblem&) const override { return ""; }
  std::string refusal(const MergeProblem&) const override { return ""; }
  std::string refusal(const TangentProblem&) const override { return ""; }
  void plan(const Problem&, const Planning&, Plan& plan) const override { plan.emplace<Nothing>(); }
  void plan(const BackwardProblem&, const Planning&, Plan& plan) const override { plan.emplace<Nothing>(); }
  void plan(const TangentProblem&, const Planning&, Plan& plan) const override { plan.emplace<Nothing>(); }
  void plan(const MergeProblem& problem, const Planning&, Plan& plan) const override {
    stream = problem.stream;
    plan.emplace<Nothing>();
  }

  mutable void* stream = nullptr;

 private:
  struct Nothing : PlannedCall {
    void execute() const override {}
    std::vector<std::pair<std::string, std::string>> facts() const override { return {}; }
  };
};

TEST(CApi, AMergeIsQueuedOnItsStream) {
  const Remembers backend;
  backends().set(DeviceKind::extension, &backend);
  std::array<float, 8> part{}, lse{}, result{};
  const std::array<std::int64_t, 4> shape{1, 1, 2, 4};
  const auto view = [&](std::array<float, 8>& memory, int rank) {
    keel_view x = keel_make_view(memory.data(), KEEL_F32, rank, shape.data());
    x.device = {KEEL_EXTENSION, 0};
    return x;
  };
  keel_partial given;
  KEEL_INIT(&given);
  given.out = view(part, 4);
  given.lse = view(lse, 3);
  const keel_view out = view(result, 4);
  int stream = 0;
  EXPECT_EQ(keel_merge_on_stream(&given, 1, &out, nullptr, &stream), KEEL_OK) << keel_last_error();
  EXPECT_EQ(backend.stream, &stream);
  EXPECT_EQ(keel_merge(&given, 1, &out, nullptr, 0), KEEL_OK) << keel_last_error();
  EXPECT_EQ(backend.stream, nullptr);
  backends().set(DeviceKind::extension, nullptr);
}

}  // namespace
}  // namespace keel
