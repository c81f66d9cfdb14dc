"""Keel for JAX: attention under jit, grad and vmap, on CPUs and CUDA devices.

attention   every option of keel.attention, with gradients for q, k, v, bias, scale, sinks and relative_bias
"""

try:
    from keel import _jax as _jax
except ImportError:
    raise ImportError(
        "keel.jax needs its compiled part, keel._jax, which this package was built without; "
        "`pip install .` of Keel's source, where jaxlib is installed, builds it"
    ) from None

from keel.jax._attention import attention

__all__ = ["attention"]
