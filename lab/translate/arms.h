#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace keel::lab::translate {

// How a decoder attends to its source.
enum class Look { none, additive, dot, general, scaled, multi_head, transformer };

// One arm: everything else about the models is the same.
struct Arm {
  std::string id;    // "scaled-64"
  std::string name;  // "scaled dot, d_k 64"
  Look look = Look::none;
  std::int64_t d_k = 0;  // of a head; of the additive score, d_a
  std::int64_t heads = 1;

  // The arms that the documents' claims are about.
  bool in_short_form() const {
    return look == Look::none || look == Look::additive || look == Look::dot || look == Look::scaled;
  }
};

// All of them, in the order of the report.
const std::vector<Arm>& arms();

// Raises a keel::Error that lists them if there is none of this id.
const Arm& arm_by_id(const std::string& id);

inline constexpr std::int64_t kHeadSizes[] = {16, 64, 256};  // at which dot and scaled dot compete

}  // namespace keel::lab::translate
