"""Keel on CUDA tensors: the results of the CPU, on torch's stream, from torch's memory, captured and compiled."""

import copy
import json
import os

import keel
import keel.torch
import numpy as np
import pytest
import torch
import torch.nn.functional as F
from keel.torch import _sdpa, _short
from torch import nn
from torch.nn.attention import SDPBackend, sdpa_kernel

pytestmark = pytest.mark.skipif(
    not torch.cuda.is_available() or bool(keel._core.cuda_refusal(0)), reason="needs a GPU and libkeel_cuda"
)

sdpa = keel.torch.scaled_dot_product_attention
WAYS = {"python": _short.sdpa_in_python} | ({"compiled": _short.compiled.sdpa} if _short.compiled else {})
DTYPES = [torch.float64, torch.float32, torch.float16, torch.bfloat16]
TOLERANCE = {torch.float64: 1e-10, torch.float32: 1e-4, torch.float16: 1e-2, torch.bfloat16: 6e-2}
B, H, N, M, D = 2, 4, 70, 90, 64


@pytest.fixture(params=WAYS)
def way(request, monkeypatch):
    monkeypatch.setattr(_sdpa, "short", WAYS[request.param])
    return request.param


def random(*shape, dtype=torch.float32, seed=0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).to(dtype)


def tensors(dtype=torch.float32, heads=H, n=N, m=M, d=D):
    return random(B, H, n, d, dtype=dtype), *(random(B, heads, m, d, dtype=dtype, seed=s) for s in (1, 2))


def there(x):
    return x.cuda() if isinstance(x, torch.Tensor) else x


def close(found, expected, dtype):
    """Within the tolerance of a dtype, relative to the largest expected value."""
    found, expected = (torch.as_tensor(x).double().cpu() for x in (found, expected))
    assert found.shape == expected.shape
    finite = expected.isfinite()
    assert torch.equal(found[~finite], expected[~finite])
    scale = max(1.0, expected[finite].abs().max().item()) if finite.any() else 1.0
    apart = (found - expected)[finite].abs().max().item() if finite.any() else 0.0
    assert apart <= TOLERANCE[dtype] * scale, apart


def options(dtype):
    """Each option alone, and some together."""
    numbers = torch.float64 if dtype == torch.float64 else torch.float32
    mask = random(B, 1, N, M) < 0.8
    bias = random(1, H, N, M, dtype=dtype, seed=4)
    packed = {"q_offsets": torch.tensor([0, 30, 30, N]), "k_offsets": torch.tensor([0, 20, 50, M])}
    return {
        "plain": {},
        "causal": {"causal": "top_left"},
        "bottom right": {"causal": "bottom_right"},
        "window": {"window": (20, 5)},
        "mask": {"mask": mask},
        "bias": {"bias": bias},
        "alibi": {"alibi": torch.linspace(0.1, 0.8, H, dtype=numbers)},
        "softcap": {"softcap": 5.0},
        "sinks": {"sinks": torch.linspace(-1, 1, H, dtype=numbers)},
        "scale": {"scale": 0.3},
        "scale per head": {"scale": torch.linspace(0.05, 0.3, H, dtype=numbers).view(1, H, 1)},
        "dropout": {"dropout": 0.3},
        "lengths": {"q_lengths": torch.tensor([N, 33]), "k_lengths": torch.tensor([40, M])},
        "packed": packed,
        "many": {"mask": mask, "bias": bias, "causal": True, "softcap": 4.0, "sinks": torch.zeros(H, dtype=numbers)},
    }


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("name", options(torch.float32))
@pytest.mark.parametrize("lists", ["lists there", "lists here"])
def test_every_option_gives_what_the_cpu_gives(name, dtype, lists):
    given = options(dtype)[name]
    is_list = [key for key in given if key.endswith(("lengths", "offsets"))]
    if lists == "lists here" and not is_list:
        pytest.skip("no lists")
    q, k, v = tensors(dtype, heads=2)
    if name == "packed":
        q, k, v = (x[:1] for x in (q, k, v))
    results = []
    for move in (lambda x: x, there):
        torch.manual_seed(5)
        moved = {key: x if key in is_list and lists == "lists here" else move(x) for key, x in given.items()}
        inputs = [move(x).requires_grad_() for x in (q, k, v)]
        more = [moved[x] for x in ("bias", "sinks", "scale") if isinstance(moved.get(x), torch.Tensor)]
        inputs += [x.requires_grad_() for x in more]
        out, lse, stats = keel.torch.attention(*inputs[:3], **moved, return_lse=True, return_stats=True)
        seen = torch.isfinite(lse)
        loss = (out.double() * move(random(*out.shape, seed=7))).sum() + torch.where(seen, lse, 0).double().sum()
        gradients = torch.autograd.grad(loss, inputs)
        results.append([out.detach(), lse.detach(), *stats, *gradients])
    for ours, theirs in zip(*reversed(results)):
        assert ours.is_cuda
        close(ours, theirs, dtype)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("d", [64, 80, 128, 33])
