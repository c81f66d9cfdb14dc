// Every rank has all queries and computes over its own keys; results travel to all ranks, which join them in the order
// of ranks, so that all get the same bits.
#include "ring/forward.h"

namespace keel::ring {
namespace {

class Decode final : public ForwardWay {
 public:
  explicit Decode(const ForwardCall& call)
      : call_(call), sums_(call, false), rows_(with_callers(sums_.total(), call.tensors.out, call.outputs)) {
    if (call.outputs.weights.given()) {
      throw Error(ErrorCode::unsupported, "[ring] weights: expected none in decode mode, got some");
    }
    rows_.out = call.tensors.out;
    // The caller's arrays get the result; where there are none, it takes the place of this rank's part.
    for (int rank = 0; rank < call.link.size(); ++rank) {
      in_.emplace_back(sums_.memory().bytes());
      out_.emplace_back(sums_.memory().bytes());
    }
  }

  void run() override {
    Link& link = call_.link;
    const int rank = link.rank(), size = link.size();
    const std::int64_t bytes = sums_.memory().bytes();
    link.attempt([&] {
      sums_.add(own_block(call_.keys(), call_.tensors.k, call_.tensors.v));
      sums_.complete();
    });
    for (int step = 1; step < size; ++step) {
      const auto from = static_cast<std::size_t>((rank + size - step) % size);
      const auto to = static_cast<std::size_t>((rank + step) % size);
      link.receive(static_cast<int>(from), kBlocks, in_[from], bytes);
      std::copy_n(sums_.memory().data(), bytes, out_[to].data());
      link.send(static_cast<int>(to), kBlocks, out_[to], bytes);
    }
    for (Message& message : in_) link.wait(message);
    for (Message& message : out_) link.wait(message);
    link.attempt([&] {
      std::vector<Partial> parts;
      parts.reserve(static_cast<std::size_t>(size));
      for (int each = 0; each < size; ++each) {
        parts.push_back(
            (each == rank ? sums_.total() : sums_.memory().at(in_[static_cast<std::size_t>(each)].data())).partial());
      }
      join(parts, rows_, call_.tensors.out, call_.options.sinks, call_.options.threads);
    });
  }
  const RowResults& rows() const override { return rows_; }

 private:
  const ForwardCall& call_;
  RowSums sums_;
  RowResults rows_;
  std::vector<Message> in_, out_;
};

}  // namespace

std::unique_ptr<ForwardWay> make_decode(const ForwardCall& call) { return std::make_unique<Decode>(call); }

}  // namespace keel::ring
