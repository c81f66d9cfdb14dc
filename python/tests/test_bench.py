"""python -m keel.bench: the grid, what it writes, and that both sides compute the same. No time is judged."""

import json
import math
import subprocess
import sys

import pytest
import torch
from keel.bench import cuda, grid, measure, plot, report
from keel.bench.__main__ import main


def test_grid_covers_what_it_promises():
    rows = list(grid.rows())
    assert len({row.name for row in rows}) == len(rows)
    assert {row.passes for row in rows} == {"forward", "forward+backward"}
    assert {row.dtype for row in rows} == {"f32", "bf16"} and {row.d for row in rows} == {64, 128}
    assert {1, 16, 512, 8192} <= {row.n_k for row in rows}
    kinds = {row.kind for row in rows}
    assert kinds == {"full", "causal", "bool mask", "padding", "bias", "grouped", "decode", "grouped decode"}
    assert all(row.n_q == 1 for row in rows if "decode" in row.kind)


@pytest.mark.parametrize("row", [row for row in grid.rows() if row.n_k == 128], ids=lambda row: row.name)
def test_both_sides_of_a_row_agree(row):
    assert measure.differ(row) < (1e-4 if row.dtype == "f32" else 5e-2)


def test_writes_table_json_and_plot(tmp_path, capsys):
    files = {"json": tmp_path / "out.json", "plot": tmp_path / "out.html"}
    arguments = ["--filter", "forward f32 64 n 16", "--seconds", "0.01", "--threads", "1"]
    assert main([*arguments, "--json", str(files["json"]), "--plot", str(files["plot"])]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == report.about() and lines[2] == report.HEADER and sum("16     16" in line for line in lines) == 2
    data = json.loads(files["json"].read_text())
    assert len(data["rows"]) == 2 and {row["case"] for row in data["rows"]} == {"full", "causal"}
    for row in data["rows"]:
        assert row["torch_s"] > 0 and row["keel_s"] > 0 and row["rounds"] >= 3
        assert row["low"] <= row["ratio"] <= row["high"]
    mean = math.exp(sum(math.log(row["ratio"]) for row in data["rows"]) / 2)
    assert data["summary"][0]["geometric_mean"] == pytest.approx(mean)
    page = files["plot"].read_text()
    assert page.count("<polyline") == 2 and "http" not in page


def test_a_ratio_is_the_median_of_those_of_the_rounds(monkeypatch):
    # A machine that slows down in between: the medians of the two sides are of other rounds, and 4 apart.
    torchs, ours = [4.0, 8.0, 9.0], [2.0, 2.0, 6.0]
    clock = iter([1.0, 1.0] + [torchs[0], ours[0], ours[1], torchs[1], torchs[2], ours[2]])
    monkeypatch.setattr(measure, "_seconds", lambda call, count=1: next(clock))
    result = measure.measure(next(grid.rows()), 1, 1e-9)
    assert (result.torch_s, result.keel_s, result.ratio, result.rounds) == (8.0, 2.0, 2.0, 3)


def test_the_interval_of_a_median():
    assert measure.interval([3.0, 1.0, 2.0]) == (1.0, 3.0)  # few: all of them
    assert measure.interval([float(i) for i in range(100)]) == (39.0, 60.0)  # 97 of 100 times, by the binomial
    result = measure.Result(next(grid.rows()), 1, 2.0, 1.0, 2.0, 1.9, 2.2, 6)
    assert result.margin == pytest.approx(0.075)


def test_rows_are_timed_until_their_ratio_is_known(monkeypatch):
    now = iter(range(10**6))  # a clock that advances a second per reading
    monkeypatch.setattr(measure.time, "perf_counter", lambda: next(now))

    def rounds(ratios):
        turns = [(r, 1.0) if i % 2 == 0 else (1.0, r) for i, r in enumerate(ratios)]
        values = iter([1.0, 1.0] + [value for turn in turns for value in turn])
        monkeypatch.setattr(measure, "_seconds", lambda call, count=1: next(values))
        return measure.measure(next(grid.rows()), 1, 10.0).rounds

    steady = rounds([2.0] * 500)
    assert 6 <= steady < 15  # ten seconds
    assert steady < rounds([2.0, 3.0] * 4 + [2.0] * 500) < 4 * steady  # until the 3s no longer count
    assert 6 * steady < rounds([2.0, 3.0] * 250) < 10 * steady  # until patience runs out
    assert 50 * steady < rounds([0.9, 1.2] * 1000)  # and more while it may be either side's
    assert 50 * steady < rounds([1.0] * 2000)


def test_means_are_given_by_threads_and_over_all():
    row = next(grid.rows())
    results = [
        measure.Result(row, threads, ratio, 1.0, ratio, ratio, ratio, 3) for threads, ratio in ((1, 2.0), (2, 8.0))
    ]
    means = {part["part"]: part["geometric_mean"] for part in report.summary(results)}
    assert means == pytest.approx({"forward, 1 thread": 2.0, "forward, 2 threads": 8.0, "forward": 4.0})
    assert [part["part"] for part in report.summary(results[:1])] == ["forward, 1 thread"]


def test_json_alone_on_the_standard_output(capsys):
    assert main(["--filter", "forward causal bf16 64 n 1", "--seconds", "0.01", "--threads", "1", "--json", "-"]) == 0
    assert json.loads(capsys.readouterr().out)["rows"][0]["n_k"] == 1


def test_plot_needs_rows_to_draw(tmp_path):
    with pytest.raises(ValueError, match="plot: expected rows without masks to draw, got none"):
        plot.write([], tmp_path / "out.html")


@pytest.mark.parametrize("arguments", [["--plot", "x.pdf"], ["--threads", "0"], ["--seconds", "0"], ["--nonsense"]])
def test_wrong_usage_is_exit_2(arguments, capsys):
    with pytest.raises(SystemExit) as end:
        main(arguments)
    assert end.value.code == 2 and "usage:" in capsys.readouterr().err


def test_no_such_row_is_exit_2(capsys):
    assert main(["--filter", "f128"]) == 2 and "no row has all of 'f128'" in capsys.readouterr().err


def test_runs_as_a_module():
    done = subprocess.run([sys.executable, "-m", "keel.bench", "--list"], capture_output=True, text=True, check=True)
    assert len(done.stdout.splitlines()) == len(list(grid.rows()))


def test_the_grid_of_a_gpu_has_as_many_tokens_in_every_row():
    rows = list(cuda.rows())
    assert len({row.name for row in rows}) == len(rows)
    grids = [row for row in rows if row.kind in ("full", "causal")]
    assert {(row.batch * row.n_k, row.heads * row.d) for row in grids} == {(16384, 2048)}
    assert {row.n_k for row in grids} == {512, 1024, 2048, 4096, 8192, 16384} and {row.d for row in grids} == {
        64,
        128,
        256,
    }
    assert {row.name for row in cuda.quick_rows()} < {row.name for row in rows}


def test_a_row_of_a_gpu_is_relative_to_the_fastest_of_torchs_kernels():
    row = next(row for row in cuda.rows() if row.kind == "causal" and row.d == 64 and row.n_k == 4096)
    seconds = {"keel": 1e-3, "keel + statistics": 2e-3, "cuDNN": 3e-3, "FlashAttention-2": 1.5e-3, "efficient": None}
    times = cuda.Times(row, seconds)
    assert times.ratio == pytest.approx(1.5)
    assert times.flops == 4 * 16384 * 2048 * 4096 / 2
    assert "275 TFLOP/s" in cuda.line(times) and "1.50x" in cuda.line(times)
    assert cuda.summary_lines([times]) == ["forward: 1 rows, geometric mean 1.500x, least 1.50x"]


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_without_a_gpu_the_benchmark_says_so(capsys):
    assert main(["--device", "cuda", "--quick"]) == 3
    assert capsys.readouterr().err == "keel.bench: expected a GPU, got none that can be used: torch finds none\n"
    assert main(["--device", "cuda", "--list", "--filter", "decode"]) == 0
    assert "grouped decode bf16" in capsys.readouterr().out
    assert main(["--device", "cuda", "--filter", "sideways"]) == 2
    with pytest.raises(SystemExit):
        main(["--device", "cuda", "--plot", "out.html"])
    assert "--plot: expected --device cpu with it, got cuda" in capsys.readouterr().err
