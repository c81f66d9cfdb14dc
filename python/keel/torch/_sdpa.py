"""keel.torch.scaled_dot_product_attention, with torch's signature and meaning.

Two paths lead to the same kernel. Plain tensors take the short one (_short.py): at length 16 a call costs a few
microseconds, and the dispatcher alone would cost more than the arithmetic. Everything else (torch.compile, fake
tensors, transforms, broadcasts, dropout) takes the operator of _operator.py.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn.attention.bias import CausalBias

from keel._classes import takes_over
from keel.torch import _name, _observe, _onnx, _short
from keel.torch import _operator as operator
from keel.torch._check import (
    FLOATS,
    autocasted,
    causal_of,
    check_device,
    check_number,
    check_tensor,
    is_autocast,
    refuse,
)

short: Callable[..., Tensor | None] = _short.sdpa
is_traced = torch.compiler.is_dynamo_compiling  # other tracers have their own type of tensor, or a mode


def scaled_dot_product_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Tensor:
    """torch.nn.functional.scaled_dot_product_attention, computed by Keel.

    Shapes: query (..., H_q, L, E), key (..., H, S, E), value (..., H, S, E_v), attn_mask broadcastable to (..., L,
    S), result (..., H_q, L, E_v). Arguments mean what they mean in torch; dropout takes its seed from torch's
    CPU generator. Tensors of float64, float32, float16 or bfloat16, on the CPU or on a CUDA device, where the
    work goes to torch's current stream.

    >>> import torch
    >>> from keel.torch import scaled_dot_product_attention
    >>> q = torch.randn(2, 8, 128, 64, requires_grad=True)
    >>> scaled_dot_product_attention(q, q, q, is_causal=True).sum().backward()
    >>> q.grad.shape
    torch.Size([2, 8, 128, 64])
    """
    if _name.over_ranks is not None:
        ring: Tensor = _name.over_ranks(query, key, value, attn_mask, dropout_p, is_causal, scale, enable_gqa)
        return ring
    if not is_traced() and dropout_p == 0.0 and _observe.observer is None:
        out = short(query, key, value, attn_mask, is_causal, scale, enable_gqa)
        if out is not None:
            return out
    return _any(query, key, value, attn_mask, dropout_p, is_causal, scale, enable_gqa)


_OPERATION = "scaled_dot_product_attention"


def _any(
    query: Any, key: Any, value: Any, attn_mask: Any, dropout_p: float, is_causal: bool, scale: Any, gqa: bool
) -> Tensor:
    """Any call: wrong arguments are refused, batches are broadcast to the operator's four dimensions."""
    bias = attn_mask if isinstance(attn_mask, CausalBias) else None
    if bias is not None:
        attn_mask = None
    if any(takes_over(torch, x) for x in (query, key, value, attn_mask)):  # classes that know torch's function
        mask = attn_mask if bias is None else bias
        handed: Tensor = _name.torchs_own(query, key, value, mask, dropout_p, is_causal, scale=scale, enable_gqa=gqa)
        return handed
    _check_kinds(query, key, value, attn_mask, {"is_causal": is_causal, "enable_gqa": gqa})
    causal: bool | str = is_causal
    if bias is not None:
        if is_causal:
            refuse(_OPERATION, "attn_mask", "no CausalBias with is_causal=True", "one")
        causal = causal_of(_OPERATION, "attn_mask", bias, query.shape[-2], key.shape[-2])
    dropout_p = check_number(_OPERATION, "dropout_p", dropout_p)
    if not 0.0 <= dropout_p <= 1.0:
        refuse(_OPERATION, "dropout_p", "from 0 to 1", dropout_p)
    if scale is not None:
        if isinstance(scale, Tensor) and scale.requires_grad and torch.is_grad_enabled():
            got = "one with requires_grad; keel.torch.attention differentiates with respect to it"
            refuse(_OPERATION, "scale", "a number, or a tensor that needs no gradient", got)
        scale = float(scale) if isinstance(scale, Tensor) else check_number(_OPERATION, "scale", scale)
        if isinstance(scale, float) and not math.isfinite(scale):
            refuse(_OPERATION, "scale", "a finite number", scale)
    if is_autocast(query):
        query, key, value, attn_mask = (autocasted(x) for x in (query, key, value, attn_mask))
    _check_fit(query, key, value, attn_mask)
    if gqa:
        key, value = _with_equal_heads(query, key, value)
    query, key, value = _broadcast(query, key, value, 3 if gqa else 2)

    if attn_mask is not None:
        _check_mask(attn_mask, query.shape[:-1] + key.shape[-2:-1])
    shape = query.shape[:-1] + value.shape[-1:]
    if attn_mask is not None and query.dim() > 4 and attn_mask.dim() > 3:
        attn_mask = attn_mask.expand(query.shape[:-1] + key.shape[-2:-1]).reshape(
            (-1, query.shape[-3], query.shape[-2], key.shape[-2])
        )
    if query.dim() > 4:
        query, key, value = (x.flatten(0, -4) for x in (query, key, value))
    while query.dim() < 4:
        query, key, value = (x.unsqueeze(0) for x in (query, key, value))
    if 0 in (query.shape[-1], value.shape[-1]):
        refuse(_OPERATION, "query", "head sizes of at least 1", f"{query.shape[-1]} and {value.shape[-1]} in value")

    options = {"mask": attn_mask, "causal": causal, "dropout": dropout_p, "scale": scale}
    flat = operator.flatten(_OPERATION, options)
    if torch.onnx.is_in_onnx_export():  # which translates torch's function for every opset
        return _onnx.by_torch(query, key, value, operator.as_options(flat)).reshape(shape)
    observer = None if torch.compiler.is_compiling() else _observe.observer
    out: Tensor
    out, _, rows, counts = operator.attention(query, key, value, *flat, observer is not None, None)
    if observer is not None:
        observer(rows, counts)
    return out.reshape(shape)