def test_against_torchs_own_in_double(way, dtype, causal, d):
    q, k, v = (there(x).requires_grad_() for x in tensors(dtype, n=128, m=128, d=d))
    dout = there(random(B, H, 128, d, dtype=dtype, seed=9))
    wide = [x.detach().double().requires_grad_() for x in (q, k, v)]
    with sdpa_kernel(SDPBackend.MATH):
        expected = F.scaled_dot_product_attention(*wide, is_causal=causal)
    out = sdpa(q, k, v, is_causal=causal)
    assert out.grad_fn is not None and out.dtype == dtype and out.device == q.device
    close(out.detach(), expected.detach(), dtype)
    for ours, theirs in zip(
        torch.autograd.grad(out, (q, k, v), dout), torch.autograd.grad(expected, wide, dout.double())
    ):
        close(ours, theirs, dtype)


def test_the_short_path_serves_plain_cuda_tensors(way):
    q, k, v = map(there, tensors(torch.bfloat16))
    assert torch.equal(_sdpa.short(q, k, v, None, False, None, False), sdpa(q, k, v))
    bias = there(random(1, H, N, M, dtype=torch.bfloat16))
    assert _sdpa.short(q, k, v, bias, False, None, False) is not None
    assert _sdpa.short(q, k, v.cpu(), None, False, None, False) is None


def test_arrays_without_autograd():
    q, k, v = tensors()
    here = keel.attention(q, k, v, return_lse=True, return_stats=True, return_weights=True, return_key_sums=True)
    arrays = [there(x) for x in (q, k, v)]
    found = keel.attention(*arrays, return_lse=True, return_stats=True, return_weights=True, return_key_sums=True)
    for name in ("out", "lse", "weights", "key_sums"):
        assert getattr(found, name).is_cuda
        close(getattr(found, name), getattr(here, name), torch.float32)
    for ours, theirs in zip(found.stats[:-1], here.stats[:-1]):
        close(ours, theirs, torch.float32)
    for ours, theirs in zip(found.stats.heads, here.stats.heads):
        assert ours.is_cuda
        close(ours, theirs, torch.float32)
    out = torch.empty_like(arrays[0])
    assert keel.attention(*arrays, out=out) is out
    close(out, here.out, torch.float32)

    dout = random(B, H, N, D, seed=3)
    theirs = keel.attention_backward(q, k, v, here.out, here.lse, dout)
    ours = keel.attention_backward(*arrays, found.out, found.lse, there(dout))
    for a, b in zip(ours[:3], theirs[:3]):
        close(a, b, torch.float32)


def test_merge():
    q, k, v = map(there, tensors())
    parts = [keel.attention(q, k[:, :, at], v[:, :, at], return_lse=True) for at in (slice(40), slice(40, M))]
    whole = keel.attention(q, k, v, return_lse=True)
    merged = keel.merge(parts)
    assert merged.out.is_cuda
    close(merged.out, whole.out, torch.float32)
    close(merged.lse, whole.lse, torch.float32)


def test_explain_names_the_backend_and_its_kernel():
    q = there(random(1, 2, 256, 64, dtype=torch.bfloat16))
    text = keel.explain(q, q, q)
    assert "cuda" in text, text
    assert "cuda" in keel.explain(q, q, q, want=("dq",))


def test_tensors_on_two_devices_are_refused_by_name():
    q, k, v = tensors()
    with pytest.raises(ValueError, match=r"k: expected .* on cuda:0"):
        keel.attention(there(q), k, there(v))
    with pytest.raises(ValueError, match=r"\[scaled_dot_product_attention\] value: expected a tensor on cuda:0"):
        sdpa(there(q), there(k), v)
    with pytest.raises(ValueError, match=r"bias: expected .* on cuda:0"):
        keel.torch.attention(there(q), there(k), there(v), bias=random(N, M))
    with pytest.raises(ValueError, match=r"sinks: expected .* on cpu"):
        keel.torch.attention(q, k, v, sinks=torch.zeros(H).cuda())


def slow():
    """Some 50 ms of work that ends by changing nothing."""
    torch.cuda._sleep(100_000_000)


