#include "bench/ring.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "bench/clock.h"

#ifdef __linux__
#include <sched.h>
#endif

namespace keel::bench {
namespace {

// Binds the calling thread to the n-th of the processors that the process may use, or to all of them again.
class Binding {
 public:
  explicit Binding(int n) {
#ifdef __linux__
    sched_getaffinity(0, sizeof(all_), &all_);
    for (int cpu = 0, seen = 0; cpu < CPU_SETSIZE; ++cpu) {
      if (!CPU_ISSET(cpu, &all_) || seen++ != n % CPU_COUNT(&all_)) continue;
      cpu_set_t one;
      CPU_ZERO(&one);
      CPU_SET(cpu, &one);
      sched_setaffinity(0, sizeof(one), &one);
    }
#else
    (void)n;
#endif
  }
  ~Binding() {
#ifdef __linux__
    sched_setaffinity(0, sizeof(all_), &all_);
#endif
  }
  Binding(const Binding&) = delete;
  Binding& operator=(const Binding&) = delete;

 private:
#ifdef __linux__
  cpu_set_t all_;
#endif
};

// The arrays of `rows` rows.
struct RingArrays {
  RingArrays(const RingCase& c, std::int64_t n, std::uint64_t seed) : what(c), rows(n) {
    for (auto* x : {&q, &k, &v, &out, &dout, &dq, &dk, &dv}) {
      const bool keys = x == &k || x == &v || x == &dk || x == &dv;
      const std::int64_t count = (keys ? c.kv_heads : c.heads) * n * c.d;
      x->resize(static_cast<std::size_t>(count * size_of(c.dtype)));
      std::uint64_t state = seed += 0x9E3779B97F4A7C15;
      for (std::int64_t i = 0; i < count; ++i) {
        state = state * 6364136223846793005 + 1442695040888963407;
        const double value = static_cast<double>(state >> 40) * 0x1p-23 - 1.0;
        if (c.dtype == DType::f32) {
          reinterpret_cast<float*>(x->data())[i] = static_cast<float>(value);
        } else {
          reinterpret_cast<BFloat16*>(x->data())[i] = to_bfloat16(value);
        }
      }
    }
    lse.resize(static_cast<std::size_t>(c.heads * n));
  }
  MutableTensorView tensor(std::vector<std::byte>& x) {
    const bool keys = &x == &k || &x == &v || &x == &dk || &x == &dv;
    const std::array<std::int64_t, 4> shape = {1, keys ? what.kv_heads : what.heads, rows, what.d};
    return {x.data(), what.dtype, shape, contiguous_strides(shape)};
  }
  MutableRowView lse_view() { return row_view(lse.data(), {1, what.heads, rows}); }
  BackwardInputs inputs() { return {tensor(q), tensor(k), tensor(v), tensor(out), lse_view(), tensor(dout), {}}; }
  Gradients gradients() { return {.dq = tensor(dq), .dk = tensor(dk), .dv = tensor(dv)}; }

