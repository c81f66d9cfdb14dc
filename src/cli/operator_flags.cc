#include "cli/operator_flags.h"

#include <fmt/format.h>

#include <map>

#include "cli/common/arguments.h"
#include "io/messages.h"
#include "io/npy.h"
#include "keel/error.h"

namespace keel::cli {
namespace {

const std::map<std::string, Causal> kCausal = {
    {"none", Causal::none}, {"top_left", Causal::top_left}, {"bottom_right", Causal::bottom_right}};

std::vector<std::int64_t> integers_or_file(const std::string& text, const std::string& flag) {
  if (is_list(text)) return integers(text, flag);
  const io::Array array = io::read_npy(text);
  if (array.dtype != DType::i64 || array.shape.size() != 1) {
    throw Error(ErrorCode::invalid_argument,
                fmt::format("[attention] {}: expected 1 dimension of integers, got shape {} of {}", io::path_text(text),
                            io::shape_text(array.shape), name_of(array.dtype)));
  }
  const auto values = array.as<std::int64_t>();
  return {values.begin(), values.end()};
}

Window window(const std::string& text) {
  const auto bound = [&](const std::string& part) {
    return part == "inf" ? Window::kUnbounded : integers(part, "--window").front();
  };
  const std::vector<std::string> parts = split(text);
  if (parts.size() != 2) {
    throw CLI::ValidationError("--window", fmt::format("expected LEFT,RIGHT such as 128,0 or inf,0, got '{}'", text));
  }
  return {bound(parts[0]), bound(parts[1])};
}

Origin origin(const std::string& text) {
  const std::vector<std::int64_t> n = integers(text, "--origin");
  if (n.size() == 2) return {.query = n[0], .key = n[1]};
  if (n.size() == 4) return {.query = n[0], .key = n[1], .n_q = n[2], .n_k = n[3]};
  throw CLI::ValidationError("--origin", fmt::format("expected QUERY,KEY or QUERY,KEY,N_Q,N_K, got '{}'", text));
}

}  // namespace

bool is_list(const std::string& text) { return text.find_first_not_of("0123456789+-.,eE") == std::string::npos; }

io::Array floats_or_file(const std::string& text, const std::string& flag) {
  if (!is_list(text)) return io::read_npy(text);
  const std::vector<double> values = floats(text, flag);
  return io::make_array<double>({static_cast<std::int64_t>(values.size())}, values);
}

void OperatorFlags::add_to(CLI::App& command) {
  const auto add = [&](const char* name, auto& value, const char* type, const char* help) {
    return command.add_option(name, value, help)->type_name(type)->group("Operator")->check(kNotEmpty);
  };
  add("--causal", causal_, "MASK",
      "Causal mask: none, top_left (as torch's is_causal) or bottom_right (with a KV cache)")
      ->check(CLI::IsMember({"none", "top_left", "bottom_right"}));
  add("--window", window_, "LEFT,RIGHT", "Keys within LEFT before and RIGHT after the diagonal; inf for no bound");
  add("--origin", origin_, "QUERY,KEY[,N_Q,N_K]",
      "q and k are a slice: positions of their first rows in the whole, and the whole's sizes if it continues after "
      "them");
  add("--scale", scale_, "X", "Factor on q.k; 1/sqrt(d_k) by default");
  add("--softcap", softcap_, "C", "Scores become C*tanh(score/C)");
  add("--q-lengths", q_lengths_.text, "LIST|FILE", "Real queries of each batch entry, such as 3,5");
  add("--k-lengths", k_lengths_.text, "LIST|FILE", "Real keys of each batch entry");
  add("--k-starts", k_starts_.text, "LIST|FILE", "Leading keys of each batch entry that are padding");
  add("--q-offsets", q_offsets_.text, "LIST|FILE", "Where the entries of a packed batch start and end, such as 0,3,8");
  add("--k-offsets", k_offsets_.text, "LIST|FILE", "The same for keys and values");
  add("--dropout", dropout_, "P", "Zero each weight with this probability");
  add("--seed", seed_, "N", "Seed of dropout");
  add("--threads", threads_, "N", "At most this many threads; 0 for all");
}

Options OperatorFlags::options() {
  Options options;
  options.causal = kCausal.at(causal_);
  if (!window_.empty()) options.window = window(window_);
  if (!origin_.empty()) options.origin = origin(origin_);
  options.scale = scale_;
  options.softcap = softcap_;
  options.dropout = dropout_;
  if (!seed_.empty()) options.seed = seed_number(seed_);
  options.threads = threads_;
  const auto read = [](List& list, const char* flag) -> std::span<const std::int64_t> {
    if (!list.text.empty()) list.values = integers_or_file(list.text, flag);
    return list.values;
  };
  options.q_lengths = read(q_lengths_, "--q-lengths");
  options.k_lengths = read(k_lengths_, "--k-lengths");
  options.k_starts = read(k_starts_, "--k-starts");
  options.q_offsets = read(q_offsets_, "--q-offsets");
  options.k_offsets = read(k_offsets_, "--k-offsets");
  return options;
}

}  // namespace keel::cli
