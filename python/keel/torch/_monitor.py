"""keel.torch.Monitor: how the softmax of a model is doing, per layer and head, while it trains or runs."""

from __future__ import annotations

import contextlib
import json
import math
import os
import threading
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from keel.torch import _observe
from keel.torch._records import FIELDS, Records, sums
from keel.torch._replace import replace

_MOST_ROWS = 1 << 23  # of calls on a GPU that wait to be summed together: some 300 MB


class Monitor:
    """Gathers statistics of the softmax, per layer and head of `model`.

    While it is active (`with monitor:`), the model's F.scaled_dot_product_attention goes through Keel (see
    keel.torch.replace). The Monitor sees these calls, those of keel.torch's own functions, and
    attn_implementation="keel"; the statistics come from the pass that computes the call. `step()` ends a step and
    returns its records, a sequence of plain dicts, one per layer and head:

    step, layer, head    where; `layer` is the name of the module that called attention
    calls, rows          how many calls, and how many of their rows, the values cover
    max_logit            largest score (QK-clip's signal)
    mean_entropy         nats, over rows
    min_entropy          nats
    saturated            share of rows whose largest weight is above saturation_threshold
    logit_std            standard deviation of the visible scores, except those that a finite bias masks

    every        gather only in every n-th step; the others cost nothing
    jsonl        a file to which step() appends one line per record
    tensorboard  a folder, or a SummaryWriter, for the same values as scalars attention/<layer>/head<h>/<name>
    on_alarm     called with a dict (step, layer, head, what, value, limit) when max_logit is above its limit or
                 mean_entropy below entropy_floor (NaN counts as both)

    On a GPU step() does not wait for the step's work to finish; reading the records does. Files and on_alarm get them
    in the next call of step(), or when the `with` block ends.

    Calls inside compiled graphs, and those over many ranks (ring_attention, context_parallel), are not seen. Only one
    Monitor can be active at a time.

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
        self._unreported: list[Records] = []  # in the order of their steps
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
        try:
            self._report_all()
        finally:
            self._open.close()
            self._open = None

    def step(self) -> Sequence[dict[str, Any]]:
        """Ends a step: writes and returns its records, calls on_alarm for those beyond a limit, and begins the next."""
        with self._lock, torch.no_grad():
            self._sum()
            calls, self._sums = self._sums, {}
            records = Records(self.steps, calls)
        self._report_all()  # of the step before; on a GPU this one is still under way
        self._unreported.append(records)
        if not records.on_their_way:
            self._report_all()
        self.steps += 1
        if self._open is not None:
            self._listen(self.steps % self.every == 0)
        return records

    def _report_all(self) -> None:
        while self._unreported:
            self._report(self._unreported.pop(0))

    def _report(self, records: Records) -> None:
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
        """Sums the calls that wait, those of equal shapes together: on a GPU each operation costs a launch."""
        groups: dict[Any, list[tuple[str, Tensor, Tensor]]] = {}
        for call in self._waiting:
            groups.setdefault((call[1].shape, call[1].device), []).append(call)
        for group in groups.values():
            layers, statistics, counts = zip(*group)
            found = sums(torch.stack(statistics), torch.stack(counts), self.saturation_threshold)
            for layer, part in zip(layers, found):
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


def _json(value: Any) -> Any:
    """null for NaN and infinity, which JSON does not have."""
    return None if isinstance(value, float) and not math.isfinite(value) else value
