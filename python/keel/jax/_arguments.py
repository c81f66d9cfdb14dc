"""Reads the options of keel.jax.attention: each becomes an array of the custom call or one of its attributes, and an
argument of the library's checks, which run while JAX traces and see shapes but no values of traced arrays."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from keel._blocks import check_lengths
from keel._options import TABLE

_OPERATION = "attention"

# How many dimensions the custom call has them in; those that are missing come first.
_RANKS = {"mask": 4, "bias": 4, "scale": 3, "alibi": 2, "relative_bias": 2, "sinks": 1}


def _refuse(name: str, expected: str, got: Any) -> NoReturn:
    raise TypeError(f"[{_OPERATION}] {name}: expected {expected}, got {got}")


def array_of(name: str, x: Any) -> Array:
    if not isinstance(x, (Array, np.ndarray)):
        _refuse(name, "a JAX or NumPy array", type(x).__name__)
    return jnp.asarray(x)


def padded(x: Array, rank: int) -> Array:
    """With dimensions of size 1 in front."""
    return x if x.ndim >= rank else x.reshape((1,) * (rank - x.ndim) + x.shape)


def stub(x: Any) -> Any:
    """A NumPy array of this shape and dtype, without memory of its own."""
    return np.broadcast_to(np.zeros((), x.dtype), x.shape)


def read(tensors: dict[str, Array], given: dict[str, Any]) -> tuple[dict[str, Array], dict[str, Any], dict[str, Any]]:
    """The options that are arrays, those that are not, and all as the library's checks take them."""
    arrays: dict[str, Array] = {}
    constants: dict[str, Any] = {}
    stubs: dict[str, Any] = {}
    for name, value in given.items():
        kind = TABLE[name].kind
        stubs[name] = value
        if kind == "tensor" or (kind == "number or tensor" and isinstance(value, (Array, np.ndarray))):
            array = array_of(name, value)
            stubs[name] = stub(array)
            # A mask of numbers is a bias; that there is no other is checked.
            place = "bias" if name == "mask" and array.dtype != np.bool_ else name
            arrays[place] = padded(array, _RANKS[name])
        elif kind == "integers":
            of_keys = name.startswith("k")
            arrays[name], stubs[name] = _integers(name, value, tensors["k" if of_keys else "q"].shape[-2:-1])
        elif kind == "block mask":
            check_lengths(_OPERATION, value, tensors["q"].shape[-2], tensors["k"].shape[-2])
            arrays |= _block_mask(name, value)
        elif kind == "seed" and not isinstance(value, (int, np.integer)):
            arrays[name], stubs[name] = _seed(name, value), 0
        else:
            constants[name] = value
    if not given.get("dropout"):
        arrays.pop("seed", None)
        constants.pop("seed", None)
    return arrays, constants, stubs


# How the custom call gets what is not an array, once it has been checked; numbers are float otherwise.
_ATTRIBUTES: dict[str, Callable[[Any], Any]] = {
    "causal": lambda x: "top_left" if x is True else x,
    "window": lambda x: tuple(2**63 - 1 if side is None else int(side) for side in x),
    "origin": lambda x: (*map(int, x), 0, 0)[:4],
    "seed": int,
    "threads": int,
}


def attributes_of(constants: dict[str, Any]) -> tuple[tuple[str, Any], ...]:
    return tuple(
        (name, _ATTRIBUTES.get(name, float)(value)) for name, value in sorted(constants.items()) if value is not False
    )


def _words(x: Any) -> Array:
    """64-bit integers, (...) as (..., 2) of 32 bits, the lower first: JAX has no others by default."""
    if isinstance(x, np.ndarray):
        return jnp.asarray(np.ascontiguousarray(x, np.int64)[..., None].view(np.int32))
    if x.dtype.itemsize == 8:
        return jax.lax.bitcast_convert_type(x, jnp.int32)
    upper = jnp.where(x < 0, -1, 0).astype(jnp.int32)
    return jnp.stack([x.astype(jnp.int32), upper], -1)


def _integers(name: str, value: Any, rows: tuple[int, ...]) -> tuple[Array, Any]:
    """Lengths or offsets, and what to check: their values where the host has them."""
    if isinstance(value, (list, tuple, np.ndarray)):
        host = np.asarray(value)
        return _words(host) if host.dtype.kind in "iu" else jnp.zeros(0), value
    array = array_of(name, value)
    if not jnp.issubdtype(array.dtype, jnp.integer):
        return array, stub(array)
    known = np.zeros(array.shape, np.int64)  # in the place of values that are not known
    if name.endswith("offsets") and known.ndim == 1:
        known[-1:] = rows
    return _words(array), known


def _block_mask(name: str, value: Any) -> dict[str, Array]:
    if not isinstance(value, tuple) or len(value) != 3 or not all(isinstance(x, np.ndarray) for x in value):
        _refuse(name, "a keel.BlockMask of NumPy arrays", type(value).__name__)
    offsets, blocks, tiles = value
    return {
        f"{name}.offsets": _words(offsets.reshape((1,) * (3 - offsets.ndim) + offsets.shape)),
        f"{name}.blocks": _words(blocks),
        f"{name}.tiles": jnp.asarray(tiles),
    }


def _seed(name: str, value: Any) -> Array:
    """A traced seed, as two words."""
    if isinstance(value, Array) and jnp.issubdtype(value.dtype, jax.dtypes.prng_key) and value.shape == ():
        return jax.random.bits(value, (2,), jnp.uint32)
    if isinstance(value, (Array, np.ndarray)) and jnp.issubdtype(value.dtype, jnp.integer) and value.size == 1:
        return _words(value.reshape(()))
    _refuse(name, "an integer, an array of one integer, or a key of jax.random", repr(value))
