# Writes wgmma.cuh to FILE: one wrapper per width of the warpgroup matrix product, since the instruction's list of registers has
# a length that C++ templates cannot spell.
set(text "#pragma once\n\n#include <cuda_bf16.h>\n#include <cuda_fp16.h>\n\n#include <cstdint>\n
// Products of a warpgroup, 64 rows by N columns by 16, added to d in f32 (or, where `add` is 0, written to it).
namespace keel::cuda::ptx {\n
template <class Element, int N>
struct RowsByRows;  // a (64 rows of 16) times b transposed (N rows of 16), both in shared memory
template <class Element, int N>
struct RegistersByColumns;  // a in registers, b (16 rows of N) in shared memory
template <class Element, int N>
struct ColumnsByColumns;  // a transposed (16 rows of 64) times b (16 rows of N), both in shared memory\n")

foreach(width 32 64 80 96 112 128 192 256)
  math(EXPR registers "${width} / 2")
  math(EXPR last "${registers} - 1")
  set(outs "")
  set(places "")
  foreach(i RANGE ${last})
    list(APPEND outs "\"+f\"(d[${i}])")
    list(APPEND places "%${i}")
  endforeach()
  list(JOIN outs ", " outs)
  list(JOIN places ", " places)
  foreach(i RANGE 4)
    math(EXPR in${i} "${registers} + ${i}")
  endforeach()
  foreach(name bf16 f16)
    set(type __nv_bfloat16)
    if(name STREQUAL "f16")
      set(type __half)
    endif()
    set(instruction "wgmma.mma_async.sync.aligned.m64n${width}k16.f32.${name}.${name}")
    string(APPEND text "
template <>
struct RowsByRows<${type}, ${width}> {
  __device__ __forceinline__ static void run(float (&d)[${registers}], std::uint64_t a, std::uint64_t b, int add) {
    asm volatile(
        \"{\\n.reg .pred p;\\nsetp.ne.b32 p, %${in2}, 0;\\n\"
        \"${instruction} {${places}}, %${in0}, %${in1}, p, 1, 1, 0, 0;\\n}\"
        : ${outs}
        : \"l\"(a), \"l\"(b), \"r\"(add));
  }
};
template <>
struct RegistersByColumns<${type}, ${width}> {
  __device__ __forceinline__ static void run(float (&d)[${registers}], const std::uint32_t* a, std::uint64_t b) {
    asm volatile(
        \"{\\n.reg .pred p;\\nsetp.eq.u32 p, 1, 1;\\n\"
        \"${instruction} {${places}}, {%${in0}, %${in1}, %${in2}, %${in3}}, %${in4}, p, 1, 1, 1;\\n}\"
        : ${outs}
        : \"r\"(a[0]), \"r\"(a[1]), \"r\"(a[2]), \"r\"(a[3]), \"l\"(b));
  }
  // Writes zeros, where b is finite.
  __device__ __forceinline__ static void clear(float (&d)[${registers}], std::uint64_t b) {
    asm volatile(
        \"{\\n.reg .pred p;\\nsetp.ne.u32 p, 1, 1;\\n\"
        \"${instruction} {${places}}, {%${in0}, %${in0}, %${in0}, %${in0}}, %${in1}, p, 1, 1, 1;\\n}\"
        : ${outs}
        : \"r\"(0), \"l\"(b));
  }
};
template <>
struct ColumnsByColumns<${type}, ${width}> {
  __device__ __forceinline__ static void run(float (&d)[${registers}], std::uint64_t a, std::uint64_t b, int add) {
    asm volatile(
        \"{\\n.reg .pred p;\\nsetp.ne.b32 p, %${in2}, 0;\\n\"
        \"${instruction} {${places}}, %${in0}, %${in1}, p, 1, 1, 1, 1;\\n}\"
        : ${outs}
        : \"l\"(a), \"l\"(b), \"r\"(add));
  }
};
")
  endforeach()
endforeach()
string(APPEND text "\n}  // namespace keel::cuda::ptx\n")
file(GENERATE OUTPUT ${FILE} CONTENT "${text}")
