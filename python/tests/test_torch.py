"""keel.torch as torch sees it: autograd, operators, torch.compile, dropout, what a call means."""

import doctest
import importlib
import inspect
import math

import keel
import keel.torch
import numpy as np
import pytest
import torch
import torch.nn.functional as F
from keel.torch import _operator
from keel.torch import scaled_dot_product_attention as sdpa

pytestmark = pytest.mark.usefixtures("short_path")


def qkv(*shape, dtype=torch.float32, seed=0, grad=False):
    generator = torch.Generator().manual_seed(seed)
    return [torch.randn(shape or (2, 4, 7, 8), generator=generator, dtype=dtype).requires_grad_(grad) for _ in range(3)]


def operator_arguments(q, k, v, statistics=False, out_dtype=None, **options):
    """The arguments of torch.ops.keel.attention, in order."""
    return (q, k, v, *_operator.flatten("attention", options), statistics, out_dtype)


# Signature


def test_has_torchs_signature():
    # torch's is a builtin whose documentation begins with its signature.
    line = F.scaled_dot_product_attention.__doc__.split(")")[0]
    names = [part.split("=")[0].strip() for part in line[line.index("(") + 1 :].split(",")]
    assert list(inspect.signature(sdpa).parameters) == names
    defaults = {n: p.default for n, p in inspect.signature(sdpa).parameters.items() if p.default is not p.empty}
    assert defaults == dict(attn_mask=None, dropout_p=0.0, is_causal=False, scale=None, enable_gqa=False)


# Autograd


def test_gradcheck_of_sdpa():
    q, k, v = qkv(1, 2, 4, 3, dtype=torch.float64, grad=True)
    mask = torch.randn(1, 1, 4, 4, dtype=torch.float64, requires_grad=True)
    for options in ({}, {"is_causal": True}, {"scale": 0.7}):
        assert torch.autograd.gradcheck(lambda *x, o=options: sdpa(*x, **o), (q, k, v))
    assert torch.autograd.gradcheck(lambda q, k, v, m: sdpa(q, k, v, attn_mask=m), (q, k, v, mask))
    k2, v2 = (x[:, :1].detach().clone().requires_grad_() for x in (k, v))
    assert torch.autograd.gradcheck(lambda *x: sdpa(*x, enable_gqa=True), (q, k2, v2))


def test_gradcheck_of_attention_with_every_option():
    generator = torch.Generator().manual_seed(1)

    def leaf(*shape):
        return torch.randn(shape, generator=generator, dtype=torch.float64).requires_grad_()

    q, k, v = leaf(2, 4, 3, 3), leaf(2, 2, 5, 3), leaf(2, 2, 5, 2)
    bias, scale, sinks = leaf(4, 3, 5), leaf(4, 1), leaf(4)
    slopes = torch.linspace(0.1, 0.4, 4, dtype=torch.float64)

    def call(q, k, v, bias, scale, sinks):
        result = keel.torch.attention(
            q,
            k,
            v,
            bias=bias,
            scale=scale,
            sinks=sinks,
            alibi=slopes,
            causal="bottom_right",
            window=(3, None),
            softcap=4.0,
            k_lengths=torch.tensor([5, 4]),
            return_lse=True,
            return_stats=True,
        )
        assert not any(x.requires_grad for x in result.stats)
        return result.out, result.lse

    assert torch.autograd.gradcheck(call, (q, k, v, bias, scale, sinks))
    number = torch.tensor(0.3, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda s: keel.torch.attention(q, k, v, scale=s), (number,))


def test_lse_alone_can_be_differentiated():
    q, k, v = qkv(grad=True)
    _, lse, _ = keel.torch.attention(q, k, v, return_lse=True)
    lse.sum().backward()
    s = q.detach().requires_grad_() @ k.detach().transpose(-1, -2) / math.sqrt(8)
    q2 = q.detach().requires_grad_()
    (q2 @ k.detach().transpose(-1, -2) / math.sqrt(8)).logsumexp(-1).sum().backward()
    torch.testing.assert_close(q.grad, q2.grad)
    torch.testing.assert_close(lse, s.logsumexp(-1))
    assert v.grad is None or not v.grad.any()


