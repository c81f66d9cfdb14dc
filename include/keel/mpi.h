#pragma once

// Attention over the processes of an MPI communicator: keel/ring.h over MPI. Link keel::mpi.
//
//   MPI_Init(&argc, &argv);
//   const keel::ring::Sharding whole{.n_q = N, .n_k = N};
//   keel::mpi::attention(MPI_COMM_WORLD, whole, {.q = …, .k = …, .v = …, .out = …},
//                        {.causal = keel::Causal::top_left});

#include <mpi.h>

#include <memory>

#include "keel/ring.h"

namespace keel::mpi {

// The processes of a communicator as ranks. Making one is collective: messages travel in a duplicate of `comm`, apart
// from all others. All calls come from one thread at a time, so MPI_THREAD_SINGLE is enough if no other thread of the
// program calls MPI. MPI must be initialised, and must not be finalised before the transport is destroyed.
class KEEL_API Transport final : public ring::Transport {
 public:
  explicit Transport(MPI_Comm comm);
  ~Transport() override;
  Transport(const Transport&) = delete;
  Transport& operator=(const Transport&) = delete;

  [[nodiscard]] int rank() const override;
  [[nodiscard]] int size() const override;
  Request isend(int to, int tag, const void* data, std::int64_t bytes) override;
  Request irecv(int from, int tag, void* data, std::int64_t bytes) override;
  void wait(Request request) override;
  void progress() override;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// ring::attention() and ring::attention_backward() over the processes of `comm`, whose transport is made at its first
// call and kept until the communicator is freed.
KEEL_API void attention(MPI_Comm comm, const ring::Sharding& sharding, const ring::Tensors& tensors,
                        const Options& options = {}, const Outputs& outputs = {});
KEEL_API void attention_backward(MPI_Comm comm, const ring::Sharding& sharding, const BackwardInputs& inputs,
                                 const Gradients& gradients, const Options& options = {});

// The transport that these two functions use.
KEEL_API ring::Transport& transport_of(MPI_Comm comm);

}  // namespace keel::mpi
