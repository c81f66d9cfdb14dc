// Calls with arguments of which some may be wrong: they run or raise keel::Error, and nothing else happens. Those that
// run give what the oracle does, however the views lie.
#include "api/arguments.h"

#include <hwy/targets.h>
#include <sanitizer/asan_interface.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <stdexcept>

#include "conformance/merge.h"
#include "core/element.h"
#include "core/message.h"
#include "core/row_statistics.h"
#include "cpu/forced.h"
#include "fuzz/faults.h"
#include "runtime/machine.h"

namespace keel::fuzz {
namespace {

using conformance::Case;
using conformance::copy;
using conformance::Generator;
using conformance::Instance;
using namespace testing_arguments;

// The memory of all views as it was before a call.
class Before {
 public:
  explicit Before(Arena& arena) : arena_(arena), bytes_(arena.bytes().begin(), arena.bytes().end()) {}

  // "" or which byte was written that is no element of a result.
  std::string outside_writes(const std::vector<Place>& places) const {
    if (std::memcmp(bytes_.data(), arena_.bytes().data(), bytes_.size()) == 0) return {};
    std::vector<bool> owned(bytes_.size(), false);
    for (const Place& place : places) {
      if (place.written) own(place.layout, owned);
    }
    for (std::size_t at = 0; at < bytes_.size(); ++at) {
      if (!owned[at] && arena_.bytes()[at] != bytes_[at]) return concat("wrote byte ", at, ", which is no result's\n");
    }
    return {};
  }

  void restore() const { std::copy(bytes_.begin(), bytes_.end(), arena_.bytes().begin()); }

 private:
  void own(const Layout& layout, std::vector<bool>& owned) const {
    const std::int64_t elements = extent_of(layout).count;
    for (std::int64_t i = 0; i < elements; ++i) {
      std::int64_t left = i, offset = 0;
      for (int d = layout.rank; d-- > 0; left /= layout.shape[d]) {
        offset += left % layout.shape[d] * layout.strides[d];
      }
      const auto at = static_cast<std::int64_t>(layout.base - reinterpret_cast<std::uintptr_t>(arena_.bytes().data())) +
                      offset * layout.item;
      for (std::int64_t byte = 0; byte < layout.item; ++byte) owned[static_cast<std::size_t>(at + byte)] = true;
    }
  }

  Arena& arena_;
  std::vector<unsigned char> bytes_;
};

// While it stands, the address sanitizer reports who touches memory of the arena that lies in none of these views.
class Fence {
 public:
  Fence(Arena& arena, const std::vector<Place>& places) : arena_(arena) {
    const auto first = reinterpret_cast<std::uintptr_t>(arena.bytes().data()), last = first + arena.bytes().size();
    ASAN_POISON_MEMORY_REGION(arena.bytes().data(), arena.bytes().size());
    for (const Place& place : places) {
      const Span span = extent_of(place.layout).span;
      const std::uintptr_t begin = std::clamp(span.low, first, last),
                           end = std::clamp(span.low + span.size, first, last);
      if (begin < end) ASAN_UNPOISON_MEMORY_REGION(reinterpret_cast<void*>(begin), end - begin);
    }
  }
  Fence(const Fence&) = delete;
  ~Fence() { ASAN_UNPOISON_MEMORY_REGION(arena_.bytes().data(), arena_.bytes().size()); }

 private:
  Arena& arena_;
};

// Whether a call ran, and what it said otherwise. Raises std::logic_error where that is not what a refusal is.
struct Outcome {
  bool ran = true;
  std::string text;

