#!/usr/bin/env python3
"""Turns the output of `keel bench --json` into Markdown, so that no measured number is typed in by hand.

  keel bench --json > run.json
  scripts/bench_table.py run.json                              prints the tables
  scripts/bench_table.py run.json --into docs/performance.md   puts them between that page's two marks

Standard library only.
"""

import argparse
import json
import sys
from pathlib import Path

BEGIN, END = "<!-- bench_table.py: begin -->", "<!-- bench_table.py: end -->"


def duration(seconds):
    for unit, size, digits in (("s", 1, 2), ("ms", 1e-3, 2)):
        if seconds >= size:
            return f"{seconds / size:.{digits}f} {unit}"
    return f"{seconds * 1e6:.1f} µs"


def number(metric, value):
    if metric == "cost":
        return f"{100 * value:.1f} %"
    if metric == "call_seconds":
        return duration(value)
    if metric == "extra_bytes":
        return f"{value / 2**20:.2f} MiB"
    return f"{value:.2f}"


def table(headings, rows):
    lines = [headings, ["---"] * len(headings), *rows]
    return "".join("| " + " | ".join(cells) + " |\n" for cells in lines)


def limit_cells(yardstick):
    memory = {"read": "reading", "update": "reading and writing"}.get(yardstick["kind"])
    if memory:
        what = f"{memory} {yardstick['memory_bytes'] / 2**20:.0f} MiB"
    elif yardstick["kind"] == "unit":
        what = f"{yardstick['dtype']} products by {yardstick['target']}"
    else:
        what = f"{yardstick['dtype']} multiply-adds in registers, {yardstick['target']}"
    rate = yardstick["rate"]
    unit = "GB/s" if memory else "GFLOP/s"
    return [
        what,
        str(yardstick["threads"]),
        f"{rate['median'] / 1e9:.1f} {unit}",
        f"{rate['lower_quartile'] / 1e9:.1f} – {rate['upper_quartile'] / 1e9:.1f}",
    ]


def row_cells(row):
    start = [row["scenario"], row["problem"], row["dtype"]]
    if "skipped" in row:
        return [*start, "", "", "", "", "not measured: " + row["skipped"], "", "", ""]
    metric, value, goal = row["metric"], row["value"], row.get("goal")
    several = len(row["repeats"]) > 1
    share = row["peak_share"]["median"] if "peak_share" in row else None
    quartiles = f"{number(metric, value['lower_quartile'])} – {number(metric, value['upper_quartile'])}"
    aim = ""
    if goal:
        sign, which = ("≥", "at_least") if "at_least" in goal else ("≤", "at_most")
        aim = f"{sign} {number(metric, goal[which])}"
    return [
        *start,
        str(row["threads"]),
        duration(row["seconds"]["median"]),
        f"{row['gflops']:.1f}",
        "" if share is None else f"{share:.2f}",
        f"{number(metric, value['median'])} {row['unit']}",
        quartiles if several else "",
        aim,
        "" if not goal else "yes" if goal["met"] else "no",
    ]


def markdown(run):
    machine, settings = run["machine"], run["settings"]
    caches = ", ".join(f"L{level} {machine[f'l{level}_bytes'] / 2**10:.0f} KiB" for level in (1, 2, 3))
    text = (
        f"Keel {run['keel']} on {machine['cpu']} ({', '.join(machine['targets'])}; {machine['threads']} processors; "
        f"{caches}), {settings['repeats']} repeats{' of the quick kind' if settings['quick'] else ''}.\n\n"
    )
    text += table(["limit of the machine", "threads", "median", "quartiles"], map(limit_cells, run["yardsticks"]))
    headings = [
        "scenario",
        "heads×queries:keys×size",
        "dtype",
        "threads",
        "time",
        "GFLOP/s",
        "of peak",
        "median",
        "quartiles",
        "goal",
        "met",
    ]
    return text + "\n" + table(headings, map(row_cells, run["rows"]))


def put_into(page, text):
    before, begin, rest = page.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        sys.exit(f"bench_table.py: the page has no place for the tables; expected {BEGIN} and {END}")
    return f"{before}{begin}\n{text}{end}{after}"


def main():
    parser = argparse.ArgumentParser(description="The output of `keel bench --json` as Markdown.")
    parser.add_argument("run", type=Path, help="what `keel bench --json` printed")
    parser.add_argument("--into", type=Path, metavar="PAGE", help="replace what stands between the marks of this page")
    arguments = parser.parse_args()
    text = markdown(json.loads(arguments.run.read_text(encoding="utf-8")))
    if arguments.into is None:
        print(text, end="")
        return
    page = put_into(arguments.into.read_text(encoding="utf-8"), text)
    arguments.into.write_text(page, encoding="utf-8")


if __name__ == "__main__":
    main()
