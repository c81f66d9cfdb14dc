"""The types of the package, and of a program that uses it, under mypy --strict; and ruff."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
CONSUMER = ROOT / "python/tests/consumer.py"


def run(module, *arguments):
    pytest.importorskip(module)
    return subprocess.run([sys.executable, "-m", module, *arguments], cwd=ROOT, capture_output=True, text=True)


def mypy(*arguments):
    cache = ("--cache-dir", "build/mypy", "--config-file", "pyproject.toml", "--strict")
    return run("mypy", *cache, "--python-executable", sys.executable, *arguments)


def test_the_package_is_strictly_typed():
    done = mypy("-p", "keel")
    assert done.returncode == 0, done.stdout


def test_what_is_returned_follows_from_what_is_asked_for():
    done = mypy(str(CONSUMER))
    assert done.returncode == 0, done.stdout


def test_wrong_uses_are_found(tmp_path):
    program = tmp_path / "wrong.py"
    program.write_text(
        "import keel, keel.torch, torch\n"
        "x = torch.zeros(1, 2, 3, 4)\n"
        "keel.torch.attention(x, x, x, casual=True)\n"
        "keel.torch.attention(x, x, x, return_lse=True).sum()\n"
        "keel.attention(x, x, x, softcap='much')\n"
        "keel.merge([x]).weights\n"
    )
    found = mypy(str(program)).stdout
    assert all(f"wrong.py:{line}: error" in found for line in (3, 4, 5, 6)), found


def test_ruff_finds_nothing():
    for task in (["check"], ["format", "--check"]):
        done = run("ruff", *task, "python")
        assert done.returncode == 0, done.stdout
