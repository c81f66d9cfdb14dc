#!/usr/bin/env python3
"""named_tests.py ROOT: fails when a page, at the top or in docs/, names a test that does not exist.

A test is named as `Suite.Name` in backticks. Prints each offence as file:line. Standard library only.
"""

import re
import sys
from pathlib import Path

DEFINED = re.compile(r"\b(?:TEST|TEST_F|TEST_P|TYPED_TEST)\(\s*(\w+)\s*,\s*(\w+)\s*\)")
ADDED = re.compile(r"\badd_test\(NAME (\w+\.\w+)")
NAMED = re.compile(r"`([A-Z]\w+\.[A-Z]\w+)`")


def main(root):
    tests = {
        f"{suite}.{name}"
        for path in (root / "tests").rglob("*.cc")
        for suite, name in DEFINED.findall(path.read_text(encoding="utf-8"))
    }
    for path in (root / "tests").rglob("CMakeLists.txt"):
        tests.update(ADDED.findall(path.read_text(encoding="utf-8")))
    named = offences = 0
    for path in sorted([*root.glob("*.md"), *root.glob("docs/*.md")]):
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
            for name in NAMED.findall(line):
                named += 1
                if name not in tests:
                    offences += 1
                    print(f"{path.relative_to(root)}:{number}: no test is called {name}")
    if named == 0:
        print("the pages name no test at all: the pattern must be wrong")
    return 1 if offences or named == 0 else 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
