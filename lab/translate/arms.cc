#include "lab/translate/arms.h"

#include <fmt/format.h>

#include "keel/error.h"

namespace keel::lab::translate {

const std::vector<Arm>& arms() {
  static const std::vector<Arm> all = [] {
    std::vector<Arm> list = {{"none", "no attention", Look::none, 0},
                             {"additive", "additive (Bahdanau)", Look::additive, 64}};
    for (const std::int64_t d : kHeadSizes) {
      list.push_back({fmt::format("dot-{}", d), fmt::format("dot, d_k {}", d), Look::dot, d});
    }
    list.push_back({"general", "general (Luong)", Look::general, 0});
    for (const std::int64_t d : kHeadSizes) {
      list.push_back({fmt::format("scaled-{}", d), fmt::format("scaled dot, d_k {}", d), Look::scaled, d});
    }
    list.push_back({"multi-head", "scaled dot, 4 heads of 16", Look::multi_head, 16, 4});
    list.push_back({"transformer", "transformer", Look::transformer, 0, 4});
    return list;
  }();
  return all;
}

const Arm& arm_by_id(const std::string& id) {
  std::string known;
  for (const Arm& arm : arms()) {
    if (arm.id == id) return arm;
    known += (known.empty() ? "" : ", ") + arm.id;
  }
  throw Error(ErrorCode::invalid_argument, fmt::format("[translate] arm: expected one of {}, got '{}'", known, id));
}

}  // namespace keel::lab::translate
