#pragma once

#include <keel/nn/nn.h>

#include <string>
#include <vector>

// Text from a file, fit for a terminal: control characters other than line ends and tabs become \xNN.
std::string printable(const std::string& text);

// A text as numbers, one per character (byte).
class Text {
 public:
  explicit Text(const std::string& path);  // a file of at least two characters

  const std::string& alphabet() const { return alphabet_; }
  std::int64_t size() const { return std::ssize(ids_); }
  std::int64_t vocabulary() const { return std::ssize(alphabet_); }
  const std::string& digest() const { return digest_; }  // identifies the text
  std::string decode(const std::vector<std::int64_t>& ids) const;

  // Inputs and labels (rows, length), each row from a random position in [begin, end).
  struct Batch {
    keel::nn::Tensor ids, labels;
  };
  Batch draw(keel::nn::Random& random, std::int64_t rows, std::int64_t length, std::int64_t begin,
             std::int64_t end) const;

  // Mean −log p of each character of [begin, end) given the one before, by counts over [0, begin), each pair counted
  // once more than it occurred: what a bigram model can reach.
  double bigram_loss(std::int64_t begin, std::int64_t end) const;

 private:
  std::vector<std::int64_t> ids_;
  std::string alphabet_, digest_;
};
