"""torch.onnx.export of Keel's functions: ONNX's own Attention from opset 23 on, with the results of Keel."""

import keel.torch
import numpy as np
import pytest
import torch
import torch.nn.functional as F

pytest.importorskip("onnxscript")
onnx = pytest.importorskip("onnx")
runtime = pytest.importorskip("onnx.reference")

pytestmark = pytest.mark.filterwarnings("ignore")


class Call(torch.nn.Module):
    def __init__(self, function, options):
        super().__init__()
        self.function = function
        self.options = options

    def forward(self, q, k, v):
        return self.function(q, k, v, **self.options)


def qkv(heads=4, kv_heads=4, n_q=5, n_k=7):
    generator = torch.Generator().manual_seed(0)
    sizes = ((heads, n_q), (kv_heads, n_k), (kv_heads, n_k))
    return tuple(torch.randn(2, h, n, 8, generator=generator) for h, n in sizes)


def exported(model, inputs, opset=23, **more):
    return torch.onnx.export(model, inputs, opset_version=opset, dynamo=True, verbose=False, **more)


def operators(program):
    return [node.op_type for node in program.model.graph]


def run(program, inputs, which=0):
    """By ONNX's reference implementation, which is the specification in NumPy."""
    session = runtime.ReferenceEvaluator(program.model_proto)
    names = [value.name for value in program.model_proto.graph.input]
    results = session.run(None, dict(zip(names, (x.numpy() for x in inputs))))
    return results if which is None else results[which]


MASK = torch.rand(5, 7, generator=torch.Generator().manual_seed(1)) < 0.6
MASK[:, 0] = True
BIAS = torch.randn(4, 5, 7, generator=torch.Generator().manual_seed(2))
SDPA = {
    "plain": {},
    "causal": {"is_causal": True},
    "mask": {"attn_mask": MASK},
    "bias": {"attn_mask": BIAS, "scale": 0.3},
    "mask_and_causal": {"attn_mask": MASK, "is_causal": True},
    "bias_and_causal": {"attn_mask": BIAS, "is_causal": True},
}
ATTENTION = {
    "softcap": {"softcap": 0.7},
    "softcap_causal": {"softcap": 0.7, "causal": "top_left"},
    "softcap_mask": {"softcap": 0.7, "mask": MASK, "bias": BIAS},
    "bottom_right": {"causal": "bottom_right"},
    "window": {"window": (2, 1)},
    "window_left": {"window": (2, None), "causal": "bottom_right"},
    "alibi": {"alibi": torch.tensor([0.5, 0.25, 0.1, 1.0])},
    "alibi_per_entry": {"alibi": torch.tensor([[0.5, 0.25, 0.1, 1.0], [1.0, 0.5, 0.25, 0.1]]), "causal": True},
    "sinks": {"sinks": torch.tensor([0.5, -0.25, 2.0, 1.0]), "softcap": 2.0},
    "sinks_causal": {"sinks": torch.tensor([0.5, -0.25, 2.0, 1.0]), "causal": True},
    "scales": {"scale": torch.linspace(0.1, 1.0, 4)[:, None]},
    "lengths": {"k_lengths": torch.tensor([7, 4]), "causal": "bottom_right", "mask": MASK},
}


@pytest.mark.parametrize("name, opset", [*((name, 23) for name in SDPA), ("mask_and_causal", 24)])
def test_scaled_dot_product_attention_becomes_attention(name, opset):
    model, inputs = Call(keel.torch.scaled_dot_product_attention, SDPA[name]), qkv()
    program = exported(model, inputs, opset)
    assert operators(program).count("Attention") == 1 and "Softmax" not in operators(program)
    np.testing.assert_allclose(run(program, inputs), model(*inputs), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", ATTENTION)
def test_options_become_attention(name):
    model, inputs = Call(keel.torch.attention, ATTENTION[name]), qkv()
    program = exported(model, inputs)
    assert operators(program).count("Attention") == 1 and "Softmax" not in operators(program)
    np.testing.assert_allclose(run(program, inputs), model(*inputs), rtol=1e-4, atol=1e-5)


def test_grouped_heads_are_not_repeated():
    inputs = qkv(kv_heads=2)
    for model in (
        Call(keel.torch.scaled_dot_product_attention, {"enable_gqa": True}),
        Call(keel.torch.attention, {"softcap": 0.7}),
    ):
        program = exported(model, inputs)
        assert operators(program) == ["Attention"]
        np.testing.assert_allclose(run(program, inputs), model(*inputs), rtol=1e-4, atol=1e-5)


def test_models_within_replace_are_exported():
    with keel.torch.replace():
        program = exported(Call(lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True), {}), qkv())
    assert operators(program) == ["Attention"]


