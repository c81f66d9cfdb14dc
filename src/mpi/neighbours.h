#pragma once

#include <mpi.h>

#include <cstdint>
#include <vector>

namespace keel::mpi {

// The ranks on this machine, as far as the kernel lets one process read another's memory. What they send needs no help
// from the sender then, which computes meanwhile, and is copied once.
class Neighbours {
 public:
  // Collective. KEEL_MPI_READ is the length in bytes from which on messages are read, or 0 for never.
  explicit Neighbours(MPI_Comm comm);

  // Whether this rank reads a message of `rank`, and whether `rank` reads one of this rank.
  bool reads(int rank, std::int64_t bytes) const { return bytes >= them_[static_cast<std::size_t>(rank)].reads; }
  bool is_read_by(int rank, std::int64_t bytes) const { return bytes >= them_[static_cast<std::size_t>(rank)].is_read; }
  void read(int rank, std::uint64_t address, void* to, std::int64_t bytes) const;

 private:
  static constexpr std::int64_t kNever = INT64_MAX;
  struct Rank {
    std::int64_t id = 0, reads = kNever, is_read = kNever;  // its process; from how many bytes on
  };
  std::vector<Rank> them_;
};

}  // namespace keel::mpi
