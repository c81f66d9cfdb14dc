#pragma once

// Attention over many processes: each holds some rows of q, k and v, and gets the rows of the result that belong to its
// queries.
//
//   const keel::ring::Sharding whole{.n_q = N, .n_k = N};
//   const auto mine = keel::ring::shard(N, transport.size(), transport.rank(), whole.layout).size();
//   keel::ring::attention(transport, whole,
//                         {.q = keel::view(q, {B, H, mine, D}), .k = keel::view(k, {B, H, mine, D}),
//                          .v = keel::view(v, {B, H, mine, D}), .out = keel::view(out, {B, H, mine, D})},
//                         {.causal = keel::Causal::top_left});
//
// All processes ("ranks") make the same call. If one of them has a wrong argument, fails on the way or is lost, all of
// them raise a keel::Error that names the rank and the reason. Differences between the ranks' options are found before
// any work.

#include <array>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "keel/attention.h"

namespace keel::ring {

// How one rank reaches the others: bytes from rank to rank, in order for each pair of ranks and tag. Keel never shares
// one transport between threads.
class KEEL_API Transport {
 public:
  using Request = std::int64_t;

  virtual ~Transport() = default;
  [[nodiscard]] virtual int rank() const = 0;
  [[nodiscard]] virtual int size() const = 0;

  // Begin a transfer and return at once; the memory is the transport's until wait() has returned. Tags are 0 to 2.
  // Both sides name the same number of bytes, at least 1.
  virtual Request isend(int to, int tag, const void* data, std::int64_t bytes) = 0;
  virtual Request irecv(int from, int tag, void* data, std::int64_t bytes) = 0;

  // Returns when the transfer is complete, and raises if it never will be. Called once per request.
  virtual void wait(Request request) = 0;

  // Called now and then while Keel computes, for transports that move data only when they are called.
  virtual void progress() {}
};

// Runs work(transport) as `size` ranks, each on a thread of this process, and returns when all have ended. When the
// work of one raises, the others' transfers do too, and the exception of the lowest rank is raised here.
KEEL_API void run_threads(int size, const std::function<void(Transport&)>& work);

// Rows [begin, end) of the whole.
struct Rows {
  std::int64_t begin = 0, end = 0;
  [[nodiscard]] constexpr std::int64_t size() const noexcept { return end - begin; }
  bool operator==(const Rows&) const = default;
};

enum class Layout : std::uint8_t {
  contiguous,  // rank r of P has part r of P
  zigzag,      // rank r has parts r and 2P − 1 − r of 2P, so that ranks have even work under a causal mask
};

// The rows of a rank, in the order in which its arrays hold them: one or two stretches, of which any may be empty.
struct Shard {
  std::array<Rows, 2> parts{};
  [[nodiscard]] constexpr std::int64_t size() const noexcept { return parts[0].size() + parts[1].size(); }
};

// Which of n rows rank `rank` of `size` has. Any n will do: parts differ by at most one row.
[[nodiscard]] KEEL_API Shard shard(std::int64_t n, int size, int rank, Layout layout);

enum class Mode : std::uint8_t {
  // Blocks of k and v travel while the rank computes with others; results join by merge(). A rank needs memory for
  // three more blocks.
  ring,

  // Every rank collects the keys that it needs, in the order of the whole, some heads at a time, while it computes with
  // other heads: out and the row statistics have the bits of a single process, for any number of ranks.
  ordered,

  // For few queries and many keys: every rank holds all queries and gets the whole result, computes over its own keys,
  // and only results travel. Forward only.
  decode,
};

// The whole of which each rank has a part.
struct Sharding {
  std::int64_t n_q = 0, n_k = 0;  // rows of all ranks together
  Layout layout = Layout::zigzag;
  Mode mode = Mode::ring;
  bool own_sums =
      false;  // gradients that are summed over queries: over this rank's alone, for a caller who adds them up
};

// What belongs to this rank: its rows of q and out, its rows of k and v.
struct Tensors {
  TensorView q{}, k{}, v{};
  MutableTensorView out{};
};

// keel::attention() over all ranks. Block masks, relative biases, k_starts and scores are refused. In `options` and
// `outputs`
// - lengths and offsets are the whole's, and origin must not be set;
// - scale_tensor and row statistics have this rank's queries, key_sums this rank's keys;
// - in decode all ranks ask for the same row statistics;
// - mask, bias and weights have this rank's queries and all n_k keys, in the order of the whole (weights not in decode;
//   in ring mode a weight that is 0 by itself stays 0 where a NaN makes the rest of its row NaN);
// - heads are the statistics over the rows of all ranks, and every rank gets them.
KEEL_API void attention(Transport& transport, const Sharding& sharding, const Tensors& tensors,
                        const Options& options = {}, const Outputs& outputs = {});

// keel::attention_backward() over all ranks. The gradients have the shapes of this rank's part. Those that are summed
// over queries (dsinks, and dbias and dscale where they have size 1 or stride 0 along the queries) are summed over the
// rows of all ranks, and every rank gets them. (Where every rank has exactly one row, size 1 says nothing: stride 0
// does, and a scale that is a number has one gradient.)
KEEL_API void attention_backward(Transport& transport, const Sharding& sharding, const BackwardInputs& inputs,
                                 const Gradients& gradients, const Options& options = {});

// Collects `mine` from every rank, in rank order; all must pass equally many numbers. If `failure` is not empty, all
// ranks raise it, attributed to this rank: for use when a rank finds something wrong before the call.
KEEL_API std::vector<std::vector<double>> share(Transport& transport, const std::vector<double>& mine,
                                                const std::string& failure = {});

// Raises `reason` on all ranks, in place of a call that the others make and this rank cannot.
[[noreturn]] KEEL_API void fail(Transport& transport, const std::string& reason);

// Gives each rank its rows (the third dimension) of the array that `root` has, and the other way round. Only root needs
// `whole`.
KEEL_API void scatter(Transport& transport, const TensorView& whole, const MutableTensorView& mine,
                      Layout layout = Layout::zigzag, int root = 0);
KEEL_API void gather(Transport& transport, const TensorView& mine, const MutableTensorView& whole,
                     Layout layout = Layout::zigzag, int root = 0);

}  // namespace keel::ring