def test_lengths_may_be_dynamic():
    length = torch.export.Dim("length", min=2, max=64)
    shapes = {"q": {2: length}, "k": {2: length}, "v": {2: length}}
    model = Call(keel.torch.attention, {"causal": "bottom_right", "window": (3, 0), "softcap": 2.0})
    program = exported(model, qkv(n_q=6, n_k=6), dynamic_shapes=shapes)
    inputs = qkv(n_q=9, n_k=9)
    np.testing.assert_allclose(run(program, inputs), model(*inputs), rtol=1e-4, atol=1e-5)


def test_older_opsets_have_plain_products():
    model, inputs = Call(keel.torch.scaled_dot_product_attention, {"is_causal": True}), qkv(n_k=5)
    program = exported(model, inputs, opset=18)
    assert "Attention" not in operators(program) and "Softmax" in operators(program)
    np.testing.assert_allclose(run(program, inputs), model(*inputs), rtol=1e-4, atol=1e-5)


def test_lse_and_weights_are_exported():
    options = {
        "return_lse": True,
        "return_weights": True,
        "sinks": torch.tensor([0.5, -0.25, 2.0, 1.0]),
        "causal": True,
    }
    model, inputs = Call(lambda *x, **o: keel.torch.attention(*x, **o)[1::2], options), qkv()
    for got, expected in zip(run(exported(model, inputs), inputs, None), model(*inputs)):
        np.testing.assert_allclose(got, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("stage", ["raw", "capped", "masked"])
def test_scores_are_exported(stage):
    options = {
        "return_scores": stage,
        "softcap": 0.7,
        "mask": MASK,
        "bias": BIAS,
        "k_lengths": torch.tensor([7, 4]),
        "sinks": torch.tensor([0.5, -0.25, 2.0, 1.0]),
    }
    model, inputs = Call(lambda *x, **o: keel.torch.attention(*x, **o).scores, options), qkv()
    np.testing.assert_allclose(run(exported(model, inputs), inputs), model(*inputs), rtol=1e-4, atol=1e-5)


def test_exported_programs_are_exported_too():
    inputs = qkv()
    for function, options in (
        (keel.torch.scaled_dot_product_attention, SDPA["mask_and_causal"]),
        (keel.torch.attention, ATTENTION["sinks"]),
    ):
        model = Call(function, options)
        program = exported(torch.export.export(model, inputs, strict=True), inputs)
        assert "Attention" in operators(program) and "Softmax" not in operators(program)
        np.testing.assert_allclose(run(program, inputs), model(*inputs), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    "options, text",
    [
        ({"dropout": 0.5}, "seed: expected none in an ONNX export"),
        ({"origin": (1, 2)}, "origin: expected none in an ONNX export"),
        ({"return_stats": True}, "return_stats: expected False in an ONNX export, got True"),
    ],
)
def test_what_onnx_does_not_have_is_refused_by_name(options, text):
    model = Call(lambda *x, **o: keel.torch.attention(*x, **o)[0], options)
    with pytest.raises(Exception) as error:
        exported(model, qkv())
    messages, cause = [], error.value
    while cause is not None:
        messages.append(str(cause))
        cause = cause.__cause__ or cause.__context__
    assert any(text in message for message in messages), messages
