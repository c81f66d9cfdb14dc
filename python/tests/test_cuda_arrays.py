"""Calls on CUDA arrays, followed to their end without a GPU: the arrays are the CPU's and say that they are a GPU's,
and libkeel_cuda is one that computes on the CPU (tests/cuda/host_library.cc)."""

import ctypes
import os
import subprocess
import sys
import types

import keel
import keel.torch
import numpy as np
import pytest
import torch
from conftest import GPU_ON_CPU
from test_memory import DataType, Described, Device
from torch._subclasses import FakeTensorMode

pytestmark = pytest.mark.skipif(
    os.environ.get("KEEL_CUDA_LIBRARY") != str(GPU_ON_CPU),
    reason="the tests' libkeel_cuda is not built, or a GPU is here",
)

RNG = np.random.default_rng(0)
Q, K, V, DOUT = RNG.standard_normal((4, 2, 3, 5, 8), dtype=np.float32)
CODES = {"f": 2, "i": 0, "b": 6}


class OnGpu(Described):
    """An array that says that it is on cuda:0, and remembers the streams that it was asked for."""

    def __init__(self, array, index=0):
        strides = [stride // array.itemsize for stride in array.strides]
        super().__init__(array, strides=strides, device=(2, index))
        self.managed.tensor.device = Device(2, index)
        self.managed.tensor.dtype = DataType(CODES[array.dtype.kind], 8 * array.itemsize, 1)
        self.dtype, self.streams = array.dtype, []

    def __dlpack__(self, *, stream=None, **more):
        self.streams.append(stream)
        return super().__dlpack__(**more)

    def __getitem__(self, key):
        return OnGpu(self.array[key])

    def view(self, dtype):
        return OnGpu(self.array.view(dtype))


def last_stream():
    function = ctypes.CDLL(str(GPU_ON_CPU)).keel_cuda_host_stream
    function.restype = ctypes.c_void_p
    return function() or 0


@pytest.fixture
def cupy(monkeypatch):
    """A library that looks like CuPy, and works on stream 80."""
    fake = types.ModuleType("cupy")
    fake.ndarray = OnGpu
    fake.empty = lambda shape, dtype: OnGpu(np.full(shape, np.nan if np.dtype(dtype).kind == "f" else -1, dtype))
    fake.cuda = types.SimpleNamespace(get_current_stream=lambda: types.SimpleNamespace(ptr=80))
    monkeypatch.setitem(sys.modules, "cupy", fake)
    return fake


def close(found, expected):
    assert isinstance(found, OnGpu)
    assert np.allclose(found.array, expected, rtol=1e-5, atol=1e-5)


def test_any_array_is_served_where_there_is_one_to_write_to():
    q, k, v, out = map(OnGpu, (Q, K, V, np.empty_like(Q)))
    assert keel.attention(q, k, v, out=out, causal=True) is out
    close(out, keel.attention(Q, K, V, causal=True))
    assert q.streams[-1] == k.streams[-1] == out.streams[-1] == 1 and last_stream() == 0  # CUDA's default one


def test_without_one_the_error_says_what_to_do():
    arrays = [OnGpu(x) for x in (Q, K, V)]
    expected = r"\[attention\] out: expected a torch tensor or a CuPy array, since Keel can make no others on cuda:0"
    with pytest.raises(TypeError, match=expected + ", where q is, got none"):
        keel.attention(*arrays)
    with pytest.raises(TypeError, match=expected + ", where out is, got OnGpu"):
        keel.attention(*arrays, out=OnGpu(np.empty_like(Q)), return_lse=True)


class Protocol:
    def __cuda_stream__(self):
        return (0, 70)


@pytest.mark.parametrize(
    "stream, number",
    [(48, 48), (types.SimpleNamespace(cuda_stream=50), 50), (types.SimpleNamespace(ptr=60), 60), (Protocol(), 70)],
)
def test_the_stream_may_be_named(stream, number):
    q, k, v, out = map(OnGpu, (Q, K, V, np.empty_like(Q)))
    keel.attention(q, k, v, out=out, stream=stream)
    assert q.streams[-1] == k.streams[-1] == out.streams[-1] == last_stream() == number


def test_a_stream_of_another_kind_is_refused():
    with pytest.raises(TypeError, match=r"\[attention\] stream: expected a CUDA stream or its number, got 'fast'"):
        keel.attention(Q, K, V, stream="fast")


def test_cupy_arrays_give_cupy_arrays_on_its_stream(cupy):
    q, k, v = map(OnGpu, (Q, K, V))
    ours = keel.attention(q, k, v, return_lse=True, return_stats=True, return_weights=True, return_key_sums=True)
    theirs = keel.attention(Q, K, V, return_lse=True, return_stats=True, return_weights=True, return_key_sums=True)
    assert last_stream() == q.streams[-1] == 80
    for name in ("out", "lse", "weights", "key_sums"):
        close(getattr(ours, name), getattr(theirs, name))
    for a, b in zip((*ours.stats[:-1], *ours.stats.heads), (*theirs.stats[:-1], *theirs.stats.heads)):
        close(a, b)

    gradients = keel.attention_backward(q, k, v, ours.out, ours.lse, OnGpu(DOUT), stream=90)
    assert last_stream() == 90
    for a, b in zip(gradients[:3], keel.attention_backward(Q, K, V, theirs.out, theirs.lse, DOUT)[:3]):
        close(a, b)


def test_merge(cupy):
    parts = [
        keel.attention(OnGpu(Q), OnGpu(K[:, :, at]), OnGpu(V[:, :, at]), return_lse=True)
        for at in (slice(2), slice(2, 5))
    ]
    merged = keel.merge(parts)
    assert last_stream() == 80
    close(merged.out, keel.attention(Q, K, V))
    keel.merge(parts, stream=33)
    assert last_stream() == 33


@pytest.mark.parametrize("place", [OnGpu, lambda x: x, list])
def test_lengths_and_offsets_may_be_on_either_side(cupy, place):
    q, k, v = map(OnGpu, (Q, K, V))
    lengths = np.array([3, 5])
    close(keel.attention(q, k, v, k_lengths=place(lengths)), keel.attention(Q, K, V, k_lengths=lengths))
    offsets = np.array([0, 2, 5])
    found = keel.attention(q[:1], k[:1], v[:1], q_offsets=place(offsets), k_offsets=place(offsets))
    close(found, keel.attention(Q[:1], K[:1], V[:1], q_offsets=offsets, k_offsets=offsets))


def test_lengths_on_a_gpu_are_int64(cupy):
    with pytest.raises(TypeError, match=r"k_lengths: expected dtype f64, .* i64, got int32"):
        keel.attention(*map(OnGpu, (Q, K, V)), k_lengths=OnGpu(np.array([3, 5], np.int32)))


@pytest.mark.parametrize("name", ["k", "v", "out", "bias", "sinks"])
def test_arrays_on_two_devices_are_refused_by_name(name):
    arrays = {"q": Q, "k": K, "v": V, "out": np.empty_like(Q), "bias": np.zeros((5, 5), np.float32)}
    arrays["sinks"] = np.zeros(3, np.float32)
    given = {key: x if key == name else OnGpu(x) for key, x in arrays.items()}
    with pytest.raises(ValueError, match=rf"{name}: expected an array on cuda:0 like the first tensor, got one on cpu"):
        keel.attention(**given)
    given = {key: OnGpu(x) if key == name else x for key, x in arrays.items()}
    with pytest.raises(ValueError, match=rf"{name}: expected an array on cpu like the first tensor, got one on cuda:0"):
        keel.attention(**given)


def test_a_gpu_that_is_not_there():
    arrays = [OnGpu(x, index=1) for x in (Q, K, V, np.empty_like(Q))]
    with pytest.raises(NotImplementedError, match=r"\[attention\] .* cuda:1: invalid device ordinal"):
        keel.attention(*arrays[:3], out=arrays[3])
    assert keel._core.cuda_refusal(0) == "" and "invalid device ordinal" in keel._core.cuda_refusal(1)


def test_without_a_backend_the_error_says_what_was_looked_for():
    code = "import keel; print(keel._core.cuda_refusal(0))"
    environment = os.environ | {"KEEL_CUDA_LIBRARY": "/nowhere/libkeel_cuda.so"}
    found = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert "no CUDA backend: /nowhere/libkeel_cuda.so: cannot open" in found.stdout


def test_explain_names_the_backend():
    q = OnGpu(Q)
    assert keel.explain(q, q, q, causal=True).startswith("backend    cuda")
    assert keel.explain(q, q, q, want=("dq", "dk")).startswith("backend    cuda")


@pytest.fixture
def fakes():
    """Fake tensors on a GPU: what torch.compile traces with."""
    with FakeTensorMode():
        yield [torch.empty(2, 4, n, 16, device="cuda", dtype=torch.bfloat16) for n in (6, 7, 7)]


def test_fake_tensors_have_the_device_the_shape_and_the_dtype(fakes):
    q, k, v = fakes
    assert keel.torch.scaled_dot_product_attention(q, k, v, dropout_p=0.1).device == q.device
    lengths = torch.tensor([3, 4])  # on the CPU
    found = keel.torch.attention(
        q, k, v, k_lengths=lengths, sinks=torch.zeros(4, device="cuda"), return_lse=True, return_stats=True
    )
    for x in (found.out, found.lse, *found.stats):
        assert x.device == q.device
    assert found.lse.dtype == torch.float32 and found.stats.visible.dtype == torch.int64
    assert keel.torch.attention(q, k, v, return_weights=True).weights.shape == (2, 4, 6, 7)


@pytest.mark.parametrize("name", ["key", "value", "attn_mask"])
def test_tensors_on_two_devices_are_refused_by_name(fakes, name):
    given = dict(zip(("query", "key", "value"), fakes)) | {"attn_mask": torch.empty(6, 7, device="cuda")}
    given[name] = given[name].to("cpu")
    with pytest.raises(ValueError, match=rf"{name}: expected a tensor on cuda:0 like the first, got one on cpu"):
        keel.torch.scaled_dot_product_attention(**given)


def test_replace_serves_cuda_tensors_and_leaves_two_devices_to_torch(fakes):
    q, k, v = fakes
    with keel.torch.replace(strict=True):
        assert torch.nn.functional.scaled_dot_product_attention(q, k, v).device == q.device
        with pytest.raises(NotImplementedError, match="key is on cpu, and query on cuda:0"):
            torch.nn.functional.scaled_dot_product_attention(q, k.to("cpu"), v)


def test_what_is_plain_on_cuda():
    from keel.torch import _plain

    with FakeTensorMode():
        keys = torch._C._dispatch_keys(torch.empty(0, device="cuda"))
    for key in ("Python", "PythonTLSSnapshot"):
        keys = keys.remove(getattr(torch._C.DispatchKey, key))
    assert keys.raw_repr() == _plain._ON_CUDA
