"""Where Monitor listens. `observer(statistics, visible)` is called after each attention while it is not None."""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor

observer: Callable[[Tensor, Tensor], None] | None = None
