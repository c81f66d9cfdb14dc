#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>

#include "core/call.h"
#include "cuda/plain_heads.h"
#include "cuda/plain_merge.h"
#include "keel/attention.h"

// The plain kernels: every option, dtype, head size and stride, simple rather than fast. Each launcher queues its
// kernels on the stream and returns; it reads nothing that the call points to. The workspace has as many bytes as the
// function beside it says, on the device, aligned to 16; its contents mean nothing before and after.
namespace keel::cuda {

std::size_t plain_forward_workspace(const Call& call, const HeadOutputs& heads = {});
cudaError_t launch_plain_forward(const Call& call, cudaStream_t stream, void* workspace, const HeadOutputs& heads = {});

// What a forward call asks for beyond its rows, whoever computed those: call.key_sums, call.scores, and head
// statistics from call.visible, max_logit, entropy and max_weight.
std::size_t plain_key_sums_workspace(const Call& call);
cudaError_t launch_plain_key_sums(const Call& call, cudaStream_t stream, void* workspace);
cudaError_t launch_plain_scores(const Call& call, cudaStream_t stream);
cudaError_t launch_plain_heads(const Call& call, cudaStream_t stream, const HeadOutputs& heads);

// `as_given`: the gradients before broadcasting, as in BackwardProblem.
std::size_t plain_backward_workspace(const BackwardCall& call);
cudaError_t launch_plain_backward(const BackwardCall& call, const Gradients& as_given, cudaStream_t stream,
                                  void* workspace);

// call.count parts, in the host's memory; merge_call.h makes both from a problem.
std::size_t plain_merge_workspace(const MergeCall& call);
cudaError_t launch_plain_merge(const MergeCall& call, const MergePart* parts, cudaStream_t stream, void* workspace);

}  // namespace keel::cuda
