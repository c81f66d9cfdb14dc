"""keel.torch as torch sees it: autograd, operators, torch.compile, dropout, errors."""

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
from keel.torch import scaled_dot_product_attention as sdpa

pytestmark = pytest.mark.usefixtures("short_way")


def qkv(*shape, dtype=torch.float32, seed=0, grad=False):
    generator = torch.Generator().manual_seed(seed)
    return [torch.randn(shape or (2, 4, 7, 8), generator=generator, dtype=dtype).requires_grad_(grad) for _ in range(3)]


def operator_arguments(q, k, v, **changes):
    """Those of torch.ops.keel.attention, in order."""
    arguments = dict.fromkeys(
        "mask bias scale_tensor alibi sinks seed q_lengths k_lengths q_offsets k_offsets scale softcap".split()
    )
    arguments |= {"causal": 0, "window_left": None, "window_right": None, "dropout": 0.0, "statistics": False}
    assert changes.keys() <= arguments.keys()
    return (q, k, v, *(arguments | changes).values())


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


def test_second_derivatives_are_refused():
    q, k, v = qkv(grad=True)
    for call in (sdpa, lambda *x: keel.torch.attention(*x)):
        (dq,) = torch.autograd.grad(call(q, k, v).sum(), q, create_graph=True)
        with pytest.raises(Exception, match="second derivatives of attention are not computed"):
            torch.autograd.grad(dq.sum(), q)


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
    torch.library.opcheck(torch.ops.keel.attention.default, operator_arguments(q, k, v, causal=1))
    out, lse, *_ = torch.ops.keel.attention(*operator_arguments(*(x.detach() for x in (q, k, v))))
    arguments = operator_arguments(q.detach(), k.detach(), v.detach())[3:-1]
    torch.library.opcheck(
        torch.ops.keel.attention_backward.default,
        (torch.ones_like(out), None, *(x.detach() for x in (q, k, v)), out, lse, *arguments, [True] * 3 + [False] * 3),
    )


def test_opcheck_with_every_option():
    q, _, _ = qkv(2, 4, 3, 4, grad=True)
    k, v, _ = qkv(2, 2, 5, 4, grad=True, seed=1)
    options = dict(
        mask=torch.ones(3, 5, dtype=torch.bool),
        bias=torch.randn(4, 1, 5, requires_grad=True),
        scale_tensor=torch.rand(4, 1, requires_grad=True),
        sinks=torch.randn(4, requires_grad=True),
        alibi=torch.rand(4),
        seed=torch.tensor([5]),
        dropout=0.25,
        softcap=3.0,
        k_lengths=torch.tensor([4, 5]),
        causal=2,
        window_left=2,
        statistics=True,
    )
    torch.library.opcheck(torch.ops.keel.attention.default, operator_arguments(q, k, v, **options))


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


# Meaning


def test_fully_masked_rows_are_zero_with_zero_gradients():
    q, k, v = qkv(grad=True)
    mask = torch.ones(7, 7, dtype=torch.bool)
    mask[2] = False
    out = sdpa(q, k, v, attn_mask=mask)
    out.sum().backward()
    assert not out[:, :, 2].any() and not q.grad[:, :, 2].any()
    assert torch.isfinite(q.grad).all() and torch.isfinite(k.grad).all()


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


def test_lazy_negations_are_seen_as_what_they_mean():
    q, k, v = qkv()
    negated = q.neg()._neg_view()
    assert negated.is_neg() and torch.equal(negated, q)
    assert torch.equal(sdpa(negated, k, v), sdpa(q, k, v))
    leaf = q.clone().requires_grad_()
    (dq,) = torch.autograd.grad(sdpa(leaf, k, v), leaf, negated)
    (expected,) = torch.autograd.grad(sdpa(leaf, k, v), leaf, q)
    assert torch.equal(dq, expected)
    with pytest.raises(ValueError, match=r"k: expected a tensor as it lies in memory, got a lazy negation"):
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


def test_threads_follow_torch():
    q, k, v = qkv(2, 4, 200, 16)
    expected = sdpa(q, k, v)
    try:
        torch.set_num_threads(2)
        assert torch.equal(sdpa(q, k, v), expected)
    finally:
        torch.set_num_threads(1)


# Errors


def ones(*shape, **options):
    return torch.ones(shape or (1, 2, 4, 8), **options)


