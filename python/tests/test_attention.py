"""keel.attention, attention_backward and merge on NumPy arrays, against the formula written out in float64."""

import subprocess
import sys
import threading
import time

import keel
import ml_dtypes
import numpy as np
import pytest

DTYPES = [np.float64, np.float32, np.float16, ml_dtypes.bfloat16]
TOLERANCE = {"float64": 1e-12, "float32": 1e-5, "float16": 2e-3, "bfloat16": 2e-2}


def arrays(*shapes, dtype=np.float32, seed=0):
    rng = np.random.default_rng(seed)
    return [rng.standard_normal(shape).astype(dtype) for shape in shapes]


def reference(q, k, v, bias=None, scale=None):
    """softmax(scale · q kᵀ + bias) v and the log-sum-exp, in float64."""
    q, k, v = (x.astype(np.float64) for x in (q, k, v))
    group = q.shape[-3] // k.shape[-3] if q.ndim > 2 else 1
    if group > 1:
        k, v = np.repeat(k, group, axis=-3), np.repeat(v, group, axis=-3)
    s = q @ np.swapaxes(k, -1, -2) * (1 / np.sqrt(q.shape[-1]) if scale is None else scale)
    if bias is not None:
        s = s + bias
    m = s.max(axis=-1, keepdims=True)
    e = np.exp(s - m)
    total = e.sum(axis=-1, keepdims=True)
    return e / total @ v, (m + np.log(total))[..., 0]


@pytest.mark.parametrize("dtype", DTYPES)
def test_matches_the_formula_in_every_dtype(dtype):
    q, k, v = arrays((2, 4, 9, 16), (2, 2, 11, 16), (2, 2, 11, 8), dtype=dtype)
    result = keel.attention(q, k, v, return_lse=True)
    expected, lse = reference(q, k, v)
    assert result.out.dtype == q.dtype and result.out.shape == (2, 4, 9, 8)
    assert result.lse.dtype == (np.float64 if dtype == np.float64 else np.float32)
    tolerance = TOLERANCE[np.dtype(dtype).name]
    np.testing.assert_allclose(result.out.astype(np.float64), expected, rtol=tolerance, atol=tolerance)
    np.testing.assert_allclose(result.lse, lse, rtol=max(tolerance, 1e-6) if dtype == np.float64 else 1e-5)


@pytest.mark.parametrize("shape", [(5, 8), (3, 5, 8), (2, 3, 5, 8)])
def test_batch_and_heads_may_be_missing(shape):
    q, k, v = arrays(shape, shape, shape)
    result = keel.attention(q, k, v, return_lse=True, return_weights=True, return_stats=True)
    expected, lse = reference(q, k, v)
    np.testing.assert_allclose(result.out, expected, rtol=1e-5, atol=1e-6)
    assert result.lse.shape == shape[:-1] and result.weights.shape == shape[:-1] + (5,)
    assert result.stats.entropy.shape == shape[:-1] and result.stats.heads.rows.shape == ((1, 1) + shape[:-2])[-2:]


def test_every_way_to_lay_out_an_array_gives_the_same_bits():
    q, k, v = arrays((2, 3, 6, 8), (2, 3, 7, 8), (2, 3, 7, 8))
    expected = keel.attention(q, k, v)

    def bnhd(x):
        return np.ascontiguousarray(x.transpose(0, 2, 1, 3)).transpose(0, 2, 1, 3)

    def padded(x):
        wide = np.full(x.shape[:-1] + (2 * x.shape[-1] + 3,), np.nan, x.dtype)
        wide[..., 1 : 2 * x.shape[-1] + 1 : 2] = x
        return wide[..., 1 : 2 * x.shape[-1] + 1 : 2]

    def reversed_(x):
        return np.ascontiguousarray(x[:, :, ::-1])[:, :, ::-1]

    def read_only(x):
        x = x.copy()
        x.flags.writeable = False
        return x

    for layout in (bnhd, padded, reversed_, read_only, np.asfortranarray):
        assert np.array_equal(keel.attention(layout(q), layout(k), layout(v)), expected), layout.__name__


def test_zero_stride_inputs_are_broadcasts():
    q, k, v = arrays((1, 1, 6, 8), (1, 1, 7, 8), (1, 1, 7, 8))
    wide = [np.broadcast_to(x, (3, 4) + x.shape[2:]) for x in (q, k, v)]
    assert np.array_equal(keel.attention(*wide), np.broadcast_to(keel.attention(q, k, v), (3, 4, 6, 8)))


