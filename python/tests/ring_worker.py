"""What each process of test_ring.py runs, under torchrun: ring_worker.py CASE[,CASE...] [tensors|cuda].

"tensors" takes the ring of the GPUs, on tensors of the CPU; "cuda" takes it on GPU 0 (or one per process, under NCCL).
"""

import contextlib
import os
import signal
import sys
import time

import keel.torch
import torch
import torch.distributed as dist
import torch.nn.functional as F
from keel.torch import context_parallel, ring_attention, shard
from torch.distributed.device_mesh import init_device_mesh

HOW = sys.argv[2] if len(sys.argv) > 2 else ""
DEVICE = torch.device("cuda", int(os.environ.get("KEEL_TEST_GPU", 0))) if HOW == "cuda" else torch.device("cpu")


def my_rows(n, layout="zigzag"):
    return torch.tensor(
        [i for part in shard(n, dist.get_world_size(), dist.get_rank(), layout) for i in part],
        dtype=torch.int64,
        device=DEVICE,
    )


def whole(*shape, seed=0, dtype=torch.float64):
    x = torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    return x.to(dtype).to(DEVICE)


def close(name, got, expected, limit):
    error = torch.where(got == expected, 0.0, (got - expected).abs()).max().item() if got.numel() else 0.0
    assert error <= limit, f"{name}: off by {error}"


@contextlib.contextmanager
def refused(text):
    try:
        yield
    except (ValueError, NotImplementedError) as error:
        assert text in str(error), str(error)
    else:
        raise AssertionError(f"nothing was raised where {text!r} was expected")


def gradients():
    """Outputs and all gradients are those of one process that has everything."""
    for layout, mode, causal, n in (
        ("zigzag", "ring", True, 37),
        ("contiguous", "ring" if HOW else "ordered", None, 20),
        ("zigzag", "ring", "bottom_right", 1),
    ):
        q, k, v = (whole(2, h, n, 8, seed=s).requires_grad_() for s, h in ((1, 4), (2, 2), (3, 2)))
        sinks = whole(4, seed=4).requires_grad_()
        scale = (0.3 + 0.1 * whole(1, 4, 1, seed=5)).detach().requires_grad_()
        bias = whole(1, 1, n, n, seed=6).requires_grad_()
        dout = whole(2, 4, n, 8, seed=7)
        torch.manual_seed(dist.get_rank())  # each rank's own; the dropout is rank 0's
        options = {"causal": causal, "scale": scale, "sinks": sinks}
        expected = keel.torch.attention(q, k, v, bias=bias, **options)
        want = torch.autograd.grad(expected, (q, k, v, sinks, scale, bias), dout)
        rows = my_rows(n, layout)
        mine = [x.detach()[:, :, rows].requires_grad_() for x in (q, k, v)]
        own_bias = bias.detach()[:, :, rows].requires_grad_()
        out = ring_attention(*mine, layout=layout, mode=mode, bias=own_bias, **options)
        close("out", out, expected[:, :, rows], 1e-12)
        got = torch.autograd.grad(out, (*mine, sinks, scale, own_bias), dout[:, :, rows])
        for name, g, w in zip("qkv", got, want):
            close(f"d{name}", g, w[:, :, rows], 1e-12)
        close("dbias", got[5], want[5][:, :, rows], 1e-12)
        for name, g, w in (("dsinks", got[3], want[3]), ("dscale", got[4], want[4])):
            total = g.clone()
            dist.all_reduce(total)
            close(name, total, w, 1e-12)


