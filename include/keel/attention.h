#pragma once

// Scaled dot-product attention:   out = softmax(scale · q kᵀ) v,   scale = 1/√d_k
//
//   std::vector<float> q(B*H*N*64), k(...), v(...), out(...);
//   keel::attention(keel::view(q.data(), {B, H, N, 64}), keel::view(k.data(), {B, H, N, 64}),
//                   keel::view(v.data(), {B, H, N, 64}), keel::view(out.data(), {B, H, N, 64}),
//                   {.causal = keel::Causal::top_left});
//
// Shapes.  q (B, H_q, N_q, d_k)   k (B, H_kv, N_k, d_k)   v (B, H_kv, N_k, d_v)   out (B, H_q, N_q, d_v)
// H_q is a multiple of H_kv; query head h reads key-value head ⌊h·H_kv/H_q⌋. q, k and v share one dtype: f64, f32, f16
// or bf16; out has that dtype too, or f32 if they have 16 bits. Any length (0 included) and head size; any strides.
//
// Order of a score.  s = scale·(q·k) → softcap → + bias → + ALiBi → masks → softmax (with sinks) → dropout → · v
//
// Every invalid argument raises keel::Error before anything is computed or written. Same input, same bits: the result
// depends neither on the number of threads nor on the other rows of the call, except that a few query rows (decoding)
// may have other bits than they would have among many, in bf16 on AMX (docs/performance.md) and on GPUs (docs/gpu.md).

#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "keel/error.h"
#include "keel/export.h"
#include "keel/view.h"

namespace keel {

// Which keys a query may see by position. With the diagonal at key i + offset, query i sees keys up to the diagonal.
enum class Causal : std::uint8_t {
  none,
  top_left,      // offset 0: query 0 sees key 0 (torch's is_causal)
  bottom_right,  // offset n_k − n_q: the last query sees the last key (the right choice with a KV cache)
};

// Keys within `left` before and `right` after the diagonal, both inclusive. The diagonal is that of the causal mask, or
// bottom_right where no causal mask is set. A window of {left, 0} is a sliding window.
struct Window {
  static constexpr std::int64_t kUnbounded = INT64_MAX;
  std::int64_t left = kUnbounded;
  std::int64_t right = kUnbounded;
};

// Where the rows of q and k stand when they are a slice of a longer problem, "the whole": a chunk of a prompt, a shard
// of a sequence over many machines. Causal masks, windows, ALiBi, relative biases and dropout then follow the whole's
// positions, lengths and offsets are the whole's, and bottom_right aligns the whole. Everything else belongs to the
// slice. Results over slices of keys join by merge(), gradients by Gradients::accumulate.
struct Origin {
  std::int64_t query = 0, key = 0;  // position of the first row of q, and of k
  std::int64_t n_q = 0, n_k = 0;    // rows of the whole; 0: it ends where the slice ends
};

// A mask of which only the tiles that hide some of their pairs are stored: documents in a row, a prefix, a pattern of
// blocks. The scores of a head are cut into tiles of R queries by C keys, the last ones of which may be incomplete.
// Tiles that are not listed are hidden and cost nothing; tiles listed as full need no mask.
struct BlockMask {
  // Where each block of R queries has its list: entry (b, h, x) to entry (b, h, x + 1) of `blocks`. i64, (B, H_q, X +
  // 1) with X = ⌈N_q / R⌉; B and H_q may be 1.
  BasicView<3, const void*> offsets{};
  // The lists, i64, (L, 2): a block of C keys, and the tile that says what is visible there, or −1 if everything is.
  // The blocks of a list ascend.
  BasicView<2, const void*> blocks{};
  // The tiles, boolean (true = attend), (T, R, C). T may be 0; R and C are its sizes all the same.
  BasicView<3, const void*> tiles{};
};

// The order in which a GPU adds up dq. On the CPU it is always fixed.
enum class Order : std::uint8_t {
  fixed,  // one order: the same bits every time
  free,   // as parts arrive: up to 8 % faster (4 to 18 % at head sizes above 128), but the last bits differ from run
          // to run
};

// Everything about a call except its tensors. The default is plain attention.
// (The {} here and below avoid warnings about members that designated initialisers leave out.)
struct Options {
  // The factor on q·k. A number (1/√d_k by default), or a tensor (B, H_q, N_q) of any float dtype that replaces it, in
  // which any dimension may be 1: {1, H, 1} gives each head its temperature (scale = 1/τ), {B, H, N_q} each query its
  // own.
  std::optional<double> scale{};
  RowView scale_tensor{};