@pytest.mark.parametrize("n_q, n_k", [(0, 5), (5, 0), (0, 0)])
def test_zero_sizes(n_q, n_k):
    q, k, v = arrays((2, 3, n_q, 8), (2, 3, n_k, 8), (2, 3, n_k, 8))
    result = keel.attention(q, k, v, return_lse=True)
    assert result.out.shape == (2, 3, n_q, 8) and not result.out.any()
    assert np.isneginf(result.lse).all()
    empty = arrays((0, 3, 4, 8), (0, 3, 4, 8), (0, 3, 4, 8))
    assert keel.attention(*empty).shape == (0, 3, 4, 8)


def test_masks_biases_and_their_broadcasts():
    q, k, v = arrays((2, 4, 6, 8), (2, 2, 7, 8), (2, 2, 7, 8))
    rng = np.random.default_rng(1)
    for shape in [(6, 7), (1, 7), (4, 6, 7), (4, 1, 1), (2, 1, 6, 7), (2, 4, 6, 7), (7,)]:
        mask = rng.random(shape) < 0.7
        mask[..., 0] = True
        expected, _ = reference(q, k, v, bias=np.where(mask, 0.0, -np.inf))
        np.testing.assert_allclose(keel.attention(q, k, v, mask=mask), expected, rtol=1e-5, atol=1e-6)
        bias = rng.standard_normal(shape).astype(np.float32)
        expected, _ = reference(q, k, v, bias=bias)
        np.testing.assert_allclose(keel.attention(q, k, v, mask=bias), expected, rtol=1e-5, atol=1e-6)
        both, _ = reference(q, k, v, bias=np.where(mask, bias, -np.inf))
        np.testing.assert_allclose(keel.attention(q, k, v, mask=mask, bias=bias), both, rtol=1e-5, atol=1e-6)


def test_causal_by_either_corner_and_windows():
    q, k, v = arrays((1, 2, 5, 8), (1, 2, 8, 8), (1, 2, 8, 8))
    i, j = np.arange(5)[:, None], np.arange(8)
    cases = [
        ({"causal": True}, j <= i),
        ({"causal": "top_left"}, j <= i),
        ({"causal": "bottom_right"}, j <= i + 3),
        ({"causal": "bottom_right", "window": (2, None)}, (j <= i + 3) & (j >= i + 1)),
        ({"window": (1, 1)}, abs(i + 3 - j) <= 1),
        ({"causal": False, "window": (None, 0)}, j <= i + 3),
    ]
    for options, mask in cases:
        expected, _ = reference(q, k, v, bias=np.where(mask, 0.0, -np.inf))
        np.testing.assert_allclose(keel.attention(q, k, v, **options), expected, rtol=1e-5, atol=1e-6)


def test_scale_softcap_alibi_and_sinks():
    q, k, v = arrays((2, 2, 5, 8), (2, 2, 6, 8), (2, 2, 6, 8), dtype=np.float64)
    np.testing.assert_allclose(keel.attention(q, k, v, scale=0.5), reference(q, k, v, scale=0.5)[0])
    for number in (1, np.float32(1), np.int64(1), np.array(1.0)):
        np.testing.assert_array_equal(keel.attention(q, k, v, scale=number), keel.attention(q, k, v, scale=1.0))
    per_head = np.array([0.3, 0.7]).reshape(2, 1)
    np.testing.assert_allclose(
        keel.attention(q, k, v, scale=per_head), reference(q, k, v, scale=per_head.reshape(2, 1, 1))[0]
    )
    slopes = np.array([0.5, 0.25])
    bias = -slopes[:, None, None] * abs(np.arange(5)[:, None] + 1 - np.arange(6))
    np.testing.assert_allclose(keel.attention(q, k, v, alibi=slopes), reference(q, k, v, bias=bias)[0])
    per_entry = np.array([[0.5, 0.25], [0.125, 1.0]])
    bias = -per_entry[:, :, None, None] * abs(np.arange(5)[:, None] + 1 - np.arange(6))
    np.testing.assert_allclose(keel.attention(q, k, v, alibi=per_entry), reference(q, k, v, bias=bias)[0])
    s = q @ k.swapaxes(-1, -2) / np.sqrt(8)
    capped = 2 * np.tanh(s / 2) - s
    np.testing.assert_allclose(keel.attention(q, k, v, softcap=2.0), reference(q, k, v, bias=capped)[0])
    sinks = np.array([0.0, 1.5])
    out, lse = reference(q, k, v)
    share = np.exp(lse) / (np.exp(lse) + np.exp(sinks)[:, None])
    np.testing.assert_allclose(keel.attention(q, k, v, sinks=sinks), out * share[..., None])


