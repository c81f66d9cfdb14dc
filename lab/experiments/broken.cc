#include <fmt/format.h>

#include "lab/breaks/breaks.h"
#include "lab/experiments.h"
#include "lab/statistics.h"

namespace keel::lab {
namespace broken_experiment {
namespace {

// Progress of one version as a part of the whole.
class Part : public Observer {
 public:
  Part(Work& work, double share) : work_(work), share_(share) {}
  void progress(double part) override { work_.progress(share_, std::min(part, 0.999)); }
  bool stop() const override {
    try {
      work_.check();
    } catch (const Stopped&) {
      return true;
    }
    return false;
  }

 private:
  Work& work_;
  double share_;
};

class Broken : public Experiment {
 public:
  std::string name() const override { return "broken"; }
  std::string question() const override { return "What does attention show when one of its lines is wrong?"; }
  Cost cost() const override { return {13, 13}; }

  Result run(Work& work) const override {
    Result result;
    result.settings = "Five breaks of one line, each beside the healthy version, from the same random numbers.";
    for (const Break& which : breaks()) {
      const Seen healthy = version(work, which, Version::healthy), broken = version(work, which, Version::broken);
      keep(result, which, Version::healthy, healthy);
      keep(result, which, Version::broken, broken);
      std::string changes;
      const std::vector<Observed> observed = compare(healthy, broken);
      for (std::size_t i = 0; i < observed.size(); ++i) {
        if (observed[i].change() == Change::same) continue;
        changes += fmt::format("{}{}: {} instead of {}", changes.empty() ? "" : "; ", which.questions[i].text,
                               number_text(mean(observed[i].broken)), number_text(mean(observed[i].healthy)));
      }
      result.findings.push_back(
          fmt::format("{}: {}.", which.name, changes.empty() ? "nothing that was measured changes" : changes));
    }
    return result;
  }

 private:
  static Seen version(Work& work, const Break& which, Version version) {
    const double share = 0.5 / static_cast<double>(breaks().size());
    Part part(work, share);
    Work own(work.settings(), part);
    Seen seen = which.run(own, version);
    work.progress(share, 1);
    return seen;
  }

  static void keep(Result& result, const Break& which, Version version, const Seen& seen) {
    for (std::size_t i = 0; i < seen.values.size(); ++i) {
      result.measure(fmt::format("broken.{}.{}.{}", which.name, name_of(version), which.questions[i].id),
                     seen.values[i]);
    }
    for (Figure figure : seen.figures) {
      figure.id = fmt::format("{}-{}-{}", which.name, name_of(version), figure.id);
      result.figures.push_back(std::move(figure));
    }
  }
};

}  // namespace
}  // namespace broken_experiment

std::unique_ptr<Experiment> make_broken() { return std::make_unique<broken_experiment::Broken>(); }

}  // namespace keel::lab
