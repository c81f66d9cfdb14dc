"""keel.merge: joins results over different keys."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from keel import _core
from keel._arrays import check_tensors, maker_for
from keel._attention import STATISTICS, AttentionResult, RowStats, new_statistic


class Merged(NamedTuple):
    """out (B, H, N_q, d_v) and lse (B, H, N_q) over the union of the keys."""

    out: Any
    lse: Any


def merge(
    parts: Sequence[Any], *, return_stats: bool = False, out: Any = None, threads: int | None = None
) -> Merged | AttentionResult:
    """Joins attention of the same queries over disjoint sets of keys into attention over all of them, exactly.

    parts          a sequence of (out, lse), or of what `keel.attention(..., return_lse=True)` returned: out
                   (B, H, N_q, d_v) and lse (B, H, N_q). A sink belongs to no key: give it to one part only.
    return_stats   merges the statistics too; every part needs them (return_stats=True in `keel.attention`). Those of the
                   heads are not merged: `stats.heads` is None
    out            where to write: an array for the output, or (out, lse), or what this or `keel.attention` returned.
                   It may be a part itself, which is then added to in place
    threads        at most so many; None for all the machine has

    Returns Merged(out, lse), or an AttentionResult when return_stats asks for more.

    >>> import keel, numpy as np
    >>> q, k, v = np.random.default_rng(0).standard_normal((3, 1, 2, 6, 8))
    >>> keys = (slice(4), slice(4, 6))
    >>> parts = [keel.attention(q, k[:, :, part], v[:, :, part], return_lse=True) for part in keys]
    >>> bool(np.allclose(keel.merge(parts).out, keel.attention(q, k, v)))
    True
    """
    if not isinstance(parts, Iterable):
        raise TypeError(f"[merge] parts: expected a sequence of (out, lse), got {type(parts).__name__}")
    rows = [_arrays_of(f"parts[{i}]", part) for i, part in enumerate(parts)]
    if not rows:
        raise ValueError("[merge] parts: expected at least one, got none")
    maker, shape = maker_for("merge", "parts[0].out", rows[0][0])
    to: list[Any] = [out] + [None] * (1 + len(STATISTICS))
    if isinstance(out, (tuple, list)):
        to = _arrays_of("out", out)
        check_tensors("merge", out=to[0])
    if to[0] is None:
        to[0] = maker.empty(shape)
    if to[1] is None:
        to[1] = maker.row(shape[:-1])
    for i, name in enumerate(STATISTICS, 2):
        if not return_stats:
            to[i] = None
        elif to[i] is None:
            to[i] = new_statistic(maker, name, shape[:-1])
    _core.merge(rows, to, threads)
    if not return_stats:
        return Merged(to[0], to[1])
    return AttentionResult(to[0], to[1], None, RowStats(*to[2:], None))


def _arrays_of(name: str, part: Any) -> list[Any]:
    """out, lse and the statistics of a part, None for those that it does not have."""
    if not isinstance(part, Iterable):
        raise TypeError(f"[merge] {name}: expected (out, lse), got {type(part).__name__}")
    pair = tuple(part)[:2]
    if len(pair) != 2:
        raise ValueError(f"[merge] {name}: expected (out, lse), got {len(pair)} of them")
    check_tensors("merge", **{f"{name}.out": pair[0], f"{name}.lse": pair[1]})
    stats = getattr(part, "stats", None)
    return [*pair, *(getattr(stats, field, None) for field in STATISTICS)]
