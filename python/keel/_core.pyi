"""The compiled part of keel; see keel.attention for what the arguments mean."""

from collections.abc import Mapping, Sequence
from typing import Any

version: str
options: list[str]
calls: object  # a capsule, for keel._torch

def attention(
    q: object, k: object, v: object, out: object, options: Mapping[str, Any], outputs: Mapping[str, Any]
) -> None:
    """Writes attention of q over (k, v) to out, and its statistics to the arrays of the dict `outputs`."""

def attention_backward(
    q: object,
    k: object,
    v: object,
    out: object,
    lse: object,
    dout: object,
    dlse: object,
    options: Mapping[str, Any],
    gradients: Mapping[str, Any],
) -> None:
    """Writes the gradients to the arrays of the dict `gradients`."""

def explain(q: object, k: object, v: object, options: Mapping[str, Any]) -> str:
    """How attention would serve the call."""

def explain_backward(q: object, k: object, v: object, options: Mapping[str, Any], wanted: Sequence[str]) -> str:
    """How attention_backward would serve the call."""

def use_team(run: int, size: int) -> None:
    """Computes on the threads of an OpenMP library, given two of its functions."""

def merge(parts: Sequence[Mapping[str, Any]], out: object, outputs: Mapping[str, Any], threads: int | None) -> None:
    """Joins parts, dicts of results over disjoint sets of keys, into out and the dict `outputs`."""

def describe(operation: str, name: str, array: object) -> tuple[str, list[int]]:
    """The dtype and the shape of an array."""
