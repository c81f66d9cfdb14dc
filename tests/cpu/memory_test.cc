// Calls read no memory but their arrays'.
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <array>
#include <cstring>

#include "keel/attention.h"

namespace keel {
namespace {

// The last entry of a packed batch has keys and no query: the mask has no row for it.
TEST(Memory, AnEntryWithoutQueriesReadsNoMask) {
  constexpr std::int64_t n_q = 2, n_k = 3;
  const auto page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  auto* const pages =
      static_cast<std::byte*>(mmap(nullptr, 2 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  ASSERT_NE(static_cast<void*>(pages), MAP_FAILED);
  ASSERT_EQ(mprotect(pages + page, page, PROT_NONE), 0);  // begins where the mask ends
  std::byte* const mask = pages + page - n_q * n_k;
  std::memset(mask, 1, n_q * n_k);

  const std::array<std::int64_t, 3> q_offsets = {0, 2, 2}, k_offsets = {0, 0, n_k};
  Options options;
  options.mask = {mask, DType::boolean, {1, 1, n_q, n_k}, {n_q * n_k, n_q * n_k, n_k, 1}};
  options.q_offsets = q_offsets;
  options.k_offsets = k_offsets;
  std::array<float, n_q> q = {1, 1}, out{}, lse{}, dq = {5, 5};
  std::array<float, n_k> k = {1, 1, 1}, dk = {5, 5, 5};
  const auto queries = [](auto& x) { return view(x.data(), {1, 1, n_q, 1}); };
  const auto keys = [](auto& x) { return view(x.data(), {1, 1, n_k, 1}); };
  const auto rows = row_view(lse.data(), {1, 1, n_q});
  attention(queries(q), keys(k), keys(k), queries(out), options, {.lse = rows});
  attention_backward(
      {.q = queries(q), .k = keys(k), .v = keys(k), .out = queries(out), .lse = rows, .dout = queries(q)},
      {.dq = queries(dq), .dk = keys(dk)}, options);
  EXPECT_EQ(dq, (std::array<float, n_q>{}));
  EXPECT_EQ(dk, (std::array<float, n_k>{}));
  munmap(pages, 2 * page);
}

}  // namespace
}  // namespace keel
