// keel info: the machine, and with --plan how a call would be served on it.
#include <fmt/format.h>

#include <memory>
#include <nlohmann/json.hpp>

#include "cli/commands.h"
#include "cli/common/arguments.h"
#include "cli/common/terminal.h"
#include "cli/operator_flags.h"
#include "cli/tensors.h"
#include "cuda/library.h"
#include "io/messages.h"
#include "keel/attention.h"
#include "runtime/machine.h"

namespace keel::cli {
namespace {

using Json = nlohmann::ordered_json;

constexpr const char* kInfoExamples =
    "Examples:\n"
    "  keel info\n"
    "  keel info --plan --shape 1,8,1024,64 --causal top_left\n"
    "  keel info --plan --shape 1,8,1024,64 --causal top_left --backward\n"
    "  keel info --plan --shape 1,32,1,128 --kv-heads 8 --n-k 4096 --dtype bf16 --causal bottom_right\n";

class Info {
 public:
  void add_to(CLI::App& command) {
    command.add_flag("--json", json_, "Print JSON");
    command.add_flag("--plan", plan_, "Explain how attention over the arrays of --shape would be served");
    const auto add = [&](const char* name, auto& value, const char* type, const char* help) {
      return command.add_option(name, value, help)->type_name(type)->group("Problem")->check(kNotEmpty);
    };
    add("--shape", shape_, "B,H,N,D", "Shape of q");
    add("--kv-heads", kv_heads_, "H", "Heads of k and v; as in q by default");
    add("--n-k", n_k_, "N", "Keys; as many as queries by default");
    add("--d-v", d_v_, "D", "Head size of v; that of q by default");
    add("--dtype", dtype_, "TYPE", "f64, f32, f16 or bf16")->check(CLI::IsMember({"f64", "f32", "f16", "bf16"}));
    add("--mask", mask_, "SHAPE", "A boolean mask of this shape, such as 1,1,1024,1024");
    add("--bias", bias_, "SHAPE", "A bias of this shape");
    const auto flag = [&](const char* name, bool& value, const char* help) {
      command.add_flag(name, value, help)->group("Problem");
    };
    flag("--alibi", alibi_, "ALiBi slopes");
    flag("--sinks", sinks_, "Sink logits");
    flag("--lse", lse_, "Request lse");
    flag("--weights", weights_, "Request the weights");
    flag("--stats", stats_, "Request the per-head statistics");
    flag("--backward", backward_, "Plan the gradients with respect to q, k and v, and to the bias and sinks if given");
    for (const char* result : {"--lse", "--weights", "--stats"}) {
      command.get_option("--backward")->excludes(command.get_option(result));
    }
    flags_.add_to(command);
    command_ = &command;
    command.footer(kInfoExamples);
  }

  void run() {
    if (plan_) return print_plan();
    for (const CLI::Option* option : command_->get_options()) {
      const bool described = option->get_group() == "Problem" || option->get_group() == "Operator";
      if (described && option->count() > 0) throw CLI::ValidationError(option->get_name(), "expected --plan with it");
    }
    print_machine();
  }

 private:
  void print_machine() const {
    const Machine& m = machine();
    const int gpus = cuda::count_gpus();
    if (json_) {
      Json facts = {{"keel", version()},      {"cpu", m.cpu},           {"targets", m.targets},
                    {"threads", m.threads},   {"l1_bytes", m.l1_bytes}, {"l2_bytes", m.l2_bytes},
                    {"l3_bytes", m.l3_bytes}, {"units", Json::array()}, {"gpus", Json::array()}};
      for (const MatrixUnitState& unit : m.units) {
        facts["units"].push_back({{"name", unit.name}, {"used", m.bf16_unit == unit.unit}, {"why_not", unit.why_not}});
      }
      for (int i = 0; i < gpus; ++i) {
        const cuda::Gpu& gpu = cuda::gpu(i).gpu;
        facts["gpus"].push_back({{"name", gpu.name},
                                 {"compute_capability", fmt::format("{}.{}", gpu.major, gpu.minor)},
                                 {"processors", gpu.processors},
                                 {"memory_bytes", gpu.memory_bytes}});
      }
      if (gpus == 0) facts["no_gpu"] = cuda::gpu(0).reason;
      fmt::print("{}\n", facts.dump(2, ' ', false, Json::error_handler_t::replace));
      return;
    }
    fmt::print("{} {}\n", bold(fmt::format("{:<10}", "keel")), version());
    fmt::print("{} {}\n", bold(fmt::format("{:<10}", "cpu")), m.cpu);
    fmt::print("{} {}\n", bold(fmt::format("{:<10}", "targets")), fmt::join(m.targets, " "));
    fmt::print("{} {}\n", bold(fmt::format("{:<10}", "threads")), m.threads);
    fmt::print("{} L1 {}, L2 {}, L3 {}\n", bold(fmt::format("{:<10}", "caches")), bytes_text(m.l1_bytes),
               bytes_text(m.l2_bytes), bytes_text(m.l3_bytes));
    for (const MatrixUnitState& unit : m.units) {
      fmt::print("{} {}{}\n", bold(fmt::format("{:<10}", "unit")), unit.name,
                 !unit.why_not.empty()          ? ": not used (" + unit.why_not + ")"
                 : m.bf16_unit != unit.unit     ? ": not used (slower than another way on this CPU)"
                 : unit.unit == MatrixUnit::amx ? ": multiplies bf16, and f32 with split_products"
                                                : ": multiplies bf16");
    }
    for (int i = 0; i < gpus; ++i) {
      const cuda::Gpu& gpu = cuda::gpu(i).gpu;
      fmt::print("{} {}, compute capability {}.{}, {} multiprocessors, {}\n", bold(fmt::format("{:<10}", "gpu")),
                 gpu.name, gpu.major, gpu.minor, gpu.processors, bytes_text(gpu.memory_bytes));
    }
    if (gpus == 0) fmt::print("{} none ({})\n", bold(fmt::format("{:<10}", "gpu")), cuda::gpu(0).reason);
  }

