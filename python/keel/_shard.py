"""Which rows of a sequence belong to which rank."""

from __future__ import annotations

from keel import _core


def shard(n: int, size: int, rank: int, layout: str = "zigzag") -> list[range]:
    """The rows of rank `rank` of `size`, in the order in which it holds them: one or two ranges.

    layout is "contiguous", or "zigzag": each rank has a part from the front and one from the back, so that
    under a causal mask all ranks have the same work. Any n will do.

    >>> shard(16, 2, 0), shard(16, 2, 1)
    ([range(0, 4), range(12, 16)], [range(4, 12)])
    """
    return [range(*rows) for rows in _core.shard(n, size, rank, layout) if rows[0] < rows[1]]
