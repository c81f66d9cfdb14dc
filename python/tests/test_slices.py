"""Slices of a longer problem: origin, results in float32 of 16-bit inputs, gradients that are added up."""

import keel
import keel.torch
import numpy as np
import pytest
import torch

RNG = np.random.default_rng(0)
Q, K, V, DOUT = RNG.standard_normal((4, 1, 2, 11, 8))  # float64
N = 11
SLICES = [slice(0, 4), slice(4, 5), slice(5, 11)]
# Whatever goes by position; lengths and offsets are those of the whole.
OPTIONS = [
    dict(causal=True),
    dict(causal="bottom_right", k_lengths=[9], q_lengths=[10]),
    dict(window=(3, 2)),
    dict(causal=True, alibi=np.array([0.5, 0.25])),
    dict(dropout=0.4, seed=3),
    dict(causal="bottom_right", q_offsets=[0, 3, 11], k_offsets=[0, 6, 11]),
]


def parts_of(rows, **options):
    """Attention of these queries over each slice of the keys."""
    return [
        keel.attention(
            Q[:, :, rows],
            K[:, :, keys],
            V[:, :, keys],
            return_lse=True,
            origin=(rows.start, keys.start, N, N),
            **options,
        )
        for keys in SLICES
    ]


@pytest.mark.parametrize("options", OPTIONS, ids=lambda options: "+".join(options))
def test_slices_merge_into_the_whole(options):
    whole, lse, *_ = keel.attention(Q, K, V, return_lse=True, **options)
    for rows in SLICES:
        merged = keel.merge(parts_of(rows, **options))
        np.testing.assert_allclose(merged.out, whole[:, :, rows], rtol=1e-12, atol=1e-12)
        np.testing.assert_allclose(merged.lse, lse[:, :, rows], rtol=1e-12, atol=1e-12)


def test_a_slice_ends_the_whole_where_nothing_is_said():
    options = dict(causal="bottom_right", dropout=0.4, seed=3)  # which go by the ends and by the positions
    last = keel.attention(Q[:, :, 5:], K, V, origin=(5, 0), **options)
    np.testing.assert_array_equal(last, keel.attention(Q, K, V, **options)[:, :, 5:])


@pytest.mark.parametrize("options", OPTIONS, ids=lambda options: "+".join(options))
def test_gradients_of_slices_are_added_up(options):
    out, lse, *_ = keel.attention(Q, K, V, return_lse=True, **options)
    whole = keel.attention_backward(Q, K, V, out, lse, DOUT, **options)
    sums = keel.Gradients(dq=np.zeros_like(Q), dk=np.zeros_like(K), dv=np.zeros_like(V))
    for rows in SLICES:
        for keys in SLICES:
            into = keel.Gradients(sums.dq[:, :, rows], sums.dk[:, :, keys], sums.dv[:, :, keys])
            arrays = (Q[:, :, rows], K[:, :, keys], V[:, :, keys], out[:, :, rows], lse[:, :, rows], DOUT[:, :, rows])
            origin = (rows.start, keys.start, N, N)
            assert keel.attention_backward(*arrays, into=into, accumulate=True, origin=origin, **options) is into
    for name in ("dq", "dk", "dv"):
        np.testing.assert_allclose(getattr(sums, name), getattr(whole, name), rtol=1e-11, atol=1e-11, err_msg=name)


def test_gradients_overwrite_unless_they_are_to_be_added():
    out, lse, *_ = keel.attention(Q, K, V, return_lse=True)
    into = keel.Gradients(dv=np.full_like(V, 7.0))
    keel.attention_backward(Q, K, V, out, lse, DOUT, into=into)
    expected = keel.attention_backward(Q, K, V, out, lse, DOUT, want=("dv",)).dv
    np.testing.assert_array_equal(into.dv, expected)
    keel.attention_backward(Q, K, V, out, lse, DOUT, into=into, accumulate=True)
    np.testing.assert_array_equal(into.dv, 2 * expected)


def test_16_bit_inputs_give_float32_where_asked():
    q, k, v = (x.astype(np.float16) for x in (Q, K, V))
    rounded = keel.attention(q, k, v)
    made = keel.attention(q, k, v, out_dtype=np.float32)
    given = np.empty(made.shape, np.float32)
    assert keel.attention(q, k, v, out=given) is given
    assert made.dtype == np.float32 and np.array_equal(made, given)
    assert not np.array_equal(made, rounded) and np.array_equal(made.astype(np.float16), rounded)
    tensors = [torch.from_numpy(x).bfloat16() for x in (Q, K, V)]
    assert keel.attention(*tensors, out_dtype=torch.float32).dtype == torch.float32


