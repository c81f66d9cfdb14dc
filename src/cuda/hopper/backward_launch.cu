#include "cuda/hopper/backward_kernels.cuh"
#include "cuda/hopper/backward_passes.cuh"
#include "cuda/hopper/backward_workspace.h"
#include "cuda/hopper/bias_passes.cuh"
#include "cuda/hopper/early.cuh"
#include "cuda/hopper/launch.h"
#include "cuda/hopper/tensor_map.cuh"
#include "cuda/plain_launch.cuh"

namespace keel::cuda::hopper {
namespace {

// Blocks of 64 rows of every head.
dim3 grid_for(const Call& f, std::int64_t rows) {
  return dim3(static_cast<unsigned>((rows + kPassRows - 1) / kPassRows), static_cast<unsigned>(f.q_heads),
              static_cast<unsigned>(f.sequences.batch));
}

BackwardKernel kernel_of(const BackwardWork& w) {
  if (w.shape.d == 64) return backward_kernel_for<64, false>(w.bf16);
  const bool wide = w.shape.d > 128;
  if (w.terms) return wide ? backward_kernel_for<256, true>(w.bf16) : backward_kernel_for<128, true>(w.bf16);
  return wide ? backward_kernel_for<256, false>(w.bf16) : backward_kernel_for<128, false>(w.bf16);
}

// Whether 8 columns of any row lie side by side at a multiple of 16 bytes.
template <class Pointer>
bool has_whole_rows(const BasicStrided<Pointer>& x, DType dtype) {
  return x.dtype == dtype && x.column == 1 && x.row % 8 == 0 && x.head % 8 == 0 && x.batch % 8 == 0 &&
         reinterpret_cast<std::uintptr_t>(x.data) % 16 == 0;
}

// The kernels of a head size that come before and after the main one.
struct Passes {
  void (*prepare)(BackwardArguments);
  void (*finish)(BackwardArguments);
};
template <class Element, class Stored>
Passes passes_for(int d) {
  if (d == 64) return {&prepare_rows<Element, Stored, 64>, &finish_dq<Element, 64>};
  if (d == 128) return {&prepare_rows<Element, Stored, 128>, &finish_dq<Element, 128>};
  return {&prepare_rows<Element, Stored, 256>, &finish_dq<Element, 256>};
}

// Before the main kernel: what it expects of sums of dbias.
cudaError_t begin_bias(const BackwardWork& w, const BackwardArguments& a, cudaStream_t stream) {
  const Call& f = a.call.forward;
  const Sequences& s = f.sequences;
  if (a.bias == BiasSums::keys) {  // a block of keys that no row sees has no task
    const std::int64_t sums = s.batch * f.q_heads * a.cut.key_slots * 64;
    return cudaMemsetAsync(a.bias_sums, 0, static_cast<std::size_t>(sums) * sizeof(float), stream);
  }
  if (a.bias != BiasSums::tiles) return cudaSuccess;
  const auto entries = static_cast<unsigned>(s.batch), keys = static_cast<unsigned>(a.cut.key_slots);
  if (a.bias_before != nullptr) order_bias_tiles<<<dim3(keys, entries), kBiasThreads, 0, stream>>>(a);
  const std::int64_t tiles = slices_of(w.call) * a.cut.key_slots * a.cut.query_slots;
  return cudaMemsetAsync(a.bias_turns, 0, static_cast<std::size_t>(tiles) * sizeof(int), stream);
}

// After it.
template <class Stored>
void finish_bias(const BackwardArguments& a, cudaStream_t stream) {
  const auto slices = static_cast<unsigned>(slices_of(a.call)), keys = static_cast<unsigned>(a.cut.key_slots);
  if (a.bias == BiasSums::keys) {
    finish_bias_keys<Stored><<<dim3((keys + 1) / 2, slices), kBiasThreads, 0, stream>>>(a);
  } else if (a.bias == BiasSums::tiles) {
    const dim3 grid(static_cast<unsigned>(a.cut.query_slots), keys, slices);
    finish_bias_tiles<Stored><<<grid, kBiasThreads, 0, stream>>>(a);
  }
}

template <class Element, class Stored>
cudaError_t run(const BackwardWork& w, const BackwardKernel& kernel, BackwardMaps& maps, BackwardArguments& a,
                cudaStream_t stream) {
  const Call& f = a.call.forward;
  const Passes passes = passes_for<Element, Stored>(w.shape.d);
  if (const cudaError_t e = begin_bias(w, a, stream)) return e;
  passes.prepare<<<grid_for(f, f.sequences.n_q), kPassThreads, 0, stream>>>(a);
  Launcher launcher(stream);
  if (a.bias == BiasSums::pairs) zero_steps(w.as_given.dbias, launcher);
  if (const cudaError_t e =
          cudaFuncSetAttribute(kernel.function, cudaFuncAttributeMaxDynamicSharedMemorySize, kernel.shared_bytes)) {
    return e;
  }
  void* arguments[] = {&maps, &a};
  if (const cudaError_t e = launch_early(kernel.function, dim3(std::min(w.cut.tasks, w.processors)), 384,
                                         kernel.shared_bytes, arguments, stream)) {
    return e;
  }
  void* rows[] = {&a};
  if (a.call.dq || a.dscale != nullptr) {
    const dim3 grid = grid_for(f, w.cut.query_slots * w.cut.query_block);
    if (const cudaError_t e =
            launch_early(reinterpret_cast<const void*>(passes.finish), grid, kFinishThreads, 0, rows, stream)) {
      return e;
    }
  }
  if (const cudaError_t e = launch_early(reinterpret_cast<const void*>(&compute_gradients_again<Stored>),
                                         dim3(w.processors), kPassThreads, 0, rows, stream)) {
    return e;
  }
  finish_bias<Stored>(a, stream);
  if (a.call.dsinks) sum_sinks<<<static_cast<unsigned>(f.q_heads), kSinkThreads, 0, stream>>>(a);
  if (const cudaError_t e = cudaGetLastError(); e != cudaSuccess || !w.call.dscale) return e;
  run_scale_gradients(w.call, a.dscale, launcher);
  return launcher.error();
}

}  // namespace

std::int64_t backward_workspace(const BackwardWork& w) { return workspace_bytes(w); }

const char* launch_backward(const BackwardWork& w, void* workspace, cudaStream_t stream) {
  if (encode_function() == nullptr) return "a driver without tensor maps";
  const BackwardKernel kernel = kernel_of(w);
  const Call& f = w.call.forward;
  const Sequences& s = f.sequences;
  BackwardMaps maps;
  const bool encoded =
      encode(f.q, f.dtype, {s.batch, f.q_heads, s.n_q, f.d_k}, 1, w.cut.query_block, maps.q) &&
      encode(f.k, f.dtype, {s.batch, f.kv_heads, s.n_k, f.d_k}, 1, w.cut.key_block, maps.k) &&
      encode(f.v, f.dtype, {s.batch, f.kv_heads, s.n_k, f.d_v}, 1, w.cut.key_block, maps.v) &&
      encode(w.call.dout, f.dtype, {s.batch, f.q_heads, s.n_q, f.d_v}, 1, w.cut.query_block, maps.dout);
  if (!encoded) return "a tensor map that the driver refuses";
  BackwardArguments a{};
  a.call = w.call;
  a.cut = w.cut;
  a.window = window_of(s);
  a.ordered = w.ordered;
  a.whole_rows = has_whole_rows(w.call.out, f.dtype) && has_whole_rows(w.call.dout, f.dtype);
  a.bias = w.bias_sums;
  WorkspaceCursor memory(workspace);
  lay_out(w, memory, a);
  const cudaError_t e = w.bf16 ? run<__nv_bfloat16, BFloat16>(w, kernel, maps, a, stream)
                               : run<__half, Float16>(w, kernel, maps, a, stream);
  return e == cudaSuccess ? nullptr : cudaGetErrorString(e);
}

}  // namespace keel::cuda::hopper
