"""Which function torch.nn.functional.scaled_dot_product_attention is: torch's own, or Keel's within replace() and
context_parallel()."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from typing import Any

import torch

torchs = torch.nn.functional.scaled_dot_product_attention
_lock = threading.Lock()
_on_one_rank: list[Any] = []  # each the function of replace()
_over_ranks: list[Any] = []  # which those do not cover: alone, a rank would attend to its own rows
over_ranks: Any = None  # the last of them
_calls = 0  # of torchs_own() that are under way


def _settle() -> None:
    global over_ranks
    over_ranks = _over_ranks[-1] if _over_ranks else None
    replacements = _over_ranks or _on_one_rank
    torch.nn.functional.scaled_dot_product_attention = replacements[-1] if replacements and not _calls else torchs


@contextlib.contextmanager
def replaced(function: Any, *, for_ranks: bool = False) -> Iterator[None]:
    replacements = _over_ranks if for_ranks else _on_one_rank
    with _lock:
        replacements.append(function)
        _settle()
    try:
        yield
    finally:
        with _lock:
            replacements.remove(function)
            _settle()


def torchs_own(*args: Any, **kwargs: Any) -> Any:
    """torch's own function, under its own name: classes compare what they are asked for with the function of that name.
    Other threads may meanwhile miss the replacement, and then compute with torch.
    """
    global _calls
    if torch.compiler.is_compiling() or not (_on_one_rank or _over_ranks):
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
