"""keel.jax: against keel.attention, and its gradients against JAX's own of a plain implementation."""

import inspect
import os
import subprocess
import sys

import keel
import numpy as np
import pytest
from keel._options import TABLE, JaxOptions, source_of
from test_options import EXAMPLES

os.environ.setdefault("JAX_PLATFORMS", "cpu")
jax = pytest.importorskip("jax", reason="jax is not installed")
pytest.importorskip("keel._jax", reason="the package was built without jaxlib: keel._jax is missing")

import jax.numpy as jnp  # noqa: E402
import keel.jax  # noqa: E402

RNG = np.random.default_rng(0)
Q, K, V = RNG.standard_normal((3, 1, 2, 6, 8), dtype=np.float32)
ON_GPU = jax.default_backend() == "gpu"
CPU_ALONE = ("block_mask", "relative_bias", "k_starts")  # options that the GPU refuses
JAX_EXAMPLES = {name: EXAMPLES[name] for name in JaxOptions.__annotations__ if not (ON_GPU and name in CPU_ALONE)}


def same(got, expected):
    """The bits of keel on the CPU; on a GPU, which sums in another order, within their rounding."""
    got, expected = np.asarray(got), np.asarray(expected)
    if not ON_GPU or got.dtype.kind == "i":
        return np.array_equal(got, expected)
    step = {"float64": 1e-12, "float32": 1e-5, "float16": 2e-3, "bfloat16": 1.6e-2}[got.dtype.name]
    return np.allclose(got.astype(np.float64), expected.astype(np.float64), rtol=step, atol=step)


@pytest.fixture(autouse=True)
def x64():
    """float64 is JAX's own wherever a test asks for it."""
    with jax.enable_x64(True):
        yield


def plain(q, k, v, *, bias=None, mask=None, scale=None, softcap=None, sinks=None, causal=False, lse=False):
    """Attention of equally many heads, written down."""
    scores = q @ jnp.swapaxes(k, -1, -2) * (q.shape[-1] ** -0.5 if scale is None else jnp.asarray(scale)[..., None])
    if softcap is not None:
        scores = softcap * jnp.tanh(scores / softcap)
    scores = scores if bias is None else scores + bias
    if causal:
        scores = jnp.where(jnp.tri(*scores.shape[-2:], dtype=bool), scores, -jnp.inf)
    scores = scores if mask is None else jnp.where(mask, scores, -jnp.inf)
    if sinks is not None:
        column = jnp.broadcast_to(sinks[:, None, None], (*scores.shape[:-1], 1))
        scores = jnp.concatenate([scores, column], -1)
    total = jax.nn.logsumexp(scores, -1)
    out = jnp.exp(scores - total[..., None])[..., : k.shape[-2]] @ v
    return (out, total) if lse else out


def traced(options):
    """The options with every array as one of JAX, and the others as they are."""
    return {name: jnp.asarray(x) if isinstance(x, np.ndarray) else x for name, x in options.items()}


def test_the_signature_shows_the_options():
    shown = inspect.signature(keel.jax.attention).parameters
    assert set(JaxOptions.__annotations__) == set(TABLE) - {"stream"}
    assert all(shown[name].default == TABLE[name].default for name in JaxOptions.__annotations__)


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("name", JAX_EXAMPLES)
def test_every_option_means_what_it_means_in_keel(name, compiled):
    value, beside = JAX_EXAMPLES[name]
    options = {name: value, **beside}
    expected = keel.attention(Q, K, V, **options, return_lse=True, return_stats=True)
    call = lambda q, k, v: keel.jax.attention(  # noqa: E731
        q, k, v, **traced(options), return_lse=True, return_stats=True
    )
    got = (jax.jit(call) if compiled else call)(Q, K, V)
    assert same(got.out, expected.out) and same(got.lse, expected.lse)
    for field in keel.RowStats._fields[:-1]:
        assert same(getattr(got.stats, field), getattr(expected.stats, field)), field
    assert got.stats.visible.dtype == np.int32 and got.stats.heads is None


