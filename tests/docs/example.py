#!/usr/bin/env python3
"""example.py code PAGE OUTPUT: writes the page's first C++ block, a program, to OUTPUT.
example.py check PAGE PROGRAM: fails unless PROGRAM prints the text block after it. Standard library only.
"""

import re
import subprocess
import sys
from pathlib import Path


def block(page, language):
    found = re.search(rf"^```{language}\n(.*?)^```$", Path(page).read_text(encoding="utf-8"), re.M | re.S)
    if found is None:
        sys.exit(f"{page}: no {language} block")
    return found.group(1)


def main(verb, page, other):
    if verb == "code":
        Path(other).write_text(block(page, "cpp"), encoding="utf-8")
        return 0
    printed = subprocess.run([other], capture_output=True, text=True, check=True).stdout
    if printed == block(page, "text"):
        return 0
    print(f"{page} shows\n{block(page, 'text')}but the program prints\n{printed}")
    return 1


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
