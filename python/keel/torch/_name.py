"""Which function torch.nn.functional.scaled_dot_product_attention is: torch's own, or Keel's within replace()."""

from __future__ import annotations

import threading
from typing import Any

import torch

torchs = torch.nn.functional.scaled_dot_product_attention
_lock = threading.Lock()
_replacements: list[Any] = []
_calls = 0  # of torchs_own() that are under way


def _settle() -> None:
    function = _replacements[-1] if _replacements and not _calls else torchs
    torch.nn.functional.scaled_dot_product_attention = function


def put(function: Any) -> None:
    with _lock:
        _replacements.append(function)
        _settle()


def take_back(function: Any) -> None:
    with _lock:
        _replacements.remove(function)
        _settle()


def torchs_own(*args: Any, **kwargs: Any) -> Any:
    """torch's own function, under its own name: classes compare what they are asked for with the function of that name.
    Other threads may meanwhile miss the replacement, and then compute with torch.
    """
    global _calls
    if torch.compiler.is_compiling() or not _replacements:
        return torchs(*args, **kwargs)
    with _lock:
        _calls += 1
        _settle()
    try:
        return torchs(*args, **kwargs)
    finally:
        with _lock:
            _calls -= 1
            _settle()
