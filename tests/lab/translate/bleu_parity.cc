// bleu_parity FILE: the BLEU of each corpus of FILE, a JSON list of {"tokens", "translations", "references"}, a line
// each.
#include <fmt/format.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "lab/translate/bleu.h"

using namespace keel::lab::translate;

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  std::ifstream file(argv[1]);
  for (const auto& corpus : nlohmann::json::parse(file)) {
    const std::vector<std::string> translations = corpus.at("translations");
    const std::vector<std::vector<std::string>> references = corpus.at("references");
    const Tokens tokens = corpus.at("tokens") == "13a" ? Tokens::v13a : Tokens::none;
    fmt::print("{}\n", bleu(count_matches(translations, references, tokens)));
  }
}