def test_attention_agrees_with_the_arrays_of_keel():
    q, k, v = qkv()
    result = keel.torch.attention(q, k, v, causal=True, return_lse=True, return_stats=True)
    arrays = keel.attention(*(x.numpy() for x in (q, k, v)), causal=True, return_lse=True, return_stats=True)
    assert np.array_equal(result.out, arrays.out) and np.array_equal(result.lse, arrays.lse)
    for name in result.stats._fields:
        assert np.array_equal(getattr(result.stats, name), getattr(arrays.stats, name)), name


def test_scores_are_those_of_keel_and_detached():
    q, k, v = qkv(grad=True)
    for stage in ("raw", "capped", "masked"):
        options = dict(causal=True, softcap=2.0, return_scores=stage)
        result = keel.torch.attention(q, k, v, **options)
        arrays = keel.attention(*(x.detach().numpy() for x in (q, k, v)), **options)
        assert np.array_equal(result.scores, arrays.scores) and not result.scores.requires_grad
        assert result.weights is None and result.out.requires_grad
    both = keel.torch.attention(q, k, v, return_weights=True, return_scores="masked")
    torch.testing.assert_close(both.scores.softmax(-1), both.weights)
    compiled = torch.compile(lambda q: keel.torch.attention(q, k, v, return_scores="raw").scores, fullgraph=True)
    with torch.no_grad():
        assert torch.equal(compiled(q), keel.torch.attention(q, k, v, return_scores="raw").scores)


def test_inductor_takes_the_operators_as_they_are_in_ci_too(monkeypatch):
    """Where CI is set, Inductor refuses operators with a decomposition that it does not use; Keel has some for ONNX."""
    monkeypatch.setenv("CI", "true")
    torch.compiler.reset()
    q, k, v = qkv()

    def call(q):
        result = keel.torch.attention(q, k, v, causal=True, return_weights=True, return_scores="raw")
        return result.out, result.weights, result.scores

    for compiled, expected in zip(torch.compile(call, fullgraph=True)(q), call(q), strict=True):
        assert torch.equal(compiled, expected)


def test_alibi_may_differ_between_entries():
    q, k, v = qkv(grad=True)
    slopes = torch.rand(q.shape[:2], generator=torch.Generator().manual_seed(3))
    out = keel.torch.attention(q, k, v, alibi=slopes)
    out.square().sum().backward()
    n = q.shape[2]
    distance = (torch.arange(n)[:, None] - torch.arange(n)).abs()
    again = [x.detach().requires_grad_() for x in (q, k, v)]
    expected = F.scaled_dot_product_attention(*again, attn_mask=-slopes[..., None, None] * distance)
    expected.square().sum().backward()
    torch.testing.assert_close(out, expected)
    for x, y in zip((q, k, v), again):
        torch.testing.assert_close(x.grad, y.grad)


def test_no_grad_keeps_no_graph():
    q, k, v = qkv(grad=True)
    with torch.no_grad():
        assert not sdpa(q, k, v).requires_grad
    with torch.inference_mode():
        assert sdpa(q, k, v).is_inference()
    assert not sdpa(*(x.detach() for x in (q, k, v))).requires_grad


# The operator


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.float16, torch.bfloat16])
def test_opcheck(dtype):
    q, k, v = qkv(1, 2, 5, 4, dtype=dtype, grad=True)
    torch.library.opcheck(torch.ops.keel.attention.default, operator_arguments(q, k, v, causal=True))
    q, k, v = (x.detach() for x in (q, k, v))
    out, lse, *_ = torch.ops.keel.attention(*operator_arguments(q, k, v))
    options = _operator.flatten("attention_backward", {})
    wanted = [name in ("dq", "dk", "dv") for name in keel.Gradients._fields]
    torch.library.opcheck(
        torch.ops.keel.attention_backward.default, (torch.ones_like(out), None, q, k, v, out, lse, *options, wanted)
    )


def test_opcheck_with_every_option():
    q, _, _ = qkv(2, 4, 3, 4, grad=True)
    k, v, _ = qkv(2, 2, 5, 4, grad=True, seed=1)
    options = dict(
        mask=torch.ones(3, 5, dtype=torch.bool),
        bias=torch.randn(4, 1, 5, requires_grad=True),
        scale=torch.rand(4, 1, requires_grad=True),
        sinks=torch.randn(4, requires_grad=True),
        alibi=torch.rand(4),
        seed=torch.tensor([5]),
        dropout=0.25,
        softcap=3.0,
        k_lengths=torch.tensor([4, 5]),
        causal="bottom_right",
        window=(2, None),
        origin=(1, 2, 4, 7),
        statistics=True,
    )
    torch.library.opcheck(torch.ops.keel.attention.default, operator_arguments(q, k, v, **options))
    narrow = operator_arguments(q.bfloat16(), k.bfloat16(), v.bfloat16(), out_dtype=torch.float32)
    torch.library.opcheck(torch.ops.keel.attention.default, narrow)
    numbers = {"mask": torch.randn(3, 5, requires_grad=True)}
    torch.library.opcheck(torch.ops.keel.attention.default, operator_arguments(q, k, v, **numbers))


