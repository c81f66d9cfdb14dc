"""Every wrong argument gives a ValueError or TypeError that names it, what was expected and what was given."""

import re

import keel
import ml_dtypes
import numpy as np
import pytest


def x(*shape, dtype=np.float32):
    return np.ones(shape or (1, 2, 4, 8), dtype)


def read_only(array):
    array.flags.writeable = False
    return array


def misaligned(dtype=np.float32):
    memory = np.zeros(1 * 2 * 4 * 8 * np.dtype(dtype).itemsize + 1, np.uint8)
    return memory[1:].view(dtype).reshape(1, 2, 4, 8)


def fractional_strides():
    record = np.zeros((1, 2, 4, 8), np.dtype([("a", np.float32), ("b", np.uint8)], align=False))
    return record["a"]


class Elsewhere:
    """An array of some other device."""

    def __dlpack_device__(self):
        return (10, 1)

    def __dlpack__(self, **_):
        raise AssertionError("must not be asked for")


CASES = [
    ("q_is_a_list", dict(q=[[1.0]]), TypeError, "[attention] q: expected a NumPy array, a torch tensor", "got list"),
    ("k_is_none", dict(k=None), TypeError, "[attention] k: expected a NumPy array, a torch tensor", "got NoneType"),
    ("one_dimension", dict(q=x(8)), ValueError, "q: expected 2 to 4 dimensions, got 1", ""),
    ("five_dimensions", dict(v=x(1, 1, 2, 4, 8)), ValueError, "v: expected 2 to 4 dimensions, got 5", ""),
    ("integers", dict(q=x(dtype=np.int32)), TypeError, "q: expected dtype f64, f32, f16, bf16", "got int32"),
    ("int64", dict(q=x(dtype=np.int64)), TypeError, "q: expected dtype f64, f32, f16 or bf16", "got i64"),
    ("complex", dict(k=x(dtype=np.complex64)), TypeError, "k: expected dtype", "got complex64"),
    ("float8", dict(k=x(dtype=ml_dtypes.float8_e4m3)), TypeError, "k: expected dtype", "got float8_e4m3"),
    ("big_endian", dict(k=x(dtype=">f4")), TypeError, "k: expected dtype f32 in native byte order", ""),
    ("dtypes_differ", dict(v=x(dtype=np.float64)), TypeError, "v: expected dtype f32", "got f64"),
    ("misaligned", dict(q=misaligned()), ValueError, "q: expected data aligned to the 4 bytes of f32", ""),
    (
        "strides",
        dict(q=fractional_strides()),
        ValueError,
        "q: expected strides that are multiples of the 4",
        "got 5 bytes",
    ),
    ("wrong_device", dict(q=Elsewhere()), TypeError, "q: expected memory of the CPU or of a CUDA device", "got rocm:1"),
    ("d_k", dict(k=x(1, 2, 4, 7)), ValueError, "k: expected d_k 8 as in q, got 7", ""),
    (
        "heads",
        dict(k=x(1, 3, 4, 8), v=x(1, 3, 4, 8)),
        ValueError,
        "k: expected a number of heads that divides the 2",
        "",
    ),
    ("batch", dict(k=x(2, 2, 4, 8)), ValueError, "k: expected batch 1 as in q, got 2", ""),
    ("mask_shape", dict(mask=np.ones((3, 4), bool)), ValueError, "mask: expected shape (B, H_q, N_q, N_k)", ""),
    ("mask_dtype", dict(mask=np.ones((4, 4), np.int64)), TypeError, "mask: expected dtype bool", "got i64"),
    (
        "mask_of_numbers_beside_bias",
        dict(mask=x(4, 4), bias=x(4, 4)),
        TypeError,
        "mask: expected dtype bool together with bias",
        "",
    ),
    (
        "causal_word",
        dict(causal="left"),
        ValueError,
        "causal: expected None, True, 'top_left' or 'bottom_right'",
        "got 'left'",
    ),
    ("causal_number", dict(causal=1), TypeError, "causal: expected None, True, 'top_left' or 'bottom_right'", "got 1"),
    ("window_number", dict(window=3), TypeError, "window: expected (left, right), got 3", ""),
    ("window_of_three", dict(window=(1, 2, 3)), ValueError, "window: expected (left, right)", ""),
    ("window_negative", dict(window=(-1, 0)), ValueError, "window.left: expected at least 0", "got -1"),
    ("scale_text", dict(scale="big"), TypeError, "scale: expected a NumPy array", "got str"),
    ("scale_nan", dict(scale=float("nan")), ValueError, "scale: expected a finite number", "got nan"),
    ("softcap", dict(softcap=-1.0), ValueError, "softcap: expected a positive finite number, got -1", ""),
    ("softcap_text", dict(softcap="1"), TypeError, "softcap: expected a number, got '1'", ""),
    ("alibi", dict(alibi=x(3)), ValueError, "alibi: expected shape (H_q) = (2) or (B, H_q) = (1, 2), got (3)", ""),
    ("alibi_per_entry", dict(alibi=x(3, 2)), ValueError, "alibi: expected shape (H_q) = (2) or", "got (3, 2)"),
    ("sinks", dict(sinks=x(2, 2)), ValueError, "sinks: expected 1 dimensions, got 2", ""),
    ("dropout", dict(dropout=1.5), ValueError, "dropout: expected from 0 to 1, got 1.5", ""),
    ("dropout_text", dict(dropout=None), TypeError, "dropout: expected a number, got None", ""),
    ("seed", dict(seed=-1), TypeError, "seed: expected an integer from 0 to 2^64 - 1, got -1", ""),
    ("seed_fraction", dict(seed=1.5), TypeError, "seed: expected an integer", "got 1.5"),
    ("lengths_too_long", dict(k_lengths=[5]), ValueError, "k_lengths: expected lengths from 0 to 4, got 5", ""),
    (
        "lengths_too_many",
        dict(k_lengths=[4, 4]),
        ValueError,
        "k_lengths: expected one length per batch entry (1), got 2",
        "",
    ),
    ("lengths_of_floats", dict(k_lengths=np.ones(1)), TypeError, "k_lengths: expected integers, got float64", ""),
    ("lengths_empty", dict(k_lengths=[]), ValueError, "k_lengths: expected at least one value, got none", ""),
    ("offsets", dict(q_offsets=[0, 4], k_offsets=[0, 3]), ValueError, "k_offsets: expected the last offset", "got 3"),
    ("offsets_of_no_dimension", dict(q_offsets=np.int64(4)), ValueError, "q_offsets: expected 1 dimension, got 0", ""),
    ("lengths_of_two_dimensions", dict(k_lengths=np.ones((1, 1), int)), ValueError, "expected 1 dimension, got 2", ""),
    ("threads", dict(threads=0), ValueError, "threads: expected None or at least 1, got 0", ""),
    ("out_shape", dict(out=x(1, 2, 4, 7)), ValueError, "out: expected shape (B, H_q, N_q, d_v)", "got (1, 2, 4, 7)"),
    ("out_dtype", dict(out=x(dtype=np.float64)), TypeError, "out: expected dtype f32, got f64", ""),
    ("out_read_only", dict(out=read_only(x())), ValueError, "out: expected a writable array, got a read-only", ""),
    (
        "out_zero_stride",
        dict(out=np.lib.stride_tricks.as_strided(x(), strides=(0, 0, 0, 0))),
        ValueError,
        "out: expected strides",
        "",
    ),
]


