#!/usr/bin/env python3
"""subproject.py CMAKE CXX KEEL [--build]: Keel, of the source tree KEEL, as part of another project.

Configures the project in subproject/ and looks at what Keel brought with it: libkeel, and nothing else. With --build also
builds and runs it, with a static and with a shared libkeel, which takes minutes. Standard library only.
"""

import json
import re
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).parent / "subproject"
MOST_STEPS = 40  # of building libkeel; one compiles a source file or makes a library
FLAGS = "-Wall -Wextra -Wpedantic -Wconversion -Wsign-conversion -Wshadow -Werror -fno-exceptions -fno-rtti".split()

failed = False


def check(ok, expected, got):
    global failed
    if not ok:
        failed = True
        print(f"FAILED: expected {expected}, got {got}")


def run(*command):
    result = subprocess.run([str(part) for part in command], text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    if result.returncode != 0:
        sys.exit(f"FAILED: {' '.join(map(str, command))}\n{result.stdout}")
    return result.stdout


def steps(build):
    """How many steps libkeel takes to build, as Ninja counts them."""
    return int(re.search(r"\[\d+/(\d+)\]", run("ninja", "-C", build, "-n", "keel"))[1])


def flags_of(build, source):
    """What `source` is compiled with, but for names of files."""
    for command in json.loads((build / "compile_commands.json").read_text(encoding="utf-8")):
        if command["file"].endswith(source):
            words = command["command"].split()
            first = next(i for i, word in enumerate(words) if word.startswith("-"))  # behind the compiler
            return words[first : words.index("-o")]
    sys.exit(f"FAILED: {source} is not compiled")


def check_configured(build, keel):
    cache = (build / "CMakeCache.txt").read_text(encoding="utf-8")
    found = set(re.findall(r"^(?!FETCHCONTENT)(\w+_DIR(?=:PATH)|(?:BLAS|BLA|CBLAS|GTEST|PY|Python|KEEL_D3)\w*)", cache, re.M))
    check(found <= {"TBB_DIR", "hwy_DIR"}, "no package but Highway and oneTBB to be looked for", sorted(found))
    for name in ("BUILD_SHARED_LIBS", "BUILD_TESTING"):
        check(f"\n{name}:" not in cache, f"{name} to be left to the project", "it in the cache")

    count = steps(build)
    check(count <= MOST_STEPS, f"at most {MOST_STEPS} steps", count)
    print(f"{count} steps, flags {' '.join(flags_of(build, 'src/cpu/plan.cc'))}")
    targets = set(re.findall(r"^(keel\w*): phony$", run("ninja", "-C", build, "-t", "targets", "all"), re.M))
    folders = re.search(r"set\(library_folders (.*)\)", (keel / "src/CMakeLists.txt").read_text(encoding="utf-8"))[1]
    check(targets == {"keel", *(f"keel_{folder}" for folder in folders.split())}, "libkeel and its folders", sorted(targets))
    tests = run("ctest", "--test-dir", build, "-N")
    check("Total Tests: 0" in tests, "no tests", tests.splitlines()[-1])

    check(flags_of(build, "bystander.cc") == FLAGS, f"a bystander to be compiled with {FLAGS}", flags_of(build, "bystander.cc"))
    consumer = [flag for flag in flags_of(build, "consumer.cc") if not re.match("-std=(c|gnu)[+][+]20$", flag)]
    own = [f"-I{keel}/include", *FLAGS]
    check(consumer == own, f"a consumer to be compiled with {own} and C++20", consumer)

    # Keel's headers, under these flags.
    run("ninja", "-C", build, "CMakeFiles/consumer.dir/consumer.cc.o")


def check_pkg_config(build, cmake, *arguments):
    """Highway is found without its CMake package, too."""
    run(cmake, *arguments, "-B", build, "-DCMAKE_DISABLE_FIND_PACKAGE_hwy=ON")
    cache = (build / "CMakeCache.txt").read_text(encoding="utf-8")
    check("KEEL_HWY_LIBRARIES:INTERNAL=hwy" in cache, "Highway by pkg-config", "none in the cache")


def check_built(build, cmake):
    for shared in ("OFF", "ON"):  # from the same objects
        run(cmake, f"-DBUILD_SHARED_LIBS={shared}", build)
        said = run(cmake, "--build", build)
        check("warning" not in said, "no warnings", said)
        print(run(build / "consumer").strip(), "shared" if shared == "ON" else "static")
        library = "libkeel.so" if shared == "ON" else "libkeel.a"
        check(list(build.rglob(library)), library, "none")
    run(cmake, "--install", build, "--prefix", build / "installed")
    installed = [path.name for path in (build / "installed").rglob("*")]
    check(not installed, "nothing of Keel to be installed", installed)


def main(cmake, cxx, keel, *build_too):
    keel = Path(keel).resolve()
    with tempfile.TemporaryDirectory() as folder:
        build = Path(folder) / "build"
        arguments = ["-G", "Ninja", "-S", HERE, f"-DCMAKE_CXX_COMPILER={cxx}", f"-DKEEL_SOURCE={keel}"]
        run(cmake, *arguments, "-B", build)
        check_configured(build, keel)
        check_pkg_config(Path(folder) / "pkg-config", cmake, *arguments)
        if build_too == ("--build",):
            check_built(build, cmake)
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    if len(sys.argv) < 4:
        sys.exit(__doc__)
    main(*sys.argv[1:])
