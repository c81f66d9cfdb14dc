// What keel attend writes is what keel::attention() computes, bit for bit.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "io/file.h"
#include "io/npy.h"
#include "keel/attention.h"
#include "program.h"

namespace keel::test {
namespace {

using io::Array;
using testing::ElementsAre;
using testing::HasSubstr;

using Shape4 = std::array<std::int64_t, 4>;

MutableTensorView view_of(Array& array, const Shape4& shape) {
  return {array.bytes.data(), array.dtype, shape, contiguous_strides(shape)};
}

// A call to both the program and the library: files q.npy, k.npy, v.npy in a folder, and the same arrays here.
struct Call {
  DType dtype = DType::f32;
  Shape4 q_shape = {2, 4, 9, 8}, k_shape = {2, 2, 11, 8}, v_shape = {2, 2, 11, 5};
  TemporaryFolder folder;
  Array q, k, v;

  void write() {
    q = random_array(dtype, {q_shape.begin(), q_shape.end()}, 1);
    k = random_array(dtype, {k_shape.begin(), k_shape.end()}, 2);
    v = random_array(dtype, {v_shape.begin(), v_shape.end()}, 3);
    io::write_npy(folder / "q.npy", q);
    io::write_npy(folder / "k.npy", k);
    io::write_npy(folder / "v.npy", v);
  }

  std::vector<HeadStatistics> heads;
  Array out, lse, weights, key_sums, scores;
  ScoreStage stage = ScoreStage::raw;

  void compute(const Options& options) {
    const Shape4 out_shape = {q_shape[0], q_shape[1], q_shape[2], v_shape[3]};
    const Shape4 weights_shape = {q_shape[0], q_shape[1], q_shape[2], k_shape[2]};
    const std::array<std::int64_t, 3> rows = {q_shape[0], q_shape[1], q_shape[2]};
    out = io::make_array(dtype, {out_shape.begin(), out_shape.end()});
    lse = io::make_array(accumulation_dtype(dtype), {rows.begin(), rows.end()});
    weights = io::make_array(accumulation_dtype(dtype), {weights_shape.begin(), weights_shape.end()});
    scores = io::make_array(accumulation_dtype(dtype), {weights_shape.begin(), weights_shape.end()});
    const std::array<std::int64_t, 3> keys = {q_shape[0], q_shape[1], k_shape[2]};
    key_sums = io::make_array(accumulation_dtype(dtype), {keys.begin(), keys.end()});
    const std::int64_t entries = options.q_offsets.empty() ? q_shape[0] : options.q_offsets.size() - 1;
    heads.resize(static_cast<std::size_t>(entries * q_shape[1]));
    attention(view_of(q, q_shape), view_of(k, k_shape), view_of(v, v_shape), view_of(out, out_shape), options,
              {.lse = {lse.bytes.data(), lse.dtype, rows, contiguous_strides(rows)},
               .weights = view_of(weights, weights_shape),
               .heads = heads,
               .key_sums = {key_sums.bytes.data(), key_sums.dtype, keys, contiguous_strides(keys)},
               .key_sum_rows = 2,
               .scores = view_of(scores, weights_shape),
               .score_stage = stage});
  }

