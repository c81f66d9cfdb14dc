#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "bench/delayed.h"

// How attention over many ranks scales: `keel bench ring`. Each rank has one core and `rows` rows; the yardstick is one
// process that computes the same call with as many threads, measured right before.
namespace keel::bench {

struct RingCase {
  std::int64_t heads = 4, kv_heads = 4, rows = 2048, d = 128;  // rows: per rank
  DType dtype = DType::f32;
  bool causal = true;
  std::int64_t window = 0;  // 0: none
  ring::Layout layout = ring::Layout::zigzag;
  bool backward = false;
};
std::string text_of(const RingCase& c);

// Ranks to run on: threads of this process, or the processes of MPI.
struct World {
  int most = 1;      // ranks
  bool root = true;  // whether this process reports
  std::function<void(int size, const std::function<void(ring::Transport&)>&)> run;
};

struct RingTimes {
  RingCase what;
  int ranks = 1;
  std::vector<double> one, many;  // seconds per repeat: one process with as many threads, and the ranks
  std::vector<double> call;       // of one rank's stretch over another's, with the merge: what the model starts from
  double bytes = 0;               // the most that a rank received
  double predicted = 0;           // seconds, by the model
};
double median(std::vector<double> values);

// Valid in the process that reports. With a link, messages take that long.
RingTimes measure_ring(const World& world, const RingCase& what, int ranks, int repeats, std::optional<Wire> link);

// Seconds of a call: at each step the longer of arithmetic and transfer, where `pair` is the time of half a rank's rows
// over half a rank's keys.
double predict_ring(const RingCase& what, int ranks, double pair, const Wire& link);

// Bytes that a rank receives in step s of a forward pass, on average over the ranks.
double step_bytes(const RingCase& what, int ranks, int s);

}  // namespace keel::bench
