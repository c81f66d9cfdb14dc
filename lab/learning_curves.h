#pragma once

#include <string>
#include <vector>

#include "lab/recall.h"
#include "lab/result.h"

namespace keel::lab {

// A quantity of a snapshot, drawn against the steps.
struct Watched {
  const char *id, *title, *label;
  double Snapshot::*value;
  bool log = false;
};

// Training runs that differ only in their seeds.
struct Arm {
  const char* name;
  const std::vector<Trained>* runs;
};

// One line per arm: the median over seeds, with a band from 10 to 90 %.
void draw_curve(Result& result, const std::string& id, const std::string& title, const Watched& watched,
                const std::vector<Arm>& arms);

}  // namespace keel::lab
