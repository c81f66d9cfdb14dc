"""The operators torch.ops.keel.attention, attention_backward, attention_jvp, attention_double_backward,
attention_weights and attention_scores.

They are functional and have fake implementations (for fake tensors and torch.compile). The second is the derivative of
the first, the third that along tangents, and the fourth the derivative of the second; the others have none. Shapes are
those of keel.attention: q (B, H_q, N_q, d_k), k (B, H_kv, N_k, d_k), v (B, H_kv, N_k, d_v). The options are those of
keel._options, None if left out; `seed` is an int64 tensor of one element.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, NamedTuple, TypeVar

import torch
from torch import Tensor
from torch._decomp import meta_table, register_decomposition
from torch.autograd import forward_ad

from keel import _core
from keel._attention import COUNTS
from keel._attention import STATISTICS as _STATISTICS
from keel._backward import OF_OPTIONS, OF_TENSORS, Gradients
from keel._options import TABLE
from keel._tangents import DoubleGradients, Tangents
from keel.torch import _blocks, _check, _onnx
from keel.torch._plain import is_plain_call

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
    "flag": (_check.check_flag, "bool?"),
    "seed": (_check.check_tensor, "Tensor?"),
    "threads": (None,),  # set by torch.set_num_threads
    "stream": (None,),  # torch's current one
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
_CONSTANTS = {name for name, option in TABLE.items() if option.kind == "tensor" and option.gradient is None}

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
_TANGENTS = ", ".join(f"Tensor? {name}" for name in Tangents._fields)
torch.library.define(
    "keel::attention_jvp",
    f"(Tensor q, Tensor k, Tensor v, Tensor out, Tensor lse, {_SCHEMA}, {_TANGENTS}) -> (Tensor, Tensor)",
)
torch.library.define(
    "keel::attention_double_backward",
    f"(Tensor? dout, Tensor? dlse, Tensor q, Tensor k, Tensor v, Tensor out, Tensor lse, {_SCHEMA}, {_TANGENTS}, "
    f"bool[] wanted) -> ({', '.join('Tensor' for _ in DoubleGradients._fields)})",
)
torch.library.define("keel::attention_weights", f"(Tensor q, Tensor k, Tensor v, {_SCHEMA}) -> Tensor")
torch.library.define("keel::attention_scores", f"(Tensor q, Tensor k, Tensor v, {_SCHEMA}, str stage) -> Tensor")
INPUTS = [argument.name for argument in torch.ops.keel.attention.default._schema.arguments]


def flatten(operation: str, options: Mapping[str, Any]) -> list[Any]:
    """The options as arguments of an operator, with a seed if there is dropout. TypeError for a wrong type."""
    flat: list[Any] = [None] * len(ARGUMENTS)
    for name, value in options.items():
        if value is not None:
            check, *places = _ROWS[name]
            value = check(operation, name, value)
            flat[places[1 if isinstance(value, Tensor) else 0]] = value
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


def check_differentiable(operation: str, needed: Iterable[str]) -> None:
    """NotImplementedError if one of these inputs has no derivative."""
    for name in _CONSTANTS.intersection(needed):
        _check.refuse(
            operation, name, "a tensor that is not differentiated", "one that is: detach() it", NotImplementedError
        )


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


_DEVICES = ("CPU", "CUDA")
Function = TypeVar("Function", bound=Callable[..., Any])


def _fake(name: str) -> Callable[[Function], Function]:
    """torch.library.register_fake, typed."""
    decorator: Callable[[Function], Function] = torch.library.register_fake(name)
    return decorator


def _tell_inductor(operator: Any) -> None:
    """Makes Inductor call an operator as it is, although it has a decomposition (for ONNX). Inductor does so by itself,
    unless the environment variable CI is set: then it takes a decomposition that it does not use for a mistake."""
    lowering = sys.modules.get("torch._inductor.lowering")
    if lowering is None or operator in lowering.lowerings:
        return
    try:
        from torch._library.utils import get_layout_constraint_tag

        constraint = lowering.tag_to_layout_constraint(get_layout_constraint_tag(operator))
    except (ImportError, AttributeError):  # another version of torch
        return
    lowering.make_fallback(operator, layout_constraint=constraint, warn=False)


def _attention(q: Tensor, k: Tensor, v: Tensor, *rest: Any) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    *options, statistics, out_dtype = rest
    results = _results(q, v, statistics, out_dtype)
    out, lse, rows, counts = results
    outputs = {"lse": lse}
    if statistics:
        outputs.update(zip((*STATISTICS, *COUNTS), (*rows.unbind(0), *counts.unbind(0))))
    _core.attention(q, k, v, out, given(options), outputs)
    return results


torch.library.impl("keel::attention", _DEVICES, _attention)


@_fake("keel::attention")
def _attention_fake(q: Tensor, k: Tensor, v: Tensor, *options: Any) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    _tell_inductor(torch.ops.keel.attention.default)
    *_, statistics, out_dtype = options
    return _results(q, v, statistics, out_dtype)


def _empty_weights(q: Tensor, k: Tensor) -> Tensor:
    return q.new_empty((*q.shape[:-1], k.shape[-2]))


@torch.library.impl("keel::attention_weights", _DEVICES)
def _attention_weights(q: Tensor, k: Tensor, v: Tensor, *options: Any) -> Tensor:
    weights = _empty_weights(q, k)
    _core.attention(q, k, v, empty_output(q, v), given(options), {"weights": weights})
    return weights


@_fake("keel::attention_weights")
def _attention_weights_fake(q: Tensor, k: Tensor, v: Tensor, *options: Any) -> Tensor:
    _tell_inductor(torch.ops.keel.attention_weights.default)
    return _empty_weights(q, k)


@torch.library.impl("keel::attention_scores", _DEVICES)
def _attention_scores(q: Tensor, k: Tensor, v: Tensor, *rest: Any) -> Tensor:
    *options, stage = rest
    scores = _empty_weights(q, k)
    _core.attention(q, k, v, empty_output(q, v), given(options), {"scores": scores, "score_stage": stage})
    return scores


@_fake("keel::attention_scores")
def _attention_scores_fake(q: Tensor, k: Tensor, v: Tensor, *rest: Any) -> Tensor:
    _tell_inductor(torch.ops.keel.attention_scores.default)
    return _empty_weights(q, k)


def _attention_backward(dout: Tensor | None, dlse: Tensor | None, q: Tensor, k: Tensor, v: Tensor, *rest: Any) -> Any:
    out, lse, *options, wanted = rest
    gradients = _gradients(q, k, v, options, wanted)
    if dout is None:
        dout = torch.zeros_like(out)
    _core.attention_backward(q, k, v, out, lse, dout, dlse, given(options), gradients)
    return _all_of(gradients, q)


torch.library.impl("keel::attention_backward", _DEVICES, _attention_backward)


@_fake("keel::attention_backward")
def _attention_backward_fake(dout: Any, dlse: Any, q: Tensor, k: Tensor, v: Tensor, *rest: Any) -> Any:
    _, _, *options, wanted = rest
    return _all_of(_gradients(q, k, v, options, wanted), q)


def _all_of(gradients: dict[str, Tensor], q: Tensor, names: tuple[str, ...] = Gradients._fields) -> Any:
    """A tensor for each gradient, wanted or not, as an operator must return."""
    return tuple(gradients[name] if name in gradients else q.new_empty(0) for name in names)


def _tangents(tensors: Any) -> dict[str, Tensor]:
    return {name: tensor for name, tensor in zip(Tangents._fields, tensors) if tensor is not None}


@torch.library.impl("keel::attention_jvp", _DEVICES)
def _attention_jvp(q: Tensor, k: Tensor, v: Tensor, out: Tensor, lse: Tensor, *rest: Any) -> tuple[Tensor, Tensor]:
    options, tangents = rest[: len(ARGUMENTS)], rest[len(ARGUMENTS) :]
    tout, tlse = torch.empty_like(out), torch.empty_like(lse)
    _core.attention_jvp(q, k, v, out, lse, given(options), _tangents(tangents), {"tout": tout, "tlse": tlse})
    return tout, tlse


@_fake("keel::attention_jvp")
def _attention_jvp_fake(q: Any, k: Any, v: Any, out: Tensor, lse: Tensor, *rest: Any) -> tuple[Tensor, Tensor]:
    return torch.empty_like(out), torch.empty_like(lse)


def _double_gradients(q: Tensor, k: Tensor, v: Tensor, out: Tensor, lse: Tensor, *rest: Any) -> dict[str, Tensor]:
    options, wanted = rest[: len(ARGUMENTS)], rest[-1]
    *of_inputs, of_dout, of_dlse = wanted
    gradients = _gradients(q, k, v, options, of_inputs)
    if of_dout:
        gradients["ddout"] = torch.empty_like(out)
    if of_dlse:
        gradients["ddlse"] = torch.empty_like(lse)
    return gradients


@torch.library.impl("keel::attention_double_backward", _DEVICES)
def _attention_double_backward(dout: Tensor | None, dlse: Tensor | None, *rest: Any) -> Any:
    q, k, v, out, lse, *others = rest
    options, tangents = others[: len(ARGUMENTS)], others[len(ARGUMENTS) : -1]
    gradients = _double_gradients(*rest)
    inputs = (q, k, v, out, lse, torch.zeros_like(out) if dout is None else dout, dlse)
    _core.attention_double_backward(inputs, given(options), _tangents(tangents), gradients)
    return _all_of(gradients, q, DoubleGradients._fields)


@_fake("keel::attention_double_backward")
def _attention_double_backward_fake(dout: Any, dlse: Any, *rest: Any) -> Any:
    return _all_of(_double_gradients(*rest), rest[0], DoubleGradients._fields)


def _keep(ctx: Any, tensors: tuple[Any, ...], options: list[Any]) -> tuple[Any, ...]:
    """Saves tensors, and options, of which some are tensors; returns all the tensors."""
    saved = (*tensors, *(options[i] for i in TENSORS))
    ctx.save_for_backward(*saved)
    ctx.others = [None if i in TENSORS else option for i, option in enumerate(options)]
    ctx.set_materialize_grads(False)
    return saved


def _with_tangents(save: Any) -> Any:
    """What saves the inputs of a function that has a derivative along tangents too."""
    return staticmethod(lambda ctx, inputs, output: ctx.save_for_forward(*save(ctx, inputs, output)))


def _kept(ctx: Any) -> tuple[list[Any], list[Any]]:
    saved = list(ctx.saved_tensors)
    options = list(ctx.others)
    for i in reversed(TENSORS):
        options[i] = saved.pop()
    return saved, options


def _save(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> tuple[Any, ...]:
    q, k, v, *options, _statistics, _out_dtype = inputs
    out, lse, rows, counts = output
    ctx.mark_non_differentiable(rows, counts)
    return _keep(ctx, (q, k, v, out, lse), options)


def _differentiate(ctx: Any, dout: Tensor | None, dlse: Tensor | None, *_: Any) -> tuple[Any, ...]:
    results: dict[str, Tensor | None] = dict.fromkeys(INPUTS)
    if dout is None and dlse is None:
        return tuple(results.values())
    (q, k, v, out, lse), options = _kept(ctx)
    needed = {name for name, needs in zip(INPUTS, ctx.needs_input_grad) if needs}
    check_differentiable("attention", needed)
    wanted = [not needed.isdisjoint(_SOURCES[gradient]) for gradient in Gradients._fields]
    given = (dout, dlse, q, k, v, out, lse, *options, wanted)
    direct = not torch.is_grad_enabled() and is_plain_call(given)
    gradients = _attention_backward(*given) if direct else attention_backward(*given)
    for name, gradient in zip(Gradients._fields, gradients):
        results.update((source, gradient) for source in _SOURCES[name] if source in needed)
    return tuple(results.values())


def _in_library(differentiate: Any, inputs: list[str]) -> Any:
    """The same derivative for torch.library, which wants a list for a list of tensors."""

    def with_lists(ctx: Any, *arrived: Any) -> tuple[Any, ...]:
        results = list(differentiate(ctx, *arrived))
        blocks = ctx.others[_PLACES["block_mask", False]]
        if blocks is not None:
            results[inputs.index("block_mask")] = [None] * len(blocks)
        return tuple(results)

    return with_lists


torch.library.register_autograd("keel::attention", _in_library(_differentiate, INPUTS), setup_context=_save)


# The gradients that have derivatives of their own: not that of a relative bias, which does not move either.
_SECOND = [name for name in Gradients._fields if name in DoubleGradients._fields]


def _check_relative(x: Any) -> None:
    if x is not None:
        raise NotImplementedError("[attention] second and forward-mode derivatives of a relative_bias are not computed")


def _along(tangents: Any) -> list[Any]:
    """The tangents of attention's inputs, in the order of Tangents."""
    named = {name: tangent for name, tangent in zip(INPUTS, tangents) if tangent is not None}
    check_differentiable("attention", named)
    _check_relative(named.get("relative_bias"))
    found = {gradient: [named[source] for source in _SOURCES[gradient] if source in named] for gradient in _SECOND}
    return [found[gradient][-1] if found[gradient] else None for gradient in _SECOND]


