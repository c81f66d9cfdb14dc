#pragma once

#include <cstddef>
#include <forward_list>
#include <memory_resource>
#include <optional>
#include <string>
#include <vector>

#include "array.h"
#include "keel/attention.h"

namespace keel::python {

// The arguments of one call. Borrows its arrays and keeps them until it ends.
class Arguments {
 public:
  // On a GPU the call works on the stream that the dict `options` names, or on that of the library of the first array.
  explicit Arguments(const char* operation) : operation_(operation) {}
  Arguments(const char* operation, nb::dict options);

  // An array of at least `least` dimensions as a view of `Rank`.
  template <std::size_t Rank>
  BasicView<Rank, void*> view(const char* name, nb::handle object, Access access, int least) {
    return array(name, object, access).template view<Rank>(least);
  }
  // The same, or None.
  template <std::size_t Rank>
  BasicView<Rank, void*> optional(const char* name, nb::handle object, Access access = Access::read, int least = 0) {
    if (object.is_none()) return {};
    return view<Rank>(name, object, access, least);
  }
  // q, k, v and the like: (B, H, N, D), of which B and H may be missing.
  MutableTensorView tensor(const char* name, nb::handle object, Access access = Access::read) {
    return view<4>(name, object, access, 2);
  }
  // Three arrays, or None; kept until the call ends.
  const BlockMask* block_mask(const char* name, nb::handle object);
  // A list of integers, or None.
  ListView list(const char* name, nb::handle object);
  Array& array(const char* name, nb::handle object, Access access = Access::read);
  void* stream() const { return stream_.value_or(nullptr); }
  Device device() const { return device_.value_or(Device{}); }  // of the first array

  // Read from a dict; what is missing from it, or None, counts as not given.
  Options options(nb::dict given);
  Outputs outputs(nb::dict given);
  Gradients gradients(nb::dict given);
  Tangents tangents(nb::dict given);
  JvpOutputs jvp_outputs(nb::dict given);
  DoubleGradients double_gradients(nb::dict given);
  Partial partial(nb::dict given, const std::string& prefix);  // before names in errors

  // `prefix` + `name`, kept until the call ends.
  const char* prefixed(const std::string& prefix, const char* name) {
    return prefix.empty() ? name : names_.emplace_front(prefix + name).c_str();
  }

  Place place(const char* name) const { return {operation_, name}; }

 private:
  const char* operation_;
  std::optional<void*> stream_;  // these two: once they are known
  std::optional<Device> device_;
  std::array<std::byte, 4096> room_;  // enough for a usual call, which then allocates nothing
  std::pmr::monotonic_buffer_resource memory_{room_.data(), room_.size()};
  std::pmr::forward_list<std::string> names_{&memory_};
  std::pmr::forward_list<Array> arrays_{&memory_};
  std::pmr::forward_list<std::vector<std::int64_t>> lists_{&memory_};
  BlockMask block_mask_;
};

// The names of the options.
std::vector<std::string> option_names();

// Runs `call` without the GIL. keel::Error becomes TypeError where a dtype is at fault, ValueError for any other wrong
// argument, MemoryError where memory ran out.
template <class Call>
void without_gil(Call call) {
  nb::gil_scoped_release released;
  call();
}

}  // namespace keel::python
