"""Scaled dot-product attention, softmax(scale · q kᵀ) v, forward and backward, with reports on the health of its
softmax.

    import keel
    import numpy as np

    # batch, heads, length, head size
    q, k, v = np.random.default_rng(0).standard_normal((3, 1, 8, 128, 64), dtype=np.float32)
    out = keel.attention(q, k, v, causal=True)

`keel.attention`, its derivatives `keel.attention_backward`, `keel.attention_jvp` and `keel.attention_double_backward`,
and `keel.merge` take NumPy arrays and any array in CPU or CUDA memory that supports DLPack, without a copy.
`keel.torch` is the same for PyTorch, with autograd, and `keel.jax` for JAX; `keel.transformers` registers it as an
attention implementation for Hugging Face models. Importing keel needs only NumPy.
"""

try:
    from keel import _core
except ImportError as error:
    for _library, _debian, _pip in (("libhwy", "libhwy1", "none"), ("libtbb", "libtbb12", "tbb")):
        if _library in str(error):
            raise ImportError(
                f"keel needs {_library}, which the loader did not find; Debian's package is {_debian}, pip's {_pip}; "
                f"Keel's own wheel brings it along ({error})"
            ) from None
    raise

from keel._attention import AttentionResult, HeadStats, RowStats, attention, explain
from keel._backward import Gradients, attention_backward
from keel._blocks import BlockMask, block_mask
from keel._config import show_config
from keel._merge import Merged, merge
from keel._tangents import DoubleGradients, Jvp, Tangents, attention_double_backward, attention_jvp

__version__: str = _core.version

__all__ = [
    "AttentionResult",
    "BlockMask",
    "DoubleGradients",
    "Gradients",
    "HeadStats",
    "Jvp",
    "Merged",
    "RowStats",
    "Tangents",
    "__version__",
    "attention",
    "attention_backward",
    "attention_double_backward",
    "attention_jvp",
    "block_mask",
    "explain",
    "merge",
    "show_config",
]