  RingCase what;
  std::int64_t rows;
  std::vector<std::byte> q, k, v, out, dout, dq, dk, dv;
  std::vector<float> lse;
};

Options options_of(const RingCase& c, int threads) {
  Options o{.causal = c.causal ? Causal::top_left : Causal::none, .threads = threads};
  if (c.window > 0) o.window.left = c.window;
  return o;
}

// One value of every rank, on rank 0, and rank 0's on all; a barrier for all.
std::vector<double> gather(ring::Transport& transport, double mine) {
  const int size = transport.size();
  std::vector<double> all(static_cast<std::size_t>(size), mine);
  const auto wait = [&](std::vector<ring::Transport::Request>& requests) {
    for (const auto request : requests) transport.wait(request);
    requests.clear();
  };
  std::vector<ring::Transport::Request> requests;
  double& of_root = all[0];
  if (transport.rank() == 0) {
    for (int rank = 1; rank < size; ++rank) {
      requests.push_back(transport.irecv(rank, 0, &all[static_cast<std::size_t>(rank)], sizeof(double)));
    }
    wait(requests);
    for (int rank = 1; rank < size; ++rank) requests.push_back(transport.isend(rank, 0, &of_root, sizeof(double)));
  } else {
    requests.push_back(transport.isend(0, 0, &mine, sizeof(mine)));
    wait(requests);
    requests.push_back(transport.irecv(0, 0, &of_root, sizeof(double)));
  }
  wait(requests);
  return all;
}

double largest(const std::vector<double>& values) { return *std::max_element(values.begin(), values.end()); }

// Half a rank's rows over half a rank's keys, and the merge that follows: what a rank does again and again.
class Pair {
 public:
  explicit Pair(const RingCase& c) : half_(std::max<std::int64_t>(c.rows / 2, 1)), arrays_(c, half_, 7) {
    const std::array<std::int64_t, 4> shape = {1, c.heads, half_, c.d};
    for (auto* x : {&sum_, &next_}) x->resize(static_cast<std::size_t>(c.heads * half_ * c.d));
    sum_lse_.resize(static_cast<std::size_t>(c.heads * half_));
    out_ = view(next_.data(), shape);
    total_ = view(sum_.data(), shape);
  }
  double seconds(const RingCase& c) {
    RingCase full = c;
    full.causal = false;
    full.window = 0;
    const Stopwatch watch;
    const MutableRowView sum_lse = row_view(sum_lse_.data(), {1, c.heads, half_});
    if (c.backward) {
      Gradients g = arrays_.gradients();
      g.accumulate = true;
      keel::attention_backward(arrays_.inputs(), g, options_of(full, 1));
    } else {
      keel::attention(arrays_.tensor(arrays_.q), arrays_.tensor(arrays_.k), arrays_.tensor(arrays_.v), out_,
                      options_of(full, 1), {.lse = arrays_.lse_view()});
      const Partial parts[] = {{.out = total_, .lse = sum_lse}, {.out = out_, .lse = arrays_.lse_view()}};
      keel::merge(parts, total_, {.lse = sum_lse}, 1);
    }
    return watch.seconds();
  }

 private:
  std::int64_t half_;
  RingArrays arrays_;
  std::vector<float> sum_, next_, sum_lse_;
  MutableTensorView out_, total_;
};

class Counting final : public ring::Transport {
 public:
  explicit Counting(ring::Transport& inner) : inner_(inner) {}
  int rank() const override { return inner_.rank(); }
  int size() const override { return inner_.size(); }
  Request isend(int to, int tag, const void* data, std::int64_t bytes) override {
    return inner_.isend(to, tag, data, bytes);
  }
  Request irecv(int from, int tag, void* data, std::int64_t bytes) override {
    if (tag != 0) received += static_cast<double>(bytes);
    return inner_.irecv(from, tag, data, bytes);
  }
  void wait(Request request) override { inner_.wait(request); }
  void progress() override { inner_.progress(); }
  double received = 0;

 private:
  ring::Transport& inner_;
};

// One process that does it all.
double one_process(RingArrays& whole, int threads) {
  const RingCase& c = whole.what;
  const Stopwatch watch;
  if (c.backward) {
    keel::attention_backward(whole.inputs(), whole.gradients(), options_of(c, threads));
  } else {
    keel::attention(whole.tensor(whole.q), whole.tensor(whole.k), whole.tensor(whole.v), whole.tensor(whole.out),
                    options_of(c, threads), {.lse = whole.lse_view()});
  }
  return watch.seconds();
}

}  // namespace

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values.empty() ? NAN : (values[(values.size() - 1) / 2] + values[values.size() / 2]) / 2;
}

std::string text_of(const RingCase& c) {
  return fmt::format("{}×{}×{} {}{}{} {} {}", c.heads, c.rows, c.d, name_of(c.dtype), c.causal ? " causal" : "",
                     c.window > 0 ? fmt::format(" window {}", c.window) : "",
                     c.layout == ring::Layout::zigzag ? "zigzag" : "contiguous", c.backward ? "backward" : "forward");
}

