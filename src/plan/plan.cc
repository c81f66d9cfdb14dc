#include "plan/plan.h"

#include "core/message.h"

namespace keel {
namespace {

template <class Problem>
Plan plan_on(const char* operation, const Device& device, const Problem& problem, const Backends& backends,
             const Planning& planning) {
  const Backend* const backend = backends.of(device.kind);
  if (backend == nullptr) {
    throw Error(ErrorCode::unsupported, concat("[", operation, "] expected arrays on a device that a backend serves, ",
                                               "got them on ", text_of(device)));
  }
  if (const std::string reason = backend->refusal(problem); !reason.empty()) {
    throw Error(ErrorCode::unsupported, concat("[", operation, "] expected a call that the ", backend->name(),
                                               " backend serves, got ", reason));
  }
  return Plan(*backend, problem, planning);
}

}  // namespace

Plan make_plan(const Problem& problem, const Backends& backends, const Planning& planning) {
  return plan_on("attention", problem.device, problem, backends, planning);
}

Plan make_plan(const BackwardProblem& problem, const Backends& backends, const Planning& planning) {
  return plan_on("attention_backward", problem.forward.device, problem, backends, planning);
}

Plan make_plan(const MergeProblem& problem, const Backends& backends, const Planning& planning) {
  return plan_on("merge", problem.out.device, problem, backends, planning);
}

Plan make_plan(const TangentProblem& problem, const Backends& backends, const Planning& planning) {
  return plan_on(problem.is_double ? "attention_double_backward" : "attention_jvp", problem.backward.forward.device,
                 problem, backends, planning);
}

std::string describe(const Plan& plan, const std::vector<std::string>& reasons) {
  std::string text;
  const auto line = [&](std::string name, const std::string& value) {
    name.resize(11, ' ');
    text += name + value + "\n";
  };
  line("backend", plan.backend);
  line("kernel", plan.kernel);
  for (const auto& [name, value] : plan.call().facts()) line(name, value);
  line("threads", std::to_string(plan.threads));
  line("workspace", std::to_string((plan.workspace_bytes + 1023) / 1024) + " KiB");
  for (const std::string& reason : reasons) line("because", reason);
  return text;
}

}  // namespace keel
