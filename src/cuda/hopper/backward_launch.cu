#include "cuda/hopper/backward_kernels.cuh"
#include "cuda/hopper/backward_passes.cuh"
#include "cuda/hopper/backward_workspace.h"
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

template <class Element, class Stored>
cudaError_t run(const BackwardWork& w, const BackwardKernel& kernel, BackwardMaps& maps, BackwardArguments& a,
                cudaStream_t stream) {
  const Sequences& s = a.call.forward.sequences;
  const std::int64_t heads = s.batch * a.call.forward.q_heads;
  prepare_rows<Element, Stored><<<grid_for(a.call.forward, s.n_q), kPassThreads, 0, stream>>>(a);
  Launcher launcher(stream);
  if (a.writes_dbias) zero_steps(w.as_given.dbias, launcher);
  if (!a.ordered) {
    const std::int64_t floats = heads * w.cut.query_slots * w.cut.query_block * a.call.forward.d_k;
    if (const cudaError_t e = cudaMemsetAsync(a.dq, 0, floats * sizeof(float), stream)) return e;
  }
  if (const cudaError_t e =
          cudaFuncSetAttribute(kernel.function, cudaFuncAttributeMaxDynamicSharedMemorySize, kernel.shared_bytes)) {
    return e;
  }
  void* arguments[] = {&maps, &a};
  if (const cudaError_t e = cudaLaunchKernel(kernel.function, dim3(std::min(w.cut.tasks, w.processors)), dim3(384),
                                             arguments, kernel.shared_bytes, stream)) {
    return e;
  }
  if (a.call.dq || a.dscale != nullptr) {
    finish_dq<Element><<<grid_for(a.call.forward, w.cut.query_slots * w.cut.query_block), kPassThreads, 0, stream>>>(a);
  }
  compute_gradients_again<Stored><<<w.processors, kPassThreads, 0, stream>>>(a);
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
  a.lanes = w.shape.d / 8;
  a.ordered = w.ordered;
  a.writes_dbias = w.writes_dbias;
  WorkspaceCursor memory(workspace);
  lay_out(w, memory, a);
  const cudaError_t e = w.bf16 ? run<__nv_bfloat16, BFloat16>(w, kernel, maps, a, stream)
                               : run<__half, Float16>(w, kernel, maps, a, stream);
  return e == cudaSuccess ? nullptr : cudaGetErrorString(e);
}

}  // namespace keel::cuda::hopper
