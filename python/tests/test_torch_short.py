"""The short paths of scaled_dot_product_attention, compiled and in Python, as parts of torch's graph."""

import contextlib
import gc
import os
import threading

import keel.torch
import numpy as np
import pytest
import torch
import torch.nn.functional as F
from conftest import WAYS
from keel.torch import _operator, _short
from keel.torch import scaled_dot_product_attention as sdpa
from torch.utils.checkpoint import checkpoint

both_ways = pytest.mark.usefixtures("short_path")


def leaves(*shape, dtype=torch.float32):
    generator = torch.Generator().manual_seed(0)
    return [torch.randn(shape or (2, 4, 7, 8), generator=generator, dtype=dtype).requires_grad_() for _ in range(3)]


def exact(*tensors):
    """Attention in extended precision: one float64 result cannot judge another to the last bits."""
    q, k, v = (x.detach().double().numpy().astype(np.longdouble) for x in tensors)
    s = q @ np.swapaxes(k, -1, -2) / np.sqrt(np.longdouble(q.shape[-1]))
    p = np.exp(s - s.max(-1, keepdims=True, initial=-np.inf))
    return p @ v / p.sum(-1, keepdims=True)


@both_ways
@pytest.mark.parametrize("shape", [(7, 8), (4, 7, 8), (2, 4, 7, 8), (0, 4, 7, 8), (2, 4, 0, 8)])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.float16, torch.bfloat16])
def test_serves_two_to_four_dimensions(shape, dtype):
    q, k, v = leaves(*shape, dtype=dtype)
    out = sdpa(q, k, v)
    assert out.shape == q.shape and out.dtype == dtype
    expected = exact(q, k, v)
    error = np.abs(out.detach().double().numpy() - expected).max(initial=0)
    assert error < 2 * torch.finfo(dtype).eps * np.abs(expected).max(initial=1)


@both_ways
@pytest.mark.parametrize("needed", range(1, 8))
def test_gives_the_gradients_that_are_needed(needed):
    tensors = [x.requires_grad_(bool(needed >> i & 1)) for i, x in enumerate(leaves())]
    wanted = [x for x in tensors if x.requires_grad]
    ours, torchs = (
        torch.autograd.grad(f(*tensors).square().sum(), wanted) for f in (sdpa, F.scaled_dot_product_attention)
    )
    for a, b in zip(ours, torchs):
        torch.testing.assert_close(a, b)
    (first,) = torch.autograd.grad(sdpa(*tensors).square().sum(), wanted[:1])  # of those that could be had
    assert torch.equal(first, ours[0])


@both_ways
def test_gradients_of_masks_that_need_none():
    q, k, v = leaves()
    for mask in (torch.rand(7, 7) < 0.7, torch.randn(4, 1, 7), torch.randn(2, 1, 7, 7)):
        mask[..., 0] = 1
        ours, torchs = (
            torch.autograd.grad(f(q, k, v, attn_mask=mask, scale=2).sum(), (q, k, v))
            for f in (sdpa, F.scaled_dot_product_attention)
        )
        for a, b in zip(ours, torchs):
            torch.testing.assert_close(a, b)


@both_ways
def test_a_graph_is_freed_after_its_backward_pass_unless_kept():
    q, k, v = leaves()
    out = sdpa(q, k, v)
    first = torch.autograd.grad(out.sum(), q, retain_graph=True)
    assert torch.equal(*first, *torch.autograd.grad(out.sum(), q))
    with pytest.raises(RuntimeError, match="second time"):
        torch.autograd.grad(out.sum(), q)


@both_ways
@pytest.mark.parametrize("changed", ["query", "output"])
def test_changing_what_was_saved_is_noticed(changed):
    q, k, v = (x * 1 for x in leaves())
    out = sdpa(q, k, v)
    (q if changed == "query" else out).add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        out.sum().backward()


@both_ways
def test_hooks_see_what_is_saved():
    packed = []

    def pack(x):
        packed.append(tuple(x.shape))
        return x.clone()

    q, k, v = leaves()
    expected = torch.autograd.grad(sdpa(q, k, v).sum(), (q, k, v))
    with torch.autograd.graph.saved_tensors_hooks(pack, lambda x: x):
        out = sdpa(q, k, v)
    assert sorted(packed) == sorted([(2, 4, 7, 8)] * 4 + [(2, 4, 7)])
    for a, b in zip(torch.autograd.grad(out.sum(), (q, k, v)), expected):
        assert torch.equal(a, b)


@both_ways
def test_checkpoints_compute_again():
    q, k, v = leaves()
    expected = torch.autograd.grad(sdpa(q * 2, k, v).sum(), (q, k, v))
    out = checkpoint(lambda *x: sdpa(x[0] * 2, *x[1:]), q, k, v, use_reentrant=False)
    for a, b in zip(torch.autograd.grad(out.sum(), (q, k, v)), expected):
        assert torch.equal(a, b)


