#pragma once

#include <mpi.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace keel::mpi {

// The ranks on this machine, as far as the kernel lets one process read another's memory. What they send needs no help
// from the sender then, which computes meanwhile, and is copied once.
class Neighbours {
 public:
  Neighbours() = default;
  // Collective. Messages of at least KEEL_MPI_READ bytes are read; 0 for none.
  explicit Neighbours(MPI_Comm comm);

  // Whether this rank reads a message of `rank`, and whether `rank` reads one of this rank.
  bool reads(int rank, std::int64_t bytes) const { return bytes >= them_[static_cast<std::size_t>(rank)].reads; }
  bool is_read_by(int rank, std::int64_t bytes) const { return bytes >= them_[static_cast<std::size_t>(rank)].is_read; }
  // Returns what went wrong, or nothing.
  std::string read(int rank, std::uint64_t address, void* to, std::int64_t bytes) const;

 private:
  static constexpr std::int64_t kNever = INT64_MAX;
  struct Rank {
    std::int64_t id = 0, reads = kNever, is_read = kNever;  // its process; from how many bytes on
    std::uint64_t address = 0, number = 0;                  // of its number, which tells it from a later process
  };
  std::unique_ptr<const std::uint64_t> number_;
  std::vector<Rank> them_;
};

}  // namespace keel::mpi
