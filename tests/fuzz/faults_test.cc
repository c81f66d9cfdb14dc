// The fuzzer of arguments finds nothing in random inputs, and it finds what is planted.
#include "fuzz/faults.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <stdexcept>
#include <vector>

#include "api/backends.h"
#include "conformance/seeds.h"
#include "cpu/backend.h"

namespace keel {
namespace {

std::string fault_of_random_input(std::uint64_t seed) {
  conformance::Generator random(seed, 0xF2);
  std::vector<std::uint8_t> bytes(static_cast<std::size_t>(random.integer(0, 300)));
  for (std::uint8_t& byte : bytes) byte = static_cast<std::uint8_t>(random.next());
  return fuzz::fault_of(bytes);
}

TEST(Faults, NoneInRandomInputs) {
  for (const std::uint64_t seed : conformance::seeds(500)) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    EXPECT_EQ(fault_of_random_input(seed), "");
  }
}

// The CPU backend, to which something is done before it plans a call.
struct Broken : Backend {
  std::function<void(Problem&)> forward = [](Problem&) {};
  std::function<void(BackwardProblem&)> backward = [](BackwardProblem&) {};
  std::function<void(MergeProblem&)> merge = [](MergeProblem&) {};
  std::function<std::string(const Problem&)> refuse = [](const Problem&) { return ""; };

  const char* name() const override { return "broken"; }
  std::string refusal(const Problem& problem) const override { return refuse(problem); }
  std::string refusal(const BackwardProblem&) const override { return ""; }
  std::string refusal(const MergeProblem&) const override { return ""; }
  std::string refusal(const TangentProblem&) const override { return ""; }
  void plan(const Problem& problem, const Planning& planning, Plan& plan) const override {
    make(problem, planning, plan, forward);
  }
  void plan(const BackwardProblem& problem, const Planning& planning, Plan& plan) const override {
    make(problem, planning, plan, backward);
  }
  void plan(const MergeProblem& problem, const Planning& planning, Plan& plan) const override {
    make(problem, planning, plan, merge);
  }
  void plan(const TangentProblem& problem, const Planning& planning, Plan& plan) const override {
    cpu::backend().plan(problem, planning, plan);
  }

 private:
  template <class AnyProblem>
  static void make(AnyProblem problem, const Planning& planning, Plan& plan,
                   const std::function<void(AnyProblem&)>& change) {
    change(problem);
    cpu::backend().plan(problem, planning, plan);
  }
};

class PlantedFaults : public testing::Test {
 protected:
  void SetUp() override { backends().set(DeviceKind::cpu, &broken); }
  void TearDown() override { backends().set(DeviceKind::cpu, nullptr); }

  // That one of the first inputs shows a fault which says all of `texts`.
  void expect_found(const std::vector<std::string>& texts) {
    for (std::uint64_t seed = 0; seed < 2000; ++seed) {
      const std::string fault = fault_of_random_input(seed);
      bool all = true;
      for (const std::string& text : texts) all = all && fault.find(text) != std::string::npos;
      if (all) return;
    }
    ADD_FAILURE() << "expected a fault that says " << testing::PrintToString(texts) << ", got none";
  }

  Broken broken;
};

unsigned char& first_byte(const void* data) { return *static_cast<unsigned char*>(const_cast<void*>(data)); }

TEST_F(PlantedFaults, AForgottenOptionIsFound) {
  broken.forward = [](Problem& problem) { problem.options.softcap.reset(); };
  expect_found({"random_", "out: error"});
  expect_found({"attention on ", "out: error"});
}

TEST_F(PlantedFaults, AGradientOfAnotherFunctionIsFound) {
  broken.backward = [](BackwardProblem& problem) { problem.forward.options.softcap.reset(); };
  expect_found({"random_", "dq: error"});
  expect_found({"attention_backward on ", "dq: error"});
}

TEST_F(PlantedFaults, AWrongPositionOfASliceIsFound) {
  broken.forward = [](Problem& problem) { problem.sequences.first_query = problem.sequences.first_key = 0; };
  expect_found({"in slices", "out: "});
}

TEST_F(PlantedFaults, AMergeThatForgetsAPartIsFound) {
  broken.merge = [](MergeProblem& problem) {
    if (problem.parts.size() > 1) problem.parts.pop_back();
  };
  expect_found({"merge of ", "out at "});
  expect_found({"merge on ", "out at "});
  expect_found({"in slices", "out: "});
}

TEST_F(PlantedFaults, AnExceptionThatIsNotKeelsIsFound) {
  broken.backward = [](BackwardProblem& problem) {
    if (problem.forward.options.softcap) throw std::logic_error("planted");
  };
  expect_found({"raised planted"});
}

TEST_F(PlantedFaults, AWriteOutsideTheResultsIsFound) {
  broken.forward = [](Problem& problem) {
    if (problem.has_pairs() && problem.v.data != nullptr) first_byte(problem.v.data) ^= 1;  // null in explain()
  };
  expect_found({"which is no result's"});
}

TEST_F(PlantedFaults, ARefusalAfterAWriteIsFound) {
  broken.refuse = [](const Problem& problem) {
    if (problem.has_rows() && problem.out.data != nullptr) first_byte(problem.out.data) ^= 1;
    return "nothing today";
  };
  expect_found({"got nothing today, and wrote byte "});
}

}  // namespace
}  // namespace keel
