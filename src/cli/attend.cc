// keel attend q.npy k.npy v.npy -o out.npy
#include <fmt/format.h>

#include <chrono>
#include <filesystem>
#include <list>
#include <memory>
#include <nlohmann/json.hpp>
#include <set>

#include "cli/commands.h"
#include "cli/common/arguments.h"
#include "cli/common/terminal.h"
#include "cli/operator_flags.h"
#include "cli/statistics.h"
#include "cli/tensors.h"
#include "io/messages.h"
#include "io/npy.h"
#include "keel/attention.h"

namespace keel::cli {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

constexpr const char* kAttendExamples =
    "Examples:\n"
    "  keel attend q.npy k.npy v.npy -o out.npy\n"
    "  keel attend q.npy k.npy v.npy -o out.npy --causal top_left --lse lse.npy\n"
    "  keel attend q.npy k.npy v.npy --window 127,0 --softcap 50 --stats stats.json\n"
    "  keel attend q.npy k.npy v.npy -o out.npy --k-lengths 900,1024 --json\n"
    "  keel attend q.npy k.npy v.npy --key-sums sums.npy --key-sum-rows 64\n"
    "\n"
    "Arrays are .npy files of float64, float32, float16 or bfloat16 ('V2'). A LIST|FILE is a\n"
    "list of numbers or a .npy file. Either all output files are written in full, or none.\n";

class Attend {
 public:
  void add_to(CLI::App& command) {
    command.add_option("q", q_.path, "Queries: (N_q, d), (H, N_q, d) or (B, H, N_q, d)")
        ->required()
        ->type_name("FILE")
        ->check(kNotEmpty);
    command.add_option("k", k_.path, "Keys; as many heads as q, or a divisor of that")
        ->required()
        ->type_name("FILE")
        ->check(kNotEmpty);
    command.add_option("v", v_.path, "Values")->required()->type_name("FILE")->check(kNotEmpty);
    flags_.add_to(command);
    const auto add = [&](const char* name, std::string& path, const char* type, const char* help, const char* group) {
      command.add_option(name, path, help)->type_name(type)->group(group)->check(kNotEmpty);
    };
    add("--mask", mask_.path, "FILE", "Booleans, true = attend: (N_q, N_k) up to (B, H, N_q, N_k); any size may be 1",
        "Operator");
    add("--bias", bias_.path, "FILE", "Floats added to the scores; shapes as for --mask", "Operator");
    add("--scale-tensor", scale_tensor_.path, "FILE", "Scales instead of --scale: (H) or (B, H, N_q)", "Operator");
    add("--alibi", alibi_.path, "LIST|FILE", "ALiBi slopes, one per head: (H) or (B, H)", "Operator");
    add("--sinks", sinks_.path, "LIST|FILE", "Sink logits, one per head", "Operator");
    add("-o,--out", out_.path, "FILE", "The output, with q's dtype and number of dimensions", "Outputs");
    add("--lse", lse_.path, "FILE", "Log of each row's softmax denominator", "Outputs");
    add("--weights", weights_.path, "FILE", "The weights, N_q x N_k per head", "Outputs");
    add("--key-sums", key_sums_.path, "FILE", "The sum of each key's weights over the rows", "Outputs");
    command.add_option("--key-sum-rows", key_sum_rows_, "Sum only over the last N rows of each entry; 0 for all")
        ->type_name("N")
        ->capture_default_str()
        ->group("Outputs");
    add("--scores", scores_.path, "FILE", "The scores, N_q x N_k per head, at --score-stage", "Outputs");
    command
        .add_option("--score-stage", score_stage_,
                    "Which scores: raw (scaled), capped (after the softcap) or masked (after biases and masks)")
        ->check(CLI::IsMember({"raw", "capped", "masked"}))
        ->capture_default_str()
        ->group("Outputs");
    add("--stats", stats_path_, "FILE", "Statistics of every head, as JSON", "Outputs");
    command.add_option("--saturation", saturation_, "A row is saturated when its largest weight is above this")
        ->type_name("P")
        ->capture_default_str()
        ->group("Outputs");
    auto* json = command.add_flag("--json", json_, "Print the summary as JSON");
    command.add_flag("-q,--quiet", quiet_, "Print nothing")->excludes(json);
    command.footer(kAttendExamples);
  }

