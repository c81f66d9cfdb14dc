"""The short ways of scaled_dot_product_attention, compiled and in Python, as parts of torch's graph."""

import gc
import os
import subprocess
import sys

import pytest
import torch
import torch.nn.functional as F
from keel.torch import _sdpa, _short
from keel.torch import scaled_dot_product_attention as sdpa
from torch.utils.checkpoint import checkpoint

pytestmark = pytest.mark.usefixtures("short_way")


def leaves(*shape, dtype=torch.float32):
    generator = torch.Generator().manual_seed(0)
    return [
        torch.randn(shape or (2, 4, 7, 8), generator=generator, dtype=dtype).requires_grad_() for _ in range(3)
    ]


@pytest.mark.parametrize("shape", [(7, 8), (4, 7, 8), (2, 4, 7, 8), (0, 4, 7, 8), (2, 4, 0, 8)])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.float16, torch.bfloat16])
def test_serves_two_to_four_dimensions(shape, dtype):
    q, k, v = leaves(*shape, dtype=dtype)
    out = sdpa(q, k, v)
    assert out.shape == q.shape and out.dtype == dtype
    expected = F.scaled_dot_product_attention(q.double(), k.double(), v.double())
    assert not out.numel() or (out - expected).abs().max() < 2 * torch.finfo(dtype).eps * max(1, expected.abs().max())


@pytest.mark.parametrize("needed", range(1, 8))
def test_gives_the_gradients_that_are_needed(needed):
    tensors = [x.requires_grad_(bool(needed >> i & 1)) for i, x in enumerate(leaves())]
    wanted = [x for x in tensors if x.requires_grad]
    ours, torchs = (torch.autograd.grad(f(*tensors).square().sum(), wanted) for f in (sdpa, F.scaled_dot_product_attention))
    for a, b in zip(ours, torchs):
        torch.testing.assert_close(a, b)
    (first,) = torch.autograd.grad(sdpa(*tensors).square().sum(), wanted[:1])  # of those that could be had
    assert torch.equal(first, ours[0])


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


def test_a_graph_is_freed_after_its_backward_pass_unless_kept():
    q, k, v = leaves()
    out = sdpa(q, k, v)
    first = torch.autograd.grad(out.sum(), q, retain_graph=True)
    assert torch.equal(*first, *torch.autograd.grad(out.sum(), q))
    with pytest.raises(RuntimeError, match="second time"):
        torch.autograd.grad(out.sum(), q)


@pytest.mark.parametrize("changed", ["query", "output"])
def test_changing_what_was_saved_is_noticed(changed):
    q, k, v = (x * 1 for x in leaves())
    out = sdpa(q, k, v)
    (q if changed == "query" else out).add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        out.sum().backward()


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


def test_checkpoints_compute_again():
    q, k, v = leaves()
    expected = torch.autograd.grad(sdpa(q * 2, k, v).sum(), (q, k, v))
    out = checkpoint(lambda *x: sdpa(x[0] * 2, *x[1:]), q, k, v, use_reentrant=False)
    for a, b in zip(torch.autograd.grad(out.sum(), (q, k, v)), expected):
        assert torch.equal(a, b)


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


def test_anomalies_are_traced_to_the_call():
    q, k, v = leaves()
    with pytest.warns(UserWarning, match="Traceback of forward call"), torch.autograd.set_detect_anomaly(True):
        with pytest.raises(RuntimeError, match="nan values"):
            (sdpa(q, k, v) * float("nan")).sum().backward()


def test_errors_of_hooks_arrive_as_they_are():
    def refuse(x):
        raise KeyError("no room")

    q, k, v = leaves()
    with torch.autograd.graph.saved_tensors_hooks(refuse, lambda x: x), pytest.raises(KeyError, match="no room"):
        sdpa(q, k, v)


def test_a_mode_below_autograd_records_no_graph():
    q, k, v = leaves()
    with torch._C._AutoDispatchBelowAutograd():
        out = _short.sdpa(q, k, v, None, False, None, False)
    assert not out.requires_grad


def test_threads_may_differentiate_at_once():
    code = """
import threading, torch
from keel.torch import scaled_dot_product_attention as sdpa
torch.set_num_threads(1)
q, k, v = (torch.randn(2, 4, 33, 16, requires_grad=True) for _ in range(3))
expected = torch.autograd.grad(sdpa(q, k, v).sum(), (q, k, v))
wrong = []
def work():
    for _ in range(50):
        got = torch.autograd.grad(sdpa(q, k, v).sum(), (q, k, v))
        if not all(torch.equal(a, b) for a, b in zip(got, expected)):
            wrong.append(1)
threads = [threading.Thread(target=work) for _ in range(4)]
[t.start() for t in threads]; [t.join() for t in threads]
print(len(wrong))
"""
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "0\n"


# The compiled one alone


def _compiled(q, k, v, is_causal=False):
    return _short.compiled.sdpa(q, k, v, None, is_causal, None, False)


def test_was_compiled_for_this_torch():
    assert _short.compiled is not None and _short.sdpa is _short.compiled.sdpa


def test_is_not_used_with_another_torch(monkeypatch):
    monkeypatch.setattr(torch, "__version__", "2.12.1+cpu")
    assert _short._compiled() is None


def test_the_profiler_names_it():
    q, k, v = leaves()
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        _compiled(q, k, v).sum().backward()
    names = {event.key for event in profile.key_averages()}
    assert "keel::scaled_dot_product_attention" in names
    assert any("KeelAttentionBackward" in name for name in names)


def test_compiled_autograd_differentiates_it():
    torch.compiler.reset()
    q, k, v = leaves()
    expected = torch.autograd.grad(_compiled(q, k, v, is_causal=True).square().sum(), (q, k, v))
    with torch._dynamo.compiled_autograd._enable(torch.compile(backend="eager", fullgraph=True)):
        _compiled(q, k, v, is_causal=True).square().sum().backward()
    for x, y in zip((q, k, v), expected):
        torch.testing.assert_close(x.grad, y)
