"""The operators torch.ops.keel.attention, attention_backward and attention_weights.

They are functional and have fake implementations (for fake tensors and torch.compile); the second is the derivative of
the first, the third has none. Shapes are those of keel.attention: q (B, H_q, N_q, d_k), k (B, H_kv, N_k, d_k), v (B,
H_kv, N_k, d_v). The options are those of keel._options, None if left out; `seed` is an int64 tensor of one element.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, TypeVar

import torch
from torch import Tensor
from torch._decomp import meta_table, register_decomposition

from keel import _core
from keel._attention import COUNTS
from keel._attention import STATISTICS as _STATISTICS
from keel._backward import OF_OPTIONS, OF_TENSORS, Gradients
from keel._options import TABLE
from keel.torch import _blocks, _check, _onnx

# Per kind of option: what checks and converts a caller's value, and its types in an operator, of which one is given.
_KINDS: dict[str, tuple[Any, ...]] = {
    "tensor": (_check.check_tensor, "Tensor?"),
    "block mask": (_blocks.check_block_mask, "Tensor[]?"),
    "number": (_check.check_number, "float?"),
    "number or tensor": (_check.check_number_or_tensor, "float?", "Tensor?"),
    "causal": (_check.check_causal, "str?"),
    "window": (_check.check_window, "int[]?"),
    "origin": (_check.check_origin, "SymInt[]?"),
    "integers": (_check.check_integers, "Tensor?"),
    "seed": (_check.check_tensor, "Tensor?"),
    "threads": (None,),  # set by torch.set_num_threads
}


class Argument(NamedTuple):
    option: str
    name: str
    type: str


ARGUMENTS = [
    Argument(name, name if i == 0 else f"{name}_tensor", type)
    for name, option in TABLE.items()
    for i, type in enumerate(_KINDS[option.kind][1:])
]
_PLACES = {(argument.option, argument.type == "Tensor?"): i for i, argument in enumerate(ARGUMENTS)}
_ROWS: dict[str, tuple[Any, ...]] = {  # what checks it, its place as it is, its place as a tensor
    name: (_KINDS[option.kind][0], _PLACES.get((name, False)), _PLACES.get((name, True)))
    for name, option in TABLE.items()
}
TENSORS = [i for i, argument in enumerate(ARGUMENTS) if argument.type == "Tensor?"]  # saved by autograd as such
_DROPOUT, _SEED = _PLACES["dropout", False], _PLACES["seed", True]
_OPTIONS = [argument.option for argument in ARGUMENTS]
# The arguments that each gradient may be with respect to.
_SOURCES: dict[str, list[str]] = {gradient: [gradient[1:]] for gradient in OF_TENSORS} | {
    gradient: [ARGUMENTS[i].name for i in TENSORS if TABLE[ARGUMENTS[i].option].gradient == gradient]
    for gradient in OF_OPTIONS
}

STATISTICS = tuple(name for name in _STATISTICS if name not in COUNTS)  # what the third result holds; COUNTS the fourth

_SCHEMA = ", ".join(f"{argument.type} {argument.name}" for argument in ARGUMENTS)
torch.library.define(
    "keel::attention",
    f"(Tensor q, Tensor k, Tensor v, {_SCHEMA}, bool statistics, ScalarType? out_dtype) "
    "-> (Tensor, Tensor, Tensor, Tensor)",
)
torch.library.define(
    "keel::attention_backward",
    f"(Tensor? dout, Tensor? dlse, Tensor q, Tensor k, Tensor v, Tensor out, Tensor lse, {_SCHEMA}, bool[] wanted) "
    f"-> ({', '.join('Tensor' for _ in Gradients._fields)})",
)
torch.library.define("keel::attention_weights", f"(Tensor q, Tensor k, Tensor v, {_SCHEMA}) -> Tensor")
INPUTS = [argument.name for argument in torch.ops.keel.attention.default._schema.arguments]


def flatten(operation: str, options: Mapping[str, Any]) -> list[Any]:
    """The options as arguments of an operator, with a seed if there is dropout. TypeError for a wrong type."""
    flat: list[Any] = [None] * len(ARGUMENTS)
    for name, value in options.items():
        if value is not None:
            check, *places = _ROWS[name]
            value = check(operation, name, value)
            flat[places[isinstance(value, Tensor)]] = value
    if flat[_DROPOUT] and flat[_SEED] is None:
        flat[_SEED] = torch.randint(0, 2**63 - 1, (1,), dtype=torch.int64)  # torch.manual_seed makes dropout repeat
    return flat


def as_options(flat: Any) -> dict[str, Any]:
    """The options that are given, by name."""
    return {name: value for name, value in zip(_OPTIONS, flat) if value is not None}


def given(flat: Any) -> dict[str, Any]:
    """The options as a dict, as the compiled part takes them."""
    options = as_options(flat)
    options["threads"] = torch.get_num_threads()
    return options


def seed_of(flat: list[Any]) -> int:
    return int(flat[_SEED]) if flat[_DROPOUT] else 0


def set_seed(flat: list[Any], seed: int) -> None:
    if flat[_DROPOUT]:
        flat[_SEED] = torch.tensor([seed])


def row_dtype(dtype: torch.dtype) -> torch.dtype:
    """The dtype of lse and the statistics."""
    return torch.float64 if dtype == torch.float64 else torch.float32


def empty_output(q: Tensor, v: Tensor, dtype: torch.dtype | None = None) -> Tensor:
    """The output, with the memory layout of q."""
    if v.shape[-1] == q.shape[-1]:
        return torch.empty_like(q, dtype=dtype)
    return q.new_empty(q.shape[:-1] + v.shape[-1:], dtype=dtype)


def _results(
    q: Tensor, v: Tensor, statistics: bool, out_dtype: torch.dtype | None
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    rows = q.shape[:-1]

    def stacked(names: tuple[str, ...], dtype: torch.dtype) -> Tensor:
        return q.new_empty((len(names), *rows) if statistics else (0,), dtype=dtype)

    floats = row_dtype(q.dtype)
    return (
        empty_output(q, v, out_dtype),
        q.new_empty(rows, dtype=floats),
        stacked(STATISTICS, floats),
        stacked(COUNTS, torch.int64),
    )


def new_gradients(q: Tensor, k: Tensor, v: Tensor, flat: Any, needed: set[str]) -> dict[str, Tensor]:
    """Memory for the gradients with respect to the inputs of these names."""
    wanted = [not needed.isdisjoint(_SOURCES[gradient]) for gradient in Gradients._fields]
    return _gradients(q, k, v, flat, wanted)


def by_input(gradients: Mapping[str, Tensor], needed: Any) -> dict[str, Tensor]:
    """Gradients by the names of the inputs that they are with respect to."""
    return {source: gradients[name] for name in gradients for source in _SOURCES[name] if source in needed}


def _gradients(q: Tensor, k: Tensor, v: Tensor, flat: Any, wanted: list[bool]) -> dict[str, Tensor]:
    inputs = dict(zip(INPUTS, (q, k, v, *flat)))
    gradients = {}
    for name, want in zip(Gradients._fields, wanted):
        given = [inputs[source] for source in _SOURCES[name] if inputs[source] is not None]
        if want and given:
            gradients[name] = torch.empty_like(given[-1])
    return gradients


Function = TypeVar("Function", bound=Callable[..., Any])


def _fake(name: str) -> Callable[[Function], Function]:
    """torch.library.register_fake, typed."""
    decorator: Callable[[Function], Function] = torch.library.register_fake(name)
    return decorator


@torch.library.impl("keel::attention", "CPU")
def _attention(q: Tensor, k: Tensor, v: Tensor, *rest: Any) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    *options, statistics, out_dtype = rest
    results = _results(q, v, statistics, out_dtype)
    out, lse, rows, counts = results
    outputs = {"lse": lse}
    if statistics:
        outputs.update(zip((*STATISTICS, *COUNTS), (*rows.unbind(0), *counts.unbind(0))))
    _core.attention(q, k, v, out, given(options), outputs)
    return results


@_fake("keel::attention")
def _attention_fake(q: Tensor, k: Tensor, v: Tensor, *options: Any) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    *_, statistics, out_dtype = options
    return _results(q, v, statistics, out_dtype)


def _empty_weights(q: Tensor, k: Tensor) -> Tensor:
    return q.new_empty((*q.shape[:-1], k.shape[-2]))


@torch.library.impl("keel::attention_weights", "CPU")
def _attention_weights(q: Tensor, k: Tensor, v: Tensor, *options: Any) -> Tensor:
    weights = _empty_weights(q, k)
    _core.attention(q, k, v, empty_output(q, v), given(options), {"weights": weights})
    return weights


@_fake("keel::attention_weights")
def _attention_weights_fake(q: Tensor, k: Tensor, v: Tensor, *options: Any) -> Tensor:
    return _empty_weights(q, k)


@torch.library.impl("keel::attention_backward", "CPU")
def _attention_backward(dout: Tensor | None, dlse: Tensor | None, q: Tensor, k: Tensor, v: Tensor, *rest: Any) -> Any:
    out, lse, *options, wanted = rest
    gradients = _gradients(q, k, v, options, wanted)
    if dout is None:
        dout = torch.zeros_like(out)
    _core.attention_backward(q, k, v, out, lse, dout, dlse, given(options), gradients)
    return _all_of(gradients, q)


@_fake("keel::attention_backward")
def _attention_backward_fake(dout: Any, dlse: Any, q: Tensor, k: Tensor, v: Tensor, *rest: Any) -> Any:
    _, _, *options, wanted = rest
    return _all_of(_gradients(q, k, v, options, wanted), q)


def _all_of(gradients: dict[str, Tensor], q: Tensor) -> Any:
    """A tensor for each gradient, wanted or not, as an operator must return."""
    return tuple(gradients[name] if name in gradients else q.new_empty(0) for name in Gradients._fields)


def _save(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    q, k, v, *options, _statistics, _out_dtype = inputs
    out, lse, rows, counts = output
    ctx.save_for_backward(q, k, v, out, lse, *(options[i] for i in TENSORS))
    for i in TENSORS:
        options[i] = None
    ctx.others = options
    ctx.mark_non_differentiable(rows, counts)
    ctx.set_materialize_grads(False)


def _differentiate(ctx: Any, dout: Tensor | None, dlse: Tensor | None, *_: Any) -> tuple[Any, ...]:
    results: dict[str, Tensor | None] = dict.fromkeys(INPUTS)
    if dout is None and dlse is None:
        return tuple(results.values())
    q, k, v, out, lse, *tensors = ctx.saved_tensors
    options = list(ctx.others)
    for i, tensor in zip(TENSORS, tensors):
        options[i] = tensor
    needed = {name for name, needs in zip(INPUTS, ctx.needs_input_grad) if needs}
    wanted = [not needed.isdisjoint(_SOURCES[gradient]) for gradient in Gradients._fields]
    gradients = attention_backward(dout, dlse, q, k, v, out, lse, *options, wanted)
    for name, gradient in zip(Gradients._fields, gradients):
        results.update((source, gradient) for source in _SOURCES[name] if source in needed)
    return tuple(results.values())


def _differentiate_operator(ctx: Any, *arrived: Tensor | None) -> tuple[Any, ...]:
    """The same for torch.library, which wants a list for a list of tensors."""
    results = list(_differentiate(ctx, *arrived))
    blocks = ctx.others[_PLACES["block_mask", False]]
    if blocks is not None:
        results[INPUTS.index("block_mask")] = [None] * len(blocks)
    return tuple(results)


torch.library.register_autograd("keel::attention", _differentiate_operator, setup_context=_save)


def _no_second(ctx: Any, *_: Any) -> Any:
    raise NotImplementedError("[attention_backward] second derivatives of attention are not computed")


torch.library.register_autograd("keel::attention_backward", _no_second)


def _one_by_one(operator: Any) -> Any:
    """torch.vmap's rule for an operator: one call per entry."""

    def rule(info: Any, in_dims: tuple[Any, ...], *arguments: Any) -> tuple[Any, Any]:
        def entry(i: int) -> list[Any]:
            return [x if d is None or isinstance(d, list) else x.select(d, i) for x, d in zip(arguments, in_dims)]

        results = [operator(*entry(i)) for i in range(info.batch_size)]
        if isinstance(results[0], Tensor):
            return torch.stack(results), 0
        return tuple(torch.stack(parts) for parts in zip(*results)), (0,) * len(results[0])

    return rule


