// The seam for devices, with a backend of a few lines: it is chosen by device, refuses with a reason, and is run.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "api/backends.h"
#include "core/message.h"
#include "keel/attention.h"

namespace keel {
namespace {

using testing::HasSubstr;

constexpr Device kElsewhere = {DeviceKind::extension, 1};

// Writes its fill to every element of out, or of dq.
struct Filling : PlannedCall {
  float* to = nullptr;
  std::int64_t count = 1;
  float value = 0;

  void set(const MutableTensorView& view, float fill) {
    to = static_cast<float*>(view.data);
    value = fill;
    for (const std::int64_t n : view.shape) count *= n;
  }
  void execute() const override { std::fill_n(to, count, value); }
  std::vector<std::pair<std::string, std::string>> facts() const override { return {{"fills", std::to_string(count)}}; }
};

class FillBackend : public Backend {
 public:
  const char* name() const override { return "fill"; }
  std::string refusal(const Problem& p) const override {
    return p.d_v > 8 ? concat("d_v ", p.d_v, ", above 8") : std::string();
  }
  std::string refusal(const BackwardProblem& p) const override {
    return p.gradients.dk.given() ? "dk, which it does not compute" : "";
  }
  std::string refusal(const MergeProblem&) const override { return ""; }
  std::string refusal(const TangentProblem& p) const override {
    return p.is_double ? "second derivatives, which it does not compute" : "";
  }
  void plan(const Problem& p, const Planning&, Plan& plan) const override { fill(p.out, 7.0f, plan); }
  void plan(const BackwardProblem& p, const Planning&, Plan& plan) const override { fill(p.gradients.dq, 9.0f, plan); }
  void plan(const MergeProblem& p, const Planning&, Plan& plan) const override { fill(p.out, 11.0f, plan); }
  void plan(const TangentProblem& p, const Planning&, Plan& plan) const override { fill(p.tout, 13.0f, plan); }

 private:
  static void fill(const MutableTensorView& view, float value, Plan& plan) {
    plan.kernel = "fill";
    plan.emplace<Filling>().set(view, value);
  }
};

class OnADevice : public testing::Test {
 protected:
  void SetUp() override { backends().set(DeviceKind::extension, &backend_); }
  void TearDown() override { backends().set(DeviceKind::extension, nullptr); }

  // A tensor of (1, 2, 3, d) on the device; the memory is ordinary.
  MutableTensorView tensor(std::int64_t d) {
    auto& memory = arrays_.emplace_back(static_cast<std::size_t>(6 * d), 1.0f);
    MutableTensorView x = view(memory.data(), {1, 2, 3, d});
    x.device = kElsewhere;
    return x;
  }
  float first(const MutableTensorView& x) const { return *static_cast<const float*>(x.data); }

  template <class Call>
  Error error_of(const Call& call) {
    try {
      call();
    } catch (const Error& error) {
      return error;
    }
    return Error(ErrorCode::io, "nothing was raised");
  }

