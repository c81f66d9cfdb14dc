#!/usr/bin/env python3
"""includes.py ROOT: fails when an #include goes against the direction in which Keel's folders depend on each other.

Prints each offence as file:line: what is wrong. Standard library only.
"""

import re
import sys
from pathlib import Path

# folder -> the folders it stands on. It may include those, and all that they stand on in turn.
STANDS_ON = {
    "core": [],
    "reference": ["core"],
    "runtime": ["core"],
    "io": ["core"],
    "plan": ["core", "runtime"],
    "cpu": ["plan"],
    "cuda": ["plan"],
    "api": ["cpu", "cuda"],
    "ring": ["api"],
    "mpi": ["ring"],
    "nn": ["api", "io"],
    "lab": ["api", "nn", "io"],
    "bench": ["ring"],
    "cli/common": ["api", "io"],
    "cli": ["cli/common", "bench"],
    "cli/mpi": ["cli", "mpi"],
    "lab/cli": ["cli/common", "lab"],
    "web": ["api"],
}

# Of these, the folders that stand at the top beside src/.
AT_THE_TOP = ("bench", "lab", "web")

# The folders of libkeel, which links Highway and TBB alone.
LIBRARY = {"core", "runtime", "cpu", "cuda", "plan", "api", "ring"}
NOT_IN_LIBRARY = ("fmt/", "CLI/", "nlohmann/", "cblas", "mpi.h", "gtest/", "gmock/", "benchmark/")

# Kernels take the flat call of core/call.h, so that a test of one needs no Problem.
KERNELS = re.compile(r"src/(cpu|cuda)/(.*-inl\.h|forward\.h|backward\.h|.*\.cuh?)")
NOT_IN_KERNELS = ("core/problem.h", "plan/plan.h")

# Folders outside src/ that see the public headers alone.
PUBLIC_ONLY = ("examples", "python")

INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]')
SUFFIXES = {".h", ".hpp", ".cc", ".cpp", ".c", ".cu", ".cuh"}


def below(folder):
    """All folders that `folder` may include, itself among them."""
    found = {folder}
    for lower in STANDS_ON[folder]:
        found |= below(lower)
    return found


def folder_of(path):
    """The entry of STANDS_ON that a path such as lab/cli/say.h belongs to: the longest one."""
    parts = path.split("/")[:-1]
    names = ["/".join(parts[:n]) for n in range(len(parts), 0, -1)]
    return next((name for name in names if name in STANDS_ON), names[-1] if names else None)


def is_standard(name):
    """<vector>, <stdint.h> and <string.h>, but neither <hwy/highway.h> nor <cblas.h>."""
    return re.fullmatch(r"[a-z_0-9]+|(std[a-z]+|string)\.h", name) is not None


def offence_in_public(path, bracket, name):
    if path.name == "mpi.h" and name == "mpi.h":  # whose MPI_Comm is part of the interface
        return None
    if name.startswith("keel/") or (bracket == "<" and is_standard(name)):
        return None
    return f"a public header includes only keel/ and the standard library, not {name}"


def offence_in_src(path, folder, name):
    other = folder_of(name)
    if folder not in STANDS_ON:
        return f"src/{folder} has no place in the order of folders; give it one in tests/architecture/includes.py"
    if name.startswith("."):
        return f"includes are written from src/, not relative: {name}"
    if other in STANDS_ON and other not in below(folder):
        return f"{folder} may not include {other}: {name}"
    if name in NOT_IN_KERNELS and KERNELS.fullmatch(path.as_posix()):
        return f"kernels never see Problem: {name}"
    if folder in LIBRARY and name.startswith(NOT_IN_LIBRARY):
        return f"libkeel uses Highway and TBB alone, not {name}"
    return None


def offence(path, bracket, name):
    """What is wrong with `path` (relative to the root) including `name`, or None."""
    if path.parts[0] == "include":
        return offence_in_public(path, bracket, name)
    if path.parts[0] == "src":
        return offence_in_src(path, folder_of(path.relative_to("src").as_posix()), name)
    if path.parts[0] in AT_THE_TOP:
        return offence_in_src(path, folder_of(path.as_posix()), name)
    if path.parts[0] in PUBLIC_ONLY and name.split("/")[0] in STANDS_ON and "/" in name:
        return f"{path.parts[0]}/ uses the public headers alone, not {name}"
    return None


def offences(root):
    """All offences below `root` as "file:line: text", and the number of files read."""
    found, files = [], 0
    for top in ("include", "src", *AT_THE_TOP, *PUBLIC_ONLY):
        for file in sorted((root / top).rglob("*")):
            if file.suffix not in SUFFIXES:
                continue
            files += 1
            path = file.relative_to(root)
            for number, line in enumerate(file.read_text(encoding="utf-8").splitlines(), 1):
                match = INCLUDE.match(line)
                text = match and offence(path, *match.groups())
                if text:
                    found.append(f"{path}:{number}: {text}")
    return found, files


def main():
    if len(sys.argv) != 2:
        sys.exit("usage: includes.py ROOT")
    found, files = offences(Path(sys.argv[1]))
    if files == 0:
        sys.exit(f"includes.py: no sources below {sys.argv[1]}")
    print("\n".join(found) if found else f"{files} files, every include in order")
    sys.exit(1 if found else 0)


if __name__ == "__main__":
    main()
