// Ranks that are threads of one process.
#include <condition_variable>
#include <cstring>
#include <deque>
#include <exception>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <tuple>
#include <utility>
#include <vector>

#include "core/message.h"
#include "keel/ring.h"

namespace keel::ring {
namespace {

// A send and a receive meet here; whoever comes second copies.
class World {
 public:
  explicit World(int size) : size_(size), ended_(static_cast<std::size_t>(size)) {}
  int size() const { return size_; }

  struct Transfer {
    const void* from = nullptr;
    void* to = nullptr;
    std::int64_t bytes = 0;
    bool begun = false, done = false;
  };

  // One side of a transfer: the sender's has a source, the receiver's a target.
  std::shared_ptr<Transfer> begin(int from, int to, int tag, const void* source, void* target, std::int64_t bytes) {
    std::unique_lock lock(mutex_);
    auto& waiting = waiting_[{from, to, tag}];
    const bool sends = source != nullptr;
    if (waiting.empty() || (waiting.front()->from != nullptr) == sends) {
      waiting.push_back(std::make_shared<Transfer>(Transfer{source, target, bytes}));
      return waiting.back();
    }
    std::shared_ptr<Transfer> transfer = waiting.front();
    waiting.pop_front();
    if (transfer->bytes != bytes) {
      throw Error(ErrorCode::invalid_argument, concat("[threads] expected a message of ", transfer->bytes,
                                                      " bytes from rank ", from, " to ", to, ", got ", bytes));
    }
    transfer->begun = true;
    lock.unlock();
    std::memcpy(sends ? transfer->to : target, sends ? source : transfer->from, static_cast<std::size_t>(bytes));
    lock.lock();
    transfer->done = true;
    changed_.notify_all();
    return transfer;
  }

  void wait(const Transfer& transfer, int peer) {
    std::unique_lock lock(mutex_);
    const auto& ended = ended_[static_cast<std::size_t>(peer)];
    changed_.wait(lock, [&] { return transfer.done || (!transfer.begun && !ended.empty()); });
    if (!transfer.done) throw Error(ErrorCode::peer, concat("it has ended: ", ended));
  }

  // Its transfers that have not begun never will.
  void end(int rank, const std::string& reason) {
    const std::lock_guard lock(mutex_);
    ended_[static_cast<std::size_t>(rank)] = reason;
    for (auto& [key, waiting] : waiting_) {
      const auto& [from, to, tag] = key;
      if (from == rank || to == rank) waiting.clear();
    }
    changed_.notify_all();
  }

 private:
  const int size_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<std::tuple<int, int, int>, std::deque<std::shared_ptr<Transfer>>> waiting_;
  std::vector<std::string> ended_;  // why a rank has ended, or empty
};

class ThreadTransport final : public Transport {
 public:
  ThreadTransport(World& world, int rank) : world_(world), rank_(rank) {}
  int rank() const override { return rank_; }
  int size() const override { return world_.size(); }

  Request isend(int to, int tag, const void* data, std::int64_t bytes) override {
    return keep(world_.begin(rank_, to, tag, data, nullptr, bytes), to);
  }
  Request irecv(int from, int tag, void* data, std::int64_t bytes) override {
    return keep(world_.begin(from, rank_, tag, nullptr, data, bytes), from);
  }
  void wait(Request request) override {
    const auto found = transfers_.find(request);
    const auto [transfer, peer] = found->second;
    transfers_.erase(found);
    world_.wait(*transfer, peer);
  }

 private:
  Request keep(std::shared_ptr<World::Transfer> transfer, int peer) {
    transfers_.emplace(++last_, std::pair{std::move(transfer), peer});
    return last_;
  }

  World& world_;
  const int rank_;
  Request last_ = 0;
  std::map<Request, std::pair<std::shared_ptr<World::Transfer>, int>> transfers_;
};

}  // namespace

void run_threads(int size, const std::function<void(Transport&)>& work) {
  if (size < 1) throw Error(ErrorCode::invalid_argument, concat("[threads] size: expected at least 1, got ", size));
  World world(size);
  std::vector<std::exception_ptr> raised(static_cast<std::size_t>(size));
  const auto run = [&](int rank) {
    ThreadTransport transport(world, rank);
    try {
      work(transport);
      world.end(rank, "its work is done");
    } catch (const std::exception& error) {
      raised[static_cast<std::size_t>(rank)] = std::current_exception();
      world.end(rank, error.what());
    } catch (...) {
      raised[static_cast<std::size_t>(rank)] = std::current_exception();
      world.end(rank, "an exception of an unknown kind");
    }
  };
  std::vector<std::thread> threads;
  threads.reserve(static_cast<std::size_t>(size));
  for (int rank = 0; rank < size; ++rank) threads.emplace_back(run, rank);
  for (std::thread& thread : threads) thread.join();
  for (const std::exception_ptr& each : raised) {
    if (each) std::rethrow_exception(each);
  }
}

}  // namespace keel::ring
