#include "bench/gpu.h"

#include <gtest/gtest.h>

#include <set>

namespace keel::bench {
namespace {

TEST(GpuRows, TheGridHasAsManyTokensInEveryRow) {
  std::set<std::string> groups;
  for (const GpuRow& row : gpu_rows(DType::f16, true, false)) {
    const GpuCase& c = row.subject;
    groups.insert(row.group);
    EXPECT_EQ(c.dtype, DType::f16);
    EXPECT_EQ(c.backward, row.group == "options" ? row.baseline->backward : row.group == "backward") << text_of(c);
    if (row.group != "forward" && row.group != "backward") continue;
    EXPECT_EQ(c.batch * c.n_q, 16384) << text_of(c);
    EXPECT_EQ(c.q_heads * c.d, 2048) << text_of(c);
    EXPECT_EQ(c.n_q, c.n_k);
    EXPECT_FALSE(row.baseline);
  }
  EXPECT_EQ(groups, (std::set<std::string>{"forward", "backward", "statistics", "options", "decode"}));
}

TEST(GpuRows, EveryTermIsMeasuredInBothPassesWhereBothAreRequested) {
  std::set<Term> terms[2];
  for (const GpuRow& row : gpu_rows(DType::bf16, true, false)) {
    if (row.subject.term != Term::none) terms[row.subject.backward].insert(row.subject.term);
  }
  EXPECT_EQ(terms[0].size(), 5u);
  EXPECT_EQ(terms[1], terms[0]);
}

TEST(GpuRows, WhatIsRelativeHasAPlainCallBesideIt) {
  for (const GpuRow& row : gpu_rows(DType::bf16, false, false)) {
    EXPECT_FALSE(row.subject.backward);
    EXPECT_EQ(row.baseline.has_value(), row.group == "statistics" || row.group == "options") << text_of(row.subject);
    if (!row.baseline) continue;
    EXPECT_EQ(row.baseline->term, Term::none);
    EXPECT_EQ(row.baseline->reports, RowReports::nothing);
    EXPECT_NE(text_of(*row.baseline), text_of(row.subject));
  }
}

TEST(GpuRows, FewerOnRequest) {
  EXPECT_LT(gpu_rows(DType::bf16, true, true).size(), gpu_rows(DType::bf16, true, false).size());
}

TEST(GpuRows, NamesSayWhatIsMeasured) {
  GpuCase c{.batch = 16, .q_heads = 32, .kv_heads = 8, .n_q = 1, .n_k = 32768};
  EXPECT_EQ(text_of(c), "16×32/8×1:32768×128 bf16");
  c.causal = Causal::top_left, c.window = 1024, c.term = Term::bias, c.reports = RowReports::entropy, c.backward = true;
  EXPECT_EQ(text_of(c), "16×32/8×1:32768×128 bf16 causal window 1024 bias + entropy backward");
}

}  // namespace
}  // namespace keel::bench
