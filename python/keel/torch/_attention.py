"""keel.torch.attention: every option of Keel under autograd."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor

from keel.torch import _observe
from keel.torch import _operator as operator
from keel.torch._sdpa import check_no_tangent, check_number, check_tensor, draw_seed, refuse

_OPERATION = "attention"


class Statistics(NamedTuple):
    """What the softmax of every row was like: tensors (B, H_q, N_q), detached.

    max_logit    largest visible score
    entropy      of the softmax, in nats
    max_weight   largest weight
    logit_mean   mean of the visible scores above -2^64: masks that are finite biases are left out
    logit_var    variance of the same
    visible      how many keys the row sees (int64)
    """

    max_logit: Tensor
    entropy: Tensor
    max_weight: Tensor
    logit_mean: Tensor
    logit_var: Tensor
    visible: Tensor


class Attention(NamedTuple):
    """What `keel.torch.attention` returns when more than the output is asked for; None where it was not."""

    out: Tensor
    lse: Tensor | None = None
    stats: Statistics | None = None


def attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    mask: Tensor | None = None,
    bias: Tensor | None = None,
    causal: str | bool | None = None,
    window: tuple[int | None, int | None] | None = None,
    scale: float | Tensor | None = None,
    softcap: float | None = None,
    alibi: Tensor | None = None,
    sinks: Tensor | None = None,
    dropout: float = 0.0,
    q_lengths: Tensor | None = None,
    k_lengths: Tensor | None = None,
    q_offsets: Tensor | None = None,
    k_offsets: Tensor | None = None,
    return_lse: bool = False,
    return_stats: bool = False,
) -> Any:
    """`keel.attention` for torch: differentiable by q, k, v, bias (or a mask of numbers), a scale that is a tensor,
    and sinks.

    Shapes: q (B, H_q, N_q, d_k), k (B, H_kv, N_k, d_k), v (B, H_kv, N_k, d_v), result (B, H_q, N_q, d_v); mask and
    bias (B, H_q, N_q, N_k), scale (B, H_q, N_q), any dimension of which may be 1 or missing from the left; alibi and
    sinks (H_q,); q_lengths and k_lengths (B,), q_offsets and k_offsets (E + 1,), tensors of integers. The options
    mean what they mean in keel.attention; dropout takes its seed from torch's generator, and torch.set_num_threads
    bounds the threads.

    Returns the output; an Attention (out, lse, stats) when lse or the statistics are asked for. lse (B, H_q, N_q) can
    be differentiated through; the statistics are detached.

    >>> import torch, keel.torch
    >>> q = torch.randn(1, 4, 16, 32, requires_grad=True)
    >>> sinks = torch.zeros(4, requires_grad=True)
    >>> out, lse, stats = keel.torch.attention(q, q, q, sinks=sinks, return_lse=True, return_stats=True)
    >>> (out.sum() + lse.logsumexp(-1).sum()).backward()
    >>> sinks.grad.shape, stats.entropy.shape
    (torch.Size([4]), torch.Size([1, 4, 16]))
    """
    for name, x in (("q", q), ("k", k), ("v", v)):
        check_tensor(_OPERATION, name, x)
        if x.dim() != 4:
            refuse(_OPERATION, name, "4 dimensions (B, H, N, D)", x.dim())
    named = (("mask", mask), ("bias", bias), ("alibi", alibi), ("sinks", sinks))
    for name, x in named:
        if x is not None:
            check_tensor(_OPERATION, name, x)
    check_no_tangent(_OPERATION, q, k, v, mask, bias, scale, sinks)
    if mask is not None and mask.is_floating_point():
        if bias is not None:
            refuse(_OPERATION, "mask", "dtype bool beside bias", mask.dtype, TypeError)
        mask, bias = None, mask
    scale_tensor = None
    if isinstance(scale, Tensor):
        check_tensor(_OPERATION, "scale", scale)
        scale_tensor, scale = scale, None
    elif scale is not None:
        check_number(_OPERATION, "scale", scale)
        scale = float(scale)
    if softcap is not None:
        check_number(_OPERATION, "softcap", softcap)
    if causal is True:
        causal = "top_left"
    elif causal is False:
        causal = None
    if causal not in operator.CAUSAL:
        refuse(_OPERATION, "causal", "None, True, 'top_left' or 'bottom_right'", repr(causal))
    if window is not None and not (isinstance(window, (tuple, list)) and len(window) == 2):
        refuse(_OPERATION, "window", "(left, right)", repr(window))
    left, right = (None, None) if window is None else window
    check_number(_OPERATION, "dropout", dropout)
    if not 0.0 <= dropout <= 1.0:
        refuse(_OPERATION, "dropout", "from 0 to 1", dropout)
    lists = [
        _integers(name, x)
        for name, x in (
            ("q_lengths", q_lengths),
            ("k_lengths", k_lengths),
            ("q_offsets", q_offsets),
            ("k_offsets", k_offsets),
        )
    ]
    watched = _observe.observer is not None and not torch.compiler.is_compiling()
    out, lse, rows, visible = operator.attention(
        q,
        k,
        v,
        mask,
        bias,
        scale_tensor,
        alibi,
        sinks,
        draw_seed() if dropout > 0.0 else None,
        *lists,
        scale,
        softcap,
        operator.CAUSAL.index(causal),
        left,
        right,
        float(dropout),
        return_stats or watched,
    )
    if watched:
        _observe.observer(rows, visible)
    if not (return_lse or return_stats):
        return out
    stats = Statistics(*rows.detach().unbind(0), visible) if return_stats else None
    return Attention(out, lse if return_lse else None, stats)


def _integers(name: str, x: Any) -> Tensor | None:
    if x is None:
        return None
    if not isinstance(x, Tensor):
        x = torch.as_tensor(x)
    if x.is_floating_point() or x.is_complex() or x.dtype == torch.bool:
        refuse(_OPERATION, name, "integers", x.dtype, TypeError)
    return x.to(torch.int64)
