#pragma once

#include <span>
#include <string_view>
#include <vector>

#include "bench/row.h"

// What `keel bench` measures: one file per scenario. Goals are those the kernels were written for, stated for an
// AVX-512 machine. A new scenario is a file here and a line in scenarios.cc.
namespace keel::bench {

struct Scenario {
  std::string_view name, about;
  std::vector<Row> (*rows)(bool quick);  // quick: shorter calls, never different kinds of calls
};

std::span<const Scenario> scenarios();

// Enough heads for a realistic call, few enough to make many of them.
constexpr std::int64_t heads(bool quick) { return quick ? 2 : 4; }

// Two threads against one.
Row two_threads(const Case& one, double goal);

std::vector<Row> forward_rows(bool quick);
std::vector<Row> head_size_rows(bool quick);
std::vector<Row> target_rows(bool quick);
std::vector<Row> dtype_rows(bool quick);
std::vector<Row> thread_rows(bool quick);
std::vector<Row> unit_rows(bool quick);
std::vector<Row> decode_rows(bool quick);
std::vector<Row> statistics_rows(bool quick);
std::vector<Row> mask_rows(bool quick);
std::vector<Row> dropout_rows(bool quick);
std::vector<Row> document_rows(bool quick);
std::vector<Row> small_rows(bool quick);
std::vector<Row> memory_rows(bool quick);
std::vector<Row> backward_rows(bool quick);
std::vector<Row> tangent_rows(bool quick);
std::vector<Row> merge_rows(bool quick);

}  // namespace keel::bench
