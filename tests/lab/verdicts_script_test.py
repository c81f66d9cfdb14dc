#!/usr/bin/env python3
"""verdicts_script_test.py SCRIPT: scripts/verdicts.py finds planted conflicts, and nothing else."""

import json
import subprocess
import sys
import tempfile
from pathlib import Path


def entry(verdict, **cases):
    return {"id": "000-x", "verdict": verdict, "cases": [{"label": k, "verdict": v} for k, v in cases.items()]}


CASES = [
    ([entry("holds"), entry("holds")], 0),
    ([entry("holds"), entry("does not hold")], 1),
    ([entry("holds"), entry("undecided: within the noise"), entry("holds")], 0),
    ([entry("holds"), entry("undecided"), entry("does not hold")], 1),
    ([entry("holds if d_k = 4", d4="holds", d16="does not hold"), entry("holds if d_k = 16", d4="does not hold", d16="holds")], 2),
    ([entry("holds if d_k = 4", d4="holds", d16="undecided"), entry("holds if d_k = 4 or d_k = 16", d4="holds", d16="holds")], 0),
    ([entry("holds", d4="holds"), entry("holds if d_k = 4", d4="holds")], 1),
]
with tempfile.TemporaryDirectory() as folder:
    for ledgers, expected in CASES:
        paths = []
        for i, ledger in enumerate(ledgers):
            paths.append(Path(folder) / f"{i}.json")
            paths[-1].write_text(json.dumps([ledger]), encoding="utf-8")
        done = subprocess.run([sys.executable, "-B", sys.argv[1], "--compare", *paths], capture_output=True, text=True, check=False)
        told = done.stdout.splitlines()[-1] if done.stdout else done.stderr
        if told != f"{len(ledgers)} runs, {expected} conflicts" or done.returncode != (expected > 0):
            sys.exit(f"{ledgers}: expected {expected} conflicts, got {done.returncode}: {told}")