  // Runs both and compares all they give.
  void expect_equal(const std::vector<std::string>& flags, const Options& options) {
    std::vector<std::string> arguments = {
        "attend", "q.npy",      "k.npy",    "v.npy",          "-o", "out.npy", "--lse",      "lse.npy",  "--weights",
        "w.npy",  "--key-sums", "sums.npy", "--key-sum-rows", "2",  "--stats", "stats.json", "--scores", "scores.npy"};
    arguments.insert(arguments.end(), flags.begin(), flags.end());
    const Result result = keel(folder, arguments);
    ASSERT_EQ(result.status, 0) << result.err;
    EXPECT_EQ(result.err, "");
    compute(options);
    for (const auto& [name, array] :
         {std::pair("out.npy", &out), std::pair("lse.npy", &lse), std::pair("w.npy", &weights),
          std::pair("sums.npy", &key_sums), std::pair("scores.npy", &scores)}) {
      const Array written = io::read_npy(folder / name);
      EXPECT_EQ(written.dtype, array->dtype) << name;
      EXPECT_EQ(written.shape, array->shape) << name;
      EXPECT_EQ(written.bytes, array->bytes) << name;
    }
    const io::Buffer text = io::read_file(folder / "stats.json");
    const auto stats = nlohmann::json::parse(reinterpret_cast<const char*>(text.data()),
                                             reinterpret_cast<const char*>(text.data()) + text.size());
    ASSERT_EQ(stats["heads"].size(), heads.size());
    for (std::size_t i = 0; i < heads.size(); ++i) {
      const auto& head = stats["heads"][i];
      EXPECT_EQ(head["entry"], static_cast<std::int64_t>(i) / q_shape[1]);
      EXPECT_EQ(head["head"], static_cast<std::int64_t>(i) % q_shape[1]);
      EXPECT_EQ(head["rows"], heads[i].rows);
      EXPECT_EQ(head["max_logit"], heads[i].rows > 0 ? nlohmann::json(heads[i].max_logit) : nlohmann::json());
      EXPECT_EQ(head["mean_entropy"], heads[i].mean_entropy);
      EXPECT_EQ(head["min_entropy"], heads[i].min_entropy);
      EXPECT_EQ(head["normalised_entropy"], heads[i].normalised_entropy);
      EXPECT_EQ(head["saturated"], heads[i].saturated);
    }
    EXPECT_THAT(folder.names(), testing::IsSupersetOf({"out.npy", "lse.npy", "w.npy", "stats.json"}));
    for (const std::string& name : folder.names()) EXPECT_NE(name[0], '.') << name << " was left";
  }
};

TEST(Attend, EightHeadsOfAThousandRowsAgreeWithTheLibrary) {
  Call call;
  call.q_shape = call.k_shape = call.v_shape = {1, 8, 1024, 64};
  call.write();
  const Result result = keel(call.folder, {"attend", "q.npy", "k.npy", "v.npy", "-o", "out.npy"});
  ASSERT_EQ(result.status, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("(1, 8, 1024, 64)"));
  EXPECT_THAT(result.out, HasSubstr("f32"));
  EXPECT_THAT(result.out, HasSubstr("max logit"));
  Array out = io::make_array(DType::f32, {1, 8, 1024, 64});
  attention(view_of(call.q, call.q_shape), view_of(call.k, call.k_shape), view_of(call.v, call.v_shape),
            view_of(out, call.q_shape));
  const Array written = io::read_npy(call.folder / "out.npy");
  EXPECT_EQ(written.shape, out.shape);
  EXPECT_EQ(written.bytes, out.bytes);
}

TEST(Attend, EveryDtypeAgreesWithTheLibrary) {
  for (const DType dtype : {DType::f64, DType::f32, DType::f16, DType::bf16}) {
    SCOPED_TRACE(name_of(dtype));
    Call call;
    call.dtype = dtype;
    call.write();
    call.expect_equal({}, {});
  }
}

TEST(Attend, FlagsWithoutArraysReachTheLibrary) {
  const std::vector<std::int64_t> q_lengths = {9, 4}, k_lengths = {3, 11};
  const std::vector<std::pair<std::vector<std::string>, Options>> cases = {
      {{"--causal", "top_left"}, {.causal = Causal::top_left}},
      {{"--causal", "bottom_right"}, {.causal = Causal::bottom_right}},
      {{"--window", "2,1"}, {.window = {2, 1}}},
      {{"--window", "inf,1"}, {.window = {Window::kUnbounded, 1}}},
      {{"--window", "1,inf", "--causal", "top_left"}, {.causal = Causal::top_left, .window = {1, Window::kUnbounded}}},
      {{"--origin", "3,1", "--causal", "top_left"}, {.causal = Causal::top_left, .origin = {.query = 3, .key = 1}}},
      {{"--origin", "2,4,30,20", "--causal", "bottom_right"},
       {.causal = Causal::bottom_right, .origin = {.query = 2, .key = 4, .n_q = 30, .n_k = 20}}},
      {{"--scale", "-0.5"}, {.scale = -0.5}},
      {{"--softcap", "1.5"}, {.softcap = 1.5}},
      {{"--q-lengths", "9,4", "--k-lengths", "3,11"}, {.q_lengths = q_lengths, .k_lengths = k_lengths}},
      {{"--k-lengths", "3,11"}, {.k_lengths = k_lengths}},
      {{"--dropout", "0.25", "--seed", "7"}, {.dropout = 0.25, .seed = 7}},
      {{"--dropout", "0.25", "--seed", "18446744073709551615"}, {.dropout = 0.25, .seed = UINT64_MAX}},
      {{"--threads", "1"}, {.threads = 1}},
  };
  for (const auto& [flags, options] : cases) {
    SCOPED_TRACE(testing::PrintToString(flags));
    Call call;
    call.write();
    call.expect_equal(flags, options);
  }
}

TEST(Attend, LengthsMayComeFromAFile) {
  Call call;
  call.write();
  const std::vector<std::int64_t> lengths = {3, 11};
  io::write_npy(call.folder / "lengths.npy", io::make_array<std::int64_t>({2}, lengths));
  call.expect_equal({"--k-lengths", "lengths.npy"}, {.k_lengths = lengths});
}

TEST(Attend, PackedBatchAgreesWithTheLibrary) {
  Call call;
  call.q_shape = {1, 4, 9, 8};
  call.k_shape = {1, 2, 11, 8};
  call.v_shape = {1, 2, 11, 5};
  call.write();
  const std::vector<std::int64_t> q_offsets = {0, 4, 4, 9}, k_offsets = {0, 6, 8, 11};
  call.expect_equal({"--q-offsets", "0,4,4,9", "--k-offsets", "0,6,8,11", "--causal", "bottom_right"},
                    {.causal = Causal::bottom_right, .q_offsets = q_offsets, .k_offsets = k_offsets});
}

TEST(Attend, MaskAndBiasOfTwoToFourDimensionsAreBroadcast) {
  for (const std::vector<std::int64_t>& shape :
       {std::vector<std::int64_t>{9, 11}, {1, 11}, {4, 9, 11}, {2, 1, 1, 11}, {2, 4, 9, 11}}) {
    SCOPED_TRACE(testing::PrintToString(shape));
    Call call;
    call.write();
    Array mask = random_array(DType::boolean, shape, 4);
    Array bias = random_array(DType::f32, shape, 5);
    io::write_npy(call.folder / "mask.npy", mask);
    io::write_npy(call.folder / "bias.npy", bias);
    Shape4 full = {1, 1, 1, 1};
    std::copy(shape.begin(), shape.end(), full.end() - std::ssize(shape));
    call.expect_equal({"--mask", "mask.npy", "--bias", "bias.npy"},
                      {.mask = view_of(mask, full), .bias = view_of(bias, full)});
  }
}

TEST(Attend, ScaleOfEachHeadAndOfEachQuery) {
  Call call;
  call.write();
  Array heads = random_array(DType::f32, {4}, 6);
  io::write_npy(call.folder / "heads.npy", heads);
  call.expect_equal({"--scale-tensor", "heads.npy"}, {.scale_tensor = row_view(heads.as<float>().data(), {1, 4, 1})});
  Array queries = random_array(DType::f64, {2, 1, 9}, 7);
  io::write_npy(call.folder / "queries.npy", queries);
  call.expect_equal({"--scale-tensor", "queries.npy"},
                    {.scale_tensor = row_view(queries.as<double>().data(), {2, 1, 9})});
}

TEST(Attend, SlopesAndSinksFromAListOrAFile) {
  Call call;
  call.write();
  std::vector<double> slopes = {0.5, 0.25, 0.125, 1e-2}, sinks = {0, -1, 2.5, 3};
  const Options options = {.alibi = head_view(slopes.data(), 4), .sinks = head_view(sinks.data(), 4)};
  call.expect_equal({"--alibi", "0.5,0.25,0.125,1e-2", "--sinks", "0,-1,2.5,3"}, options);
  io::write_npy(call.folder / "slopes.npy", io::make_array<double>({4}, slopes));
  io::write_npy(call.folder / "sinks.npy", io::make_array<double>({4}, sinks));
  call.expect_equal({"--alibi", "slopes.npy", "--sinks", "sinks.npy"}, options);
}

TEST(Attend, SlopesPerBatchEntry) {
  Call call;
  call.write();
  Array slopes = random_array(DType::f32, {2, 4}, 8);
  io::write_npy(call.folder / "slopes.npy", slopes);
  call.expect_equal({"--alibi", "slopes.npy"}, {.alibi = table_view(slopes.as<float>().data(), {2, 4})});
}

TEST(Attend, ScoresOfEachStage) {
  Call call;
  call.write();
  const std::pair<const char*, ScoreStage> stages[] = {
      {"raw", ScoreStage::raw}, {"capped", ScoreStage::capped}, {"masked", ScoreStage::masked}};
  for (const auto& [name, stage] : stages) {
    call.stage = stage;
    call.expect_equal({"--softcap", "2", "--causal", "top_left", "--score-stage", name},
                      {.softcap = 2.0, .causal = Causal::top_left});
  }
}

TEST(Attend, OutputsHaveAsManyDimensionsAsQ) {
  const TemporaryFolder folder;
  for (const int rank : {2, 3, 4}) {
    const Shape4 q = {1, 1, 3, 4}, k = {1, 1, 5, 4}, v = {1, 1, 5, 6};
    const auto shape = [&](const Shape4& full) { return std::vector<std::int64_t>(full.end() - rank, full.end()); };
    io::write_npy(folder / "q.npy", random_array(DType::f32, shape(q), 1));
    io::write_npy(folder / "k.npy", random_array(DType::f32, shape(k), 2));
    io::write_npy(folder / "v.npy", random_array(DType::f32, shape(v), 3));
    const Result result = keel(folder, {"attend", "q.npy", "k.npy", "v.npy", "-q", "-o", "out.npy", "--lse", "lse.npy",
                                        "--weights", "weights.npy"});
    ASSERT_EQ(result.status, 0) << result.err;
    EXPECT_EQ(result.out, "");
    EXPECT_EQ(io::read_npy(folder / "out.npy").shape, shape({1, 1, 3, 6}));
    EXPECT_EQ(io::read_npy(folder / "weights.npy").shape, shape({1, 1, 3, 5}));
    EXPECT_EQ(io::read_npy(folder / "lse.npy").shape.size(), static_cast<std::size_t>(rank - 1));
  }
}

TEST(Attend, NoQueriesAndNoKeysAreOrdinary) {
  Call call;
  call.q_shape = {2, 2, 0, 4};
  call.k_shape = call.v_shape = {2, 2, 3, 4};
  call.write();
  call.expect_equal({}, {});
  call.q_shape = {2, 2, 3, 4};
  call.k_shape = call.v_shape = {2, 2, 0, 4};
  call.write();
  call.expect_equal({}, {});
}

TEST(Attend, ReadsFromAndWritesToPipes) {
  Call call;
  call.write();
  const Result result =
      shell(call.folder, "cat q.npy | keel attend /dev/stdin k.npy v.npy -q -o /dev/stdout | cat > out.npy");
  ASSERT_EQ(result.status, 0) << result.err;
  call.compute({});
  EXPECT_EQ(io::read_npy(call.folder / "out.npy").bytes, call.out.bytes);
}

TEST(Attend, JsonSaysWhatWasDone) {
  Call call;
  call.write();
  const Result result = keel(call.folder, {"attend", "q.npy", "k.npy", "v.npy", "--json", "--lse", "lse.npy"});
  ASSERT_EQ(result.status, 0) << result.err;
  const auto summary = nlohmann::json::parse(result.out);
  EXPECT_EQ(summary["keel"], version());
  EXPECT_EQ(summary["arrays"]["out"]["shape"], nlohmann::json({2, 4, 9, 5}));
  EXPECT_EQ(summary["arrays"]["out"]["path"], nullptr);
  EXPECT_EQ(summary["arrays"]["lse"]["path"], "lse.npy");
  EXPECT_EQ(summary["arrays"]["q"]["dtype"], "f32");
  EXPECT_GE(summary["seconds"], 0.0);
  EXPECT_EQ(summary["statistics"]["heads"].size(), 8u);
  EXPECT_EQ(summary["statistics"]["all"]["rows"], 2 * 4 * 9);
}

TEST(Attend, SaturationThresholdIsTheCallers) {
  Call call;
  call.write();
  for (const auto& [threshold, expected] : {std::pair("0", 1.0), std::pair("1", 0.0)}) {
    const Result result = keel(call.folder, {"attend", "q.npy", "k.npy", "v.npy", "--json", "--saturation", threshold});
    ASSERT_EQ(result.status, 0) << result.err;
    EXPECT_EQ(nlohmann::json::parse(result.out)["statistics"]["all"]["saturated"], expected);
  }
}

}  // namespace
}  // namespace keel::test