@pytest.mark.parametrize("arguments, kind, start, end", [c[1:] for c in CASES], ids=[c[0] for c in CASES])
def test_names_the_argument(arguments, kind, start, end):
    with pytest.raises(kind) as error:
        keel.attention(**{"q": x(), "k": x(), "v": x(), **arguments})
    text = str(error.value)
    assert text.startswith("[attention] ") and start in text and text.endswith(end), text


@pytest.mark.parametrize("offsets", [[], (), np.empty(0, int), np.int64(4), [0], [0, 4, 2]])
@pytest.mark.parametrize("name", ["q_offsets", "k_offsets"])
def test_wrong_offsets_are_named_beside_statistics_too(name, offsets):
    given = {"q_offsets": [0, 4], "k_offsets": [0, 4], name: offsets}
    with pytest.raises(ValueError, match=r"^\[attention\] [qk]_offsets: expected"):
        keel.attention(x(), x(), x(), return_stats=True, **given)


def test_out_must_not_overlap_an_input():
    q = x()
    with pytest.raises(ValueError, match="out: expected its own memory, got memory that overlaps q"):
        keel.attention(q, x(), x(), out=q)


@pytest.mark.parametrize(
    "arguments, kind, text",
    [
        (
            dict(want=("dx",)),
            ValueError,
            "want: expected names from dq, dk, dv, dbias, dscale, dsinks, drelative_bias, got 'dx'",
        ),
        (dict(want=("dbias",)), ValueError, "want: expected dbias only together with mask or bias"),
        (dict(want=("dsinks",)), ValueError, "want: expected dsinks only together with sinks"),
        (dict(dout=x(1, 2, 4, 7)), ValueError, "[attention_backward] dout: expected shape"),
        (dict(lse=x(1, 2, 3)), ValueError, "[attention_backward] lse: expected shape"),
        (dict(lse=x(1, 2, 4, dtype=np.float64)), TypeError, "[attention_backward] lse: expected dtype f32, got f64"),
    ],
)
def test_backward_names_the_argument(arguments, kind, text):
    given = {"q": x(), "k": x(), "v": x(), "out": x(), "lse": x(1, 2, 4), "dout": x(), **arguments}
    with pytest.raises(kind) as error:
        keel.attention_backward(**given)
    assert text in str(error.value)


