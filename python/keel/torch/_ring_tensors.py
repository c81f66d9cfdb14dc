"""The ring on tensors, for those on a GPU, whose memory keel._core's transports do not reach.

Rank r of P has some rows, one or two stretches of the whole (keel.torch.shard). In step s it computes with the keys of
rank r - s, which come straight from their owner while it computes with those of the step before. Parts are merged, and
gradients summed, in float32, in the order of the steps. A block whose keys no query of the receiver sees does not
travel.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from typing import Any, NamedTuple

import torch
import torch.distributed as dist
from torch import Tensor

from keel import _core
from keel._shard import shard
from keel.torch import _operator as operator
from keel.torch._check import refuse

Options = dict[str, Any]


class Whole(NamedTuple):
    """The whole of which each rank has a part."""

    n_q: int
    n_k: int
    layout: str
    group: Any

    @property
    def rank(self) -> int:
        return dist.get_rank(self.group)

    @property
    def size(self) -> int:
        return dist.get_world_size(self.group)

    def queries(self, rank: int) -> list[range]:
        return shard(self.n_q, self.size, rank, self.layout)

    def keys(self, rank: int) -> list[range]:
        return shard(self.n_k, self.size, rank, self.layout)


class Piece(NamedTuple):
    """Queries and keys that one call computes: rows of this rank's tensors, and where they stand in the whole."""

    rows: slice
    keys: slice  # of a block
    queries_at: range
    keys_at: range
    first: bool  # of these rows


def _sees(queries: range, keys: range, whole: Whole, options: Options) -> bool:
    """Whether a query may see a key, by position; True where only the library can tell."""
    causal, window = options.get("causal"), options.get("window")
    lists = [options.get(name) for name in ("q_lengths", "k_lengths", "q_offsets")]
    if lists[2] is not None or (causal != "top_left" and any(x is not None for x in lists)):
        return True  # each entry has a diagonal of its own
    offset = 0 if causal == "top_left" else whole.n_k - whole.n_q
    left, right = window if window is not None else (2**63 - 1, 2**63 - 1)
    if causal is not None:
        right = min(right, 0)
    return keys[0] <= queries[-1] + offset + right and keys[-1] >= queries[0] + offset - left


def _stretches(parts: list[range]) -> list[tuple[slice, range]]:
    """Where each stretch is in its rank's tensors."""
    found, begin = [], 0
    for part in parts:
        found.append((slice(begin, begin + len(part)), part))
        begin += len(part)
    return found


_NO_KEYS = (slice(0, 0), range(0))


def _pieces(whole: Whole, options: Options, reader: int, owner: int) -> list[Piece]:
    """What rank `reader` computes with the keys of rank `owner`. It begins with its own, at least one piece for each of
    its stretches of queries."""
    found = []
    for rows, queries_at in _stretches(whole.queries(reader)):
        keys = _stretches(whole.keys(owner))
        seen = [part for part in keys if _sees(queries_at, part[1], whole, options)]
        if reader == owner:
            seen = seen or keys[:1] or [_NO_KEYS]
        found += [Piece(rows, part[0], queries_at, part[1], first=reader == owner and part is seen[0]) for part in seen]
    return found


# Along which dimensions an option has this rank's queries, and all keys; None for none.
_ROWS_AND_KEYS: dict[str, tuple[int, int | None]] = {"mask": (-2, -1), "bias": (-2, -1), "scale": (-1, None)}


def cut(name: str, x: Tensor, piece: Piece) -> Tensor:
    """The part of an option, or of its gradient, that belongs to a piece."""
    of_rows, of_keys = _ROWS_AND_KEYS[name]
    for dimension, part in ((of_rows, piece.rows), (of_keys, slice(piece.keys_at.start, piece.keys_at.stop))):
        if dimension is not None and x.dim() >= -dimension and x.shape[dimension] != 1:
            x = x.narrow(dimension, part.start, part.stop - part.start)
    return x


@torch.no_grad()
def check(operation: str, whole: Whole, q: Tensor, k: Tensor, v: Tensor, options: Options) -> None:
    """Raises what the library would, before any work."""
    rows, keys = (sum(map(len, parts)) for parts in (whole.queries(whole.rank), whole.keys(whole.rank)))
    for name, x, size in (("q", q, rows), ("k", k, keys), ("v", v, keys)):
        if x.shape[2] != size:
            refuse(operation, name, f"{size} rows for rank {whole.rank} of {whole.size}", x.shape[2])
    if options.get("block_mask") is not None:
        refuse(operation, "block_mask", "none on a GPU", "one", NotImplementedError)
    for name, (of_rows, of_keys) in _ROWS_AND_KEYS.items():
        option = options.get(name)
        for dimension, size, what in ((of_rows, rows, "this rank's queries"), (of_keys, whole.n_k, "all keys")):
            if not isinstance(option, Tensor) or dimension is None or option.dim() < -dimension:
                continue
            if option.shape[dimension] not in (1, size):
                refuse(operation, name, f"size {size} ({what}) or 1", option.shape[dimension])
    for piece in _pieces(whole, options, whole.rank, whole.rank):
        part = slice(None), slice(None), piece.keys
        _core.explain(q[:, :, piece.rows], k[part], v[part], _options_of(piece, whole, options))


