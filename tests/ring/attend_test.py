#!/usr/bin/env python3
"""attend_test.py KEEL MPIRUN...: a command that starts ranks. `keel attend` by two ranks must write what one process writes, and nothing
if a rank fails. Standard library only.
"""

import array
import os
import pathlib
import random
import subprocess
import sys
import tempfile

keel, mpirun = os.path.abspath(sys.argv[1]), sys.argv[2:]


def write(path, *shape):
    header = f"{{'descr': '<f4', 'fortran_order': False, 'shape': {shape}, }}"
    header += " " * (-(len(header) + 11) % 64) + "\n"
    count = 1
    for n in shape:
        count *= n
    values = array.array("f", (random.gauss(0, 1) for _ in range(count)))
    path.write_bytes(b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header.encode() + values.tobytes())


def values(path):
    data = path.read_bytes()
    return array.array("f", data[10 + int.from_bytes(data[8:10], "little") :])


def attend(ranks, *arguments):
    return subprocess.run([*(mpirun if ranks else []), keel, "attend", *arguments], capture_output=True, text=True, timeout=60, check=False)


def expect(held, expected, got):
    if not held:
        sys.exit(f"expected {expected}, got {got}")


random.seed(1)
with tempfile.TemporaryDirectory() as folder:
    os.chdir(folder)
    one, out, part = pathlib.Path("one.npy"), pathlib.Path("out.npy"), pathlib.Path("out.npy.part")
    for name, heads in (("q", 4), ("k", 2), ("v", 2)):
        write(pathlib.Path(f"{name}.npy"), 1, heads, 37, 8)
    write(pathlib.Path("short.npy"), 1, 2, 30, 8)
    files = ("q.npy", "k.npy", "v.npy")

    ended = attend(False, *files, "-o", one, "--causal", "top_left")
    expect(ended.returncode == 0, "one process to succeed", ended.stderr)
    for mode in ("ordered", "ring"):
        ended = attend(True, *files, "-o", out, "--causal", "top_left", "--mode", mode)
        expect(ended.returncode == 0 and "37 rows over 2 ranks" in ended.stdout, "two ranks to succeed", ended.stdout + ended.stderr)
        expect(mode == "ring" or out.read_bytes() == one.read_bytes(), "the bytes of one process", "others")
        worst = max(abs(a - b) for a, b in zip(values(out), values(one), strict=True))
        expect(worst < 1e-5, "the values of one process", f"some that differ by {worst}")
        out.unlink()

    ended = attend(True, "q.npy", "k.npy", "short.npy", "-o", out)
    expect(ended.returncode != 0 and "rank" in ended.stderr, "an error that names a rank", ended.stdout + ended.stderr)
    expect(not out.exists() and not part.exists(), "no output after an error", [str(x) for x in (out, part) if x.exists()])
print("two ranks write what one process writes")
