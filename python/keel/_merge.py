"""keel.merge: joins results over different keys."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from keel import _core
from keel._arrays import maker_for


class Merged(NamedTuple):
    """out (B, H, N_q, d_v) and lse (B, H, N_q) over the union of the keys."""

    out: Any
    lse: Any


def merge(parts: Sequence[tuple[Any, Any]]) -> Merged:
    """Joins attention of the same queries over disjoint sets of keys into attention over all of them, exactly.

    parts is a sequence of (out, lse) as `keel.attention(..., return_lse=True)` gives them: out (B, H, N_q, d_v) and lse
    (B, H, N_q). A sink belongs to no key: give it to one part only.

    >>> import keel, numpy as np
    >>> q, k, v = np.random.default_rng(0).standard_normal((3, 1, 2, 6, 8))
    >>> keys = (slice(4), slice(4, 6))
    >>> parts = [keel.attention(q, k[:, :, part], v[:, :, part], return_lse=True)[:2] for part in keys]
    >>> bool(np.allclose(keel.merge(parts).out, keel.attention(q, k, v)))
    True
    """
    pairs = [tuple(part)[:2] for part in parts]
    if not pairs:
        raise ValueError("[merge] parts: expected at least one, got none")
    for pair in pairs:
        if len(pair) != 2:
            raise ValueError(f"[merge] parts: expected pairs (out, lse), got {len(pair)} of them")
    maker, shape = maker_for("merge", "parts.out", pairs[0][0])
    result = Merged(maker.empty(shape), maker.row(shape[:-1]))
    _core.merge([out for out, _ in pairs], [lse for _, lse in pairs], result.out, result.lse)
    return result
