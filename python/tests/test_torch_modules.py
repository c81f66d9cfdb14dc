"""keel.torch.ScaledDotProductAttention and MultiHeadAttention, against formulas in torch and torch's own module."""

import doctest
import math
import warnings

import pytest

torch = pytest.importorskip("torch")
from keel.torch import MultiHeadAttention, ScaledDotProductAttention  # noqa: E402
from torch import nn  # noqa: E402


def tensors(*sizes, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return [torch.randn(*size, generator=generator, dtype=torch.float64, requires_grad=True) for size in sizes]


def by_formula(layer, q, k, v, mask=None):
    """The score functions as textbooks write them."""
    if layer.score == "additive":
        scores = torch.tanh(layer.w_q(q).unsqueeze(-2) + layer.w_k(k).unsqueeze(-3)) @ layer.v
    else:
        q = layer.w(q) if layer.score == "general" else q
        tau = 1.0 if layer.score == "dot" else math.sqrt(q.shape[-1])
        if layer.temperature == "learned":
            tau = layer.log_temperature.exp().view(-1, 1, 1)
        elif layer.temperature is not None:
            tau = layer.temperature
        scores = q @ k.transpose(-2, -1) / tau
    if mask is not None:
        scores = scores.masked_fill(~mask, -math.inf) if mask.dtype == torch.bool else scores + mask
    weights = scores.softmax(-1)
    return weights @ v, weights


@pytest.mark.parametrize("shape", [(2,), (2, 3)])  # without and with heads
@pytest.mark.parametrize(
    "score, temperature",
    [("scaled", None), ("dot", None), ("general", None), ("additive", None), ("scaled", 3.0), ("scaled", "learned")],
)
@pytest.mark.parametrize("mask", [None, "bool", "float"])
def test_scores_and_gradients_are_those_of_the_formula(shape, score, temperature, mask):
    if temperature == "learned" and len(shape) == 1:
        heads = 1
    else:
        heads = 3
    q, k, v = tensors((*shape, 5, 8), (*shape, 7, 8), (*shape, 7, 4))
    layer = ScaledDotProductAttention(score=score, temperature=temperature, d_k=8, heads=heads).double()
    if temperature == "learned":
        nn.init.normal_(layer.log_temperature)
    if mask is not None:
        kept = torch.rand(5, 7, generator=torch.Generator().manual_seed(1)) < 0.6
        kept[:, 0] = True
        mask = kept if mask == "bool" else torch.where(kept, 0.0, -2.5).double()
    leaves = [q, k, v, *layer.parameters()]
    out, weights = layer(q, k, v, mask=mask, return_weights=True)
    expected, expected_weights = by_formula(layer, q, k, v, mask)
    torch.testing.assert_close(out, expected, rtol=1e-10, atol=1e-12)
    torch.testing.assert_close(weights, expected_weights.detach(), rtol=1e-10, atol=1e-12)
    dout = torch.randn_like(out)
    for mine, theirs in zip(torch.autograd.grad(out, leaves, dout), torch.autograd.grad(expected, leaves, dout)):
        torch.testing.assert_close(mine, theirs, rtol=1e-9, atol=1e-11)


def test_multi_head_is_torchs_own():
    for causal in (False, True):
        theirs = nn.MultiheadAttention(24, 4, batch_first=True, dtype=torch.float64)
        nn.init.normal_(theirs.in_proj_bias)
        mine = MultiHeadAttention(24, 4).double()
        with torch.no_grad():
            for i, w in enumerate((mine.w_q, mine.w_k, mine.w_v)):
                w.weight.copy_(theirs.in_proj_weight[24 * i : 24 * (i + 1)])
                w.bias.copy_(theirs.in_proj_bias[24 * i : 24 * (i + 1)])
            mine.w_o.load_state_dict(theirs.out_proj.state_dict())
        (x,) = tensors((2, 6, 24))
        hidden = torch.ones(6, 6, dtype=torch.bool).triu(1) if causal else None
        expected, weights = theirs(x, x, x, attn_mask=hidden, average_attn_weights=False)
        out, found = mine(x, is_causal=causal, return_weights=True)
        torch.testing.assert_close(out, expected, rtol=1e-10, atol=1e-12)
        torch.testing.assert_close(found, weights.detach(), rtol=1e-10, atol=1e-12)
        torch.testing.assert_close(mine(x, is_causal=causal), out)


def test_multi_head_takes_other_sizes_and_masks_for_all_heads_or_each():
    layer = MultiHeadAttention(16, 2, kdim=10, vdim=6, head_dim=5, temperature="learned").double()
    q, k, v = tensors((2, 3, 16), (2, 4, 10), (2, 4, 6))
    mask = torch.tensor([[True, False, True, True]]).expand(2, 3, 4)
    out, weights = layer(q, k, v, mask=mask, return_weights=True)
    assert out.shape == (2, 3, 16) and weights.shape == (2, 2, 3, 4)
    assert (weights[..., 1] == 0).all()
    each = layer(q, k, v, mask=mask.unsqueeze(1).expand(2, 2, 3, 4))
    torch.testing.assert_close(each, out)
    out.sum().backward()
    assert layer.attention.log_temperature.grad.abs().min() > 0


def test_a_float_mask_of_zeros_and_ones_is_added_with_a_warning():
    q, k, v = tensors((1, 4, 8), (1, 4, 8), (1, 4, 8))
    layer = ScaledDotProductAttention()
    with pytest.warns(UserWarning, match=r"added to the scores.*mask\.bool\(\)"):
        out = layer(q, k, v, mask=torch.tril(torch.ones(4, 4, dtype=torch.float64)))
    torch.testing.assert_close(out, by_formula(layer, q, k, v, torch.tril(torch.ones(4, 4, dtype=torch.float64)))[0])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        layer(q, k, v, mask=torch.tril(torch.ones(4, 4)).bool())
        layer(q, k, v, mask=torch.zeros(4, 4, dtype=torch.float64))
        layer(q, k, v, mask=torch.full((4, 4), -0.5, dtype=torch.float64))


def test_dropout_is_for_training():
    q, k, v = tensors((1, 6, 8), (1, 6, 8), (1, 6, 8))
    layer = ScaledDotProductAttention(dropout=0.5)
    torch.manual_seed(0)
    assert not torch.equal(layer(q, k, v), layer(q, k, v))
    layer.eval()
    assert torch.equal(layer(q, k, v), layer(q, k, v))


@pytest.mark.parametrize(
    "make, message",
    [
        (lambda: ScaledDotProductAttention(score="cosine"), r"score: expected one of scaled, dot, .* got 'cosine'"),
        (
            lambda: ScaledDotProductAttention(temperature=-1),
            r"temperature: expected None, 'learned' or a positive number",
        ),
        (lambda: ScaledDotProductAttention(temperature="warm"), r"temperature: expected"),
        (lambda: ScaledDotProductAttention(temperature="learned"), r"d_k: expected the size of a head"),
        (
            lambda: ScaledDotProductAttention(score="additive", d_k=4, temperature=2.0),
            r"temperature: expected None with",
        ),
        (lambda: ScaledDotProductAttention(dropout=1.0), r"dropout: expected a number in \[0, 1\)"),
        (lambda: MultiHeadAttention(10, 3), r"num_heads: expected a divisor of embed_dim 10"),
        (lambda: ScaledDotProductAttention()(*tensors((4, 8), (4, 8), (4, 8))), r"q: expected \(B, N, D\)"),
        (lambda: MultiHeadAttention(8, 2)(torch.zeros(4, 8)), r"query: expected \(B, N, D\), got \(4, 8\)"),
        (
            lambda: ScaledDotProductAttention()(
                *tensors((1, 4, 8), (1, 4, 8), (1, 4, 8)), mask=torch.ones(4, 4).long()
            ),
            r"mask: expected bool, or numbers to add to the scores, got torch.int64",
        ),
    ],
)
def test_wrong_arguments_are_refused_by_name(make, message):
    with pytest.raises(Exception, match=message):
        make()


def test_examples_of_the_docstrings_hold():
    import keel.torch._modules

    results = doctest.testmod(keel.torch._modules)
    assert results.attempted and not results.failed
