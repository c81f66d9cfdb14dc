#include "bench/gpu.h"

#include <fmt/format.h>

#include <functional>
#include <memory>

#include "api/backends.h"
#include "bench/flops.h"
#include "core/problem.h"
#include "cuda/library.h"
#include "plan/plan.h"
#include "runtime/parallel.h"

namespace keel::bench {
namespace {

constexpr int kCalls = 4;                                // per sample
constexpr std::int64_t kCopied = std::int64_t{1} << 30;  // bytes, more than caches hold
constexpr std::int64_t kTokens = 16384, kWidth = 2048;
constexpr std::int64_t kLongForPlain = 2048;  // rows: beyond, the plain backward kernel would take minutes

void check(const char* why) {
  if (why != nullptr) throw Error(ErrorCode::device, std::string("expected the GPU to take the work, got ") + why);
}

// Memory on the GPU.
class Memory {
 public:
  Memory(int device, std::int64_t bytes) : device_(device) {
    check(cuda::library().tools->allocate(device, bytes, &data_));
  }
  Memory(const Memory&) = delete;
  ~Memory() { cuda::library().tools->release(device_, data_); }
  void* data() const { return data_; }

 private:
  int device_;
  void* data_ = nullptr;
};

// The seconds that the GPU takes for what `work` queues.
double seconds_of(int device, const std::function<void()>& work) {
  double seconds = 0;
  std::exception_ptr failure;
  struct Both {
    const std::function<void()>& work;
    std::exception_ptr& failure;
  } both{work, failure};
  const auto run = [](void* data) {
    auto& [what, raised] = *static_cast<Both*>(data);
    try {
      what();
    } catch (...) {
      raised = std::current_exception();
    }
  };
  check(cuda::library().tools->time(device, run, &both, &seconds));
  if (failure) std::rethrow_exception(failure);
  return seconds;
}

// A case bound to its arrays.
class GpuCall {
 public:
  GpuCall(int device, const GpuCase& c) : device_(device), case_(c) {
    const std::array<std::int64_t, 4> q_shape{c.batch, c.q_heads, c.n_q, c.d}, k_shape{c.batch, c.kv_heads, c.n_k, c.d};
    q_ = array(q_shape, c.dtype), k_ = array(k_shape, c.dtype), v_ = array(k_shape, c.dtype);
    out_ = array(q_shape, c.dtype, false);
    options_.causal = c.causal;
    if (c.window > 0) options_.window = {c.window, Window::kUnbounded};
    add_term();
    add_reports();
    if (!c.backward) return;
    outputs_.lse = rows(DType::f32);
    attention(q_, k_, v_, out_, options_, outputs_);
    inputs_ = {.q = q_, .k = k_, .v = v_, .out = out_, .lse = outputs_.lse, .dout = array(q_shape, c.dtype)};
    gradients_ = {.dq = array(q_shape, c.dtype, false),
                  .dk = array(k_shape, c.dtype, false),
                  .dv = array(k_shape, c.dtype, false)};
  }

  void run() const {
    if (case_.backward) return attention_backward(inputs_, gradients_, options_);
    attention(q_, k_, v_, out_, options_, outputs_);
  }
  double seconds() const {
    return seconds_of(device_,
                      [&] {
                        for (int i = 0; i < kCalls; ++i) run();
                      }) /
           kCalls;
  }
  std::string kernel() const {
    const Planning planning{.resources = resources()};
    if (case_.backward)
      return make_plan(make_backward_problem(inputs_, gradients_, options_), backends(), planning).kernel;
    return make_plan(problem(), backends(), planning).kernel;
  }
  // A term hides no scores from the count: masks by position alone leave work out.
  double flops() const {
    Options positions;
    positions.causal = options_.causal;
    positions.window = options_.window;
    const double forward = forward_flops(make_problem(q_, k_, v_, out_, positions, {}));
    return case_.backward ? kBackwardFlops * forward : forward;
  }
  double bytes() const { return key_value_bytes(problem()); }

