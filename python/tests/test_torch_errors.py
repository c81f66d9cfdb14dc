"""Wrong arguments of keel.torch, and their errors."""

import keel.torch
import numpy as np
import pytest
import torch
from keel.torch import scaled_dot_product_attention as sdpa

pytestmark = pytest.mark.usefixtures("short_path")


def ones(*shape, **options):
    return torch.ones(shape or (1, 2, 4, 8), **options)


REFUSED = [
    ("not_a_tensor", dict(query=[1.0]), TypeError, "query: expected a tensor, got list"),
    ("numpy", dict(key=np.ones((1, 2, 4, 8))), TypeError, "key: expected a tensor, got ndarray"),
    ("one_dimension", dict(query=ones(8)), ValueError, "query: expected at least 2 dimensions, got 1"),
    (
        "integers",
        dict(query=ones(dtype=torch.int64), key=ones(dtype=torch.int64), value=ones(dtype=torch.int64)),
        TypeError,
        "query: expected dtype float64, float32, float16 or bfloat16, got torch.int64",
    ),
    ("dtypes_differ", dict(key=ones(dtype=torch.float64)), TypeError, "key: expected dtype torch.float32 as in query"),
    (
        "sparse",
        dict(query=ones().to_sparse()),
        TypeError,
        "query: expected a dense tensor, got one of layout torch.sparse_coo",
    ),
    (
        "head_size",
        dict(key=ones(1, 2, 4, 7)),
        ValueError,
        "key: expected size 8 of the last dimension as in query, got 7",
    ),
    ("length", dict(value=ones(1, 2, 5, 8)), ValueError, "value: expected length 4 as in key, got 5"),
    (
        "batch",
        dict(query=ones(3, 2, 4, 8), key=ones(2, 2, 4, 8)),
        ValueError,
        "batch dimensions of query, key and value that broadcast",
    ),
    ("heads", dict(query=ones(1, 3, 4, 8)), ValueError, "got key (1, 2, 4, 8) and value (1, 2, 4, 8)"),
    ("heads_in_groups", dict(query=ones(1, 4, 4, 8)), ValueError, "; enable_gqa=True serves heads in groups"),
    (
        "grouped",
        dict(query=ones(1, 3, 4, 8), enable_gqa=True),
        ValueError,
        "key: expected a number of heads that divides the 3 of query, with enable_gqa=True, got 2",
    ),
    (
        "grouped_2d",
        dict(query=ones(4, 8), key=ones(4, 8), value=ones(4, 8), enable_gqa=True),
        ValueError,
        "at least 3 dimensions with it",
    ),
    (
        "mask_dtype",
        dict(attn_mask=ones(4, 4, dtype=torch.int64)),
        TypeError,
        "attn_mask: expected dtype torch.bool or torch.float32, got torch.int64",
    ),
    (
        "mask_half",
        dict.fromkeys(("query", "key", "value"), ones(dtype=torch.bfloat16)) | {"attn_mask": ones(4, 4).half()},
        TypeError,
        "attn_mask: expected dtype torch.bool or torch.float32 or torch.bfloat16, got torch.float16",
    ),
    (
        "mask_shape",
        dict(attn_mask=ones(3, 4)),
        ValueError,
        "attn_mask: expected a shape that broadcasts to (1, 2, 4, 4)",
    ),
    ("mask_batch", dict(attn_mask=ones(2, 1, 4, 4)), ValueError, "broadcasts to (1, 2, 4, 4), got (2, 1, 4, 4)"),
    ("mask_rank", dict(attn_mask=ones(1, 1, 1, 4, 4)), ValueError, "broadcasts to (1, 2, 4, 4), got (1, 1, 1, 4, 4)"),
    (
        "head_size_0",
        dict.fromkeys(("query", "key", "value"), ones(1, 2, 4, 0)),
        ValueError,
        "query: expected head sizes of at least 1, got 0 and 0 in value",
    ),
    ("scale_nan", dict(scale=float("nan")), ValueError, "scale: expected a finite number, got nan"),
    (
        "scale_with_gradient",
        dict(scale=torch.tensor(0.5, requires_grad=True)),
        ValueError,
        "scale: expected a number, or a tensor that needs no gradient, got one with requires_grad",
    ),
    ("causal_number", dict(is_causal=1), TypeError, "is_causal: expected a bool, got 1"),
    ("gqa_number", dict(enable_gqa=None), TypeError, "enable_gqa: expected a bool, got None"),
    ("scale_text", dict(scale="x"), TypeError, "scale: expected a number, got 'x'"),
    ("dropout_text", dict(dropout_p="x"), TypeError, "dropout_p: expected a number, got 'x'"),
    ("dropout", dict(dropout_p=1.5), ValueError, "dropout_p: expected from 0 to 1, got 1.5"),
    ("dropout_negative", dict(dropout_p=-0.5), ValueError, "dropout_p: expected from 0 to 1, got -0.5"),
]