def positions():
    """Masks by position, lengths and packed entries, for even and odd lengths and fewer rows than ranks."""
    lengths = {"q_lengths": torch.tensor([5, 20]), "k_lengths": torch.tensor([21, 3])}
    packed = {"q_offsets": torch.tensor([0, 4, 22]), "k_offsets": torch.tensor([0, 9, 23])}
    cases = [
        (layout, n_q, n_k, options)
        for layout in ("zigzag", "contiguous")
        for n_q, n_k in ((22, 23), (16, 16), (1, 9), (9, 1))
        for options in (
            {},
            {"causal": True},
            {"causal": "bottom_right", "window": (3, None)},
            {"window": (2, 1)},
            {"causal": True, "alibi": torch.tensor([0.5, 0.25], dtype=torch.float64), "softcap": 3.0},
        )
    ]
    cases += [("zigzag", 22, 23, {**lengths, "causal": causal}) for causal in (None, True, "bottom_right")]
    cases += [("contiguous", 22, 23, {**packed, "causal": causal}) for causal in (None, True, "bottom_right")]
    for layout, n_q, n_k, options in cases:
        case = f"{layout} {n_q} {n_k} {options}"
        entries = 1 if "q_offsets" in options else 2
        options = {name: x.to(DEVICE) if name == "alibi" else x for name, x in options.items()}
        sinks = whole(2, seed=5)
        q, k, v = (whole(entries, 2, n, 8, seed=s).requires_grad_() for s, n in ((1, n_q), (2, n_k), (3, n_k)))
        expected, expected_lse = keel.torch.attention(q, k, v, sinks=sinks, return_lse=True, **options)[:2]
        dout, dlse = whole(*expected.shape, seed=6), whole(*expected_lse.shape, seed=7)
        want = torch.autograd.grad((expected, expected_lse), (q, k, v), (dout, dlse))
        rows, keys = my_rows(n_q, layout), my_rows(n_k, layout)
        mine = [x.detach()[:, :, r].requires_grad_() for x, r in ((q, rows), (k, keys), (v, keys))]
        out, lse = ring_attention(*mine, layout=layout, sinks=sinks, return_lse=True, **options)
        close(f"out of {case}", out, expected[:, :, rows], 1e-12)
        close(f"lse of {case}", lse, expected_lse[:, :, rows], 1e-12)
        got = torch.autograd.grad((out, lse), mine, (dout[:, :, rows], dlse[:, :, rows]))
        for name, g, w, r in zip("qkv", got, want, (rows, keys, keys)):
            close(f"d{name} of {case}", g, w[:, :, r], 1e-12)


def halves():
    """16-bit tensors: within the rounding of the result of what float64 gives, as in one process."""
    n = 300
    for dtype, limit in ((torch.bfloat16, 2**-7), (torch.float16, 2**-10)):
        q, k, v, dout = (whole(1, 2, n, 64, seed=s, dtype=dtype) for s in (1, 2, 3, 4))
        exact = [x.double().requires_grad_() for x in (q, k, v)]
        expected = keel.torch.attention(*exact, causal=True)
        want = torch.autograd.grad(expected, exact, dout.double())
        rows = my_rows(n)
        mine = [x[:, :, rows].requires_grad_() for x in (q, k, v)]
        out = ring_attention(*mine, causal=True)
        got = torch.autograd.grad(out, mine, dout[:, :, rows])
        for name, g, w in zip(("out", "dq", "dk", "dv"), (out, *got), (expected, *want)):
            w = w[:, :, rows]
            close(f"{name} in {dtype}", g.double(), w, 2 * limit * w.abs().max().item())


def messages():
    """What a rank sends arrives at the next one; alone, at itself, which NCCL does."""
    ring = keel.torch._ring_tensors
    whole_of = ring.Whole(16, 16, "zigzag", None)
    rank, size = whole_of.rank, whole_of.size
    ring.share("messages", None, DEVICE, rank)
    for tag, length in ((0, 1), (1, 1000), (0, 123457)):
        sent, into = whole(length, seed=rank, dtype=torch.float32), torch.empty(length, device=DEVICE)
        exchange = ring._Exchange(whole_of, tag, ((rank + 1) % size, sent), (rank - 1) % size, into)
        exchange.wait()
        assert torch.equal(into, whole(length, seed=(rank - 1) % size, dtype=torch.float32))


def modes():
    """What the ring on GPUs does not do is refused by all ranks, and so are other options on one rank."""
    q = whole(1, 1, len(my_rows(16)), 4)
    for options, text in (
        ({"mode": "ordered"}, "mode: expected 'ring' on a GPU, got 'ordered'"),
        ({"layout": "spiral"}, "layout: expected 'zigzag' or 'contiguous'"),
        ({"causal": True if dist.get_rank() else None}, "options: expected those of rank 0 on all ranks"),
        ({"n_q": 20}, "q: expected"),
    ):
        if "causal" in options and dist.get_world_size() == 1:
            continue  # no other rank to differ from
        with refused(text):
            ring_attention(q, q, q, **options)


def dropout():
    """All ranks drop what rank 0's seed says, in the positions of the whole."""
    n = 30
    q = whole(1, 2, n, 8, seed=1)
    rows = my_rows(n)
    torch.manual_seed(7 + dist.get_rank())
    out = ring_attention(q[:, :, rows], q[:, :, rows], q[:, :, rows], dropout=0.4)
    torch.manual_seed(7)
    close("out", out, keel.torch.attention(q, q, q, dropout=0.4)[:, :, rows], 1e-12)


def second_derivatives():
    """They are refused, where autograd is asked for them."""
    q = whole(1, 2, len(my_rows(16)), 8).requires_grad_()
    (dq,) = torch.autograd.grad(ring_attention(q, q, q).square().sum(), q, create_graph=True)
    torch.autograd.grad(ring_attention(q, q, q).square().sum(), q)
    with refused("[ring_attention] second derivatives are not computed over ranks"):
        (dq.square().sum() + q.sum()).backward()