 private:
  Problem problem() const { return make_problem(q_, k_, v_, out_, options_, outputs_); }

  template <std::size_t Rank>
  BasicView<Rank, void*> array(const std::array<std::int64_t, Rank>& shape, DType dtype, bool filled = true) {
    std::int64_t count = 1;
    for (const std::int64_t n : shape) count *= n;
    memory_.push_back(std::make_unique<Memory>(device_, count * size_of(dtype)));
    void* const data = memory_.back()->data();
    if (filled) check(cuda::library().tools->fill(device_, data, dtype, count, memory_.size()));
    return {data, dtype, shape, contiguous_strides(shape), {DeviceKind::cuda, device_}};
  }
  MutableRowView rows(DType dtype) {
    return array(std::array<std::int64_t, 3>{case_.batch, case_.q_heads, case_.n_q}, dtype, false);
  }

  void add_term() {
    const GpuCase& c = case_;
    switch (c.term) {
      case Term::alibi:
        options_.alibi = array(std::array<std::int64_t, 1>{c.q_heads}, DType::f32);
        break;
      case Term::mask:
        options_.mask = array(std::array<std::int64_t, 4>{1, 1, c.n_q, c.n_k}, DType::boolean);
        break;
      case Term::bias:
        options_.bias = array(std::array<std::int64_t, 4>{1, c.q_heads, c.n_q, c.n_k}, c.dtype);
        break;
      case Term::softcap:
        options_.softcap = 30.0;
        break;
      case Term::dropout:
        options_.dropout = 0.1;
        break;
      case Term::none:
        break;
    }
  }
  void add_reports() {
    if (case_.reports == RowReports::nothing) return;
    outputs_.lse = rows(DType::f32), outputs_.max_logit = rows(DType::f32);
    if (case_.reports == RowReports::lse) return;
    outputs_.entropy = rows(DType::f32);
    if (case_.reports == RowReports::entropy) return;
    outputs_.max_weight = rows(DType::f32), outputs_.logit_mean = rows(DType::f32),
    outputs_.logit_var = rows(DType::f32);
    outputs_.visible = rows(DType::i64), outputs_.logit_count = rows(DType::i64);
  }

