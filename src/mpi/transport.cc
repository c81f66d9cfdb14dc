#include <algorithm>
#include <chrono>
#include <map>
#include <string>
#include <thread>
#include <vector>

#include "core/message.h"
#include "keel/mpi.h"

namespace keel::mpi {
namespace {

constexpr std::chrono::microseconds kPatience{50'000}, kLook{200}, kPause{100};
constexpr std::int64_t kLongest = std::int64_t{1} << 30;  // bytes: MPI counts them with an int

void check(int code, const char* what) {
  if (code == MPI_SUCCESS) return;
  char text[MPI_MAX_ERROR_STRING] = "";
  int length = 0;
  MPI_Error_string(code, text, &length);
  throw Error(ErrorCode::peer, concat("[mpi] ", what, ": ", text));
}

void check_running() {
  int begun = 0, ended = 0;
  MPI_Initialized(&begun);
  if (begun == 0) throw Error(ErrorCode::invalid_argument, "[mpi] expected MPI_Init before the first call, got none");
  MPI_Finalized(&ended);
  if (ended != 0)
    throw Error(ErrorCode::invalid_argument, "[mpi] expected a call before MPI_Finalize, got one after it");
}

}  // namespace

struct Transport::State {
  MPI_Comm comm = MPI_COMM_NULL;
  int rank = 0, size = 1;
  Request last = 0;
  std::map<Request, std::vector<MPI_Request>> open;  // a long message travels in several
};

Transport::Transport(MPI_Comm comm) : state_(std::make_unique<State>()) {
  check_running();
  if (comm == MPI_COMM_NULL) throw Error(ErrorCode::invalid_argument, "[mpi] comm: expected one, got MPI_COMM_NULL");
  check(MPI_Comm_dup(comm, &state_->comm), "MPI_Comm_dup");
  MPI_Comm_set_errhandler(state_->comm, MPI_ERRORS_RETURN);
  check(MPI_Comm_rank(state_->comm, &state_->rank), "MPI_Comm_rank");
  check(MPI_Comm_size(state_->comm, &state_->size), "MPI_Comm_size");
}

// After a lost rank there may be transfers that never end: their communicator is left to MPI_Finalize.
Transport::~Transport() {
  int ended = 0;
  MPI_Finalized(&ended);
  if (ended == 0 && state_->open.empty()) MPI_Comm_free(&state_->comm);
}

int Transport::rank() const { return state_->rank; }
int Transport::size() const { return state_->size; }

Transport::Request Transport::isend(int to, int tag, const void* data, std::int64_t bytes) {
  std::vector<MPI_Request> requests;
  for (std::int64_t at = 0; at < bytes; at += kLongest) {
    requests.push_back(MPI_REQUEST_NULL);
    check(MPI_Isend(static_cast<const std::byte*>(data) + at, static_cast<int>(std::min(kLongest, bytes - at)),
                    MPI_BYTE, to, tag, state_->comm, &requests.back()),
          "MPI_Isend");
  }
  state_->open.emplace(++state_->last, std::move(requests));
  return state_->last;
}

Transport::Request Transport::irecv(int from, int tag, void* data, std::int64_t bytes) {
  std::vector<MPI_Request> requests;
  for (std::int64_t at = 0; at < bytes; at += kLongest) {
    requests.push_back(MPI_REQUEST_NULL);
    check(MPI_Irecv(static_cast<std::byte*>(data) + at, static_cast<int>(std::min(kLongest, bytes - at)), MPI_BYTE,
                    from, tag, state_->comm, &requests.back()),
          "MPI_Irecv");
  }
  state_->open.emplace(++state_->last, std::move(requests));
  return state_->last;
}

// MPI's own waits keep a core busy for as long as they last. These do so for a while, since a transfer may advance only
// when it is looked at; then they look often, and pause in between.
void Transport::wait(Request request) {
  const auto found = state_->open.find(request);
  std::vector<MPI_Request>& requests = found->second;
  const auto start = std::chrono::steady_clock::now();
  auto paused = start;
  for (int done = 0;;) {
    check(MPI_Testall(static_cast<int>(requests.size()), requests.data(), &done, MPI_STATUSES_IGNORE), "MPI_Testall");
    if (done != 0) break;
    const auto now = std::chrono::steady_clock::now();
    if (now - start < kPatience || now - paused < kLook) {
      std::this_thread::yield();
    } else {
      std::this_thread::sleep_for(kPause);
      paused = std::chrono::steady_clock::now();
    }
  }
  state_->open.erase(found);
}

void Transport::progress() {
  int found = 0;
  MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, state_->comm, &found, MPI_STATUS_IGNORE);
}

namespace {

int free_transport(MPI_Comm, int, void* transport, void*) {
  delete static_cast<Transport*>(transport);
  return MPI_SUCCESS;
}

}  // namespace

ring::Transport& transport_of(MPI_Comm comm) {
  check_running();
  static const int key = [] {
    int made = MPI_KEYVAL_INVALID;
    check(MPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, free_transport, &made, nullptr), "MPI_Comm_create_keyval");
    return made;
  }();
  void* found = nullptr;
  int exists = 0;
  check(MPI_Comm_get_attr(comm, key, &found, &exists), "MPI_Comm_get_attr");
  if (exists != 0) return *static_cast<Transport*>(found);
  auto made = std::make_unique<Transport>(comm);
  check(MPI_Comm_set_attr(comm, key, made.get()), "MPI_Comm_set_attr");
  return *made.release();
}

void attention(MPI_Comm comm, const ring::Sharding& sharding, const ring::Tensors& tensors, const Options& options,
               const Outputs& outputs) {
  ring::attention(transport_of(comm), sharding, tensors, options, outputs);
}

void attention_backward(MPI_Comm comm, const ring::Sharding& sharding, const BackwardInputs& inputs,
                        const Gradients& gradients, const Options& options) {
  ring::attention_backward(transport_of(comm), sharding, inputs, gradients, options);
}

}  // namespace keel::mpi