@pytest.mark.parametrize("arguments, kind, text", [c[1:] for c in REFUSED], ids=[c[0] for c in REFUSED])
@pytest.mark.parametrize("grad", [False, True])
def test_refuses_what_torch_refuses(arguments, kind, text, grad):
    given = {"query": ones(), "key": ones(), "value": ones(), **arguments}
    if grad and isinstance(given["query"], torch.Tensor) and given["query"].is_floating_point():
        given["query"] = given["query"].requires_grad_()
    with pytest.raises(kind) as error:
        sdpa(**given)
    assert text in str(error.value), str(error.value)
    assert str(error.value).startswith("[scaled_dot_product_attention] ")


def test_refuses_tensors_of_another_device_by_name():
    # There is no such device here; a tensor that claims to be on one will do.
    class Elsewhere(torch.Tensor):
        @property
        def device(self):
            return torch.device("xpu:1")

    q = ones().as_subclass(Elsewhere)
    with pytest.raises(TypeError, match="query: expected a tensor on the CPU or a CUDA device, got one on xpu:1"):
        sdpa(q, ones(), ones())
    with pytest.raises(TypeError, match="q: expected a tensor on the CPU or a CUDA device, got one on xpu:1"):
        keel.torch.attention(q, ones(), ones())


@pytest.mark.parametrize(
    "arguments, kind, text",
    [
        (dict(q=ones(4, 8)), ValueError, "[attention] q: expected 4 dimensions (B, H, N, D), got 2"),
        (dict(window=3), TypeError, "[attention] window: expected (left, right), got 3"),
        (dict(window=(1, 2, 3)), ValueError, "[attention] window: expected (left, right), got (1, 2, 3)"),
        (dict(window=(1.5, 2)), TypeError, "[attention] window.left: expected a 64-bit integer, got 1.5"),
        (dict(window=(-1, 2)), ValueError, "[attention] window.left: expected at least 0"),
        (dict(causal=3), TypeError, "[attention] causal: expected None, True, 'top_left' or 'bottom_right', got 3"),
        (dict(sinks=[1.0, 2.0]), TypeError, "[attention] sinks: expected a tensor, got list"),
        (dict(scale="x"), TypeError, "[attention] scale: expected a number, got 'x'"),
        (dict(softcap="x"), TypeError, "[attention] softcap: expected a number, got 'x'"),
        (dict(causal="left"), ValueError, "[attention] causal: expected None, True, 'top_left' or 'bottom_right'"),
        (dict(mask=ones(4, 4), bias=ones(4, 4)), TypeError, "[attention] mask: expected dtype bool together with bias"),
        (dict(k_lengths=torch.tensor([1.0])), TypeError, "[attention] k_lengths: expected integers, got torch.float32"),
        (dict(k_lengths=torch.tensor([9])), ValueError, "[attention] k_lengths: expected lengths from 0 to 4, got 9"),
        (dict(sinks=ones(3)), ValueError, "[attention] sinks: expected shape (H_q) = (2), got (3)"),
        (dict(softcap=-1.0), ValueError, "[attention] softcap: expected a positive finite number, got -1"),
        (dict(dropout=2.0), ValueError, "[attention] dropout: expected from 0 to 1, got 2"),
        (dict(k=ones(1, 2, 4, 7)), ValueError, "[attention] k: expected d_k 8 as in q, got 7"),
        (dict(return_scores=True), TypeError, "[attention] return_scores: expected None, 'raw', 'capped' or 'masked'"),
    ],
)
def test_attention_names_the_argument(arguments, kind, text):
    with pytest.raises(kind) as error:
        keel.torch.attention(**{"q": ones(), "k": ones(), "v": ones(), **arguments})
    assert text in str(error.value), str(error.value)