  int device_;
  GpuCase case_;
  std::vector<std::unique_ptr<Memory>> memory_;
  TensorView q_, k_, v_;
  MutableTensorView out_;
  Options options_;
  Outputs outputs_;
  BackwardInputs inputs_;
  Gradients gradients_;
};

double products_per_second(int device) {
  double flops = 0;
  const double seconds = seconds_of(device, [&] { check(cuda::library().tools->multiply(device, &flops)); });
  return flops / seconds;
}

// Bytes read and written.
double copied_per_second(int device, const Memory& memory) {
  char* const to = static_cast<char*>(memory.data());
  const double seconds =
      seconds_of(device, [&] { check(cuda::library().tools->copy(device, to, to + kCopied / 2, kCopied / 2)); });
  return static_cast<double>(kCopied) / seconds;
}

GpuCase grid_case(DType dtype, std::int64_t d, std::int64_t n, Causal causal) {
  return {.batch = kTokens / n,
          .q_heads = kWidth / d,
          .kv_heads = kWidth / d,
          .n_q = n,
          .n_k = n,
          .d = d,
          .dtype = dtype,
          .causal = causal};
}

std::string name_of(Term term) {
  const char* const names[] = {"", " ALiBi", " boolean mask", " bias", " softcap", " dropout"};
  return names[static_cast<int>(term)];
}
std::string name_of(RowReports reports) {
  const char* const names[] = {"", " + lse, max_logit", " + entropy", " + every statistic"};
  return names[static_cast<int>(reports)];
}

}  // namespace

std::string text_of(const GpuCase& c) {
  const std::string heads =
      c.q_heads == c.kv_heads ? fmt::format("{}", c.q_heads) : fmt::format("{}/{}", c.q_heads, c.kv_heads);
  const std::string n = c.n_q == c.n_k ? fmt::format("{}", c.n_q) : fmt::format("{}:{}", c.n_q, c.n_k);
  return fmt::format("{}×{}×{}×{} {}{}{}{}{}{}", c.batch, heads, n, c.d, keel::name_of(c.dtype),
                     c.causal == Causal::none ? "" : " causal", c.window > 0 ? fmt::format(" window {}", c.window) : "",
                     name_of(c.term), name_of(c.reports), c.backward ? " backward" : "");
}

std::vector<GpuRow> gpu_rows(DType dtype, bool backward, bool quick) {
  std::vector<GpuRow> rows;
  for (const bool back : {false, true}) {
    if (back && !backward) continue;
    for (const std::int64_t d : {64, 128, 256}) {
      for (const Causal causal : {Causal::none, Causal::top_left}) {
        for (std::int64_t n = 512; n <= kTokens; n *= quick ? 8 : 2) {
          rows.push_back({back ? "backward" : "forward", grid_case(dtype, d, n, causal)});
          rows.back().subject.backward = back;
        }
      }
    }
  }
  const auto beside = [&](const char* group, const GpuCase& baseline, auto change) {
    GpuCase subject = baseline;
    change(subject);
    rows.push_back({group, subject, baseline});
  };
  for (const std::int64_t d : {64, 128}) {
    for (const RowReports reports : {RowReports::lse, RowReports::entropy, RowReports::everything}) {
      beside("statistics", grid_case(dtype, d, 4096, Causal::none), [&](GpuCase& c) { c.reports = reports; });
    }
  }
  for (const std::int64_t d : {64, 128}) {
    for (const Term term : {Term::alibi, Term::mask, Term::bias, Term::softcap, Term::dropout}) {
      for (const bool back : {false, true}) {
        if (back && !backward) continue;
        GpuCase plain = grid_case(dtype, d, 4096, Causal::none);
        plain.backward = back;
        beside("options", plain, [&](GpuCase& c) { c.term = term; });
      }
    }
  }
  const GpuCase grouped{.batch = 4, .q_heads = 32, .kv_heads = 32, .n_q = 4096, .n_k = 4096, .dtype = dtype};
  beside("options", grouped, [](GpuCase& c) { c.kv_heads = 8; });
  beside("options", grid_case(dtype, 128, 16384, Causal::top_left), [](GpuCase& c) { c.window = 1024; });
  rows.push_back({"decode", {.batch = 16, .q_heads = 32, .kv_heads = 8, .n_q = 1, .n_k = 32768, .dtype = dtype}});
  rows.push_back({"decode", {.batch = 1, .q_heads = 32, .kv_heads = 8, .n_q = 1, .n_k = 8192, .dtype = dtype}});
  return rows;
}

GpuTimes measure_gpu(int device, const GpuRow& row, int repeats) {
  GpuTimes times;
  times.row = row;
  const GpuCall subject(device, row.subject);
  std::optional<GpuCall> baseline;
  if (row.baseline) baseline.emplace(device, *row.baseline);
  times.kernel = subject.kernel();
  times.flops = subject.flops();
  times.bytes = subject.bytes();
  if (row.subject.backward && row.subject.n_q > kLongForPlain && times.kernel.starts_with("plain")) {
    times.skipped = "the plain kernel would take minutes";
    return times;
  }
  const Memory copied(device, kCopied);
  for (int i = -1; i < repeats; ++i) {
    const double before = baseline ? baseline->seconds() : 0;
    const double seconds = subject.seconds();
    const double after = baseline ? baseline->seconds() : 0;
    const double peak = products_per_second(device), copy = copied_per_second(device, copied);
    if (i < 0) continue;  // warming up
    times.seconds.push_back(seconds);
    if (baseline) times.baseline.push_back((before + after) / 2);
    times.peak.push_back(peak);
    times.copy.push_back(copy);
  }
  return times;
}

}  // namespace keel::bench
