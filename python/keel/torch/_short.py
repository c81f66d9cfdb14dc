"""The short way of scaled_dot_product_attention: plain tensors, straight into the library.

`sdpa(query, key, value, attn_mask, is_causal, scale, enable_gqa)` is the output, or None for whatever is not plain.
It is compiled (keel._torch) where the package was built for the torch that is running. The binary interface of torch
changes with each of its versions, so there is one in Python too, which does the same a few microseconds later.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd import forward_ad

from keel import _core

_is_grad_enabled = torch.is_grad_enabled
_empty_like = torch.empty_like
_is_neg = Tensor.is_neg
_threads = torch.get_num_threads
_dispatch_modes = torch._C._len_torch_dispatch_stack
_function_modes = torch._C._len_torch_function_stack
_transform = torch._C._functorch.maybe_current_level
_tracing = torch._C._get_tracing_state
_autocast = torch._C._is_any_autocast_enabled
_is_excluded = torch._C._dispatch_tls_is_dispatch_key_excluded
_keys = torch._C._dispatch_keys
_PLAIN = _keys(torch.empty(0)).raw_repr()


def sdpa_in_python(
    query: Any, key: Any, value: Any, attn_mask: Any, is_causal: Any, scale: Any, enable_gqa: Any
) -> Tensor | None:
    if (
        type(query) is Tensor
        and type(key) is Tensor
        and type(value) is Tensor
        and (attn_mask is None or (type(attn_mask) is Tensor and not is_causal and not attn_mask.requires_grad))
        and not (_is_neg(query) or _is_neg(key) or _is_neg(value))  # memory with the sign turned
        and not (_dispatch_modes() or _function_modes() or _autocast())
        and _transform() is None
        and _tracing() is None
        and forward_ad._current_level < 0
    ):
        if (
            _is_grad_enabled()
            and (query.requires_grad or key.requires_grad or value.requires_grad)
            and not _is_excluded("AutogradFunctionality")
        ):
            try:
                return _apply(query, key, value, attn_mask, is_causal, scale, enable_gqa)
            except _NotPlain:
                return None
        out = _empty_like(query)
        if _core.sdpa(query, key, value, out, attn_mask, is_causal, scale, enable_gqa, _threads(), False):
            return out
    return None


class _NotPlain(Exception):
    """The shapes need more than the library does by itself."""


class _Sdpa(torch.autograd.Function):
    """The short way, with its derivative."""

    @staticmethod
    def forward(
        ctx: Any, q: Tensor, k: Tensor, v: Tensor, mask: Any, causal: bool, scale: Any, grouped: bool
    ) -> Tensor:
        out = _empty_like(q)
        lse = _core.sdpa(q, k, v, out, mask, causal, scale, grouped, _threads(), True)
        if lse is False:
            raise _NotPlain
        ctx.save_for_backward(q, k, v, out, lse, mask)
        ctx.causal = causal
        ctx.scale = scale
        return out

    @staticmethod
    def backward(ctx: Any, dout: Tensor) -> tuple[Any, ...]:
        q, k, v, out, lse, mask = ctx.saved_tensors
        # A second derivative, which the operator refuses; compiled autograd, which traces; a batch of gradients.
        if _is_grad_enabled() or torch.compiler.is_compiling() or _dispatch_modes() or _keys(dout).raw_repr() != _PLAIN:
            return (*_through_the_operator(ctx, dout), None, None, None, None)
        needs = ctx.needs_input_grad
        dq = _empty_like(q) if needs[0] else None
        dk = _empty_like(k) if needs[1] else None
        dv = _empty_like(v) if needs[2] else None
        _core.sdpa_backward(q, k, v, out, lse, dout, dq, dk, dv, mask, ctx.causal, ctx.scale, _threads())
        return dq, dk, dv, None, None, None, None


def _through_the_operator(ctx: Any, dout: Tensor) -> tuple[Tensor | None, ...]:
    q, k, v, out, lse, mask = ctx.saved_tensors
    mask, bias = (None, mask) if mask is not None and mask.is_floating_point() else (mask, None)
    numbers = (ctx.scale, None, 1 if ctx.causal else 0, None, None, 0.0)
    wanted = [*ctx.needs_input_grad[:3], False, False, False]
    gradients = torch.ops.keel.attention_backward(
        dout, None, q, k, v, out, lse, mask, bias, *(None,) * 8, *numbers, wanted
    )
    return tuple(gradient if want else None for gradient, want in zip(gradients[:3], wanted))


# Function.apply as it is when no transform is active, which has been seen to by then.
_apply = super(torch.autograd.Function, _Sdpa).apply


def _compiled() -> Any:
    """keel._torch, where it is there and made for this torch."""
    try:
        from keel import _torch
    except ImportError:
        return None
    return _torch if _torch.torch == torch.__version__.split("+")[0] else None


compiled = _compiled()
sdpa = sdpa_in_python if compiled is None else compiled.sdpa