def slopes():
    """Their gradient is refused by all ranks."""
    q, alibi = whole(1, 2, len(my_rows(16)), 8), whole(2).requires_grad_()
    with refused("[ring_attention] alibi: expected a tensor that is not differentiated"):
        ring_attention(q, q, q, alibi=alibi).sum().backward()


def autocast():
    """Inputs are cast as by keel.torch.attention, and gradients back."""
    n = 24
    q, bias = whole(1, 2, n, 8, seed=1, dtype=torch.float32), whole(1, 1, n, n, seed=2, dtype=torch.float32)
    mine, own_bias = (x[:, :, my_rows(n)].requires_grad_() for x in (q, bias))
    expected = ring_attention(*(mine.bfloat16(),) * 3, bias=own_bias.bfloat16())
    with torch.autocast(DEVICE.type, torch.bfloat16):
        out = ring_attention(mine, mine, mine, bias=own_bias)
        assert torch.equal(out, expected) and out.dtype == torch.bfloat16
        with context_parallel(init_device_mesh(DEVICE.type, (dist.get_world_size(),))):
            assert torch.equal(F.scaled_dot_product_attention(mine, mine, mine, attn_mask=own_bias), expected)
    out.float().sum().backward()
    assert mine.grad.dtype == own_bias.grad.dtype == torch.float32


def mask_beside_causal():
    """Under context_parallel a mask beside is_causal=True composes, as it does in one process."""
    n = 24
    q = whole(1, 2, n, 8, seed=1)
    mask = torch.rand(1, 1, n, n, generator=torch.Generator().manual_seed(2)) < 0.7
    mask |= torch.eye(n, dtype=torch.bool)
    expected = F.scaled_dot_product_attention(q, q, q, mask.tril())[:, :, my_rows(n)]
    with context_parallel(init_device_mesh("cpu", (dist.get_world_size(),)), buffers=[q, mask], buffer_seq_dims=[2, 2]):
        out = F.scaled_dot_product_attention(q, q, q, attn_mask=mask, is_causal=True)
    close("out", out, expected, 1e-12)


def on_top():
    """Under context_parallel, what a Monitor or replace() puts in its place inside does not attend to this rank's rows
    alone, and neither does what is left when they end."""
    n = 24
    q = whole(1, 2, n, 8, seed=1)
    expected = F.scaled_dot_product_attention(q, q, q, is_causal=True)[:, :, my_rows(n)]
    torchs = F.scaled_dot_product_attention
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    with keel.torch.replace(), context_parallel(mesh, buffers=[q], buffer_seq_dims=[2]):
        for inner in (keel.torch.replace, lambda: keel.torch.Monitor(torch.nn.Identity())):
            with inner():
                close("out inside", F.scaled_dot_product_attention(q, q, q, is_causal=True), expected, 1e-12)
            close("out after", F.scaled_dot_product_attention(q, q, q, is_causal=True), expected, 1e-12)
        close("keel's own", keel.torch.scaled_dot_product_attention(q, q, q, is_causal=True), expected, 1e-12)
        with refused("expected ring_attention within context_parallel, got attention"):
            keel.torch.attention(q, q, q)
    keel.torch.attention(q, q, q)
    assert F.scaled_dot_product_attention is torchs


class Gpt(torch.nn.Module):
    def __init__(self, vocabulary=31, width=32, heads=4, layers=2, length=64):
        super().__init__()
        self.heads = heads
        self.tokens, self.positions = torch.nn.Embedding(vocabulary, width), torch.nn.Embedding(length, width)
        self.blocks = torch.nn.ModuleList(
            torch.nn.ModuleDict(
                {
                    "qkv": torch.nn.Linear(width, 3 * width),
                    "out": torch.nn.Linear(width, width),
                    "up": torch.nn.Linear(width, 4 * width),
                    "down": torch.nn.Linear(4 * width, width),
                }
            )
            for _ in range(layers)
        )
        self.head = torch.nn.Linear(width, vocabulary)

    def forward(self, tokens, positions):
        x = self.tokens(tokens) + self.positions(positions)
        for block in self.blocks:
            y = F.layer_norm(x, x.shape[-1:])
            q, k, v = (z.unflatten(-1, (self.heads, -1)).transpose(1, 2) for z in block["qkv"](y).chunk(3, -1))
            x = x + block["out"](F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2))
            x = x + block["down"](F.gelu(block["up"](F.layer_norm(x, x.shape[-1:]))))
        return self.head(x)


