#include "cpu/merge.h"

#include <algorithm>

#include "runtime/parallel.h"
#include "runtime/workspace.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/merge.cc"
#include <hwy/foreach_target.h>  // must come first
#include <hwy/highway.h>

#include "cpu/merge-inl.h"

HWY_BEFORE_NAMESPACE();
namespace keel::cpu::HWY_NAMESPACE {
MergeKernel MergeKernelF32() { return MakeMergeKernel<float>(); }
MergeKernel MergeKernelF64() { return MakeMergeKernel<double>(); }
}  // namespace keel::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace keel::cpu {
HWY_EXPORT(MergeKernelF32);
HWY_EXPORT(MergeKernelF64);

MergeKernel merge_kernel(DType accumulation, std::int64_t target) {
  hwy::ChosenTarget chosen;
  chosen.Update(target);
  const auto index = chosen.GetIndex();
  return accumulation == DType::f64 ? HWY_DISPATCH_TABLE(MergeKernelF64)[index]()
                                    : HWY_DISPATCH_TABLE(MergeKernelF32)[index]();
}

void run_merge(const MergeCall& call, std::int64_t rows, const MergeTasks& tasks) {
  const MergeKernel kernel = merge_kernel(accumulation_dtype(call.out.dtype), tasks.target);
  const std::int64_t bytes = kernel.workspace_bytes(call), block = tasks.row_block;
  parallel_tasks(hwy::DivCeil(rows, block), tasks.threads, [&](std::int64_t i) {
    kernel.run(call, i * block, std::min((i + 1) * block, rows), thread_workspace(bytes));
  });
}
}  // namespace keel::cpu
#endif
