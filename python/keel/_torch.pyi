"""The compiled part of keel.torch, for one version of torch."""

from typing import Any

from torch import Tensor

torch: str

def sdpa(
    query: Any, key: Any, value: Any, attn_mask: Any, is_causal: Any, scale: Any, enable_gqa: Any
) -> Tensor | None:
    """Attention of plain tensors; None for anything else."""
