#include "cuda/backend.h"

#include "core/message.h"
#include "cuda/library.h"
#include "cuda/merge_call.h"
#include "cuda/plan.h"

namespace keel::cuda {
namespace {

// Raises what a function of the table returned.
void check(const char* operation, const char* why) {
  if (why != nullptr)
    throw Error(ErrorCode::device, concat("[", operation, "] expected the GPU to take the work, got ", why));
}

struct PlannedForward : PlannedCall {
  ForwardWork work;
  int device = 0;
  void* stream = nullptr;

  void execute() const override { check("attention", library().table->forward(device, stream, work)); }
  std::vector<std::pair<std::string, std::string>> facts() const override {
    if (!work.hopper) return {};
    const hopper::Cut& cut = work.cut;
    std::string tasks = concat(cut.tiles, cut.chunks > 1 ? " (tiles of rows × chunks of keys)" : " (tiles of rows)");
    return {{"tiles", concat(cut.tile_rows, " rows × ", cut.key_block, " keys")}, {"tasks", std::move(tasks)}};
  }
};

struct PlannedBackward : PlannedCall {
  BackwardWork work;
  int device = 0;
  void* stream = nullptr;

  void execute() const override { check("attention_backward", library().table->backward(device, stream, work)); }
  std::vector<std::pair<std::string, std::string>> facts() const override {
    if (!work.hopper) return {};
    const hopper::BackwardCut& cut = work.cut;
    return {{"tiles", concat(cut.query_block, " rows × ", cut.key_block, " keys")},
            {"tasks", concat(cut.tasks, " (blocks of keys)")}};
  }
};

struct PlannedMerge : PlannedCall {
  MergeCall call;
  std::vector<MergePart> parts;
  int device = 0;
  void* stream = nullptr;

  void execute() const override { check("merge", library().table->merge(device, stream, call, parts.data())); }
  std::vector<std::pair<std::string, std::string>> facts() const override { return {}; }
};

const char* kernel_name(const ForwardWork& work) {
  if (!work.hopper) return "plain";
  switch (work.choice.terms) {
    case hopper::Terms::none:
      return "Hopper";
    case hopper::Terms::any:
      return "Hopper, any terms";
    default:
      return "Hopper, a single term";
  }
}

class CudaBackend final : public Backend {
 public:
  const char* name() const override { return "cuda"; }

  std::string refusal(const Problem& p) const override {
    if (p.options.block_mask != nullptr) return "block_mask: no kernel for a GPU takes one";
    if (p.options.relative_bias.given()) return "relative_bias: no kernel for a GPU takes one";
    if (!p.options.k_starts.empty()) return "k_starts: no kernel for a GPU takes them";
    return refusal_of(p.device);
  }
  std::string refusal(const BackwardProblem& p) const override { return refusal(p.forward); }
  std::string refusal(const MergeProblem& p) const override { return refusal_of(p.out.device); }
  std::string refusal(const TangentProblem& p) const override {
    return concat("arrays on ", text_of(p.backward.forward.device), ": derivatives along tangents need the CPU");
  }

  void plan(const Problem& p, const Planning& planning, Plan& plan) const override {
    PlannedForward& part = plan.emplace<PlannedForward>();
    part.work = plan_forward(p, gpu(p.device.index).gpu, planning.reasons);
    if (planning.forced.plain) part.work.hopper = false;
    part.device = p.device.index;
    part.stream = p.options.stream;
    plan.kernel = kernel_name(part.work);
    plan.tasks = part.work.hopper ? part.work.cut.tiles : 1;
    plan.workspace_bytes = library().table->forward_workspace(part.work);
  }
  void plan(const BackwardProblem& p, const Planning& planning, Plan& plan) const override {
    PlannedBackward& part = plan.emplace<PlannedBackward>();
    part.work = plan_backward(p, gpu(p.forward.device.index).gpu, planning.reasons);
    if (planning.forced.plain) part.work.hopper = false;
    part.device = p.forward.device.index;
    part.stream = p.forward.options.stream;
    plan.kernel = part.work.hopper ? "Hopper, backward" : "plain, backward";
    plan.tasks = part.work.hopper ? part.work.cut.tasks : 1;
    plan.workspace_bytes = library().table->backward_workspace(part.work);
  }
  void plan(const MergeProblem& p, const Planning&, Plan& plan) const override {
    PlannedMerge& part = plan.emplace<PlannedMerge>();
    part.call = merge_call(p);
    part.parts = merge_parts(p);
    part.device = p.out.device.index;
    part.stream = p.stream;
    plan.kernel = "plain, merge";
  }
  void plan(const TangentProblem&, const Planning&, Plan&) const override {}  // refused

 private:
  static std::string refusal_of(const Device& device) {
    const std::string& reason = gpu(device.index).reason;
    return reason.empty() ? "" : concat("arrays on ", text_of(device), ": ", reason);
  }
};

const CudaBackend kBackend;

}  // namespace

const Backend& backend() { return kBackend; }

}  // namespace keel::cuda