@pytest.mark.parametrize("kind", [list, np.array, lambda x: np.array(x, np.int32)])
def test_padded_and_packed_batches_agree(kind):
    q, k, v = arrays((2, 2, 5, 8), (2, 2, 6, 8), (2, 2, 6, 8))
    padded = keel.attention(q, k, v, q_lengths=kind([5, 3]), k_lengths=kind([4, 6]), causal="bottom_right")
    assert not padded[1, :, 3:].any()

    def packed(x, lengths):
        return np.concatenate([x[b, :, :n] for b, n in enumerate(lengths)], axis=1)[None]

    out = keel.attention(
        packed(q, [5, 3]),
        packed(k, [4, 6]),
        packed(v, [4, 6]),
        q_offsets=kind([0, 5, 8]),
        k_offsets=kind([0, 4, 10]),
        causal="bottom_right",
    )
    np.testing.assert_array_equal(out, packed(padded, [5, 3]))


def test_dropout_is_a_function_of_the_seed():
    q, k, v = arrays((1, 2, 40, 8), (1, 2, 50, 8), (1, 2, 50, 8))
    result = keel.attention(q, k, v, dropout=0.25, seed=7, return_weights=True)
    again = keel.attention(q, k, v, dropout=0.25, seed=7)
    assert np.array_equal(result.out, again)
    assert not np.array_equal(result.out, keel.attention(q, k, v, dropout=0.25, seed=8))
    assert abs((result.weights == 0).mean() - 0.25) < 0.03
    np.testing.assert_allclose(result.out, result.weights @ v, rtol=1e-4, atol=1e-6)


def test_statistics_follow_their_definitions():
    q, k, v = arrays((2, 3, 6, 8), (2, 3, 9, 8), (2, 3, 9, 8), dtype=np.float64)
    q = 4 * q
    result = keel.attention(q, k, v, return_weights=True, return_stats=True)
    p, stats = result.weights, result.stats
    s = q @ k.swapaxes(-1, -2) / np.sqrt(8)
    entropy = -(p * np.log(p)).sum(-1)
    np.testing.assert_allclose(stats.max_logit, s.max(-1))
    np.testing.assert_allclose(stats.entropy, entropy, rtol=1e-9)
    np.testing.assert_allclose(stats.max_weight, p.max(-1))
    np.testing.assert_allclose(stats.logit_mean, s.mean(-1), atol=1e-12)
    np.testing.assert_allclose(stats.logit_var, s.var(-1))
    assert stats.visible.dtype == np.int64 and (stats.visible == 9).all()
    heads = stats.heads
    np.testing.assert_allclose(heads.max_logit, s.max((-1, -2)))
    np.testing.assert_allclose(heads.mean_entropy, entropy.mean(-1))
    np.testing.assert_allclose(heads.min_entropy, entropy.min(-1))
    np.testing.assert_allclose(heads.normalised_entropy, entropy.mean(-1) / np.log(9))
    np.testing.assert_allclose(heads.saturated, (p.max(-1) > 0.99).mean(-1))
    assert heads.rows.dtype == np.int64 and (heads.rows == 6).all()
    low = keel.attention(q, k, v, return_stats=True, saturation_threshold=0.5).stats.heads.saturated
    np.testing.assert_allclose(low, (p.max(-1) > 0.5).mean(-1))


def test_out_is_written_where_the_caller_wants_it():
    q, k, v = arrays((2, 3, 6, 8), (2, 3, 7, 8), (2, 3, 7, 8))
    memory = np.zeros((2, 6, 3, 8), np.float32)
    out = memory.transpose(0, 2, 1, 3)
    assert keel.attention(q, k, v, out=out) is out
    np.testing.assert_array_equal(memory.transpose(0, 2, 1, 3), keel.attention(q, k, v))


@pytest.mark.parametrize("threads", [1, 2, 5])
def test_threads_do_not_change_the_bits(threads):
    q, k, v = arrays((2, 3, 300, 32), (2, 3, 300, 32), (2, 3, 300, 32))
    assert np.array_equal(keel.attention(q, k, v, threads=threads, causal=True), keel.attention(q, k, v, causal=True))


