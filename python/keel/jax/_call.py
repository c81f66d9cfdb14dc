"""The custom calls of keel._jax as a function of JAX, with its derivative."""

from __future__ import annotations

import functools
import re
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.custom_derivatives import SymbolicZero

from keel import _jax
from keel._attention import COUNTS, STATISTICS
from keel._backward import OF_TENSORS
from keel._options import TABLE


def _served_version() -> tuple[int, ...]:
    """The version of XLA's foreign function interface that the installed jaxlib has, as its headers say."""
    header = Path(jax.ffi.include_dir()) / "xla/ffi/api/c_api.h"
    text = header.read_text(encoding="utf-8") if header.exists() else ""
    return tuple(int(number) for number in re.findall(r"#define XLA_FFI_API_(?:MAJOR|MINOR) (\d+)", text))


# Once an older jaxlib had refused the handlers of a newer interface, it could serve no call at all, not even those of
# other libraries.
if _served_version() and _served_version() < _jax.api_version:
    raise ImportError(
        "keel.jax: expected a jaxlib with version {}.{} of XLA's foreign function interface, for which it was compiled,"
        " or newer, got {}.{}; `pip install .` of Keel's source builds it for this jaxlib".format(
            *_jax.api_version, *_served_version()
        )
    )
for _name, _platform, _handler in _jax.targets:
    jax.ffi.register_ffi_target(_name, _handler, platform=_platform)

Arrays = dict[str, Any]

# The gradient with respect to each array that has one.
_GRADIENTS = {gradient[1:]: gradient for gradient in OF_TENSORS} | {
    name: option.gradient for name, option in TABLE.items() if option.gradient is not None
}


class Call(NamedTuple):
    """What is known of a call when it is traced; JAX compiles once for each."""

    attributes: tuple[tuple[str, Any], ...]  # the options that are not arrays: str, float, int, or a tuple of int
    out_dtype: Any
    lse: bool  # whether to return it
    statistics: bool


def _typed(name: str, value: Any) -> Any:
    if isinstance(value, str):
        return value
    if isinstance(value, tuple):
        return np.array(value, np.int64)
    if isinstance(value, float):
        return np.float64(value)
    return np.uint64(value) if name == "seed" else np.int64(value)


def _custom_call(target: str, call: Call, arguments: Arrays, results: Arrays) -> Arrays:
    """`results` has the shapes and dtypes of the results."""
    attributes = {name: _typed(name, value) for name, value in call.attributes}
    names = {"arguments": ",".join(arguments), "results": ",".join(results)}
    run = jax.ffi.ffi_call(target, list(results.values()), vmap_method="expand_dims")
    return dict(zip(results, run(*arguments.values(), **names, **attributes)))


def _forward(call: Call, arrays: Arrays, lse: bool) -> Arrays:
    q, v = arrays["q"], arrays["v"]
    rows = q.shape[:-1]
    floats = np.float64 if q.dtype == np.float64 else np.float32
    results = {"out": jax.ShapeDtypeStruct((*rows, v.shape[-1]), call.out_dtype)}
    if lse:
        results["lse"] = jax.ShapeDtypeStruct(rows, floats)
    for name in STATISTICS if call.statistics else ():
        count = name in COUNTS  # 64 bits, in two words
        results[name] = jax.ShapeDtypeStruct((*rows, 2) if count else rows, np.int32 if count else floats)
    return _custom_call("keel_attention", call, arrays, results)


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def attend(call: Call, arrays: Arrays) -> Arrays:
    """Attention of arrays as the custom call takes them: q, k and v (B, H, N, D), and the options that are arrays.
    Returns out and what else was asked for, by name."""
    return _forward(call, arrays, call.lse)


def _attend_and_keep(call: Call, given: Arrays) -> tuple[Arrays, Any]:
    arrays = {name: x.value for name, x in given.items()}
    moving = [name for name, x in given.items() if x.perturbed]
    for name in moving:
        if name not in _GRADIENTS:
            raise NotImplementedError(
                f"[attention] {name}: expected an array that is not differentiated, got one that is; its gradient is "
                "not computed (jax.lax.stop_gradient makes it a constant)"
            )
    results = _forward(call, arrays, lse=True)
    wanted = dict.fromkeys(moving)  # as a structure without leaves
    kept = (arrays, results["out"], results["lse"], wanted)
    return {name: x for name, x in results.items() if name != "lse" or call.lse}, kept


def _differentiate(call: Call, kept: Any, arrived: Arrays) -> tuple[Arrays]:
    arrays, out, lse, wanted = kept
    dout, dlse = arrived["out"], arrived.get("lse")
    arguments = {**arrays, "out": out, "lse": lse}
    arguments["dout"] = jnp.zeros(out.shape, out.dtype) if isinstance(dout, SymbolicZero) else dout
    if dlse is not None and not isinstance(dlse, SymbolicZero):
        arguments["dlse"] = dlse
    results = {_GRADIENTS[name]: jax.ShapeDtypeStruct(arrays[name].shape, arrays[name].dtype) for name in wanted}
    gradients = _custom_call("keel_attention_backward", call, arguments, results) if results else {}
    return ({name: gradients[_GRADIENTS[name]] if name in wanted else None for name in arrays},)


attend.defvjp(_attend_and_keep, _differentiate, symbolic_zeros=True)
