#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "bench/delayed.h"
#include "ring/copy.h"
#include "ring/geometry.h"

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
  std::vector<double> one, many;          // seconds per repeat: one process with as many threads, and the ranks
  std::vector<double> balance;            // per repeat: mean ÷ most of the seconds for which ranks did not wait
  std::vector<std::vector<double>> work;  // of each rank at each step: seconds of its own work alone
  double bytes = 0;                       // the most that a rank received
  double predicted = 0;                   // seconds, by the model
};
double median(std::vector<double> values);

// Valid in the process that reports. With a link, messages take that long.
RingTimes measure_ring(const World& world, const RingCase& what, int ranks, int repeats, std::optional<Wire> link);

// The work of the last of so many ranks, which has at least as much as any other, on one core.
std::vector<std::vector<double>> rehearse_ring(const RingCase& what, int ranks, int repeats);

// What a rank receives.
class RingBytes {
 public:
  RingBytes(const RingCase& what, int ranks);
  double blocks(int rank, int step) const;     // for its step
  double gradients(int rank, int step) const;  // of its own keys, from the step of another

 private:
  int ranks_;
  ring::Geometry geometry_;
  ring::BlockShape block_, gradients_;
};

// Seconds of a call: at each step the longer of a rank's work and what arrives meanwhile.
double predict_ring(const RingCase& what, int ranks, const std::vector<std::vector<double>>& work, const Wire& link);

}  // namespace keel::bench
