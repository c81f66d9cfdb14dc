// The same over MPI's processes, which mpirun starts. Each makes the whole problem, computes its own part, gets the
// others' results by messages, and compares all with the oracle.
#include "keel/mpi.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <mpi.h>

#include <csignal>
#include <cstring>
#include <string>
#include <vector>

#include "conformance/expect.h"
#include "conformance/random.h"
#include "conformance/seeds.h"
#include "conformance/table.h"
#include "core/element.h"
#include "core/row_statistics.h"
#include "ring/copy.h"
#include "ring/over_ranks.h"
#include "ring/wrapped.h"

namespace keel::conformance {
namespace {

int world_size() {
  int size = 0;
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  return size;
}

// Every rank wrote some elements, and no two the same; the others are as they were painted. An element takes the bits
// that differ from that on any rank.
class Combined {
 public:
  template <std::size_t Rank>
  void add(const BasicView<Rank, void*>& view) {
    if (!view.given()) return;
    const MutableTensorView x = ring::as_tensor(ring::summed(view));
    for (std::int64_t b = 0; b < x.shape[0]; ++b) {
      for (std::int64_t h = 0; h < x.shape[1]; ++h) {
        for (std::int64_t n = 0; n < x.shape[2]; ++n) {
          for (std::int64_t d = 0; d < x.shape[3]; ++d) {
            auto* const first = static_cast<unsigned char*>(x.data) + offset(x, b, h, n, d) * size_of(x.dtype);
            for (std::int64_t i = 0; i < size_of(x.dtype); ++i) bytes_.push_back(first + i);
          }
        }
      }
    }
  }
  ~Combined() {
    std::vector<unsigned char> mine, all(bytes_.size());
    for (const unsigned char* byte : bytes_) mine.push_back(*byte ^ Array::kMark);
    MPI_Allreduce(mine.data(), all.data(), static_cast<int>(all.size()), MPI_BYTE, MPI_BOR, MPI_COMM_WORLD);
    for (std::size_t i = 0; i < all.size(); ++i) *bytes_[i] = all[i] ^ Array::kMark;
  }

