#include "cuda/hopper/backward_kernels.cuh"
#include "cuda/hopper/backward_passes.cuh"
#include "cuda/hopper/launch.h"
#include "cuda/hopper/tensor_map.cuh"
#include "cuda/plain_steps.h"

namespace keel::cuda::hopper {
namespace {

std::int64_t blocks_for(std::int64_t threads) { return (threads + kPassThreads - 1) / kPassThreads; }

// The parts of the workspace; only reckons where there is none.
void lay_out(const BackwardWork& w, WorkspaceCursor& memory, BackwardArguments& a) {
  const Call& f = w.call.forward;
  const std::int64_t rows = f.sequences.batch * f.q_heads * f.sequences.n_q;
  const std::int64_t keys = f.sequences.batch * f.kv_heads * f.sequences.n_k;
  const std::int64_t slots = f.sequences.batch * f.q_heads * w.cut.query_slots, in_slots = slots * w.cut.query_block;
  a.dq = memory.take<float>(in_slots * f.d_k);
  a.lse_log2 = memory.take<float>(in_slots);
  a.delta = memory.take<float>(in_slots);
  if (w.terms) a.scale = memory.take<float>(in_slots);
  a.turn = memory.take<int>(slots);
  a.rows = memory.take<RowNumbers<float>>(rows);
  a.odd_dq.rows = memory.take<unsigned>(rows);
  a.odd_dk.rows = memory.take<unsigned>(keys);
  a.odd_dv.rows = memory.take<unsigned>(keys);
  auto* const counters = memory.take<unsigned>(4);
  if (counters == nullptr) return;
  a.next = reinterpret_cast<int*>(counters);
  a.odd_dq.count = counters + 1;
  a.odd_dk.count = counters + 2;
  a.odd_dv.count = counters + 3;
}

BackwardKernel kernel_of(const BackwardWork& w) {
  if (w.shape.d == 64) return backward_kernel_for<64, false>(w.bf16);
  if (w.shape.d == 128) return w.terms ? backward_kernel_for<128, true>(w.bf16) : backward_kernel_for<128, false>(w.bf16);
  return w.terms ? backward_kernel_for<256, true>(w.bf16) : backward_kernel_for<256, false>(w.bf16);
}

template <class Element, class Stored>
cudaError_t run(const BackwardWork& w, const BackwardKernel& kernel, BackwardMaps& maps, BackwardArguments& a,
                cudaStream_t stream) {
  const Sequences& s = a.call.forward.sequences;
  const std::int64_t heads = s.batch * a.call.forward.q_heads;
  prepare_rows<Element, Stored><<<blocks_for(heads * s.n_q * a.lanes), kPassThreads, 0, stream>>>(a);
  if (!a.ordered) {
    const std::int64_t floats = heads * w.cut.query_slots * w.cut.query_block * a.call.forward.d_k;
    if (const cudaError_t e = cudaMemsetAsync(a.dq, 0, floats * sizeof(float), stream)) return e;
  }
  if (const cudaError_t e =
          cudaFuncSetAttribute(kernel.function, cudaFuncAttributeMaxDynamicSharedMemorySize, kernel.shared_bytes)) {
    return e;
  }
  void* arguments[] = {&maps, &a};
  if (const cudaError_t e = cudaLaunchKernel(kernel.function, dim3(static_cast<unsigned>(w.cut.tasks)), dim3(384),
                                             arguments, kernel.shared_bytes, stream)) {
    return e;
  }
  if (a.call.dq) {
    const std::int64_t threads = heads * w.cut.query_slots * (w.cut.query_block / 2) * a.lanes;
    finish_dq<Element><<<blocks_for(threads), kPassThreads, 0, stream>>>(a);
  }
  compute_gradients_again<Stored><<<w.processors, kPassThreads, 0, stream>>>(a);
  return cudaGetLastError();
}

}  // namespace

std::int64_t backward_workspace(const BackwardWork& w) {
  WorkspaceCursor memory(nullptr);
  BackwardArguments a{};
  lay_out(w, memory, a);
  return static_cast<std::int64_t>(memory.used());
}

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
  WorkspaceCursor memory(workspace);
  lay_out(w, memory, a);
  const cudaError_t e = w.bf16 ? run<__nv_bfloat16, BFloat16>(w, kernel, maps, a, stream)
                               : run<__half, Float16>(w, kernel, maps, a, stream);
  return e == cudaSuccess ? nullptr : cudaGetErrorString(e);
}

}  // namespace keel::cuda::hopper