RingTimes measure_ring(const World& world, const RingCase& c, int ranks, int repeats, std::optional<Wire> link) {
  RingTimes times{c, ranks, {}, {}, {}, 0, 0};
  world.run(ranks, [&](ring::Transport& plain) {
    const int rank = plain.rank();
    std::optional<Delayed> delayed;
    if (link) delayed.emplace(plain, *link);
    Counting transport(delayed ? static_cast<ring::Transport&>(*delayed) : plain);
    const std::int64_t n = c.rows * ranks;
    const ring::Sharding sharding{.n_q = n, .n_k = n, .layout = c.layout};
    RingArrays mine(c, ring::shard(n, ranks, rank, c.layout).size(), 100 + static_cast<std::uint64_t>(rank));
    std::optional<RingArrays> whole;
    std::optional<Pair> pair;
    if (rank == 0) pair.emplace(c);
    if (rank == 0 && !link) whole.emplace(c, n, 1);
    const auto forward = [&] {
      ring::attention(transport, sharding,
                      {mine.tensor(mine.q), mine.tensor(mine.k), mine.tensor(mine.v), mine.tensor(mine.out)},
                      options_of(c, 1), {.lse = mine.lse_view()});
    };
    if (c.backward) forward();
    if (c.backward && whole) {
      RingCase first = c;
      first.backward = false;
      std::swap(whole->what, first);
      one_process(*whole, ranks);
      std::swap(whole->what, first);
    }
    double asleep = 0;
    for (int repeat = -1; repeat < repeats; ++repeat) {  // the first warms up
      // The other ranks sleep for about as long, since waiting takes time of the cores that are measured.
      if (rank != 0) std::this_thread::sleep_for(std::chrono::duration<double>(0.97 * asleep));
      const double one = whole ? one_process(*whole, ranks) : 0.0;
      asleep = gather(plain, one)[0];
      const Binding binding(rank);
      const double call = pair ? pair->seconds(c) : 0.0;
      gather(plain, 0);
      transport.received = 0;
      const Stopwatch watch;
      if (c.backward) {
        ring::attention_backward(transport, sharding, mine.inputs(), mine.gradients(), options_of(c, 1));
      } else {
        forward();
      }
      const double seconds = largest(gather(plain, watch.seconds()));
      const double bytes = largest(gather(plain, transport.received));
      if (repeat < 0 || rank != 0) continue;
      times.one.push_back(one);
      times.many.push_back(seconds);
      times.call.push_back(call);
      times.bytes = bytes;
    }
  });
  if (world.root) times.predicted = predict_ring(c, ranks, median(times.call), link.value_or(Wire{INFINITY, 0}));
  return times;
}

double step_bytes(const RingCase& c, int ranks, int s) {
  double rows = static_cast<double>(c.rows);
  if (c.window > 0) {  // contiguous: what the window reaches back
    rows = std::clamp<double>(static_cast<double>(c.window - (s - 1) * c.rows), 0, rows);
  } else if (c.causal && c.layout == ring::Layout::zigzag) {
    rows *= 0.75;  // the front half always, the back half of every second rank
  } else if (c.causal) {
    rows *= static_cast<double>(ranks - s) / ranks;  // the ranks that come after it
  }
  return rows * static_cast<double>(c.kv_heads * 2 * c.d * size_of(c.dtype));
}

double predict_ring(const RingCase& c, int ranks, double pair, const Wire& link) {
  // Halves of rows over halves of keys: four in a full step, two of them visible under a causal mask.
  const bool even = !c.causal || c.layout == ring::Layout::zigzag;
  const double step = (c.causal && even ? 2.0 : 4.0) * pair;
  const double own = c.causal ? 2.0 * pair : 4.0 * pair;  // on the diagonal two are half visible, one is whole
  const double back = c.backward ? 1.0 + 4.0 / static_cast<double>(size_of(c.dtype)) : 1.0;  // gradients are f32
  double total = 0;
  for (int s = 0; s < ranks; ++s) {
    // What arrives for step s + 1 is under way while step s is computed.
    const double transfer =
        s + 1 < ranks ? link.seconds + step_bytes(c, ranks, s + 1) * back / link.bytes_per_second : 0;
    double work = s == 0 ? own : step;
    total += std::max(work, transfer);
  }
  return total + 2 * link.seconds + (c.backward ? link.seconds : 0);  // agreeing before, finishing after
}

}  // namespace keel::bench