 private:
  FillBackend backend_;
  std::vector<std::vector<float>> arrays_;
};

TEST_F(OnADevice, TheBackendOfTheDeviceRuns) {
  const MutableTensorView q = tensor(4), out = tensor(4);
  attention(q, tensor(4), tensor(4), out);
  EXPECT_EQ(first(out), 7.0f);
  EXPECT_EQ(first(q), 1.0f);
}

TEST_F(OnADevice, TheBackendRunsGradientsToo) {
  const MutableTensorView dq = tensor(4);
  std::vector<float> values(6);
  MutableRowView lse = row_view(values.data(), {1, 2, 3});
  lse.device = kElsewhere;
  const BackwardInputs inputs = {
      .q = tensor(4), .k = tensor(4), .v = tensor(4), .out = tensor(4), .lse = lse, .dout = tensor(4)};
  attention_backward(inputs, {.dq = dq});
  EXPECT_EQ(first(dq), 9.0f);
  const Error error = error_of([&] { attention_backward(inputs, {.dk = tensor(4)}); });
  EXPECT_EQ(error.code(), ErrorCode::unsupported);
  EXPECT_STREQ(error.what(),
               "[attention_backward] expected a call that the fill backend serves, got dk, which it does not compute");
}

TEST_F(OnADevice, TheBackendMergesToo) {
  const MutableTensorView out = tensor(4);
  std::vector<float> values(6);
  MutableRowView lse = row_view(values.data(), {1, 2, 3});
  lse.device = kElsewhere;
  const Partial parts[] = {{.out = tensor(4), .lse = lse}};
  merge(parts, out);
  EXPECT_EQ(first(out), 11.0f);
}

TEST_F(OnADevice, ARefusalSaysWhyAndNothingIsWritten) {
  const MutableTensorView out = tensor(9);
  const Error error = error_of([&] { attention(tensor(9), tensor(9), tensor(9), out); });
  EXPECT_EQ(error.code(), ErrorCode::unsupported);
  EXPECT_STREQ(error.what(), "[attention] expected a call that the fill backend serves, got d_v 9, above 8");
  EXPECT_EQ(first(out), 1.0f);
}

TEST_F(OnADevice, ExplainNamesTheBackendAndItsFacts) {
  const std::string text = explain(tensor(4), tensor(4), tensor(4), tensor(4));
  EXPECT_THAT(text, HasSubstr("backend    fill\n"));
  EXPECT_THAT(text, HasSubstr("fills      24\n"));
}

TEST_F(OnADevice, ADeviceWithoutABackendIsNamed) {
  backends().set(DeviceKind::extension, nullptr);
  const Error error = error_of([&] { attention(tensor(4), tensor(4), tensor(4), tensor(4)); });
  EXPECT_EQ(error.code(), ErrorCode::unsupported);
  EXPECT_STREQ(error.what(), "[attention] expected arrays on a device that a backend serves, got them on extension:1");
}

TEST_F(OnADevice, WithoutTheCudaLibraryACallSaysSo) {
  setenv("KEEL_CUDA_LIBRARY", "no-such-file.so", 1);
  const auto on_cuda = [&] {
    MutableTensorView x = tensor(4);
    x.device = {DeviceKind::cuda, 0};
    return x;
  };
  const Error error = error_of([&] { attention(on_cuda(), on_cuda(), on_cuda(), on_cuda()); });
  EXPECT_EQ(error.code(), ErrorCode::unsupported);
  EXPECT_THAT(error.what(), HasSubstr("[attention] expected a call that the cuda backend serves, got arrays on cuda:0: "
                                      "no CUDA backend: no-such-file.so: "));
}

TEST_F(OnADevice, ArraysOnAnotherDeviceAreRefused) {
  MutableTensorView v = tensor(4);
  v.device = {};
  const Error error = error_of([&] { attention(tensor(4), tensor(4), v, tensor(4)); });
  EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
  EXPECT_STREQ(error.what(), "[attention] v: expected an array on extension:1 like the first tensor, got one on cpu");
}

TEST_F(OnADevice, ListsThereAreNotRead) {
  ListView lengths;
  lengths.data = reinterpret_cast<const void*>(std::uintptr_t{8});  // which no process may read
  lengths.dtype = DType::i64;
  lengths.shape = {1};
  lengths.strides = {1};
  lengths.device = kElsewhere;
  const MutableTensorView out = tensor(4);
  attention(tensor(4), tensor(4), tensor(4), out, {.k_lengths = lengths});
  EXPECT_EQ(first(out), 7.0f);
}

TEST_F(OnADevice, ListsOnTheCpuAreStillChecked) {
  const std::vector<std::int64_t> lengths = {4};
  const Error error = error_of([&] { attention(tensor(4), tensor(4), tensor(4), tensor(4), {.k_lengths = lengths}); });
  EXPECT_STREQ(error.what(), "[attention] k_lengths: expected lengths from 0 to 3, got 4");
}

}  // namespace
}  // namespace keel
