"""keel.jax.attention: reads the arguments, and checks them while JAX traces."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, overload

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

import keel
from keel._arrays import check_out_dtype
from keel._attention import COUNTS, STATISTICS, AttentionResult, RowStats
from keel._options import JaxOptions, refuse_unknown, takes
from keel.jax._arguments import array_of, attributes_of, padded, read, stub
from keel.jax._call import Call, attend

if TYPE_CHECKING:
    from typing_extensions import Unpack

_OPERATION = "attention"
_NAMES = tuple(JaxOptions.__annotations__)


class JaxSettings(JaxOptions, total=False):
    """The other arguments of `keel.jax.attention`, for its overloads."""

    out_dtype: Any


@overload
def attention(
    q: Any,
    k: Any,
    v: Any,
    *,
    return_lse: Literal[False] = False,
    return_stats: Literal[False] = False,
    **settings: Unpack[JaxSettings],
) -> Array: ...
@overload
def attention(
    q: Any,
    k: Any,
    v: Any,
    *,
    return_lse: Literal[True],
    return_stats: bool = False,
    **settings: Unpack[JaxSettings],
) -> AttentionResult: ...
@overload
def attention(
    q: Any,
    k: Any,
    v: Any,
    *,
    return_lse: bool = False,
    return_stats: Literal[True],
    **settings: Unpack[JaxSettings],
) -> AttentionResult: ...
@overload
def attention(
    q: Any,
    k: Any,
    v: Any,
    *,
    return_lse: bool = False,
    return_stats: bool = False,
    **settings: Unpack[JaxSettings],
) -> Any: ...
@takes(JaxOptions)
def attention(
    q: Any,
    k: Any,
    v: Any,
    *,
    return_lse: bool = False,
    return_stats: bool = False,
    out_dtype: Any = None,
    **options: Unpack[JaxOptions],
) -> Any:
    """`keel.attention` for JAX: differentiable, by jax.grad and jax.vjp, with respect to q, k, v, bias (or a mask of
    numbers), a scale that is an array, relative_bias, and sinks; and under jit and vmap.

    Shapes: q (B, H_q, N_q, d_k), k (B, H_kv, N_k, d_k), v (B, H_kv, N_k, d_v), result (B, H_q, N_q, d_v); B, or B and
    H, may be missing from all three. The options and their shapes are those of keel.attention. Options that are
    numbers, names or tuples are constants of the compiled function; arrays may be traced. `seed` is an integer, an
    array of one, or a key of jax.random; work on a GPU goes to the stream of XLA. out_dtype is the dtype of the result:
    that of q, or float32 for 16-bit inputs.

    Returns the output, or a keel.AttentionResult when asked for lse (B, H_q, N_q), which can be differentiated through,
    or for the statistics of the rows, which cannot; its counts are int32, and there is no summary per head.

    Wrong arguments raise TypeError or ValueError when the call is traced. The values of traced lengths and offsets are
    seen only when it runs: on the CPU a wrong one is then an error of XLA, which JAX raises with the same text.

    >>> import jax, keel.jax
    >>> q, k, v = jax.random.normal(jax.random.key(0), (3, 1, 4, 16, 32))
    >>> loss = lambda q, sinks: keel.jax.attention(q, k, v, causal=True, sinks=sinks).sum()
    >>> dq, dsinks = jax.jit(jax.grad(loss, argnums=(0, 1)))(q, jax.numpy.zeros(4))
    >>> dq.shape, dsinks.shape
    ((1, 4, 16, 32), (4,))
    """
    for name in options:
        if name not in _NAMES:
            refuse_unknown(_OPERATION, name, _NAMES)
    tensors = {name: array_of(name, x) for name, x in (("q", q), ("k", k), ("v", v))}
    arrays, constants, stubs = read(tensors, {name: value for name, value in options.items() if value is not None})
    keel.explain(*map(stub, tensors.values()), **stubs)
    dtype = tensors["q"].dtype
    if out_dtype is not None:
        floats = np.dtype(np.float64 if dtype == np.float64 else np.float32)
        dtype = check_out_dtype(_OPERATION, jnp.dtype(out_dtype), (dtype, floats))
    call = Call(attributes_of(constants), dtype, bool(return_lse), bool(return_stats))
    results = attend(call, {**{name: padded(x, 4) for name, x in tensors.items()}, **arrays})
    rows = tensors["q"].shape[:-1]
    out = results["out"].reshape(*rows, tensors["v"].shape[-1])
    if not (return_lse or return_stats):
        return out
    lse = results["lse"].reshape(rows) if return_lse else None
    return AttentionResult(out, lse, stats=_statistics(results, rows) if return_stats else None)


def _statistics(results: dict[str, Any], rows: tuple[int, ...]) -> RowStats:
    words = {name: results[name][..., 0] if name in COUNTS else results[name] for name in STATISTICS}
    return RowStats(**{name: jax.lax.stop_gradient(x.reshape(rows)) for name, x in words.items()}, heads=None)
