"""What a Monitor costs: training steps of a small transformer with it and without, in turns."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable

import torch

import keel.torch


def _step(model: torch.nn.Module, x: torch.Tensor) -> None:
    model.zero_grad()
    model(x).square().mean().backward()


def measure(threads: int, seconds: float) -> list[str]:
    """Lines of a table: the seconds of a step on Keel without a Monitor, with one, and with one every tenth step."""
    torch.set_num_threads(threads)
    torch.manual_seed(0)
    layer = torch.nn.TransformerEncoderLayer(256, 8, 1024, dropout=0.0, batch_first=True)
    model = torch.nn.TransformerEncoder(layer, 4, enable_nested_tensor=False)
    x = torch.randn(4, 256, 256)

    def plain() -> None:
        with keel.torch.replace():
            for _ in range(10):
                _step(model, x)

    def watched(every: int) -> Callable[[], None]:
        def run() -> None:
            with keel.torch.Monitor(model, every=every) as monitor:
                for _ in range(10):
                    _step(model, x)
                    monitor.step()

        return run

    ways = {"without": plain, "every step": watched(1), "every tenth step": watched(10)}
    times: dict[str, list[float]] = {name: [] for name in ways}
    end = time.perf_counter() + seconds
    rounds = 0
    while rounds < 3 or time.perf_counter() < end:
        for name, run in ways.items():
            begin = time.perf_counter()
            run()
            times[name].append((time.perf_counter() - begin) / 10)
        rounds += 1
    base = statistics.median(times["without"])
    lines = [f"training step of 4 layers, 8 heads, batch 4, length 256, {threads} thread{'s' if threads > 1 else ''}"]
    for name, measured in times.items():
        median = statistics.median(measured)
        lines.append(f"  Monitor {name:<18}{median * 1e3:>10.2f} ms{100 * (median / base - 1):>+8.1f} %")
    return lines