def _move(ctx: Any, *tangents: Any) -> Any:
    """attention along tangents."""
    saved, options = _kept(ctx)
    return (*attention_jvp(*saved, *options, *_along(tangents)), None, None)


def _save_backward(ctx: Any, inputs: tuple[Any, ...], output: Any) -> tuple[Any, ...]:
    dout, dlse, q, k, v, out, lse, *options, wanted = inputs
    ctx.has = dout is not None, dlse is not None
    ctx.wanted = wanted
    ctx.mark_non_differentiable(*(x for x, want in zip(output, wanted) if not want))
    return _keep(ctx, (*(x for x in (dout, dlse) if x is not None), q, k, v, out, lse), options)


def _kept_backward(ctx: Any) -> tuple[list[Any], list[Any]]:
    saved, options = _kept(ctx)
    for at, has in enumerate(ctx.has):
        if not has:
            saved.insert(at, None)
    return saved, options


def _differentiate_backward(ctx: Any, *gradients: Any) -> tuple[Any, ...]:
    """Second derivatives. out and lse have none of their own: they are functions of the others."""
    needs = dict(zip(_BACKWARD_INPUTS, ctx.needs_input_grad))
    results: dict[str, Any] = dict.fromkeys(_BACKWARD_INPUTS)
    tangents = [x if want else None for x, want, _ in zip(gradients, ctx.wanted, _SECOND)]
    for x, want in zip(gradients[len(_SECOND) :], ctx.wanted[len(_SECOND) :]):
        _check_relative(x if want else None)
    check_differentiable("attention", (name for name in needs if needs[name]))
    _check_relative(needs["relative_bias"] or None)
    if all(x is None for x in tangents):
        return tuple(results.values())
    inputs, options = _kept_backward(ctx)
    wanted = [any(needs[source] for source in _SOURCES[gradient]) for gradient in _SECOND]
    second = attention_double_backward(*inputs, *options, *tangents, [*wanted, needs["dout"], needs["dlse"]])
    for name, gradient in zip(DoubleGradients._fields, second):
        for source in _SOURCES.get(name, [name[1:]]):
            if needs[source]:
                results[source] = gradient
    return tuple(results.values())


