"""Masks in tiles, FlexAttention's among them, and biases by distance."""

import keel
import numpy as np
import pytest

torch = pytest.importorskip("torch")
import keel.torch  # noqa: E402
import torch.nn.functional as F  # noqa: E402
from torch.nn.attention.flex_attention import create_block_mask  # noqa: E402

N = 150


def tensors(batch=2, heads=4, kv_heads=2, n=N, d=16, dtype=torch.float32, seed=0):
    g = torch.Generator().manual_seed(seed)
    shapes = ((heads, d), (kv_heads, d), (kv_heads, d))
    return [torch.randn(batch, h, n, size, generator=g, dtype=dtype).requires_grad_() for h, size in shapes]


def dense_of(mask, n_q, n_k):
    """What a mask shows, (B, H, n_q, n_k)."""
    offsets, blocks, tiles = (np.asarray(part) for part in mask)
    _, rows, keys = tiles.shape
    batch, heads, ends = offsets.shape
    full = np.zeros((batch, heads, (ends - 1) * rows, -(-n_k // keys) * keys), bool)
    for b in range(batch):
        for h in range(heads):
            for x in range(ends - 1):
                for block, tile in blocks[offsets[b, h, x] : offsets[b, h, x + 1]]:
                    at = full[b, h, x * rows : (x + 1) * rows, block * keys : (block + 1) * keys]
                    at[...] = True if tile < 0 else tiles[tile]
    return torch.from_numpy(full[:, :, :n_q, :n_k])


def expect_like_dense(mask, dense):
    """Output and gradients are those of torch's attention with the mask in full."""
    q, k, v = tensors()
    out = keel.torch.attention(q, k, v, block_mask=mask)
    other = F.scaled_dot_product_attention(q, k, v, attn_mask=dense, enable_gqa=True)
    torch.testing.assert_close(out, other, atol=2e-6, rtol=1e-5)
    dout = torch.randn_like(out)
    for mine, theirs in zip(torch.autograd.grad(out, (q, k, v), dout), torch.autograd.grad(other, (q, k, v), dout)):
        torch.testing.assert_close(mine, theirs, atol=1e-5, rtol=1e-4)


def test_numpy_masks_are_boolean_masks():
    rng = np.random.default_rng(0)
    visible = rng.random((2, 3, 40, 70)) < 0.7
    visible[:, :, :8, 16:32] = False
    visible[:, :, 8:16, :16] = True
    mask = keel.block_mask(lambda b, h, i, j: visible[b, h][i, j], 2, 3, 40, 70, block=(8, 16))
    np.testing.assert_array_equal(dense_of(mask, 40, 70), visible)
    q, dout = rng.standard_normal((2, 2, 3, 40, 8))
    k, v = rng.standard_normal((2, 2, 3, 70, 8))
    a = keel.attention(q, k, v, block_mask=mask, return_lse=True)
    b = keel.attention(q, k, v, mask=visible, return_lse=True)
    np.testing.assert_allclose(a.out, b.out, atol=1e-13)
    options = [{"block_mask": mask}, {"mask": visible}]
    ours, theirs = (keel.attention_backward(q, k, v, a.out, a.lse, dout, **each) for each in options)
    for x, y in zip(ours[:3], theirs[:3]):
        np.testing.assert_allclose(x, y, atol=1e-12)


def test_equal_tiles_are_kept_once():
    mask = keel.block_mask(lambda b, h, i, j: j <= i, 1, 1, 1024, 1024)
    assert mask.tiles.shape == (1, 128, 128)
    assert len(mask.blocks) == 36


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("block", [32, (16, 64), 128])
def test_documents_see_their_own(causal, block):
    ids = torch.tensor([[0] * 20 + [1] * 100 + [2] * 30, [5] * 50 + [3] * 70 + [5] * 30])  # one goes on later
    dense = ids[:, :, None] == ids[:, None, :]
    dense = (dense.tril() if causal else dense)[:, None]
    mask = keel.torch.document_mask(ids, causal=causal, block=block)
    assert torch.equal(dense_of(mask, N, N), dense)
    expect_like_dense(mask, dense)


def test_a_prefix_is_seen_by_all():
    i, j = torch.arange(N)[:, None], torch.arange(N)
    dense = ((j <= i) | (j < torch.tensor([0, 70])[:, None, None]))[:, None]
    mask = keel.torch.prefix_lm(N, torch.tensor([0, 70]), block=32)
    assert torch.equal(dense_of(mask, N, N), dense)
    expect_like_dense(mask, dense)
    assert torch.equal(dense_of(keel.torch.prefix_lm(N, 70, block=32), N, N)[0], dense[1])


def offset_causal(b, h, i, j):
    return (j <= i + 3 * h) & ((i // 40 == j // 40) | (j < 10 * b + 5))


@pytest.mark.parametrize(("batch", "heads"), [(2, 4), (None, None), (None, 4)])
def test_flex_attentions_masks_are_taken(batch, heads):
    flex = create_block_mask(offset_causal, batch, heads, N, N, device="cpu", BLOCK_SIZE=32)
    b, h = torch.arange(batch or 1)[:, None, None, None], torch.arange(heads or 1)[:, None, None]
    dense = offset_causal(b, h, torch.arange(N)[:, None], torch.arange(N))
    expect_like_dense(flex, dense)
    own = keel.torch.block_mask(offset_causal, batch or 1, heads or 1, N, N, block=32)
    assert torch.equal(dense_of(own, N, N), dense)


def test_flex_masks_are_converted_once():
    calls = []

    def counted(b, h, i, j):
        calls.append(1)
        return j <= i

    flex = create_block_mask(counted, None, None, N, N, device="cpu", BLOCK_SIZE=32)
    q, k, v = tensors()
    keel.torch.attention(q, k, v, block_mask=flex)
    before = len(calls)
    keel.torch.attention(q, k, v, block_mask=flex)
    assert len(calls) == before > 0


def test_block_masks_compile_and_vmap():
    mask = keel.torch.document_mask(torch.arange(N) // 40, block=32)
    q, k, v = tensors(kv_heads=4)

    @torch.compile(fullgraph=True, backend="aot_eager")
    def block(q, k, v):
        return keel.torch.attention(q, k, v, block_mask=mask) * 2

    out = keel.torch.attention(q, k, v, block_mask=mask)
    torch.testing.assert_close(block(q, k, v), 2 * out)
    stacked = torch.stack([q, 2 * q])
    each = torch.vmap(lambda q: keel.torch.attention(q, k, v, block_mask=mask))(stacked)
    torch.testing.assert_close(each[0], out)


def test_block_masks_meet_other_options():
    ids = torch.arange(N) // 40
    q, k, v = tensors()
    mask = keel.torch.document_mask(ids, causal=False, block=32)
    bias = torch.randn(4, N, N)
    out = keel.torch.attention(q, k, v, block_mask=mask, bias=bias, causal=True)
    dense = bias.masked_fill(~(ids[:, None] == ids).tril(), -torch.inf)
    other = F.scaled_dot_product_attention(q, k, v, attn_mask=dense, enable_gqa=True)
    torch.testing.assert_close(out, other, atol=2e-6, rtol=1e-5)


def test_derivatives_along_tangents_are_those_of_a_dense_mask():
    q, k, v = (x.detach().double() for x in tensors())
    ids = torch.arange(N) // 40
    dense = (ids[:, None] == ids).tril()
    mask = keel.torch.document_mask(ids, block=32)
    t = torch.randn(q.shape, dtype=q.dtype, generator=torch.Generator().manual_seed(4))

    def call(options):
        def loss(q):
            return keel.torch.attention(q, k, v, **options).square().sum()

        moved = torch.func.jvp(lambda q: keel.torch.attention(q, k, v, **options), (q,), (t,))[1]
        hessian_times_t = torch.func.jvp(torch.func.grad(loss), (q,), (t,))[1]
        leaf = q.clone().requires_grad_()
        (gradient,) = torch.autograd.grad(loss(leaf), leaf, create_graph=True)
        return moved, hessian_times_t, torch.autograd.grad((gradient * t).sum(), leaf)[0]

    for ours, theirs in zip(call({"block_mask": mask}), call({"mask": dense})):
        torch.testing.assert_close(ours, theirs)
    table = torch.randn(4, 2 * N - 1, dtype=q.dtype, generator=torch.Generator().manual_seed(5))
    distance = torch.arange(N) - torch.arange(N)[:, None] + N - 1
    for ours, theirs in zip(call({"relative_bias": table}), call({"bias": table[:, distance]})):
        torch.testing.assert_close(ours, theirs)


def test_wrong_masks_are_refused():
    q, k, v = (x.detach() for x in tensors())
    with pytest.raises(TypeError, match=r"block_mask: expected a keel.BlockMask or one of torch.*, got Tensor"):
        keel.torch.attention(q, k, v, block_mask=torch.ones(N, N))
    with pytest.raises(TypeError, match=r"block_mask: expected a keel.BlockMask, got .*ndarray"):
        keel.attention(q, k, v, block_mask=np.ones((N, N)))
    mask = keel.torch.document_mask(torch.zeros(64, dtype=torch.int64))
    with pytest.raises(ValueError, match=r"block_mask.offsets: expected shape .* got \(1, 1, 2\)"):
        keel.torch.attention(q, k, v, block_mask=tuple(mask))
    with pytest.raises(TypeError, match=r"\[document_mask\] ids: expected a tensor of integers"):
        keel.torch.document_mask(torch.zeros(64))
    with pytest.raises(ValueError, match=r"\[block_mask\] block: expected sizes of at least 1, got 0"):
        keel.torch.prefix_lm(64, 3, block=0)


def test_t5s_table_is_t5s_bias():
    t5 = pytest.importorskip("transformers.models.t5.modeling_t5")
    from transformers import T5Config

    for decoder in (False, True):
        config = T5Config(d_model=32, num_heads=4, d_kv=8, num_layers=1, is_decoder=decoder)
        layer = t5.T5Attention(config, has_relative_attention_bias=True)
        bias = layer.compute_bias(300, 300)
        weight = layer.relative_attention_bias.weight
        table = keel.torch.t5_table(weight, bidirectional=not decoder)
        at = (torch.arange(300) - torch.arange(300)[:, None]).clamp(-128, 128) + 128
        assert torch.equal(table[:, at][None], bias)
        q, k, v = tensors(kv_heads=4, n=300)
        options = {"scale": 1.0, "causal": decoder}
        mine = keel.torch.attention(q, k, v, relative_bias=table, **options)
        theirs = keel.torch.attention(q, k, v, bias=bias, **options)
        torch.testing.assert_close(mine, theirs, atol=2e-6, rtol=1e-5)
        dout = torch.randn_like(mine)
        ours, others = (torch.autograd.grad(out, weight, dout)[0] for out in (mine, theirs))
        torch.testing.assert_close(ours, others, atol=1e-4, rtol=1e-4)


def test_masks_of_other_lengths_are_refused():
    q = torch.randn(1, 2, 33, 8)
    causal = create_block_mask(lambda b, h, i, j: j <= i, 1, 1, 20, 20, device="cpu", BLOCK_SIZE=128)
    refused = r"\[attention\] block_mask: expected a mask of 33 queries and 33 keys, .* got one of 20 and 20"
    for mask in (causal, keel.torch.prefix_lm(20, 5), keel.torch.document_mask(torch.zeros(20, dtype=torch.int64))):
        with pytest.raises(ValueError, match=refused):
            keel.torch.attention(q, q, q, block_mask=mask)
    mask = keel.block_mask(lambda b, h, i, j: j <= i, 1, 1, 20, 20)
    x = q.numpy()
    out, lse, *_ = keel.attention(x, x, x, return_lse=True)
    with pytest.raises(ValueError, match=refused):
        keel.attention(x, x, x, block_mask=mask)
    with pytest.raises(ValueError, match=refused.replace("attention", "attention_backward", 1)):
        keel.attention_backward(x, x, x, out, lse, out, block_mask=mask)
    keel.attention(x, x, x, block_mask=tuple(mask))  # arrays without lengths are taken at their word


def test_relative_bias_has_the_gradient_of_differences():
    q, k, v = tensors(batch=1, n=7, d=3, dtype=torch.float64)
    for heads in (4, 1):
        table = torch.randn(heads, 5, dtype=torch.float64, requires_grad=True)

        def attend(q, table):
            return keel.torch.attention(q, k, v, relative_bias=table, causal="bottom_right")

        assert torch.autograd.gradcheck(attend, (q, table))


def test_gradients_of_relative_bias_by_name():
    rng = np.random.default_rng(1)
    q, k, v, dout = rng.standard_normal((4, 1, 2, 9, 4))
    table = rng.standard_normal((2, 7))
    out, lse, *_ = keel.attention(q, k, v, relative_bias=table, return_lse=True)
    ask = {"relative_bias": table, "want": ("drelative_bias",)}
    got = keel.attention_backward(q, k, v, out, lse, dout, **ask).drelative_bias
    index = np.clip(np.arange(9) - np.arange(9)[:, None], -3, 3) + 3
    dense = table[:, index]
    dbias = keel.attention_backward(q, k, v, out, lse, dout, bias=dense, want=("dbias",)).dbias
    want = np.array([[dbias[h][index == at].sum() for at in range(7)] for h in range(2)])
    np.testing.assert_allclose(got, want, atol=1e-13)
    with pytest.raises(ValueError, match=r"relative_bias: expected shape \(2, 2R \+ 1\)"):
        keel.attention(q, k, v, relative_bias=np.zeros((2, 4)))
    with pytest.raises(ValueError, match="expected drelative_bias only together with relative_bias, got it alone"):
        keel.attention_backward(q, k, v, out, lse, dout, want=("drelative_bias",))
