#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "core/problem.h"
#include "ring/link.h"
#include "ring/local.h"
#include "ring/portions.h"
#include "ring/rows.h"
#include "ring/tour.h"
#include "ring/weights.h"

namespace keel::ring {

// What the three ways of a forward call know. The views are the caller's.
struct ForwardCall {
  Link& link;
  Geometry geometry;
  const Tensors& tensors;
  const Options& options;
  const Outputs& outputs;
  const Problem& problem;  // this rank's part, checked

  Shard queries() const { return geometry.queries(link.rank()); }
  Shard keys() const { return geometry.keys(link.rank()); }
  BlockShape block_shape() const { return {problem.batch, problem.kv_heads, problem.d_k, problem.d_v, problem.dtype}; }
};

// A way of computing: made before the ranks agree, so that a lack of memory shows then, and run after that.
class ForwardWay {
 public:
  virtual ~ForwardWay() = default;
  virtual void run() = 0;
  virtual const RowResults& rows() const = 0;  // with all that heads and key sums start from
};
std::unique_ptr<ForwardWay> make_ordered(const ForwardCall& call);
std::unique_ptr<ForwardWay> make_decode(const ForwardCall& call);

// Results of this rank's queries over one block of keys after the other, joined as they come. Sinks are not among them.
class RowSums {
 public:
  // Of many blocks: in the caller's arrays, if those can hold sums. Of one block: in memory of its own.
  RowSums(const ForwardCall& call, bool many_blocks);

  void begin() const { weights_.begin(); }
  void add(const Block& block);
  void complete();  // rows that have met no key are fully masked

  const RowResults& total() const { return total_; }
  const RowMemory& memory() const { return own_; }
  const Weights& weights() const { return weights_; }

 private:
  void add(std::size_t part, const Block& block, std::size_t stretch);
  void attend(const Portions& portions, std::int64_t at, const Queries& queries, const Rows& keys, const TensorView& k,
              const TensorView& v, const RowResults& to) const;

  const ForwardCall& call_;
  Portions portions_;
  RowMemory own_, next_;  // of all, and of a portion
  RowResults total_;
  Weights weights_;
  std::array<Queries, 2> queries_;
  std::array<bool, 2> begun_{};
};

// Σ_i p_ij for this rank's keys, once lse of all rows is known: p is what the backward pass would multiply by to get
// the gradient of v, so that with a v of one column and a gradient of 1 the sums are its results.
class KeySumsPass {
 public:
  explicit KeySumsPass(const ForwardCall& call);
  void run(const RowResults& rows);

 private:
  // Rows that count, of entries [begin, end).
  struct Counted {
    std::int64_t begin, end;
    Queries queries;
  };
  void find_rows();
  void compute(const Block& block, void* sums) const;
  void compute(const Counted& rows, const Rows& keys, const TensorView& k, const MutableTensorView& to) const;
  void add(const Needs& rows, const void* sums) const;

  const ForwardCall& call_;
  BlockShape sent_, returned_;
  std::optional<Tour> tour_;  // where queries are divided among ranks
  std::vector<Counted> counted_;
  RowView lse_;
  double one_ = 0.0;  // 1 in the dtype of sums
  std::vector<std::byte> own_;
};

}  // namespace keel::ring
