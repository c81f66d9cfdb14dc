"""The documentation site, and the files that say what a change must pass."""

import importlib
import re
import subprocess
import sys
from pathlib import Path

import keel
import keel.torch
import keel.transformers
import pytest

pytest.importorskip("mkdocs")
yaml = pytest.importorskip("yaml")

ROOT = Path(__file__).parents[2]


def build(tmp_path, change=lambda pages: None):
    """Builds the site in a folder of its own, after a change to its pages."""
    pages, site = tmp_path / "pages", tmp_path / "site"
    subprocess.run([sys.executable, ROOT / "scripts/docs.py", ROOT, pages], check=True)
    change(pages)
    settings = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    settings = settings.replace("build/docs/pages", str(pages)).replace("build/docs/site", str(site))
    (tmp_path / "mkdocs.yml").write_text(settings)
    command = [sys.executable, "-m", "mkdocs", "build", "--strict"]
    return site, subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)


def test_is_built_without_a_broken_link(tmp_path):
    site, done = build(tmp_path)
    assert done.returncode == 0, done.stderr
    for page in (ROOT / "docs").glob("*.md"):
        assert (site / page.with_suffix(".html").name).exists()
    reference = (site / "reference.html").read_text(encoding="utf-8")
    for package in (keel, keel.torch):
        for name in set(package.__all__) - {"__version__"}:
            assert f'id="{package.__name__}.{name}"' in reference, name
    assert "softmax(scale" in reference  # a docstring
    assert not re.search(r"<(?:script|link)[^>]+(?:src|href)=.?https?://", reference)  # it needs no network


@pytest.mark.parametrize("link", ["[x](nowhere.md)", "[x](cpp.md#nowhere)"])
def test_a_broken_link_is_found(tmp_path, link):
    def break_it(pages):
        with (pages / "python.md").open("a") as page:
            page.write(f"\n{link}\n")

    _, done = build(tmp_path, break_it)
    assert done.returncode != 0 and "nowhere" in done.stderr


def test_the_workflow_runs_what_is_there():
    workflow = yaml.safe_load((ROOT / ".github/workflows/ci.yml").read_text())
    jobs = workflow["jobs"]
    assert {"test", "lint", "docs", "wheels"} == set(jobs)
    commands = [step["run"] for job in jobs.values() for step in job["steps"] if "run" in step]
    assert ".ci/run" in commands and "make docs" in commands
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.M))
    for target in re.findall(r"\bmake ([a-z-]+)$", "\n".join(commands), re.M):
        assert target in targets, target
    hooks = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text())["repos"][0]["hooks"]
    for hook in hooks:
        if hook["language"] == "system":
            assert (ROOT / hook["entry"]).exists()


def test_cibuildwheels_command_holds():
    tomllib = importlib.import_module("tomllib" if sys.version_info >= (3, 11) else "tomli")
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["cibuildwheel"]
    subprocess.run(settings["test-command"].replace("python", sys.executable, 1), shell=True, check=True)