def test_gradients_of_16_bit_inputs_in_float32():
    q, k, v, dout = (x.astype(np.float16) for x in (Q, K, V, DOUT))
    out, lse, *_ = keel.attention(q, k, v, return_lse=True, out_dtype=np.float32)
    rounded = keel.attention_backward(q, k, v, out, lse, dout)
    into = keel.Gradients(dq=np.empty(q.shape, np.float32), dk=np.empty(k.shape, np.float32))
    keel.attention_backward(q, k, v, out, lse, dout, into=into)
    for name in ("dq", "dk"):
        wide = getattr(into, name)
        assert not np.array_equal(wide, getattr(rounded, name))
        np.testing.assert_array_equal(wide.astype(np.float16), getattr(rounded, name))


def test_explain_has_the_plan_of_gradients():
    x = np.zeros((1, 8, 256, 64), np.float32)
    bias, sinks = np.zeros((1, 1, 256, 256), np.float32), np.zeros(8, np.float32)
    forward = keel.explain(x, x, x, bias=bias, sinks=sinks)
    backward = keel.explain(x, x, x, bias=bias, sinks=sinks, want=("dq", "dk", "dv", "dbias", "dscale", "dsinks"))
    assert forward != backward and "kernel" in backward
    with pytest.raises(
        ValueError, match=r"\[attention_backward\] want: expected dsinks only together with sinks, got it alone"
    ):
        keel.explain(x, x, x, want=("dsinks",))
    with pytest.raises(ValueError, match=r"\[attention_backward\] k: expected d_k 64 as in q, got 8"):
        keel.explain(x, x[..., :8], x, want=("dq",))


def wrong(call, error, message):
    with pytest.raises(error) as raised:
        call()
    assert message in str(raised.value)


def test_errors():
    out, lse, *_ = keel.attention(Q, K, V, return_lse=True)

    def forward(**options):
        return lambda: keel.attention(Q, K, V, **options)

    def backward(**options):
        return lambda: keel.attention_backward(Q, K, V, out, lse, DOUT, **options)

    shape = "[attention] origin: expected (query, key) or (query, key, n_q, n_k), got "
    wrong(forward(origin=3), TypeError, shape + "3")
    wrong(forward(origin=(1, 2, 3)), ValueError, shape + "(1, 2, 3)")
    wrong(forward(origin=(1, 2.5)), TypeError, "[attention] origin.key: expected a 64-bit integer, got 2.5")
    wrong(forward(origin=(-1, 0)), ValueError, "[attention] origin.query: expected a position from 0 to 2^40, got -1")
    wrong(
        forward(origin=(0, 5, 0, 12)),
        ValueError,
        "[attention] origin.n_k: expected 0, or from origin.key + 11 = 16 to 2^40, got 12",
    )
    wrong(
        forward(out=np.empty_like(Q), out_dtype=np.float64),
        ValueError,
        "[attention] out_dtype: expected None together with out",
    )
    wrong(forward(out_dtype="colour"), TypeError, "[attention] out_dtype: expected a NumPy dtype, got 'colour'")
    wrong(forward(out_dtype=np.float32), TypeError, "[attention] out_dtype: expected float64, got float32")
    wrong(
        lambda: keel.attention(*(x.astype(np.float16) for x in (Q, K, V)), out_dtype=np.float64),
        TypeError,
        "[attention] out_dtype: expected float16 or float32, got float64",
    )
    wrong(forward(out=np.empty(Q.shape, np.float32)), TypeError, "[attention] out: expected dtype f64, got f32")
    wrong(forward(key_sum_rows=1.5), TypeError, "[attention] key_sum_rows: expected a 64-bit integer, got 1.5")
    wrong(
        backward(accumulate=True),
        ValueError,
        "[attention_backward] accumulate: expected arrays to add to (into), got none",
    )
    into = keel.Gradients(dq=np.zeros_like(Q))
    wrong(backward(into=into, want=("dq",)), ValueError, "[attention_backward] want: expected None together with into")
    wrong(backward(into={"dq": into.dq}), TypeError, "[attention_backward] into: expected keel.Gradients, got dict")
    wrong(
        backward(into=into, accumulate=1), TypeError, "[attention_backward] accumulate: expected True or False, got 1"
    )
    wrong(
        backward(into=keel.Gradients(dbias=np.zeros((1, 2, N, N)))),
        ValueError,
        "[attention_backward] dbias: expected none without a bias",
    )
    for want in ("dq", 3):
        wrong(backward(want=want), TypeError, f"[attention_backward] want: expected a sequence of names, got {want!r}")
    read_only = np.zeros_like(Q)
    read_only.flags.writeable = False
    wrong(backward(into=keel.Gradients(dq=read_only)), ValueError, "[attention_backward] dq: ")
    tensors = [torch.from_numpy(x) for x in (Q, K, V)]
    wrong(
        lambda: keel.attention(*tensors, out_dtype=np.float64),
        TypeError,
        "[attention] out_dtype: expected a torch dtype, got ",
    )
    for name, value, error, message in (
        ("origin", 3, TypeError, shape + "3"),
        ("origin", (1, 2, 3), ValueError, shape + "(1, 2, 3)"),
        ("origin", (1, 2.5), TypeError, "[attention] origin.key: expected a 64-bit integer, got 2.5"),
        ("origin", (True, 0), TypeError, "[attention] origin.query: expected a 64-bit integer, got True"),
        ("origin", (0, 0, 0, 2**63), TypeError, f"[attention] origin.n_k: expected a 64-bit integer, got {2**63}"),
        ("origin", (-1, 0), ValueError, "[attention] origin.query: expected a position from 0 to 2^40, got -1"),
        ("window", (2**63, 0), TypeError, f"[attention] window.left: expected a 64-bit integer, got {2**63}"),
        ("out_dtype", "float32", TypeError, "[attention] out_dtype: expected a torch dtype, got 'float32'"),
        ("out_dtype", torch.float32, TypeError, "[attention] out_dtype: expected torch.float64, got torch.float32"),
    ):
        wrong(lambda n=name, x=value: keel.torch.attention(*tensors, **{n: x}), error, message)


