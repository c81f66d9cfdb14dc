"""The table of options: one for NumPy, torch and the compiled part."""

import inspect

import keel
import keel.torch
import numpy as np
import pytest
import torch
from keel import _core
from keel._options import TABLE, ArrayOptions, Options
from keel.torch import _operator

RNG = np.random.default_rng(0)
Q, K, V = RNG.standard_normal((3, 1, 2, 6, 8), dtype=np.float32)

# A value of each option that changes the result, and what must be given with it.
EXAMPLES = {
    "mask": (RNG.random((6, 6)) < 0.7, {}),
    "bias": (RNG.standard_normal((1, 2, 6, 6)).astype(np.float32), {}),
    "block_mask": (keel.block_mask(lambda b, h, i, j: (i + j) % 3 > 0, 1, 1, 6, 6, block=4), {}),
    "causal": ("bottom_right", {}),
    "window": ((1, None), {}),
    "origin": ((2, 1), {"causal": True}),
    "scale": (RNG.random((1, 2, 1)).astype(np.float32), {}),
    "softcap": (0.5, {}),
    "alibi": (np.array([0.5, 1.0], np.float32), {}),
    "relative_bias": (RNG.standard_normal((2, 5)).astype(np.float32), {}),
    "sinks": (np.array([1.0, 2.0], np.float32), {}),
    "dropout": (0.5, {}),
    "q_lengths": (np.array([4]), {}),
    "k_lengths": (np.array([3]), {}),
    "k_starts": (np.array([2]), {}),
    "q_offsets": (np.array([0, 2, 6]), {"k_offsets": np.array([0, 3, 6])}),
    "k_offsets": (np.array([0, 1, 6]), {"q_offsets": np.array([0, 3, 6])}),
    "split_products": (True, {}),
    "seed": (7, {"dropout": 0.5}),
    "threads": (2, {}),
    "stream": (0, {}),
}


def as_tensors(options):
    return {name: torch.from_numpy(x) if isinstance(x, np.ndarray) else x for name, x in options.items()}


def test_the_compiled_part_reads_every_row():
    assert sorted(_core.options) == sorted(TABLE) == sorted(EXAMPLES)


@pytest.mark.parametrize(
    "function, table",
    [
        (keel.attention, ArrayOptions),
        (keel.attention_backward, ArrayOptions),
        (keel.explain, ArrayOptions),
        (keel.torch.attention, Options),
    ],
)
def test_every_function_shows_and_takes_the_options(function, table):
    shown = inspect.signature(function).parameters
    for name in table.__annotations__:
        assert shown[name].kind is inspect.Parameter.KEYWORD_ONLY
        assert shown[name].default == TABLE[name].default
    assert all(parameter.kind is not inspect.Parameter.VAR_KEYWORD for parameter in shown.values())
    arrays = [torch.from_numpy(x) for x in (Q, K, V, V, Q[..., 0], V)]
    needed = sum(parameter.default is inspect.Parameter.empty for parameter in shown.values())
    with pytest.raises(TypeError, match=r"\[attention(_backward)?\] colour: expected one of the options mask, bias"):
        function(*arrays[:needed], colour=1)
    function(*arrays[:needed], **{name: TABLE[name].default for name in table.__annotations__})


def test_torch_takes_no_seed_and_no_threads():
    for name in set(TABLE) - set(Options.__annotations__):
        with pytest.raises(TypeError, match=rf"\[attention\] {name}: expected one of the options"):
            keel.torch.attention(*(torch.from_numpy(x) for x in (Q, K, V)), **{name: 1})


@pytest.mark.parametrize("name", EXAMPLES)
def test_the_default_is_what_leaving_it_out_means(name):
    value, beside = EXAMPLES[name]
    plain = keel.attention(Q, K, V, **beside) if name in ("seed", "origin") else keel.attention(Q, K, V)
    assert np.array_equal(keel.attention(Q, K, V, **{name: TABLE[name].default}), keel.attention(Q, K, V))
    changes = not np.array_equal(keel.attention(Q, K, V, **{name: value}, **beside), plain)
    assert changes == (name not in ("split_products", "threads", "stream"))


@pytest.mark.parametrize("name", sorted(set(Options.__annotations__) - {"dropout"}))
def test_torch_gives_the_bits_of_numpy(name):
    value, beside = EXAMPLES[name]
    options = {name: value, **beside}
    ours = keel.torch.attention(*(torch.from_numpy(x) for x in (Q, K, V)), **as_tensors(options))
    assert np.array_equal(ours.numpy(), keel.attention(Q, K, V, **options))


@pytest.mark.parametrize("name", [name for name, option in TABLE.items() if option.gradient])
def test_torch_gives_the_gradients_of_numpy(name):
    value = EXAMPLES["bias" if name == "mask" else name][0]  # a mask of numbers
    gradient = TABLE[name].gradient
    leaf = torch.from_numpy(value).requires_grad_()
    out, lse, _ = keel.torch.attention(*(torch.from_numpy(x) for x in (Q, K, V)), **{name: leaf}, return_lse=True)
    out.backward(torch.from_numpy(V))
    expected = keel.attention_backward(
        Q, K, V, out.detach().numpy(), lse.detach().numpy(), V, want=(gradient,), **{name: value}
    )
    assert np.array_equal(leaf.grad.numpy(), getattr(expected, gradient))


def test_the_operators_of_torch_have_the_options_of_the_table():
    arguments = [argument.name for argument in torch.ops.keel.attention.default._schema.arguments]
    assert arguments == ["q", "k", "v", *(argument.name for argument in _operator.ARGUMENTS), "statistics", "out_dtype"]
    assert {argument.option for argument in _operator.ARGUMENTS} == set(TABLE) - {"threads", "stream"}
