"""Derivatives along tangents and second derivatives: of arrays, and through torch's autograd, forward_ad and func."""

import keel
import numpy as np
import pytest

torch = pytest.importorskip("torch")

import keel.torch  # noqa: E402
from torch.autograd import forward_ad, gradcheck, gradgradcheck  # noqa: E402


def random_problem(seed):
    """Inputs that have derivatives, and a function of them with every option now and then."""
    g = np.random.default_rng(seed)
    torch.manual_seed(seed)
    batch, kv_heads, group, n_q, n_k, d_k, d_v = (int(g.integers(1, top)) for top in (3, 3, 3, 6, 6, 5, 5))
    chance = lambda p: g.random() < p  # noqa: E731
    packed = chance(0.15)
    if packed:
        batch, n_q, n_k = 1, 5, 6
    heads = kv_heads * group

    def leaf(*shape):
        return torch.randn(*shape, dtype=torch.float64, requires_grad=True)

    def broadcast(*shape):
        return tuple(1 if chance(0.3) else n for n in shape)

    q, k, v = leaf(batch, heads, n_q, d_k), leaf(batch, kv_heads, n_k, d_k), leaf(batch, kv_heads, n_k, d_v)
    inputs = {"q": q, "k": k, "v": v}
    options = {}
    if chance(0.3):
        options["mask"] = torch.rand(broadcast(batch, heads, n_q, n_k)) < 0.7
    if chance(0.4):
        inputs["bias"] = leaf(*broadcast(batch, heads, n_q, n_k))
    if chance(0.4):
        options["causal"] = str(g.choice(["top_left", "bottom_right"]))
    if chance(0.3):
        options["window"] = (int(g.integers(0, 4)), int(g.integers(0, 4)))
    if packed:
        options["q_offsets"], options["k_offsets"] = torch.tensor([0, 2, 5]), torch.tensor([0, 3, 6])
    elif chance(0.3):
        options["k_lengths"] = torch.tensor(g.integers(0, n_k + 1, batch))
    elif chance(0.2):
        options["q_lengths"] = torch.tensor(g.integers(0, n_q + 1, batch))
    if chance(0.3):
        options["softcap"] = float(g.uniform(0.5, 3))
    if chance(0.3):
        options["alibi"] = torch.rand(*((batch, heads) if chance(0.5) else (heads,)), dtype=torch.float64)
    if chance(0.4):
        inputs["sinks"] = leaf(heads)
    if chance(0.4):
        inputs["scale"] = leaf(*broadcast(batch, heads, n_q))
    elif chance(0.3):
        options["scale"] = float(g.uniform(0.2, 2))
    if chance(0.3):
        options["dropout"] = float(g.uniform(0.1, 0.6))
    if chance(0.2):
        visible = torch.tensor(g.random((n_q, n_k)) < 0.7)
        options["block_mask"] = keel.block_mask(lambda b, h, i, j: visible.numpy()[i, j], 1, 1, n_q, n_k, block=3)
    if chance(0.2):
        options["relative_bias"] = torch.randn(heads, 5, dtype=torch.float64)
    if chance(0.2) and not packed:
        options["k_starts"] = torch.tensor(g.integers(0, n_k, batch))
    return inputs, options, seed


def attend(names, options, seed):
    def call(*values):
        torch.manual_seed(seed)  # of dropout
        q, k, v, *others = values
        out, lse, _ = keel.torch.attention(q, k, v, return_lse=True, **dict(zip(names[3:], others)), **options)
        return out, lse.masked_fill(lse == -torch.inf, 0)

    return call


def check_problems(seeds):
    """The names of the inputs and options that the problems have."""
    met = set()
    for seed in seeds:
        inputs, options, seed = random_problem(seed)
        call, values = attend(list(inputs), options, seed), tuple(inputs.values())
        described = f"seed {seed}: {[tuple(x.shape) for x in values]}, {list(inputs)}, {options}"
        assert gradcheck(call, values, check_forward_ad=True, check_backward_ad=False, fast_mode=True), described
        assert gradgradcheck(call, values, check_fwd_over_rev=True, fast_mode=True), described
        met.update(inputs, options)
    return met


def test_gradgradcheck_on_random_problems():
    assert check_problems(range(24)) >= {"mask", "bias", "causal", "window", "softcap", "sinks", "scale", "dropout"}


@pytest.mark.deep
def test_gradgradcheck_on_many_random_problems():
    assert check_problems(range(240)) == {
        *("q", "k", "v", "mask", "bias", "causal", "window", "q_offsets", "k_offsets", "k_lengths", "q_lengths"),
        *("softcap", "alibi", "sinks", "scale", "dropout", "block_mask", "relative_bias", "k_starts"),
    }