def test_meta_and_fake_tensors_have_the_shapes_and_strides_of_real_ones():
    q = torch.randn(2, 7, 4, 8).transpose(1, 2)
    real = sdpa(q, q, q)
    meta = sdpa(*(q.to("meta") for _ in range(3)))
    assert meta.device.type == "meta" and meta.shape == real.shape and meta.stride() == real.stride() == q.stride()
    wide = torch.randn(2, 4, 7, 5)
    assert sdpa(q, q, wide).shape == sdpa(q.to("meta"), q.to("meta"), wide.to("meta")).shape == (2, 4, 7, 5)


# torch.compile


@pytest.mark.parametrize("dynamic", [False, True])
def test_compiles_without_a_graph_break(dynamic):
    torch.compiler.reset()

    def step(q, k, v, mask):
        a = sdpa(q, k, v, is_causal=True)
        b = sdpa(q * 2, k, v, attn_mask=mask, scale=0.5)
        out, lse, stats = keel.torch.attention(q, k, v, causal="bottom_right", return_lse=True, return_stats=True)
        return (a * b + out).sum() + lse.sum() + stats.entropy.mean()

    q, k, v = qkv(grad=True)
    mask = torch.randn(7, 7, requires_grad=True)
    expected = torch.autograd.grad(step(q, k, v, mask), (q, k, v, mask))
    compiled = torch.compile(step, fullgraph=True, dynamic=dynamic, backend="aot_eager")
    for x, y in zip(torch.autograd.grad(compiled(q, k, v, mask), (q, k, v, mask)), expected):
        torch.testing.assert_close(x, y)


@pytest.mark.parametrize("strict", [False, True])
def test_export_keeps_the_operator(strict):
    class Model(torch.nn.Module):
        def forward(self, q, k, v):
            return sdpa(q, k, v, is_causal=True)

    q, k, v = qkv()
    exported = torch.export.export(Model(), (q, k, v), strict=strict)
    assert any("keel.attention" in str(node.target) for node in exported.graph.nodes)
    torch.testing.assert_close(exported.module()(q, k, v), sdpa(q, k, v, is_causal=True))


def test_compiled_dropout_draws_anew_each_time():
    torch.compiler.reset()
    q, k, v = qkv()
    compiled = torch.compile(lambda *x: sdpa(*x, dropout_p=0.5), fullgraph=True, backend="aot_eager")
    torch.manual_seed(0)
    first, second = compiled(q, k, v), compiled(q, k, v)
    torch.manual_seed(0)
    assert not torch.equal(first, second) and torch.equal(first, compiled(q, k, v))


# Dropout


def test_dropout_follows_torchs_generator():
    q, k, v = qkv(2, 4, 60, 8)
    torch.manual_seed(5)
    first, second = sdpa(q, k, v, dropout_p=0.3), sdpa(q, k, v, dropout_p=0.3)
    torch.manual_seed(5)
    assert torch.equal(first, sdpa(q, k, v, dropout_p=0.3))
    assert not torch.equal(first, second)


def test_dropout_drops_the_share_it_is_given_and_differentiates_what_it_kept():
    q = torch.zeros(1, 1, 100, 4)
    eye = torch.eye(100).view(1, 1, 100, 100).requires_grad_()
    torch.manual_seed(0)
    weights = sdpa(q, q, eye, dropout_p=0.4)  # v = 1: the output is the weights
    assert abs((weights == 0).double().mean() - 0.4) < 0.02
    torch.testing.assert_close(weights[weights > 0].unique(), torch.tensor([0.01 / 0.6]))
    dout = torch.randn_like(weights)
    (dv,) = torch.autograd.grad(weights, eye, dout)
    torch.testing.assert_close(dv, weights.detach().transpose(-1, -2) @ dout)
    assert not sdpa(q, q, eye, dropout_p=1.0).any()


