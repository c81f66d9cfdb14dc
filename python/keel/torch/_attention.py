"""keel.torch.attention: every option of Keel under autograd."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, NamedTuple, overload

import torch
from torch import Tensor
from torch.nn.attention.bias import CausalBias

from keel._arrays import TorchMaker
from keel._attention import ScoreStage
from keel._blocks import check_lengths
from keel._options import Options, refuse_unknown, takes
from keel.torch import _name, _observe
from keel.torch import _operator as operator
from keel.torch._check import autocast, causal_of, check_tensor, refuse

if TYPE_CHECKING:
    from typing_extensions import Unpack

_OPERATION = "attention"
_NAMES = tuple(Options.__annotations__)


class Statistics(NamedTuple):
    """Statistics of each row's softmax: tensors (B, H_q, N_q), detached.

    max_logit    largest visible score
    entropy      of the softmax, in nats
    max_weight   largest weight
    logit_mean   mean of the visible scores above -2^64, which leaves out keys that a finite bias masks
    logit_var    variance of these scores
    visible      how many keys the row sees (int64)
    logit_count  how many scores logit_mean and logit_var are taken over (int64)
    """

    max_logit: Tensor
    entropy: Tensor
    max_weight: Tensor
    logit_mean: Tensor
    logit_var: Tensor
    visible: Tensor
    logit_count: Tensor


class Attention(NamedTuple):
    """What `keel.torch.attention` returns when asked for more than the output. What was not asked for is None."""

    out: Tensor
    lse: Tensor | None = None
    stats: Statistics | None = None


class AttentionWeights(NamedTuple):
    """What `keel.torch.attention` returns when asked for the weights: also those, (B, H_q, N_q, N_k), detached."""

    out: Tensor
    lse: Tensor | None
    stats: Statistics | None
    weights: Tensor


class AttentionScores(NamedTuple):
    """What `keel.torch.attention` returns when asked for the scores: also those, (B, H_q, N_q, N_k), and the weights if
    asked for, all detached."""

    out: Tensor
    lse: Tensor | None
    stats: Statistics | None
    weights: Tensor | None
    scores: Tensor


class TensorSettings(Options, total=False):
    """The other arguments of `keel.torch.attention`, for its overloads."""

    out_dtype: torch.dtype | None


@overload
def attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    return_lse: Literal[False] = False,
    return_stats: Literal[False] = False,
    return_weights: Literal[False] = False,
    return_scores: None = None,
    **settings: Unpack[TensorSettings],
) -> Tensor: ...
@overload
def attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    return_lse: bool = False,
    return_stats: bool = False,
    return_weights: Literal[True],
    return_scores: None = None,
    **settings: Unpack[TensorSettings],
) -> AttentionWeights: ...
@overload
def attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    return_lse: Literal[True],
    return_stats: bool = False,
    return_weights: Literal[False] = False,
    return_scores: None = None,
    **settings: Unpack[TensorSettings],
) -> Attention: ...
@overload
def attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    return_lse: bool = False,
    return_stats: Literal[True],
    return_weights: Literal[False] = False,
    return_scores: None = None,
    **settings: Unpack[TensorSettings],
) -> Attention: ...
@overload
def attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    return_lse: bool = False,
    return_stats: bool = False,
    return_weights: bool = False,
    return_scores: ScoreStage,
    **settings: Unpack[TensorSettings],
) -> AttentionScores: ...
@overload
def attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    return_lse: bool = False,
    return_stats: bool = False,
    return_weights: bool = False,
    return_scores: ScoreStage | None = None,
    **settings: Unpack[TensorSettings],
) -> Tensor | Attention | AttentionWeights | AttentionScores: ...
@takes(Options)
def attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    return_lse: bool = False,
    return_stats: bool = False,
    return_weights: bool = False,
    return_scores: ScoreStage | None = None,
    out_dtype: torch.dtype | None = None,
    **options: Unpack[Options],
) -> Tensor | Attention | AttentionWeights | AttentionScores:
    """`keel.attention` for torch: differentiable with respect to q, k, v, bias (or a mask of numbers), a scale that is
    a tensor, relative_bias, and sinks.

    Shapes: q (B, H_q, N_q, d_k), k (B, H_kv, N_k, d_k), v (B, H_kv, N_k, d_v), result (B, H_q, N_q, d_v); mask and bias
    (B, H_q, N_q, N_k), scale (B, H_q, N_q), any dimension of which may be 1 or missing from the left; alibi (H_q,) or
    (B, H_q); sinks (H_q,); relative_bias (H_q, 2R + 1) or (1, 2R + 1); block_mask one of block_mask(), document_mask(),
    prefix_lm() or torch's create_block_mask(); q_lengths, k_lengths and k_starts (B,), q_offsets and k_offsets
    (E + 1,), tensors of integers. All tensors are on the CPU or on one CUDA device, where the work goes to torch's
    current stream; the integers may be on the CPU in any case. The options mean what they mean in keel.attention;
    dropout takes its seed from torch's CPU generator, and torch.set_num_threads bounds the threads. Under
    autocast, q, k, v, bias and a mask of numbers are cast to its dtype. out_dtype is the dtype of the result: that of
    q, or torch.float32 for 16-bit inputs, which keeps the precision of partial results that are to be merged.

    Returns the output; an Attention (out, lse, stats) when asked for lse or the statistics; an AttentionWeights (out,
    lse, stats, weights) when asked for the weights, what multiplied v, after dropout; an AttentionScores (out, lse,
    stats, weights, scores) when asked for the scores: "raw", "capped" or "masked", as in keel.attention. lse (B, H_q,
    N_q) can be differentiated through; the statistics, the weights and the scores (B, H_q, N_q, N_k) are detached.
    Weights and scores take memory for N_q·N_k numbers per head, and a pass of their own.

    >>> import torch, keel.torch
    >>> q = torch.randn(1, 4, 16, 32, requires_grad=True)
    >>> sinks = torch.zeros(4, requires_grad=True)
    >>> out, lse, stats = keel.torch.attention(q, q, q, sinks=sinks, return_lse=True, return_stats=True)
    >>> (out.sum() + lse.logsumexp(-1).sum()).backward()
    >>> sinks.grad.shape, stats.entropy.shape
    (torch.Size([4]), torch.Size([1, 4, 16]))
    """
    if _name.over_ranks is not None:
        raise NotImplementedError(
            f"[{_OPERATION}] expected ring_attention within context_parallel, got attention, which would attend to "
            "this rank's rows alone"
        )
    for name, x in (("q", q), ("k", k), ("v", v)):
        check_tensor(_OPERATION, name, x)
        if x.dim() != 4:
            refuse(_OPERATION, name, "4 dimensions (B, H, N, D)", x.dim())
    for name in options:
        if name not in _NAMES:
            refuse_unknown(_OPERATION, name, _NAMES)
    q, k, v = autocast(q, k, v, options)
    if return_scores is not None and not isinstance(return_scores, str):
        refuse(_OPERATION, "return_scores", "None, 'raw', 'capped' or 'masked'", repr(return_scores), TypeError)
    if options.get("block_mask") is not None:
        check_lengths(_OPERATION, options["block_mask"], q.shape[2], k.shape[2])
    mask = options.get("mask")
    if isinstance(mask, CausalBias):
        if options.get("causal"):
            refuse(_OPERATION, "mask", "no CausalBias together with causal", "one")
        options["mask"], options["causal"] = None, causal_of(_OPERATION, "mask", mask, q.shape[2], k.shape[2])
    if out_dtype is not None:
        TorchMaker(torch, q.dtype).out_dtype(_OPERATION, out_dtype)
    flat = operator.flatten(_OPERATION, options)
    observer = None if torch.compiler.is_compiling() else _observe.observer
    out: Tensor
    out, lse, rows, counts = operator.attention(q, k, v, *flat, return_stats or observer is not None, out_dtype)
    if observer is not None:
        observer(rows, counts)
    if not (return_lse or return_stats or return_weights or return_scores is not None):
        return out
    stats = Statistics(*rows.detach().unbind(0), *counts.unbind(0)) if return_stats else None
    result = Attention(out, lse if return_lse else None, stats)
    weights = operator.attention_weights(q, k, v, *flat) if return_weights else None
    if return_scores is not None:
        return AttentionScores(*result, weights, operator.attention_scores(q, k, v, *flat, return_scores))
    return result if weights is None else AttentionWeights(*result, weights)
