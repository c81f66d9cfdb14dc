"""Times a row: Keel and torch alternately, in one process, on the same tensors and threads."""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.nn.functional as F

import keel.torch
from keel.bench.grid import Row

TORCH_DTYPES = {"f32": torch.float32, "bf16": torch.bfloat16}


@dataclass(frozen=True)
class Result:
    row: Row
    threads: int
    torch_s: float  # median seconds per call
    keel_s: float
    ratio: float  # how many times as fast Keel is: the median over rounds, each of which times both
    low: float  # its 95 % interval; with fewer than six rounds, the whole range
    high: float
    rounds: int

    @property
    def margin(self) -> float:
        """Half of the interval, relative to the ratio."""
        return (self.high - self.low) / (2 * self.ratio)


def _repeated(x: torch.Tensor, times: int) -> torch.Tensor:
    return x.repeat_interleave(times, 1)


def calls(row: Row) -> tuple[list[Callable[[], object]], Callable[[], object]]:
    """The ways to do the row's work with torch, of which the fastest counts, and the one with Keel."""
    generator = torch.Generator().manual_seed(0)
    dtype = TORCH_DTYPES[row.dtype]
    gradients = row.passes == "forward+backward"

    def tensor(heads: int, n: int) -> torch.Tensor:
        return torch.randn((row.batch, heads, n, row.d), generator=generator).to(dtype).requires_grad_(gradients)

    q, k, v = tensor(row.heads, row.n_q), tensor(row.kv_heads, row.n_k), tensor(row.kv_heads, row.n_k)
    options: dict[str, object] = {"is_causal": row.causal}
    if row.kind == "bool mask":
        mask = torch.rand((1, 1, row.n_q, row.n_k), generator=generator) < 0.8
        mask[..., 0] = True
        options["attn_mask"] = mask
    elif row.kind == "padding":
        options["attn_mask"] = (torch.arange(row.n_k) < row.n_k * 3 // 4).view(1, 1, 1, row.n_k)
    elif row.kind == "bias":
        options["attn_mask"] = torch.randn((1, row.heads, row.n_q, row.n_k), generator=generator).to(dtype)
    group = row.heads // row.kv_heads
    dout = torch.randn((row.batch, row.heads, row.n_q, row.d), generator=generator).to(dtype)

    def work(function: Callable[..., torch.Tensor], repeat: bool, **more: object) -> Callable[[], object]:
        def forward() -> torch.Tensor:
            if repeat:
                return function(q, _repeated(k, group), _repeated(v, group), **options)
            return function(q, k, v, **options, **more)

        def both() -> object:
            return torch.autograd.grad(forward(), (q, k, v), dout)

        return both if gradients else forward

    theirs = F.scaled_dot_product_attention
    if group == 1:
        return [work(theirs, False)], work(keel.torch.scaled_dot_product_attention, False)
    return (
        [work(theirs, False, enable_gqa=True), work(theirs, True)],
        work(keel.torch.scaled_dot_product_attention, False, enable_gqa=True),
    )


def _seconds(call: Callable[[], object], count: int = 1) -> float:
    """Seconds per call, over `count` calls."""
    begin = time.perf_counter()
    for _ in range(count):
        call()
    return (time.perf_counter() - begin) / count


def interval(values: list[float]) -> tuple[float, float]:
    """The two values between which the true median lies with 95 % confidence; the extremes if there are few values."""
    ordered = sorted(values)
    first = max(0, math.floor(len(ordered) / 2 - 0.98 * math.sqrt(len(ordered))) - 1)
    return ordered[first], ordered[-1 - first]


LONG = 0.5  # seconds: a first call that takes longer is like any other
MARGIN = 0.02  # to which a ratio should be known
PATIENCE, PATIENCE_NEAR_1 = 8, 64  # how many times as long to try for it, and while it may be either side of 1


def measure(row: Row, threads: int, seconds: float) -> Result:
    """Medians over alternating blocks, for `seconds` and at least three rounds; then for twice as long, and so on,
    until it is known on which side of 1 the ratio is, and its size to MARGIN. Looking so rarely gives chance few
    opportunities to end it early.
    """
    torch.set_num_threads(threads)
    peers, ours = calls(row)

    def settled(call: Callable[[], object]) -> float:
        first = _seconds(call)
        return first if first > LONG else _seconds(call)

    peer = min(peers, key=settled) if len(peers) > 1 else peers[0]
    pair = (peer, ours)
    once = [settled(call) for call in pair]
    warm = max(once) <= LONG
    # Blocks are long enough for the clock and for effects of the first calls to fade, short enough for many rounds.
    counts = [max(1, math.ceil(min(0.02, seconds / 20) / max(each, 1e-7))) for each in once]
    times: tuple[list[float], list[float]] = ([], [])
    begin, limit = time.perf_counter(), seconds
    while True:
        while len(times[0]) < 3 or time.perf_counter() - begin < limit:
            for side in (0, 1) if len(times[0]) % 2 == 0 else (1, 0):
                if warm:
                    pair[side]()  # the caches still hold the other library's data
                times[side].append(_seconds(pair[side], counts[side]))
        ratios = [theirs / ours_s for theirs, ours_s in zip(*times)]
        torchs, keels, ratio = (statistics.median(values) for values in (*times, ratios))
        low, high = interval(ratios)
        result = Result(row, threads, torchs, keels, ratio, low, high, len(ratios))
        told = not result.low <= 1 <= result.high
        known = result.rounds >= 6 and result.margin <= MARGIN
        if limit >= seconds * (PATIENCE_NEAR_1 if not told else 1 if known else PATIENCE):
            return result
        limit *= 2


def differ(row: Row) -> float:
    """The largest difference between the two results of a row, relative to the largest value."""
    peers, ours = calls(row)
    theirs, mine = (x if isinstance(x, tuple) else (x,) for x in (peers[0](), ours()))
    pairs = [(a.float(), b.float()) for a, b in zip(mine, theirs)]
    return max(float((a - b).abs().max() / b.abs().max()) for a, b in pairs)
