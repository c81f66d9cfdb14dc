#include "bench/measure.h"

#include <algorithm>
#include <cmath>

#include "bench/arrays.h"
#include "bench/clock.h"
#include "bench/flops.h"
#include "bench/resident.h"
#include "runtime/machine.h"

namespace keel::bench {
namespace {

// A call, and how many of them make a sample.
struct Sampled {
  Call call;
  std::int64_t calls = 1;

  // Seconds per call. A sample of several calls begins with one that is not timed, which brings back what other rows
  // have evicted from the caches.
  double time() {
    if (calls > 1) call();
    const Stopwatch watch;
    for (std::int64_t i = 0; i < calls; ++i) call();
    return watch.seconds() / static_cast<double>(calls);
  }

  // Chooses `calls` for samples of at least `seconds`. The first call, which may have to allocate memory and wake
  // threads, counts only if it is long enough to hide that.
  void calibrate(double seconds) {
    if (time() > 2 * seconds) return;
    for (double took = time(); took * static_cast<double>(calls) < seconds; took = time()) {
      calls = static_cast<std::int64_t>(std::ceil(1.1 * seconds / took));
    }
  }
};

bool by_memory(Metric metric) { return metric == Metric::bandwidth_share || metric == Metric::update_share; }

// Of the yardstick that the row is compared with.
double share(const Result& result, double seconds, double yardstick) {
  return (by_memory(result.row.metric) ? result.bytes : result.flops) / seconds / yardstick;
}

double value_of(const Result& result, double seconds, double yardstick, double baseline_seconds) {
  switch (result.row.metric) {
    case Metric::peak_share:
    case Metric::bandwidth_share:
    case Metric::update_share:
      return share(result, seconds, yardstick);
    case Metric::rate:
    case Metric::speedup:
      return baseline_seconds / seconds;
    case Metric::cost:
      return seconds / baseline_seconds - 1;
    case Metric::call_seconds:
      return seconds;
    case Metric::extra_bytes:
      return static_cast<double>(std::max(result.workspace_bytes, result.resident_growth.value_or(0)));
  }
  return 0;
}

// Whether a row's products are those of a matrix unit: unless a target is forced, which widens bf16.
bool row_uses_unit(const Row& row) {
  return row.subject.dtype == DType::bf16 && row.subject.target == 0 && machine().bf16_unit.has_value();
}

class Visitor {
 public:
  Visitor(Result& result, const Arrays& arrays, Yardsticks& yardsticks)
      : result_(result), yardsticks_(yardsticks), subject_{Call(result.row.subject, arrays)} {
    if (result.row.baseline) baseline_.emplace(Sampled{Call(*result.row.baseline, arrays)});
    const Plan plan = subject_.call.plan();
    result_.plan = describe(plan, {});
    result_.threads = plan.threads;
    result_.workspace_bytes = plan.workspace_bytes;
    result_.target = result.row.subject.target != 0 ? result.row.subject.target : machine().target_bits.front();
    result_.by_unit = row_uses_unit(result.row);
    result_.flops = subject_.call.flops();
    result_.bytes = subject_.call.bytes();
  }

  // The memory yardsticks flush the caches between calls; a second call of a sample would find part of its arrays
  // there.
  void calibrate(double sample_seconds) {
    if (by_memory(result_.row.metric)) return;
    subject_.calibrate(sample_seconds);
    if (baseline_) baseline_->calibrate(sample_seconds);
    result_.calls = subject_.calls;
  }

  Repeat visit() {
    Repeat repeat;
    repeat.yardstick[0] = yardstick();
    if (baseline_) repeat.baseline_seconds = {baseline_->time(), 0.0};
    if (result_.row.metric == Metric::extra_bytes) {
      result_.resident_growth = resident_growth([&] { repeat.seconds = subject_.time(); });
    } else {
      repeat.seconds = subject_.time();
    }
    if (baseline_) (*repeat.baseline_seconds)[1] = baseline_->time();
    repeat.yardstick[1] = yardstick();
    judge(repeat);
    return repeat;
  }

 private:
  double yardstick() {
    const Row& row = result_.row;
    if (row.metric == Metric::bandwidth_share) return yardsticks_.read(result_.target, result_.threads);
    if (row.metric == Metric::update_share) return yardsticks_.update(result_.target, result_.threads);
    if (result_.by_unit) return yardsticks_.unit(result_.threads);
    return yardsticks_.fma(accumulation_dtype(row.subject.dtype), result_.target, result_.threads);
  }

