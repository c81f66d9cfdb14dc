"""What a Monitor makes of the statistics of a step: sums per call and head, and records of them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

FIELDS = ("max_logit", "mean_entropy", "min_entropy", "saturated", "logit_std")


def sums(statistics: Tensor, counts: Tensor, threshold: float) -> Tensor:
    """Per call and head, what records are made of: (calls, 8, H) from (calls, 5, B, H, N_q) and (calls, 2, B, H,
    N_q)."""
    max_logit, entropy, max_weight, mean, var = statistics.unbind(1)
    visible, count = counts.unbind(1)
    seen = visible > 0
    rows = (1, 3)
    total = count.sum(rows, dtype=torch.float64)
    first = (mean * count).sum(rows, dtype=torch.float64)
    # About each head's own mean: the squares of large logits would swamp their spread.
    centre = first / total.clamp(min=1)
    away = mean - centre.to(mean.dtype)[:, None, :, None]
    second = (torch.addcmul(var, away, away) * count).sum(rows, dtype=torch.float64)
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


def of_layer(step: int, layer: str, parts: Any) -> list[dict[str, Any]]:
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


class Records(Sequence[dict[str, Any]]):
    """The records of a step, from the sums of its calls by layer. On a GPU these are still under way: the first to
    read them waits."""

    def __init__(self, step: int, calls: dict[str, list[Tensor]]) -> None:
        self._step = step
        self._made: list[dict[str, Any]] | None = None
        self._calls = calls
        self._events: list[torch.cuda.Event] = []
        for device in {part.device for parts in calls.values() for part in parts if part.is_cuda}:
            self._send(device)

    def _send(self, device: torch.device) -> None:
        """Queues one transfer of all that lies on the device."""
        there = [(parts, i) for parts in self._calls.values() for i, part in enumerate(parts) if part.device == device]
        flat = torch.cat([parts[i].flatten() for parts, i in there]).to("cpu", non_blocking=True)
        self._events.append(torch.cuda.current_stream(device).record_event())
        for (parts, i), numbers in zip(there, flat.split([parts[i].numel() for parts, i in there])):
            parts[i] = numbers.view(parts[i].shape)

    @property
    def on_their_way(self) -> bool:
        return self._made is None and bool(self._events)

    def _all(self) -> list[dict[str, Any]]:
        if self._made is None:
            for event in self._events:
                event.synchronize()
            self._made = [
                record
                for layer, parts in self._calls.items()
                for record in of_layer(self._step, layer, torch.stack(parts).numpy())
            ]
            self._calls, self._events = {}, []
        return self._made

    def __getitem__(self, index: Any) -> Any:
        return self._all()[index]

    def __len__(self) -> int:
        return len(self._all())

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return iter(self._all())

    def __eq__(self, other: object) -> bool:
        return self._all() == (other._all() if isinstance(other, Records) else other)

    def __repr__(self) -> str:
        return repr(self._all())