  // c·tanh(s/c), c > 0: bounds scores to (−c, c).
  std::optional<double> softcap{};

  // Masks compose: a key is visible where all of them allow it. `mask` is boolean (true = attend); `bias` is added to
  // the scores (q's dtype or f32), and −inf masks. Both are (B, H_q, N_q, N_k), where any dimension may be 1 or have
  // stride 0; they are never expanded.
  TensorView mask{};
  TensorView bias{};
  const BlockMask* block_mask = nullptr;  // of the rows and keys of the tensors, as `mask` is
  Causal causal = Causal::none;
  Window window{};
  Origin origin{};

  // Padded batches: how many leading rows of each batch entry are real (B values each). Later keys are masked; later
  // queries count as fully masked rows. Either may be given alone.
  ListView q_lengths{};
  ListView k_lengths{};

  // Batches and caches that are padded on the left: how many leading keys of each batch entry are padding (B values).
  // They are masked; positions still count from the first key.
  ListView k_starts{};

  // Packed batches: B = 1, and entry e owns rows [offsets[e], offsets[e+1]); both are given, with E + 1 values from 0
  // to N (cu_seqlens). Queries see the keys of their own entry only. bottom_right aligns each entry by its own lengths.
  ListView q_offsets{};
  ListView k_offsets{};

  // ALiBi: −slope · |i + offset − j|, one slope per query head (H_q), or per batch entry and query head (B, H_q), along
  // the diagonal described at Window. Any float dtype.
  SlopeView alibi{};

  // A bias by distance, as in T5: table[h, clamp(j − i − offset, −R, R) + R], (H_q, 2R + 1) or (1, 2R + 1), q's dtype
  // or f32, along the same diagonal; −inf masks.
  TableView relative_bias{};

  // One logit per query head (H_q) that joins the softmax's denominator but has no value: 0 gives softmax₁.
  HeadView sinks{};

  // Each weight is zeroed with this probability, 0 ≤ dropout ≤ 1, rounded to p, a multiple of 2^-16; the rest are
  // divided by 1 − p. Which ones depends only on (seed, entry, head, query, key).
  double dropout = 0.0;
  std::uint64_t seed = 0;

  // At most this many threads; 0 means all that the process may use. Has no meaning on a GPU.
  int threads = 0;

  // On a CUDA device: the cudaStream_t on which the work is queued, null for the default one. The call returns without
  // waiting for it.
  void* stream = nullptr;
  Order order = Order::fixed;

  // f32 on a CPU with AMX, d_k + d_v ≥ 128: in the forward pass each float is split into three bf16, whose products the
  // unit adds up in f32. Results are as accurate as in f32, but have other bits. Faster for long rows where a core runs
  // one thread, slower for short ones (docs/performance.md), so it is used only on request. No effect elsewhere.
  bool split_products = false;
};

// Per (batch entry, query head), over the rows that see at least one key.
struct HeadStatistics {
  double max_logit = 0;           // largest score (what QK-clip watches); −inf when no row sees a key
  double mean_entropy = 0;        // nats
  double min_entropy = 0;         // nats
  double normalised_entropy = 0;  // mean of entropy ÷ ln(outcomes), over rows with at least two outcomes
  double saturated = 0;           // share of rows with max_weight above the threshold
  std::int64_t rows = 0;          // how many rows see at least one key
};

// The stages of a score on its way to the softmax, of which Outputs::scores reports one.
enum class ScoreStage : std::uint8_t {
  raw,     // scale·(q·k)
  capped,  // after the softcap
  masked,  // after biases, ALiBi and masks: what the softmax gets, −inf for a hidden key
};

// What attention can report besides its output. Each is computed only if a view is given, and in the same pass except
// for key_sums and scores.
// Row statistics are (B, H_q, N_q) in f32 (f64 for f64 inputs), `visible` and `logit_count` in i64. A fully masked row
// has lse and max_logit −inf and 0 in all others. A row with a visible NaN has NaN in all of them except `visible` and
// `logit_count`. In logit_mean and logit_var scores at or below −2^64 count as masked: a finite bias (−1e30, the lowest
// float) masks such keys in all but name.
struct Outputs {
  MutableRowView lse{};               // log of the softmax's denominator, sink included: weight = exp(s − lse)
  MutableRowView max_logit{};         // largest visible score
  MutableRowView entropy{};           // of the softmax in nats; a sink counts as one more outcome
  MutableRowView max_weight{};        // exp(max_logit − lse)
  MutableRowView logit_mean{};        // of the visible scores
  MutableRowView logit_var{};         // of the visible scores (divided by their number)
  MutableRowView visible{};           // how many keys the row sees
  MutableRowView logit_count{};       // how many scores logit_mean and logit_var cover
  MutableTensorView weights{};        // (B, H_q, N_q, N_k), q's dtype or f32: what multiplies v, dropout included
  std::span<HeadStatistics> heads{};  // entries × H_q of them, entry-major; an entry is a batch entry, or a packed one
  double saturation_threshold = 0.99;

