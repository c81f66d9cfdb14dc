"""Tensors of classes other than torch's own: served, handed over as torch does, or refused by name; never misread."""

import keel
import keel.torch
import pytest
import torch
import torch.nn.functional as F
from keel.torch import scaled_dot_product_attention as sdpa
from torch._subclasses import FakeTensorMode
from torch.nn.attention.bias import causal_lower_right, causal_upper_left
from torch.testing._internal.two_tensor import TwoTensor

pytestmark = pytest.mark.usefixtures("short_path")
BIASES = {"lower_right": causal_lower_right, "upper_left": causal_upper_left}


def qkv(n_q=5, n_k=9, heads=4, grad=False):
    generator = torch.Generator().manual_seed(0)
    sizes = ((4, n_q), (heads, n_k), (heads, n_k))
    return [torch.randn(2, h, n, 8, generator=generator).requires_grad_(grad) for h, n in sizes]


def routed(q, k, v, bias):
    with keel.torch.replace(strict=True):
        return F.scaled_dot_product_attention(q, k, v, bias)


ROUTES = {"sdpa": sdpa, "attention": lambda q, k, v, b: keel.torch.attention(q, k, v, mask=b), "replace": routed}


@pytest.mark.parametrize("n_q, n_k", [(5, 9), (7, 7), (1, 6)])
@pytest.mark.parametrize("variant", BIASES)
@pytest.mark.parametrize("route", ROUTES)
def test_causal_biases_mean_what_they_mean_in_torch(route, variant, n_q, n_k):
    q, k, v = qkv(n_q, n_k, grad=True)
    bias = BIASES[variant](n_q, n_k)
    ours, torchs = ROUTES[route](q, k, v, bias), F.scaled_dot_product_attention(q, k, v, bias)
    assert type(ours) is torch.Tensor
    torch.testing.assert_close(ours, torchs)
    pairs = zip(*(torch.autograd.grad(out.square().sum(), (q, k, v)) for out in (ours, torchs)))
    for a, b in pairs:
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("variant", BIASES)
@pytest.mark.parametrize("route", ROUTES)
def test_causal_biases_compile_without_a_graph_break(route, variant):
    torch.compiler.reset()
    call = F.scaled_dot_product_attention if route == "replace" else ROUTES[route]
    q, k, v = qkv(grad=True)
    bias = BIASES[variant](5, 9)
    expected = torch.autograd.grad(F.scaled_dot_product_attention(q, k, v, bias).square().sum(), (q, k, v))
    with keel.torch.replace(strict=True):  # for the third; the others are Keel's own
        call = F.scaled_dot_product_attention if route == "replace" else call
        compiled = torch.compile(lambda *x: call(*x) * 1, fullgraph=True, backend="aot_eager")
        got = torch.autograd.grad(compiled(q, k, v, bias).square().sum(), (q, k, v))
    for a, b in zip(got, expected):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-5)


def test_causal_biases_serve_grouped_heads_and_other_ranks():
    q, k, v = qkv(heads=2)
    bias = causal_lower_right(5, 9)
    mask = torch.ones(5, 9, dtype=torch.bool).tril(4)
    expected = F.scaled_dot_product_attention(q, k, v, mask, enable_gqa=True)
    torch.testing.assert_close(sdpa(q, k, v, bias, enable_gqa=True), expected)
    torch.testing.assert_close(sdpa(q[0, 0], k[0, 0], v[0, 0], bias), expected[0, 0])


@pytest.mark.filterwarnings("ignore:Lower right causal bias will produce NaNs")
def test_a_lower_right_bias_with_more_queries_than_keys_hides_the_first():
    q, k, v = qkv(9, 5)
    out = sdpa(q, k, v, causal_lower_right(9, 5))
    assert not out[:, :, :4].any() and torch.isfinite(out).all()


def test_causal_biases_of_other_lengths_are_refused():
    q, k, v = qkv()
    for call, name in ((sdpa, "attn_mask"), (ROUTES["attention"], "mask")):
        with pytest.raises(ValueError, match=rf"{name}: expected a causal bias of \(5, 9\).* got one of \(5, 8\)"):
            call(q, k, v, causal_upper_left(5, 8))


def test_causal_biases_beside_another_causal_mask_are_refused():
    q, k, v = qkv()
    with pytest.raises(ValueError, match="attn_mask: expected no CausalBias with is_causal=True"):
        sdpa(q, k, v, causal_lower_right(5, 9), is_causal=True)
    with pytest.raises(ValueError, match="mask: expected no CausalBias together with causal"):
        keel.torch.attention(q, k, v, mask=causal_lower_right(5, 9), causal="bottom_right")


class Answering(torch.Tensor):
    """Its memory means nothing; it knows torch's function, by its name, and no other."""

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        if func is torch.nn.functional.scaled_dot_product_attention:
            return "answered"
        return super().__torch_function__(func, types, args, kwargs)


@pytest.mark.parametrize("place", range(4))
def test_classes_with_a_torch_function_are_asked(place):
    given = [*qkv(), torch.zeros(5, 9)]
    given[place] = given[place].as_subclass(Answering)
    assert sdpa(*given) == "answered"
    with keel.torch.replace():
        torchs = keel.torch._name.torchs
        assert F.scaled_dot_product_attention(*given) == "answered"
        assert F.scaled_dot_product_attention is not torchs
    names = ("q", "k", "v", "mask")
    with pytest.raises(TypeError, match=rf"\[attention\] {names[place]}: expected .*, got one of class Answering"):
        keel.torch.attention(*given[:3], mask=given[3])
    with pytest.raises(TypeError, match=rf"\[attention\] {names[place]}: expected .*, got one of class Answering"):
        keel.attention(*given[:3], mask=given[3])


def test_classes_without_one_come_back_as_torchs_do():
    class Named(torch.Tensor):
        pass

    q, k, v = qkv()
    out = sdpa(q.as_subclass(Named), k, v)
    assert type(out) is Named and type(F.scaled_dot_product_attention(q.as_subclass(Named), k, v)) is Named
    assert torch.equal(out.as_subclass(torch.Tensor), sdpa(q, k, v))


def test_classes_of_the_dispatcher_see_the_operator():
    q, k, v = qkv()
    two = TwoTensor(q, 2 * q)
    for out in (sdpa(two, k, v), keel.torch.attention(two, k, v)):
        assert torch.equal(out.a, sdpa(q, k, v)) and torch.equal(out.b, sdpa(2 * q, k, v))


def test_arrays_refuse_classes_of_the_dispatcher_by_name():
    q, k, v = qkv()
    with FakeTensorMode():
        fake = torch.randn(2, 4, 5, 8)
    for x, name in ((TwoTensor(q, q), "TwoTensor"), (fake, "FakeTensor")):
        with pytest.raises(TypeError, match=f"q: expected .* got one of class {name}, which has its own __torch_disp"):
            keel.attention(x, k, v)


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
def test_nested_tensors_are_refused_where_torch_is_not_meant():
    nested = torch.nested.nested_tensor([torch.randn(2, 3, 8), torch.randn(2, 5, 8)])
    for call in (sdpa, keel.torch.attention):
        with pytest.raises(TypeError, match="expected a dense tensor, got a nested one"):
            call(nested, nested, nested)
