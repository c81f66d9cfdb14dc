"""keel.attention_jvp and keel.attention_double_backward: derivatives along a direction, and second derivatives."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from keel import _core
from keel._arrays import check_tensors, maker_for, prepare
from keel._backward import OF_TENSORS, gradient_sources, make_gradient
from keel._options import ArrayOptions, takes

if TYPE_CHECKING:
    from typing_extensions import Unpack


class Tangents(NamedTuple):
    """A direction: what each input moves by, in its shape; None for those that stay."""

    tq: Any = None
    tk: Any = None
    tv: Any = None
    tbias: Any = None
    tscale: Any = None
    tsinks: Any = None


class Jvp(NamedTuple):
    """What the results move by: tout like out, tlse like lse."""

    tout: Any
    tlse: Any


class DoubleGradients(NamedTuple):
    """The gradients that were asked for, each shaped like what it belongs to; None for the others."""

    dq: Any = None
    dk: Any = None
    dv: Any = None
    dbias: Any = None
    dscale: Any = None
    dsinks: Any = None
    ddout: Any = None
    ddlse: Any = None


OF_GRADIENTS = ("ddout", "ddlse")


def _given(maker: Any, operation: str, tangents: Any) -> dict[str, Any]:
    """The tangents as the compiled part takes them."""
    if not isinstance(tangents, Tangents):
        raise TypeError(f"[{operation}] tangents: expected keel.Tangents, got {type(tangents).__name__}")
    arrays = {name: array for name, array in tangents._asdict().items() if array is not None}
    if isinstance(arrays.get("tscale"), (int, float)):  # of a scale that is a number
        number = maker.row(())
        number[...] = arrays["tscale"]
        arrays["tscale"] = number
    check_tensors(operation, **arrays)
    return arrays


@takes(ArrayOptions)
def attention_jvp(
    q: Any, k: Any, v: Any, out: Any, lse: Any, tangents: Tangents, **options: Unpack[ArrayOptions]
) -> Jvp:
    """The derivative of `keel.attention` along a direction: by how much its results move where its inputs move by
    `tangents`, to first order (a Jacobian-vector product), in one pass over the keys.

    q, k, v and the options are those of the forward call; out and lse are what it returned (return_lse=True).
    `tangents` has the shapes of the inputs: keel.Tangents(tq=..., tv=...) moves these two. tbias belongs to bias, or to
    a mask of numbers; tscale may be a number where the scale is one.

    >>> import keel, numpy as np
    >>> q, k, v, tq = np.random.default_rng(0).standard_normal((4, 1, 2, 5, 8))
    >>> out, lse, *_ = keel.attention(q, k, v, return_lse=True)
    >>> keel.attention_jvp(q, k, v, out, lse, keel.Tangents(tq=tq)).tout.shape
    (1, 2, 5, 8)
    """
    operation = "attention_jvp"
    maker, _ = maker_for(operation, "q", q, out)
    check_tensors(operation, q=q, k=k, v=v, out=out, lse=lse)
    prepare(operation, options, q, k)
    along = _given(maker, operation, tangents)
    jvp = Jvp(maker.like(out, operation, "out"), maker.like(lse, operation, "lse"))
    _core.attention_jvp(q, k, v, out, lse, options, along, jvp._asdict())
    return jvp


@takes(ArrayOptions)
def attention_double_backward(
    q: Any,
    k: Any,
    v: Any,
    out: Any,
    lse: Any,
    dout: Any,
    tangents: Tangents,
    *,
    dlse: Any = None,
    want: tuple[str, ...] = (*OF_TENSORS, "ddout"),
    **options: Unpack[ArrayOptions],
) -> DoubleGradients:
    """The gradients of `keel.attention_backward` with respect to its inputs: second derivatives of attention.

    `tangents` holds the gradients of a loss with respect to what attention_backward returned: tq with respect to dq, tk
    to dk and so on. The other arguments are those of that call. As the Hessian is symmetric, dq, dk, dv, dbias, dscale
    and dsinks are also what the gradients move by where the inputs move by `tangents`: a product of the Hessian and a
    vector. ddout is the gradient with respect to dout, and ddlse that with respect to dlse.

    `want` names the gradients to compute; each has the shape and dtype of what it belongs to.

    >>> import keel, numpy as np
    >>> q, k, v, dout, tq = np.random.default_rng(0).standard_normal((5, 1, 2, 5, 8))
    >>> out, lse, *_ = keel.attention(q, k, v, return_lse=True)
    >>> keel.attention_double_backward(q, k, v, out, lse, dout, keel.Tangents(tq=tq)).dk.shape
    (1, 2, 5, 8)
    """
    operation = "attention_double_backward"
    maker, _ = maker_for(operation, "q", q, out)
    check_tensors(operation, q=q, k=k, v=v, out=out, lse=lse, dout=dout, dlse=dlse)
    prepare(operation, options, q, k)
    along = _given(maker, operation, tangents)
    rest = want if isinstance(want, str) else [name for name in want if name not in OF_GRADIENTS]
    sources = gradient_sources(operation, rest, (q, k, v), options, DoubleGradients._fields)
    made = {name: make_gradient(maker, operation, name, source) for name, source in sources.items()}
    for name, like in zip(OF_GRADIENTS, (out, lse)):
        if name in want:
            made[name] = maker.like(like, operation, name[1:])
    _core.attention_double_backward((q, k, v, out, lse, dout, dlse), options, along, made)
    return DoubleGradients(**made)
