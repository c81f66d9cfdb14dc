#!/usr/bin/env python3
"""named_paths.py ROOT: fails when a page, at the top or in docs/, names or links a file that the tree does not have.

A path is named by its way from the root, `src/core/problem.cc`, `tests/conformance/`. Prints each offence as file:line.
Standard library only.
"""

import re
import sys
from pathlib import Path

FOLDERS = "bench|cmake|docs|examples|fuzz|include|lab|python|scripts|src|tests"
NAMED = re.compile(rf"(?<![\w/.-])((?:{FOLDERS})/[\w./-]*[\w/])")
LINKED = re.compile(r"\[[^]]+\]\(([\w./-]+)[)#]")


def offences(root):
    """All offences below `root` as "file:line: text", and how many paths the pages name."""
    found, named = [], 0
    for page in sorted([*root.glob("*.md"), *root.glob("docs/*.md")]):
        for number, line in enumerate(page.read_text(encoding="utf-8").splitlines(), 1):
            paths = [(root / path, path) for path in NAMED.findall(line)]
            paths += [(page.parent / path, path) for path in LINKED.findall(line)]
            named += len(paths)
            found += [f"{page.relative_to(root)}:{number}: there is no {name}" for path, name in paths if not path.exists()]
    return found, named


def main(root):
    found, named = offences(root)
    print("\n".join(found) if found else f"{named} paths, all there")
    return 1 if found or named == 0 else 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