def _move_backward(ctx: Any, tdout: Any, tdlse: Any, *tangents: Any) -> Any:
    """attention_backward along tangents: a product of the Hessian and a vector, and the gradients of what dout and dlse
    move by."""
    inputs, options = _kept_backward(ctx)
    q, k, v, _out, _lse, *rest = tangents
    moves = _along((q, k, v, *rest))
    wanted = list(ctx.wanted)
    _check_relative(any(wanted[len(_SECOND) :]) or None)
    terms = []
    if any(x is not None for x in moves):
        second = attention_double_backward(*inputs, *options, *moves, [*wanted[: len(_SECOND)], False, False])
        terms.append((*second[: len(_SECOND)], *(None for _ in wanted[len(_SECOND) :])))
    if tdout is not None or tdlse is not None:
        terms.append(attention_backward(tdout, tdlse, *inputs[2:], *options, wanted))
    return tuple(sum(parts) if want and parts else None for want, *parts in zip(wanted, *terms))


_BACKWARD_INPUTS = [argument.name for argument in torch.ops.keel.attention_backward.default._schema.arguments]
torch.library.register_autograd(
    "keel::attention_backward", _in_library(_differentiate_backward, _BACKWARD_INPUTS), setup_context=_save_backward
)


def _no_third(ctx: Any, *_: Any) -> Any:
    raise NotImplementedError("[attention_double_backward] third derivatives of attention are not computed")