@pytest.mark.parametrize("name", JAX_EXAMPLES)
def test_gradients_are_those_of_keel_for_every_option(name):
    value, beside = JAX_EXAMPLES[name]
    options = traced({name: value, **beside})
    dout, dlse = RNG.standard_normal(V.shape, dtype=np.float32), RNG.standard_normal(V.shape[:-1], dtype=np.float32)
    want = ["dq", "dk", "dv"]
    inputs = {"q": Q, "k": K, "v": V}
    for gradient in ("dbias", "dscale", "dsinks", "drelative_bias"):
        source = source_of(gradient, options)
        if source is not None and not isinstance(source, float) and source.dtype != bool:
            want.append(gradient)
            inputs[name] = source

    def call(inputs):
        result = keel.jax.attention(**{**options, **inputs}, return_lse=True)
        return result.out, result.lse

    (got,) = jax.jit(lambda x, cotangents: jax.vjp(call, x)[1](cotangents))(inputs, (dout, dlse))
    numpy_options = {name: value, **beside}
    result = keel.attention(Q, K, V, **numpy_options, return_lse=True)
    expected = keel.attention_backward(Q, K, V, result.out, result.lse, dout, dlse=dlse, want=want, **numpy_options)
    for gradient, at in zip(want, inputs):
        assert same(got[at], getattr(expected, gradient)), gradient


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"causal": True},
        {"bias": RNG.standard_normal((1, 2, 6, 6))},
        {"bias": RNG.standard_normal((6, 6))},
        {"mask": np.tri(6, dtype=bool)},
        {"scale": RNG.random((1, 2, 1))},
        {"scale": RNG.random((1, 2, 6)), "softcap": 2.0},
        {"scale": np.array(0.3)},
        {"sinks": RNG.standard_normal(2)},
    ],
    ids=lambda options: "-".join(options) or "plain",
)
def test_gradients_match_those_that_jax_takes_of_a_plain_implementation(options):
    q, k, v = (x.astype(np.float64) for x in (Q, K, V))
    weight, of_lse = RNG.standard_normal(v.shape), RNG.standard_normal(v.shape[:-1])
    moving = {name: x for name, x in options.items() if isinstance(x, np.ndarray) and x.dtype != bool}
    fixed = {name: x for name, x in options.items() if name not in moving}

    def loss(function):
        def total(q, k, v, moving):
            out, lse = function(q, k, v, **fixed, **moving)
            return (out * weight).sum() + (lse * of_lse).sum()

        return jax.jit(jax.value_and_grad(total, argnums=(0, 1, 2, 3)))(q, k, v, moving)

    def ours(*arrays, **options):
        result = keel.jax.attention(*arrays, **options, return_lse=True)
        return result.out, result.lse

    expected = loss(lambda *arrays, **options: plain(*arrays, **options, lse=True))
    for got, wanted in zip(jax.tree.leaves(loss(ours)), jax.tree.leaves(expected)):
        np.testing.assert_allclose(got, wanted, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("dtype", ["float64", "float32", "float16", "bfloat16"])
def test_every_dtype_has_the_bits_of_keel(dtype):
    q, k, v = (jnp.asarray(x, dtype) for x in (Q, K, V))
    expected = keel.attention(np.asarray(q), np.asarray(k), np.asarray(v), causal=True)
    got = keel.jax.attention(q, k, v, causal=True)
    assert got.dtype == q.dtype and same(got, expected)
    gradients = jax.grad(lambda *x: keel.jax.attention(*x, causal=True).astype(jnp.float32).sum(), (0, 1, 2))(q, k, v)
    assert all(x.dtype == q.dtype for x in gradients)
    wide = keel.jax.attention(q, k, v, causal=True, out_dtype=jnp.float64 if dtype == "float64" else jnp.float32)
    assert wide.dtype == (np.float64 if dtype == "float64" else np.float32)


def test_it_needs_no_64_bit_numbers_of_jax():
    lengths = jnp.asarray([4], jnp.int32)
    with jax.enable_x64(False):
        got = jax.jit(lambda q, n: keel.jax.attention(q, K, V, k_lengths=n, return_stats=True))(Q, lengths)
    expected = keel.attention(Q, K, V, k_lengths=[4], return_stats=True)
    assert same(got.out, expected.out) and same(got.stats.visible, expected.stats.visible)


def test_fewer_dimensions_grouped_heads_and_another_size_of_values():
    q, k, v = RNG.standard_normal((4, 5, 8)), RNG.standard_normal((2, 7, 8)), RNG.standard_normal((2, 7, 3))
    got = keel.jax.attention(q, k, v, return_lse=True)
    expected = keel.attention(q, k, v, return_lse=True)
    assert same(got.out, expected.out) and same(got.lse, expected.lse)
    assert same(keel.jax.attention(q[0], k[0], v[0]), keel.attention(q[0], k[0], v[0]))
    dk = jax.grad(lambda k: keel.jax.attention(q, k, v).sum())(k)
    repeated = jax.grad(lambda k: plain(q, jnp.repeat(k, 2, 0), jnp.repeat(v, 2, 0)).sum())(k)
    np.testing.assert_allclose(dk, repeated, rtol=1e-12, atol=1e-12)


def test_vmap_is_one_call_per_entry():
    q, k, v = RNG.standard_normal((3, 4, 1, 2, 6, 8), dtype=np.float32)
    bias, sinks = RNG.standard_normal((4, 6, 6), dtype=np.float32), RNG.standard_normal(2, dtype=np.float32)
    seeds = jnp.arange(4)
    call = lambda q, k, v, bias, sinks, seed: keel.jax.attention(  # noqa: E731
        q, k, v, bias=bias, sinks=sinks, dropout=0.3, seed=seed, causal=True
    )
    over = (0, None, 0, 0, None, 0)
    got = jax.jit(jax.vmap(call, over))(q, k[0], v, bias, sinks, seeds)
    for i in range(4):
        assert same(got[i], call(q[i], k[0], v[i], bias[i], sinks, i))

    def loss(*arrays):
        return (jax.vmap(call, over)(*arrays, seeds) ** 2).sum()

    gradients = jax.jit(jax.grad(loss, argnums=range(5)))(q, k[0], v, bias, sinks)
    entries = [
        jax.grad(lambda *x, i=i: (call(*x, seeds[i]) ** 2).sum(), argnums=range(5))(q[i], k[0], v[i], bias[i], sinks)
        for i in range(4)
    ]
    for at, (found, *parts) in enumerate(zip(gradients, *entries)):
        whole = np.stack(parts) if over[at] == 0 else np.sum(parts, 0)
        np.testing.assert_allclose(found, whole, rtol=1e-5, atol=1e-5)


def test_vmap_of_vmap():
    q, v = RNG.standard_normal((2, 3, 1, 2, 6, 8)), RNG.standard_normal((3, 1, 2, 6, 8))
    call = lambda q, v: keel.jax.attention(q, q, v)  # noqa: E731
    got = jax.vmap(jax.vmap(call), (0, None))(q, v)
    for i, j in np.ndindex(2, 3):
        assert same(got[i, j], call(q[i, j], v[j]))


def test_a_seed_may_be_a_number_an_array_or_a_key():
    call = jax.jit(lambda seed: keel.jax.attention(Q, K, V, dropout=0.5, seed=seed))
    expected = keel.attention(Q, K, V, dropout=0.5, seed=12345678901)
    assert same(keel.jax.attention(Q, K, V, dropout=0.5, seed=12345678901), expected)
    assert same(call(jnp.uint64(12345678901)), expected)
    assert same(call(jnp.uint32(7)), keel.attention(Q, K, V, dropout=0.5, seed=7))
    first, second = (call(jax.random.key(i)) for i in range(2))
    assert not np.array_equal(first, second) and np.array_equal(first, call(jax.random.key(0)))


def test_only_the_gradients_that_are_asked_for_are_computed():
    bias = jnp.zeros((1, 2, 6, 6), jnp.float32)
    text = str(jax.make_jaxpr(jax.grad(lambda q: keel.jax.attention(q, K, V, bias=bias).sum()))(Q))
    assert "'dq'" in text and "dbias" not in text and "dk" not in text, text


@pytest.mark.parametrize(
    "arguments, options, error, message",
    [
        ((Q, K[..., :4], V), {}, ValueError, r"\[attention\] k: expected d_k 8 as in q, got 4"),
        ((Q, K.astype(np.float64), V), {}, TypeError, r"\[attention\] k: expected dtype f32, got f64"),
        (([1.0], K, V), {}, TypeError, r"\[attention\] q: expected a JAX or NumPy array, got list"),
        ((Q, K, V), {"colour": 1}, TypeError, r"\[attention\] colour: expected one of the options mask, bias"),
        ((Q, K, V), {"stream": 1}, TypeError, r"\[attention\] stream: expected one of the options mask, bias"),
        ((Q, K, V), {"causal": "left"}, ValueError, r"\[attention\] causal: expected None, True, 'top_left'"),
        ((Q, K, V), {"window": (-1, 0)}, ValueError, r"\[attention\] window"),
        ((Q, K, V), {"dropout": 2.0}, ValueError, r"\[attention\] dropout"),
        ((Q, K, V), {"softcap": "high"}, TypeError, r"\[attention\] softcap: expected a number"),
        ((Q, K, V), {"bias": np.zeros((1, 3, 6, 6), np.float32)}, ValueError, r"\[attention\] bias"),
        ((Q, K, V), {"mask": np.zeros((6, 6), np.int32)}, TypeError, r"\[attention\] mask"),
        ((Q, K, V), {"bias": jnp.zeros((6, 6)), "mask": jnp.zeros((6, 6))}, TypeError, r"mask: expected dtype bool"),
        ((Q, K, V), {"sinks": np.zeros(3, np.float32)}, ValueError, r"\[attention\] sinks"),
        ((Q, K, V), {"k_lengths": [9]}, ValueError, r"\[attention\] k_lengths"),
        ((Q, K, V), {"k_lengths": []}, ValueError, r"\[attention\] k_lengths: expected at least one value, got none"),
        ((Q, K, V), {"k_lengths": [1.5]}, TypeError, r"\[attention\] k_lengths: expected a 64-bit integer, got 1.5"),
        ((Q, K, V), {"k_lengths": [1, 2]}, ValueError, r"\[attention\] k_lengths"),
        ((Q, K, V), {"k_lengths": jnp.zeros(2, jnp.int32)}, ValueError, r"\[attention\] k_lengths"),
        ((Q, K, V), {"k_lengths": jnp.zeros(1)}, TypeError, r"\[attention\] k_lengths: expected integers"),
        ((Q, K, V), {"seed": -1}, TypeError, r"\[attention\] seed: expected an integer from 0"),
        ((Q, K, V), {"seed": "x"}, TypeError, r"\[attention\] seed: expected an integer, an array"),
        ((Q, K, V), {"threads": 0}, ValueError, r"\[attention\] threads"),
        (
            (Q, K, V),
            {"block_mask": keel.block_mask(lambda b, h, i, j: j <= i, 1, 1, 3, 2)},
            ValueError,
            r"\[attention\] block_mask: expected a mask of",
        ),
        ((Q, K, V), {"block_mask": 3}, TypeError, r"\[attention\] block_mask: expected a keel.BlockMask"),
        ((Q, K, V), {"out_dtype": jnp.float16}, TypeError, r"\[attention\] out_dtype: expected float32, got float16"),
    ],
)
def test_wrong_arguments_are_errors_when_traced(arguments, options, error, message):
    with pytest.raises(error, match=message):
        jax.eval_shape(lambda: keel.jax.attention(*arguments, **options))


@pytest.mark.skipif(ON_GPU, reason="lengths on a GPU are read there alone")
def test_wrong_lengths_that_are_traced_are_errors_when_run():
    call = jax.jit(lambda n: keel.jax.attention(Q, K, V, k_lengths=n))
    assert same(call(jnp.array([3])), keel.attention(Q, K, V, k_lengths=[3]))
    with pytest.raises((ValueError, jax.errors.JaxRuntimeError), match=r"\[attention\] k_lengths"):
        call(jnp.array([9])).block_until_ready()


def test_a_gradient_that_is_not_computed_is_an_error():
    with pytest.raises(NotImplementedError, match=r"\[attention\] alibi: expected an array that is not differentiated"):
        jax.grad(lambda alibi: keel.jax.attention(Q, K, V, alibi=alibi).sum())(jnp.ones(2, jnp.float32))


@pytest.mark.skipif(not ON_GPU, reason="no GPU")
@pytest.mark.parametrize("name", CPU_ALONE)
def test_what_the_gpu_does_not_serve_is_an_error_that_says_so(name):
    with pytest.raises((NotImplementedError, jax.errors.JaxRuntimeError), match="cuda backend"):
        keel.jax.attention(Q, K, V, **{name: EXAMPLES[name][0]}).block_until_ready()


def test_long_rows_and_empty_ones():
    q, k, v = RNG.standard_normal((3, 2, 2, 300, 16), dtype=np.float32)
    assert same(jax.jit(keel.jax.attention)(q, k, v), keel.attention(q, k, v))
    assert keel.jax.attention(q[:, :, :0], k, v).shape == (2, 2, 0, 16)
    assert (keel.jax.attention(q, k[:, :, :0], v[:, :, :0]) == 0).all()


def test_an_older_jaxlib_is_refused_on_import(tmp_path):
    header = tmp_path / "xla/ffi/api/c_api.h"
    header.parent.mkdir(parents=True)
    header.write_text("#define XLA_FFI_API_MAJOR 0\n#define XLA_FFI_API_MINOR 0\n")
    code = (
        f"import jax; jax.ffi.include_dir = lambda: {str(tmp_path)!r}\n"
        "try:\n    import keel.jax\nexcept ImportError as error:\n    print(error)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "for which it was compiled, or newer, got 0.0" in done.stdout


def test_without_the_compiled_part_importing_says_what_to_do():
    code = (
        "import sys; sys.modules['keel._jax'] = None\n"
        "try:\n    import keel.jax\nexcept ImportError as error:\n    print(error)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.startswith("keel.jax needs its compiled part, keel._jax, which this package was built without")
