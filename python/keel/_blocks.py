"""Masks in tiles: which blocks of keys each block of queries sees, and the tiles that it sees in part."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

Array = np.ndarray[Any, np.dtype[Any]]


class _Arrays(NamedTuple):
    offsets: Any
    blocks: Any
    tiles: Any


class BlockMask(_Arrays):
    """A mask of which only the tiles that hide some of their pairs are stored; see `keel.block_mask`.

    Scores are cut into tiles of R queries by C keys. A tile that is not listed is hidden, and costs nothing.

    offsets   (B, H_q, X + 1) int64, B and H_q may be 1: where in `blocks` each of the X blocks of queries has its list
    blocks    (L, 2) int64: a block of keys, ascending in each list, and its tile, or -1 if everything is visible there
    tiles     (T, R, C) bool, True = attend
    """

    lengths: tuple[int, int] | None = None  # how many queries and keys it was made for, if that is known


def check_lengths(operation: str, mask: Any, n_q: int, n_k: int) -> None:
    """ValueError if the mask, Keel's or FlexAttention's, was made for other lengths. The arrays alone cannot tell: what
    lies beyond the last query or key in its tile is hidden."""
    made_for = getattr(mask, "lengths", None) or getattr(mask, "seq_lengths", None)
    if made_for is not None and tuple(made_for) != (n_q, n_k):
        raise ValueError(
            f"[{operation}] block_mask: expected a mask of {n_q} queries and {n_k} keys, as in q and k, "
            f"got one of {made_for[0]} and {made_for[1]}"
        )


class Tiling(NamedTuple):
    """What a mask covers."""

    batch: int
    heads: int
    n_q: int
    n_k: int
    rows: int  # of a tile
    keys: int

    @property
    def key_blocks(self) -> int:
        return -(-self.n_k // self.keys)


# visible(b, h, rows, keys): which of the keys each of the rows sees, (rows, keys).
Visible = Callable[[int, int, Array, Array], Array]
# candidates(b, h, first, last): blocks of keys outside of which queries first to last see nothing, and which of these
# are known to be visible as a whole.
Candidates = Callable[[int, int, int, int], tuple[Array, Array]]


def build(tiling: Tiling, visible: Visible, candidates: Candidates | None = None) -> BlockMask:
    """The mask, evaluated once per tile. Takes memory for one block of queries at a time, and for the tiles that are
    kept; equal ones are kept once."""
    batch, heads, n_q, n_k, rows, keys = tiling
    lists: list[Array] = []
    ends = [0]
    tiles: dict[bytes, int] = {}
    in_order = np.arange(tiling.key_blocks, dtype=np.int64)
    nothing_known = np.zeros(tiling.key_blocks, bool)
    for b in range(batch):
        for h in range(heads):
            for first in range(0, n_q, rows):
                queries = np.arange(first, min(first + rows, n_q))
                blocks, full = in_order, nothing_known
                if candidates is not None:
                    blocks, full = candidates(b, h, first, int(queries[-1]))
                seen_by = functools.partial(visible, b, h, queries)
                lists.append(_list_of(tiling, blocks, full, seen_by, len(queries), tiles))
                ends.append(ends[-1] + len(lists[-1]))
            if (b, h) != (batch - 1, heads - 1):
                ends.append(ends[-1])
    blocks_q = -(-n_q // rows)
    offsets = np.array(ends, np.int64).reshape(batch, heads, blocks_q + 1)
    bits = b"".join(tiles)
    packed = np.frombuffer(bits, np.uint8).reshape(len(tiles), -(-rows * keys // 8))
    kept = np.unpackbits(packed, axis=1, count=rows * keys).reshape(len(tiles), rows, keys).view(bool)
    found = np.concatenate([*lists, np.empty((0, 2), np.int64)])
    mask = BlockMask(offsets, found, kept)
    mask.lengths = (n_q, n_k)
    return mask


def _list_of(
    tiling: Tiling, blocks: Array, full: Array, visible: Callable[[Array], Array], queries: int, tiles: dict[bytes, int]
) -> Array:
    """The entries of one block of queries; new tiles join `tiles`, by their bits."""
    _, _, _, n_k, rows, keys = tiling
    asked = blocks[~full]
    bits = np.zeros((rows, len(asked), keys), bool)
    at = (asked[:, None] * keys + np.arange(keys)).reshape(-1)
    inside = at < n_k
    bits.reshape(rows, -1)[:queries, inside] = visible(at[inside])
    seen = bits.sum((0, 2))
    pairs = queries * np.minimum(keys, n_k - asked * keys)
    which = np.full(len(blocks), -1, np.int64)
    places = np.flatnonzero(~full)
    for place in np.flatnonzero((seen > 0) & (seen < pairs)):
        which[places[place]] = tiles.setdefault(np.packbits(bits[:, place]).tobytes(), len(tiles))
    keep = np.ones(len(blocks), bool)
    keep[places[seen == 0]] = False
    return np.stack([blocks, which], 1)[keep]


def block_mask(
    mask_mod: Callable[[int, int, Array, Array], Any],
    batch: int,
    heads: int,
    n_q: int,
    n_k: int,
    *,
    block: int | tuple[int, int] = 128,
) -> BlockMask:
    """A mask in tiles from a function of positions, for `block_mask` of `keel.attention`.

    mask_mod(b, h, i, j) tells which keys j (1, C) each query i (R, 1) of head h of batch entry b sees: an array that
    broadcasts to (R, C). It is called once per block of queries, with all keys. batch and heads may be 1 for a mask
    that all share. `block` is the size of a tile, or that of its queries and that of its keys.

    >>> import keel
    >>> mask = keel.block_mask(lambda b, h, i, j: (j <= i) | (j < 200), 1, 1, 1024, 1024)  # a prefix of 200 tokens
    >>> len(mask.blocks), mask.tiles.shape
    (37, (3, 128, 128))
    """
    rows, keys = (block, block) if isinstance(block, int) else block
    for name, number, least in (("batch", batch, 1), ("heads", heads, 1), ("n_q", n_q, 0), ("n_k", n_k, 0)):
        if number < least:
            raise ValueError(f"[block_mask] {name}: expected at least {least}, got {number}")
    if min(rows, keys) < 1:
        raise ValueError(f"[block_mask] block: expected sizes of at least 1, got {block!r}")

    def visible(b: int, h: int, i: Array, j: Array) -> Array:
        return np.broadcast_to(np.asarray(mask_mod(b, h, i[:, None], j[None, :]), bool), (len(i), len(j)))

    return build(Tiling(batch, heads, n_q, n_k, rows, keys), visible)