@both_ways
def test_outputs_do_not_keep_themselves_alive():
    q = torch.randn(1, 1, 1 << 16, 16, requires_grad=True)
    k = torch.randn(1, 1, 1, 16)

    def resident():
        with open("/proc/self/statm") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")

    gc.disable()  # a cycle would wait for it
    try:
        for _ in range(3):
            sdpa(q, k, k)
        before = resident()
        for _ in range(50):  # of 4 MiB each
            sdpa(q, k, k)
        assert resident() - before < 64 << 20
    finally:
        gc.enable()


@both_ways
def test_anomalies_are_traced_to_the_call():
    q, k, v = leaves()
    with pytest.warns(UserWarning, match="Traceback of forward call"), torch.autograd.set_detect_anomaly(True):
        with pytest.raises(RuntimeError, match="nan values"):
            (sdpa(q, k, v) * float("nan")).sum().backward()


@both_ways
def test_errors_of_hooks_arrive_as_they_are():
    def refuse(x):
        raise KeyError("no room")

    q, k, v = leaves()
    with torch.autograd.graph.saved_tensors_hooks(refuse, lambda x: x), pytest.raises(KeyError, match="no room"):
        sdpa(q, k, v)


@both_ways
def test_gradients_may_come_as_a_batch_or_as_zeros():
    q, k, v = leaves()
    out = sdpa(q, k, v)
    batch = torch.randn(3, *out.shape)
    together = torch.autograd.grad(out, (q, k, v), batch, is_grads_batched=True, retain_graph=True)
    for i in range(3):
        for a, b in zip(together, torch.autograd.grad(out, (q, k, v), batch[i], retain_graph=True)):
            torch.testing.assert_close(a[i], b)
    zeros = torch._efficientzerotensor(out.shape)
    assert not any(x.any() for x in torch.autograd.grad(out, (q, k, v), zeros))


@both_ways
def test_what_hooks_bring_back_is_checked():
    q, k, v = leaves()
    for unpack in (lambda x: x[(None,) * 6], lambda x: x[..., :1], lambda x: x.double()):
        with torch.autograd.graph.saved_tensors_hooks(lambda x: x, unpack):
            out = sdpa(q, k, v)
        with pytest.raises((ValueError, TypeError)):
            out.sum().backward()


@both_ways
def test_forward_mode_derivatives_are_not_lost():
    q, k, v = (x.detach() for x in leaves())
    with torch.autograd.forward_ad.dual_level():
        dual = torch.autograd.forward_ad.make_dual(v, v)
        out, tangent = torch.autograd.forward_ad.unpack_dual(sdpa(q, k, dual))
        torch.testing.assert_close(tangent, out)  # which is linear in v
        assert sdpa(q, k, v).shape == q.shape


@both_ways
def test_a_mode_below_autograd_records_no_graph(short_path):
    q, k, v = leaves()
    with torch._C._AutoDispatchBelowAutograd():
        assert not WAYS[short_path](q, k, v, None, False, None, False).requires_grad


def test_threads_may_differentiate_at_once(short_path):
    q, k, v = leaves(2, 4, 33, 16)
    expected = torch.autograd.grad(sdpa(q, k, v).sum(), (q, k, v))
    wrong = []

    def work():
        for _ in range(50):
            got = torch.autograd.grad(sdpa(q, k, v).sum(), (q, k, v))
            if not all(torch.equal(a, b) for a, b in zip(got, expected)):
                wrong.append(1)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


@both_ways
def test_compiled_autograd_differentiates_it():
    torch.compiler.reset()
    q, k, v = leaves()
    expected = torch.autograd.grad(sdpa(q, k, v, is_causal=True).square().sum(), (q, k, v))
    with torch._dynamo.compiled_autograd._enable(torch.compile(backend="eager", fullgraph=True)):
        sdpa(q, k, v, is_causal=True).square().sum().backward()
    for x, y in zip((q, k, v), expected):
        torch.testing.assert_close(x.grad, y)


# What is served, and what is left to the operator


def plain(**changes):
    q, k, v = (x.detach() for x in leaves())
    return {
        "query": q,
        "key": k,
        "value": v,
        "attn_mask": None,
        "is_causal": False,
        "scale": None,
        "enable_gqa": False,
    } | changes


