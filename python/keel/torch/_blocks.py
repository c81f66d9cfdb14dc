"""Masks in tiles and biases by distance for torch: FlexAttention's BlockMask, documents, prefixes, T5's table."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from keel._blocks import Array, BlockMask, Tiling, build
from keel.torch._check import refuse

MaskMod = Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]


def block_mask(
    mask_mod: MaskMod,
    batch: int,
    heads: int,
    n_q: int,
    n_k: int,
    *,
    block: int | tuple[int, int] = 128,
) -> BlockMask:
    """A mask in tiles from one of FlexAttention's mask_mod functions, for `block_mask` of `keel.torch.attention`.

    mask_mod(b, h, q_idx, kv_idx) takes scalars, as in FlexAttention; batch and heads may be 1 for a mask that all
    share. Unlike torch's create_block_mask, this never holds a mask of (n_q, n_k). `block` is the size of a tile, or
    that of its queries and that of its keys.

    >>> import torch, keel.torch
    >>> mask = keel.torch.block_mask(lambda b, h, i, j: (i - j).abs() < 100, 1, 1, 512, 512)
    >>> q = torch.randn(1, 4, 512, 64)
    >>> keel.torch.attention(q, q, q, block_mask=mask).shape
    torch.Size([1, 4, 512, 64])
    """
    return _tensors(build(_tiling(batch, heads, n_q, n_k, block), _visible_by(mask_mod)))


def document_mask(ids: Tensor, *, causal: bool = True, block: int | tuple[int, int] = (128, 256)) -> BlockMask:
    """A mask in tiles in which each token sees only its own document and, with `causal`, no later tokens.

    ids (N,) or (B, N): the document of each token, any integers. Documents whose tokens lie side by side cost about as
    much as the same documents packed. To that end tiles are longer along the keys: a kernel's key block is never longer
    than a tile.

    >>> import torch, keel.torch
    >>> mask = keel.torch.document_mask(torch.tensor([0, 0, 0, 1, 1]))
    >>> q = torch.randn(1, 2, 5, 8)
    >>> keel.torch.attention(q, q, q, block_mask=mask).shape
    torch.Size([1, 2, 5, 8])
    """
    if not isinstance(ids, Tensor) or ids.is_floating_point() or ids.is_complex() or ids.dim() not in (1, 2):
        got = f"{ids.dtype} of {ids.dim()} dimensions" if isinstance(ids, Tensor) else type(ids).__name__
        refuse("document_mask", "ids", "a tensor of integers, (N,) or (B, N)", got, TypeError)
    documents = ids.detach().cpu().reshape(-1, ids.shape[-1]).to(torch.int64).numpy()
    batch, n = documents.shape
    tiling = _tiling(batch, 1, n, n, block)
    padded = np.pad(documents, ((0, 0), (0, tiling.key_blocks * tiling.keys - n)), "edge") if n else documents
    by_block = padded.reshape(batch, tiling.key_blocks, tiling.keys)
    least, most = by_block.min(2), by_block.max(2)  # of each block of keys: ids outside of these are not in it

    def candidates(b: int, _h: int, first: int, last: int) -> tuple[Array, Array]:
        own = documents[b, first : last + 1]
        near = (least[b] <= own.max()) & (most[b] >= own.min())
        if causal:
            near[last // tiling.keys + 1 :] = False
        blocks = np.flatnonzero(near)
        same = (least[b][blocks] == own.max()) & (most[b][blocks] == own.min())
        earlier = (blocks + 1) * tiling.keys <= first + 1
        return blocks, same & (earlier if causal else True)

    def visible(b: int, _h: int, i: Array, j: Array) -> Array:
        same = documents[b, i][:, None] == documents[b, j][None, :]
        result: Array = same & (j[None, :] <= i[:, None]) if causal else same
        return result

    return _tensors(build(tiling, visible, candidates))


def prefix_lm(n: int, prefix: int | Tensor, *, block: int | tuple[int, int] = (128, 256)) -> BlockMask:
    """A mask in tiles over n tokens: each token sees the whole prefix and, beyond it, no later tokens.

    prefix: its length, or a tensor (B,) of one length per batch entry.

    >>> import keel.torch
    >>> mask = keel.torch.prefix_lm(1000, 300)
    """
    lengths = np.atleast_1d(np.asarray(prefix.detach().cpu() if isinstance(prefix, Tensor) else prefix))
    if lengths.ndim != 1 or not np.issubdtype(lengths.dtype, np.integer):
        refuse("prefix_lm", "prefix", "an integer, or a tensor (B,) of integers", repr(prefix), TypeError)
    tiling = _tiling(len(lengths), 1, n, n, block)

    def candidates(b: int, _h: int, first: int, last: int) -> tuple[Array, Array]:
        blocks = np.arange(-(-min(max(last + 1, int(lengths[b])), n) // tiling.keys))
        ends = (blocks + 1) * tiling.keys
        return blocks, (ends <= first + 1) | (ends <= lengths[b])

    def visible(b: int, _h: int, i: Array, j: Array) -> Array:
        result: Array = (j[None, :] <= i[:, None]) | (j[None, :] < lengths[b])
        return result

    return _tensors(build(tiling, visible, candidates))


def t5_table(weight: Tensor, *, bidirectional: bool = True, max_distance: int = 128) -> Tensor:
    """T5's bias of relative positions, for `relative_bias` of `keel.torch.attention`.

    weight (num_buckets, H): T5's relative_attention_bias.weight. Returns (H, 2·max_distance + 1), through which
    gradients flow: the bias of a key at each distance from the query. Encoders are bidirectional, decoders are not.

    >>> import torch, keel.torch
    >>> keel.torch.t5_table(torch.randn(32, 8)).shape
    torch.Size([8, 257])
    """
    if not isinstance(weight, Tensor) or weight.dim() != 2:
        got = tuple(weight.shape) if isinstance(weight, Tensor) else type(weight).__name__
        refuse("t5_table", "weight", "a tensor (num_buckets, H)", got, TypeError)
    if max_distance < 1:
        refuse("t5_table", "max_distance", "at least 1", max_distance)
    buckets = weight.shape[0] // 2 if bidirectional else weight.shape[0]
    exact = buckets // 2
    if exact < 1 or max_distance <= exact:
        refuse("t5_table", "max_distance", f"more than the {exact} exact buckets, at least one of them", max_distance)
    distance = torch.arange(-max_distance, max_distance + 1, device=weight.device)  # key − query
    first = torch.where(distance > 0, buckets, 0) if bidirectional else torch.zeros_like(distance)
    back = distance.abs() if bidirectional else (-distance).clamp(min=0)
    share = torch.log(back.clamp(min=1).float() / exact) / math.log(max_distance / exact)
    far = (exact + (share * (buckets - exact)).long()).clamp(max=buckets - 1)
    return weight[first + torch.where(back < exact, back, far)].t()


def check_block_mask(operation: str, name: str, x: Any) -> list[Tensor]:
    """The arrays of Keel's mask, or of torch's, which is converted once."""
    if is_flex_mask(x):
        x = _from_flex(operation, name, x)
    if not isinstance(x, (tuple, list)) or len(x) != 3:
        expected = "a keel.BlockMask or one of torch.nn.attention.flex_attention"
        refuse(operation, name, expected, type(x).__name__, TypeError)
    return [part if isinstance(part, Tensor) else torch.from_numpy(np.asarray(part)) for part in x]


def is_flex_mask(x: Any) -> bool:
    """Whether it is FlexAttention's, which need not be imported for that."""
    kind = type(x)
    return kind.__name__ == "BlockMask" and kind.__module__ == "torch.nn.attention.flex_attention"


