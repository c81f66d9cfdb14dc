#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "keel/export.h"

namespace keel {

// A unit that multiplies bf16 and adds in f32.
enum class MatrixUnit : std::uint8_t { avx512_bf16, amx };

struct MatrixUnitState {
  MatrixUnit unit;
  const char* name;
  std::string why_not;  // it cannot be used; empty if it can
};

// What this machine can do, determined once.
struct Machine {
  std::string cpu;                        // as the processor reports it
  std::vector<std::string> targets;       // SIMD targets that the library was built for and the CPU has, best first
  std::vector<std::int64_t> target_bits;  // the same as Highway's target bits
  int threads = 1;                        // processors that this process may use
  bool own_threads = true;                // whether the library can start any; without oneTBB only a team has some
  std::int64_t l1_bytes = 0;              // data cache of a core; likewise below
  std::int64_t l2_bytes = 0;
  std::int64_t l3_bytes = 0;
  std::vector<MatrixUnitState> units;   // all that Keel knows, present or not
  std::optional<MatrixUnit> bf16_unit;  // the one that is faster than widening bf16 to f32, if any
  bool slow_denormals = false;          // whether results below the smallest normal number take many times as long
};

inline namespace internal {  // exported, see parallel.h

KEEL_API const Machine& machine();

}  // namespace internal

// What a call may use: the machine, and the team of threads that the program gave to use_team().
struct Resources {
  const Machine* machine = nullptr;
  int team_threads = 0;  // 0: no team

  bool has_team(int threads) const { return threads <= team_threads; }
};

}  // namespace keel
