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

def attention_jvp(
    q: object,
    k: object,
    v: object,
    out: object,
    lse: object,
    options: Mapping[str, Any],
    tangents: Mapping[str, Any],
    outputs: Mapping[str, Any],
) -> None:
    """Writes the derivatives along the dict `tangents` to the arrays of the dict `outputs`."""

def attention_double_backward(
    inputs: tuple[Any, ...], options: Mapping[str, Any], tangents: Mapping[str, Any], gradients: Mapping[str, Any]
) -> None:
    """Writes the gradients of attention_backward of `inputs` to the arrays of the dict `gradients`."""

def explain(q: object, k: object, v: object, options: Mapping[str, Any]) -> str:
    """How attention would serve the call."""

def explain_backward(q: object, k: object, v: object, options: Mapping[str, Any], wanted: Sequence[str]) -> str:
    """How attention_backward would serve the call."""

def use_team(run: int, size: int) -> None:
    """Computes on the threads of an OpenMP library, given two of its functions."""

def merge(
    parts: Sequence[Mapping[str, Any]], out: object, outputs: Mapping[str, Any], options: Mapping[str, Any]
) -> None:
    """Joins parts, dicts of results over disjoint sets of keys, into out and the dict `outputs`."""

def describe(operation: str, name: str, array: object) -> tuple[str, list[int], str]:
    """The dtype, the shape and the device of an array."""

def cuda_refusal(index: int) -> str:
    """Why arrays on this CUDA device cannot be served; an empty string where they can."""

def ring_attention(
    transport: object,
    sharding: tuple[Any, ...],
    tensors: tuple[Any, ...],
    options: Mapping[str, Any],
    outputs: Mapping[str, Any],
) -> None:
    """Attention of this rank's queries over the keys of all ranks."""

def ring_attention_backward(
    transport: object,
    sharding: tuple[Any, ...],
    inputs: Mapping[str, Any],
    options: Mapping[str, Any],
    gradients: Mapping[str, Any],
) -> None:
    """The gradients of this rank's rows."""

def ring_share(transport: object, mine: Sequence[float], failure: str = "") -> list[list[float]]:
    """The numbers of all ranks; raises on all of them where one gives a failure."""

def shard(n: int, size: int, rank: int, layout: str) -> list[tuple[int, int]]:
    """Which of n rows a rank has: [begin, end) of two stretches."""
