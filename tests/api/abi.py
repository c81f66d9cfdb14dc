#!/usr/bin/env python3
"""abi.py check|planted|renew [--library FILE]: the binary interface of keel/c_api.h, by libabigail.

check    compares it with c_api.abi, which is kept beside this file; with --library also the names that FILE offers.
planted  makes changes that break programs to a copy of the header, and expects each to be found.
renew    writes c_api.abi anew: for a new version, or after a change that keeps programs working (fields appended to a
         structure that begins with its size, functions added).

What is compared is the source of the C interface alone, compiled with debug information, which libkeel does without; by
g++, as libabigail 2.2 misses the constants of what clang compiles. Exits with 77 where g++ or libabigail's programs
(Debian: abigail-tools) are missing. Standard library only.
"""

import argparse
import re
import shutil
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
STORED = HERE / "c_api.abi"
SKIPPED = 77

# What is in the header, and what takes its place: each breaks a program that was compiled before.
PLANTED = {
    "fields in another order": ("  double dropout;\n  uint64_t seed;\n", "  uint64_t seed;\n  double dropout;\n"),
    "a field of another type": ("  double softcap;", "  float softcap;"),
    "a longer keel_view": ("uint32_t reserved[5];", "uint32_t reserved[7];"),
    "another value of a constant": ("KEEL_CAUSAL_BOTTOM_RIGHT = 2", "KEEL_CAUSAL_BOTTOM_RIGHT = 3"),
    "a function that is gone": ("KEEL_API const char* keel_version(void);", "const char* keel_version(void);"),
}


def run(*command):
    result = subprocess.run([str(part) for part in command], text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    return result.returncode, result.stdout


def expect(*command):
    status, said = run(*command)
    if status != 0:
        sys.exit(f"FAILED with status {status}: {' '.join(map(str, command))}\n{said}")
    return said


def version():
    """The part of the version that may not break, as in the library's name."""
    return re.search(r"project\(keel VERSION (\d+\.\d+)", (ROOT / "CMakeLists.txt").read_text(encoding="utf-8"))[1]


def dump(include, work):
    """The interface of the header in `include`, as a file in `work`."""
    header = include / "keel" / "c_api.h"
    # Fields hold enumerations as int32_t; a function of each brings their values into the interface.
    enumerations = re.findall(r"^typedef enum (\w+)", header.read_text(encoding="utf-8"), re.MULTILINE)
    functions = "".join(f'extern "C" KEEL_API void keel_takes_{name}({name}) {{}}\n' for name in enumerations)
    source, library, exports = work / "interface.cc", work / "libkeel.so", work / "exports.map"
    source.write_text('#include "api/c_api.cc"\n' + functions, encoding="utf-8")
    exports.write_text(f"KEEL_{version()} {{ global: keel_*; local: *; }};\n", encoding="utf-8")
    expect("g++", "-std=c++20", "-g", "-fPIC", "-shared", "-fvisibility=hidden", f"-I{include}", f"-I{ROOT / 'src'}", source,
           f"-Wl,--version-script={exports}", f"-Wl,-soname,libkeel.so.{version()}", "-o", library)
    result = work / "interface.abi"
    expect("abidw", "--header-file", header, "--drop-private-types", "--exported-interfaces-only", "--no-corpus-path",
           "--no-comp-dir-path", "--no-show-locs", "--no-architecture", "--no-elf-needed", "--no-write-default-sizes",
           "--type-id-style", "hash", "--out-file", result, library)
    return result


def difference(old, new):
    """What libabigail says of two interfaces; empty where they are the same."""
    status, said = run("abidiff", "--harmless", old, new)
    if status & 3:
        sys.exit(f"FAILED: abidiff could not compare, status {status}\n{said}")
    return said if status else ""


def check(library, work):
    said = difference(STORED, dump(ROOT / "include", work))
    if said:
        sys.exit(f"FAILED: expected the C interface that {STORED.name} holds, got\n{said}\nIf programs that were compiled "
                 f"before still work, or the version is a new one: {HERE.name}/{Path(__file__).name} renew")
    if library is None:
        return
    kept = {name for name in re.findall(r"<elf-symbol name='(\w+)'", STORED.read_text(encoding="utf-8"))
            if not name.startswith("keel_takes_")}
    offered = set(re.findall(r" T (keel_\w+)@@KEEL_" + re.escape(version()) + "$",
                             expect("nm", "--dynamic", "--defined-only", library), re.MULTILINE))
    if kept != offered:
        sys.exit(f"FAILED: {Path(library).name}: expected the functions {sorted(kept)}, got {sorted(offered)}")


def planted(work):
    original = (ROOT / "include" / "keel" / "c_api.h").read_text(encoding="utf-8")

    def found(number, before, after):
        folder = work / str(number)
        include = Path(shutil.copytree(ROOT / "include", folder / "include"))
        if original.count(before) != 1:
            sys.exit(f"FAILED: expected one {before!r} in c_api.h, got {original.count(before)}")
        (include / "keel" / "c_api.h").write_text(original.replace(before, after), encoding="utf-8")
        return difference(STORED, dump(include, folder)) != ""

    with ThreadPoolExecutor(max_workers=2) as pool:
        jobs = {name: pool.submit(found, number, *change) for number, (name, change) in enumerate(PLANTED.items())}
    missed = [name for name, job in jobs.items() if not job.result()]
    if missed:
        sys.exit(f"FAILED: expected every change to be found, got no word of {', '.join(missed)}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["check", "planted", "renew"])
    parser.add_argument("--library")
    arguments = parser.parse_args()
    for program in ("g++", "abidw", "abidiff"):
        if shutil.which(program) is None:
            print(f"skipped: there is no {program} here (Debian: g++, abigail-tools)")
            return SKIPPED
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder)
        if arguments.what == "check":
            check(arguments.library, work)
        elif arguments.what == "planted":
            planted(work)
        else:
            shutil.copyfile(dump(ROOT / "include", work), STORED)
    return 0


if __name__ == "__main__":
    sys.exit(main())