def test_work_goes_to_the_current_stream_and_is_not_waited_for(way):
    q, k, v = (there(x).requires_grad_() for x in tensors(torch.bfloat16, m=N))
    expected = sdpa(q, k, v)
    gradients = torch.autograd.grad(expected.sum(), (q, k, v))
    torch.cuda.synchronize()
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        slow()
        late = [x.detach().mul(1.0).requires_grad_() for x in (q, k, v)]  # there once the stream has come to it
        begun = torch.cuda.Event()
        begun.record()
        out = sdpa(*late)
        found = torch.autograd.grad(out.sum(), late)
        stats = keel.torch.attention(*late, return_stats=True).stats
        assert not begun.query(), "a call waited for the stream"
    assert torch.cuda.default_stream().query()
    side.synchronize()
    assert torch.equal(out, expected)
    for ours, theirs in zip(found, gradients):
        assert torch.equal(ours, theirs)
    assert stats.entropy.isfinite().all()


def test_a_stream_by_name():
    q, k, v = map(there, tensors())
    expected = keel.attention(q, k, v)
    torch.cuda.synchronize()
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        slow()
        late = q.mul(1.0)
    for stream in (side, side.cuda_stream):
        out = keel.attention(late, k, v, stream=stream)
    side.synchronize()
    assert torch.equal(out, expected)


def test_the_result_is_from_torchs_memory():
    q, k, v = (there(random(1, 8, 2048, 64, dtype=torch.bfloat16)) for _ in range(3))
    before = torch.cuda.memory_allocated()
    out = sdpa(q, k, v)
    assert torch.cuda.memory_allocated() - before == out.numel() * 2


def test_graphs_capture_the_forward_and_the_backward(way):
    q, k, v = (there(x).requires_grad_() for x in tensors(torch.bfloat16, n=128, m=128))
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            torch.autograd.grad(sdpa(q, k, v, is_causal=True).sum(), (q, k, v))
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out = sdpa(q, k, v, is_causal=True)
        gradients = torch.autograd.grad(out.sum(), (q, k, v))
        lengths = keel.torch.attention(q, k, v, k_lengths=[100, 128], return_stats=True)
    with torch.no_grad():
        for x, seed in ((q, 11), (k, 12), (v, 13)):
            x.copy_(random(*x.shape, dtype=x.dtype, seed=seed))
    graph.replay()
    torch.cuda.synchronize()
    again = sdpa(q, k, v, is_causal=True)
    assert torch.equal(out, again)
    for ours, theirs in zip(gradients, torch.autograd.grad(again.sum(), (q, k, v))):
        assert torch.equal(ours, theirs)
    assert torch.equal(lengths.out, keel.torch.attention(q, k, v, k_lengths=[100, 128]))


@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
def test_compiled_without_a_graph_break(backend):
    if backend == "inductor":
        pytest.importorskip("triton")
    q, k, v = (there(x).requires_grad_() for x in tensors(torch.bfloat16, n=128, m=128))
    sinks = torch.zeros(H, device="cuda", requires_grad=True)

    def function(q, k, v, sinks):
        plain = sdpa(q * 2, k, v, is_causal=True)
        return plain + keel.torch.attention(q, k, v, sinks=sinks, window=(50, 0), causal=True) * 3

    compiled = torch.compile(function, fullgraph=True, backend=backend)
    expected, found = function(q, k, v, sinks), compiled(q, k, v, sinks)
    close(found.detach(), expected.detach(), torch.bfloat16)
    inputs = (q, k, v, sinks)
    for ours, theirs in zip(torch.autograd.grad(found.sum(), inputs), torch.autograd.grad(expected.sum(), inputs)):
        close(ours, theirs, torch.bfloat16)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_autocast_is_torchs(way, dtype):
    q, k, v = (there(x).requires_grad_() for x in tensors())
    with torch.autocast("cuda", dtype):
        ours, theirs = sdpa(q, k, v), F.scaled_dot_product_attention(q, k, v)
        every = keel.torch.attention(q, k, v)
    assert ours.dtype == theirs.dtype == every.dtype == dtype
    assert all(x.dtype == torch.float32 for x in torch.autograd.grad(ours.sum(), (q, k, v)))
    close(ours.detach(), theirs.detach(), torch.bfloat16)
    with torch.autocast("cpu", dtype):
        assert sdpa(q, k, v).dtype == torch.float32


def test_dropout_is_that_of_the_cpu():
    q, k, v = tensors()
    torch.manual_seed(3)
    here = sdpa(q, k, v, dropout_p=0.4)
    torch.manual_seed(3)
    close(sdpa(*map(there, (q, k, v)), dropout_p=0.4), here, torch.float32)


def test_replace_serves_cuda_models():
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(64, 4, 128, dropout=0.0, batch_first=True).cuda()
    x = torch.randn(2, 33, 64, device="cuda")
    expected = layer(x)
    before = keel.torch.last_fallback()
    with keel.torch.replace(strict=True):
        found = layer(x)
    assert keel.torch.last_fallback() == before
    close(found.detach(), expected.detach(), torch.float32)


