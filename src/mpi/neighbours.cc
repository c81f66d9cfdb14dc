#include "mpi/neighbours.h"

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <random>

#include "core/message.h"
#include "keel/error.h"

#ifdef __linux__
#include <sys/uio.h>
#include <unistd.h>
#endif

namespace keel::mpi {
namespace {

#ifdef __linux__
std::int64_t own_id() { return getpid(); }

iovec part(const void* address, std::int64_t bytes) {
  return {const_cast<void*>(address), static_cast<std::size_t>(bytes)};
}
const void* pointer(std::uint64_t address) {
  return reinterpret_cast<const void*>(address);  // NOLINT(performance-no-int-to-ptr): of another process
}

// Reads the number at `number_at` and `bytes` from `address` on. Returns how many of these came, or −1.
std::int64_t read_some(std::int64_t id, std::uint64_t number_at, std::uint64_t& number, std::uint64_t address, void* to,
                       std::int64_t bytes) {
  const iovec here[] = {part(&number, sizeof(number)), part(to, bytes)};
  const iovec there[] = {part(pointer(number_at), sizeof(number)), part(pointer(address), bytes)};
  const std::int64_t came = process_vm_readv(static_cast<pid_t>(id), here, 2, there, 2, 0);
  return came < static_cast<std::int64_t>(sizeof(number)) ? -1 : came - static_cast<std::int64_t>(sizeof(number));
}
#else
std::int64_t own_id() { return 0; }
std::int64_t read_some(std::int64_t, std::uint64_t, std::uint64_t&, std::uint64_t, void*, std::int64_t) { return -1; }
#endif

// From so many bytes on; 0 for never, −1 for a setting that is no number.
std::int64_t read_from() {
  constexpr std::int64_t kUsual = 16 << 10;
  const char* const setting = std::getenv("KEEL_MPI_READ");
  if (setting == nullptr || *setting == '\0') return kUsual;
  char* end = nullptr;
  const std::int64_t bytes = std::strtoll(setting, &end, 10);
  return *end == '\0' && bytes >= 0 ? bytes : -1;
}

void check(int code, const char* what) {
  if (code != MPI_SUCCESS) throw Error(ErrorCode::peer, concat("[mpi] ", what, ": expected success, got code ", code));
}

}  // namespace

// Each rank reads a number of every other one. A process that has the same identifier on another machine, or in another
// container, does not hold that number at that address.
Neighbours::Neighbours(MPI_Comm comm) {
  struct Card {
    std::int64_t id, from;
    std::uint64_t address, number;
  };
  int rank = 0, size = 1;
  check(MPI_Comm_rank(comm, &rank), "MPI_Comm_rank");
  check(MPI_Comm_size(comm, &size), "MPI_Comm_size");
  std::random_device random;
  number_ = std::make_unique<const std::uint64_t>((std::uint64_t{random()} << 32) + random());
  const Card mine = {own_id(), read_from(), reinterpret_cast<std::uint64_t>(number_.get()), *number_};
  std::vector<Card> all(static_cast<std::size_t>(size));
  check(MPI_Allgather(&mine, sizeof(mine), MPI_BYTE, all.data(), sizeof(mine), MPI_BYTE, comm), "MPI_Allgather");
  for (std::size_t i = 0; i < all.size(); ++i) {
    if (all[i].from >= 0) continue;
    throw Error(ErrorCode::invalid_argument,
                concat("[mpi] KEEL_MPI_READ: expected a number of bytes, got something else on rank ", i));
  }
  them_.resize(all.size());
  std::vector<std::int64_t> reads(all.size(), kNever), is_read(all.size());
  for (std::size_t i = 0; i < all.size(); ++i) {
    std::uint64_t seen = 0;
    if (mine.from == 0 || all[i].from == 0 || static_cast<int>(i) == rank) continue;
    if (read_some(all[i].id, all[i].address, seen, 0, nullptr, 0) != 0 || seen != all[i].number) continue;
    reads[i] = std::max(mine.from, all[i].from);
  }
  check(MPI_Alltoall(reads.data(), sizeof(reads[0]), MPI_BYTE, is_read.data(), sizeof(reads[0]), MPI_BYTE, comm),
        "MPI_Alltoall");
  for (std::size_t i = 0; i < all.size(); ++i) {
    them_[i] = {all[i].id, reads[i], is_read[i], all[i].address, all[i].number};
  }
}

std::string Neighbours::read(int rank, std::uint64_t address, void* to, std::int64_t bytes) const {
  const Rank& it = them_[static_cast<std::size_t>(rank)];
  for (std::int64_t done = 0; done < bytes;) {
    std::uint64_t number = 0;
    const std::int64_t some = read_some(it.id, it.address, number, address + static_cast<std::uint64_t>(done),
                                        static_cast<std::byte*>(to) + done, bytes - done);
    const char* const reason = some < 0              ? std::strerror(errno)
                               : number != it.number ? "another process is in its place"
                               : some == 0           ? "no more"
                                                     : nullptr;
    if (reason != nullptr) {
      return concat("[mpi] expected ", bytes, " bytes from the memory of rank ", rank, ", got ", done, ": ", reason);
    }
    done += some;
  }
  return {};
}

}  // namespace keel::mpi
