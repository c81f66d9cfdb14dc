#!/usr/bin/env python3
"""version.py ROOT: fails when a page states another version of Keel than CMakeLists.txt, which is where it is set.

Prints each offence as file:line. Standard library only.
"""

import re
import sys
from pathlib import Path

PAGES = ("README.md", "CHANGELOG.md", "docs/cli.md", "docs/cpp.md")
# "Keel is at 0.2.0", "To become 0.2.0", what `keel info` prints, find_package(keel 0.2), libkeel.so.0.2
STATED = re.compile(r"(?:Keel is at |To become |^keel +|find_package\(keel |libkeel\.so\.)(\d[\d.]*\d)")


def main(root):
    version = re.search(r"project\(keel VERSION (\d+\.\d+\.\d+)", (root / "CMakeLists.txt").read_text(encoding="utf-8"))[1]
    stated = offences = 0
    for page in PAGES:
        for number, line in enumerate((root / page).read_text(encoding="utf-8").splitlines(), 1):
            for found in STATED.findall(line):
                stated += 1
                if found != version and found != version.rpartition(".")[0]:
                    offences += 1
                    print(f"{page}:{number}: expected {version}, as in CMakeLists.txt, got {found}")
    if stated < len(PAGES):
        print(f"expected each of {', '.join(PAGES)} to state the version, got {stated} places")
    return 1 if offences or stated < len(PAGES) else 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
