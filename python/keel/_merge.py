"""keel.merge: joins results over different keys."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Literal, NamedTuple, overload

from keel import _core
from keel._arrays import check_outputs, check_tensors, maker_for, stream_of
from keel._attention import STATISTICS, AttentionResult, RowStats, new_statistic


class Merged(NamedTuple):
    """out (B, H, N_q, d_v) and lse (B, H, N_q) over the union of the keys."""

    out: Any
    lse: Any


@overload
def merge(
    parts: Sequence[Any],
    *,
    return_stats: Literal[False] = False,
    out: Any = None,
    threads: int | None = None,
    stream: Any = None,
) -> Merged: ...
@overload
def merge(
    parts: Sequence[Any],
    *,
    return_stats: Literal[True],
    out: Any = None,
    threads: int | None = None,
    stream: Any = None,
) -> AttentionResult: ...
@overload
def merge(
    parts: Sequence[Any], *, return_stats: bool, out: Any = None, threads: int | None = None, stream: Any = None
) -> Merged | AttentionResult: ...
def merge(
    parts: Sequence[Any], *, return_stats: bool = False, out: Any = None, threads: int | None = None, stream: Any = None
) -> Merged | AttentionResult:
    """Joins attention of the same queries over disjoint sets of keys into attention over all of them, exactly.

    parts          a sequence of (out, lse), or of what `keel.attention(..., return_lse=True)` returned: out
                   (B, H, N_q, d_v) and lse (B, H, N_q). A sink belongs to no key: give it to one part only.
    return_stats   merges the statistics too; every part needs them (return_stats=True in `keel.attention`). Those per
                   head cannot be merged: `stats.heads` is None
    out            where to write: an array for the output, or (out, lse), or what this function or `keel.attention`
                   returned. It may itself be a part, which is then updated in place
    threads        at most this many; None for all that the process may use
    stream         on a GPU: as in `keel.attention`; by default that of the library of the first part

    Returns Merged(out, lse), or an AttentionResult when return_stats asks for it.

    >>> import keel, numpy as np
    >>> q, k, v = np.random.default_rng(0).standard_normal((3, 1, 2, 6, 8))
    >>> keys = (slice(4), slice(4, 6))
    >>> parts = [keel.attention(q, k[:, :, part], v[:, :, part], return_lse=True) for part in keys]
    >>> bool(np.allclose(keel.merge(parts).out, keel.attention(q, k, v)))
    True
    """
    if not isinstance(parts, Iterable):
        raise TypeError(f"[merge] parts: expected a sequence of (out, lse), got {type(parts).__name__}")
    given = [_arrays_of(f"parts[{i}]", part) for i, part in enumerate(parts)]
    if not given:
        raise ValueError("[merge] parts: expected at least one, got none")
    to = _arrays_of("out", out) if isinstance(out, (tuple, list)) else {"out": out}
    first = given[0]["out"]
    maker, shape = maker_for("merge", "parts[0].out", first, to["out"])
    names = ("lse", *(STATISTICS if return_stats else ()))
    check_outputs("merge", **{name: to.get(name) for name in ("out", *names)})
    merged = maker.empty(shape) if to["out"] is None else to["out"]
    outputs = {}
    for name in names:
        array = to.get(name)
        outputs[name] = new_statistic(maker, name, shape[:-1]) if array is None else array
    settings = {"threads": threads, "stream": stream_of(first) if stream is None else stream}
    _core.merge(given, merged, outputs, settings)
    if not return_stats:
        return Merged(merged, outputs["lse"])
    stats = RowStats._make([*(outputs[name] for name in STATISTICS), None])
    return AttentionResult(merged, outputs["lse"], stats=stats)


def _arrays_of(name: str, part: Any) -> dict[str, Any]:
    """out, lse and the statistics of a part, None for those that it does not have."""
    if not isinstance(part, Iterable):
        raise TypeError(f"[merge] {name}: expected (out, lse), got {type(part).__name__}")
    pair = tuple(part)[:2]
    if len(pair) != 2:
        raise ValueError(f"[merge] {name}: expected (out, lse), got {len(pair)} of them")
    arrays = dict(zip(("out", "lse"), pair))
    stats = getattr(part, "stats", None)
    arrays |= {field: getattr(stats, field, None) for field in STATISTICS}
    check_tensors("merge", **{f"{name}.{field}": array for field, array in arrays.items()})
    return arrays
