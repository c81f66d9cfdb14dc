#include "lab/learning_curves.h"

#include <fmt/format.h>

namespace keel::lab {

void draw_curve(Result& result, const std::string& id, const std::string& title, const Watched& watched,
                const std::vector<Arm>& arms) {
  std::vector<Series> series;
  std::string text;
  for (const Arm& arm : arms) {
    Series& line = series.emplace_back(Series{arm.name, {}});
    const std::vector<Snapshot>& first = arm.runs->front().snapshots;
    for (std::size_t i = 0; i < first.size(); ++i) {
      std::vector<double> values;
      for (const Trained& run : *arm.runs) values.push_back(run.snapshots[i].*watched.value);
      line.points.push_back(quantile_point(first[i].step, values, 0.1, 0.9));
    }
    text += fmt::format("{}{} from {:.3g} to {:.3g}", text.empty() ? "" : ", ", arm.name, line.points.front().y,
                        line.points.back().y);
  }
  result.draw(id, title, fmt::format("From the first step to the last: {}.", text),
              Lines{{"step"}, {watched.label, watched.log}, std::move(series), "10 to 90 % of seeds, line: median"});
}

}  // namespace keel::lab