  // Per key, its total weight over the rows of its entry: Σ_i p_ij, where p is the softmax weight before dropout, with
  // sinks in the denominator. (B, H_q, N_k) in f32 (f64 for f64 inputs), from a second pass over q and k.
  // `key_sum_rows` w > 0 counts only the last w rows of each entry, padding excluded. A row with a visible NaN turns
  // the sums of the keys that it sees into NaN.
  MutableRowView key_sums{};
  std::int64_t key_sum_rows = 0;

  // The scores at one stage, (B, H_q, N_q, N_k), q's dtype or f32, from a further pass over q and k. Before `masked`
  // they are those of every query and key of an entry, whatever masks hide. What does not belong together (padding, and
  // rows and keys of different packed entries) is −inf at every stage.
  MutableTensorView scores{};
  ScoreStage score_stage = ScoreStage::raw;
};

// out = attention of q over (k, v).
KEEL_API void attention(const TensorView& q, const TensorView& k, const TensorView& v, const MutableTensorView& out,
                        const Options& options = {}, const Outputs& outputs = {});

// What the backward pass starts from: the inputs of the forward call, its two results, and the incoming gradients.
struct BackwardInputs {
  TensorView q{}, k{}, v{};
  TensorView out{};   // as attention() returned it
  RowView lse{};      // as attention() returned it
  TensorView dout{};  // gradient of the loss with respect to out: (B, H_q, N_q, d_v), q's dtype or f32
  RowView dlse{};     // gradient of the loss with respect to lse, if the caller used it; may be left out
};

// Gradients to compute; those without a view cost nothing. dbias, dscale and drelative_bias may have size 1 (or stride
// 0) along any dimension but the last of drelative_bias: the gradient is then summed over it, as a broadcast input
// needs.
struct Gradients {
  MutableTensorView dq{}, dk{}, dv{};  // shapes of q, k, v, and their dtype or f32
  MutableTensorView dbias{};           // (B, H_q, N_q, N_k), q's dtype or f32
  MutableRowView dscale{};             // (B, H_q, N_q), of the scale in use, number or tensor; any float dtype
  MutableHeadView dsinks{};            // (H_q); any float dtype
  MutableTableView drelative_bias{};   // (H_q, 2R + 1), q's dtype or f32
  bool accumulate = false;             // add to what the views hold instead of overwriting it
};

// The gradients of attention(); `options` as in the forward call. For a slice of keys (options.origin), out and lse are
// those of all keys, merged, and dq, dbias, dscale and drelative_bias are this slice's part of the gradient. dsinks is
// a sum over rows: request it from one slice of keys only.
KEEL_API void attention_backward(const BackwardInputs& inputs, const Gradients& gradients, const Options& options = {});

// A direction in which the inputs of attention() move. An input without a view stays where it is.
struct Tangents {
  TensorView tq{}, tk{}, tv{};  // shapes of q, k, v, and their dtype or f32
  TensorView tbias{};           // (B, H_q, N_q, N_k), where any dimension may be 1 or have stride 0; q's dtype or f32
  RowView tscale{};             // (B, H_q, N_q), likewise, of the scale in use, number or tensor; any float dtype
  HeadView tsinks{};            // (H_q); any float dtype
};

// What the derivative along a direction starts from: the inputs of the forward call and its two results.
struct JvpInputs {
  TensorView q{}, k{}, v{};
  TensorView out{};  // as attention() returned it
  RowView lse{};     // as attention() returned it
};

// The directions in which the results then move; those without a view cost nothing.
struct JvpOutputs {
  MutableTensorView tout{};  // (B, H_q, N_q, d_v), q's dtype or f32
  MutableRowView tlse{};     // (B, H_q, N_q) in f32 (f64 for f64 inputs)
  bool accumulate = false;   // add to what the views hold instead of overwriting it
};

// The derivative of attention() along a direction: its Jacobian times `tangents`. `options` as in the forward call. For
// a slice of keys (options.origin), out and lse are those of all keys, merged, and the results are this slice's part of
// the sum; give tsinks to one slice of keys only.
KEEL_API void attention_jvp(const JvpInputs& inputs, const Tangents& tangents, const JvpOutputs& outputs,
                            const Options& options = {});

// Second derivatives to compute; those without a view cost nothing.
struct DoubleGradients {
  Gradients gradients{};      // with respect to q, k, v, bias, scale and sinks; `accumulate` holds for all views here
  MutableTensorView ddout{};  // with respect to dout: its shape, q's dtype or f32
  MutableRowView ddlse{};     // with respect to dlse: (B, H_q, N_q) in f32 (f64 for f64 inputs)
};

// The gradients of attention_backward(). `tangents` holds the gradients of a loss with respect to its results: tq with
// respect to dq, tk to dk, tv to dv and so on. `inputs` and `options` as in that call, over all keys: a slice of them
// is refused. As the Hessian is symmetric, this is also the derivative of attention_backward() along `tangents`: a
// product of the Hessian and a vector.
KEEL_API void attention_double_backward(const BackwardInputs& inputs, const Tangents& tangents,
                                        const DoubleGradients& gradients, const Options& options = {});

// Attention of the same queries over one part of the keys, as attention() reports it.
struct Partial {
  TensorView out{};  // (B, H, N_q, d_v)
  RowView lse{};     // (B, H, N_q), as are the statistics; only those requested from merge() are needed
  RowView max_logit{}, entropy{}, max_weight{}, logit_mean{}, logit_var{}, visible{}, logit_count{};
};

// Joins results over disjoint sets of keys into the result over their union, exactly:
//   lse = log Σ exp(lse_p)    w_p = exp(lse_p − lse)    out = Σ w_p · out_p
//   max_logit = max of max_logit_p    entropy = Σ w_p (entropy_p − ln w_p)    max_weight = max of w_p · max_weight_p
//   visible = Σ visible_p    logit_count = Σ logit_count_p    logit_mean, logit_var: weighted by logit_count_p
// `outputs` may request lse and row statistics; weights, heads, key_sums and scores cannot be merged. Every part must
// have each requested statistic; logit_mean also needs logit_count, logit_var also logit_mean and logit_count. A part
// with lse −inf saw no key and is ignored.
//
// 16-bit results may be merged from f32 parts, and f32 ones from 16-bit parts. out, lse and each statistic may be
// exactly the same view as in a part: merge({acc, next}, acc.out, …) adds to acc in place.
//
// A sink belongs to no key: give it to one part only, or add it as a separate part (out 0, lse = sink).
//
// `threads` and `stream` are as in Options.
KEEL_API void merge(std::span<const Partial> parts, const MutableTensorView& out, const Outputs& outputs = {},
                    int threads = 0, void* stream = nullptr);

// How attention() or one of its derivatives would serve this call: backend, kernel, tiles, threads, workspace, and why.
// Data is not read, and pointers may be null.
KEEL_API std::string explain(const TensorView& q, const TensorView& k, const TensorView& v,
                             const MutableTensorView& out, const Options& options = {}, const Outputs& outputs = {});
KEEL_API std::string explain(const BackwardInputs& inputs, const Gradients& gradients, const Options& options = {});
KEEL_API std::string explain(const JvpInputs& inputs, const Tangents& tangents, const JvpOutputs& outputs,
                             const Options& options = {});
KEEL_API std::string explain(const BackwardInputs& inputs, const Tangents& tangents, const DoubleGradients& gradients,
                             const Options& options = {});

// "major.minor.patch"
[[nodiscard]] KEEL_API const char* version() noexcept;

}  // namespace keel
