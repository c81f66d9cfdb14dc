// Valid calls against the oracle.
#include <hwy/targets.h>

#include "conformance/merge.h"
#include "conformance/random.h"
#include "conformance/slices.h"
#include "core/message.h"
#include "cpu/forced.h"
#include "fuzz/faults.h"
#include "runtime/machine.h"

namespace keel::fuzz {
namespace {

using conformance::Generator;
using conformance::Placement;

// The planner's tiles, or small ones, which cross every boundary.
Forced random_plan(Generator& random) {
  constexpr Tiles tiles[] = {{}, {}, {12, 64, 128}, {24, 64, 64}};
  Forced forced = {.tiles = random.pick(tiles), .share_small = random.chance(0.3)};
  if (random.chance(0.5)) forced.split_keys = random.chance(0.5);
  return forced;
}

std::string text_of(const Forced& forced) {
  return concat(hwy::TargetName(forced.target), ", tiles ", forced.tiles.row_block, " × ", forced.tiles.key_block,
                " × ", forced.tiles.key_chunk,
                !forced.split_keys   ? ""
                : *forced.split_keys ? ", keys split"
                                     : ", keys not split",
                forced.share_small ? ", shared among threads" : "");
}

}  // namespace

std::string problem_fault(Generator& random) {
  constexpr std::int64_t works[] = {500, 5'000, 30'000};
  constexpr Placement placements[] = {Placement::aligned, Placement::shifted, Placement::before_page,
                                      Placement::after_page};
  const std::int64_t work = random.pick(works);
  const Placement placement = random.pick(placements);
  Forced forced = random_plan(random);
  const bool in_slices = random.chance(0.3);
  const std::uint64_t cuts = random.next();
  const conformance::Instance instance(conformance::random_case(random, work), placement);
  const bool sliced = in_slices && conformance::lse_tells_weights(instance.description());  // what merges them
  for (const std::int64_t target : machine().target_bits) {
    forced.target = target;
    conformance::Forward forward = forced_forward(forced);
    conformance::Backward backward = forced_backward(forced);
    if (sliced) {
      forward = conformance::sliced_attention(cuts, forward, forced_merge(forced));
      backward = conformance::sliced_backward(cuts, backward);
    }
    const std::string text = forward_mismatch(instance, forward) + backward_mismatch(instance, backward);
    if (text.empty()) continue;
    return concat(describe(instance.description()), "\non ", text_of(forced),
                  sliced ? concat(", in slices cut by seed ", cuts) : "", "\n", text);
  }
  return {};
}

std::string merge_fault(Generator& random) {
  Forced forced = {.share_small = random.chance(0.3)};
  if (random.chance(0.3)) forced.tiles.row_block = random.integer(1, 40);
  const conformance::ExpectedMerge expected =
      conformance::compute_expected(conformance::MergeInstance(random).problem());
  for (const std::int64_t target : machine().target_bits) {
    forced.target = target;
    const conformance::MergeInstance instance(random);  // anew, as results may replace parts
    const MergeProblem problem = instance.problem();
    run_forced(problem, forced);
    const std::string text = merge_mismatch(problem, expected) + instance.outside_writes();
    if (text.empty()) continue;
    return concat("merge of ", problem.parts.size(), " parts of shape ", keel::text_of(problem.out.shape), " into ",
                  name_of(problem.out.dtype), "\non ", text_of(forced), "\n", text);
  }
  return {};
}

}  // namespace keel::fuzz
