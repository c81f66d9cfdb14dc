#pragma once

#include <span>
#include <vector>

#include "conformance/generator.h"
#include "core/layout.h"
#include "keel/attention.h"

// Random argument sets for the whole interface: a small valid call in which several things are then made wrong. A view
// may be anything, but one that looks valid points into the arena with all its elements, since memory that is not there
// is a lie that no library can see.
namespace keel::testing_arguments {

// All memory that views point to: one slot a view, each base in the middle of its slot.
class Arena {
 public:
  static constexpr std::int64_t kSlotBytes = 8192;
  static constexpr int kSlots = 64;

  Arena() : memory_(kSlotBytes * kSlots / sizeof(double)) {}
  unsigned char* slot(int index) { return begin() + index * kSlotBytes + kSlotBytes / 2; }
  std::span<unsigned char> bytes() { return {begin(), kSlotBytes * kSlots}; }

  // With any bits, or with such that they are numbers from −2 to 2 as any float dtype, wherever a view begins.
  void fill(conformance::Generator& random);
  void fill_with_numbers(conformance::Generator& random);

  // Whether every element of the view lies in the arena. Only for sizes and strides that the library would accept.
  template <std::size_t Rank, class Pointer>
  bool holds(const BasicView<Rank, Pointer>& view) {
    __int128 low = 0, high = size_of(view.dtype);
    for (std::size_t i = 0; i < Rank; ++i) {
      const __int128 reach = static_cast<__int128>(view.strides[i]) * (view.shape[i] - 1) * size_of(view.dtype);
      (reach < 0 ? low : high) += reach;
    }
    const auto base = reinterpret_cast<std::intptr_t>(view.data), first = reinterpret_cast<std::intptr_t>(begin());
    return base + low >= first && base + high <= first + kSlotBytes * kSlots;
  }

 private:
  unsigned char* begin() { return reinterpret_cast<unsigned char*>(memory_.data()); }
  std::vector<double> memory_;
};

struct ForwardArguments {
  TensorView q, k, v;
  MutableTensorView out;
  Options options;
  Outputs outputs;
  std::vector<std::int64_t> lists[4];  // q_lengths, k_lengths, q_offsets, k_offsets
  std::vector<HeadStatistics> heads;
};

struct BackwardArguments {
  ForwardArguments forward;  // its q, k, v and options
  BackwardInputs inputs;
  Gradients gradients;
};

struct MergeArguments {
  std::vector<Partial> parts;
  MutableTensorView out;
  Outputs outputs;
  int threads = 0;
};

// Where the views lie that a call is given.
struct Place {
  Layout layout;
  bool written = false;
};
std::vector<Place> places_of(ForwardArguments& arguments);
std::vector<Place> places_of(BackwardArguments& arguments);
std::vector<Place> places_of(MergeArguments& arguments);

// `must_fail` is set where something is wrong whatever the rest is.
ForwardArguments random_forward(conformance::Generator& random, Arena& arena, bool& must_fail);
BackwardArguments random_backward(conformance::Generator& random, Arena& arena, bool& must_fail);
MergeArguments random_merge(conformance::Generator& random, Arena& arena, bool& must_fail);

}  // namespace keel::testing_arguments