def test_dropout_rounds_its_probability():
    q, k, v = qkv(1, 1, 20, 4)
    torch.testing.assert_close(sdpa(q, k, v, dropout_p=2.0**-18), sdpa(q, k, v), rtol=0, atol=0)
    torch.manual_seed(1)
    about = sdpa(q, k, v, dropout_p=0.3)
    torch.manual_seed(1)
    assert torch.equal(about, sdpa(q, k, v, dropout_p=round(0.3 * 2**16) / 2**16))


# Meaning


def test_fully_masked_rows_are_zero_with_zero_gradients():
    q, k, v = qkv(grad=True)
    mask = torch.ones(7, 7, dtype=torch.bool)
    mask[2] = False
    out = sdpa(q, k, v, attn_mask=mask)
    out.sum().backward()
    assert not out[:, :, 2].any() and not q.grad[:, :, 2].any()
    assert torch.isfinite(q.grad).all() and torch.isfinite(k.grad).all()


def test_what_a_mask_hides_cannot_leak():
    q, k, v = qkv()
    mask = torch.ones(7, 7, dtype=torch.bool)
    mask[:, 5] = False
    expected = sdpa(q, k, v, attn_mask=mask)
    for x in (k, v):
        x[:, :, 5] = float("nan")
    assert torch.equal(sdpa(q, k, v, attn_mask=mask), expected)
    assert F.scaled_dot_product_attention(q, k, v, attn_mask=mask).isnan().any()


def test_nan_that_is_seen_stays():
    q, k, v = qkv()
    for x in (q, k, v):
        spoiled = [y.clone() for y in (q, k, v)]
        next(y for y, z in zip(spoiled, (q, k, v)) if z is x)[0, 0, 2] = torch.nan
        assert sdpa(*spoiled)[0, 0, 2].isnan().all()
        assert sdpa(*spoiled)[0, 1].isfinite().all()


def test_masks_may_have_fewer_dimensions():
    q, k, v = qkv()
    keys = torch.randn(k.shape[2])
    assert torch.equal(sdpa(q, k, v, attn_mask=keys), sdpa(q, k, v, attn_mask=keys[None]))
    assert torch.equal(sdpa(q, k, v, attn_mask=torch.tensor(1.5)), sdpa(q, k, v, attn_mask=torch.full((1, 1), 1.5)))
    with pytest.raises((RuntimeError, IndexError)):
        F.scaled_dot_product_attention(q, k, v, attn_mask=keys)


@pytest.mark.parametrize("kind", ["bool", "float", "padding"])
@pytest.mark.parametrize("needs", [False, True])
def test_a_mask_beside_is_causal_composes(kind, needs):
    q, k, v = qkv(2, 4, 7, 8, grad=True)
    k, v = (torch.cat([x.detach(), x.detach() * 2], 2).requires_grad_() for x in (k, v))
    generator = torch.Generator().manual_seed(1)
    mask = torch.rand(2, 1, 7, 14, generator=generator) < 0.6
    mask[..., 0] = True
    if kind == "padding":
        mask = mask[:, :, :1]
    lower = torch.ones(7, 14, dtype=torch.bool).tril()
    both = mask & lower
    if kind == "float":
        numbers = torch.randn(1, 4, 7, 14, generator=generator)
        mask, both = numbers, numbers.masked_fill(~lower, -torch.inf)
        if needs:
            mask.requires_grad_()
    inputs = (q, k, v, mask) if mask.requires_grad else (q, k, v)
    expected = F.scaled_dot_product_attention(q, k, v, both)
    got = sdpa(q, k, v, mask, is_causal=True)
    torch.testing.assert_close(got, expected)
    if not mask.requires_grad:  # torch's CPU kernel composes too; its other one refuses
        torch.testing.assert_close(got, F.scaled_dot_product_attention(q, k, v, mask, is_causal=True))
    gradients = [torch.autograd.grad(out.square().sum(), x) for out, x in ((got, inputs), (expected, inputs[:3]))]
    for a, b in zip(*gradients):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-5)
    assert len(inputs) == 3 or not gradients[0][3][..., ~lower].any()