# torch


def test_slices_under_autograd():
    """Parts in float32 of bfloat16 inputs, merged by torch: results and gradients of the whole."""
    leaves = [torch.from_numpy(x).bfloat16().requires_grad_() for x in (Q, K, V)]
    q, k, v = leaves
    parts = [
        keel.torch.attention(
            q,
            k[:, :, keys],
            v[:, :, keys],
            causal=True,
            origin=(0, keys.start),
            return_lse=True,
            out_dtype=torch.float32,
        )
        for keys in SLICES
    ]
    assert {part.out.dtype for part in parts} == {torch.float32}
    weights = torch.softmax(torch.stack([part.lse for part in parts]), 0)
    sliced = (weights[..., None] * torch.stack([part.out for part in parts])).sum(0)
    whole = keel.torch.attention(q, k, v, causal=True, out_dtype=torch.float32)
    # A matrix unit rounds weights to bfloat16, by a share of 2^-9 at most, each slice relative to its own maximum.
    by_unit = "products by" in keel.explain(*(x.detach() for x in leaves), causal=True)
    rounding = 2 * 2**-9 * v.abs().max().item() if by_unit else 0.0
    torch.testing.assert_close(sliced, whole, rtol=1e-5, atol=1e-6 + rounding)
    dout = torch.from_numpy(DOUT).float()
    got = torch.autograd.grad(sliced, leaves, dout)
    expected = torch.autograd.grad(whole, leaves, dout)
    for ours, theirs in zip(got, expected):
        torch.testing.assert_close(ours, theirs, rtol=2**-6, atol=2**-6)  # dq is a sum of three bfloat16 parts


def test_parts_of_torch_merge_with_their_statistics():
    q, k, v = (torch.from_numpy(x).float() for x in (Q, K, V))
    ask = dict(causal=True, return_lse=True, return_stats=True)
    parts = [
        keel.torch.attention(q, k[:, :, keys], v[:, :, keys], origin=(0, keys.start, N, N), **ask) for keys in SLICES
    ]
    merged, whole = keel.merge(parts, return_stats=True), keel.torch.attention(q, k, v, **ask)
    torch.testing.assert_close(merged.out, whole.out, rtol=1e-5, atol=1e-6)
    for name in whole.stats._fields:
        got, expected = getattr(merged.stats, name), getattr(whole.stats, name)
        torch.testing.assert_close(got, expected, rtol=1e-4, atol=1e-5, msg=lambda text, name=name: f"{name}: {text}")


def test_torch_takes_the_integers_of_numpy():
    tensors = [torch.from_numpy(x) for x in (Q, K, V)]
    got = keel.torch.attention(*tensors, causal=True, origin=tuple(np.array([2, 1])), window=(np.int32(3), None))
    np.testing.assert_array_equal(got, keel.attention(Q, K, V, causal=True, origin=(2, 1), window=(3, None)))


def test_origin_and_out_dtype_are_known_to_the_compiler():
    q, k, v = (torch.from_numpy(x).bfloat16() for x in (Q, K, V))
    compilations = 0

    def backend(graph, _):
        nonlocal compilations
        compilations += 1
        return graph.forward

    @torch.compile(backend=backend, dynamic=True)
    def chunk(q, start):
        return keel.torch.attention(q, k, v, causal=True, origin=(start, 0), out_dtype=torch.float32)

    whole = keel.torch.attention(q, k, v, causal=True, out_dtype=torch.float32)
    for start in (2, 5, 7, 8):
        got = chunk(q[:, :, start : start + 3], start)
        torch.testing.assert_close(got, whole[:, :, start : start + 3], rtol=0, atol=0)
    assert compilations == 1
    arguments = _arguments(q, k, v, origin=(3, 0), causal="top_left")
    torch.library.opcheck(torch.ops.keel.attention.default, arguments)


def _arguments(q, k, v, **options):
    from keel.torch import _operator

    return (q, k, v, *_operator.flatten("attention", options), False, torch.float32)
