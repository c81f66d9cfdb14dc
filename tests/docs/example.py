#!/usr/bin/env python3
"""example.py code PAGE NUMBER OUTPUT: writes the page's NUMBER-th program of C++ or C (a block with a main) to OUTPUT.
example.py check PAGE NUMBER PROGRAM: fails unless PROGRAM prints the text block that follows that program.
Standard library only.
"""

import re
import subprocess
import sys
from pathlib import Path


def example(page, number):
    """The program and what it prints."""
    blocks = re.findall(r"^```(\w+)\n(.*?)^```$", Path(page).read_text(encoding="utf-8"), re.M | re.S)
    programs = [i for i, (language, text) in enumerate(blocks) if language in ("cpp", "c") and "int main(" in text]
    if not 1 <= number <= len(programs):
        sys.exit(f"{page}: expected program {number}, got {len(programs)} programs")
    at = programs[number - 1]
    if at + 1 == len(blocks) or blocks[at + 1][0] != "text":
        sys.exit(f"{page}: expected a text block after program {number}")
    return blocks[at][1], blocks[at + 1][1]


def main(verb, page, number, other):
    code, shown = example(page, int(number))
    if verb == "code":
        Path(other).write_text(code, encoding="utf-8")
        return 0
    printed = subprocess.run([other], capture_output=True, text=True, check=True).stdout
    if printed == shown:
        return 0
    print(f"{page} shows\n{shown}but program {number} prints\n{printed}")
    return 1


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