def test_gradients_match_central_differences():
    q, k, v, dout = arrays((1, 4, 3, 4), (1, 2, 5, 4), (1, 2, 5, 3), (1, 4, 3, 3), dtype=np.float64)
    (bias,) = arrays((4, 1, 5), dtype=np.float64, seed=1)
    (dlse,) = arrays((1, 4, 3), dtype=np.float64, seed=2)
    scale, sinks = np.full((4, 1), 0.4), np.linspace(-1, 1, 4)
    given = {"q": q, "k": k, "v": v, "bias": bias, "scale": scale, "sinks": sinks}

    def loss(values):
        out, lse, *_ = keel.attention(**values, causal="bottom_right", softcap=3.0, return_lse=True)
        return (out * dout).sum() + (lse * dlse).sum()

    out, lse, *_ = keel.attention(**given, causal="bottom_right", softcap=3.0, return_lse=True)
    gradients = keel.attention_backward(
        q,
        k,
        v,
        out,
        lse,
        dout,
        dlse=dlse,
        want=("dq", "dk", "dv", "dbias", "dscale", "dsinks"),
        bias=bias,
        scale=scale,
        sinks=sinks,
        causal="bottom_right",
        softcap=3.0,
    )
    for name, value in given.items():
        gradient = getattr(gradients, "d" + name)
        assert gradient.shape == value.shape and gradient.dtype == value.dtype
        for index in np.ndindex(value.shape):
            step = np.zeros_like(value)
            step[index] = 1e-6
            numeric = (loss({**given, name: value + step}) - loss({**given, name: value - step})) / 2e-6
            assert gradient[index] == pytest.approx(numeric, rel=1e-6, abs=1e-8), (name, index)
    number = keel.attention_backward(q, k, v, *keel.attention(q, k, v, return_lse=True)[:2], dout, want=("dscale",))
    numeric = [(keel.attention(q, k, v, scale=0.5 + e) * dout).sum() for e in (1e-6, -1e-6)]
    assert number.dq is None and float(number.dscale) == pytest.approx((numeric[0] - numeric[1]) / 2e-6, rel=1e-6)


def test_merge_joins_halves_exactly():
    q, k, v = arrays((1, 2, 6, 8), (1, 2, 10, 8), (1, 2, 10, 8))
    parts = [keel.attention(q, k[:, :, s], v[:, :, s], return_lse=True)[:2] for s in (slice(0, 3), slice(3, 10))]
    merged = keel.merge(parts)
    whole = keel.attention(q, k, v, return_lse=True)
    np.testing.assert_allclose(merged.out, whole.out, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(merged.lse, whole.lse, rtol=1e-6)


@pytest.mark.parametrize("dtype", DTYPES)
def test_merge_joins_statistics_and_works_in_place(dtype):
    q, k, v = arrays((2, 2, 6, 8), (2, 2, 10, 8), (2, 2, 10, 8), dtype=dtype)
    ask = dict(return_lse=True, return_stats=True)
    parts = [keel.attention(q, k[:, :, s], v[:, :, s], **ask) for s in (slice(0, 3), slice(3, 10))]
    whole = keel.attention(q, k, v, **ask)
    merged = keel.merge(parts, return_stats=True, threads=2)
    names = [name for name in merged.stats._fields if name != "heads"]
    tolerance = TOLERANCE[np.dtype(dtype).name]
    np.testing.assert_allclose(merged.out.astype(float), whole.out.astype(float), rtol=tolerance, atol=tolerance)
    assert merged.out.dtype == dtype and merged.stats.heads is None and merged.weights is None
    for name in names:
        got, want = getattr(merged.stats, name), getattr(whole.stats, name)
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5, err_msg=name)
        assert got.dtype == want.dtype

    in_place = keel.merge(parts, return_stats=True, out=parts[0])
    assert in_place.out is parts[0].out and in_place.lse is parts[0].lse
    np.testing.assert_array_equal(parts[0].out, merged.out)
    np.testing.assert_array_equal(parts[0].lse, merged.lse)
    for name in names:
        assert getattr(in_place.stats, name) is getattr(parts[0].stats, name)
        np.testing.assert_array_equal(getattr(in_place.stats, name), getattr(merged.stats, name), err_msg=name)


def test_merge_keeps_float32_until_the_end():
    q, k, v = arrays((1, 2, 6, 8), (1, 2, 10, 8), (1, 2, 10, 8), dtype=np.float16)
    parts = [keel.attention(q, k[:, :, s], v[:, :, s], return_lse=True) for s in (slice(0, 3), slice(3, 10))]
    total = (parts[0].out.astype(np.float32), parts[0].lse)
    merged = keel.merge([total, parts[1]], out=total)
    assert merged.out is total[0] and merged.lse is total[1]
    np.testing.assert_allclose(total[0], keel.attention(q, k, v).astype(np.float32), atol=2e-3)
    narrow = np.empty_like(parts[0].out)
    assert keel.merge([total, parts[1]], out=narrow).out is narrow