REFUSED = [
    ("not_a_tensor", dict(query=[1.0]), TypeError, "query: expected a tensor, got list"),
    ("numpy", dict(key=np.ones((1, 2, 4, 8))), TypeError, "key: expected a tensor, got ndarray"),
    ("one_dimension", dict(query=ones(8)), ValueError, "query: expected at least 2 dimensions, got 1"),
    (
        "integers",
        dict(query=ones(dtype=torch.int64), key=ones(dtype=torch.int64), value=ones(dtype=torch.int64)),
        TypeError,
        "query: expected dtype float64, float32, float16 or bfloat16, got torch.int64",
    ),
    ("dtypes_differ", dict(key=ones(dtype=torch.float64)), TypeError, "key: expected dtype torch.float32 as in query"),
    (
        "sparse",
        dict(query=ones().to_sparse()),
        TypeError,
        "query: expected a dense tensor, got one of layout torch.sparse_coo",
    ),
    (
        "head_size",
        dict(key=ones(1, 2, 4, 7)),
        ValueError,
        "key: expected size 8 of the last dimension as in query, got 7",
    ),
    ("length", dict(value=ones(1, 2, 5, 8)), ValueError, "value: expected length 4 as in key, got 5"),
    (
        "batch",
        dict(query=ones(3, 2, 4, 8), key=ones(2, 2, 4, 8)),
        ValueError,
        "batch dimensions of query, key and value that broadcast",
    ),
    ("heads", dict(query=ones(1, 4, 4, 8)), ValueError, "batch dimensions of query, key and value that broadcast"),
    (
        "grouped",
        dict(query=ones(1, 3, 4, 8), enable_gqa=True),
        ValueError,
        "key: expected a number of heads that divides the 3 of query, got 2",
    ),
    (
        "grouped_2d",
        dict(query=ones(4, 8), key=ones(4, 8), value=ones(4, 8), enable_gqa=True),
        ValueError,
        "at least 3 dimensions beside it",
    ),
    (
        "mask_and_causal",
        dict(attn_mask=ones(4, 4), is_causal=True),
        ValueError,
        "attn_mask: expected None beside is_causal, got a mask",
    ),
    ("mask_dtype", dict(attn_mask=ones(4, 4, dtype=torch.int64)), TypeError, "dtype"),
    ("mask_half", dict(attn_mask=ones(4, 4, dtype=torch.float16)), TypeError, "dtype"),
    ("mask_shape", dict(attn_mask=ones(3, 4)), ValueError, "expected shape (B, H_q, N_q, N_k)"),
    ("mask_batch", dict(attn_mask=ones(2, 1, 4, 4)), ValueError, "expected shape (B, H_q, N_q, N_k)"),
    ("causal_number", dict(is_causal=1), TypeError, "is_causal: expected a bool, got 1"),
    ("gqa_number", dict(enable_gqa=None), TypeError, "enable_gqa: expected a bool, got None"),
    ("scale_text", dict(scale="x"), TypeError, "scale: expected a number, got 'x'"),
    ("dropout_text", dict(dropout_p="x"), TypeError, "dropout_p: expected a number, got 'x'"),
    ("dropout", dict(dropout_p=1.5), ValueError, "dropout_p: expected from 0 to 1, got 1.5"),
    ("dropout_negative", dict(dropout_p=-0.5), ValueError, "dropout_p: expected from 0 to 1, got -0.5"),
]


@pytest.mark.parametrize("arguments, kind, text", [c[1:] for c in REFUSED], ids=[c[0] for c in REFUSED])
@pytest.mark.parametrize("grad", [False, True])
def test_refuses_what_torch_refuses(arguments, kind, text, grad):
    given = {"query": ones(), "key": ones(), "value": ones(), **arguments}
    if grad and isinstance(given["query"], torch.Tensor) and given["query"].is_floating_point():
        given["query"] = given["query"].requires_grad_()
    with pytest.raises(kind) as error:
        sdpa(**given)
    assert text in str(error.value), str(error.value)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a device that is not the CPU")
def test_refuses_tensors_of_another_device():
    with pytest.raises(TypeError, match="expected a tensor on the CPU, got one on cuda"):
        sdpa(*(ones(device="cuda") for _ in range(3)))


def test_refuses_tensors_of_another_device_by_name():
    # No such device is here; a tensor that says it is elsewhere serves.
    class Elsewhere(torch.Tensor):
        @property
        def device(self):
            return torch.device("cuda:1")

    q = ones().as_subclass(Elsewhere)
    with pytest.raises(TypeError, match="query: expected a tensor on the CPU, got one on cuda:1"):
        sdpa(q, ones(), ones())
    with pytest.raises(TypeError, match="q: expected a tensor on the CPU, got one on cuda:1"):
        keel.torch.attention(q, ones(), ones())


@pytest.mark.parametrize(
    "arguments, kind, text",
    [
        (dict(q=ones(4, 8)), ValueError, "[attention] q: expected 4 dimensions (B, H, N, D), got 2"),
        (dict(window=3), ValueError, "[attention] window: expected (left, right), got 3"),
        (dict(scale="x"), TypeError, "[attention] scale: expected a number, got 'x'"),
        (dict(softcap="x"), TypeError, "[attention] softcap: expected a number, got 'x'"),
        (dict(causal="left"), ValueError, "[attention] causal: expected None, True, 'top_left' or 'bottom_right'"),
        (dict(mask=ones(4, 4), bias=ones(4, 4)), TypeError, "[attention] mask: expected dtype bool beside bias"),
        (dict(k_lengths=torch.tensor([1.0])), TypeError, "[attention] k_lengths: expected integers, got torch.float32"),
        (dict(k_lengths=torch.tensor([9])), ValueError, "[attention] k_lengths: expected lengths from 0 to 4, got 9"),
        (dict(sinks=ones(3)), ValueError, "[attention] sinks: expected shape (H_q) = (2), got (3)"),
        (dict(softcap=-1.0), ValueError, "[attention] softcap: expected a positive finite number, got -1"),
        (dict(dropout=2.0), ValueError, "[attention] dropout: expected from 0 to 1, got 2.0"),
        (dict(k=ones(1, 2, 4, 7)), ValueError, "[attention] k: expected d_k 8 as in q, got 7"),
    ],
)
def test_attention_names_the_argument(arguments, kind, text):
    with pytest.raises(kind) as error:
        keel.torch.attention(**{"q": ones(), "k": ones(), "v": ones(), **arguments})
    assert text in str(error.value), str(error.value)


