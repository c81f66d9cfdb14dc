"""Where a Monitor listens: `observer(statistics, counts)` is called after each attention while it is not None.

statistics is (5, B, H, N_q), in the order of _operator.STATISTICS; counts is (2, B, H, N_q), in the order of COUNTS.
"""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor

observer: Callable[[Tensor, Tensor], None] | None = None
