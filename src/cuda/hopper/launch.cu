#include <algorithm>
#include <map>
#include <mutex>

#include "core/dropout.h"
#include "cuda/hopper/early.cuh"
#include "cuda/hopper/kernels.cuh"
#include "cuda/hopper/launch.h"
#include "cuda/hopper/tensor_map.cuh"
#include "cuda/plain_forward.h"

namespace keel::cuda::hopper {
namespace {

// ---- The tiles of a packed batch, those with the most keys first.
constexpr int kListThreads = 1024, kBuckets = 256;

// Several threads to an entry, where there are more than entries.
template <class Visit>
__device__ void visit_tiles(const Call& call, const Cut& cut, const Visit& visit) {
  const int side_by_side = min(cut.entries, kListThreads), threads = kListThreads / side_by_side;
  const int first = static_cast<int>(threadIdx.x) / threads, within = static_cast<int>(threadIdx.x) % threads;
  if (first >= side_by_side) return;
  for (int e = first; e < cut.entries; e += side_by_side) {
    const int rows = narrow(call.sequences.entry(e).q_rows) * cut.share;
    for (int block = within; block * cut.tile_rows < rows; block += threads) {
      const Tile tile = make_tile(call, cut, {e, 0, block, 0}, 0);
      visit(TileIndex{e, 0, block, 0}, kBuckets - 1 - min(tile.block_end - tile.block_begin, kBuckets - 1));
    }
  }
}

__global__ void __launch_bounds__(kListThreads)
    list_tiles(const __grid_constant__ Call call, const __grid_constant__ Cut cut, TileIndex* list, unsigned* count) {
  __shared__ unsigned first[kBuckets];
  ptx::wait_for_last_kernel();
  ptx::let_next_kernel_start();  // which waits for this one, but is there then
  for (int i = threadIdx.x; i < kBuckets; i += blockDim.x) first[i] = 0;
  __syncthreads();
  visit_tiles(call, cut, [&](const TileIndex&, int bucket) { atomicAdd(&first[bucket], 1u); });
  __syncthreads();
  if (threadIdx.x == 0) {
    unsigned sum = 0;
    for (unsigned& n : first) {
      const unsigned here = n;
      n = sum;
      sum += here;
    }
    *count = sum;
  }
  __syncthreads();
  visit_tiles(call, cut, [&](const TileIndex& index, int bucket) { list[atomicAdd(&first[bucket], 1u)] = index; });
}

// ---- Chunks of keys, joined in order.
template <class Element>
__global__ void join_chunks(const __grid_constant__ Call call, const __grid_constant__ Partials partials,
                            const __grid_constant__ OddRows odd, int chunks) {
  const int lane = threadIdx.x & 31;
  const std::int64_t at = blockIdx.x * static_cast<std::int64_t>(blockDim.x / 32) + threadIdx.x / 32;
  if (at >= partials.rows) return;
  const std::int64_t n_q = call.sequences.n_q, row = at % n_q, h = at / n_q % call.q_heads, b = at / n_q / call.q_heads;
  float largest = -kInfinity, sum = 0;
  for (int c = 0; c < chunks; ++c) largest = fmaxf(largest, partials.sums[c * partials.rows + at].largest);
  const bool masked = largest == -kInfinity;
  const float sink = call.sinks
                         ? 1.4426950408889634f * load_float(call.sinks.data, call.sinks.dtype, h * call.sinks.head)
                         : -kInfinity;
  const float top = masked ? 0.0f : fmaxf(largest, sink);
  for (int c = 0; c < chunks; ++c) {
    const auto part = partials.sums[c * partials.rows + at];
    sum += part.sum * exp2f(part.largest - top);  // NaN stays NaN
  }
  if (!masked && call.sinks) sum += exp2f(sink - top);
  if (sum != sum) {
    if (lane == 0) {
      odd.rows[atomicAdd(odd.count, 1u)] = {static_cast<int>(b), static_cast<int>(h), static_cast<int>(row), -1};
    }
    return;
  }
  const float kept = static_cast<float>(Dropout(call.dropout, call.seed).factor);
  const float factor = masked ? 0.0f : kept / sum;
  for (int column = lane; column < call.d_v; column += 32) {
    float x = 0;
    for (int c = 0; c < chunks; ++c) {
      const std::int64_t from = c * partials.rows + at;
      x = fmaf(partials.out[from * call.d_v + column], exp2f(partials.sums[from].largest - top), x);
    }
    x *= factor;
    const std::int64_t to = b * call.out.batch + h * call.out.head + row * call.out.row + column * call.out.column;
    if (call.out.dtype == DType::f32) {
      static_cast<float*>(call.out.data)[to] = x;
    } else {
      static_cast<Element*>(call.out.data)[to] = static_cast<Element>(x);
    }
  }
  if (lane != 0) return;
  const auto put = [&](const MutableStrided& x, float value) {
    if (x) static_cast<float*>(x.data)[b * x.batch + h * x.head + row * x.row] = value;
  };
  put(call.lse, masked ? -kInfinity : (top + log2f(sum)) * CUDART_LN2_F);
  put(call.max_logit, masked ? -kInfinity : largest * CUDART_LN2_F);
  put(call.max_weight, masked ? 0.0f : exp2f(largest - top) / sum);
  if (call.visible) {
    const Entry entry = call.sequences.entry(b);
    const KeyRange keys = call.sequences.key_range(entry, row);
    static_cast<std::int64_t*>(
        call.visible.data)[b * call.visible.batch + h * call.visible.head + row * call.visible.row] =
        keys.end - keys.begin;
  }
}

// ---- Counters of a call: tiles taken, rows of chunks to compute again, CTAs that have seen how many, tiles listed.
// All but the last are 0 between calls.
struct Counters {
  unsigned next, odd, seen, listed;
};
constexpr std::int64_t kCounterBytes = 256;

// Those of a stream, whose calls come one after the other. A graph may run beside its stream's calls, so a call that is
// captured has its own, in its workspace.
const char* counters_for(cudaStream_t stream, void* workspace, Counters*& counters) {
  cudaStreamCaptureStatus status;
  if (const cudaError_t e = cudaStreamIsCapturing(stream, &status)) return cudaGetErrorString(e);
  if (status != cudaStreamCaptureStatusNone) {
    counters = static_cast<Counters*>(workspace);
    const cudaError_t e = cudaMemsetAsync(counters, 0, sizeof(Counters), stream);
    return e == cudaSuccess ? nullptr : cudaGetErrorString(e);
  }
  static std::map<std::pair<int, unsigned long long>, Counters*> known;  // by device and stream
  static std::mutex mutex;
  int device = 0;
  unsigned long long id = 0;
  if (const cudaError_t e = cudaGetDevice(&device)) return cudaGetErrorString(e);
  if (const cudaError_t e = cudaStreamGetId(stream, &id)) return cudaGetErrorString(e);
  const std::lock_guard<std::mutex> lock(mutex);
  Counters*& own = known[{device, id}];
  if (own == nullptr) {
    void* memory = nullptr;
    if (const cudaError_t e = cudaMallocAsync(&memory, kCounterBytes, stream)) return cudaGetErrorString(e);
    if (const cudaError_t e = cudaMemsetAsync(memory, 0, kCounterBytes, stream)) return cudaGetErrorString(e);
    own = static_cast<Counters*>(memory);
  }
  counters = own;
  return nullptr;
}

// ---- Rows of chunks that NaN may have leaked into, or whose scores are no numbers.
template <class Stored>
__global__ void compute_joined_again(const __grid_constant__ Call call, const __grid_constant__ OddRows odd,
                                     Counters* counters) {
  const unsigned warps = gridDim.x * (blockDim.x / 32), count = counters->odd;
  __syncthreads();
  // The last to come leaves the counters as the next call expects them.
  if (threadIdx.x == 0 && atomicInc(&counters->seen, gridDim.x - 1) == gridDim.x - 1) counters->odd = 0;
  for (unsigned i = blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32; i < count; i += warps) {
    compute_again<Stored>(call, odd.rows[i]);
  }
}

// ---- Workspace: counters, rows to compute again, then the list of tiles, or the chunks.

constexpr std::int64_t padded(std::int64_t bytes) { return (bytes + 255) / 256 * 256; }

std::int64_t listed_tiles(const ForwardWork& w) {
  return w.call.sequences.n_q * w.cut.share / w.cut.tile_rows + w.cut.entries;
}
std::int64_t rows_of(const Call& call) { return call.sequences.batch * call.q_heads * call.sequences.n_q; }
std::int64_t odd_bytes(const Call& call) { return padded(rows_of(call) * static_cast<std::int64_t>(sizeof(OddRow))); }

Kernel kernel_of_choice(const Choice& choice) {
  if (choice.terms != Terms::none && choice.terms != Terms::any) {
    return choice.shape.d == 64 ? single_term_kernel_for<64>(choice) : single_term_kernel_for<128>(choice);
  }
  switch (choice.shape.d) {
    case 64:
      return kernel_for<64>(choice);
    case 96:
      return kernel_for<96>(choice);
    case 128:
      return kernel_for<128>(choice);
    case 192:
      return kernel_for<192>(choice);
    default:
      return kernel_for<256>(choice);
  }
}

SoftcapArguments softcap_arguments(const Call& call) {
  // tanh(x)/x, a polynomial in x² that is 3e-6 off at most, relatively, up to |x| = kNear.
  constexpr double kNear = 0.35, kP0 = 0.9999971307685835, kP1 = -0.3329095413257022, kP2 = 0.12395031460744668;
  const double top = call.softcap / call.scale, unit = call.scale * 1.4426950408889634;
  SoftcapArguments a;
  a.top = static_cast<float>(top);
  a.to_power = static_cast<float>(2.0 * 1.4426950408889634 / top);
  a.near = top > 1e-4 && top < 1e8 ? static_cast<float>(kNear * top) : -1.0f;  // else u² is beyond f32
  a.p0 = static_cast<float>(kP0 * unit);
  a.p1 = static_cast<float>(kP1 * unit / (top * top));
  a.p2 = static_cast<float>(kP2 * unit / (top * top * top * top));
  return a;
}

}  // namespace

std::int64_t forward_workspace(const ForwardWork& w) {
  std::int64_t bytes = kCounterBytes + odd_bytes(w.call);
  if (w.call.sequences.packed()) bytes += listed_tiles(w) * static_cast<std::int64_t>(sizeof(TileIndex));
  if (w.cut.chunk > 0) {
    bytes += rows_of(w.call) * w.cut.chunks * (static_cast<std::int64_t>(sizeof(Partials::Sums)) + 4 * w.call.d_v);
  }
  return bytes;
}

const char* launch_forward(const ForwardWork& w, void* workspace, cudaStream_t stream) {
  const Kernel kernel = kernel_of_choice(w.choice);
  if (kernel.function == nullptr) return "a choice of kernel that is not compiled";
  if (encode_function() == nullptr) return "a driver without tensor maps";
  const Call& call = w.call;
  const Sequences& s = call.sequences;
  Maps maps;
  const DType dtype = call.dtype;
  const bool tiled = w.choice.terms == Terms::mask || w.choice.terms == Terms::bias;
  const bool encoded =
      encode(call.q, dtype, {s.batch, call.q_heads, s.n_q, call.d_k}, w.cut.share, w.cut.tile_rows, maps.q) &&
      encode(call.k, dtype, {s.batch, call.kv_heads, s.n_k, call.d_k}, 1, w.choice.shape.keys, maps.k) &&
      encode(call.v, dtype, {s.batch, call.kv_heads, s.n_k, call.d_v}, 1, w.choice.shape.keys, maps.v) &&
      (!w.stores_tiles || encode(call.out, dtype, {s.batch, call.q_heads, s.n_q, call.d_v}, 1, 16, maps.out)) &&
      (!tiled || encode_term(w.choice.terms == Terms::mask ? call.mask : call.bias,
                             {s.batch, call.q_heads, s.n_q, s.n_k}, maps.term));
  if (!encoded) return "a tensor map that the driver refuses";
  if (!w.stores_tiles) maps.out = maps.q;  // prefetched, not used
  if (!tiled) maps.term = maps.q;          // not used

  ForwardArguments a{};
  a.call = call;
  a.cut = w.cut;
  a.window = window_of(s);
  a.scale_log2 = static_cast<float>(call.scale * 1.4426950408889634);
  a.inverse_scale = static_cast<float>(1.0 / call.scale);
  if (call.softcap > 0) a.softcap = softcap_arguments(call);
  if (call.dropout > 0) a.dropout = dropout_arguments(Dropout(call.dropout, call.seed));
  a.stores_tiles = w.stores_tiles;
  a.reports = call.lse || call.max_logit || call.max_weight || call.visible || call.entropy || call.logit_count ||
              call.logit_mean || call.logit_var;
  Counters* counters = nullptr;
  if (const char* const why = counters_for(stream, workspace, counters)) return why;
  char* free = static_cast<char*>(workspace) + kCounterBytes;
  a.odd = {reinterpret_cast<OddRow*>(free), &counters->odd};
  free += odd_bytes(call);
  std::int64_t tiles = w.cut.tiles;
  if (s.packed()) {
    tiles = listed_tiles(w) * w.cut.heads;
    auto* list = reinterpret_cast<TileIndex*>(free);
    unsigned* count = &counters->listed;
    void* arguments[] = {const_cast<Call*>(&call), const_cast<Cut*>(&w.cut), &list, &count};
    if (const cudaError_t e =
            launch_early(reinterpret_cast<const void*>(&list_tiles), dim3(1), kListThreads, 0, arguments, stream)) {
      return cudaGetErrorString(e);
    }
    a.listed = list;
    a.listed_count = count;
  }
  if (w.cut.chunk > 0) {
    a.partials.rows = rows_of(call);
    a.partials.sums = reinterpret_cast<Partials::Sums*>(free);
    a.partials.out = reinterpret_cast<float*>(a.partials.sums + a.partials.rows * w.cut.chunks);
  }
  if (tiles > w.processors) a.next = &counters->next;
  if (const cudaError_t e =
          cudaFuncSetAttribute(kernel.function, cudaFuncAttributeMaxDynamicSharedMemorySize, kernel.shared_bytes)) {
    return cudaGetErrorString(e);
  }
  const auto grid = static_cast<unsigned>(std::min<std::int64_t>(tiles, w.processors));
  void* arguments[] = {&maps, &a};
  if (const cudaError_t e =
          launch_early(kernel.function, dim3(grid), w.choice.shape.threads(), kernel.shared_bytes, arguments, stream)) {
    return cudaGetErrorString(e);
  }
  if (w.cut.chunk > 0) {
    const auto blocks = static_cast<unsigned>((a.partials.rows + 3) / 4);
    const auto join = w.choice.bf16 ? &join_chunks<__nv_bfloat16> : &join_chunks<__half>;
    join<<<blocks, 128, 0, stream>>>(call, a.partials, a.odd, w.cut.chunks);
    const auto again = w.choice.bf16 ? &compute_joined_again<BFloat16> : &compute_joined_again<Float16>;
    again<<<static_cast<unsigned>(w.processors), 128, 0, stream>>>(call, a.odd, counters);
    if (const cudaError_t e = cudaPeekAtLastError()) return cudaGetErrorString(e);
  }
  return nullptr;
}

}  // namespace keel::cuda::hopper