torch.library.register_vmap("keel::attention", _one_by_one(torch.ops.keel.attention))
torch.library.register_vmap("keel::attention_backward", _one_by_one(torch.ops.keel.attention_backward))
torch.library.register_vmap("keel::attention_weights", _one_by_one(torch.ops.keel.attention_weights))


class _Transformed(torch.autograd.Function):
    """The operator for torch.func, where derivatives registered for an operator do not work."""

    generate_vmap_rule = True

    @staticmethod
    def forward(*inputs: Any) -> Any:
        return torch.ops.keel.attention(*inputs)

    setup_context = staticmethod(_save)
    backward = staticmethod(_differentiate)


class _TransformedBackward(torch.autograd.Function):
    generate_vmap_rule = True

    @staticmethod
    def forward(*inputs: Any) -> Any:
        return torch.ops.keel.attention_backward(*inputs)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        pass

    backward = staticmethod(_no_second)


def _transforming() -> bool:
    return not torch.compiler.is_compiling() and torch._C._functorch.maybe_current_level() is not None


def attention(*inputs: Any) -> Any:
    """torch.ops.keel.attention, inside torch.func's transforms too."""
    function: Any = _Transformed.apply if _transforming() else torch.ops.keel.attention
    return function(*inputs)


def attention_backward(*inputs: Any) -> Any:
    """torch.ops.keel.attention_backward, likewise."""
    function: Any = _TransformedBackward.apply if _transforming() else torch.ops.keel.attention_backward
    return function(*inputs)


