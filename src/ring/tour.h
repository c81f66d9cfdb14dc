#pragma once

#include <functional>
#include <optional>
#include <vector>

#include "ring/copy.h"
#include "ring/link.h"

namespace keel::ring {

// Every rank's block of keys visits the ranks that need some of it, directly from its owner: at step s rank r computes
// with what it needs of rank r − s. Meanwhile the block of step s + 1 is under way. A block that is
// needed from its front is offered a few steps before its time, so that ranks need not keep in step. Something may
// travel back to the owner: gradients, say.
//
// Bytes per rank: what it needs of others, received; the same of its own block, sent; at most (P − 1)/P of all k and v,
// about half of that under a causal mask, and the width of a window. Memory: two blocks in, one out.
class Tour {
 public:
  // Allocates; `returned` is what travels back per key, if anything does.
  Tour(Link& link, const Geometry& geometry, const BlockShape& sent, std::optional<BlockShape> returned, int threads);

  // With the stretches `block.rows` of rank `owner`; what is to travel back goes to `returned`.
  using Compute = std::function<void(int owner, const Block& block, void* returned)>;
  // What came back for `rows` of this rank's block, in the order of steps.
  using Receive = std::function<void(const Needs& rows, const void* returned)>;

  void run(const Block& own, const Compute& compute, const Receive& receive = {});

 private:
  struct Step {
    int from, to;
    Needs in, out;  // of the block of `from` for this rank, of this rank's for `to`
  };
  Step step(int s) const;
  bool from_front(const Needs& rows) const;
  void offer(int s);
  void begin(int s, const Block& own);
  void take_back(int s, const Receive& receive);

  Link& link_;
  const Geometry& geometry_;
  BlockShape sent_;
  std::optional<BlockShape> returned_;
  int threads_;
  Message whole_;                           // this rank's block, which goes to whoever needs it from its front
  Message failure_;                         // what goes there instead once this rank has failed
  std::vector<Message> lent_;               // that block, one per step
  int offered_ = 0;                         // steps whose block is on offer
  std::array<Message, 2> in_, out_, back_;  // of every second step
  std::array<Message, 3> home_;             // of every third: what is on its way back has a step's time for it
};

}  // namespace keel::ring
