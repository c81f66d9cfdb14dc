"""The short path of scaled_dot_product_attention: plain tensors, straight into the library.

`sdpa(query, key, value, attn_mask, is_causal, scale, enable_gqa)` returns the output, or None if anything is not plain.
It is compiled (keel._torch) if the package was built for the torch that is running. Since torch's ABI changes with
every version, there is one in Python too, which does the same a few microseconds slower.
"""

from __future__ import annotations

import logging
from typing import Any

import torch
from torch import Tensor
from torch.autograd import forward_ad

from keel import _core
from keel._backward import OF_OPTIONS
from keel.torch import _operator as operator
from keel.torch._check import autocasted, is_autocast
from keel.torch._plain import is_plain

_is_grad_enabled = torch.is_grad_enabled
_float64 = torch.float64
_float32 = torch.float32
_empty = torch.empty
_empty_like = torch.empty_like
_is_neg = Tensor.is_neg
_threads = torch.get_num_threads
_dispatch_modes = torch._C._len_torch_dispatch_stack
_function_modes = torch._C._len_torch_function_stack
_transform = torch._C._functorch.maybe_current_level
_tracing = torch._C._get_tracing_state
_is_excluded = torch._C._dispatch_tls_is_dispatch_key_excluded
_any_autocast = torch._C._is_any_autocast_enabled


def sdpa_in_python(
    query: Any, key: Any, value: Any, attn_mask: Any, is_causal: Any, scale: Any, enable_gqa: Any
) -> Any:
    if (
        type(query) is Tensor
        and type(key) is Tensor
        and type(value) is Tensor
        and (attn_mask is None or (type(attn_mask) is Tensor and not attn_mask.requires_grad))
        and (is_causal is False or is_causal is True)
        and (enable_gqa is False or enable_gqa is True)
        and (scale is None or type(scale) is float or type(scale) is int)
        and not (query.is_nested or key.is_nested or value.is_nested)
        and not (_is_neg(query) or _is_neg(key) or _is_neg(value))  # lazy negations
        and not (attn_mask is not None and _is_neg(attn_mask))
        and not (_dispatch_modes() or _function_modes())
        and _transform() is None
        and _tracing() is None
        and forward_ad._current_level < 0
        # The library also accepts missing dimensions and grouped heads where torch does not, or means something else.
        and query.dim() == key.dim() == value.dim()
        and (query.dim() > 2 if enable_gqa else query.shape == key.shape or _has_the_heads_of(query, key))
    ):
        if _any_autocast() and is_autocast(query):
            query, key, value, attn_mask = (autocasted(x) for x in (query, key, value, attn_mask))
        options = {"mask": attn_mask, "causal": is_causal, "scale": scale, "threads": _threads()}
        if (
            _is_grad_enabled()
            and (query.requires_grad or key.requires_grad or value.requires_grad)
            and not _is_excluded("AutogradFunctionality")
        ):
            try:
                return _apply(query, key, value, attn_mask, options)
            except _NotPlain:
                return None
        out = _empty_like(query)
        try:
            _core.attention(query, key, value, out, options, {})
        except (TypeError, ValueError):  # the operator's path reports what is wrong, in torch's terms
            return None
        return out
    return None


def _has_the_heads_of(q: Tensor, k: Tensor) -> bool:
    return q.dim() < 3 or q.size(-3) == k.size(-3)


class _NotPlain(Exception):
    """The library cannot take the arguments as they are."""


class _Sdpa(torch.autograd.Function):
    """The short path, with its derivative."""

    @staticmethod
    def forward(ctx: Any, q: Tensor, k: Tensor, v: Tensor, mask: Any, options: dict[str, Any]) -> Tensor:
        out = _empty_like(q)
        # A torch.Size is slower.
        rows = _float64 if q.dtype is _float64 else _float32
        lse = _empty(tuple(q.shape[:-1]), dtype=rows, device=q.device)
        try:
            _core.attention(q, k, v, out, options, {"lse": lse})
        except (TypeError, ValueError):
            raise _NotPlain from None
        ctx.save_for_backward(q, k, v, out, lse, mask)
        ctx.causal = options["causal"]
        ctx.scale = options["scale"]
        return out

    @staticmethod
    def backward(ctx: Any, dout: Tensor) -> tuple[Any, ...]:
        q, k, v, out, lse, mask = ctx.saved_tensors
        options = {"mask": mask, "causal": ctx.causal, "scale": ctx.scale}
        needs_q, needs_k, needs_v, *_ = ctx.needs_input_grad
        # Second derivatives, which the operator refuses; compiled autograd, which traces; batches of gradients.
        if _is_grad_enabled() or torch.compiler.is_compiling() or _dispatch_modes() or not is_plain(dout):
            wanted = [needs_q, needs_k, needs_v, *(False for _ in OF_OPTIONS)]
            flat = operator.flatten("attention_backward", options)
            found = torch.ops.keel.attention_backward(dout, None, q, k, v, out, lse, *flat, wanted)
            dq, dk, dv, *_ = (x if want else None for x, want in zip(found, wanted))
        else:
            options["threads"] = _threads()
            dq = _empty_like(q) if needs_q else None
            dk = _empty_like(k) if needs_k else None
            dv = _empty_like(v) if needs_v else None
            _core.attention_backward(q, k, v, out, lse, dout, None, options, {"dq": dq, "dk": dk, "dv": dv})
        return dq, dk, dv, None, None


# Function.apply without its handling of transforms, of which sdpa_in_python has found none.
_apply: Any = super(torch.autograd.Function, _Sdpa).apply


def _compiled() -> tuple[Any, str]:
    """keel._torch, if it was built, and for this torch; or None, and why."""
    running = torch.__version__.split("+")[0]
    try:
        from keel import _torch
    except ImportError:
        return None, "it was not built"
    if _torch.torch != running:
        return None, f"it was built for torch {_torch.torch}, and this is {running}"
    return _torch, f"built for torch {running}"


compiled, about_compiled = _compiled()
if compiled is None:
    logging.getLogger("keel").info(
        "keel.torch runs without its compiled part, since %s: a call takes some microseconds longer; "
        "`pip install .` of Keel's source, where this torch is installed, builds it",
        about_compiled,
    )
sdpa = sdpa_in_python if compiled is None else compiled.sdpa
