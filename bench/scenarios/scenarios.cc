#include "bench/scenarios/scenarios.h"

namespace keel::bench {

namespace {
constexpr Scenario kScenarios[] = {
    {"forward", "short and long, with and without a causal mask, as a share of the FMA peak", forward_rows},
    {"head-sizes", "head sizes other than 64 and 128", head_size_rows},
    {"targets", "AVX2 against its own FMA peak", target_rows},
    {"dtypes", "f64 against its FMA peak; f16 and bf16 against f32", dtype_rows},
    {"units", "bf16 on the CPU's matrix unit: share of its peak, and against widening", unit_rows},
    {"threads", "two threads against one", thread_rows},
    {"decode", "one query over a long cache, as a share of the read bandwidth", decode_rows},
    {"statistics", "what reporting about the softmax costs", statistics_rows},
    {"mask", "what a dense mask and a bias by distance cost, and what a window saves", mask_rows},
    {"dropout", "what dropping weights costs, in both passes", dropout_rows},
    {"documents", "a block mask of documents against the packed batch of them", document_rows},
    {"small", "the time of a call with almost nothing to do", small_rows},
    {"backward", "gradients with respect to q, k and v: share of the FMA peak, threads, 16-bit types, memory",
     backward_rows},
    {"tangents", "a jvp against the forward pass, a double backward pass against the backward pass; memory",
     tangent_rows},
    {"merge", "two parts joined in place, as a share of the bandwidth of reading and writing", merge_rows},
    {"memory", "memory beyond inputs and outputs for a long sequence", memory_rows},
};
}  // namespace

std::span<const Scenario> scenarios() { return kScenarios; }

}  // namespace keel::bench