def test_every_element_of_one_problem():
    q, k, v = (torch.randn(1, 2, 3, 2, dtype=torch.float64, requires_grad=True) for _ in range(3))
    bias = torch.randn(1, 1, 3, 3, dtype=torch.float64, requires_grad=True)
    call = attend(["q", "k", "v", "bias"], {"causal": True, "softcap": 2.0}, 0)
    assert gradcheck(call, (q, k, v, bias), check_forward_ad=True)
    assert gradgradcheck(call, (q, k, v, bias), check_fwd_over_rev=True)


def eager(q, k, v):
    s = q @ k.transpose(-1, -2) / q.shape[-1] ** 0.5
    mask = torch.ones(s.shape[-2:], dtype=torch.bool).tril()
    return s.masked_fill(~mask, -torch.inf).softmax(-1) @ v


def sdpa(q, k, v):
    return keel.torch.scaled_dot_product_attention(q, k, v, is_causal=True)


def qkv(n=7, d=4, dtype=torch.float64):
    torch.manual_seed(1)
    return tuple(torch.randn(2, 3, n, d, dtype=dtype) for _ in range(3))


@pytest.mark.parametrize("call", [sdpa, lambda *x: keel.torch.attention(*x, causal=True)], ids=["sdpa", "attention"])
def test_torch_func_agrees_with_eager(call):
    x, t = qkv(), qkv(n=7)[::-1]
    for ours, theirs in zip(torch.func.jvp(call, x, t), torch.func.jvp(eager, x, t)):
        torch.testing.assert_close(ours, theirs)
    loss, same = (lambda q, f=f: f(q, *x[1:]).square().sum() for f in (call, eager))
    # forward over reverse, and reverse over reverse
    ours, theirs = (torch.func.jvp(torch.func.grad(f), x[:1], t[:1])[1] for f in (loss, same))
    torch.testing.assert_close(ours, theirs)
    ours, theirs = (torch.func.grad(lambda q, f=f: (torch.func.grad(f)(q) * t[0]).sum())(x[0]) for f in (loss, same))
    torch.testing.assert_close(ours, theirs)


@pytest.mark.parametrize("call", [sdpa, lambda *x: keel.torch.attention(*x, causal=True)], ids=["sdpa", "attention"])
def test_dual_tensors_move_along(call):
    (q, k, v), (tq, tk, tv) = qkv(), qkv()[::-1]
    with forward_ad.dual_level():
        dual = [forward_ad.make_dual(x, t) for x, t in ((q, tq), (k, tk), (v, tv))]
        out, tangent = forward_ad.unpack_dual(call(*dual))
        one = forward_ad.unpack_dual(call(q, dual[1], v)).tangent
        assert forward_ad.unpack_dual(call(q, k, v)).tangent is None
    want, moved = torch.func.jvp(eager, (q, k, v), (tq, tk, tv))
    torch.testing.assert_close(out, want)
    torch.testing.assert_close(tangent, moved)
    torch.testing.assert_close(one, torch.func.jvp(lambda k: eager(q, k, v), (k,), (tk,))[1])


@pytest.mark.parametrize("call", [sdpa, lambda *x: keel.torch.attention(*x, causal=True)], ids=["sdpa", "attention"])
def test_a_gradient_penalty_agrees_with_eager(call):
    results = []
    for f in (call, eager):
        x = [y.clone().requires_grad_() for y in qkv()]
        weight = torch.ones(4, dtype=torch.float64, requires_grad=True)
        gradients = torch.autograd.grad((f(*x) * weight).sum(), x, create_graph=True)
        sum(g.square().sum() for g in gradients).backward()
        results.append([y.grad for y in (*x, weight)])
    for ours, theirs in zip(*results):
        torch.testing.assert_close(ours, theirs)


def test_torch_funcs_hessian_is_not_there():
    q, k, v = qkv(n=3, d=2)
    with pytest.raises((ValueError, RuntimeError)):
        torch.func.hessian(lambda q: sdpa(q, k, v).square().sum())(q)
    ours, theirs = (
        torch.autograd.functional.hessian(lambda q, f=f: f(q, k, v).square().sum(), q) for f in (sdpa, eager)
    )
    torch.testing.assert_close(ours, theirs)


def test_third_derivatives_are_refused():
    q, k, v = (x.requires_grad_() for x in qkv())
    (dq,) = torch.autograd.grad(sdpa(q, k, v).square().sum(), q, create_graph=True)
    (second,) = torch.autograd.grad(dq.square().sum(), q, create_graph=True)
    with pytest.raises(NotImplementedError, match="third derivatives of attention are not computed"):
        torch.autograd.grad(second.sum(), q)


