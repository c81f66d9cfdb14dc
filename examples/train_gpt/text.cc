#include "text.h"

#include <array>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <fstream>
#include <iterator>
#include <stdexcept>

std::string printable(const std::string& text) {
  std::string result;
  for (std::size_t i = 0; i < text.size();) {
    const auto at = [&](std::size_t j) { return j < text.size() ? static_cast<unsigned char>(text[j]) : 0; };
    const bool c0 = (at(i) < 0x20 && at(i) != '\n' && at(i) != '\t') || at(i) == 0x7F;
    const bool c1 = at(i) == 0xC2 && at(i + 1) >= 0x80 && at(i + 1) < 0xA0;  // an escape sequence in one character
    const std::size_t end = i + (c1 ? 2 : 1);
    for (; i < end; ++i) {
      std::array<char, 8> escape{text[i]};
      if (c0 || c1) std::snprintf(escape.data(), escape.size(), "\\x%02x", at(i));
      result += escape.data();
    }
  }
  return result;
}

Text::Text(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) throw std::runtime_error(path + ": expected a text file to read, got none");
  const std::string text(std::istreambuf_iterator<char>(file), {});
  if (text.size() < 2)
    throw std::runtime_error(path + ": expected at least two characters, got " + std::to_string(text.size()));
  std::uint64_t hash = 0xCBF29CE484222325;  // FNV-1a
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001B3;
  digest_ = std::to_string(hash);
  std::array<std::int64_t, 256> id{};
  for (const char c : text) id[static_cast<unsigned char>(c)] = 1;
  for (int c = 0; c < 256; ++c) {
    if (id[static_cast<std::size_t>(c)] == 0) continue;
    id[static_cast<std::size_t>(c)] = vocabulary();
    alphabet_ += static_cast<char>(c);
  }
  for (const char c : text) ids_.push_back(id[static_cast<unsigned char>(c)]);
}

std::string Text::decode(const std::vector<std::int64_t>& ids) const {
  std::string text;
  for (const std::int64_t id : ids) text += alphabet_[static_cast<std::size_t>(id)];
  return text;
}

Text::Batch Text::draw(keel::nn::Random& random, std::int64_t rows, std::int64_t length, std::int64_t begin,
                       std::int64_t end) const {
  std::vector<std::int64_t> ids, labels;
  for (std::int64_t row = 0; row < rows; ++row) {
    const auto at = ids_.begin() + begin + random.below(end - begin - length);
    ids.insert(ids.end(), at, at + length);
    labels.insert(labels.end(), at + 1, at + length + 1);
  }
  return {keel::nn::Tensor::of({rows, length}, ids), keel::nn::Tensor::of({rows, length}, labels)};
}

double Text::bigram_loss(std::int64_t begin, std::int64_t end) const {
  const auto n = static_cast<std::size_t>(vocabulary());
  std::vector<double> pairs(n * n, 1.0), firsts(n, static_cast<double>(n));
  const auto at = [&](std::int64_t i) { return static_cast<std::size_t>(ids_[static_cast<std::size_t>(i)]); };
  for (std::int64_t i = 1; i < begin; ++i) {
    pairs[at(i - 1) * n + at(i)] += 1;
    firsts[at(i - 1)] += 1;
  }
  double total = 0;
  for (std::int64_t i = begin + 1; i < end; ++i) total -= std::log(pairs[at(i - 1) * n + at(i)] / firsts[at(i - 1)]);
  return total / static_cast<double>(end - begin - 1);
}
