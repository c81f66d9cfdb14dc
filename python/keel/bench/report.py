"""What the benchmark prints and writes."""

from __future__ import annotations

import math
import os
import platform
from collections.abc import Iterable, Sequence
from typing import Any

import torch

import keel
from keel.bench.measure import Result
from keel.torch import _short

HEADER = (
    f"{'pass':<18}{'case':<16}{'dtype':<7}{'d':>4}{'n_q':>7}{'n_k':>7}{'B':>3}{'H':>4}{'thr':>5}"
    f"{'torch µs':>13}{'keel µs':>13}{'ratio':>9}{'±':>7}"
)


def line(result: Result) -> str:
    row = result.row
    heads = str(row.heads) if row.heads == row.kv_heads else f"{row.heads}/{row.kv_heads}"
    return (
        f"{row.passes:<18}{row.kind:<16}{row.dtype:<7}{row.d:>4}{row.n_q:>7}{row.n_k:>7}{row.batch:>3}{heads:>4}"
        f"{result.threads:>5}{result.torch_s * 1e6:>13.1f}{result.keel_s * 1e6:>13.1f}{result.ratio:>8.2f}x"
        f"{result.margin * 100:>5.1f} %"
    )


def geometric_mean(values: Iterable[float]) -> float:
    logs = [math.log(value) for value in values]
    return math.exp(sum(logs) / len(logs)) if logs else math.nan


def summary(results: Sequence[Result]) -> list[dict[str, Any]]:
    """Geometric means and the slowest row of each part of the grid."""
    counts = sorted({r.threads for r in results})
    groups = [(f", {n} thread{'s' if n > 1 else ''}", [n]) for n in counts] + [("", counts)] * (len(counts) > 1)
    parts: list[tuple[str, Any]] = []
    for of, among in groups:
        for passes in ("forward", "forward+backward"):
            parts.append((passes + of, lambda r, p=passes, t=among: r.row.passes == p and r.threads in t))
            parts.append(
                (
                    f"{passes}, causal, n ≤ 512{of}",
                    lambda r, p=passes, t=among: (
                        r.row.passes == p and r.threads in t and r.row.kind == "causal" and r.row.n_k <= 512
                    ),
                )
            )
    found = []
    for name, belongs in parts:
        ratios = [r.ratio for r in results if belongs(r)]
        if ratios:
            found.append(
                {
                    "part": name,
                    "rows": len(ratios),
                    "geometric_mean": geometric_mean(ratios),
                    "least": min(ratios),
                    "below_1": sum(ratio < 1 for ratio in ratios),
                }
            )
    return found


def summary_lines(results: Sequence[Result]) -> list[str]:
    lines = [f"{'part':<46}{'rows':>6}{'geometric mean':>16}{'least':>9}{'below 1':>9}"]
    for part in summary(results):
        lines.append(
            f"{part['part']:<46}{part['rows']:>6}{part['geometric_mean']:>15.2f}x"
            f"{part['least']:>8.2f}x{part['below_1']:>9}"
        )
    return lines


def processor() -> str:
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as file:
            return next(line.split(":", 1)[1].strip() for line in file if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor() or platform.machine()


def about() -> str:
    """What is compared, and where."""
    way = "compiled for this torch" if _short.compiled else "not compiled for this torch: short calls take longer"
    return f"keel {keel.__version__} ({way}), torch {torch.__version__}, {processor()}"


def document(results: Sequence[Result]) -> dict[str, Any]:
    """Everything, for --json."""
    return {
        "keel": keel.__version__,
        "compiled": _short.compiled is not None,
        "torch": torch.__version__,
        "processor": processor(),
        "processors": os.cpu_count(),
        "rows": [
            {
                "pass": r.row.passes,
                "case": r.row.kind,
                "dtype": r.row.dtype,
                "d": r.row.d,
                "n_q": r.row.n_q,
                "n_k": r.row.n_k,
                "batch": r.row.batch,
                "heads": r.row.heads,
                "kv_heads": r.row.kv_heads,
                "threads": r.threads,
                "torch_s": r.torch_s,
                "keel_s": r.keel_s,
                "ratio": r.ratio,
                "low": r.low,
                "high": r.high,
                "rounds": r.rounds,
            }
            for r in results
        ],
        "summary": summary(results),
    }
