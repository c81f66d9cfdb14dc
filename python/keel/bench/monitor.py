"""What a Monitor costs: training steps of a small transformer with and without one, alternately."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable

import torch

import keel.torch

STEPS = 10


def measure(threads: int, seconds: float) -> list[str]:
    """Lines of a table: forward passes and training steps with a Monitor, with one in every tenth step, and without."""
    torch.set_num_threads(threads)
    torch.manual_seed(0)
    layer = torch.nn.TransformerEncoderLayer(256, 8, 1024, dropout=0.0, batch_first=True)
    model = torch.nn.TransformerEncoder(layer, 4, enable_nested_tensor=False)
    x = torch.randn(4, 256, 256)

    def forward() -> None:
        with torch.no_grad():
            model(x)

    def train() -> None:
        model.zero_grad()
        model(x).square().mean().backward()

    lines = [f"4 layers, 8 heads, batch 4, length 256, f32, CPU time, {threads} thread{'s' if threads > 1 else ''}"]
    for name, work in (("forward", forward), ("training step", train)):
        times = _in_turns({"without": _plain(work), **_watched(model, work)}, seconds)
        for way, median in times.items():
            more = 100 * (median / times["without"] - 1)
            lines.append(f"  {name:<15}Monitor {way:<18}{median * 1e3:>10.2f} ms{more:>+8.1f} %")
    return lines


def _plain(work: Callable[[], None]) -> Callable[[], None]:
    def run() -> None:
        with keel.torch.replace():
            for _ in range(STEPS):
                work()

    return run


def _watched(model: torch.nn.Module, work: Callable[[], None]) -> dict[str, Callable[[], None]]:
    def way(every: int) -> Callable[[], None]:
        def run() -> None:
            with keel.torch.Monitor(model, every=every) as monitor:
                for _ in range(STEPS):
                    work()
                    monitor.step()

        return run

    return {"every step": way(1), "every tenth step": way(10)}


def _in_turns(ways: dict[str, Callable[[], None]], seconds: float) -> dict[str, float]:
    """The median CPU seconds per step, alternating between the ways. CPU time is less disturbed by other work on the
    machine, and the differences are only a few per cent.
    """
    times: dict[str, list[float]] = {name: [] for name in ways}
    end = time.perf_counter() + seconds
    rounds = 0
    while rounds < 3 or time.perf_counter() < end:
        for name, run in ways.items():
            begin = time.process_time()
            run()
            times[name].append((time.process_time() - begin) / STEPS)
        rounds += 1
    return {name: statistics.median(measured) for name, measured in times.items()}