def test_a_monitor_reports_what_it_reports_on_the_cpu():
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(64, 4, 128, dropout=0.0, batch_first=True)
    model = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
    x = torch.randn(2, 33, 64)
    reports = []
    for device in ("cpu", "cuda"):
        moved = copy.deepcopy(model).to(device)
        with keel.torch.Monitor(moved) as monitor:
            moved(x.to(device)).sum().backward()
            reports.append(monitor.step())
    assert len(reports[0]) == len(reports[1]) == 8
    for ours, theirs in zip(*reports):
        for key, value in ours.items():
            assert theirs[key] == (value if isinstance(value, (str, int)) else pytest.approx(value, rel=1e-3, abs=1e-3))


def test_a_monitor_writes_the_records_of_a_step_in_the_next(tmp_path):
    model = nn.TransformerEncoderLayer(64, 4, 128, dropout=0.0, batch_first=True).cuda()
    log, kept = tmp_path / "log.jsonl", []
    with keel.torch.Monitor(model, jsonl=log) as monitor:
        for step in range(3):
            model(torch.randn(2, 33, 64, device="cuda"))
            kept.append(monitor.step())
            assert (len(log.read_text().splitlines()) if log.exists() else 0) == 4 * step
    lines = log.read_text().splitlines()
    assert [json.loads(line) for line in lines] == [record for records in kept for record in records]


def test_checkpointing_gives_the_same_bits():
    from torch.utils.checkpoint import checkpoint

    q, k, v = (there(x).requires_grad_() for x in tensors(torch.bfloat16))

    def function(q, k, v):
        return sdpa(q, k, v, dropout_p=0.1) * 2

    results = []
    for run in (function, lambda *x: checkpoint(function, *x, use_reentrant=False)):
        torch.manual_seed(1)
        results.append(torch.autograd.grad(run(q, k, v).sum(), (q, k, v)))
    assert all(torch.equal(a, b) for a, b in zip(*results))


def test_distributed_data_parallel():
    import torch.distributed as dist

    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29531"}
    torch.manual_seed(0)
    model = keel.torch.MultiHeadAttention(64, 4).cuda()
    x = torch.randn(2, 40, 64, device="cuda")
    model(x, is_causal=True).square().sum().backward()
    expected = [p.grad.clone() for p in model.parameters()]
    model.zero_grad()
    dist.init_process_group("nccl", rank=0, world_size=1)
    try:
        wrapped = nn.parallel.DistributedDataParallel(model, device_ids=[0])
        wrapped(x, is_causal=True).square().sum().backward()
        for p, before in zip(model.parameters(), expected):
            close(p.grad, before, torch.float32)
    finally:
        dist.destroy_process_group()


def test_transforms_of_torch_func():
    q, k, v = map(there, tensors(torch.float64))
    together = torch.func.vmap(lambda q: keel.torch.attention(q, k, v))(torch.stack([q, 2 * q]))
    close(together[1], keel.torch.attention(2 * q, k, v), torch.float64)
    gradient = torch.func.grad(lambda q: keel.torch.attention(q, k, v).sum())(q)
    expected = torch.autograd.grad(keel.torch.attention(q.requires_grad_(), k, v).sum(), q)[0]
    close(gradient, expected, torch.float64)


def test_models_of_transformers():
    transformers = pytest.importorskip("transformers")
    import keel.transformers

    keel.transformers.register()
    config = transformers.LlamaConfig(
        vocab_size=64,
        hidden_size=64,
        intermediate_size=96,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
    )
    torch.manual_seed(0)
    model = transformers.LlamaForCausalLM(config).cuda().eval()
    tokens = torch.arange(2 * 20, device="cuda").view(2, 20) % 64
    with torch.no_grad():
        expected = model(tokens).logits
        model.set_attn_implementation("keel")
        close(model(tokens).logits, expected, torch.float32)
        assert model.generate(tokens, max_new_tokens=5, do_sample=False).shape == (2, 25)


def test_the_same_bits_every_time():
    q, k, v = (there(x).requires_grad_() for x in tensors(torch.bfloat16, heads=2, n=512, m=512))
    first = None
    for _ in range(20):
        out = sdpa(q, k, v, is_causal=True, enable_gqa=True)
        found = (out, *torch.autograd.grad(out.sum(), (q, k, v)))
        first = found if first is None else first
        assert all(torch.equal(a, b) for a, b in zip(found, first))


def test_numpy_beside_cuda_is_refused_by_name():
    q = there(random(1, 1, 4, 8))
    with pytest.raises(ValueError, match=r"v: expected an array on cuda:0 like the first tensor, got one on cpu"):
        keel.attention(q, q, np.zeros((1, 1, 4, 8), np.float32))
