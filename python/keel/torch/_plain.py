"""Which tensors are plain: dense memory on the CPU or a CUDA device, and nothing that changes what an operator means.
What is plain needs no dispatcher."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd import forward_ad
from torch.nn import Parameter

_keys = torch._C._dispatch_keys
_dispatch_modes = torch._C._len_torch_dispatch_stack
_function_modes = torch._C._len_torch_function_stack
_transform = torch._C._functorch.maybe_current_level
_tracing = torch._C._get_tracing_state
_compiling = torch.compiler.is_compiling

_ON_CPU = _keys(torch.empty(0)).raw_repr()
_ON_CUDA = _ON_CPU  # with the bits of the one device in place of the other's: to ask for a tensor would initialise CUDA
for _name in ("CPU", "CUDA", "AutocastCPU", "AutocastCUDA"):
    _ON_CUDA ^= torch._C.DispatchKeySet(getattr(torch._C.DispatchKey, _name)).raw_repr()
_KEYS = (_ON_CPU, _ON_CUDA)


def is_plain(x: Tensor) -> bool:
    return _keys(x).raw_repr() in _KEYS


def is_plain_call(arguments: Any) -> bool:
    """Whether all tensors among the arguments are plain, and no mode, transform or trace is active."""
    if _compiling() or _dispatch_modes() or _function_modes() or _tracing() is not None or _transform() is not None:
        return False
    if forward_ad._current_level >= 0:  # tensors may have tangents
        return False
    return all(type(x) in (Tensor, Parameter) and is_plain(x) for x in arguments if isinstance(x, Tensor))