  void run() {
    read_inputs();
    open_outputs();
    attend();
    write_outputs();
    if (quiet_) return;
    fmt::print("{}", json_ ? summary_json().dump(2, ' ', false, Json::error_handler_t::replace) + "\n" : summary());
  }

 private:
  // An array and the file it is from, or goes to.
  struct File {
    const char* name;
    std::string path;  // empty: not requested
    io::Array array;
  };

  void read_inputs() {
    for (File* file : {&q_, &k_, &v_, &mask_, &bias_, &scale_tensor_}) {
      if (!file->path.empty()) file->array = io::read_npy(file->path);
    }
    if (!alibi_.path.empty()) alibi_.array = floats_or_file(alibi_.path, "--alibi");
    if (!sinks_.path.empty()) sinks_.array = floats_or_file(sinks_.path, "--sinks");
    options_ = flags_.options();
    if (!mask_.path.empty()) options_.mask = tensor_view(mask_.array, mask_.path);
    if (!bias_.path.empty()) options_.bias = tensor_view(bias_.array, bias_.path);
    if (!scale_tensor_.path.empty()) options_.scale_tensor = row_view(scale_tensor_.array, scale_tensor_.path);
    if (!alibi_.path.empty()) options_.alibi = slope_view(alibi_.array, alibi_.path);
    if (!sinks_.path.empty()) options_.sinks = head_view(sinks_.array, sinks_.path);
  }

  // Before any work, so that a mistyped folder does not cost an hour.
  void open_outputs() {
    std::set<fs::path> seen;
    for (const std::string* path :
         {&out_.path, &lse_.path, &weights_.path, &key_sums_.path, &scores_.path, &stats_path_}) {
      if (path->empty()) continue;
      std::error_code error;
      const fs::path target = fs::weakly_canonical(fs::absolute(*path), error);
      if (!seen.insert(error ? fs::path(*path) : target).second && !fs::is_character_file(*path, error)) {
        throw CLI::ValidationError("outputs",
                                   fmt::format("expected different files, got {} twice", io::path_text(*path)));
      }
      targets_.emplace_back(*path);
    }
  }

  void attend() {
    const TensorView q = tensor_view(q_.array, q_.path);
    const TensorView k = tensor_view(k_.array, k_.path);
    const TensorView v = tensor_view(v_.array, v_.path);
    const DType dtype = q.dtype;
    // Outputs have as many dimensions as q.
    std::vector<std::int64_t> rows = q_.array.shape;
    rows.pop_back();
    std::vector<std::int64_t> keys = rows;
    keys.back() = k.shape[2];
    const auto with = [&](std::int64_t last) {
      std::vector<std::int64_t> shape = rows;
      shape.push_back(last);
      return shape;
    };
    Outputs outputs;
    outputs.saturation_threshold = saturation_;
    MutableTensorView out = described<4>(dtype, with(v.shape[3]), "out");
    if (!lse_.path.empty()) outputs.lse = described<3>(accumulation_dtype(dtype), rows, "lse");
    if (!weights_.path.empty()) outputs.weights = described<4>(accumulation_dtype(dtype), with(k.shape[2]), "weights");
    if (!key_sums_.path.empty()) outputs.key_sums = described<3>(accumulation_dtype(dtype), keys, "key_sums");
    outputs.key_sum_rows = key_sum_rows_;
    if (!scores_.path.empty()) outputs.scores = described<4>(accumulation_dtype(dtype), with(k.shape[2]), "scores");
    outputs.score_stage = score_stage_ == "raw"      ? ScoreStage::raw
                          : score_stage_ == "capped" ? ScoreStage::capped
                                                     : ScoreStage::masked;
    explain(q, k, v, out, options_, outputs);  // raises for invalid arguments before memory is allocated

    const auto take = [](File& file, auto& view, const std::vector<std::int64_t>& shape) {
      file.array = io::make_array(view.dtype, shape);
      view.data = file.array.bytes.data();
    };
    take(out_, out, with(v.shape[3]));
    if (outputs.lse.given()) take(lse_, outputs.lse, rows);
    if (outputs.weights.given()) take(weights_, outputs.weights, with(k.shape[2]));
    if (outputs.key_sums.given()) take(key_sums_, outputs.key_sums, keys);
    if (outputs.scores.given()) take(scores_, outputs.scores, with(k.shape[2]));
    q_heads_ = q.shape[1];
    const std::int64_t entries = options_.q_offsets.empty() ? q.shape[0] : options_.q_offsets.size() - 1;
    if (!quiet_ || !stats_path_.empty()) heads_.resize(static_cast<std::size_t>(entries * q_heads_));
    outputs.heads = heads_;

    const auto start = std::chrono::steady_clock::now();
    attention(q, k, v, out, options_, outputs);
    seconds_ = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  }

