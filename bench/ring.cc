#include "bench/ring.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "bench/clock.h"
#include "bench/processors.h"
#include "bench/rehearsal.h"

namespace keel::bench {
namespace {

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

// Counts the bytes that a rank receives, and the seconds that it waits.
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
  void wait(Request request) override {
    const Stopwatch watch;
    inner_.wait(request);
    waited += watch.seconds();
  }
  void progress() override { inner_.progress(); }
  double received = 0, waited = 0;

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

namespace {

// What one rank has for its calls.
class Rank {
 public:
  Rank(const RingCase& c, int rank, int size)
      : case_(c),
        sharding_{.n_q = c.rows * size, .n_k = c.rows * size, .layout = c.layout},
        arrays_(c, ring::shard(sharding_.n_q, size, rank, c.layout).size(), 100 + static_cast<std::uint64_t>(rank)) {}

  void forward(ring::Transport& transport) {
    ring::attention(
        transport, sharding_,
        {arrays_.tensor(arrays_.q), arrays_.tensor(arrays_.k), arrays_.tensor(arrays_.v), arrays_.tensor(arrays_.out)},
        options_of(case_, 1), {.lse = arrays_.lse_view()});
  }
  void call(ring::Transport& transport) {
    if (!case_.backward) return forward(transport);
    ring::attention_backward(transport, sharding_, arrays_.inputs(), arrays_.gradients(), options_of(case_, 1));
  }

 private:
  RingCase case_;
  ring::Sharding sharding_;
  RingArrays arrays_;
};

std::optional<RingArrays> arrays_of_one_process(const RingCase& c, int ranks) {
  RingCase forward = c;
  forward.backward = false;
  std::optional<RingArrays> whole(std::in_place, forward, c.rows * ranks, 1);
  if (c.backward) one_process(*whole, ranks);
  whole->what = c;
  return whole;
}

// By step, of some visits.
std::vector<double> medians(const std::vector<std::vector<double>>& visits) {
  std::vector<double> all;
  for (std::size_t step = 0; step < visits.front().size(); ++step) {
    std::vector<double> each;
    each.reserve(visits.size());
    for (const std::vector<double>& visit : visits) each.push_back(visit[step]);
    all.push_back(median(each));
  }
  return all;
}

constexpr int kRehearsals = 3;  // enough for a column beside the measured times; a link is about the model, and has all

}  // namespace

RingTimes measure_ring(const World& world, const RingCase& c, int ranks, int repeats, std::optional<Wire> link) {
  RingTimes times{c, ranks, {}, {}, {}, {}, 0, 0};
  world.run(ranks, [&](ring::Transport& plain) {
    const int rank = plain.rank();
    std::optional<Delayed> delayed;
    if (link) delayed.emplace(plain, *link);
    Counting transport(delayed ? static_cast<ring::Transport&>(*delayed) : plain);
    Rank mine(c, rank, ranks);
    std::optional<RingArrays> whole;
    if (rank == 0 && !link) whole = arrays_of_one_process(c, ranks);
    if (c.backward) mine.forward(plain);
    double asleep = 0;
    std::vector<std::vector<double>> rehearsed;
    for (int repeat = -1; repeat < repeats; ++repeat) {  // the first warms up
      // The other ranks sleep for about as long, since waiting takes time of the cores that are measured.
      if (rank != 0) std::this_thread::sleep_for(std::chrono::duration<double>(0.97 * asleep));
      if (whole) bind_process(ranks);
      const double one = whole ? one_process(*whole, ranks) : 0.0;
      asleep = gather(plain, one)[0];
      bind_thread(rank);
      if (link || repeat < kRehearsals) {
        Rehearsal rehearsal(rank, ranks);
        const std::vector<double> steps = rehearsal.steps([&] { mine.call(rehearsal); });
        if (repeat >= 0) rehearsed.push_back(steps);
      }
      gather(plain, 0);
      transport.received = transport.waited = 0;
      const Stopwatch watch;
      mine.call(transport);
      const double seconds = watch.seconds();
      const std::vector<double> all = gather(plain, seconds), busy = gather(plain, seconds - transport.waited);
      const double bytes = largest(gather(plain, transport.received));
      if (repeat < 0 || rank != 0) continue;
      times.one.push_back(one);
      times.many.push_back(largest(all));
      times.balance.push_back(std::accumulate(busy.begin(), busy.end(), 0.0) / (ranks * largest(busy)));
      times.bytes = bytes;
    }
    const auto work = ring::share(plain, medians(rehearsed));
    if (rank == 0) times.work = work;
  });
  unbind_process();
  if (world.root) times.predicted = predict_ring(c, ranks, times.work, link.value_or(Wire{INFINITY, 0}));
  return times;
}

std::vector<std::vector<double>> rehearse_ring(const RingCase& c, int ranks, int repeats) {
  Rank last(c, ranks - 1, ranks);
  std::vector<std::vector<double>> visits;
  bind_thread(0);
  for (int repeat = -1; repeat < repeats; ++repeat) {
    Rehearsal rehearsal(ranks - 1, ranks);
    if (repeat < 0 && c.backward) last.forward(rehearsal);
    const std::vector<double> steps = rehearsal.steps([&] { last.call(rehearsal); });
    if (repeat >= 0) visits.push_back(steps);
  }
  unbind_process();
  return {medians(visits)};
}

RingBytes::RingBytes(const RingCase& c, int ranks)
    : ranks_(ranks),
      geometry_({.n_q = c.rows * ranks, .n_k = c.rows * ranks, .layout = c.layout}, ranks, 1, options_of(c, 1)),
      block_{1, c.kv_heads, c.d, c.d, c.dtype},
      gradients_{1, c.kv_heads, c.backward ? c.d : 0, c.backward ? c.d : 0, DType::f32} {}

double RingBytes::blocks(int rank, int step) const {
  if (step < 1 || step >= ranks_) return 0;
  return static_cast<double>(block_.bytes(geometry_.needs(rank, (rank + ranks_ - step) % ranks_)));
}

double RingBytes::gradients(int rank, int step) const {
  if (step < 1 || step >= ranks_) return 0;
  return static_cast<double>(gradients_.bytes(geometry_.needs((rank + step) % ranks_, rank)));
}

double predict_ring(const RingCase& c, int ranks, const std::vector<std::vector<double>>& work, const Wire& link) {
  const RingBytes bytes(c, ranks);
  const auto transfer = [&](double count) { return count > 0 ? link.seconds + count / link.bytes_per_second : 0.0; };
  double longest = 0;
  for (int rank = 0; rank < ranks; ++rank) {
    const std::vector<double>& steps = work[std::min(static_cast<std::size_t>(rank), work.size() - 1)];
    double total = 0;
    for (int s = 0; s < ranks; ++s) {  // meanwhile the next block and the gradients of the step before are under way
      total += std::max(steps[static_cast<std::size_t>(s)],
                        transfer(bytes.blocks(rank, s + 1) + bytes.gradients(rank, s - 1)));
    }
    longest = std::max(longest, total + transfer(bytes.gradients(rank, ranks - 1)));
  }
  return longest + (ranks > 1 ? 2 * link.seconds : 0);  // agreeing before, finishing after
}

}  // namespace keel::bench
