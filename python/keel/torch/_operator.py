"""The operators torch.ops.keel.attention and torch.ops.keel.attention_backward.

They are functional, know what they would return without computing it (fake tensors, torch.compile), and the first has
the second as its derivative. Shapes are those of keel.attention: q (B, H_q, N_q, d_k), k (B, H_kv, N_k, d_k), v (B,
H_kv, N_k, d_v). `causal` is 0 none, 1 top_left, 2 bottom_right; `seed` an int64 tensor of one element.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from keel import _core

CAUSAL = (None, "top_left", "bottom_right")

_OPTIONS = (
    "Tensor? mask, Tensor? bias, Tensor? scale_tensor, Tensor? alibi, Tensor? sinks, Tensor? seed, Tensor? q_lengths, "
    "Tensor? k_lengths, Tensor? q_offsets, Tensor? k_offsets, float? scale, float? softcap, int causal, "
    "int? window_left, int? window_right, float dropout"
)
_TENSOR_OPTIONS = 10  # so many of them are tensors, which autograd must save as such

torch.library.define(
    "keel::attention",
    f"(Tensor q, Tensor k, Tensor v, {_OPTIONS}, bool statistics) -> (Tensor, Tensor, Tensor, Tensor)",
)
torch.library.define(
    "keel::attention_backward",
    f"(Tensor? dout, Tensor? dlse, Tensor q, Tensor k, Tensor v, Tensor out, Tensor lse, {_OPTIONS}, bool[] wanted) "
    "-> (Tensor, Tensor, Tensor, Tensor, Tensor, Tensor)",
)

STATISTICS = (
    "max_logit",
    "entropy",
    "max_weight",
    "logit_mean",
    "logit_var",
)  # rows of the third result; visible is the 4th


def row_dtype(dtype: torch.dtype) -> torch.dtype:
    """That of lse and of the statistics."""
    return torch.float64 if dtype == torch.float64 else torch.float32


def empty_output(q: Tensor, v: Tensor) -> Tensor:
    """The output, laid out as q is: (B, N, H, D) in memory where q is."""
    if v.shape[-1] == q.shape[-1]:
        return torch.empty_like(q)
    return q.new_empty(q.shape[:-1] + v.shape[-1:])


def _results(q: Tensor, v: Tensor, statistics: bool) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    rows = q.shape[:-1]
    asked = (len(STATISTICS),) + rows if statistics else (0,)
    return (
        empty_output(q, v),
        q.new_empty(rows, dtype=row_dtype(q.dtype)),
        q.new_empty(asked, dtype=row_dtype(q.dtype)),
        q.new_empty(rows if statistics else (0,), dtype=torch.int64),
    )


def _gradients(sources: tuple[Tensor | None, ...], q: Tensor, wanted: list[bool]) -> list[Tensor | None]:
    return [torch.empty_like(x) if want and x is not None else None for x, want in zip(sources, wanted)]


def core_options(options: tuple[Any, ...]) -> tuple[Any, ...]:
    """The options of an operator as _core takes them."""
    mask, bias, scale_tensor, alibi, sinks, seed, q_lengths, k_lengths, q_offsets, k_offsets = options[:_TENSOR_OPTIONS]
    scale, softcap, causal, window_left, window_right, dropout = options[_TENSOR_OPTIONS:]
    return (
        mask,
        bias,
        CAUSAL[causal],
        None if window_left is None and window_right is None else (window_left, window_right),
        scale if scale_tensor is None else scale_tensor,
        softcap,
        alibi,
        sinks,
        dropout,
        0 if seed is None else int(seed),
        q_lengths,
        k_lengths,
        q_offsets,
        k_offsets,
        torch.get_num_threads(),
    )


@torch.library.impl("keel::attention", "CPU")
def _attention(q: Tensor, k: Tensor, v: Tensor, *options: Any) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    *options, statistics = options
    results = _results(q, v, statistics)
    out, lse, rows, visible = results
    reports = (*rows.unbind(0), visible) if statistics else (None,) * 6
    _core.attention(q, k, v, out, *core_options(options), lse, None, *reports, None, 0.99)
    return results


@torch.library.register_fake("keel::attention")
def _attention_fake(q: Tensor, k: Tensor, v: Tensor, *options: Any) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    return _results(q, v, options[-1])


@torch.library.impl("keel::attention_backward", "CPU")
def _attention_backward(dout: Tensor | None, dlse: Tensor | None, q: Tensor, k: Tensor, v: Tensor, *rest: Any) -> Any:
    out, lse, *options, wanted = rest
    bias, scale_tensor, sinks = options[1], options[2], options[4]
    gradients = _gradients((q, k, v, bias, scale_tensor, sinks), q, wanted)
    if dout is None:
        dout = torch.zeros_like(out)
    _core.attention_backward(q, k, v, out, lse, dout, dlse, *gradients, *core_options(tuple(options)))
    return tuple(q.new_empty(0) if gradient is None else gradient for gradient in gradients)


@torch.library.register_fake("keel::attention_backward")
def _attention_backward_fake(dout: Any, dlse: Any, q: Tensor, k: Tensor, v: Tensor, *rest: Any) -> Any:
    _, _, *options, wanted = rest
    gradients = _gradients((q, k, v, options[1], options[2], options[4]), q, wanted)
    return tuple(q.new_empty(0) if gradient is None else gradient for gradient in gradients)


def _save(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    q, k, v, *options, _ = inputs
    out, lse, rows, visible = output
    ctx.save_for_backward(q, k, v, out, lse, *options[:_TENSOR_OPTIONS])
    ctx.numbers = options[_TENSOR_OPTIONS:]
    ctx.mark_non_differentiable(rows, visible)
    ctx.set_materialize_grads(False)


def _differentiate(ctx: Any, dout: Tensor | None, dlse: Tensor | None, *_: Any) -> tuple[Any, ...]:
    none = [None] * (3 + _TENSOR_OPTIONS + len(ctx.numbers) + 1)
    if dout is None and dlse is None:
        return tuple(none)
    at = [0, 1, 2, 4, 5, 7]  # q, k, v, bias, scale_tensor and sinks among the inputs
    wanted = [ctx.needs_input_grad[i] for i in at]
    gradients = attention_backward(dout, dlse, *ctx.saved_tensors, *ctx.numbers, wanted)
    for i, want, gradient in zip(at, wanted, gradients):
        none[i] = gradient if want else None
    return tuple(none)


torch.library.register_autograd("keel::attention", _differentiate, setup_context=_save)


def _no_second(ctx: Any, *_: Any) -> Any:
    raise NotImplementedError("[attention_backward] second derivatives of attention are not computed")


torch.library.register_autograd("keel::attention_backward", _no_second)


def _one_by_one(operator: Any) -> Any:
    """The rule of torch.vmap for an operator: a call for each entry."""

    def rule(info: Any, in_dims: tuple[Any, ...], *arguments: Any) -> tuple[Any, Any]:
        def entry(i: int) -> list[Any]:
            return [x if d is None or isinstance(d, list) else x.select(d, i) for x, d in zip(arguments, in_dims)]

        results = [operator(*entry(i)) for i in range(info.batch_size)]
        return tuple(torch.stack(parts) for parts in zip(*results)), (0,) * len(results[0])

    return rule


torch.library.register_vmap("keel::attention", _one_by_one(torch.ops.keel.attention))
torch.library.register_vmap("keel::attention_backward", _one_by_one(torch.ops.keel.attention_backward))


class _Transformed(torch.autograd.Function):
    """The operator for torch.func: derivatives that are registered for an operator do not serve there."""

    generate_vmap_rule = True

    @staticmethod
    def forward(*inputs: Any) -> tuple[Tensor, ...]:
        return torch.ops.keel.attention(*inputs)

    setup_context = staticmethod(_save)
    backward = staticmethod(_differentiate)


class _TransformedBackward(torch.autograd.Function):
    generate_vmap_rule = True

    @staticmethod
    def forward(*inputs: Any) -> tuple[Tensor, ...]:
        return torch.ops.keel.attention_backward(*inputs)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        pass

    backward = staticmethod(_no_second)


def _transforming() -> bool:
    return not torch.compiler.is_compiling() and torch._C._functorch.maybe_current_level() is not None


def attention(*inputs: Any) -> tuple[Tensor, ...]:
    """torch.ops.keel.attention, also within torch.func's transforms."""
    return _Transformed.apply(*inputs) if _transforming() else torch.ops.keel.attention(*inputs)


def attention_backward(*inputs: Any) -> tuple[Tensor, ...]:
    """torch.ops.keel.attention_backward, likewise."""
    return _TransformedBackward.apply(*inputs) if _transforming() else torch.ops.keel.attention_backward(*inputs)
