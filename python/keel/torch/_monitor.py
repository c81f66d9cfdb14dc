"""keel.torch.Monitor: how the softmax of a model is doing, per layer and head, while it trains or runs."""

from __future__ import annotations

import contextlib
import json
import math
import os
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from keel.torch import _observe
from keel.torch._replace import replace

FIELDS = ("max_logit", "mean_entropy", "min_entropy", "saturated", "logit_std")


_MOST_ROWS = 1 << 23  # of calls on a GPU that wait to be summed together: some 300 MB


def _sums(statistics: Tensor, counts: Tensor, threshold: float) -> Tensor:
    """Per call and head, what records() is made of: (calls, 8, H) from (calls, 5, B, H, N_q) and (calls, 2, B, H,
    N_q)."""
    max_logit, entropy, max_weight, mean, var = statistics.unbind(1)
    visible, logit_count = counts.unbind(1)
    seen = visible > 0
    rows = (1, 3)
    count = logit_count.double()
    wide = mean.double()
    first = (count * wide).sum(rows)
    # About each head's own mean: the squares of large logits would swamp their spread.
    total = count.sum(rows)
    centre = first / total.clamp(min=1)
    second = (count * (var.double() + (wide - centre[:, None, :, None]).square())).sum(rows)
    return torch.stack(
        [
            max_logit.amax(rows).double(),
            entropy.sum(rows, dtype=torch.float64),
            torch.where(seen, entropy, torch.inf).amin(rows).double(),
            (max_weight > threshold).sum(rows).double(),
            seen.sum(rows).double(),
            total,
            first,
            second,
        ],
        1,
    )


def _records(step: int, layer: str, parts: Any) -> list[dict[str, Any]]:
    """From the sums of all calls of a layer: a NumPy array (calls, 8, H)."""
    calls = len(parts)
    parts = parts[parts[:, 4].any(1)]  # calls in which some row saw a key
    if not len(parts):
        return []
    max_logit, entropy, min_entropy, saturated, rows, count, first, second = parts.swapaxes(0, 1)
    total, all_rows = count.sum(0), rows.sum(0)
    centre = first.sum(0) / np.maximum(total, 1)
    # Spread about the mean of all calls: within each, and between them.
    squares = second + count * (first / np.maximum(count, 1) - centre) ** 2
    with np.errstate(invalid="ignore"):  # heads without rows, which have no record
        values = (
            max_logit.max(0),
            entropy.sum(0) / all_rows,
            min_entropy.min(0),
            saturated.sum(0) / all_rows,
            np.sqrt(squares.sum(0) / np.maximum(total, 1)),
        )
    lists = [value.tolist() for value in values]
    return [
        {"step": step, "layer": layer, "head": head, "calls": calls, "rows": int(n)}
        | {field: column[head] for field, column in zip(FIELDS, lists)}
        for head, n in enumerate(all_rows.tolist())
        if n > 0
    ]


