// keel-mpi: what keel becomes under mpirun, one process per rank.
#include <mpi.h>

#include <chrono>
#include <cstdio>
#include <functional>
#include <thread>

#include "cli/bench_ring.h"
#include "cli/common/program.h"
#include "cli/mpi/attend.h"
#include "keel/mpi.h"

namespace keel::cli {
namespace {

// The first `size` processes as ranks; the others wait.
class MpiWorld {
 public:
  MpiWorld() {
    MPI_Comm_rank(MPI_COMM_WORLD, &rank_);
    MPI_Comm_size(MPI_COMM_WORLD, &size_);
  }
  bench::World world() {
    return {size_, rank_ == 0, [this](int size, const auto& work) { run(size, work); }};
  }

 private:
  void run(int size, const std::function<void(ring::Transport&)>& work) {
    MPI_Comm some = MPI_COMM_NULL;
    MPI_Comm_split(MPI_COMM_WORLD, rank_ < size ? 0 : MPI_UNDEFINED, rank_, &some);
    if (some != MPI_COMM_NULL) {
      {
        mpi::Transport transport(some);
        work(transport);
      }
      MPI_Comm_free(&some);
    }
    // Waiting must leave the processors to those who are measured.
    MPI_Request all = MPI_REQUEST_NULL;
    MPI_Ibarrier(MPI_COMM_WORLD, &all);
    for (int done = 0; done == 0; MPI_Test(&all, &done, MPI_STATUS_IGNORE)) {
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
    }
  }

  int rank_ = 0, size_ = 1;
};

}  // namespace
}  // namespace keel::cli

int main(int argc, char** argv) {
  using namespace keel::cli;
  MPI_Init(&argc, &argv);
  MpiWorld ranks;
  const keel::bench::World world = ranks.world();
  const int status = run_program([&] {
    CLI::App app("Scaled dot-product attention over many processes.", "keel");
    prepare(app);
    app.require_subcommand(1);
    add_mpi_attend(app);
    CLI::App* bench = app.add_subcommand("bench", "Speed on these machines");
    bench->require_subcommand(1);
    add_bench_ring(*bench, world);
    parse(app, argc, argv);
  });
  // A rank that failed alone must not leave the others waiting; when all failed, they end alike.
  if (status != kOk) {
    std::fflush(nullptr);
    MPI_Abort(MPI_COMM_WORLD, status);
  }
  MPI_Finalize();
  return status;
}