def share(operation: str, group: Any, device: torch.device, mine: Any, failure: str = "") -> list[Any]:
    """What every rank has, in the order of ranks; with a reason in `failure`, all ranks raise it."""
    everything: list[Any] = [None] * dist.get_world_size(group)
    with torch.cuda.device(device) if device.type == "cuda" else contextlib.nullcontext():
        dist.all_gather_object(everything, (mine, failure), group=group)
    for rank, (_, reason) in enumerate(everything):
        if reason:
            raise ValueError(f"[{operation}] rank {rank}: {reason}")
    return [each for each, _ in everything]


def _options_of(piece: Piece, whole: Whole, options: Options) -> Options:
    given = {
        name: cut(name, x, piece) if name in _ROWS_AND_KEYS and isinstance(x, Tensor) else x
        for name, x in options.items()
    }
    given["origin"] = (piece.queries_at.start, piece.keys_at.start, whole.n_q, whole.n_k)
    given.pop("sinks", None)  # they belong to no key
    return given


class _Exchange:
    """One message to a rank and one from another, each of which may be missing."""

    def __init__(self, whole: Whole, tag: int, sent: tuple[int, Tensor] | None, source: int | None, into: Any) -> None:
        self.into = into
        # gloo carries no CUDA tensors from rank to rank: they pass through the memory of the CPU.
        staged = dist.get_backend(whole.group) == "gloo"
        self.arriving = torch.empty_like(into, device="cpu") if staged and source is not None else into
        transfers = []
        if sent is not None:
            to, memory = sent
            self.sent = memory.cpu() if staged else memory
            transfers.append(dist.P2POp(dist.isend, self.sent, group=whole.group, tag=tag, group_peer=to))
        if source is not None:
            transfers.append(dist.P2POp(dist.irecv, self.arriving, group=whole.group, tag=tag, group_peer=source))
        self.requests = dist.batch_isend_irecv(transfers) if transfers else []

    def wait(self) -> None:
        for request in self.requests:
            request.wait()
        if self.arriving is not self.into:
            self.into.copy_(self.arriving)


class _Block:
    """The keys and values of a rank, or their gradients, in one piece of memory that can travel."""

    def __init__(self, memory: Tensor, k: tuple[int, ...], v: tuple[int, ...]) -> None:
        self.memory = memory
        size = torch.Size(k).numel()
        self.k, self.v = memory[:size].view(k), memory[size:].view(v)

    @staticmethod
    def shapes(whole: Whole, owner: int, k: Tensor, v: Tensor) -> tuple[tuple[int, ...], tuple[int, ...]]:
        rows = sum(map(len, whole.keys(owner)))
        return (*k.shape[:2], rows, k.shape[3]), (*v.shape[:2], rows, v.shape[3])

    @classmethod
    def zeros(cls, whole: Whole, owner: int, k: Tensor, v: Tensor, dtype: torch.dtype) -> _Block:
        shapes = cls.shapes(whole, owner, k, v)
        return cls(k.new_zeros(sum(torch.Size(shape).numel() for shape in shapes), dtype=dtype), *shapes)

    @classmethod
    def of(cls, k: Tensor, v: Tensor) -> _Block:
        return cls(torch.cat((k.reshape(-1), v.reshape(-1))), tuple(k.shape), tuple(v.shape))


_KEYS, _GRADIENTS = 0, 1  # tags


class _Tour:
    """The steps of a call: the block of each step, and what to compute with it."""

    def __init__(self, whole: Whole, options: Options, k: Tensor, v: Tensor) -> None:
        self.whole, self.options = whole, options
        self.like = k, v
        self.mine = _Block.of(k, v)

    def _start(self, step: int) -> tuple[_Block | None, _Exchange]:
        """Offers this rank's block to rank r + step, and asks rank r - step for its own."""
        whole = self.whole
        to, source = (whole.rank + step) % whole.size, (whole.rank - step) % whole.size
        wanted = bool(_pieces(whole, self.options, whole.rank, source))
        offered = bool(_pieces(whole, self.options, to, whole.rank))
        block = _Block.zeros(whole, source, *self.like, self.mine.memory.dtype) if wanted else None
        sent = (to, self.mine.memory) if offered else None
        into = None if block is None else block.memory
        return block, _Exchange(whole, _KEYS, sent, source if wanted else None, into)

    def __iter__(self) -> Any:
        """(step, block, pieces) per step; step 0 is this rank's own. Without pieces there is no block."""
        whole = self.whole
        block: _Block | None = self.mine
        for step in range(whole.size):
            coming = self._start(step + 1) if step + 1 < whole.size else None
            pieces = _pieces(whole, self.options, whole.rank, (whole.rank - step) % whole.size)
            yield step, block, pieces
            if coming is not None:
                block, exchange = coming
                exchange.wait()