def _no_derivative(ctx: Any, *_: Any) -> Any:
    raise NotImplementedError("[attention_jvp] derivatives of attention along tangents have none of their own")


torch.library.register_autograd("keel::attention_double_backward", _no_third)
torch.library.register_autograd("keel::attention_jvp", _no_derivative)


def _one_by_one(operator: Any) -> Any:
    """torch.vmap's rule for an operator: one call per entry."""

    def rule(info: Any, in_dims: tuple[Any, ...], *arguments: Any) -> tuple[Any, Any]:
        def entry(i: int) -> list[Any]:
            return [x if d is None or isinstance(d, list) else x.select(d, i) for x, d in zip(arguments, in_dims)]

        if info.batch_size == 0:  # as for torch's own function
            _check.refuse("vmap", "in_dims", "a dimension of at least 1", 0, NotImplementedError)
        results = [operator(*entry(i)) for i in range(info.batch_size)]
        if isinstance(results[0], Tensor):
            return torch.stack(results), 0
        return tuple(torch.stack(parts) for parts in zip(*results)), (0,) * len(results[0])

    return rule


torch.library.register_vmap("keel::attention", _one_by_one(torch.ops.keel.attention))
torch.library.register_vmap("keel::attention_backward", _one_by_one(torch.ops.keel.attention_backward))
torch.library.register_vmap("keel::attention_jvp", _one_by_one(torch.ops.keel.attention_jvp))
torch.library.register_vmap("keel::attention_double_backward", _one_by_one(torch.ops.keel.attention_double_backward))
torch.library.register_vmap("keel::attention_weights", _one_by_one(torch.ops.keel.attention_weights))
torch.library.register_vmap("keel::attention_scores", _one_by_one(torch.ops.keel.attention_scores))


