"""The Python of the pages is run, and must print what the page shows."""

import contextlib
import io
import re
import runpy
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def blocks(page):
    """The page's blocks of Python, each with the text block after it, if one follows."""
    found = re.findall(r"^```(\w+)\n(.*?)^```$", (ROOT / page).read_text(encoding="utf-8"), re.M | re.S)
    for i, (language, text) in enumerate(found):
        if language == "python":
            following = found[i + 1] if i + 1 < len(found) else ("", "")
            yield text, following[1] if following[0] == "text" else None


@pytest.mark.parametrize("page, least", [("README.md", 1), ("docs/python.md", 7), ("docs/pytorch.md", 6)])
def test_examples_print_what_the_page_shows(page, least):
    names, count = {"__name__": "example"}, 0
    for code, shown in blocks(page):
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec(compile(code, page, "exec"), names)
        assert shown is None or printed.getvalue() == shown, code
        count += shown is not None
    assert count >= least


def test_examples_of_the_page_of_jax_print_what_it_shows():
    pytest.importorskip("jax", reason="jax is not installed")
    pytest.importorskip("keel._jax", reason="the package was built without jaxlib: keel._jax is missing")
    test_examples_print_what_the_page_shows("docs/jax.md", 3)


def test_each_difference_from_torch_names_its_test():
    page = (ROOT / "docs/pytorch.md").read_text(encoding="utf-8")
    listed = page.split("What differs from torch, each with the test that shows it:")[1].split("\n## ")[0]
    differences = re.split(r"^- ", listed, flags=re.M)[1:]
    assert len(differences) >= 9
    sources = "".join(path.read_text(encoding="utf-8") for path in Path(__file__).parent.glob("test_*.py"))
    for difference in differences:
        tests = re.findall(r"`(test_\w+)`", difference)
        assert tests, difference
        for name in tests:
            assert f"def {name}(" in sources, name


def test_the_training_example_learns(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("sys.argv", ["train_torch.py", "--steps", "26", "--jsonl", str(tmp_path / "log")])
    runpy.run_path(str(ROOT / "examples/train_torch.py"), run_name="__main__")
    printed = capsys.readouterr().out
    losses = [float(loss) for loss in re.findall(r"loss (\S+)", printed)]
    assert len(losses) == 2 and losses[1] < 0.7 * losses[0], printed
    assert "sorted without a fault" in printed
    assert len((tmp_path / "log").read_text().splitlines()) == 2 * 2 * 4  # steps, layers, heads
