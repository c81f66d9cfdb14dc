"""`python -m keel …` and the command `keel`: the program of that name, which the package carries."""

import os
import shlex
import sys
from pathlib import Path


def main() -> None:
    program = Path(__file__).parent / "bin" / "keel"
    if not program.is_file():
        sys.exit(
            f"keel: expected the program at {program}, got none: this package was built without the program's Debian "
            "packages (libcli11-dev, nlohmann-json3-dev, libfmt-dev, libopenblas-dev)"
        )
    # So that the commands which keel prints can be pasted.
    called = Path(sys.argv[0]).name
    os.environ["KEEL_COMMAND"] = "keel" if called == "keel" else f"{shlex.quote(sys.executable)} -m keel"
    os.execv(program, ["keel", *sys.argv[1:]])


if __name__ == "__main__":
    main()