def forward(whole: Whole, q: Tensor, k: Tensor, v: Tensor, options: Options) -> tuple[Tensor, Tensor]:
    """out, of the dtype of q, and lse."""
    dtype = operator.row_dtype(q.dtype)
    out = q.new_empty((*q.shape[:3], v.shape[3]), dtype=dtype)
    lse = q.new_empty(q.shape[:3], dtype=dtype)
    for _, block, pieces in _Tour(whole, options, k, v):
        for piece in pieces:
            rows, keys = _of(piece.rows), _of(piece.keys)
            so_far = {"out": out[rows], "lse": lse[rows]}
            part = so_far if piece.first else {name: torch.empty_like(x) for name, x in so_far.items()}
            given = _options_of(piece, whole, options)
            _core.attention(q[rows], block.k[keys], block.v[keys], part["out"], given, {"lse": part["lse"]})
            if not piece.first:
                settings = {"threads": options["threads"]}
                _core.merge([so_far, part], so_far["out"], {"lse": so_far["lse"]}, settings)
    if options.get("sinks") is not None:
        _add_sinks(out, lse, options["sinks"])
    return out.to(q.dtype), lse


def _add_sinks(out: Tensor, lse: Tensor, sinks: Tensor) -> None:
    """Logits without values join the rows that see a key."""
    with_sink = torch.logaddexp(lse, sinks.to(lse.dtype)[:, None])
    with_sink = torch.where(lse == -torch.inf, lse, with_sink)
    out *= torch.where(lse == -torch.inf, 1.0, torch.exp(lse - with_sink))[..., None]
    lse.copy_(with_sink)


def _sink_gradient(inputs: Mapping[str, Any], sinks: Tensor) -> Tensor:
    """The weight of each sink, exp(sink - lse), times dlse - out · dout, summed over the rows that see a key."""
    lse = inputs["lse"]
    change = -(inputs["out"].to(lse.dtype) * inputs["dout"].to(lse.dtype)).sum(-1)
    if inputs["dlse"] is not None:
        change = change + inputs["dlse"]
    weight = torch.exp(sinks.to(lse.dtype)[:, None] - lse)
    return torch.where(lse == -torch.inf, 0.0, weight * change).sum((0, 2))


def _of(rows: slice) -> tuple[slice, ...]:
    return slice(None), slice(None), rows


def backward(whole: Whole, inputs: Mapping[str, Any], options: Options, gradients: Mapping[str, Tensor]) -> None:
    """Writes the gradients of this rank's rows. dk and dv are sums over the queries of all ranks, the others over those
    of this one."""
    q, k, v = inputs["q"], inputs["k"], inputs["v"]
    dtype = operator.row_dtype(q.dtype)
    sums = {name: torch.zeros_like(x, dtype=dtype) for name, x in gradients.items() if name not in ("dk", "dv")}
    own = _Block.zeros(whole, whole.rank, k, v, dtype)
    for step, block, pieces in _Tour(whole, options, k, v):
        to, source = (whole.rank - step) % whole.size, (whole.rank + step) % whole.size
        found = own if step == 0 else _Block.zeros(whole, to, k, v, dtype)
        for piece in pieces:
            _add(piece, whole, inputs, options, (sums, block, found))
        if step > 0:
            arriving = torch.empty_like(own.memory) if _pieces(whole, options, source, whole.rank) else None
            sent = (to, found.memory) if pieces else None
            _Exchange(whole, _GRADIENTS, sent, None if arriving is None else source, arriving).wait()
            if arriving is not None:
                own.memory += arriving
    if "dsinks" in sums:
        sums["dsinks"] += _sink_gradient(inputs, options["sinks"])
    sums |= {"dk": own.k, "dv": own.v}
    for name, gradient in gradients.items():
        gradient.copy_(sums[name])


def _add(piece: Piece, whole: Whole, inputs: Mapping[str, Any], options: Options, to: Any) -> None:
    """Adds the gradients of a piece to sums over this rank's queries, and to those of the block."""
    sums, block, found = to
    rows, keys = _of(piece.rows), _of(piece.keys)
    into: dict[str, Any] = {name: x for name, x in sums.items() if name != "dsinks"}
    if "dq" in into:
        into["dq"] = into["dq"][rows]
    into |= {f"d{name}": cut(name, into[f"d{name}"], piece) for name in _ROWS_AND_KEYS if f"d{name}" in into}
    into |= {"dk": found.k[keys], "dv": found.v[keys], "accumulate": True}
    q, out, lse, dout = (inputs[name][rows] for name in ("q", "out", "lse", "dout"))
    dlse = None if inputs["dlse"] is None else inputs["dlse"][rows]
    given = _options_of(piece, whole, options)
    _core.attention_backward(q, block.k[keys], block.v[keys], out, lse, dout, dlse, given, into)