class _Transformed(torch.autograd.Function):
    """The operator for torch.func, where derivatives registered for an operator do not work."""

    generate_vmap_rule = True

    @staticmethod
    def forward(*inputs: Any) -> Any:
        return torch.ops.keel.attention(*inputs)

    setup_context = _with_tangents(_save)
    backward = staticmethod(_differentiate)
    jvp = staticmethod(_move)


class _TransformedBackward(torch.autograd.Function):
    generate_vmap_rule = True

    @staticmethod
    def forward(*inputs: Any) -> Any:
        return torch.ops.keel.attention_backward(*inputs)

    setup_context = _with_tangents(_save_backward)
    backward = staticmethod(_differentiate_backward)
    jvp = staticmethod(_move_backward)


class _Last(torch.autograd.Function):
    """What has no derivative: `operator` of the others."""

    generate_vmap_rule = True

    @staticmethod
    def forward(operator: Any, *inputs: Any) -> Any:
        return operator(*inputs)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        pass

    @staticmethod
    def backward(ctx: Any, *_: Any) -> Any:
        _no_third(ctx)

    @staticmethod
    def jvp(ctx: Any, *_: Any) -> Any:
        _no_third(ctx)


class _Direct(torch.autograd.Function):
    """The operator for plain tensors, for which the dispatcher would take several times as long."""

    @staticmethod
    def forward(ctx: Any, *inputs: Any) -> Any:
        output = _attention(*inputs)
        _save(ctx, inputs, output)
        return output

    backward = staticmethod(_differentiate)


