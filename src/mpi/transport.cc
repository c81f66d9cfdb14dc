#include <algorithm>
#include <chrono>
#include <map>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "core/message.h"
#include "keel/mpi.h"
#include "mpi/neighbours.h"

namespace keel::mpi {
namespace {

constexpr std::chrono::microseconds kPatience{50'000}, kLook{200}, kPause{100};
constexpr std::int64_t kLongest = std::int64_t{1} << 30;  // bytes: MPI counts them with an int
constexpr int kTags = 32768;                              // as many as every MPI has

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
  // Where a message is in the sender's memory, and the tag under which the sender learns that it has been read.
  struct Note {
    std::uint64_t address = 0;
    std::int64_t bytes = 0;
    int answer = 0;
  };
  struct Transfer {
    std::vector<MPI_Request> requests;  // a long message travels in several
    int peer = 0;
    Note note;
    void* target = nullptr;    // of what is to be read once the note is there
    std::int64_t bytes = 0;    // to be received in all,
    std::int64_t arrives = 0;  // and by `requests`: less where the rest is read
    std::string failure;
  };

  MPI_Comm comm = MPI_COMM_NULL, answers = MPI_COMM_NULL;
  int rank = 0, size = 1;
  Neighbours neighbours;
  Request last = 0;
  std::map<Request, Transfer> open;

  Transfer& begin(int peer) {
    Transfer& transfer = open[++last];
    transfer.peer = peer;
    return transfer;
  }
  static std::string other_length(const Transfer& t, std::int64_t got) {
    return concat("[mpi] expected a message of ", t.bytes, " bytes from rank ", t.peer, ", got ", got);
  }
  bool advance(Transfer& transfer) const;
  bool test(Transfer& transfer) const;
  void read_messages();
};

// Returns whether the transfer is complete or has failed. Its own wait() raises that, as another's may find it.
bool Transport::State::advance(Transfer& t) const {
  try {
    return !t.failure.empty() || test(t);
  } catch (const Error& error) {
    t.failure = error.what();
    return true;
  }
}

bool Transport::State::test(Transfer& t) const {
  std::vector<MPI_Status> statuses(t.requests.size());
  int done = 0;
  int code = MPI_Testall(static_cast<int>(t.requests.size()), t.requests.data(), &done, statuses.data());
  for (const MPI_Status& status : statuses) {
    if (code == MPI_ERR_IN_STATUS && status.MPI_ERROR != MPI_SUCCESS) code = status.MPI_ERROR;
  }
  check(code, "MPI_Testall");
  if (done == 0) return false;
  if (const std::int64_t expected = std::exchange(t.arrives, 0); expected > 0) {
    std::int64_t got = 0;
    for (const MPI_Status& status : statuses) {
      int bytes = 0;
      check(MPI_Get_count(&status, MPI_BYTE, &bytes), "MPI_Get_count");
      got += bytes;
    }
    if (got != expected) throw Error(ErrorCode::peer, other_length(t, got));
  }
  if (t.target == nullptr) return true;
  void* const target = std::exchange(t.target, nullptr);  // once, whatever happens
  const std::string failure = t.note.bytes == t.bytes ? neighbours.read(t.peer, t.note.address, target, t.bytes)
                                                      : other_length(t, t.note.bytes);
  t.requests = {MPI_REQUEST_NULL};
  check(MPI_Isend(nullptr, 0, MPI_BYTE, t.peer, t.note.answer, answers, t.requests.data()), "MPI_Isend");
  if (!failure.empty()) throw Error(ErrorCode::peer, failure);  // the sender need not wait for it
  return test(t);
}

// All that can be read by now: two ranks may each wait for what the other is to read.
void Transport::State::read_messages() {
  for (auto& [request, transfer] : open) {
    if (transfer.target != nullptr) advance(transfer);
  }
}

Transport::Transport(MPI_Comm comm) {
  check_running();
  if (comm == MPI_COMM_NULL) throw Error(ErrorCode::invalid_argument, "[mpi] comm: expected one, got MPI_COMM_NULL");
  state_ = std::make_unique<State>();
  for (MPI_Comm* own : {&state_->comm, &state_->answers}) {
    check(MPI_Comm_dup(comm, own), "MPI_Comm_dup");
    MPI_Comm_set_errhandler(*own, MPI_ERRORS_RETURN);
  }
  check(MPI_Comm_rank(state_->comm, &state_->rank), "MPI_Comm_rank");
  check(MPI_Comm_size(state_->comm, &state_->size), "MPI_Comm_size");
  state_->neighbours = Neighbours(state_->comm);
}

// After a lost rank there may be transfers that never end: their communicator is left to MPI_Finalize.
Transport::~Transport() {
  int ended = 0;
  MPI_Finalized(&ended);
  if (ended != 0 || !state_->open.empty()) return;
  MPI_Comm_free(&state_->comm);
  MPI_Comm_free(&state_->answers);
}

int Transport::rank() const { return state_->rank; }
int Transport::size() const { return state_->size; }

Transport::Request Transport::isend(int to, int tag, const void* data, std::int64_t bytes) {
  State::Transfer& transfer = state_->begin(to);
  std::vector<MPI_Request>& requests = transfer.requests;
  if (state_->neighbours.is_read_by(to, bytes)) {
    requests.assign(2, MPI_REQUEST_NULL);
    State::Note& note = transfer.note;
    note = {reinterpret_cast<std::uint64_t>(data), bytes, static_cast<int>(state_->last % kTags)};
    check(MPI_Irecv(nullptr, 0, MPI_BYTE, to, note.answer, state_->answers, &requests[0]), "MPI_Irecv");
    check(MPI_Isend(&note, sizeof(note), MPI_BYTE, to, tag, state_->comm, &requests[1]), "MPI_Isend");
    return state_->last;
  }
  for (std::int64_t at = 0; at < bytes; at += kLongest) {
    requests.push_back(MPI_REQUEST_NULL);
    check(MPI_Isend(static_cast<const std::byte*>(data) + at, static_cast<int>(std::min(kLongest, bytes - at)),
                    MPI_BYTE, to, tag, state_->comm, &requests.back()),
          "MPI_Isend");
  }
  return state_->last;
}

Transport::Request Transport::irecv(int from, int tag, void* data, std::int64_t bytes) {
  State::Transfer& transfer = state_->begin(from);
  std::vector<MPI_Request>& requests = transfer.requests;
  transfer.bytes = transfer.arrives = bytes;
  if (state_->neighbours.reads(from, bytes)) {
    transfer.target = data;
    transfer.arrives = sizeof(transfer.note);
    requests.push_back(MPI_REQUEST_NULL);
    check(MPI_Irecv(&transfer.note, sizeof(transfer.note), MPI_BYTE, from, tag, state_->comm, &requests[0]),
          "MPI_Irecv");
    return state_->last;
  }
  for (std::int64_t at = 0; at < bytes; at += kLongest) {
    requests.push_back(MPI_REQUEST_NULL);
    check(MPI_Irecv(static_cast<std::byte*>(data) + at, static_cast<int>(std::min(kLongest, bytes - at)), MPI_BYTE,
                    from, tag, state_->comm, &requests.back()),
          "MPI_Irecv");
  }
  return state_->last;
}

// MPI's own waits keep a core busy for as long as they last. These do so for a while, since a transfer may advance only
// when it is looked at; then they look often, and pause in between.
void Transport::wait(Request request) {
  const auto found = state_->open.find(request);
  const auto start = std::chrono::steady_clock::now();
  auto paused = start;
  while (!state_->advance(found->second)) {
    state_->read_messages();
    const auto now = std::chrono::steady_clock::now();
    if (now - start < kPatience || now - paused < kLook) {
      std::this_thread::yield();
    } else {
      std::this_thread::sleep_for(kPause);
      paused = std::chrono::steady_clock::now();
    }
  }
  const std::string& failure = found->second.failure;
  if (!failure.empty()) throw Error(ErrorCode::peer, failure);  // and stays open: MPI may still use its memory
  state_->open.erase(found);
}

// A probe that finds a message ends without advancing any transfer (Open MPI): probe for one that is never sent.
void Transport::progress() {
  int found = 0;
  MPI_Iprobe(state_->rank, 0, state_->answers, &found, MPI_STATUS_IGNORE);
  state_->read_messages();
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