@pytest.mark.parametrize(
    "shapes", [((2, 3, 0, 8), (2, 3, 5, 8)), ((2, 3, 5, 8), (2, 3, 0, 8)), ((0, 3, 5, 8), (0, 3, 5, 8))]
)
def test_zero_sizes(shapes):
    q = torch.randn(shapes[0], requires_grad=True)
    k, v = (torch.randn(shapes[1], requires_grad=True) for _ in range(2))
    out = sdpa(q, k, v)
    assert out.shape == F.scaled_dot_product_attention(q, k, v).shape and not out.any()
    out.sum().backward()
    assert all(not x.grad.any() and x.grad.shape == x.shape for x in (q, k, v))


def test_output_has_the_layout_of_the_query():
    q = torch.randn(2, 7, 4, 8).transpose(1, 2)
    assert sdpa(q, q, q).transpose(1, 2).is_contiguous()


def test_autocast_computes_in_its_dtype():
    q, k, v = qkv(grad=True)
    with torch.autocast("cpu", torch.bfloat16):
        out = sdpa(q, k, v)
        torchs = F.scaled_dot_product_attention(q, k, v)
    assert out.dtype == torchs.dtype == torch.bfloat16
    out.float().sum().backward()
    assert q.grad.dtype == torch.float32
    torch.testing.assert_close(out, torchs, rtol=2e-2, atol=2e-2)


def test_autocast_reaches_every_option():
    q, k, v = qkv(grad=True)
    bias, sinks = torch.randn(7, 7, requires_grad=True), torch.randn(4, requires_grad=True)
    options = dict(causal="bottom_right", softcap=5.0)
    with torch.autocast("cpu", torch.bfloat16):
        out = keel.torch.attention(q, k.bfloat16(), v, bias=bias, sinks=sinks, **options)
        wide = keel.torch.attention(q, k, v, mask=bias, out_dtype=torch.float32)
    assert out.dtype == torch.bfloat16 and wide.dtype == torch.float32
    narrow = [x.detach().bfloat16() for x in (q, k, v)]
    expected = keel.torch.attention(*narrow, bias=bias.detach().bfloat16(), sinks=sinks.detach(), **options)
    assert torch.equal(out, expected)
    out.float().sum().backward()
    assert all(x.grad.dtype == torch.float32 for x in (q, k, v, bias, sinks))


NUMBERS = [np.float64(0.5), np.float32(0.5), np.float16(0.5), np.int64(1)]


@pytest.mark.parametrize("number", NUMBERS, ids=lambda x: type(x).__name__)
def test_numpys_numbers_are_numbers(number):
    q, k, v = qkv()
    assert torch.equal(sdpa(q, k, v, scale=number), sdpa(q, k, v, scale=float(number)))
    for name in ("scale", "softcap", "dropout"):
        results = []
        for x in (number, float(number)):
            torch.manual_seed(0)
            results.append(keel.torch.attention(q, k, v, **{name: x}))
        assert torch.equal(*results), name
    results = []
    for x in (number, float(number)):
        torch.manual_seed(0)
        results.append(sdpa(q, k, v, dropout_p=x))
    assert torch.equal(*results)


# Weights


def test_weights_are_those_that_multiplied_v():
    q, _, _ = qkv(2, 4, 5, 8, grad=True)
    k, v, _ = qkv(2, 2, 7, 8, grad=True, seed=1)
    options = dict(causal="bottom_right", softcap=3.0, sinks=torch.randn(4), k_lengths=torch.tensor([7, 5]))
    out, lse, stats, weights = keel.torch.attention(q, k, v, **options, return_weights=True)
    assert lse is None and stats is None and weights.shape == (2, 4, 5, 7) and not weights.requires_grad
    torch.testing.assert_close(weights @ v.repeat_interleave(2, 1), out)
    arrays = {name: x.numpy() if isinstance(x, torch.Tensor) else x for name, x in options.items()}
    expected = keel.attention(*(x.detach().numpy() for x in (q, k, v)), **arrays, return_weights=True).weights
    assert np.array_equal(weights, expected)
    result = keel.torch.attention(q, k, v, return_weights=True, return_lse=True, return_stats=True)
    torch.testing.assert_close(result.weights.amax(-1), result.stats.max_weight)
    result.out.sum().backward()
    assert q.grad.any()


def test_weights_are_of_the_same_dropout_as_the_output():
    q, k, v = qkv()
    torch.manual_seed(0)
    result = keel.torch.attention(q, k, v, dropout=0.5, return_weights=True)
    assert (result.weights == 0).any()
    torch.testing.assert_close(result.weights @ v, result.out)


