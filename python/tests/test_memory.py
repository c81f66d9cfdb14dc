"""Memory as the buffer protocol and DLPack may describe it: every optional field left out, every odd value refused."""

import ctypes
import re

import keel
import keel.torch
import numpy as np
import pytest
import torch

X = np.random.default_rng(0).standard_normal((2, 3, 4, 8), dtype=np.float32)


class Device(ctypes.Structure):
    _fields_ = [("type", ctypes.c_int32), ("index", ctypes.c_int32)]


class DataType(ctypes.Structure):
    _fields_ = [("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16)]


class Tensor(ctypes.Structure):
    _fields_ = [
        ("data", ctypes.c_void_p),
        ("device", Device),
        ("ndim", ctypes.c_int32),
        ("dtype", DataType),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    ]


class Managed(ctypes.Structure):
    _fields_ = [
        ("major", ctypes.c_uint32),
        ("minor", ctypes.c_uint32),
        ("context", ctypes.c_void_p),
        ("deleter", ctypes.c_void_p),
        ("flags", ctypes.c_uint64),
        ("tensor", Tensor),
    ]


_new_capsule = ctypes.pythonapi.PyCapsule_New
_new_capsule.restype = ctypes.py_object
_new_capsule.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]


class Described:
    """The memory of an array, described by DLPack as a test wants."""

    def __init__(self, array, *, strides=None, device=(1, 0), major=1, flags=0, **fields):
        self.array, self.device = array, device
        self.shape = (ctypes.c_int64 * array.ndim)(*array.shape)
        self.managed = Managed(major=major, minor=0, flags=flags)
        self.managed.tensor = Tensor(
            data=array.ctypes.data,
            device=Device(1, 0),
            ndim=array.ndim,
            dtype=DataType(2, 32, 1),
            shape=self.shape,
            strides=None if strides is None else (ctypes.c_int64 * array.ndim)(*strides),
            byte_offset=0,
        )
        for name, value in fields.items():
            setattr(self.managed.tensor, name, value)

    def __dlpack_device__(self):
        return self.device

    def __dlpack__(self, **_):
        return _new_capsule(ctypes.addressof(self.managed), b"dltensor_versioned", None)


def test_a_buffer_without_strides_is_in_c_order():
    """As those of ctypes are."""
    memory = (ctypes.c_float * 8 * 4 * 3 * 2).from_buffer_copy(X.tobytes())
    assert np.array_equal(keel.attention(memory, X, X), keel.attention(X, X, X))
    flat = (ctypes.c_float * 8)()
    with pytest.raises(ValueError, match=r"\[attention\] q: expected 2 to 4 dimensions, got 1"):
        keel.attention(flat, X, X)


def test_a_buffer_without_dimensions_is_one_number():
    with pytest.raises(ValueError, match=r"\[attention\] q: expected 2 to 4 dimensions, got 0"):
        keel.attention(ctypes.c_float(1), X, X)
    assert np.array_equal(keel.attention(X, X, X, scale=ctypes.c_float(0.5)), keel.attention(X, X, X, scale=0.5))


@pytest.mark.parametrize("kind", [ctypes.c_int32, ctypes.c_longdouble, ctypes.c_char_p, ctypes.c_uint8])
def test_a_buffer_of_another_format_is_refused(kind):
    with pytest.raises(TypeError, match=r"\[attention\] q: expected dtype f64, f32, f16, bf16, bool or i64, got "):
        keel.attention((kind * 8 * 4)(), X, X)


def test_a_buffer_of_pointers_to_rows_is_refused():
    buffers = pytest.importorskip("_testbuffer")
    rows = buffers.ndarray([1.0] * 8, shape=[2, 4], format="f", flags=buffers.ND_PIL)
    with pytest.raises(TypeError, match=r"\[attention\] q: expected a strided buffer, got one"):
        keel.attention(rows, X, X)


def test_a_buffer_that_is_refused_is_given_back():
    memory = bytearray(32)
    with pytest.raises(TypeError, match="q: expected dtype"):
        keel.attention(memory, X, X)
    memory.append(0)  # BufferError while somebody still holds it


def test_dlpack_without_strides_is_in_c_order():
    assert np.array_equal(keel.attention(Described(X), X, X), keel.attention(X, X, X))


def test_dlpack_data_begin_after_their_byte_offset():
    longer = np.concatenate([np.full(5, np.nan, np.float32), X.ravel()])
    shifted = Described(X, data=longer.ctypes.data, byte_offset=20)
    assert np.array_equal(keel.attention(shifted, X, X), keel.attention(X, X, X))


def test_dlpack_without_dimensions_needs_no_shape():
    scale = Described(np.array(0.5, np.float32), shape=None)
    assert np.array_equal(keel.attention(X, X, X, scale=scale), keel.attention(X, X, X, scale=0.5))


def test_no_elements_need_no_memory():
    for empty in (Described(X[:, :, :0], data=None), np.empty((2, 3, 0, 8), np.float32), torch.empty(2, 3, 0, 8)):
        assert keel.attention(empty, X, X).shape == (2, 3, 0, 8)
        assert not keel.attention(X, empty, empty).any()


@pytest.mark.parametrize("empty", [np.empty(0, np.float32), torch.empty(0), Described(X[0, 0, 0, :0], data=None)])
def test_an_empty_array_is_not_one_left_out(empty):
    for name, shape in {"alibi": "(H_q) = (3) or (B, H_q) = (2, 3)", "sinks": "(H_q) = (3)"}.items():
        with pytest.raises(ValueError, match=re.escape(f"{name}: expected shape {shape}, got (0)")):
            keel.attention(X, X, X, **{name: empty})


def test_an_empty_mask_is_not_one_left_out(short_path):
    q = torch.ones(1, 2, 4, 8)
    with pytest.raises(ValueError, match="attn_mask: expected a shape that broadcasts to"):
        keel.torch.scaled_dot_product_attention(q, q, q, torch.empty((0, 0, 0, 0), dtype=torch.bool))


@pytest.mark.parametrize(
    "fields, kind, text",
    [
        (dict(shape=None), ValueError, "expected a shape of 4 dimensions, got none"),
        (dict(data=None), ValueError, "expected a pointer to data of shape (2, 3, 4, 8), got null"),
        (dict(ndim=-1), ValueError, "expected 0 to 8 dimensions, got -1"),
        (dict(ndim=9), ValueError, "expected 0 to 8 dimensions, got 9"),
        (dict(dtype=DataType(2, 32, 4)), TypeError, "expected dtype f64, f32, f16, bf16, bool or i64, got float32x4"),
        (dict(dtype=DataType(2, 32, 0)), TypeError, "expected dtype f64, f32, f16, bf16, bool or i64, got float32x0"),
        (dict(dtype=DataType(2, 8, 1)), TypeError, "expected dtype f64, f32, f16, bf16, bool or i64, got float8"),
        (dict(dtype=DataType(99, 8, 1)), TypeError, "got dtype of code 99 and 8"),
        (dict(major=2), TypeError, "expected DLPack version 1, got 2"),
        (dict(strides=(-(2**62), 32, 8, 1)), ValueError, "expected elements within 2^60 bytes"),
        (dict(byte_offset=2), ValueError, "expected data aligned to the 4 bytes of f32"),
        (dict(device=(2, 1)), TypeError, "expected memory of cuda:1 as announced, got that of the CPU"),
        (dict(device=(10, 1)), TypeError, "expected memory of the CPU or of a CUDA device, got rocm:1"),
        (dict(device=(17, 0)), TypeError, "or of a CUDA device, got DLPack device type 17"),
        (dict(device=1), TypeError, "expected a DLPack device (type, index), got 1"),
        (dict(device=(1,)), TypeError, "expected a DLPack device (type, index), got (1,)"),
        (dict(device=("cpu", 0)), TypeError, "expected a DLPack device (type, index), got ('cpu', 0)"),
    ],
)
def test_a_dlpack_description_that_cannot_be_is_refused(fields, kind, text):
    with pytest.raises(kind) as error:
        keel.attention(Described(X, **fields), X, X)
    assert str(error.value).startswith("[attention] q: ") and text in str(error.value)


def test_dlpack_memory_of_another_device_than_announced_is_refused():
    elsewhere = Described(X)
    elsewhere.managed.tensor.device = Device(2, 3)
    with pytest.raises(TypeError, match="q: expected memory of the CPU as announced, got that of cuda:3"):
        keel.attention(elsewhere, X, X)


@pytest.mark.parametrize(
    "flags, text",
    [(1, "expected a writable array, got a read-only one"), (2, "got one that only hands out copies")],
)
def test_dlpack_memory_that_is_not_to_be_written_is_read_alone(flags, text):
    array = Described(X, flags=flags)
    assert np.array_equal(keel.attention(array, X, X), keel.attention(X, X, X))
    with pytest.raises(ValueError, match=text):
        keel.attention(X, X, X, out=Described(np.empty_like(X), flags=flags))
    out = np.empty_like(X)
    keel.attention(X, X, X, out=Described(out))
    assert np.array_equal(out, keel.attention(X, X, X))
