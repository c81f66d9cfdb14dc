#pragma once

#include <array>
#include <cstdint>

// The sizes of tile that the Hopper kernels are compiled for; for the planner, and for the files that compile them.
namespace keel::cuda::hopper {

// A kernel's tile: 64 rows per warpgroup, blocks of keys, head sizes up to d. `roomy`: there is shared memory for two
// tiles of q and for one of out, so that tiles follow each other without a pause.
struct Shape {
  int d, keys, groups;
  bool roomy;

  constexpr int rows() const { return 64 * groups; }
  constexpr int threads() const { return 128 * (groups + 1); }
  constexpr int panels() const { return (d + 63) / 64; }  // of 64 columns, 128 bytes
  bool operator==(const Shape&) const = default;
};

// For what a shape serves: long sequences; those whose rows fill few tiles; scores that need more than a mask by
// position (keys are then a multiple of 32, as dropout's numbers come in groups, and registers go to the options); a
// bias or mask alone, whose tiles are in shared memory too; few rows, as in decoding.
enum class Purpose : std::uint8_t { wide, plain, rich, tiled, few };

// Measured on an H200: of each head size, the fastest of those that fit registers and shared memory.
constexpr Shape shape_for(int d, Purpose purpose) {
  const bool wide = purpose == Purpose::wide || purpose == Purpose::tiled;
  const int groups = purpose == Purpose::few ? 1 : wide && d == 64 ? 3 : 2;
  if (d > 128) {
    return {d, groups == 1 ? 64 : purpose == Purpose::rich ? 32 : d == 192 ? 112 : 80, groups, groups == 1};
  }
  return {d, 128, groups, purpose != Purpose::tiled || d == 64};
}

// Head sizes that are compiled; others are padded to the next.
constexpr std::array<int, 5> kHeadSizes = {64, 96, 128, 192, 256};
// Whether all kernels are compiled for a head size. Padding costs matrix products, of which few rows, rich scores and
// statistics take the smaller part, so those of the others are padded further.
constexpr bool serves_all(int d) { return d != 96 && d != 192; }

// A backward kernel's tile: head sizes up to d, blocks of rows of q, and of keys.
struct BackwardShape {
  int d, rows, keys;
};
constexpr BackwardShape backward_shape_for(int d, bool terms) {
  if (d > 128 || terms) return {d, 64, 64};
  return {d, d == 64 ? 128 : 64, 128};
}
// Head sizes that are compiled; with terms, from the second on.
constexpr std::array<int, 3> kBackwardHeadSizes = {64, 128, 256};

// Which of the statistics a kernel adds up while it streams. lse, max_logit, max_weight and visible come for nothing.
enum class Statistics : std::uint8_t { none, entropy, moments };

// What scores need beyond masks by position. The kernel for any of it tests for each, and always adds up moments; with
// branches between the products and the softmax the compiler does not overlap them, so single terms have kernels of
// their own.
enum class Terms : std::uint8_t { none, softcap, alibi, bias, mask, dropout, any };

constexpr const char* name_of(Terms terms) {
  constexpr const char* names[] = {"no terms", "a softcap", "ALiBi", "a bias", "a mask", "dropout", "any terms"};
  return names[static_cast<int>(terms)];
}

// The shape of a single term's kernel.
constexpr Purpose purpose_of(Terms single) {
  if (single == Terms::bias || single == Terms::mask) return Purpose::tiled;
  return single == Terms::softcap || single == Terms::alibi ? Purpose::wide : Purpose::plain;
}

// Whether the single terms are compiled for a head size.
constexpr bool has_single_terms(int d) { return d == 64 || d == 128; }

// What says which kernel.
struct Choice {
  Shape shape{};
  bool bf16 = true;  // else f16
  Terms terms = Terms::none;
  Statistics statistics = Statistics::none;
};

}  // namespace keel::cuda::hopper
