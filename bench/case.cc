#include "bench/case.h"

#include <fmt/format.h>
#include <hwy/targets.h>

namespace keel::bench {

std::string text_of(const Case& c) {
  std::string text = fmt::format("{}", c.q_heads);
  if (c.kv_heads != c.q_heads) text += fmt::format("/{}", c.kv_heads);
  text += fmt::format("×{}", c.n_q);
  if (c.n_k != c.n_q && !c.merge) text += fmt::format(":{}", c.n_k);
  text += fmt::format("×{}", c.d);
  if (c.heads_inside) text += " BNHD";
  if (c.causal != Causal::none) text += " causal";
  if (c.window.left != Window::kUnbounded) text += fmt::format(" window {}", c.window.left + 1);
  if (c.dropout > 0) text += fmt::format(" dropout {}", c.dropout);
  if (c.mask) text += " mask";
  if (c.distances > 0) text += fmt::format(" bias by distance up to {}", c.distances);
  if (c.documents > 0) {
    text += fmt::format(" {}{} documents{}", c.documents, c.ragged ? " ragged" : "", c.as_mask ? " by mask" : "");
  }
  if (c.backward) text += " backward";
  if (c.jvp) text += " jvp";
  if (c.twice) text += " double backward";
  if (c.merge) text += " merge";
  if (c.reports == Reports::usual) text += " lse, max, entropy";
  if (c.reports == Reports::everything) text += " all statistics";
  if (c.reports == Reports::key_sums) text += " key sums";
  if (c.reports == Reports::last_key_sums) text += " key sums of 64 rows";
  if (c.target != 0) text += fmt::format(" on {}", hwy::TargetName(c.target));
  return text;
}

}  // namespace keel::bench
