"""keel.attention_backward: the gradients on arrays."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, NamedTuple

from keel import _core
from keel._arrays import check_outputs, check_tensors, maker_for, prepare
from keel._options import TABLE, ArrayOptions, source_of, takes

if TYPE_CHECKING:
    from typing_extensions import Unpack


class Gradients(NamedTuple):
    """The gradients that were asked for, each shaped like what it belongs to; None for the others."""

    dq: Any = None
    dk: Any = None
    dv: Any = None
    dbias: Any = None
    dscale: Any = None
    dsinks: Any = None
    drelative_bias: Any = None


OF_TENSORS = ("dq", "dk", "dv")
OF_OPTIONS = tuple(name for name in Gradients._fields if name not in OF_TENSORS)


def gradient_sources(
    operation: str, want: Any, tensors: tuple[Any, Any, Any], options: Any, names: tuple[str, ...] = Gradients._fields
) -> dict[str, Any]:
    """What each gradient is taken with respect to; None for the default scale. `names` are all those that `want` may
    have."""
    if isinstance(want, str) or not isinstance(want, Iterable):
        raise TypeError(f"[{operation}] want: expected a sequence of names, got {want!r}")
    sources: dict[str, Any] = {}
    for gradient in want:
        if gradient not in Gradients._fields:
            known = ", ".join(names)
            raise ValueError(f"[{operation}] want: expected names from {known}, got {gradient!r}")
        source = dict(zip(OF_TENSORS, tensors)).get(gradient)
        if source is None:
            source = source_of(gradient, options)
        if source is None and gradient != "dscale":
            beside = " or ".join(name for name, option in TABLE.items() if option.gradient == gradient)
            raise ValueError(f"[{operation}] want: expected {gradient} only together with {beside}, got it alone")
        sources[gradient] = source
    return sources


@takes(ArrayOptions)
def attention_backward(
    q: Any,
    k: Any,
    v: Any,
    out: Any,
    lse: Any,
    dout: Any,
    *,
    dlse: Any = None,
    want: tuple[str, ...] | None = None,
    into: Gradients | None = None,
    accumulate: bool = False,
    **options: Unpack[ArrayOptions],
) -> Gradients:
    """The gradients of `keel.attention` with respect to its inputs, from dout, the gradient with respect to its output.

    q, k, v and the options are those of the forward call; out and lse are what it returned (return_lse=True). dlse is
    the gradient with respect to lse, if lse was used. Shapes: dout like out (B, H_q, N_q, d_v), dlse like lse
    (B, H_q, N_q).

    `want` names the gradients to compute: any of dq, dk, dv, dbias (of bias, or of a mask of numbers), dscale, dsinks
    and drelative_bias; by default the first three. Each has the shape and dtype of what it belongs to; dscale of a
    scale that is a number has no dimensions.

    `into`, instead of `want`, holds the arrays to write to: keel.Gradients(dq=..., dv=...) asks for these two. They may
    be float32 for 16-bit inputs. accumulate=True adds to what they hold, which sums the gradients over slices of the
    keys (`origin`); out and lse are then those over all keys.

    >>> import keel, numpy as np
    >>> q, k, v, dout = np.random.default_rng(0).standard_normal((4, 1, 2, 5, 8))
    >>> out, lse, *_ = keel.attention(q, k, v, return_lse=True)
    >>> keel.attention_backward(q, k, v, out, lse, dout).dq.shape
    (1, 2, 5, 8)
    """
    operation = "attention_backward"
    maker, _ = maker_for(operation, "q", q, out)
    check_tensors(operation, q=q, k=k, v=v, out=out, lse=lse, dout=dout, dlse=dlse)
    prepare(operation, options, q, k)
    if into is None:
        if accumulate:
            raise ValueError(f"[{operation}] accumulate: expected arrays to add to (into), got none")
        want = OF_TENSORS if want is None else want
        into = _make(maker, operation, gradient_sources(operation, want, (q, k, v), options))
    elif want is not None:
        raise ValueError(f"[{operation}] want: expected None together with into, got {want!r}")
    elif not isinstance(into, Gradients):
        raise TypeError(f"[{operation}] into: expected keel.Gradients, got {type(into).__name__}")
    else:
        check_outputs(operation, **into._asdict())
    _core.attention_backward(q, k, v, out, lse, dout, dlse, options, {**into._asdict(), "accumulate": accumulate})
    return into


def _make(maker: Any, operation: str, sources: dict[str, Any]) -> Gradients:
    return Gradients(**{name: make_gradient(maker, operation, name, source) for name, source in sources.items()})


def make_gradient(maker: Any, operation: str, gradient: str, source: Any) -> Any:
    is_number = source is None or isinstance(source, (int, float))  # a scale
    return maker.row(()) if is_number else maker.like(source, operation, gradient[1:])
