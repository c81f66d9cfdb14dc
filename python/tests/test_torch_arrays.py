"""torch tensors, and arrays of any library that supports DLPack, in keel.attention."""

import keel
import numpy as np
import pytest
import torch
from keel.torch import scaled_dot_product_attention as sdpa


def qkv(*shape, dtype=torch.float32, seed=0, grad=False):
    generator = torch.Generator().manual_seed(seed)
    return [torch.randn(shape or (2, 4, 7, 8), generator=generator, dtype=dtype).requires_grad_(grad) for _ in range(3)]


@pytest.mark.usefixtures("short_path")
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


WRITTEN = {
    "attention": ("out", lambda q, x: keel.attention(q, q, q, out=x)),
    "merge": ("out", lambda q, x: keel.merge([keel.attention(q, q, q, return_lse=True)], out=x)),
    "attention_backward": (
        "dq",
        lambda q, x: keel.attention_backward(
            q, q, q, *keel.attention(q, q, q, return_lse=True)[:2], q, into=keel.Gradients(dq=x)
        ),
    ),
}


@pytest.mark.parametrize("operation", WRITTEN)
def test_what_cannot_be_written_in_place_is_refused(operation):
    q, *_ = qkv()
    name, write = WRITTEN[operation]
    lazily_negated = torch.zeros(q.shape, dtype=torch.complex64).conj().imag
    for x, text in (
        (lazily_negated, "a tensor whose memory holds its values, got a lazy negation"),
        (torch.zeros_like(q, requires_grad=True), "a tensor that needs no gradient, got one with requires_grad"),
    ):
        with pytest.raises(ValueError, match=rf"\[{operation}\] {name}: expected {text}"):
            write(q, x)
        assert not x.any()


@pytest.mark.parametrize("operation", WRITTEN)
def test_autograd_notices_what_is_written(operation):
    q, *_ = qkv()
    saved, factor = torch.zeros_like(q), torch.ones_like(q, requires_grad=True)
    product = (saved * factor).sum()
    WRITTEN[operation][1](q, saved)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        product.backward()


def test_autograd_notices_every_array_that_merge_writes():
    q, *_ = qkv()
    total = keel.attention(q, q, q, return_lse=True, return_stats=True)
    written = (total.out, total.lse, *total.stats[:-1])
    before = [x._version for x in written]
    keel.merge([total], return_stats=True, out=total)
    assert [x._version for x in written] == [version + 1 for version in before]


class OnlyDlpack:
    """An array of some library of which nothing is known but that it supports DLPack."""

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
    with pytest.raises(ValueError, match="out: expected a writable array, got a read-only one"):
        keel.attention(q, k, v, out=ReadOnly(np.zeros_like(k)))
