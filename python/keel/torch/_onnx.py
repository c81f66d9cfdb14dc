"""Attention in an ONNX graph: ONNX's own Attention (opset 23 and later), whose order of operations is Keel's.

Keel's operators decompose into it when torch.onnx.export asks for decompositions. What it lacks is made of torch's
operations: positions become a mask, sinks become a key. scaled_dot_product_attention leaves that to torch's own
function, which torch.onnx.export also translates for opsets before 23.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor

from keel.torch import _name
from keel.torch._check import refuse

_LEFT_OUT = ("block_mask", "relative_bias", "origin", "q_offsets", "k_offsets", "seed")  # the last comes with dropout
_PADDING = ("q_lengths", "k_lengths", "k_starts")
_FAR = 2**43  # more than any position


class Parts(NamedTuple):
    """What ONNX's Attention takes."""

    q: Tensor
    k: Tensor
    v: Tensor
    mask: Tensor | None
    causal: bool  # from the top left, beside no mask
    scale: float | None


def by_torch(q: Tensor, k: Tensor, v: Tensor, options: Mapping[str, Any]) -> Tensor:
    """Attention by torch's own function."""
    q, k, v, mask, causal, scale = _parts(q, k, v, options)
    grouped = q.shape[1] != k.shape[1]
    out: Tensor = _name.torchs(q, k, v, mask, is_causal=causal, scale=scale, enable_gqa=grouped)
    return out


def by_onnx(q: Tensor, k: Tensor, v: Tensor, options: Mapping[str, Any]) -> tuple[Tensor, Tensor, Tensor]:
    """The output, the lse and the weights of attention by ONNX's operator."""
    q, k, v, mask, causal, scale = _parts(q, k, v, options)
    more = {"is_causal": causal, "scale": scale, "softcap": options.get("softcap", 0.0)}
    out, _, _, weights = torch.onnx.ops.attention(q, k, v, mask, qk_matmul_output_mode=3, **more)
    scores = torch.onnx.ops.attention(q, k, v, mask, qk_matmul_output_mode=2, **more)[3]
    sinks = options.get("sinks") is not None
    return out, scores.to(torch.float32).logsumexp(-1), weights[..., 1:] if sinks else weights


def scores_by_onnx(q: Tensor, k: Tensor, v: Tensor, options: Mapping[str, Any], stage: str) -> Tensor:
    """The scores at a stage by ONNX's operator, whose last stage before the softmax has number 2."""
    if stage != "masked":
        _, _, belong = _positions(q, k, {name: options[name] for name in _PADDING if name in options})
        options = {name: value for name, value in options.items() if name in ("scale", "softcap", *_LEFT_OUT)}
    q, k, v, mask, causal, scale = _parts(q, k, v, options)
    softcap = 0.0 if stage == "raw" else options.get("softcap", 0.0)
    scores: Tensor = torch.onnx.ops.attention(
        q, k, v, mask, is_causal=causal, scale=scale, softcap=softcap, qk_matmul_output_mode=2
    )[3]
    if stage == "masked":
        return scores[..., 1:] if "sinks" in options else scores
    return scores.masked_fill(~belong, -torch.inf)


def _parts(q: Tensor, k: Tensor, v: Tensor, options: Mapping[str, Any]) -> Parts:
    """The options that are given, as parts of a call that ONNX has."""
    for name in _LEFT_OUT:
        if name in options:
            refuse("attention", name, "none in an ONNX export", "one", NotImplementedError)
    scale = options.get("scale")
    if isinstance(scale, Tensor):
        q, scale = q * scale.to(q.dtype).reshape((1,) * (3 - scale.dim()) + scale.shape)[..., None], 1.0
    mask = _mask(q, k, options)
    if "sinks" in options:
        mask = _as_numbers(mask if mask is not None else _positions(q, k, options)[2], q)
        k, v, mask = _with_a_key(k, v, mask, options["sinks"])
    return Parts(q, k, v, mask, mask is None and options.get("causal") == "top_left", scale)


def _positions(q: Tensor, k: Tensor, options: Mapping[str, Any]) -> tuple[Tensor, Tensor, Tensor]:
    """For each row, where its diagonal is; for each key, where it is; and which keys a row sees by these."""
    i = torch.arange(q.shape[2], device=q.device)[:, None]
    j = torch.arange(k.shape[2], device=q.device)[None, :]
    q_lengths, k_lengths = (_per_entry(options.get(f"{name}_lengths")) for name in "qk")
    ends = (q.shape[2] if q_lengths is None else q_lengths, k.shape[2] if k_lengths is None else k_lengths)
    at = i if options.get("causal") == "top_left" else i + (ends[1] - ends[0])
    seen = (i < ends[0]) & (j < ends[1])
    if "k_starts" in options:
        seen = seen & (j >= options["k_starts"][:, None, None, None])
    if options.get("causal"):
        seen = seen & (j <= at)
    left, right = options.get("window") or (_FAR, _FAR)
    if left < _FAR:
        seen = seen & (j >= at - left)
    if right < _FAR:
        seen = seen & (j <= at + right)
    return at, j, seen


def _per_entry(lengths: Tensor | None) -> Tensor | None:
    return None if lengths is None else lengths[:, None, None, None]


def _mask(q: Tensor, k: Tensor, options: Mapping[str, Any]) -> Tensor | None:
    """All that hides keys or adds to scores, in one mask; None where a causal mask from the top left says it all."""
    positional = (
        options.keys() & {"window", "alibi", "q_lengths", "k_lengths", "k_starts"}
        or options.get("causal") == "bottom_right"
    )
    parts = [options[name] for name in ("mask", "bias") if name in options]
    if not (parts or positional):
        return None
    at, j, seen = _positions(q, k, options)
    mask: Tensor | None = seen if positional or options.get("causal") else None
    if "alibi" in options:
        slopes = options["alibi"].to(q.dtype)[..., None, None]
        mask = _as_numbers(seen, q) - slopes * (at - j).abs().to(q.dtype)
    for part in parts:
        if mask is None:
            mask = part
        elif part.dtype == mask.dtype == torch.bool:
            mask = mask & part
        else:
            mask = _as_numbers(mask, q) + _as_numbers(part, q)
    return mask


def _as_numbers(mask: Tensor, q: Tensor) -> Tensor:
    if mask.dtype != torch.bool:
        return mask.to(q.dtype)
    return torch.zeros((), dtype=q.dtype, device=q.device).masked_fill(~mask, -torch.inf)


def _with_a_key(k: Tensor, v: Tensor, mask: Tensor, sinks: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """A key before the others, whose score is the sink's, since that of zeros is 0, and whose value is 0."""
    k, v = (torch.cat([torch.zeros_like(x[:, :, :1]), x], 2) for x in (k, v))
    shape = torch.broadcast_shapes(mask.shape, (1, sinks.shape[0], 1, 1))
    mask = mask.expand(shape)
    column = sinks.to(mask.dtype)[:, None, None].expand(*shape[:-1], 1)
    return k, v, torch.cat([column, mask], -1)
