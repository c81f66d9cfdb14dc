"""keel.attention_backward: the gradients on arrays."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from keel import _core
from keel._arrays import check_tensors, maker_for, prepare
from keel._options import TABLE, ArrayOptions, source_of, takes

if TYPE_CHECKING:
    from typing_extensions import Unpack


class Gradients(NamedTuple):
    """The gradients that were asked for, shaped as what they belong to; None for the others."""

    dq: Any = None
    dk: Any = None
    dv: Any = None
    dbias: Any = None
    dscale: Any = None
    dsinks: Any = None


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
    want: tuple[str, ...] = ("dq", "dk", "dv"),
    **options: Unpack[ArrayOptions],
) -> Gradients:
    """The gradients of `keel.attention` by its inputs, from dout, the gradient by its output.

    q, k, v and the options are those of the forward call; out and lse are what it returned (return_lse=True). dlse is
    the gradient by lse, where that was used. Shapes: dout as out (B, H_q, N_q, d_v), dlse as lse (B, H_q, N_q).

    `want` names the gradients to compute: dq, dk, dv, dbias (of bias, or of a mask of numbers), dscale, dsinks. Each
    has the shape and dtype of what it belongs to; dscale of a scale that is a number has no dimensions.

    >>> import keel, numpy as np
    >>> q, k, v, dout = np.random.default_rng(0).standard_normal((4, 1, 2, 5, 8))
    >>> out, lse, *_ = keel.attention(q, k, v, return_lse=True)
    >>> keel.attention_backward(q, k, v, out, lse, dout).dq.shape
    (1, 2, 5, 8)
    """
    operation = "attention_backward"
    maker, _ = maker_for(operation, "q", q)
    check_tensors(operation, q=q, k=k, v=v, out=out, lse=lse, dout=dout, dlse=dlse)
    prepare(operation, options)
    made: dict[str, Any] = {}
    for gradient in want:
        if gradient not in Gradients._fields:
            known = ", ".join(Gradients._fields)
            raise ValueError(f"[{operation}] want: expected names out of {known}, got {gradient!r}")
        source = {"dq": q, "dk": k, "dv": v}.get(gradient)
        if source is None:
            source = source_of(gradient, options)
        if gradient == "dscale" and (source is None or isinstance(source, (int, float))):
            made[gradient] = maker.row(())  # of the number that is the default, too
            continue
        if source is None:
            sources = " or ".join(name for name, option in TABLE.items() if option.gradient == gradient)
            raise ValueError(f"[{operation}] want: expected {gradient} only beside {sources}, got it without")
        made[gradient] = maker.like(source, operation, gradient[1:])
    _core.attention_backward(q, k, v, out, lse, dout, dlse, options, made)
    return Gradients(**made)
