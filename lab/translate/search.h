#pragma once

#include <cstdint>
#include <vector>

#include "lab/translate/model.h"

namespace keel::lab::translate {

using Sentence = std::vector<std::int64_t>;

// The likeliest word at each position, for sources of one length (B, S), of at most `longest` words.
std::vector<Sentence> greedy(const Model& model, const nn::Tensor& source, std::int64_t longest);

// The likeliest of the sentences that a beam of `width` finds, by log probability per word (its end included); for one
// source (1, S). A width of 1 is greedy search.
Sentence beam(const Model& model, const nn::Tensor& source, std::int64_t width, std::int64_t longest);

}  // namespace keel::lab::translate