def test_second_derivatives_of_a_relative_bias_are_refused():
    q, k, v = (x.requires_grad_() for x in qkv())
    table = torch.randn(3, 5, dtype=torch.float64, requires_grad=True)
    loss = keel.torch.attention(q, k, v, relative_bias=table).square().sum()
    dq, dtable = torch.autograd.grad(loss, (q, table), create_graph=True)
    with pytest.raises(NotImplementedError, match="relative_bias"):
        torch.autograd.grad(dtable.sum(), k, retain_graph=True)
    with pytest.raises(NotImplementedError, match="relative_bias"):
        torch.autograd.grad(dq.sum(), table, retain_graph=True)
    with pytest.raises(NotImplementedError, match="relative_bias"), forward_ad.dual_level():
        keel.torch.attention(q, k, v, relative_bias=forward_ad.make_dual(table.detach(), torch.ones_like(table)))


def test_derivatives_with_respect_to_alibi_are_refused():
    q, k, v = (x.requires_grad_() for x in qkv())
    slopes = torch.rand(3, dtype=torch.float64)
    message = r"\[attention\] alibi: expected a tensor that is not differentiated, got one that is"
    attend = lambda q, slopes: keel.torch.attention(q, k, v, alibi=slopes).square().sum()  # noqa: E731
    loss = attend(q, slopes.clone().requires_grad_())
    with pytest.raises(NotImplementedError, match=message):
        loss.backward()
    for function in (attend, lambda q, slopes: torch.func.grad(attend)(q, slopes).sum()):
        with pytest.raises(NotImplementedError, match=message):
            torch.func.grad(function, 1)(q.detach(), slopes)
    with pytest.raises(NotImplementedError, match=message), forward_ad.dual_level():
        keel.torch.attention(q, k, v, alibi=forward_ad.make_dual(slopes, torch.ones_like(slopes)))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_other_dtypes_are_close(dtype):
    x, t = qkv(n=40, d=16, dtype=dtype), qkv(n=40, d=16, dtype=dtype)[::-1]
    wide = [[y.double() for y in each] for each in (x, t)]
    moved, want = torch.func.jvp(sdpa, x, t)[1], torch.func.jvp(eager, *map(tuple, wide))[1]
    assert moved.dtype == dtype
    tolerance = 4 * torch.finfo(dtype).eps * want.abs().max()
    torch.testing.assert_close(moved.double(), want, atol=float(tolerance), rtol=0)


def arrays():
    g = np.random.default_rng(3)
    q, k, v, dout = (g.standard_normal((1, 2, 6, 4)) for _ in range(4))
    out, lse, *_ = keel.attention(q, k, v, scale=0.7, return_lse=True)
    return q, k, v, dout, out, lse, keel.Tangents(*(g.standard_normal((1, 2, 6, 4)) for _ in range(3)), tscale=0.3)


def test_arrays_match_differences():
    q, k, v, dout, out, lse, t = arrays()

    def at(h):
        x = (q + h * t.tq, k + h * t.tk, v + h * t.tv)
        o, s, *_ = keel.attention(*x, scale=0.7 + h * t.tscale, return_lse=True)
        g = keel.attention_backward(*x, o, s, dout, scale=0.7 + h * t.tscale, want=("dq", "dk", "dv", "dscale"))
        return o, s, g.dq, g.dk, g.dv, g.dscale

    moved = keel.attention_jvp(q, k, v, out, lse, t, scale=0.7)
    want = ("dq", "dk", "dv", "dscale", "ddout", "ddlse")
    second = keel.attention_double_backward(q, k, v, out, lse, dout, t, scale=0.7, want=want)
    results = (*moved, second.dq, second.dk, second.dv, second.dscale)
    for above, below, result in zip(at(1e-5), at(-1e-5), results):
        np.testing.assert_allclose(result, (above - below) / 2e-5, atol=1e-8)
    np.testing.assert_allclose(second.ddout, moved.tout, atol=1e-14)
    np.testing.assert_allclose(second.ddlse, moved.tlse, atol=1e-14)


def test_errors_name_what_is_wrong():
    q, k, v, dout, out, lse, t = arrays()
    with pytest.raises(TypeError, match=r"\[attention_jvp\] tangents: expected keel.Tangents, got dict"):
        keel.attention_jvp(q, k, v, out, lse, {"tq": q})
    with pytest.raises(ValueError, match=r"\[attention_jvp\] tk: expected shape of k = \(1, 2, 6, 4\), got \(1, 2, 5"):
        keel.attention_jvp(q, k, v, out, lse, t._replace(tk=k[:, :, 1:]))
    with pytest.raises(ValueError, match=r"\[attention_jvp\] tbias: expected none without a bias, got a view"):
        keel.attention_jvp(q, k, v, out, lse, t._replace(tbias=np.zeros((1, 1, 6, 6))))
    with pytest.raises(ValueError, match=r"backward\] want: expected names from dq, .*, ddlse, got 'dx'"):
        keel.attention_double_backward(q, k, v, out, lse, dout, t, want=("dx",))
    with pytest.raises(ValueError, match=r"backward\] origin: expected all keys here, got 6 from 0 of 8"):
        keel.attention_double_backward(q, k, v, out, lse, dout, t, origin=(0, 0, 6, 8))
