#!/usr/bin/env python3
"""Do the lab's verdicts stand? Runs it with several seeds, with the CPU's widest instructions and with AVX2 alone, and
compares the ledgers: two runs may not decide a claim, or a case of it, in different ways. "undecided" goes with either.

  scripts/verdicts.py --out build/verdicts                     everything: make verdicts
  scripts/verdicts.py --out build/verdicts --only softmax ...  these experiments
  scripts/verdicts.py --compare a/claims.json b/claims.json    runs that are there already

A run that the folder has already is not repeated. Standard library only.
"""

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path

# In place of Highway's own, by LD_PRELOAD: the dispatch then knows nothing beyond AVX2.
ONLY_AVX2 = """#include <hwy/targets.h>
namespace hwy { int64_t SupportedTargets() { return HWY_AVX2 | HWY_SSE4 | HWY_SSSE3; } }
"""


def kind(verdict):
    """ "holds if d_k = 4 (…)" and its like without their condition, which the cases have."""
    return next(k for k in ("holds if", "does not hold", "undecided", "holds") if verdict.startswith(k))


def decided(entry):
    """What a ledger's entry decides: {what: verdict}, without what it leaves undecided."""
    said = {"": kind(entry["verdict"])}
    said.update({case["label"]: kind(case["verdict"]) for case in entry["cases"]})
    return {what: verdict for what, verdict in said.items() if verdict != "undecided"}


def conflicts(ledgers):
    """{run: ledger} -> one line for each claim, or case of one, that two runs decide in different ways."""
    first, found = {}, []
    for run, ledger in ledgers.items():
        for entry in ledger:
            for what, verdict in decided(entry).items():
                before = first.setdefault((entry["id"], what), (run, verdict))
                if before[1] != verdict:
                    found.append(
                        f"{entry['id']}{', ' + what if what else ''}: {before[1]} in {before[0]}, {verdict} in {run}"
                    )
    return found


def only_avx2(folder):
    """The environment of a run that knows nothing beyond AVX2: Keel by Highway, and OpenBLAS."""
    source, library = folder / "only_avx2.cc", folder / "only_avx2.so"
    source.write_text(ONLY_AVX2, encoding="utf-8")
    subprocess.run(["c++", "-shared", "-fPIC", "-O1", source, "-o", library], check=True)
    return {**os.environ, "LD_PRELOAD": str(library.resolve()), "OPENBLAS_CORETYPE": "Haswell"}


def targets(keel, environment):
    return json.loads(
        subprocess.run([keel, "info", "--json"], env=environment, check=True, capture_output=True, text=True).stdout
    )["targets"]


def run_all(keel, folder, seeds, only):
    folder.mkdir(parents=True, exist_ok=True)
    narrow = only_avx2(folder)
    machines = {"widest": dict(os.environ), "avx2": narrow}
    if targets(keel, narrow) == targets(keel, machines["widest"]):
        if "AVX2" not in targets(keel, narrow)[:1]:
            sys.exit("verdicts.py: AVX2 could not be forced: libhwy is linked statically, or this CPU has none")
        machines.pop("widest")  # this CPU has nothing beyond AVX2
    ledgers = {}
    for seed in seeds:
        for name, environment in machines.items():
            run = f"{name}-{seed}"
            if not (folder / run / "claims.json").exists() or not complete(folder / run, only):
                subprocess.run(
                    [keel, "lab", *only, "--seed", str(seed), "--out", folder / run, "--quiet"],
                    env=environment,
                    check=True,
                )
                (folder / run / "complete").write_text(" ".join(only) + "\n", encoding="utf-8")
            ledgers[run] = json.loads((folder / run / "claims.json").read_text(encoding="utf-8"))
            undecided = sum(kind(e["verdict"]) == "undecided" for e in ledgers[run])
            print(f"{run}: {len(ledgers[run])} claims, {undecided} undecided", flush=True)
    return ledgers


def complete(folder, only):
    mark = folder / "complete"
    return mark.exists() and mark.read_text(encoding="utf-8").split() == only


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--keel", default="build/bin/keel", metavar="PROGRAM")
    parser.add_argument("--out", type=Path, metavar="DIR")
    parser.add_argument("--seeds", type=int, default=5, metavar="N")
    parser.add_argument("--only", nargs="+", default=[], metavar="EXPERIMENT")
    parser.add_argument("--compare", nargs="+", type=Path, metavar="CLAIMS")
    given = parser.parse_args()
    if bool(given.compare) == bool(given.out):
        parser.error("expected --out DIR or --compare CLAIMS...")
    if given.compare:
        ledgers = {str(path): json.loads(path.read_text(encoding="utf-8")) for path in given.compare}
    else:
        ledgers = run_all(given.keel, given.out, range(given.seeds), given.only)
    found = conflicts(ledgers)
    print(*found, f"{len(ledgers)} runs, {len(found)} conflicts", sep="\n")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