def _from_flex(operation: str, name: str, mask: Any) -> BlockMask:
    known: BlockMask | None = getattr(mask, "_keel", None)
    if known is not None:
        return known
    if mask.kv_indices.device.type != "cpu":
        refuse(operation, name, "a mask on the CPU", f"one on {mask.kv_indices.device}", TypeError)
    batch, heads = mask.kv_num_blocks.shape[:2]
    n_q, n_k = mask.seq_lengths
    tiling = _tiling(batch, heads, n_q, n_k, mask.BLOCK_SIZE)
    counts, indices = mask.kv_num_blocks.numpy(), mask.kv_indices.numpy()
    whole = mask.full_kv_num_blocks is not None
    full_counts = mask.full_kv_num_blocks.numpy() if whole else np.zeros_like(counts)
    full_indices = mask.full_kv_indices.numpy() if whole else indices

    def candidates(b: int, h: int, first: int, _last: int) -> tuple[Array, Array]:
        x = first // tiling.rows
        part = indices[b, h, x, : counts[b, h, x]].astype(np.int64)
        full = full_indices[b, h, x, : full_counts[b, h, x]].astype(np.int64)
        blocks = np.concatenate([part, full])
        order = np.argsort(blocks, kind="stable")
        return blocks[order], (np.arange(len(blocks)) >= len(part))[order]

    mask._keel = _tensors(build(tiling, _visible_by(mask.mask_mod), candidates))
    return mask._keel  # type: ignore[no-any-return]


def _visible_by(mask_mod: MaskMod) -> Any:
    """A mask_mod of scalars over some rows and keys."""
    over_keys = torch.vmap(mask_mod, in_dims=(None, None, None, 0))
    over_both = torch.vmap(over_keys, in_dims=(None, None, 0, None))

    def visible(b: int, h: int, i: Array, j: Array) -> Array:
        seen = over_both(torch.tensor(b), torch.tensor(h), torch.from_numpy(i), torch.from_numpy(j))
        result: Array = seen.to(torch.bool).broadcast_to(len(i), len(j)).numpy()
        return result

    return visible


def _tiling(batch: int, heads: int, n_q: int, n_k: int, block: Any) -> Tiling:
    rows, keys = (block, block) if isinstance(block, int) else block
    for name, number, least in (("batch", batch, 1), ("heads", heads, 1), ("n_q", n_q, 0), ("n_k", n_k, 0)):
        if number < least:
            refuse("block_mask", name, f"at least {least}", number)
    if min(rows, keys) < 1:
        refuse("block_mask", "block", "sizes of at least 1", block)
    return Tiling(batch, heads, n_q, n_k, rows, keys)


def _tensors(mask: BlockMask) -> BlockMask:
    tensors = BlockMask(*(torch.from_numpy(part) for part in mask))
    tensors.lengths = mask.lengths
    return tensors
