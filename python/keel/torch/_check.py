"""Checks that torch's operators can take the arguments of keel.torch. The library checks values."""

from __future__ import annotations

import contextlib
from operator import index
from typing import Any, NoReturn

import numpy as np
import torch
from torch import Tensor
from torch.nn.attention.bias import CausalBias, CausalVariant

from keel._classes import takes_over, what_is

DEVICES = ("cpu", "cuda")
FLOATS = (torch.float64, torch.float32, torch.float16, torch.bfloat16)


def refuse(operation: str, name: str, expected: str, got: Any, error: type[Exception] = ValueError) -> NoReturn:
    raise error(f"[{operation}] {name}: expected {expected}, got {got}")


def check_tensor(operation: str, name: str, x: Any) -> Tensor:
    """TypeError unless `x` is a tensor that Keel supports."""
    if not isinstance(x, Tensor):
        refuse(operation, name, "a tensor", type(x).__name__, TypeError)
    if x.device.type not in (*DEVICES, "meta"):
        refuse(operation, name, "a tensor on the CPU or a CUDA device", f"one on {x.device}", TypeError)
    if x.layout is not torch.strided:
        refuse(operation, name, "a dense tensor", f"one of layout {x.layout}", TypeError)
    if x.is_nested:
        refuse(operation, name, "a dense tensor", "a nested one", TypeError)
    if takes_over(torch, x):
        refuse(operation, name, "a tensor whose memory holds its values", what_is(x), TypeError)
    return x


_NUMBERS = (int, float, np.floating, np.integer, torch.SymInt, torch.SymFloat)


def check_number(operation: str, name: str, x: Any) -> float:
    if isinstance(x, bool) or not isinstance(x, _NUMBERS):
        refuse(operation, name, "a number", repr(x), TypeError)
    if isinstance(x, int) and x.bit_length() > 1023:
        refuse(operation, name, "a finite number", "an integer too large for a float")
    return float(x)


def check_flag(operation: str, name: str, x: Any) -> bool:
    if not isinstance(x, bool):
        refuse(operation, name, "True or False", repr(x), TypeError)
    return x


def check_number_or_tensor(operation: str, name: str, x: Any) -> float | Tensor:
    return (check_tensor if isinstance(x, Tensor) else check_number)(operation, name, x)


def check_causal(operation: str, name: str, x: Any) -> str | None:
    if isinstance(x, bool):
        return "top_left" if x else None
    if not isinstance(x, str):
        refuse(operation, name, "None, True, 'top_left' or 'bottom_right'", repr(x), TypeError)
    return x


def causal_of(operation: str, name: str, bias: CausalBias, n_q: int, n_k: int) -> str:
    """Keel's name for what torch.nn.attention.bias makes. The memory of a CausalBias holds nothing."""
    if (bias.seq_len_q, bias.seq_len_kv) != (n_q, n_k):
        expected = f"a causal bias of ({n_q}, {n_k}), the numbers of queries and keys"
        refuse(operation, name, expected, f"one of ({bias.seq_len_q}, {bias.seq_len_kv})")
    return "top_left" if bias.variant == CausalVariant.UPPER_LEFT else "bottom_right"


def check_window(operation: str, name: str, x: Any) -> list[int]:
    """Two integers, the largest there is in place of None."""
    _check_tuple(operation, name, x, (2,), "(left, right)")
    sides = zip(("window.left", "window.right"), x)
    return [2**63 - 1 if side is None else _check_integer(operation, place, side) for place, side in sides]


def check_origin(operation: str, name: str, x: Any) -> list[int]:
    _check_tuple(operation, name, x, (2, 4), "(query, key) or (query, key, n_q, n_k)")
    places = ("origin.query", "origin.key", "origin.n_q", "origin.n_k")
    return [_check_integer(operation, place, n) for place, n in zip(places, x)]


def _check_tuple(operation: str, name: str, x: Any, lengths: tuple[int, ...], expected: str) -> None:
    if not isinstance(x, (tuple, list)):
        refuse(operation, name, expected, repr(x), TypeError)
    if len(x) not in lengths:
        refuse(operation, name, expected, repr(x))


def _check_integer(operation: str, name: str, x: Any) -> int:
    """Python's integers, torch's symbolic ones, and NumPy's."""
    # As it is, since index() would make a constant of a symbol.
    integer: Any = x if isinstance(x, (int, torch.SymInt)) else None
    if integer is None and not isinstance(x, Tensor):
        with contextlib.suppress(TypeError):
            integer = index(x)
    if integer is None or isinstance(x, bool) or not -(2**63) <= integer < 2**63:
        refuse(operation, name, "a 64-bit integer", repr(x), TypeError)
    return integer  # type: ignore[no-any-return] # a symbol stands for an int


def check_integers(operation: str, name: str, x: Any) -> Tensor:
    given: Tensor = x if isinstance(x, Tensor) else torch.as_tensor(x)
    if given.is_floating_point() or given.is_complex() or given.dtype == torch.bool:
        refuse(operation, name, "integers", given.dtype, TypeError)
    return given.to(torch.int64)


def check_device(operation: str, name: str, x: Any, first: Tensor) -> None:
    """ValueError unless `x`, if it is a tensor, is on the device of `first`."""
    if isinstance(x, Tensor) and x.device != first.device:
        refuse(operation, name, f"a tensor on {first.device} like the first", f"one on {x.device}")


def is_autocast(x: Tensor) -> bool:
    """Whether autocast is on for the device of `x`."""
    return x.device.type in DEVICES and torch.is_autocast_enabled(x.device.type)


def autocasted(x: Any) -> Any:
    """A tensor of numbers in the dtype of autocast, which leaves float64 alone; anything else as it is."""
    if not isinstance(x, Tensor) or not x.is_floating_point() or x.dtype == torch.float64:
        return x
    return x.to(torch.get_autocast_dtype(x.device.type))


def autocast(q: Any, k: Any, v: Any, options: Any) -> tuple[Any, Any, Any]:
    """q, k and v and, in place, the mask and bias among the options, in the dtype of autocast if it is on."""
    if not isinstance(q, Tensor) or not is_autocast(q):
        return q, k, v
    options.update({name: autocasted(options[name]) for name in ("mask", "bias") if name in options})
    return autocasted(q), autocasted(k), autocasted(v)