SERVED = {
    "nothing_else": {},
    "causal": {"is_causal": True},
    "scale": {"scale": 0.3},
    "whole_scale": {"scale": 2},
    "bool_mask": {"attn_mask": torch.ones(7, 7, dtype=torch.bool)},
    "mask_and_causal": {"attn_mask": torch.zeros(7, 7), "is_causal": True},
    "mask_of_rank_4": {"attn_mask": torch.zeros(2, 1, 1, 7)},
    "grouped": {"key": torch.randn(2, 2, 7, 8), "value": torch.randn(2, 2, 7, 8), "enable_gqa": True},
    "grouped_alike": {"enable_gqa": True},
    "longer_keys": {"key": torch.randn(2, 4, 9, 8), "value": torch.randn(2, 4, 9, 8)},
    "transposed": {"query": torch.randn(2, 7, 4, 8).transpose(1, 2)},
    "no_queries": {"query": torch.randn(2, 4, 0, 8)},
    "no_keys": {"key": torch.randn(2, 4, 0, 8), "value": torch.randn(2, 4, 0, 8)},
}
LEFT = {
    "subclass": {"query": torch.randn(2, 4, 7, 8).as_subclass(type("Own", (torch.Tensor,), {}))},
    "meta": {"query": torch.randn(2, 4, 7, 8, device="meta")},
    "negated": {"query": torch.randn(2, 4, 7, 8)._neg_view()},
    "not_a_tensor": {"key": [1.0]},
    "integers": {"query": torch.ones(2, 4, 7, 8, dtype=torch.int64)},
    "dtypes_differ": {"key": torch.randn(2, 4, 7, 8, dtype=torch.float64)},
    "five_dimensions": dict.fromkeys(("query", "key", "value"), torch.randn(1, 2, 4, 7, 8)),
    "batches_broadcast": {"query": torch.randn(1, 4, 7, 8)},
    "other_values": {"value": torch.randn(2, 4, 7, 5)},
    "mask_needs_a_gradient": {"attn_mask": torch.zeros(7, 7, requires_grad=True)},
    "negated_mask": {"attn_mask": torch.randn(7, 7)._neg_view()},
    "mask_of_integers": {"attn_mask": torch.zeros(7, 7, dtype=torch.int64)},
    "scale_is_text": {"scale": "x"},
    "causal_is_a_number": {"is_causal": 1},
    "gqa_is_none": {"enable_gqa": None},
}


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("name", SERVED)
def test_is_served(short_path, name, dtype):
    given = plain(**SERVED[name])
    for key, x in given.items():
        if isinstance(x, torch.Tensor) and x.is_floating_point():
            given[key] = x.to(dtype)
    out = WAYS[short_path](*given.values())
    assert out.shape == given["query"].shape and out.dtype == dtype


@pytest.mark.parametrize("name", LEFT)
def test_is_left_to_the_operator(short_path, name):
    try:
        out = WAYS[short_path](*plain(**LEFT[name]).values())
    except TypeError as error:  # the library's own word on a number
        assert name == "scale_is_text" and "scale: expected a number" in str(error)
    else:
        assert out is None


def test_modes_are_left_to_the_operator(short_path):
    from torch._subclasses import FakeTensorMode

    calls = []

    def ask(*x):
        calls.append(WAYS[short_path](x[0], x[0], x[0], None, False, None, False))
        return x[0]

    with FakeTensorMode():
        ask(torch.randn(2, 4, 7, 8))
    torch.vmap(ask)(torch.randn(3, 2, 4, 7, 8))
    torch.func.grad(lambda x: ask(x).sum())(torch.randn(2, 4, 7, 8))
    assert calls == [None] * 3


@pytest.mark.parametrize("replaced", [False, True])
def test_autocast_takes_the_short_path(short_path, replaced, monkeypatch):
    monkeypatch.setattr(_operator, "attention", None)
    q, k, v = (torch.randn(2, 4, 7, 8, requires_grad=True) for _ in range(3))
    mask = torch.randn(7, 7)
    with torch.autocast("cpu", torch.bfloat16), keel.torch.replace() if replaced else contextlib.nullcontext():
        function = F.scaled_dot_product_attention if replaced else keel.torch.scaled_dot_product_attention
        out = function(q, k, v, mask)
    assert out.dtype == torch.bfloat16
    low = (x.detach().bfloat16() for x in (q, k, v, mask))
    assert torch.equal(out, keel.torch.scaled_dot_product_attention(*low))
    assert all(x.dtype == torch.float32 for x in torch.autograd.grad(out.sum(), (q, k, v)))


def test_autocast_casts_parameters_too(short_path):
    q, k, v = (torch.randn(2, 4, 7, 8) for _ in range(3))
    learned = torch.nn.Parameter(q.clone())
    with torch.autocast("cpu", torch.bfloat16):
        out = keel.torch.scaled_dot_product_attention(learned, k, v)
        low = keel.torch.scaled_dot_product_attention(q, k, v)
    assert out.dtype == torch.bfloat16 and torch.equal(out, low)


def test_autocast_leaves_float64_alone(short_path):
    q = torch.randn(2, 4, 7, 8, dtype=torch.float64)
    with torch.autocast("cpu", torch.bfloat16):
        assert keel.torch.scaled_dot_product_attention(q, q, q).dtype == torch.float64


# The compiled one alone


def _compiled(q, k, v, is_causal=False):
    return _short.compiled.sdpa(q, k, v, None, is_causal, None, False)


def test_was_compiled_for_this_torch():
    assert _short.compiled is not None and _short.sdpa is _short.compiled.sdpa


def test_is_not_used_with_another_torch(monkeypatch):
    monkeypatch.setattr(torch, "__version__", "2.12.1+cpu")
    compiled, why = _short._compiled()
    assert compiled is None and why == f"it was built for torch {_short.compiled.torch}, and this is 2.12.1"


def test_the_profiler_names_it():
    q, k, v = leaves()
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        _compiled(q, k, v).sum().backward()
    names = {event.key for event in profile.key_averages()}
    assert "keel::scaled_dot_product_attention" in names
    assert any("KeelAttentionBackward" in name for name in names)
