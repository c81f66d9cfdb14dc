#include <algorithm>

#include "lab/experiments.h"
#include "lab/translate/comparison.h"
#include "lab/translate/options.h"

namespace keel::lab {
namespace translate_experiment {
namespace {

using namespace translate;

class Translate : public Experiment {
 public:
  std::string name() const override { return "translate"; }
  std::string question() const override {
    return "Bahdanau's attention, the dot product and the scaled dot product in one translation model: where do they "
           "agree, and where do they differ?";
  }
  Cost cost() const override { return {.quick = 300, .full = 2600, .quick_short = 110, .full_short = 300}; }
  bool has_short_form() const override { return true; }

  Result run(Work& work) const override {
    const TranslateOptions options(work.settings());
    const ComparisonSettings settings = comparison_settings(work);
    constexpr double kReading = 0.01;  // of the whole
    Loaded loaded = load_task(options, settings.sizes, work.settings().seed,
                              [&](double share) { work.progress(kReading, std::min(share, 0.999)); });
    work.progress(kReading, 1);
    Result result = report_on(compare(work, 1 - kReading, loaded.task, settings, options.arms()), loaded.data);
    result.findings.insert(result.findings.begin(), loaded.notes.begin(), loaded.notes.end());
    return result;
  }
};

}  // namespace
}  // namespace translate_experiment

std::unique_ptr<Experiment> make_translate() { return std::make_unique<translate_experiment::Translate>(); }

}  // namespace keel::lab
