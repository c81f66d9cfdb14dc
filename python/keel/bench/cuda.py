"""The benchmark on a GPU: Keel and each of torch's kernels in turn, in one process, timed by the GPU's own clock."""

from __future__ import annotations

import contextlib
import statistics
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

import keel
import keel.torch
from keel.bench.grid import Row
from keel.bench.report import geometric_mean
from keel.torch import _short

TOKENS, WIDTH = 16384, 2048
DTYPES = {"bf16": torch.bfloat16, "f16": torch.float16}
PEERS = {
    "cuDNN": SDPBackend.CUDNN_ATTENTION,
    "FlashAttention-2": SDPBackend.FLASH_ATTENTION,
    "efficient": SDPBackend.EFFICIENT_ATTENTION,
}
COLUMNS = ("keel", "keel + statistics", *PEERS)
CALLS = 4  # per sample


def rows() -> Iterator[Row]:
    """16,384 tokens of 2048 numbers; then masks, grouped heads, decoding, and a call that is all overhead."""
    for passes in ("forward", "forward+backward"):
        for dtype in DTYPES:
            for d in (64, 128, 256):
                for kind in ("full", "causal"):
                    for n in (512, 1024, 2048, 4096, 8192, 16384):
                        yield Row(passes, kind, dtype, d, n, n, TOKENS // n, WIDTH // d, WIDTH // d)
            for kind in ("bool mask", "bias"):
                yield Row(passes, kind, dtype, 128, 4096, 4096, 4, 16, 16)
            yield Row(passes, "grouped", dtype, 128, 4096, 4096, 4, 32, 8)
            yield Row(passes, "overhead", dtype, 64, 128, 128, 1, 8, 8)
    for dtype in DTYPES:
        yield Row("forward", "grouped decode", dtype, 128, 1, 32768, 16, 32, 8)


def quick_rows() -> Iterator[Row]:
    for row in rows():
        if row.dtype == "bf16" and row.d == 128 and row.n_k in (512, 4096, 16384):
            yield row


@dataclass(frozen=True)
class Times:
    row: Row
    seconds: dict[str, float | None]  # the median per call, by column; None for what does not serve the row

    @property
    def fastest(self) -> float | None:
        """Of torch's."""
        return min((s for name in PEERS if (s := self.seconds[name]) is not None), default=None)

    @property
    def ratio(self) -> float | None:
        """How many times as fast Keel is as the fastest of torch's kernels."""
        ours = self.seconds["keel"]
        return None if self.fastest is None or ours is None else self.fastest / ours

    @property
    def flops(self) -> float:
        """4·d per score, half of the scores if causal; 3.5 times as many with the backward pass."""
        r = self.row
        scores = r.batch * r.heads * r.n_q * r.n_k * (0.5 if r.causal else 1.0)
        return 4 * scores * r.d * (1.0 if r.passes == "forward" else 3.5)


def calls(row: Row) -> dict[str, Callable[[], Any]]:
    """The row's work by each column."""
    generator = torch.Generator("cuda").manual_seed(0)
    dtype, gradients = DTYPES[row.dtype], row.passes == "forward+backward"

    def tensor(*shape: int) -> torch.Tensor:
        return torch.randn(shape, generator=generator, device="cuda", dtype=dtype)

    q = tensor(row.batch, row.heads, row.n_q, row.d).requires_grad_(gradients)
    k, v = (tensor(row.batch, row.kv_heads, row.n_k, row.d).requires_grad_(gradients) for _ in range(2))
    mask = None
    if row.kind == "bool mask":
        mask = torch.rand((1, 1, row.n_q, row.n_k), generator=generator, device="cuda") < 0.8
    elif row.kind == "bias":
        mask = tensor(1, row.heads, row.n_q, row.n_k)
    dout = tensor(row.batch, row.heads, row.n_q, row.d)
    options: dict[str, Any] = {"attn_mask": mask, "is_causal": row.causal, "enable_gqa": row.heads != row.kv_heads}

    def work(function: Callable[[], torch.Tensor]) -> Callable[[], Any]:
        return (lambda: torch.autograd.grad(function(), (q, k, v), dout)) if gradients else function

    def peer(backend: Any) -> Callable[[], Any]:
        call = work(lambda: F.scaled_dot_product_attention(q, k, v, **options))

        def chosen() -> Any:
            with sdpa_kernel(backend):
                return call()

        return chosen

    def reported() -> torch.Tensor:
        causal = "top_left" if row.causal else None
        return keel.torch.attention(q, k, v, mask=mask, causal=causal, return_stats=True).out

    ours = work(lambda: keel.torch.scaled_dot_product_attention(q, k, v, **options))
    peers = PEERS | {"math": SDPBackend.MATH}
    return {"keel": ours, "keel + statistics": work(reported)} | {name: peer(peers[name]) for name in peers}


def measure(row: Row, repeats: int) -> Times:
    """Medians over `repeats` rounds, in each of which every column has its turn."""
    ways = calls(row)
    served = {}
    for name in COLUMNS:
        call = ways[name]
        # torch raises for what a kernel does not serve, and warns of each reason; it does not say so beforehand.
        with warnings.catch_warnings(), contextlib.suppress(*(RuntimeError,) * (name in PEERS)):
            warnings.simplefilter("ignore")
            for _ in range(3):
                call()
            served[name] = call
    torch.cuda.synchronize()
    samples: dict[str, list[float]] = {name: [] for name in served}
    for _ in range(repeats):
        for name, call in served.items():
            samples[name].append(_seconds(call))
    return Times(row, {name: statistics.median(samples[name]) if name in samples else None for name in COLUMNS})


def _seconds(call: Callable[[], Any]) -> float:
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    begin.record()
    for _ in range(CALLS):
        call()
    end.record()
    end.synchronize()
    return float(begin.elapsed_time(end)) * 1e-3 / CALLS


def differ(row: Row) -> float:
    """The largest difference between Keel's results and those of torch's math kernel, relative to the largest value."""
    ways = calls(row)
    mine, theirs = (x if isinstance(x, tuple) else (x,) for x in (ways["keel"](), ways["math"]()))
    return max(float((a.float() - b.float()).abs().max() / b.float().abs().max()) for a, b in zip(mine, theirs))


HEADER = (
    f"{'pass':<18}{'case':<16}{'dtype':<6}{'d':>4}{'n_q':>7}{'n_k':>7}{'B':>4}{'H':>6}"
    + "".join(f"{name:>19}" for name in COLUMNS)
    + f"{'ratio':>8}"
)


def line(times: Times) -> str:
    """TFLOP/s of each, or microseconds where a call is all overhead; the ratio to the fastest of torch's."""
    row = times.row
    heads = str(row.heads) if row.heads == row.kv_heads else f"{row.heads}/{row.kv_heads}"

    def cell(seconds: float | None) -> str:
        if seconds is None:
            return "-"
        return f"{seconds * 1e6:.1f} µs" if row.n_q <= 128 else f"{times.flops / seconds * 1e-12:.0f} TFLOP/s"

    return (
        f"{row.passes:<18}{row.kind:<16}{row.dtype:<6}{row.d:>4}{row.n_q:>7}{row.n_k:>7}{row.batch:>4}{heads:>6}"
        + "".join(f"{cell(times.seconds[name]):>19}" for name in COLUMNS)
        + (f"{times.ratio:>7.2f}x" if times.ratio is not None else f"{'-':>8}")
    )


def summary_lines(results: Sequence[Times]) -> list[str]:
    lines = []
    for passes in ("forward", "forward+backward"):
        ratios = [r.ratio for r in results if r.row.passes == passes and r.ratio is not None]
        if ratios:
            mean = geometric_mean(ratios)
            lines.append(f"{passes}: {len(ratios)} rows, geometric mean {mean:.3f}x, least {min(ratios):.2f}x")
    return lines


def about() -> str:
    way = "compiled for this torch" if _short.compiled else "not compiled for this torch"
    return f"keel {keel.__version__} ({way}), torch {torch.__version__}, {torch.cuda.get_device_name()}"


def document(results: Sequence[Times]) -> dict[str, Any]:
    """Everything, for --json."""
    names = ("kind", "dtype", "d", "n_q", "n_k", "batch", "heads", "kv_heads")
    return {
        "keel": keel.__version__,
        "torch": torch.__version__,
        "gpu": torch.cuda.get_device_name(),
        "rows": [
            {"pass": r.row.passes}
            | {name: getattr(r.row, name) for name in names}
            | {"seconds": r.seconds, "flops": r.flops, "ratio": r.ratio}
            for r in results
        ],
    }
