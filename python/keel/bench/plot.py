"""Plots the ratios by length: .html with the drawing inside, or .png if matplotlib is installed."""

from __future__ import annotations

import html
import math
from collections.abc import Sequence
from pathlib import Path

import torch

import keel
from keel.bench.measure import Result
from keel.bench.report import processor, summary_lines

COLOURS = {("f32", 64): "#1f77b4", ("f32", 128): "#17408b", ("bf16", 64): "#ff7f0e", ("bf16", 128): "#b34700"}
WIDTH, HEIGHT, MARGIN = 520, 300, 46

Series = dict[tuple[str, int, str], list[tuple[int, float]]]


def panels(results: Sequence[Result]) -> dict[tuple[str, int], Series]:
    """(pass, threads) -> (dtype, d, kind) -> [(n, ratio)], of the rows without masks."""
    found: dict[tuple[str, int], Series] = {}
    for r in results:
        if r.row.kind in ("full", "causal"):
            panel = found.setdefault((r.row.passes, r.threads), {})
            panel.setdefault((r.row.dtype, r.row.d, r.row.kind), []).append((r.row.n_k, r.ratio))
    return found


def _svg(title: str, series: Series) -> str:
    points = [point for line in series.values() for point in line]
    low, high = min(0.5, *(y for _, y in points)), max(2.0, *(y for _, y in points))
    most = max(2, *(n for n, _ in points))

    def x(n: float) -> float:
        return MARGIN + (WIDTH - 2 * MARGIN) * math.log2(n) / math.log2(most)

    def y(ratio: float) -> float:
        return HEIGHT - MARGIN - (HEIGHT - 2 * MARGIN) * math.log(ratio / low) / math.log(high / low)

    parts = [f'<text x="{MARGIN}" y="20" class="title">{html.escape(title)}</text>']
    for n in sorted({n for n, _ in points}):
        parts.append(f'<text x="{x(n):.1f}" y="{HEIGHT - MARGIN + 16}" text-anchor="middle">{n}</text>')
    ratio = 2.0 ** math.ceil(math.log2(low))
    while ratio <= high:
        kind = "one" if ratio == 1 else "grid"
        parts.append(
            f'<line x1="{MARGIN}" x2="{WIDTH - MARGIN}" y1="{y(ratio):.1f}" y2="{y(ratio):.1f}" class="{kind}"/>'
        )
        parts.append(f'<text x="{MARGIN - 6}" y="{y(ratio) + 4:.1f}" text-anchor="end">{ratio:g}×</text>')
        ratio *= 2
    for (dtype, d, kind), line in series.items():
        colour = COLOURS.get((dtype, d), "#555")
        dash = ' stroke-dasharray="5 3"' if kind == "causal" else ""
        path = " ".join(f"{x(n):.1f},{y(r):.1f}" for n, r in sorted(line))
        parts.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="1.6"{dash}/>')
        for n, r in line:
            label = html.escape(f"{dtype} d {d} {kind}, n {n}: {r:.2f}×")
            parts.append(
                f'<circle cx="{x(n):.1f}" cy="{y(r):.1f}" r="3" fill="{colour}"><title>{label}</title></circle>'
            )
    parts.append(f'<text x="{WIDTH / 2}" y="{HEIGHT - 8}" text-anchor="middle">length n</text>')
    return f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" height="{HEIGHT}">{"".join(parts)}</svg>'


def _html(results: Sequence[Result]) -> str:
    drawings = "".join(
        _svg(f"{passes}, {threads} thread{'s' if threads > 1 else ''}", series)
        for (passes, threads), series in panels(results).items()
    )
    key = " ".join(f'<span style="color:{colour}">■ {dtype} d {d}</span>' for (dtype, d), colour in COLOURS.items())
    about = html.escape(f"Keel {keel.__version__}, torch {torch.__version__}, {processor()}")
    return (
        '<!DOCTYPE html><html lang="en"><meta charset="utf-8"><title>Keel against torch</title><style>'
        "body{font:14px system-ui,sans-serif;margin:24px;color:#222}svg{font-size:11px;margin:6px}"
        ".title{font-weight:600;font-size:13px}.grid{stroke:#ddd}.one{stroke:#888;stroke-width:1.5}"
        "</style><h1>Keel against torch</h1>"
        f"<p>How many times as fast as torch's scaled_dot_product_attention. {about}.</p>"
        f"<p>{key} &nbsp; solid: full, dashed: causal</p>{drawings}"
        f"<pre>{html.escape(chr(10).join(summary_lines(results)))}</pre></html>\n"
    )


def _png(results: Sequence[Result], path: Path) -> None:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    drawn = panels(results)
    figure, axes = pyplot.subplots(1, len(drawn), figsize=(5.5 * len(drawn), 4), squeeze=False)
    for axis, ((passes, threads), series) in zip(axes[0], drawn.items()):
        for (dtype, d, kind), line in series.items():
            style = "--" if kind == "causal" else "-"
            axis.plot(
                *zip(*sorted(line)), style, marker="o", color=COLOURS.get((dtype, d)), label=f"{dtype} d {d} {kind}"
            )
        axis.axhline(1, color="#888")
        axis.set(
            xscale="log", yscale="log", xlabel="length n", ylabel="× torch", title=f"{passes}, {threads} thread(s)"
        )
        axis.set_xscale("log", base=2)
        axis.set_yscale("log", base=2)
        axis.legend(fontsize=7)
    figure.tight_layout()
    figure.savefig(path, dpi=150)


def write(results: Sequence[Result], path: Path) -> None:
    """Writes the plot to `path`, as .html or .png by its suffix."""
    if not panels(results):
        raise ValueError("[bench] plot: expected rows without masks to draw, got none")
    if path.suffix == ".png":
        _png(results, path)
    else:
        path.write_text(_html(results), encoding="utf-8")