 private:
  std::vector<unsigned char*> bytes_;
};

Ranks processes(ring::Layout layout, ring::Mode mode) {
  return {world_size(), layout, mode,
          [](int, const std::function<void(ring::Transport&)>& work) { work(mpi::transport_of(MPI_COMM_WORLD)); }};
}

Forward over_processes(const Ranks& ranks) {
  return [ranks](const TensorView& q, const TensorView& k, const TensorView& v, const MutableTensorView& out,
                 const Options& options, const Outputs& outputs) {
    over_ranks(ranks)(q, k, v, out, options, outputs);
    Combined all;
    all.add(out);
    for (const RowStatistic& s : kRowStatistics) all.add(outputs.*s.result);
    all.add(outputs.weights);
    all.add(outputs.key_sums);
  };
}

Backward backward_over_processes(const Ranks& ranks) {
  return [ranks](const BackwardInputs& in, const Gradients& g, const Options& options) {
    backward_over_ranks(ranks)(in, g, options);
    Combined all;
    all.add(g.dq), all.add(g.dk), all.add(g.dv), all.add(g.dbias), all.add(g.dscale), all.add(g.dsinks);
  };
}

void expect_conforms(const Case& c, std::uint64_t number) {
  constexpr ring::Mode modes[] = {ring::Mode::ring, ring::Mode::ordered, ring::Mode::ring, ring::Mode::decode};
  Ranks ranks = processes(number % 2 == 0 ? ring::Layout::zigzag : ring::Layout::contiguous, modes[number / 2 % 4]);
  if (!lse_tells_weights(c)) return;
  if (c.weights != Weights::none) ranks.mode = ring::Mode::ordered;
  SCOPED_TRACE(describe(ranks));
  const Instance instance(for_many_processes(c));
  expect_matches_oracle(instance, over_processes(ranks));
  if (ranks.mode != ring::Mode::decode) expect_gradients_match_oracle(instance, backward_over_processes(ranks));
}

TEST(Mpi, EveryCaseMatchesTheOracle) {
  std::uint64_t number = 0;
  for (const Case& c : table()) expect_conforms(c, ++number);
}

TEST(Mpi, RandomProblemsMatchTheOracle) {
  for (const std::uint64_t seed : seeds(200)) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    expect_conforms(random_case(seed + 70'000), seed);
  }
}

// A call that every process makes.
void call(ring::Transport& transport, Options options) {
  constexpr std::int64_t n = 256, d = 16;
  const std::int64_t rows = ring::shard(n, transport.size(), transport.rank(), ring::Layout::zigzag).size();
  std::vector<float> x(static_cast<std::size_t>(rows * d), 0.5f), out(x.size());
  const auto view_of = [&](std::vector<float>& y) { return view(y.data(), {1, 1, rows, d}); };
  ring::attention(transport, {.n_q = n, .n_k = n}, {view_of(x), view_of(x), view_of(x), view_of(out)}, options);
}

TEST(Mpi, AWrongArgumentOfOneRankIsRaisedByAll) {
  ring::Transport& transport = mpi::transport_of(MPI_COMM_WORLD);
  try {
    call(transport, {.threads = transport.rank() == 1 ? -1 : 1});
    FAIL() << "nothing was raised";
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(), "[ring] rank 1: [attention] threads: expected at least 0, got -1");
  }
  call(transport, {});  // which goes on as if nothing had been
}

// Around the length from which on neighbours read each other's memory; several under way, completed in any order.
TEST(Mpi, LongMessagesArriveWhole) {
  ring::Transport& transport = mpi::transport_of(MPI_COMM_WORLD);
  const int size = transport.size(), next = (transport.rank() + 1) % size, last = (transport.rank() + size - 1) % size;
  constexpr std::size_t lengths[] = {1, 16383, 16384, 16385, (3 << 20) + 1, 16384, 5};
  const auto byte = [](int rank, std::size_t message, std::size_t i) {
    return static_cast<unsigned char>(static_cast<std::size_t>(rank) * 31 + message * 7 + i % 251);
  };
  std::vector<std::vector<unsigned char>> out, in;
  std::vector<ring::Transport::Request> requests;
  for (std::size_t m = 0; m < std::size(lengths); ++m) {
    out.emplace_back(lengths[m]);
    in.emplace_back(lengths[m]);
    for (std::size_t i = 0; i < lengths[m]; ++i) out[m][i] = byte(transport.rank(), m, i);
    requests.push_back(transport.isend(next, 5, out[m].data(), static_cast<std::int64_t>(lengths[m])));
  }
  for (std::size_t m = 0; m < std::size(lengths); ++m) {
    requests.push_back(transport.irecv(last, 5, in[m].data(), static_cast<std::int64_t>(lengths[m])));
  }
  // Sends first: each rank waits for the next one to read, which waits as well.
  for (const auto request : requests) transport.wait(request);
  for (std::size_t m = 0; m < std::size(lengths); ++m) {
    std::size_t wrong = 0;
    for (std::size_t i = 0; i < lengths[m]; ++i) wrong += in[m][i] != byte(last, m, i);
    EXPECT_EQ(wrong, 0u) << "of " << lengths[m] << " bytes";
  }
}

// What waiting for a transfer raises, or "".
std::string error_of(ring::Transport& transport, ring::Transport::Request request) {
  try {
    transport.wait(request);
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

// By itself, or read from the sender's memory. (No long one where less is expected: Open MPI 4.1 writes all of it.)
TEST(Mpi, AMessageOfAnotherLengthIsAnError) {
  mpi::Transport transport(MPI_COMM_WORLD);
  const int size = transport.size(), next = (transport.rank() + 1) % size, last = (transport.rank() + size - 1) % size;
  constexpr std::int64_t lengths[][2] = {{8, 16}, {16, 8}, {20'000, 30'000}, {16, 20'000}};
  for (const auto& [sent, expected] : lengths) {
    SCOPED_TRACE(std::to_string(sent) + " bytes for " + std::to_string(expected));
    std::vector<char> out(static_cast<std::size_t>(sent)), in(static_cast<std::size_t>(expected));
    const auto from = transport.irecv(last, 0, in.data(), expected), to = transport.isend(next, 0, out.data(), sent);
    EXPECT_EQ(error_of(transport, to), "");
    const std::string error = error_of(transport, from);
    if (sent < expected) {
      EXPECT_EQ(error, "[mpi] expected a message of " + std::to_string(expected) + " bytes from rank " +
                           std::to_string(last) + ", got " + std::to_string(sent));
    } else {
      EXPECT_THAT(error, testing::HasSubstr("[mpi]"));
    }
  }
}

// The first message fails while the second is waited for, since that is sent after the first has been received.
TEST(Mpi, AFailedTransferIsRaisedByItsOwnWait) {
  mpi::Transport transport(MPI_COMM_WORLD);
  if (transport.rank() > 1) return;
  std::vector<char> first(30'000);
  char second = 0;
  if (transport.rank() == 1) {
    second = 7;
    transport.wait(transport.isend(0, 0, first.data(), 20'000));
    transport.wait(transport.isend(0, 1, &second, 1));
    return;
  }
  const auto failing = transport.irecv(1, 0, first.data(), 30'000), good = transport.irecv(1, 1, &second, 1);
  EXPECT_EQ(error_of(transport, good), "");
  EXPECT_EQ(second, 7);
  EXPECT_EQ(error_of(transport, failing), "[mpi] expected a message of 30000 bytes from rank 1, got 20000");
}

TEST(Mpi, TheTransportOfACommunicatorIsMadeOnce) {
  EXPECT_EQ(&mpi::transport_of(MPI_COMM_WORLD), &mpi::transport_of(MPI_COMM_WORLD));
}

// Run by kill_test.py: rank 1 is killed in the middle of a call.
class Killed : public ring::Wrapped {
 public:
  using Wrapped::Wrapped;
  void progress() override {
    if (rank() == 1 && ++seen_ == 3) std::raise(SIGKILL);
  }

 private:
  int seen_ = 0;
};

TEST(DISABLED_Mpi, ARankIsKilled) {
  Killed killed(mpi::transport_of(MPI_COMM_WORLD));
  call(killed, {});
}

}  // namespace
}  // namespace keel::conformance

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  testing::InitGoogleTest(&argc, argv);
  int rank = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  if (rank != 0)
    delete testing::UnitTest::GetInstance()->listeners().Release(
        testing::UnitTest::GetInstance()->listeners().default_result_printer());
  const int status = RUN_ALL_TESTS();
  if (status != 0) MPI_Abort(MPI_COMM_WORLD, status);
  MPI_Finalize();
  return status;
}
