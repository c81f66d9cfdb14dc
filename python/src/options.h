#pragma once

#include <deque>
#include <vector>

#include "array.h"
#include "keel/attention.h"

namespace keel::python {

// The options of a call as Python gives them, None where they are left out.
struct PythonOptions {
  nb::handle mask, bias, causal, window, scale, softcap, alibi, sinks;
  nb::handle dropout, seed;  // numbers; never None
  nb::handle q_lengths, k_lengths, q_offsets, k_offsets, threads;
};

// Borrows the arrays of one call and keeps them until it ends.
class Arguments {
 public:
  explicit Arguments(const char* operation) : operation_(operation) {}

  // An array of at least `least` dimensions as a view of `Rank`.
  template <std::size_t Rank>
  BasicView<Rank, void*> view(const char* name, nb::handle object, Access access, int least) {
    return arrays_.emplace_back(Place{operation_, name}, object, access).template view<Rank>(least);
  }
  // The same, or None.
  template <std::size_t Rank>
  BasicView<Rank, void*> optional(const char* name, nb::handle object, Access access = Access::read, int least = 0) {
    if (object.is_none()) return {};
    return view<Rank>(name, object, access, least);
  }
  // q, k, v and their likes: (B, H, N, D), of which B and H may be missing.
  MutableTensorView tensor(const char* name, nb::handle object, Access access = Access::read) {
    return view<4>(name, object, access, 2);
  }

  Options options(const PythonOptions& given);

  Place place(const char* name) const { return {operation_, name}; }

 private:
  std::span<const std::int64_t> list(const char* name, nb::handle object);

  const char* operation_;
  std::deque<Array> arrays_;
  std::deque<std::vector<std::int64_t>> lists_;
};

Causal read_causal(Place place, nb::handle object);
double read_number(Place place, nb::handle object);
std::int64_t read_integer(Place place, nb::handle object);
std::uint64_t read_seed(Place place, nb::handle object);
int read_threads(Place place, nb::handle object);  // 0 for None

// Runs `call` without Python's lock; keel::Error becomes TypeError where a dtype is at fault, ValueError for any other
// wrong argument, MemoryError where memory ran out.
template <class Call>
void without_lock(Call call) {
  nb::gil_scoped_release released;
  call();
}

}  // namespace keel::python