  void judge(Repeat& repeat) const {
    const auto mean = [](const std::array<double, 2>& x) { return (x[0] + x[1]) / 2; };
    const double yardstick = mean(repeat.yardstick);
    repeat.yardstick_share = share(result_, repeat.seconds, yardstick);
    repeat.value =
        value_of(result_, repeat.seconds, yardstick, repeat.baseline_seconds ? mean(*repeat.baseline_seconds) : 0.0);
  }

  Result& result_;
  Yardsticks& yardsticks_;
  Sampled subject_;
  std::optional<Sampled> baseline_;
};

// Why a row cannot be measured here, or nothing.
std::string obstacle(const Row& row) {
  const Machine& m = machine();
  if (row.subject.threads > m.threads) return "needs more processors than there are";
  if (row.subject.target != 0 &&
      std::find(m.target_bits.begin(), m.target_bits.end(), row.subject.target) == m.target_bits.end()) {
    return "this CPU has no such SIMD target";
  }
  if (row.about == About::unit && !m.bf16_unit) return "this CPU has no matrix unit that is faster than widening bf16";
  return "";
}

// A row that is being measured.
struct Visited {
  Result* result;
  Visitor visitor;
  double seconds = 0;  // of the last visit

  std::string text() const { return result->row.scenario + " " + text_of(result->row.subject); }
};

void warm_up(std::vector<Visited>& rows, const Procedure& procedure, const Progress& progress) {
  for (Visited& v : rows) {
    progress("warming up, " + v.text(), 0.0);
    v.visitor.calibrate(procedure.sample_seconds);
    const Stopwatch watch;
    v.visitor.visit();
    v.seconds = watch.seconds();
  }
}

void run_round(std::vector<Visited>& rows, int rounds_after, const Stopwatch& whole, const Progress& progress) {
  for (Visited& v : rows) {
    double left = 0;
    for (const Visited& x : rows) left += x.seconds * (rounds_after + (&x < &v ? 0 : 1));
    progress(v.text(), whole.seconds() / (whole.seconds() + left));
    const Stopwatch watch;
    v.result->repeats.push_back(v.visitor.visit());
    v.seconds = watch.seconds();
  }
}

}  // namespace

double fastest_value(const Result& result) {
  double seconds = INFINITY, baseline_seconds = INFINITY, yardstick = 0;
  for (const Repeat& repeat : result.repeats) {
    seconds = std::min(seconds, repeat.seconds);
    yardstick = std::max({yardstick, repeat.yardstick[0], repeat.yardstick[1]});
    if (!repeat.baseline_seconds) continue;
    baseline_seconds = std::min({baseline_seconds, (*repeat.baseline_seconds)[0], (*repeat.baseline_seconds)[1]});
  }
  return value_of(result, seconds, yardstick, baseline_seconds);
}

Measurements measure(const std::vector<Row>& rows, const Procedure& procedure, const Progress& progress) {
  const Stopwatch whole;
  Measurements m{.results = {}, .yardsticks = Yardsticks(procedure.yardstick_seconds)};
  std::vector<Case> cases;
  for (const Row& row : rows) {
    Result& result = m.results.emplace_back();
    result.row = row;
    result.skipped = obstacle(row);
    if (!result.skipped.empty()) continue;
    cases.push_back(row.subject);
    if (row.baseline) cases.push_back(*row.baseline);
  }
  progress("arrays", 0.0);
  const Arrays arrays(cases, procedure.seed);

  std::vector<Visited> once, often;
  for (Result& result : m.results) {
    if (!result.skipped.empty()) continue;
    auto& to = result.row.metric == Metric::extra_bytes ? once : often;
    to.push_back({&result, Visitor(result, arrays, m.yardsticks)});
  }
  for (Visited& v : once) {
    progress(v.text(), 0.0);
    v.result->repeats.push_back(v.visitor.visit());
  }
  warm_up(often, procedure, progress);
  const std::int64_t target = procedure.target != 0 ? procedure.target : machine().target_bits.front();
  for (int round = 1; round <= procedure.repeats; ++round) {
    for (const DType dtype : {DType::f32, DType::f64}) m.yardsticks.fma(dtype, target, 1);  // reported by every run
    run_round(often, procedure.repeats - round, whole, progress);
  }
  m.seconds = whole.seconds();
  return m;
}

}  // namespace keel::bench