def _check_kinds(query: Any, key: Any, value: Any, attn_mask: Any, flags: dict[str, Any]) -> None:
    for name, x in (("query", query), ("key", key), ("value", value)):
        check_tensor(_OPERATION, name, x)
        if x.dim() < 2:
            refuse(_OPERATION, name, "at least 2 dimensions", x.dim())
    if attn_mask is not None:
        check_tensor(_OPERATION, "attn_mask", attn_mask)
    for name, x in (("key", key), ("value", value), ("attn_mask", attn_mask)):
        check_device(_OPERATION, name, x, query)
    for name, flag in flags.items():
        if not isinstance(flag, bool):
            refuse(_OPERATION, name, "a bool", repr(flag), TypeError)


def _check_fit(query: Tensor, key: Tensor, value: Tensor, attn_mask: Tensor | None) -> None:
    """Dtypes, head sizes and lengths."""
    if query.dtype not in FLOATS:
        refuse(_OPERATION, "query", "dtype float64, float32, float16 or bfloat16", query.dtype, TypeError)
    for name, x in (("key", key), ("value", value)):
        if x.dtype != query.dtype:
            refuse(_OPERATION, name, f"dtype {query.dtype} as in query", x.dtype, TypeError)
    dtypes = dict.fromkeys((torch.bool, torch.float32, query.dtype))
    if attn_mask is not None and attn_mask.dtype not in dtypes:
        refuse(_OPERATION, "attn_mask", f"dtype {' or '.join(map(str, dtypes))}", attn_mask.dtype, TypeError)
    if key.shape[-1] != query.shape[-1]:
        refuse(_OPERATION, "key", f"size {query.shape[-1]} of the last dimension as in query", key.shape[-1])
    if value.shape[-2] != key.shape[-2]:
        refuse(_OPERATION, "value", f"length {key.shape[-2]} as in key", value.shape[-2])


def _check_mask(attn_mask: Tensor, full: torch.Size) -> None:
    """That it broadcasts to the scores."""
    at = len(full) - attn_mask.dim()
    if at < 0 or any(size not in (1, whole) for size, whole in zip(attn_mask.shape, full[at:])):
        refuse(_OPERATION, "attn_mask", f"a shape that broadcasts to {tuple(full)}", tuple(attn_mask.shape))


def _with_equal_heads(query: Tensor, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
    """key and value of grouped heads, repeated only where the two differ in number."""
    if min(query.dim(), key.dim(), value.dim()) < 3:
        refuse(_OPERATION, "enable_gqa", "at least 3 dimensions with it", query.dim())
    heads = query.shape[-3]
    for name, x in (("key", key), ("value", value)):
        if x.shape[-3] == 0 or heads % x.shape[-3] != 0:
            expected = f"a number of heads that divides the {heads} of query, with enable_gqa=True"
            refuse(_OPERATION, name, expected, x.shape[-3])
    if key.shape[-3] == value.shape[-3]:
        return key, value
    key, value = (x.repeat_interleave(heads // x.shape[-3], -3) for x in (key, value))
    return key, value


def _broadcast(query: Tensor, key: Tensor, value: Tensor, keep: int) -> tuple[Tensor, ...]:
    """The three with the same leading dimensions; the last `keep` of each stay."""
    if query.shape[:-keep] == key.shape[:-keep] == value.shape[:-keep]:
        return query, key, value
    try:
        lead = torch.broadcast_shapes(query.shape[:-keep], key.shape[:-keep], value.shape[:-keep])
    except RuntimeError:
        hint = ""
        if keep == 2 and min(query.dim(), key.dim()) > 2 and query.shape[-3] % max(key.shape[-3], 1) == 0:
            hint = "; enable_gqa=True serves heads in groups"
        refuse(
            _OPERATION,
            "key",
            f"batch dimensions of query, key and value that broadcast, query having {tuple(query.shape)}",
            f"key {tuple(key.shape)} and value {tuple(value.shape)}{hint}",
        )
    return tuple(x.expand(lead + x.shape[-keep:]) for x in (query, key, value))