  // In the order of open_outputs(). All are on the disk before the first takes its name.
  void write_outputs() {
    auto target = targets_.begin();
    for (const File* file : {&out_, &lse_, &weights_, &key_sums_, &scores_}) {
      if (!file->path.empty()) io::write_npy(*target++, file->array);
    }
    if (!stats_path_.empty()) target->write(statistics_json(heads_, q_heads_).dump(2) + "\n");
    for (io::OutputFile& file : targets_) file.finish();
    for (io::OutputFile& file : targets_) file.commit();
  }

  std::vector<const File*> shown() const {
    std::vector<const File*> files;
    for (const File* file : {&q_, &k_, &v_, &mask_, &bias_, &scale_tensor_, &alibi_, &sinks_}) {
      if (!file->path.empty()) files.push_back(file);
    }
    files.push_back(&out_);
    for (const File* file : {&lse_, &weights_, &key_sums_, &scores_}) {
      if (!file->path.empty()) files.push_back(file);
    }
    return files;
  }

  std::string summary() const {
    std::string text;
    for (const File* file : shown()) {
      text += fmt::format("{:<12}  {:<24} {:<5} {}\n", file->name, io::shape_text(file->array.shape),
                          name_of(file->array.dtype), file->path.empty() ? "(not written)" : io::path_text(file->path));
    }
    text += fmt::format("{:<12}  {}\n\n", "time", duration_text(seconds_));
    return text + statistics_table(heads_, q_heads_);
  }

  Json summary_json() const {
    Json arrays = Json::object();
    for (const File* file : shown()) {
      Json& entry = arrays[file->name];
      entry["shape"] = file->array.shape;
      entry["dtype"] = name_of(file->array.dtype);
      entry["path"] = file->path.empty() ? Json(nullptr) : Json(file->path);
    }
    return {{"keel", version()},
            {"arrays", std::move(arrays)},
            {"seconds", seconds_},
            {"statistics", statistics_json(heads_, q_heads_)}};
  }

  OperatorFlags flags_;
  File q_{"q", {}, {}}, k_{"k", {}, {}}, v_{"v", {}, {}};
  File mask_{"mask", {}, {}}, bias_{"bias", {}, {}}, scale_tensor_{"scale_tensor", {}, {}};
  File alibi_{"alibi", {}, {}}, sinks_{"sinks", {}, {}};
  File out_{"out", {}, {}}, lse_{"lse", {}, {}}, weights_{"weights", {}, {}}, key_sums_{"key_sums", {}, {}};
  File scores_{"scores", {}, {}};
  std::string score_stage_ = "raw";
  std::int64_t key_sum_rows_ = 0;
  std::string stats_path_;
  double saturation_ = Outputs{}.saturation_threshold;
  bool json_ = false, quiet_ = false;

  Options options_;
  std::list<io::OutputFile> targets_;
  std::vector<HeadStatistics> heads_;
  std::int64_t q_heads_ = 0;
  double seconds_ = 0;
};

}  // namespace

void add_attend(CLI::App& app) {
  CLI::App* command = app.add_subcommand("attend", "Attention over arrays in .npy files");
  const auto attend = std::make_shared<Attend>();
  attend->add_to(*command);
  command->callback([attend] { attend->run(); });
}

}  // namespace keel::cli
