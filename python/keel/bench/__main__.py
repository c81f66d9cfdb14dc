"""python -m keel.bench: Keel and torch's scaled_dot_product_attention, timed alternately in one process. On a GPU, each
of torch's kernels (cuDNN, FlashAttention-2, efficient) has its turn."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from keel import _core
from keel.bench import grid


def parser() -> argparse.ArgumentParser:
    text = argparse.ArgumentParser(prog="python -m keel.bench", description=__doc__)
    text.add_argument("--device", choices=("cpu", "cuda"), default="cpu", help="where to compute (cpu)")
    text.add_argument("--quick", action="store_true", help="a few short rows instead of the whole grid")
    text.add_argument(
        "--filter",
        default="",
        metavar="WORDS",
        help="only rows whose name has all of these words, as in 'forward f32 causal'",
    )
    text.add_argument(
        "--threads", type=int, nargs="+", default=[1, 2], metavar="N", help="threads for both sides (1 2); on the CPU"
    )
    text.add_argument(
        "--seconds",
        type=float,
        default=1.0,
        metavar="S",
        help="time per row (1); up to 8 times as long until its ratio is known to 2 %%, and up to 64 times while it "
        "may be on either side of 1; on the CPU",
    )
    text.add_argument("--repeats", type=int, default=9, metavar="N", help="visits to each row on a GPU (9)")
    text.add_argument(
        "--json", metavar="FILE", help="write everything as JSON; - for standard output instead of the table"
    )
    text.add_argument("--plot", type=Path, metavar="FILE", help="draw the ratios: .html, or .png with matplotlib")
    text.add_argument("--check", action="store_true", help="compare the results of both sides instead of timing them")
    text.add_argument("--monitor", action="store_true", help="measure what keel.torch.Monitor costs instead")
    text.add_argument("--list", action="store_true", help="print the names of the rows and exit")
    return text


def chosen(of: Any, options: argparse.Namespace) -> list[grid.Row]:
    """The rows of a grid that the options name; an error on stderr if there are none."""
    words = options.filter.split()
    rows = [
        row for row in (of.quick_rows() if options.quick else of.rows()) if all(w in row.name.split() for w in words)
    ]
    if not rows:
        print(f"keel.bench: no row has all of {options.filter!r}; see --list", file=sys.stderr)
    return rows


def on_cuda(options: argparse.Namespace) -> int:
    for name in ("plot", "monitor"):
        if getattr(options, name):
            parser().error(f"--{name}: expected --device cpu with it, got cuda")
    try:
        import torch
    except ImportError:
        print("keel.bench: expected torch to be installed, got none", file=sys.stderr)
        return 3
    from keel.bench import cuda

    rows = chosen(cuda, options)
    if not rows:
        return 2
    if options.list:
        print("\n".join(row.name for row in rows))
        return 0
    why = "torch finds none" if not torch.cuda.is_available() else _core.cuda_refusal(torch.cuda.current_device())
    if why:
        print(f"keel.bench: expected a GPU, got none that can be used: {why}", file=sys.stderr)
        return 3
    if options.check:
        apart = [(cuda.differ(row), row) for row in rows]
        for difference, row in apart:
            print(f"{difference:10.2e}  {row.name}{'' if difference <= 5e-2 else '  too far'}")
        return 1 if any(not difference <= 5e-2 for difference, _ in apart) else 0
    if options.json != "-":
        print(cuda.about() + "\n\n" + cuda.HEADER)
    results = []
    for row in rows:
        results.append(cuda.measure(row, options.repeats))
        if options.json != "-":
            print(cuda.line(results[-1]), flush=True)
    if options.json != "-":
        print("\n" + "\n".join(cuda.summary_lines(results)))
    if options.json == "-":
        print(json.dumps(cuda.document(results), indent=1))
    elif options.json:
        Path(options.json).write_text(json.dumps(cuda.document(results), indent=1) + "\n", encoding="utf-8")
    return 0


def main(arguments: list[str] | None = None) -> int:
    options = parser().parse_args(arguments)
    if options.plot is not None and options.plot.suffix not in (".html", ".png"):
        parser().error(f"--plot: expected a name that ends in .html or .png, got {options.plot}")
    if min(options.threads) < 1:
        parser().error(f"--threads: expected at least 1, got {min(options.threads)}")
    if options.seconds <= 0:
        parser().error(f"--seconds: expected more than 0, got {options.seconds}")
    if options.plot is not None and options.plot.suffix == ".png":
        try:
            import matplotlib  # noqa: F401
        except ImportError:
            parser().error("--plot: expected matplotlib to be installed for .png, got none; .html needs nothing")
    if options.repeats < 1:
        parser().error(f"--repeats: expected at least 1, got {options.repeats}")
    if options.device == "cuda":
        return on_cuda(options)
    rows = chosen(grid, options)
    if not rows:
        return 2
    if options.list:
        print("\n".join(row.name for row in rows))
        return 0
    try:
        import torch  # noqa: F401
    except ImportError:
        print("keel.bench: expected torch to be installed, got none", file=sys.stderr)
        return 3

    from keel.bench import measure, monitor, plot, report

    if options.monitor:
        for threads in options.threads:
            print("\n".join(monitor.measure(threads, options.seconds)))
        return 0
    if options.check:
        worst = 0
        for row in rows:
            difference = measure.differ(row)
            wrong = not difference <= (1e-4 if row.dtype == "f32" else 5e-2)
            worst += wrong
            print(f"{difference:10.2e}  {row.name}{'  too far' if wrong else ''}")
        return 1 if worst else 0

    table = options.json != "-"
    if table:
        print(report.about() + "\n\n" + report.HEADER)
    results = []
    for threads in options.threads:
        for row in rows:
            if not table and sys.stderr.isatty():
                print(f"\r{row.name}\033[K", end="", file=sys.stderr)
            results.append(measure.measure(row, threads, options.seconds))
            if table:
                print(report.line(results[-1]), flush=True)
    if table:
        print("\n" + "\n".join(report.summary_lines(results)))
    if options.json == "-":
        print(json.dumps(report.document(results), indent=1))
    elif options.json:
        Path(options.json).write_text(json.dumps(report.document(results), indent=1) + "\n", encoding="utf-8")
    if options.plot is not None:
        plot.write(results, options.plot)
    return 0


if __name__ == "__main__":
    sys.exit(main())
