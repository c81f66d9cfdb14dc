"""The options of attention: one table for NumPy, for torch, for JAX and for the compiled part.

A row has an option's name, its type for callers, and what the package must know about it. Everything else follows from
these rows: signatures, torch's operators and their derivatives. A row of the same name in src/options.cc says how an
option is read into the library, which alone checks values.
"""

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any, TypedDict, TypeVar


@dataclass(frozen=True)
class Option:
    """kind       "tensor", "block mask", "number", "number or tensor", "causal", "window", "origin", "integers",
               "flag", "seed", "threads" or "stream"
    gradient   the name of the gradient with respect to it
    default    what is meant if it is left out
    """

    kind: str
    gradient: str | None = None
    default: Any = None


class Options(TypedDict, total=False):
    """The options that keel, keel.torch and keel.jax share."""

    mask: Annotated[Any, Option("tensor", gradient="dbias")]
    bias: Annotated[Any, Option("tensor", gradient="dbias")]
    block_mask: Annotated[Any, Option("block mask")]
    causal: Annotated[str | bool | None, Option("causal")]
    window: Annotated[tuple[int | None, int | None] | None, Option("window")]
    origin: Annotated[tuple[int, int] | tuple[int, int, int, int] | None, Option("origin")]
    scale: Annotated[Any, Option("number or tensor", gradient="dscale")]
    softcap: Annotated[float | None, Option("number")]
    alibi: Annotated[Any, Option("tensor")]
    relative_bias: Annotated[Any, Option("tensor", gradient="drelative_bias")]
    sinks: Annotated[Any, Option("tensor", gradient="dsinks")]
    dropout: Annotated[float, Option("number", default=0.0)]
    q_lengths: Annotated[Any, Option("integers")]
    k_lengths: Annotated[Any, Option("integers")]
    k_starts: Annotated[Any, Option("integers")]
    q_offsets: Annotated[Any, Option("integers")]
    k_offsets: Annotated[Any, Option("integers")]
    split_products: Annotated[bool, Option("flag", default=False)]


class JaxOptions(Options, total=False):
    """The options of keel.jax, which works on XLA's stream."""

    seed: Annotated[Any, Option("seed", default=0)]
    threads: Annotated[int | None, Option("threads")]


class ArrayOptions(Options, total=False):
    """All options: the shared ones, and those for which torch has settings of its own."""

    seed: Annotated[int, Option("seed", default=0)]
    threads: Annotated[int | None, Option("threads")]
    stream: Annotated[Any, Option("stream")]


TABLE: dict[str, Option] = {name: hint.__metadata__[0] for name, hint in ArrayOptions.__annotations__.items()}


def source_of(gradient: str, options: Any) -> Any:
    """What a gradient is taken with respect to: the last option given whose row names it."""
    given = [options.get(name) for name, option in TABLE.items() if option.gradient == gradient]
    return next((value for value in reversed(given) if value is not None), None)


def refuse_unknown(operation: str, name: str, known: Any) -> None:
    raise TypeError(f"[{operation}] {name}: expected one of the options {', '.join(known)}, got another name")


Function = TypeVar("Function", bound=Callable[..., Any])


def takes(table: type) -> Callable[[Function], Function]:
    """Shows the rows of the table in a function's signature, in place of its **options."""

    def show(function: Function) -> Function:
        signature = inspect.signature(function)
        *own, _ = signature.parameters.values()
        named = inspect.Parameter.KEYWORD_ONLY
        rows = [
            inspect.Parameter(name, named, default=TABLE[name].default, annotation=hint.__origin__)
            for name, hint in table.__annotations__.items()
        ]
        at = sum(parameter.kind is not named for parameter in own)
        shown: Any = function
        shown.__signature__ = signature.replace(parameters=[*own[:at], *rows, *own[at:]])
        return function

    return show