def losses(model, logits_of, vocabulary, n, steps, mesh=None):
    """The loss of each step; with a mesh, each rank has some rows, and gradients are summed over ranks."""
    optimiser = torch.optim.AdamW(model.parameters(), lr=3e-3)
    generator = torch.Generator().manual_seed(1)
    curve = []
    for _ in range(steps):
        start = torch.randint(0, vocabulary, (2, 1), generator=generator)
        tokens = (start + 3 * torch.arange(n + 1)) % vocabulary
        noise = torch.rand(tokens.shape, generator=generator) < 0.1
        tokens = torch.where(noise, torch.randint(0, vocabulary, tokens.shape, generator=generator), tokens)
        inputs, labels = tokens[:, :-1].clone(), tokens[:, 1:].clone()
        positions = torch.arange(n).repeat(2, 1)
        visible = torch.ones(1, 1, n, n, dtype=torch.bool).tril()  # of which a rank has its own queries

        def loss_of():
            logits = logits_of(inputs, positions, visible)
            return F.cross_entropy(logits.flatten(0, 1), labels.flatten(), reduction="sum") / (2 * n)

        optimiser.zero_grad()
        if mesh is None:
            loss = loss_of()
            loss.backward()
        else:
            with context_parallel(mesh, buffers=[inputs, labels, positions, visible], buffer_seq_dims=[1, 1, 1, 2]):
                loss = loss_of()
                loss.backward()
            assert inputs.shape == (2, n), "the buffers are restored"
            for parameter in model.parameters():
                if parameter.grad is None:
                    parameter.grad = torch.zeros_like(parameter)
                dist.all_reduce(parameter.grad)
            loss = loss.detach().clone()
            dist.all_reduce(loss)
        optimiser.step()
        curve.append(loss.item())
    return curve


def same_curves(make, logits_of, vocabulary, n, steps):
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    curves = []
    for where in (None, mesh):
        torch.manual_seed(3)
        model = make()
        curves.append(losses(model, lambda *x, model=model: logits_of(model, *x), vocabulary, n, steps, where))
    worst = max(abs(a - b) for a, b in zip(*curves))
    assert curves[0][-1] < 0.8 * curves[0][0], f"it learns: {curves[0][0]} to {curves[0][-1]}"
    assert worst <= 1e-5, f"curves differ by {worst}"
    print(f"{steps} steps, loss {curves[0][0]:.3f} to {curves[0][-1]:.3f}, largest difference {worst:.2g}", flush=True)


def gpt():
    same_curves(Gpt, lambda model, x, p, _: model(x, p), 31, 63, 50)


def llama():
    from transformers import LlamaConfig, LlamaForCausalLM

    def make():
        config = LlamaConfig(
            vocab_size=31,
            hidden_size=32,
            intermediate_size=64,
            num_hidden_layers=2,
            num_attention_heads=4,
            num_key_value_heads=2,
            max_position_embeddings=128,
            attn_implementation="sdpa",
        )
        return LlamaForCausalLM(config)

    def logits_of(model, tokens, positions, visible):
        return model(input_ids=tokens, position_ids=positions, attention_mask=visible, use_cache=False).logits

    same_curves(make, logits_of, 31, 63, 50)


def refuse():
    """A wrong argument of one rank, in Python's checks or in the library's, is raised by all."""
    n, rank = 16, dist.get_rank()
    q = whole(1, 1, len(my_rows(n)), 4)
    for wrong, text in (({"causal": 5}, "rank 1"), ({"softcap": -1.0}, "rank 1"), ({"window": (3, 0)}, "rank 1")):
        try:
            ring_attention(q, q, q, **(wrong if rank == 1 else {}))
        except (ValueError, TypeError, RuntimeError) as error:
            assert rank == 1 or text in str(error), str(error)
        else:
            raise AssertionError(f"nothing was raised for {wrong}")
    ring_attention(q, q, q)


def kill():
    """Rank 1 dies in a call; the others raise."""
    n = 64
    q = whole(1, 1, len(my_rows(n)), 4)
    if dist.get_rank() == 1:
        transport = keel.torch._ring._Transport
        sent = []

        def isend(self, *arguments, before=transport.isend):
            sent.append(arguments)
            if len(sent) == 4:
                os.kill(os.getpid(), signal.SIGKILL)
            return before(self, *arguments)

        transport.isend = isend
    started = time.monotonic()
    try:
        for _ in range(10):
            ring_attention(q, q, q)
    except RuntimeError as error:
        print(f"raised after {time.monotonic() - started:.1f} s: {error}", flush=True)
        os._exit(0)
    raise AssertionError("nothing was raised")


if __name__ == "__main__":
    torch.set_num_threads(1)
    if HOW == "cuda":
        torch.cuda.set_device(DEVICE)
    elif HOW == "tensors":
        keel.torch._ring._by_tensors = lambda q: True
    dist.init_process_group(os.environ.get("KEEL_TEST_BACKEND", "gloo"))
    for case in sys.argv[1].split(","):
        globals()[case]()
        print(f"rank {dist.get_rank()}: {case} passed", flush=True)
    dist.barrier()
    dist.destroy_process_group()
