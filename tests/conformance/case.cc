#include "conformance/case.h"

#include <sstream>

namespace keel::conformance {
namespace {

const char* name_of(Storage x) {
  constexpr const char* names[] = {"bhnd", "bnhd", "packed", "gaps", "transposed", "reversed"};
  return names[static_cast<int>(x)];
}
const char* name_of(ScaleKind x) {
  constexpr const char* names[] = {"standard", "number", "per_head", "per_query"};
  return names[static_cast<int>(x)];
}
const char* name_of(MaskKind x) {
  constexpr const char* names[] = {"none", "random", "one_row", "blocks", "all"};
  return names[static_cast<int>(x)];
}
const char* name_of(BiasKind x) {
  constexpr const char* names[] = {"none",     "normal",    "minus_inf",    "minus_1e30",
                                   "plus_inf", "scattered", "left_padding", "right_padding"};
  return names[static_cast<int>(x)];
}
const char* name_of(Values x) {
  constexpr const char* names[] = {"normal",      "flat",       "huge",        "extreme",
                                   "overflowing", "nan_hidden", "nan_visible", "inf_visible"};
  return names[static_cast<int>(x)];
}

const char* name_of(ScoreStage x) {
  constexpr const char* names[] = {"raw", "capped", "masked"};
  return names[static_cast<int>(x)];
}

const char* name_of(BlockKind x) {
  constexpr const char* names[] = {"none", "random", "documents", "strided"};
  return names[static_cast<int>(x)];
}

std::string text_of(const Broadcast& x) {
  std::string text;
  if (x.b) text += 'b';
  if (x.h) text += 'h';
  if (x.q) text += 'q';
  if (x.k) text += 'k';
  if (text.empty()) return "full";
  return "broadcast over " + text + (x.by_stride ? " by stride 0" : "");
}

std::string text_of(const std::vector<std::int64_t>& values) {
  std::ostringstream text;
  for (std::size_t i = 0; i < values.size(); ++i) text << (i == 0 ? "{" : ",") << values[i];
  text << "}";
  return text.str();
}

std::string text_of_bound(std::int64_t bound) {
  return bound == Window::kUnbounded ? "unbounded" : std::to_string(bound);
}

}  // namespace

std::string describe(const Case& c) {
  std::ostringstream text;
  text << c.name << ": " << keel::name_of(c.dtype) << " B" << c.batch << " H" << c.q_heads << "/" << c.kv_heads << " n"
       << c.n_q << "x" << c.n_k << " d" << c.d_k << "/" << c.d_v << " storage " << name_of(c.q) << "," << name_of(c.k)
       << "," << name_of(c.v) << "," << name_of(c.out) << " values " << name_of(c.values) << " seed " << c.seed;
  if (c.scale != ScaleKind::standard) text << ", scale " << name_of(c.scale);
  if (c.scale == ScaleKind::number) text << " " << c.scale_number;
  if (c.softcap) text << ", softcap " << *c.softcap;
  if (c.mask != MaskKind::none) text << ", mask " << name_of(c.mask) << " " << text_of(c.mask_broadcast);
  if (c.bias != BiasKind::none) {
    text << ", bias " << name_of(c.bias) << (c.bias_f32 ? " f32 " : " ");
    if (has_bias_low(c)) text << c.bias_low << " ";
    text << text_of(c.bias_broadcast);
  }
  if (c.blocks != BlockKind::none) {
    text << ", blocks " << name_of(c.blocks) << " " << c.block_rows << "x" << c.block_keys << " "
         << text_of(c.block_broadcast);
  }
  if (c.causal != Causal::none) text << ", causal " << (c.causal == Causal::top_left ? "top_left" : "bottom_right");
  if (c.window.left != Window::kUnbounded || c.window.right != Window::kUnbounded) {
    text << ", window " << text_of_bound(c.window.left) << "," << text_of_bound(c.window.right);
  }
  if (!c.q_lengths.empty()) text << ", q_lengths " << text_of(c.q_lengths);
  if (!c.k_lengths.empty()) text << ", k_lengths " << text_of(c.k_lengths);
  if (!c.k_starts.empty()) text << ", k_starts " << text_of(c.k_starts);
  if (!c.q_offsets.empty()) text << ", q_offsets " << text_of(c.q_offsets);
  if (!c.k_offsets.empty()) text << ", k_offsets " << text_of(c.k_offsets);
  if (c.alibi) text << ", alibi" << (c.alibi_per_entry ? " per entry" : "");
  if (c.relative_radius >= 0) {
    text << ", relative_bias of radius " << c.relative_radius << (c.relative_shared ? " shared by heads" : "");
  }
  if (c.sinks) text << ", sinks";
  if (c.dropout != 0.0) text << ", dropout " << c.dropout << " seed " << c.dropout_seed;
  text << ", outputs" << (c.lse ? " lse" : "") << (c.statistics ? " statistics" : "") << (c.heads ? " heads" : "")
       << (c.weights == Weights::none  ? ""
           : c.weights == Weights::f32 ? " weights(f32)"
                                       : " weights(q)");
  if (c.key_sums) text << " key_sums";
  if (c.key_sum_rows != 0) text << "(" << c.key_sum_rows << " rows)";
  if (c.scores) text << " scores(" << name_of(*c.scores) << (c.scores_f32 ? ", f32)" : ")");
  if (c.dlse) text << ", dlse";
  return text.str();
}

}  // namespace keel::conformance