class Monitor:
    """Gathers statistics of the softmax, per layer and head of `model`.

    While it is active (`with monitor:`), the model's F.scaled_dot_product_attention goes through Keel (see
    keel.torch.replace). It sees these calls, those of keel.torch's own functions, and attn_implementation="keel"; each
    reports from the pass that computes it. `step()` ends a step and returns its records, a plain dict per layer and
    head:

    step, layer, head    where; `layer` is the name of the module that called attention
    calls, rows          how many calls, and how many of their rows, the values are over
    max_logit            largest score (QK-clip's signal)
    mean_entropy         nats, over rows
    min_entropy          nats
    saturated            share of rows whose largest weight is above saturation_threshold
    logit_std            standard deviation of the visible scores, except those that a finite bias masks

    every        gather in every n-th step only; the others cost nothing
    jsonl        a file to which step() appends one line per record
    tensorboard  a folder, or a SummaryWriter, for the same values as scalars attention/<layer>/head<h>/<name>
    on_alarm     called with a dict (step, layer, head, what, value, limit) when max_logit is above its limit or
                 mean_entropy below entropy_floor (NaN counts as both)

    Calls inside compiled graphs are not seen. Only one Monitor can be active at a time.

    >>> import torch, keel.torch
    >>> model = torch.nn.TransformerEncoderLayer(32, 4, 64, batch_first=True)
    >>> with keel.torch.Monitor(model) as monitor:
    ...     _ = model(torch.randn(2, 10, 32))
    ...     records = monitor.step()
    >>> [(r["layer"], r["head"], r["rows"]) for r in records]
    [('self_attn', 0, 20), ('self_attn', 1, 20), ('self_attn', 2, 20), ('self_attn', 3, 20)]
    """

    def __init__(
        self,
        model: torch.nn.Module,
        *,
        every: int = 1,
        jsonl: str | os.PathLike[str] | None = None,
        tensorboard: Any = None,
        on_alarm: Callable[[dict[str, Any]], None] | None = None,
        max_logit: float = 100.0,
        entropy_floor: float = 0.0,
        saturation_threshold: float = 0.99,
    ) -> None:
        if not isinstance(model, torch.nn.Module):
            raise TypeError(f"[Monitor] model: expected a torch.nn.Module, got {type(model).__name__}")
        if every < 1:
            raise ValueError(f"[Monitor] every: expected at least 1, got {every}")
        self.model = model
        self.every = every
        self.jsonl = jsonl
        self.tensorboard = tensorboard
        self.on_alarm = on_alarm
        self.max_logit = max_logit
        self.entropy_floor = entropy_floor
        self.saturation_threshold = saturation_threshold
        self.steps = 0
        self._sums: dict[str, list[Tensor]] = {}  # by layer: (8, H) of each call
        self._waiting: list[tuple[str, Tensor, Tensor]] = []  # calls on a GPU that are not summed yet
        self._waiting_rows = 0
        self._here = threading.local()
        self._lock = threading.Lock()
        self._open: contextlib.ExitStack | None = None
        self._writer: Any = None

    def __enter__(self) -> Monitor:
        if _observe.observer is not None or self._open is not None:
            raise RuntimeError("[Monitor] expected no other active Monitor, got one")
        with contextlib.ExitStack() as stack:
            stack.enter_context(replace())
            # In eval mode torch.nn's transformer layers have a fused path that bypasses attention.
            stack.callback(torch.backends.mha.set_fastpath_enabled, torch.backends.mha.get_fastpath_enabled())
            torch.backends.mha.set_fastpath_enabled(False)
            for name, module in self.model.named_modules():
                enter, leave = self._hooks(name or type(module).__name__)
                stack.callback(module.register_forward_pre_hook(enter).remove)
                stack.callback(module.register_forward_hook(leave, always_call=True).remove)
            if self.tensorboard is not None:
                self._writer = self.tensorboard
                if isinstance(self.tensorboard, (str, os.PathLike)):
                    from torch.utils.tensorboard import SummaryWriter

                    self._writer = stack.enter_context(SummaryWriter(os.fspath(self.tensorboard)))
            stack.callback(self._listen, False)
            self._open = stack.pop_all()
        self._listen(self.steps % self.every == 0)
        return self

    def __exit__(self, *_: Any) -> None:
        assert self._open is not None
        self._open.close()
        self._open = None

    def step(self) -> list[dict[str, Any]]:
        """Ends a step: writes and returns its records, calls on_alarm for those beyond a limit, and begins the next."""
        with self._lock, torch.no_grad():
            self._sum()
            sums, self._sums = self._sums, {}
            parts = _on_the_cpu([torch.stack(calls) for calls in sums.values()])
        records = [record for layer, part in zip(sums, parts) for record in _records(self.steps, layer, part.numpy())]
        if self.jsonl is not None and records:
            with open(self.jsonl, "a", encoding="utf-8") as file:
                for record in records:
                    file.write(json.dumps({k: _json(v) for k, v in record.items()}) + "\n")
        if self._writer is not None:
            for record in records:
                for field in FIELDS:
                    tag = f"attention/{record['layer']}/head{record['head']}/{field}"
                    self._writer.add_scalar(tag, record[field], record["step"])
        if self.on_alarm is not None:
            for record in records:
                self._alarm(self.on_alarm, record)
        self.steps += 1
        if self._open is not None:
            self._listen(self.steps % self.every == 0)
        return records

    def _alarm(self, on_alarm: Callable[[dict[str, Any]], None], record: dict[str, Any]) -> None:
        limits = {"max_logit": self.max_logit, "mean_entropy": self.entropy_floor}
        fine = {
            "max_logit": record["max_logit"] <= self.max_logit,
            "mean_entropy": record["mean_entropy"] >= self.entropy_floor,
        }
        for what, limit in limits.items():
            if not fine[what]:
                place = {key: record[key] for key in ("step", "layer", "head")}
                on_alarm(place | {"what": what, "value": record[what], "limit": limit})

    def _listen(self, on: bool) -> None:
        _observe.observer = self._observe if on else None

    def _observe(self, statistics: Tensor, counts: Tensor) -> None:
        names = getattr(self._here, "names", None)
        if not names:
            return  # not from this model
        with self._lock, torch.no_grad():
            self._sums.setdefault(names[-1], [])  # which keeps the layers in the order of their calls
            self._waiting.append((names[-1], statistics.detach(), counts))
            self._waiting_rows += counts[0].numel()
            if not statistics.is_cuda or self._waiting_rows > _MOST_ROWS:
                self._sum()

    def _sum(self) -> None:
        """Sums the calls that wait, those of equal shapes together: on a GPU each operation costs its launch."""
        groups: dict[Any, list[tuple[str, Tensor, Tensor]]] = {}
        for call in self._waiting:
            groups.setdefault((call[1].shape, call[1].device), []).append(call)
        for group in groups.values():
            layers, statistics, counts = zip(*group)
            sums = _sums(torch.stack(statistics), torch.stack(counts), self.saturation_threshold)
            for layer, part in zip(layers, sums):
                self._sums[layer].append(part)
        self._waiting, self._waiting_rows = [], 0

    def _hooks(self, name: str) -> tuple[Callable[..., None], Callable[..., None]]:
        def enter(*_: Any) -> None:
            if not hasattr(self._here, "names"):
                self._here.names = []
            self._here.names.append(name)

        def leave(*_: Any) -> None:
            self._here.names.pop()

        return enter, leave


def _on_the_cpu(parts: list[Tensor]) -> list[Tensor]:
    """The same on the CPU, in one transfer per device: each waits for the device."""
    for device in {part.device for part in parts if part.device.type != "cpu"}:
        there = [i for i, part in enumerate(parts) if part.device == device]
        numbers = torch.cat([parts[i].flatten() for i in there]).cpu().split([parts[i].numel() for i in there])
        for i, found in zip(there, numbers):
            parts[i] = found.view(parts[i].shape)
    return parts


def _json(value: Any) -> Any:
    """null for NaN and infinity, which JSON does not have."""
    return None if isinstance(value, float) and not math.isfinite(value) else value
