"""The notebook runs from its first cell to its last, and shows what its text says."""

import contextlib
import io
import json
import re
from pathlib import Path

import pytest

NOTEBOOK = Path(__file__).parents[2] / "examples/lab.ipynb"


@pytest.fixture(scope="module")
def run():
    """What each cell of code printed, and how many figures were shown."""
    matplotlib = pytest.importorskip("matplotlib")
    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    printed, shown = [], []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(plt, "show", lambda: shown.append(plt.gcf()) or plt.close("all"))
        names = {"__name__": "notebook"}
        for cell in json.loads(NOTEBOOK.read_text(encoding="utf-8"))["cells"]:
            if cell["cell_type"] != "code":
                continue
            with contextlib.redirect_stdout(io.StringIO()) as out:
                exec(compile("".join(cell["source"]), NOTEBOOK.name, "exec"), names)
            printed.append(out.getvalue())
    return "".join(printed), shown


def numbers(pattern, text):
    found = re.search(pattern, text)
    assert found, f"{pattern} is not in\n{text}"
    return [float(x) for x in found.groups()]


def test_every_cell_runs_and_draws(run):
    assert len(run[1]) == 5


def test_its_numbers_are_those_of_the_mathematics(run):
    text = run[0]
    assert numbers(r"at d_k = 512: (\S+),", text)[0] == pytest.approx(22.6, abs=0.5)
    assert numbers(r"99.0% of the weight from x = (\S+) on", text)[0] == pytest.approx(5.7, abs=0.11)  # ln(99 · 3)
    assert all(float(x) < 1e-12 for x in re.findall(r"within (\S+) of the formula", text))
    assert len(re.findall(r"of the formula", text)) == 2
    scaled = numbers(r"divided by √d_k: (\S+) nats at d_k = 1, (\S+) at 1024", text)
    raw = numbers(r"unscaled: (\S+) nats at d_k = 1, (\S+) at 1024", text)
    assert scaled[1] > 3 and raw[1] < 0.3
    cold, unit, hot = (float(x) for x in re.findall(r"τ = \S+ √d_k: entropy (\S+) nats", text))
    assert cold < unit < hot
    assert "[[0.4555 0.2246 0.3199]" in text  # document 003, by hand


def test_a_mask_of_numbers_hides_nothing(run):
    added, applied = numbers(r"on the future: (\S+) with numbers, (\S+) with bools", run[0])
    assert added > 0.1 and applied == 0
    assert "pass mask.bool()" in run[0]


def test_every_arm_learns_something(run):
    curves = re.findall(r"loss (\S+) → (\S+)", run[0])
    assert len(curves) == 6
    assert all(float(last) < float(first) for first, last in curves)
