"""keel.torch.replace: an existing model, unchanged, on Keel's attention."""

from __future__ import annotations

import contextlib
import functools
import threading
from collections.abc import Iterator
from typing import Any

import torch

from keel.torch._sdpa import scaled_dot_product_attention

_lock = threading.Lock()
_depth = 0
_torchs = torch.nn.functional.scaled_dot_product_attention


@contextlib.contextmanager
def routed_to(function: Any) -> Iterator[None]:
    """Within it, torch.nn.functional.scaled_dot_product_attention is `function`, for all threads."""
    before = torch.nn.functional.scaled_dot_product_attention
    torch.nn.functional.scaled_dot_product_attention = functools.wraps(_torchs)(function)
    try:
        yield
    finally:
        torch.nn.functional.scaled_dot_product_attention = before


@functools.wraps(_torchs)
def _routed(query: Any, key: Any, value: Any, *args: Any, **kwargs: Any) -> Any:
    if query.is_cpu and query.dtype.is_floating_point:
        return scaled_dot_product_attention(query, key, value, *args, **kwargs)
    return _torchs(query, key, value, *args, **kwargs)


@contextlib.contextmanager
def replace() -> Iterator[None]:
    """Within `with keel.torch.replace():`, torch.nn.functional.scaled_dot_product_attention is Keel's for CPU tensors.

    It replaces the name in torch.nn.functional, for all threads, and restores it at the end; code that has already
    imported the function (`from torch.nn.functional import scaled_dot_product_attention`) keeps torch's.
    Shapes and arguments are torch's.

    >>> import keel.torch, torch
    >>> layer = torch.nn.MultiheadAttention(32, 4, batch_first=True)
    >>> x = torch.randn(2, 10, 32)
    >>> with keel.torch.replace():
    ...     out, _ = layer(x, x, x, need_weights=False)
    >>> out.shape
    torch.Size([2, 10, 32])
    """
    global _depth
    with _lock:
        _depth += 1
        torch.nn.functional.scaled_dot_product_attention = _routed
    try:
        yield
    finally:
        with _lock:
            _depth -= 1
            if _depth == 0:
                torch.nn.functional.scaled_dot_product_attention = _torchs