@pytest.mark.parametrize("dtype", DTYPES)
def test_key_sums_are_column_sums_of_the_weights(dtype):
    q, k, v = arrays((2, 4, 6, 8), (2, 2, 10, 8), (2, 2, 10, 8), dtype=dtype)
    for rows in (0, 2):
        result = keel.attention(q, k, v, causal="bottom_right", return_key_sums=True, key_sum_rows=rows)
        weights = keel.attention(q, k, v, causal="bottom_right", return_weights=True).weights.astype(float)
        assert result.key_sums.shape == (2, 4, 10) and result.lse is None
        assert result.key_sums.dtype == (np.float64 if dtype == np.float64 else np.float32)
        tolerance = 6 * TOLERANCE[np.dtype(dtype).name]
        np.testing.assert_allclose(result.key_sums, weights[:, :, -rows:].sum(2), rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("dtype", DTYPES)
def test_scores_of_each_stage(dtype):
    q, k, v = arrays((2, 4, 6, 8), (2, 2, 10, 8), (2, 2, 10, 8), dtype=dtype)
    bias = arrays((4, 6, 10), dtype=dtype)[0]
    options = dict(softcap=1.5, causal="bottom_right", bias=bias, k_lengths=[10, 7])
    s = q.astype(float) @ np.repeat(k, 2, axis=1).astype(float).swapaxes(-1, -2) / np.sqrt(8)
    i, j = np.arange(6)[:, None], np.arange(10)
    lengths = np.array([10, 7])[:, None, None, None]
    belongs = np.broadcast_to(j < lengths, s.shape)
    capped = 1.5 * np.tanh(s / 1.5)
    expected = {
        "raw": np.where(belongs, s, -np.inf),
        "capped": np.where(belongs, capped, -np.inf),
        "masked": np.where(belongs & (j <= i + lengths - 6), capped + bias.astype(float), -np.inf),
    }
    tolerance = 2 * TOLERANCE[np.dtype(dtype).name]
    for stage, scores in expected.items():
        result = keel.attention(q, k, v, **options, return_scores=stage)
        assert result.scores.dtype == q.dtype and result.weights is None
        np.testing.assert_allclose(result.scores.astype(float), scores, rtol=tolerance, atol=tolerance)
        np.testing.assert_array_equal(result.out, keel.attention(q, k, v, **options))


def test_explain_names_a_kernel():
    q, k, v = arrays((1, 2, 64, 32), (1, 2, 64, 32), (1, 2, 64, 32))
    assert "kernel" in keel.explain(q, k, v, causal=True)


def test_explain_needs_no_memory_for_the_result():
    x = np.broadcast_to(np.float32(1), (1, 64, 2**32, 64))  # 64 TiB
    assert "kernel" in keel.explain(x, x, x)


def test_the_gil_is_released_while_it_computes():
    q, k, v = arrays((1, 4, 2000, 64), (1, 4, 2000, 64), (1, 4, 2000, 64))
    done = threading.Event()

    def compute():
        for _ in range(3):
            keel.attention(q, k, v, threads=1)
        done.set()

    # If the GIL were held, this thread could only run between calls: about five times, not hundreds.
    thread = threading.Thread(target=compute)
    turns = 0
    thread.start()
    while not done.is_set():
        time.sleep(0.0001)
        turns += 1
    thread.join()
    assert turns > 50


def test_a_child_forked_while_another_thread_computes_computes_too():
    code = """
import os, threading, warnings
import keel, numpy as np
warnings.simplefilter("ignore")  # Python warns about forks with threads
x = np.random.default_rng(0).standard_normal((1, 8, 256, 64), dtype=np.float32)
compute = lambda: keel.attention(x, x, x, threads=2).tobytes()
expected, stop = compute(), threading.Event()
def work():
    while not stop.is_set():
        compute()
thread = threading.Thread(target=work)
thread.start()
codes = set()
for _ in range(100):
    child = os.fork()
    if child == 0:
        import signal
        signal.alarm(30)
        os._exit(0 if compute() == expected else 1)
    codes.add(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
    if codes != {0}:
        break
stop.set()
thread.join()
print(codes)
"""
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300)
    assert (ran.stdout, ran.stderr) == ("{0}\n", "")