_apply: Any = super(torch.autograd.Function, _Direct).apply  # without its handling of transforms


def _transforming(inputs: tuple[Any, ...]) -> bool:
    if torch.compiler.is_compiling():
        return False
    if torch._C._functorch.maybe_current_level() is not None:
        return True
    return forward_ad._current_level >= 0 and any(
        isinstance(x, Tensor) and forward_ad.unpack_dual(x).tangent is not None for x in inputs
    )


def attention(*inputs: Any) -> Any:
    """torch.ops.keel.attention, inside torch.func's transforms and with tangents too."""
    if is_plain_call(inputs):
        tracked = torch.is_grad_enabled() and any(isinstance(x, Tensor) and x.requires_grad for x in inputs)
        return _apply(*inputs) if tracked else _attention(*inputs)
    function: Any = _Transformed.apply if _transforming(inputs) else torch.ops.keel.attention
    return function(*inputs)


def attention_backward(*inputs: Any) -> Any:
    """torch.ops.keel.attention_backward, likewise."""
    function: Any = _TransformedBackward.apply if _transforming(inputs) else torch.ops.keel.attention_backward
    return function(*inputs)


def _last(operator: Any, inputs: tuple[Any, ...]) -> Any:
    apply: Any = _Last.apply
    return apply(operator, *inputs) if _transforming(inputs) else operator(*inputs)


def attention_jvp(*inputs: Any) -> Any:
    """torch.ops.keel.attention_jvp, likewise."""
    return _last(torch.ops.keel.attention_jvp, inputs)


def attention_double_backward(*inputs: Any) -> Any:
    """torch.ops.keel.attention_double_backward, likewise."""
    return _last(torch.ops.keel.attention_double_backward, inputs)


def _detached(inputs: tuple[Any, ...]) -> Iterator[Any]:
    return (x.detach() if isinstance(x, Tensor) else x for x in inputs)


def attention_weights(*inputs: Any) -> Any:
    """torch.ops.keel.attention_weights, detached."""
    return torch.ops.keel.attention_weights(*_detached(inputs))


def attention_scores(*inputs: Any) -> Any:
    """torch.ops.keel.attention_scores, detached."""
    return torch.ops.keel.attention_scores(*_detached(inputs))


# Decompositions for torch.onnx.export, which asks for all there are. Fake tensors of symbolic sizes would take them
# too, if there were no meta functions.
meta_table[torch.ops.keel.attention.default] = _attention_fake
meta_table[torch.ops.keel.attention_weights.default] = _attention_weights_fake
meta_table[torch.ops.keel.attention_scores.default] = _attention_scores_fake


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


@register_decomposition(torch.ops.keel.attention_scores.default)
def _attention_scores_in_onnx(q: Tensor, k: Tensor, v: Tensor, *rest: Any) -> Tensor:
    *options, stage = rest
    return _onnx.scores_by_onnx(q, k, v, as_options(options), stage)
