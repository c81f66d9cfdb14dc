"""The rows of the benchmark: which calls are timed."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

LENGTHS = (1, 16, 64, 128, 256, 512, 1024, 2048, 4096, 8192)
DTYPES = ("f32", "bf16")
HEAD_SIZES = (64, 128)
HEADS = 8


@dataclass(frozen=True)
class Row:
    """One call. `kind` is one of full, causal, bool mask, padding, bias, grouped, decode, grouped decode."""

    passes: str  # "forward" or "forward+backward"
    kind: str
    dtype: str
    d: int
    n_q: int
    n_k: int
    batch: int = 1
    heads: int = HEADS
    kv_heads: int = HEADS

    @property
    def causal(self) -> bool:
        return self.kind in ("causal", "grouped")

    @property
    def name(self) -> str:
        length = f"n {self.n_k}" if self.n_q == self.n_k else f"n {self.n_q}/{self.n_k}"
        return f"{self.passes} {self.kind} {self.dtype} d {self.d} {length}"


def heads_at(n: int) -> int:
    """Fewer heads for the longest, so that a row takes seconds rather than minutes."""
    return max(1, min(HEADS, 16384 // n))


def rows() -> Iterator[Row]:
    """The whole grid."""
    for passes in ("forward", "forward+backward"):
        for dtype in DTYPES:
            for d in HEAD_SIZES:
                for n in LENGTHS:
                    heads = heads_at(n)
                    for kind in ("full", "causal"):
                        yield Row(passes, kind, dtype, d, n, n, heads=heads, kv_heads=heads)
            for n in (128, 512, 2048):
                for kind in ("bool mask", "padding", "bias"):
                    yield Row(passes, kind, dtype, 64, n, n)
                yield Row(passes, "grouped", dtype, 128, n, n, kv_heads=2)
    for dtype in DTYPES:
        for n in (128, 1024, 8192):
            yield Row("forward", "decode", dtype, 128, 1, n)
            yield Row("forward", "grouped decode", dtype, 128, 1, n, batch=4, kv_heads=2)


QUICK_LENGTHS = (16, 128, 512)


def quick_rows() -> Iterator[Row]:
    """A small part of it."""
    for row in rows():
        if row.n_k in QUICK_LENGTHS and row.d == 64 and row.kind in ("full", "causal", "bool mask"):
            yield row
