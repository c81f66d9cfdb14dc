"""keel.torch.replace: an existing model, unchanged, on Keel's attention."""

from __future__ import annotations

import contextlib
import functools
import math
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor
from torch.nn.attention.bias import CausalBias

from keel import _core
from keel._classes import takes_over
from keel.torch import _name, _observe, _sdpa
from keel.torch._check import DEVICES, FLOATS
from keel.torch._sdpa import scaled_dot_product_attention

_strict = 0  # how many of the replacements are
_last_fallback: str | None = None


def _refusal(query: Any, key: Any, value: Any, attn_mask: Any, scale: Any) -> str | None:
    """Why Keel does not serve these arguments; torch may know what to do with them."""
    given = {"query": query, "key": key, "value": value}
    if attn_mask is not None and not isinstance(attn_mask, CausalBias):
        given["attn_mask"] = attn_mask
    for name, x in given.items():
        if not isinstance(x, Tensor):
            return f"{name} is not a tensor but of class {type(x).__name__}"
        if x.is_nested:
            return f"{name} is a nested tensor"
        if takes_over(torch, x):
            return f"{name} is of class {type(x).__name__}, which has its own __torch_function__"
        if x.layout is not torch.strided:
            return f"{name} has the layout {x.layout}"
        if x.device.type not in DEVICES:
            return f"{name} is on {x.device}"
        if x.device != query.device:
            return f"{name} is on {x.device}, and query on {query.device}"
    if query.device.type == "cuda" and (why := _cuda_refusal(query.device.index or 0)):
        return why
    if query.dtype not in FLOATS:
        return f"query has the dtype {query.dtype}"
    if query.shape[-1:] == (0,) or value.shape[-1:] == (0,):
        return "a head size is 0"
    if isinstance(scale, float) and not math.isfinite(scale):
        return f"scale is {scale}"
    return None


_cuda_refusal = functools.cache(_core.cuda_refusal)


@functools.wraps(_name.torchs)
def _routed(
    query: Any,
    key: Any,
    value: Any,
    attn_mask: Any = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *,
    scale: Any = None,
    enable_gqa: bool = False,
) -> Any:
    plain = type(dropout_p) is float and dropout_p == 0.0 and _observe.observer is None
    if plain and not _sdpa.is_traced():
        out = _sdpa.short(query, key, value, attn_mask, is_causal, scale, enable_gqa)
        if out is not None:  # plain tensors, in no more time than without replace()
            return out
    why = _refusal(query, key, value, attn_mask, scale)
    if why is None:
        return scaled_dot_product_attention(
            query, key, value, attn_mask, dropout_p, is_causal, scale=scale, enable_gqa=enable_gqa
        )
    if _strict:
        raise NotImplementedError(f"[scaled_dot_product_attention] {why}: not served by Keel, and replace() is strict")
    if not torch.compiler.is_compiling():
        global _last_fallback
        _last_fallback = why
    return _name.torchs_own(query, key, value, attn_mask, dropout_p, is_causal, scale=scale, enable_gqa=enable_gqa)


# torch.jit.script compiles the name as torch's operator.
torch.jit._builtins._register_builtin(_routed, "aten::scaled_dot_product_attention")


@contextlib.contextmanager
def replace(strict: bool = False) -> Iterator[None]:
    """Within `with keel.torch.replace():`, torch.nn.functional.scaled_dot_product_attention is Keel's for tensors on
    the CPU, and on CUDA devices if libkeel_cuda is installed.

    It replaces the name in torch.nn.functional, for all threads, and restores it at the end; code that has already
    imported the function (`from torch.nn.functional import scaled_dot_product_attention`) keeps torch's.
    Shapes and arguments are torch's. Within `context_parallel` the function stays that which attends over all ranks.

    What Keel does not serve goes to torch's own: nested and sparse tensors, other devices and dtypes, classes with
    their own __torch_function__ (CausalBias is served), torch.jit.script and torch.fx. `last_fallback()` says why the
    last such call was left to torch. With strict=True such calls raise NotImplementedError instead, except within
    torch.jit.script, which calls nothing.

    >>> import keel.torch, torch
    >>> layer = torch.nn.MultiheadAttention(32, 4, batch_first=True)
    >>> x = torch.randn(2, 10, 32)
    >>> with keel.torch.replace():
    ...     out, _ = layer(x, x, x, need_weights=False)
    >>> out.shape
    torch.Size([2, 10, 32])
    """
    global _strict
    _strict += strict
    try:
        with _name.replaced(_routed):
            yield
    finally:
        _strict -= strict


def last_fallback() -> str | None:
    """Why the last call within `replace()` that Keel did not serve went to torch's own; None if none did.

    >>> import keel.torch, torch
    >>> x = torch.empty(1, 2, 3, 4, device="meta")
    >>> with keel.torch.replace():
    ...     _ = torch.nn.functional.scaled_dot_product_attention(x, x, x)
    >>> keel.torch.last_fallback()
    'query is on meta'
    """
    return _last_fallback