  void print_plan() {
    if (shape_.empty()) throw CLI::ValidationError("--plan", "expected --shape with it, such as --shape 1,8,1024,64");
    const std::vector<std::int64_t> q = sizes(shape_, "--shape");
    const DType dtype = dtype_named(dtype_);
    const std::vector<std::int64_t> k = {q[0], kv_heads_.value_or(q[1]), n_k_.value_or(q[2]), q[3]};
    const std::vector<std::int64_t> v = {k[0], k[1], k[2], d_v_.value_or(q[3])};
    Options options = flags_.options();
    if (!mask_.empty()) options.mask = described<4>(DType::boolean, sizes(mask_, "--mask"), "mask");
    if (!bias_.empty()) options.bias = described<4>(dtype, sizes(bias_, "--bias"), "bias");
    if (alibi_) options.alibi = described<1>(DType::f32, {q[1]}, "alibi");
    if (sinks_) options.sinks = described<1>(DType::f32, {q[1]}, "sinks");
    const Arrays arrays = {.q = described<4>(dtype, q, "q"),
                           .k = described<4>(dtype, k, "k"),
                           .v = described<4>(dtype, v, "v"),
                           .out = described<4>(dtype, {q[0], q[1], q[2], v[3]}, "out"),
                           .lse = described<3>(accumulation_dtype(dtype), {q[0], q[1], q[2]}, "lse")};
    const std::string text = backward_ ? explain_backward(arrays, options) : explain_forward(arrays, options);
    if (json_) {
      const Json facts = {{"q", q}, {"k", k}, {"v", v}, {"dtype", dtype_}, {"plan", lines(text)}};
      fmt::print("{}\n", facts.dump(2));
    } else {
      fmt::print("q {}, k {}, v {}, {}\n{}", io::shape_text(q), io::shape_text(k), io::shape_text(v), dtype_, text);
    }
  }

  struct Arrays {
    MutableTensorView q, k, v, out;
    MutableRowView lse;
  };

  std::string explain_forward(const Arrays& a, const Options& options) const {
    const auto& q = a.q.shape;
    Outputs outputs;
    if (lse_) outputs.lse = a.lse;
    if (weights_) outputs.weights = described<4>(a.lse.dtype, {q[0], q[1], q[2], a.k.shape[2]}, "weights");
    const std::int64_t entries = options.q_offsets.empty() ? q[0] : options.q_offsets.size() - 1;
    std::vector<HeadStatistics> heads(stats_ && entries > 0 && q[1] > 0 ? static_cast<std::size_t>(entries * q[1]) : 0);
    outputs.heads = heads;
    return explain(a.q, a.k, a.v, a.out, options, outputs);
  }

  std::string explain_backward(const Arrays& a, const Options& options) const {
    Gradients gradients{.dq = a.q, .dk = a.k, .dv = a.v};
    if (!bias_.empty()) gradients.dbias = described<4>(a.q.dtype, sizes(bias_, "--bias"), "dbias");
    if (sinks_) gradients.dsinks = described<1>(a.lse.dtype, {a.q.shape[1]}, "dsinks");
    return explain({.q = a.q, .k = a.k, .v = a.v, .out = a.out, .lse = a.lse, .dout = a.out}, gradients, options);
  }

  static std::vector<std::int64_t> sizes(const std::string& text, const char* flag) {
    std::vector<std::int64_t> shape = integers(text, flag);
    if (shape.size() != 4) {
      throw CLI::ValidationError(flag, fmt::format("expected 4 sizes such as 1,8,1024,64, got '{}'", text));
    }
    return shape;
  }

  static DType dtype_named(const std::string& name) {
    for (const DType dtype : {DType::f64, DType::f32, DType::f16, DType::bf16}) {
      if (name == name_of(dtype)) return dtype;
    }
    throw CLI::ValidationError("--dtype", "expected f64, f32, f16 or bf16, got '" + name + "'");
  }

  static std::vector<std::string> lines(const std::string& text) {
    std::vector<std::string> result;
    for (std::size_t start = 0; start < text.size();) {
      const std::size_t end = std::min(text.find('\n', start), text.size());
      result.push_back(text.substr(start, end - start));
      start = end + 1;
    }
    return result;
  }

  const CLI::App* command_ = nullptr;
  OperatorFlags flags_;
  bool json_ = false, plan_ = false;
  std::string shape_, dtype_ = "f32", mask_, bias_;
  std::optional<std::int64_t> kv_heads_, n_k_, d_v_;
  bool alibi_ = false, sinks_ = false, lse_ = false, weights_ = false, stats_ = false, backward_ = false;
};

}  // namespace

void add_info(CLI::App& app) {
  CLI::App* command = app.add_subcommand("info", "This machine, and how a call would be served on it");
  const auto info = std::make_shared<Info>();
  info->add_to(*command);
  command->callback([info] { info->run(); });
}

}  // namespace keel::cli
