"""keel.torch.replace(): what goes to Keel, what falls back to torch's own, and what is said about it."""

import keel.torch
import pytest
import torch
import torch.nn.functional as F

pytestmark = pytest.mark.usefixtures("short_path")


def test_routes_a_model_through_keel(calls):
    model = torch.nn.TransformerEncoderLayer(16, 4, 32, dropout=0.0, batch_first=True)
    x = torch.randn(2, 5, 16)
    expected = model(x)
    torchs = F.scaled_dot_product_attention
    with keel.torch.replace():
        with keel.torch.replace():
            torch.testing.assert_close(model(x), expected)
        assert F.scaled_dot_product_attention is not torchs and len(calls) == 1
    assert F.scaled_dot_product_attention is torchs
    with pytest.raises(RuntimeError, match="inside"), keel.torch.replace():
        raise RuntimeError("inside")
    assert F.scaled_dot_product_attention is torchs


class Model(torch.nn.Module):
    def forward(self, q, k, v):
        return F.scaled_dot_product_attention(q, k, v, is_causal=True)


def dense():
    return torch.randn(2, 3, 5, 8, generator=torch.Generator().manual_seed(0))


def nested(layout):
    entries = [x[:, :n] for x, n in zip(dense(), (3, 5))]
    if layout is torch.strided:
        return torch.nested.nested_tensor([x.contiguous() for x in entries])
    return torch.nested.nested_tensor([x.transpose(0, 1).contiguous() for x in entries], layout=layout).transpose(1, 2)


FALLBACKS = {
    "jagged": (lambda: nested(torch.jagged), {}, "query is a nested tensor"),
    "strided": (lambda: nested(torch.strided), {}, "query is a nested tensor"),
    "meta": (lambda: dense().to("meta"), {}, "query is on meta"),
    "head_size_0": (lambda: dense()[..., :0], {}, "a head size is 0"),
    "infinite_scale": (dense, {"scale": float("inf")}, "scale is inf"),
}


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
@pytest.mark.parametrize("name", FALLBACKS)
def test_falls_back_to_torch_and_says_why(name, calls, monkeypatch):
    make, options, why = FALLBACKS[name]
    x = make()
    expected = F.scaled_dot_product_attention(x, x, x, **options)
    monkeypatch.setattr(keel.torch._replace, "_last_fallback", None)
    with keel.torch.replace():
        got = F.scaled_dot_product_attention(x, x, x, **options)
    assert not calls and keel.torch.last_fallback() == why
    for a, b in zip(got.unbind(), expected.unbind()):
        if x.device.type == "meta":
            assert a.shape == b.shape
        else:
            torch.testing.assert_close(a, b, equal_nan=True)
    with keel.torch.replace(strict=True):
        with keel.torch.replace(), pytest.raises(NotImplementedError, match=f"{why}: not served by Keel"):
            F.scaled_dot_product_attention(x, x, x, **options)


@pytest.mark.parametrize(
    "make, why",
    [
        (lambda: dense().to_sparse(), "layout torch.sparse_coo"),
        (lambda: dense().to(torch.complex64), "dtype torch.complex64"),
    ],
)
def test_errors_are_torchs_for_what_neither_serves(make, why):
    x = make()
    with pytest.raises(RuntimeError) as torchs:
        F.scaled_dot_product_attention(x, x, x)
    with keel.torch.replace(), pytest.raises(type(torchs.value)) as ours:
        F.scaled_dot_product_attention(x, x, x)
    assert str(ours.value) == str(torchs.value) and why in keel.torch.last_fallback()


def test_other_devices_fall_back():
    class Elsewhere(torch.Tensor):  # there is no such device here; a tensor that claims to be on one will do
        @property
        def device(self):
            return torch.device("xpu:1")

    x = dense().as_subclass(Elsewhere)
    with keel.torch.replace():
        F.scaled_dot_product_attention(x, x, x)
    assert keel.torch.last_fallback() == "query is on xpu:1"


def test_scripts_and_symbolic_traces_have_torchs_operator():
    x = dense()
    with keel.torch.replace():
        script = torch.jit.script(Model())
        graph = torch.fx.symbolic_trace(Model())
        assert keel.torch.last_fallback() == "query is not a tensor but of class Proxy"
    assert "scaled_dot_product_attention" in script.code and "scaled_dot_product_attention" in graph.code
    for model in (script, graph):
        torch.testing.assert_close(model(x, x, x), Model()(x, x, x), rtol=0, atol=0)
    with keel.torch.replace(strict=True), pytest.raises(NotImplementedError, match="Proxy"):
        torch.fx.symbolic_trace(Model())


def test_wrong_arguments_are_keels_to_refuse():
    x = dense()
    with keel.torch.replace(), pytest.raises(ValueError, match="key: expected size 8 of the last dimension"):
        F.scaled_dot_product_attention(x, x[..., :7], x)
