#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <type_traits>
#include <vector>

namespace keel::lab {

struct Settings {
  bool full = false;  // the thorough profile: more repeats, larger sizes
  std::uint64_t seed = 0;
  std::size_t repeats = 0;                       // of everything that involves chance; 0: the profile's number
  int threads = 0;                               // 0: all that the machine has. Results do not depend on it
  bool brief = false;                            // short training and short sequences: for tests of what surrounds them
  bool short_form = false;                       // of an experiment that has one: what `keel lab` runs without a name
  std::map<std::string, std::string> options{};  // of one experiment, by name
  std::map<std::string, std::string> digests{};  // of the files that options name: their content when the run began
};

// Thrown out of an experiment whose run should stop.
struct Stopped {};

// Observes a run. Called from any thread.
class Observer {
 public:
  virtual ~Observer() = default;
  virtual void progress(double /*share*/) {}  // of the experiment that is done, in [0, 1]
  virtual bool stop() const { return false; }
};

// What an experiment runs on: its settings, threads, and an observer to report progress to.
class Work {
 public:
  explicit Work(const Settings& settings) : Work(settings, nobody()) {}
  Work(const Settings& settings, Observer& observer) : settings_(settings), observer_(observer) {}

  const Settings& settings() const { return settings_; }

  // Throws Stopped if the run should stop: for long tasks.
  void check() const {
    if (observer_.stop()) throw Stopped{};
  }

  // Work done outside a sweep: `share` of the experiment, of which `part` is done.
  void progress(double share, double part) {
    check();
    observer_.progress(done_ + share * part);
    if (part >= 1) done_ += share;
  }

  // The value for this profile.
  template <class T>
  T pick(T quick, T full) const {
    return settings_.full ? full : quick;
  }

  std::size_t repeats(std::size_t quick, std::size_t full) const {
    return settings_.repeats > 0 ? settings_.repeats : pick(quick, full);
  }

  // Steps of training.
  std::int64_t steps(std::int64_t quick, std::int64_t full) const {
    return pick(quick, full) / (settings_.brief ? 20 : 1);
  }

  // Runs task(i) for i in [0, costs.size()) in any order on the settings' threads; `costs` are relative. The tasks
  // together are `share` of the experiment. A task writes its result to its own place; the caller then reads
  // those places in order, so that results do not depend on the threads.
  void sweep(double share, const std::vector<double>& costs, const std::function<void(std::size_t)>& task);

  // The same in sequence on this thread, for tasks that read a clock.
  void in_turn(double share, std::size_t count, const std::function<void(std::size_t)>& task);

  // `count` tasks of equal cost.
  void sweep(double share, std::size_t count, const std::function<void(std::size_t)>& task) {
    sweep(share, std::vector<double>(count, 1.0), task);
  }

  // task(cell, repeat) for every cell and repeat in [0, repeats): what it returns, by cell and repeat. A cell may have
  // a cost().
  template <class Cell, class Task>
  auto repeat(double share, const std::vector<Cell>& cells, std::size_t repeats, Task task) {
    using Value = std::invoke_result_t<Task, const Cell&, std::size_t>;
    std::vector<std::vector<Value>> values(cells.size(), std::vector<Value>(repeats));
    std::vector<double> costs;
    for (const Cell& cell : cells) {
      double cost = 1.0;
      if constexpr (requires { cell.cost(); }) cost = cell.cost();
      costs.insert(costs.end(), repeats, cost);
    }
    sweep(share, costs,
          [&](std::size_t i) { values[i / repeats][i % repeats] = task(cells[i / repeats], i % repeats); });
    return values;
  }

 private:
  static Observer& nobody();
  void sweep(double share, const std::vector<double>& costs, int threads, const std::function<void(std::size_t)>& task);

  Settings settings_;
  Observer& observer_;
  double done_ = 0;  // share of the experiment that earlier sweeps were
};

}  // namespace keel::lab
