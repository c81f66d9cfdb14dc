"""Scaled dot-product attention, softmax(scale · q kᵀ) v, forward and backward, that also reports how its softmax is
doing.

    import keel
    import numpy as np

    # batch, heads, length, head size
    q, k, v = np.random.default_rng(0).standard_normal((3, 1, 8, 128, 64), dtype=np.float32)
    out = keel.attention(q, k, v, causal=True)

`keel.attention`, `keel.attention_backward` and `keel.merge` take NumPy arrays and any CPU array that supports
DLPack, without a copy. `keel.torch` is the same for PyTorch, with autograd; `keel.transformers` registers it as an
attention implementation for Hugging Face models. Importing keel needs only NumPy.
"""

from keel._attention import AttentionResult, HeadStats, RowStats, attention, explain
from keel._backward import Gradients, attention_backward
from keel._core import version as __version__
from keel._merge import Merged, merge

__all__ = [
    "AttentionResult",
    "Gradients",
    "HeadStats",
    "Merged",
    "RowStats",
    "__version__",
    "attention",
    "attention_backward",
    "explain",
    "merge",
]