def attention_weights(*inputs: Any) -> Any:
    """torch.ops.keel.attention_weights, detached."""
    return torch.ops.keel.attention_weights(*(x.detach() if isinstance(x, Tensor) else x for x in inputs))


# Decompositions for torch.onnx.export, which asks for all there are. Fake tensors of symbolic sizes would take them
# too, if there were no meta functions.
meta_table[torch.ops.keel.attention.default] = _attention_fake
meta_table[torch.ops.keel.attention_weights.default] = _attention_weights_fake


@register_decomposition(torch.ops.keel.attention.default)
def _attention_in_onnx(q: Tensor, k: Tensor, v: Tensor, *rest: Any) -> tuple[Tensor, ...]:
    *options, statistics, out_dtype = rest
    if statistics:
        _check.refuse("attention", "return_stats", "False in an ONNX export", True, NotImplementedError)
    out, lse, _ = _onnx.by_onnx(q, k, v, as_options(options))
    return out if out_dtype is None else out.to(out_dtype), lse, q.new_empty(0), q.new_empty(0, dtype=torch.int64)


@register_decomposition(torch.ops.keel.attention_weights.default)
def _attention_weights_in_onnx(q: Tensor, k: Tensor, v: Tensor, *options: Any) -> Tensor:
    return _onnx.by_onnx(q, k, v, as_options(options))[2]