@pytest.mark.parametrize(
    "parts, kind, text",
    [
        ([], ValueError, "[merge] parts: expected at least one, got none"),
        (3, TypeError, "[merge] parts: expected a sequence of (out, lse), got int"),
        ([3], TypeError, "[merge] parts[0]: expected (out, lse), got int"),
        ([(x(),)], ValueError, "[merge] parts[0]: expected (out, lse), got 1 of them"),
        ([(x(), x(1, 2, 3))], ValueError, "[merge] parts[0].lse: expected shape"),
        ([(x(), x(1, 2, 4)), (x(1, 2, 4, 7), x(1, 2, 4))], ValueError, "[merge] parts[1].out: expected shape"),
    ],
)
def test_merge_names_the_argument(parts, kind, text):
    with pytest.raises(kind) as error:
        keel.merge(parts)
    assert text in str(error.value)


def test_key_sum_rows_is_a_number_of_rows():
    with pytest.raises(ValueError, match=re.escape("[attention] key_sum_rows: expected at least 0, got -1")):
        keel.attention(x(), x(), x(), return_key_sums=True, key_sum_rows=-1)
    with pytest.raises(TypeError, match=re.escape("[attention] key_sum_rows: expected a 64-bit integer")):
        keel.attention(x(), x(), x(), return_key_sums=True, key_sum_rows="all")
    with pytest.raises(ValueError, match="return_scores: expected None, 'raw', 'capped' or 'masked', got 'scaled'"):
        keel.attention(x(), x(), x(), return_scores="scaled")
    with pytest.raises(TypeError, match="return_scores: expected None, 'raw', 'capped' or 'masked', got True"):
        keel.attention(x(), x(), x(), return_scores=True)


def test_merge_names_what_a_part_lacks():
    q = np.zeros((1, 2, 4, 8), np.float32)
    full = keel.attention(q, q, q, return_lse=True, return_stats=True)
    with pytest.raises(
        ValueError, match=re.escape("[merge] parts[1].max_logit: expected a view, as max_logit is requested")
    ):
        keel.merge([full, full[:2]], return_stats=True)
    with pytest.raises(TypeError, match=re.escape("[merge] parts[1].lse: expected")):
        keel.merge([full, (full.out, None)])
    with pytest.raises(ValueError, match=re.escape("[merge] threads: expected None or at least 1, got 0")):
        keel.merge([full], threads=0)
    with pytest.raises(ValueError, match=re.escape("[merge] out: expected its own memory, got memory that overlaps")):
        keel.merge([full], out=full.out[:, :, ::-1])