  template <class Call>
  Outcome(const char* operation, Call call) {
    try {
      call();
    } catch (const Error& error) {
      ran = false;
      text = error.what();
      const bool refusal = error.code() == ErrorCode::invalid_argument || error.code() == ErrorCode::wrong_dtype ||
                           error.code() == ErrorCode::unsupported;
      if (!refusal || !text.starts_with(concat("[", operation, "] ")) || text.find("expected ") == std::string::npos) {
        throw std::logic_error(concat("no refusal of an argument: ", text));
      }
    }
  }
};

// "" or what a call did that it must not: run though it must fail, or write what is not its own.
std::string misdeed(const Outcome& outcome, bool must_fail, const Before& before, const std::vector<Place>& places) {
  if (outcome.ran && must_fail) return "ran with an argument that is wrong\n";
  const std::string found = before.outside_writes(outcome.ran ? places : std::vector<Place>());
  return found.empty() || outcome.ran ? found : concat("refused with ", outcome.text, ", and ", found);
}

// As large as f32 can tell: scores, and distances for ALiBi.
bool can_be_compared(const Problem& problem) {
  const Options& o = problem.options;
  return problem.has_rows() && std::fabs(problem.scale) <= 100.0 &&
         (!o.alibi.given() || std::max(problem.sequences.whole_q, problem.sequences.whole_k) <= 1 << 20);
}

// All that the comparison asks of a case.
Case case_of(const Problem& p) {
  Case c;
  c.name = "arguments";
  c.dtype = p.dtype;
  c.batch = p.batch, c.q_heads = p.q_heads, c.kv_heads = p.kv_heads;
  c.n_q = p.n_q, c.n_k = p.n_k, c.d_k = p.d_k, c.d_v = p.d_v;
  c.statistics = c.heads = c.key_sums = true;
  c.key_sum_rows = p.outputs.key_sum_rows;
  c.weights = conformance::Weights::q_dtype;
  c.scores = p.outputs.score_stage;
  return c;
}

template <std::size_t Rank, class Pointer>
std::string text_of(const char* name, const BasicView<Rank, Pointer>& x) {
  if (!x.given()) return {};
  return concat(name, " ", name_of(x.dtype), " ", keel::text_of(x.shape), " strides ", keel::text_of(x.strides), " at ",
                reinterpret_cast<std::uintptr_t>(x.data), "\n");
}

std::string text_of(const char* name, const ListView& x) {
  if (x.empty()) return {};
  std::string text = name;
  for (std::int64_t i = 0; i < x.size(); ++i) text += concat(" ", x[i]);
  return text + "\n";
}

std::string text_of(const Problem& p) {
  const Options& o = p.options;
  return text_of("q", p.q) + text_of("k", p.k) + text_of("v", p.v) + text_of("out", p.out) +
         text_of("scale_tensor", o.scale_tensor) + text_of("mask", o.mask) + text_of("bias", o.bias) +
         text_of("alibi", o.alibi) + text_of("sinks", o.sinks) + text_of("q_lengths", o.q_lengths) +
         text_of("k_lengths", o.k_lengths) + text_of("q_offsets", o.q_offsets) + text_of("k_offsets", o.k_offsets) +
         concat("scale ", p.scale, ", softcap ", o.softcap.value_or(0), ", causal ", static_cast<int>(o.causal),
                ", window ", o.window.left, " ", o.window.right, ", dropout ", o.dropout, " seed ", o.seed, ", origin ",
                o.origin.query, " ", o.origin.key, " ", o.origin.n_q, " ", o.origin.n_k, "\n");
}

// Where a result of the call can stand for the one that is compared, it does: it has the same elements, and is not
// rounded to a coarser dtype.
template <std::size_t Rank>
void take(const BasicView<Rank, void*>& from, const BasicView<Rank, void*>& to) {
  bool sums = false;
  for (std::size_t i = 0; i < Rank; ++i) sums = sums || (from.strides[i] == 0 && from.shape[i] > 1);
  const bool fine = from.dtype == to.dtype || size_of(from.dtype) > size_of(to.dtype);
  if (from.given() && to.given() && from.shape == to.shape && !sums && fine) copy(from, to);
}

std::string forward_fault(Generator& random, Arena& arena, bool numbers) {
  bool must_fail = false;
  ForwardArguments a = random_forward(random, arena, must_fail);
  const Before before(arena);
  const std::vector<Place> places = places_of(a);
  const Outcome outcome("attention", [&] {
    const Fence fence(arena, places);
    attention(a.q, a.k, a.v, a.out, a.options, a.outputs);
  });
  if (const std::string text = misdeed(outcome, must_fail, before, places); !text.empty()) return text;
  if (!outcome.ran) return {};
  const Problem problem = make_problem(a.q, a.k, a.v, a.out, a.options, a.outputs);
  const Instance instance(case_of(problem), a.q, a.k, a.v, a.options);
  for (const std::int64_t target : machine().target_bits) {
    const Forced forced = {.target = target};
    const conformance::Forward all_then_asked = [&](auto& q, auto& k, auto& v, auto& out, auto& options, auto& o) {
      run_forced(q, k, v, out, options, o, forced);
      run_forced(a.q, a.k, a.v, a.out, a.options, a.outputs, forced);
      take(a.out, out);
      take(a.outputs.weights, o.weights);
      take(a.outputs.key_sums, o.key_sums);
      take(a.outputs.scores, o.scores);
      for (const auto& statistic : kRowStatistics) {
        take(a.outputs.*statistic.result, o.*statistic.result);
      }
    };
    std::string text;
    if (const Fence fence(arena, places); numbers && can_be_compared(problem)) {
      text = forward_mismatch(instance, all_then_asked);
    } else {
      run_forced(a.q, a.k, a.v, a.out, a.options, a.outputs, forced);
    }
    text += before.outside_writes(places);
    if (!text.empty()) return concat("attention on ", hwy::TargetName(target), "\n", text_of(problem), text);
  }
  return {};
}

std::string backward_fault(Generator& random, Arena& arena, bool numbers) {
  bool must_fail = false;
  BackwardArguments a = random_backward(random, arena, must_fail);
  const Options& options = a.forward.options;
  const Before before(arena);
  const std::vector<Place> places = places_of(a);
  const Outcome outcome("attention_backward", [&] {
    const Fence fence(arena, places);
    attention_backward(a.inputs, a.gradients, options);
  });
  if (const std::string text = misdeed(outcome, must_fail, before, places); !text.empty()) return text;
  if (!outcome.ran) return {};
  const Problem problem = make_backward_problem(a.inputs, a.gradients, options).forward;
  const Instance instance(case_of(problem), a.inputs.q, a.inputs.k, a.inputs.v, options);
  for (const std::int64_t target : machine().target_bits) {
    const Forced forced = {.target = target};
    // With out, lse and dout that belong to the inputs.
    const conformance::Backward all_then_asked = [&](auto& inputs, auto& g, auto& o) {
      run_forced(inputs, g, o, forced);
      Gradients asked = a.gradients;
      asked.accumulate = false;
      run_forced(inputs, asked, o, forced);
      take(asked.dq, g.dq), take(asked.dk, g.dk), take(asked.dv, g.dv);
      take(asked.dbias, g.dbias), take(asked.dscale, g.dscale), take(asked.dsinks, g.dsinks);
    };
    std::string text;
    if (const Fence fence(arena, places); numbers && can_be_compared(problem)) {
      text = backward_mismatch(instance, all_then_asked);
    } else {
      run_forced(a.inputs, a.gradients, options, forced);
    }
    text += before.outside_writes(places);
    if (!text.empty()) return concat("attention_backward on ", hwy::TargetName(target), "\n", text_of(problem), text);
  }
  return {};
}

// Numbers of keys, in place of what they are as floats.
void make_counts(const RowView& view) {
  if (!view.given()) return;
  conformance::Dense counts({view.shape[0], view.shape[1], view.shape[2], 1});
  for (std::size_t at = 0; at < counts.values.size(); ++at) counts.values[at] = static_cast<double>(at % 4);
  copy(counts.rows(), MutableRowView{const_cast<void*>(view.data), view.dtype, view.shape, view.strides});
}

std::string merge_arguments_fault(Generator& random, Arena& arena, bool numbers) {
  bool must_fail = false;
  MergeArguments a = random_merge(random, arena, must_fail);
  const auto problem = [&] { return make_merge_problem(a.parts, a.out, a.outputs, a.threads); };
  const Outcome checked("merge", [&] { static_cast<void>(problem()); });
  for (const Partial& part : a.parts) {
    if (checked.ran && numbers) make_counts(part.visible), make_counts(part.logit_count);
  }
  const Before before(arena);
  const std::vector<Place> places = places_of(a);
  const Outcome outcome("merge", [&] {
    const Fence fence(arena, places);
    merge(a.parts, a.out, a.outputs, a.threads);
  });
  if (const std::string text = misdeed(outcome, must_fail, before, places); !text.empty()) return text;
  if (!outcome.ran) return {};
  before.restore();
  const conformance::ExpectedMerge expected =
      numbers ? conformance::compute_expected(problem()) : conformance::ExpectedMerge();
  for (const std::int64_t target : machine().target_bits) {
    before.restore();
    if (const Fence fence(arena, places); true) run_forced(problem(), {.target = target});
    std::string text = before.outside_writes(places);
    if (numbers) text += merge_mismatch(problem(), expected);
    if (!text.empty()) return concat("merge on ", hwy::TargetName(target), "\n", text_of("out", a.out), text);
  }
  return {};
}

std::string explain_fault(Generator& random, Arena& arena) {
  bool must_fail = false;
  ForwardArguments a = random_forward(random, arena, must_fail);
  const Before before(arena);
  a.q.data = a.k.data = a.v.data = nullptr;
  const Outcome outcome("attention", [&] { static_cast<void>(explain(a.q, a.k, a.v, a.out, a.options, a.outputs)); });
  return before.outside_writes({});
}

}  // namespace

std::string argument_fault(Generator& random) {
  static Arena arena;
  const bool numbers = random.chance(0.7);
  Generator values(random.next());
  if (numbers) {
    arena.fill_with_numbers(values);
  } else {
    arena.fill(values);
  }
  switch (random.integer(0, 6)) {
    case 0:
    case 1:
      return backward_fault(random, arena, numbers);
    case 2:
    case 3:
      return merge_arguments_fault(random, arena, numbers);
    case 4:
      return explain_fault(random, arena);
    default:
      return forward_fault(random, arena, numbers);
  }
}

}  // namespace keel::fuzz
