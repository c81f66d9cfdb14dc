#!/usr/bin/env python3
"""order_shown.py ROOT: fails when docs/architecture.md shows another order of folders than includes.py enforces.

A line `core + runtime ← plan` says that plan stands on core and runtime. Prints each difference. Standard library only.
"""

import re
import sys
from pathlib import Path

import includes

LINE = re.compile(r"^ *([\w/]+(?: \+ [\w/]+)*) ← ([\w/]+(?:, [\w/]+)*)(?: {2}|$)", re.M)


def shown(text):
    """folder -> the folders it stands on, as the page has it."""
    return {folder: set(below.split(" + ")) for below, above in LINE.findall(text) for folder in above.split(", ")}


def main(root):
    page = shown((root / "docs/architecture.md").read_text(encoding="utf-8"))
    enforced = {folder: set(below) for folder, below in includes.STANDS_ON.items() if below}
    differing = sorted(folder for folder in page.keys() | enforced.keys() if page.get(folder) != enforced.get(folder))
    for folder in differing:
        print(f"docs/architecture.md: expected {folder} on {enforced.get(folder)}, as in includes.py, got {page.get(folder)}")
    return 1 if differing else 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