def test_weights_compile_and_batch():
    torch.compiler.reset()
    q, k, v = qkv(grad=True)

    def weights(q, k, v):
        return keel.torch.attention(q, k, v, causal=True, return_weights=True).weights

    expected = weights(q, k, v)
    assert torch.equal(torch.compile(weights, fullgraph=True, backend="aot_eager")(q, k, v), expected)
    assert torch.equal(torch.vmap(weights)(q[:, None], k[:, None], v[:, None])[:, 0], expected)
    arguments = operator_arguments(*(x.detach() for x in (q, k, v)), causal=True)[:-2]
    torch.library.opcheck(torch.ops.keel.attention_weights.default, arguments)


def test_lazy_negations_are_seen_as_what_they_mean():
    q, k, v = qkv()
    negated = q.neg()._neg_view()
    assert negated.is_neg() and torch.equal(negated, q)
    assert torch.equal(sdpa(negated, k, v), sdpa(q, k, v))
    leaf = q.clone().requires_grad_()
    (dq,) = torch.autograd.grad(sdpa(leaf, k, v), leaf, negated)
    (expected,) = torch.autograd.grad(sdpa(leaf, k, v), leaf, q)
    assert torch.equal(dq, expected)
    with pytest.raises(ValueError, match=r"k: expected a tensor whose memory holds its values, got a lazy negation"):
        keel.attention(q, negated, v)


def test_parameters_and_subclasses_are_tensors():
    q, k, v = qkv()
    parameter = torch.nn.Parameter(q)
    sdpa(parameter, k, v).sum().backward()
    expected = q.clone().requires_grad_()
    sdpa(expected, k, v).sum().backward()
    assert torch.equal(parameter.grad, expected.grad)


def test_modes_see_the_operator():
    from torch.utils._python_dispatch import TorchDispatchMode

    class Names(TorchDispatchMode):
        seen = []

        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            self.seen.append(str(func))
            return func(*args, **(kwargs or {}))

    with Names() as names:
        sdpa(*qkv())
    assert "keel.attention.default" in names.seen


def test_transforms_differentiate_it():
    q, k, v = qkv(1, 2, 4, 3)
    ours = torch.func.grad(lambda q: sdpa(q, k, v).square().sum())(q)
    torchs = torch.func.grad(lambda q: F.scaled_dot_product_attention(q, k, v).square().sum())(q)
    torch.testing.assert_close(ours, torchs)


@pytest.mark.filterwarnings("ignore:There is a performance drop")  # torch's own has no rule for vmap
def test_vmap_is_a_call_for_each_entry():
    q, k, v = qkv(3, 1, 2, 5, 4)
    for in_dims in (0, (0, None, None)):
        args = (q, k, v) if in_dims == 0 else (q, k[0], v[0])
        expected = torch.vmap(F.scaled_dot_product_attention, in_dims)(*args)
        torch.testing.assert_close(torch.vmap(sdpa, in_dims)(*args), expected)
    per_entry = torch.func.vmap(torch.func.grad(lambda q, k, v: sdpa(q, k, v).square().sum()))(q, k, v)
    one = torch.func.grad(lambda q: F.scaled_dot_product_attention(q, k[1], v[1]).square().sum())(q[1])
    torch.testing.assert_close(per_entry[1], one)


@pytest.mark.filterwarnings("ignore:There is a performance drop")
def test_vmap_over_nothing_is_refused_as_by_torchs_own():
    x = torch.zeros(0, 1, 2, 5, 4)
    with pytest.raises(RuntimeError, match="vmap over dims of size 0"):
        torch.vmap(F.scaled_dot_product_attention)(x, x, x)
    with pytest.raises(RuntimeError, match=r"\[vmap\] in_dims: expected a dimension of at least 1, got 0"):
        torch.vmap(sdpa)(x, x, x)


def test_threads_follow_torch():
    q, k, v = qkv(2, 4, 200, 16)
    expected = sdpa(q, k, v)
    try:
        torch.set_num_threads(2)
        assert torch.equal(sdpa(q, k, v), expected)
    finally:
        torch.set_num_threads(1)


# Documentation


@pytest.mark.parametrize("module", ["_attention", "_replace", "_sdpa"])
def test_examples_of_the_docstrings_hold(module):
    results = doctest.testmod(importlib.import_module(f"keel.torch.{module}"))
    assert results.attempted and not results.failed