# Tensors in keel.attention


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.float16, torch.bfloat16])
def test_keel_attention_takes_tensors_and_returns_them(dtype):
    q, k, v = qkv(dtype=dtype)
    result = keel.attention(q, k, v, causal=True, return_lse=True)
    assert isinstance(result.out, torch.Tensor) and result.out.dtype == dtype
    assert torch.equal(result.out, sdpa(q, k, v, is_causal=True))
    gradients = keel.attention_backward(q, k, v, *result[:2], torch.ones_like(q), causal=True)
    assert isinstance(gradients.dq, torch.Tensor) and gradients.dq.dtype == dtype
    parts = [keel.attention(q, k[:, :, s], v[:, :, s], return_lse=True)[:2] for s in (slice(0, 3), slice(3, 7))]
    assert isinstance(keel.merge(parts).out, torch.Tensor)


def test_keel_attention_refuses_to_lose_a_gradient():
    q, k, v = qkv(grad=True)
    with pytest.raises(ValueError, match=r"\[attention\] q: expected a tensor that needs no gradient"):
        keel.attention(q, k, v)
    with torch.no_grad():
        keel.attention(q, k, v)


class OnlyDlpack:
    """An array of some library of which nothing is known but that it speaks DLPack."""

    def __init__(self, tensor, versions):
        self.tensor, self.versions, self.asked = tensor, versions, 0

    def __dlpack_device__(self):
        return self.tensor.__dlpack_device__()

    def __dlpack__(self, **options):
        if options and not self.versions:
            raise TypeError("no keywords here")
        self.asked += 1
        return self.tensor.__dlpack__(**options)


@pytest.mark.parametrize("versions", [True, False])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_any_dlpack_array_will_do(versions, dtype):
    q, k, v = (OnlyDlpack(x.transpose(1, 2), versions) for x in qkv(2, 7, 4, 8, dtype=dtype))
    out = keel.attention(q, k, v)
    assert isinstance(out, np.ndarray) and q.asked > 0
    expected = keel.attention(q.tensor, k.tensor, v.tensor)
    np.testing.assert_array_equal(out.astype(np.float32), expected.float().numpy())
    place = OnlyDlpack(torch.zeros(2, 4, 7, 8, dtype=dtype), versions)
    keel.attention(q, k, v, out=place)
    assert torch.equal(place.tensor, expected)


def test_dlpack_arrays_that_cannot_be_written_are_refused_as_out():
    class ReadOnly:
        def __init__(self, array):
            self.array = array
            array.flags.writeable = False

        def __dlpack_device__(self):
            return (1, 0)

        def __dlpack__(self, **options):
            return self.array.__dlpack__(**options)

    q, k, v = (x.numpy() for x in qkv())
    assert keel.attention(ReadOnly(q), k, v).shape == q.shape
    with pytest.raises(ValueError, match="out: expected an array to write to, got a read-only one"):
        keel.attention(q, k, v, out=ReadOnly(np.zeros_like(k)))


# replace()


def test_replace_routes_a_model_through_keel(monkeypatch):
    model = torch.nn.TransformerEncoderLayer(16, 4, 32, dropout=0.0, batch_first=True)
    x = torch.randn(2, 5, 16)
    expected = model(x)
    calls = []
    real = keel.torch._replace.scaled_dot_product_attention
    monkeypatch.setattr(
        keel.torch._replace, "scaled_dot_product_attention", lambda *a, **o: calls.append(1) or real(*a, **o)
    )
    torchs = F.scaled_dot_product_attention
    with keel.torch.replace():
        with keel.torch.replace():
            torch.testing.assert_close(model(x), expected)
        assert F.scaled_dot_product_attention is not torchs and len(calls) == 1
    assert F.scaled_dot_product_attention is torchs
    with pytest.raises(RuntimeError, match="inside"), keel.torch.replace():
        raise RuntimeError("inside")
    assert F.scaled_dot_product_attention is torchs


# Documentation


@pytest.mark.parametrize("module", ["_attention", "_replace", "_sdpa"])
def test_examples_of_the_docstrings_hold(module):
    results = doctest.testmod(importlib.import_module(f"keel.torch.{module}"))
    assert results.attempted and not results.failed
