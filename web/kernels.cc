// The kernels for f32, compiled once: there is one SIMD target to choose from.
#include <hwy/highway.h>

#include "cpu/backward-inl.h"
#include "cpu/forward-inl.h"
#include "cpu/merge.h"
#include "cpu/tangent.h"
#include "cpu/unit.h"
#include "keel/error.h"

namespace keel::cpu {
namespace {

using Products = HWY_NAMESPACE::FmaProducts<float>;

// Highway 1.0.3 has no vectors of double on this target.
[[noreturn]] void left_out(const char* what) {
  throw Error(ErrorCode::unsupported,
              std::string("[playground] expected a forward or backward call in f32, got ") + what);
}

}  // namespace

ForwardKernel forward_kernel_f32(std::int64_t) { return HWY_NAMESPACE::MakeForwardKernel<Products>(); }
BackwardKernel backward_kernel_f32(std::int64_t) { return HWY_NAMESPACE::MakeBackwardKernel<Products>(); }
ForwardKernel forward_kernel_f64(std::int64_t) { left_out("f64"); }
BackwardKernel backward_kernel_f64(std::int64_t) { left_out("f64"); }
TangentKernel tangent_kernel_f32(std::int64_t) { left_out("tangents"); }
TangentKernel tangent_kernel_f64(std::int64_t) { left_out("tangents"); }
const UnitKernels& unit_kernels(MatrixUnit) { left_out("bf16"); }
const UnitKernels& split_kernels() { left_out("split_products"); }
void run_merge(const MergeCall&, std::int64_t, const MergeTasks&) { left_out("merge()"); }

}  // namespace keel::cpu
