"""keel.attention_backward: the gradients on arrays."""

from __future__ import annotations

from typing import Any, NamedTuple

from keel import _core
from keel._arrays import check_tensors, integers, maker_for


class Gradients(NamedTuple):
    """The gradients that were asked for, shaped as what they belong to; None for the others."""

    dq: Any = None
    dk: Any = None
    dv: Any = None
    dbias: Any = None
    dscale: Any = None
    dsinks: Any = None


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
    mask: Any = None,
    causal: str | bool | None = None,
    window: tuple[int | None, int | None] | None = None,
    scale: Any = None,
    softcap: float | None = None,
    alibi: Any = None,
    sinks: Any = None,
    dropout: float = 0.0,
    seed: int = 0,
    q_lengths: Any = None,
    k_lengths: Any = None,
    threads: int | None = None,
    bias: Any = None,
    q_offsets: Any = None,
    k_offsets: Any = None,
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
    check_tensors(operation, q=q, k=k, v=v, out=out, lse=lse, dout=dout, dlse=dlse, mask=mask, bias=bias, scale=scale)
    made: dict[str, Any] = {}
    for name in want:
        if name in ("dq", "dk", "dv"):
            source = {"dq": q, "dk": k, "dv": v}[name]
        elif name == "dbias":
            source = mask if bias is None else bias
            if source is None:
                raise ValueError(f"[{operation}] want: expected dbias only beside a bias, got it without one")
        elif name == "dscale":
            if scale is None or isinstance(scale, (int, float)):
                made[name] = maker.row(())
                continue
            source = scale
        elif name == "dsinks":
            if sinks is None:
                raise ValueError(f"[{operation}] want: expected dsinks only beside sinks, got it without them")
            source = sinks
        else:
            raise ValueError(f"[{operation}] want: expected names out of {', '.join(Gradients._fields)}, got {name!r}")
        made[name] = maker.like(source, operation, name[1:])
    results = Gradients(**made)
    _core.attention_backward(
        q,
        k,
        v,
        out,
        lse,
        dout,
        dlse,
        *results,
        mask,
        bias,
        causal,
        window,
        scale,
        softcap,
        alibi,
        sinks,
        dropout,
        seed,
        integers(operation, "q_lengths", q_lengths),
        integers(operation, "k_lengths", k_lengths),
        integers(operation, "q_offsets", q_offsets),
        integers(operation, "k_offsets", k_offsets),
        threads,
    )
    return results
