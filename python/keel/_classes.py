"""Tensors of other classes than torch's own. Only a class knows what its memory means: that of CausalBias, a mask,
means nothing. Torch is an argument, since not every program has imported it."""

from __future__ import annotations

from typing import Any


def takes_over(torch: Any, x: Any) -> bool:
    """Whether the class of `x` has its own say in torch's functions (its own __torch_function__)."""
    if type(x) is torch.Tensor:
        return False
    function = getattr(type(x), "__torch_function__", None)
    if function is None or function is torch._C._disabled_torch_function_impl:  # the latter: nn.Parameter, FakeTensor
        return False
    return getattr(function, "__func__", None) is not torch.Tensor.__torch_function__.__func__


def is_served_by_the_dispatcher(torch: Any, x: Any) -> bool:
    """Whether the class of `x` has its own say in torch's operators (its own __torch_dispatch__)."""
    return type(x).__torch_dispatch__ is not torch._C._disabled_torch_dispatch_impl


def what_is(x: Any, method: str = "__torch_function__") -> str:
    """`x` as an error names it."""
    return f"one of class {type(x).__name__}, which has its own {method}"
