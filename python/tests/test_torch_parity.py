"""keel.torch.scaled_dot_product_attention against torch's own, over torch's argument space, forward and gradients.

The yardstick is torch's in float64 on the same numbers. Keel may err by twice what torch errs in the dtype of the
call, plus the figures of docs/semantics.md at the size of the largest result: both round, and neither rounds alike.
Beside a float32 mask torch computes 16-bit tensors in float32 throughout; what it errs with the mask in their own
dtype then counts if it is more. To a gradient comes what `noise` says.
"""

import keel.torch
import torch
import torch.nn.functional as F
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from keel.torch import _sdpa, _short

EXAMPLES = 650  # each in four dtypes
FORWARD = {torch.float64: 1e-12, torch.float32: 2e-6, torch.float16: 2**-10, torch.bfloat16: 2**-7}
BACKWARD = FORWARD | {torch.float32: 1e-5}

ROUNDOFF = {torch.float64: 2**-53, torch.float32: 2**-24, torch.float16: 2**-11, torch.bfloat16: 2**-8}

seen = {"cases": 0, "gradients": 0}


def laid_out(x, layout):
    """The values of x in another place of memory."""
    if layout == "bnhd" and x.dim() >= 3:
        return x.transpose(-3, -2).contiguous().transpose(-3, -2)
    if layout == "sliced":
        wide = torch.full(x.shape[:-1] + (2 * x.shape[-1] + 1,), float("nan"), dtype=x.dtype)
        wide[..., 1::2] = x
        return wide[..., 1::2]
    if layout == "transposed":
        return x.transpose(-1, -2).contiguous().transpose(-1, -2)
    if layout == "expanded" and x.dim() >= 3:
        return x[..., :1, :, :].expand(x.shape)
    return x


@st.composite
def calls(draw):
    size = st.one_of(st.integers(1, 9), st.sampled_from([1, 17, 40]))
    n_q, n_k = draw(size), draw(size)
    d_k = draw(st.sampled_from([1, 2, 3, 8, 16, 17]))
    d_v = draw(st.sampled_from([d_k, d_k, d_k, 5]))
    rank = draw(st.sampled_from([4, 4, 4, 2, 3, 5]))
    lead = [draw(st.integers(1, 3)) for _ in range(rank - 2)]
    generator = torch.Generator().manual_seed(draw(st.integers(0, 2**32 - 1)))

    def tensor(*shape):
        layout = draw(st.sampled_from(["plain", "plain", "bnhd", "sliced", "transposed", "expanded"]))
        return torch.randn(shape, generator=generator, dtype=torch.float64), layout

    gqa = rank >= 3 and draw(st.booleans())
    q_lead, k_lead = list(lead), list(lead)
    if gqa:
        q_lead[-1] = k_lead[-1] * draw(st.integers(1, 3))
    elif lead and draw(st.sampled_from([False, False, True])):  # batches that broadcast
        at = draw(st.integers(0, rank - 3))
        draw(st.sampled_from([q_lead, k_lead]))[at] = 1
    if rank > 2 and not gqa and draw(st.sampled_from([False] * 5 + [True])):
        k_lead = k_lead[1:]
    q, k, v = tensor(*q_lead, n_q, d_k), tensor(*k_lead, n_k, d_k), tensor(*k_lead, n_k, d_v)

    options = {"enable_gqa": True} if gqa else {}
    masking = draw(st.sampled_from(["none", "none", "causal", "bool", "float", "same"]))
    if masking == "causal":
        options["is_causal"] = True
    elif masking != "none":
        full = [max(a, b) for a, b in zip(q_lead, [1] * (len(q_lead) - len(k_lead)) + k_lead)] + [n_q, n_k]
        if gqa:
            full = q_lead + [n_q, n_k]
        shape = [draw(st.sampled_from([s, s, 1])) for s in full][draw(st.integers(0, len(full) - 2)) :]
        if masking == "bool":
            mask = torch.rand(shape, generator=generator) < draw(st.sampled_from([0.3, 0.8]))
        else:
            mask = torch.randn(shape, generator=generator, dtype=torch.float32 if masking == "float" else torch.float64)
            if draw(st.booleans()):
                mask[torch.rand(shape, generator=generator) < 0.3] = -float("inf")
        options["attn_mask"] = mask
    if draw(st.booleans()):
        options["scale"] = draw(st.sampled_from([0.5, 1.0, -0.25, 0.0, 2]))
    return (q, k, v), options


def run(function, tensors, options, dtype, seed, differentiate):
    leaves = [x.detach().to(dtype).requires_grad_(differentiate) if x.dtype != dtype else x.detach() for x in tensors]
    for leaf in leaves:
        leaf.requires_grad_(differentiate)
    options = dict(options)
    mask = options.get("attn_mask")
    if mask is not None and mask.is_floating_point():
        mask = mask.detach().to(torch.float64 if dtype == torch.float64 else mask.dtype)
        options["attn_mask"] = mask.requires_grad_(differentiate)
        leaves.append(options["attn_mask"])
    out = function(*leaves[:3], **options)
    if not differentiate:
        return [out], None
    dout = torch.randn(out.shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).to(
        tensors[0].dtype
    )
    return [out.detach(), *torch.autograd.grad(out, leaves, dout.to(dtype))], dout


def noise(name, tensors, options, out, dout):
    """What the scores' gradient ds = p·(dout·v − dout·out) may carry into the gradient `name`, `out` being rounded to
    its dtype.

    Where there is a single key, ds is 0, and what is left of the difference is not. The errors of rows that are
    summed go as the root of their number.
    """
    if name in ("out", "dv"):
        return 0.0
    q, k, _ = (x.double() for x in tensors)
    ds = ROUNDOFF[out.dtype] * (dout.double().norm(dim=-1).max() * out.double().norm(dim=-1).max()).item()
    rows, scale = out.numel() // out.shape[-1], abs(options.get("scale", q.shape[-1] ** -0.5))
    if name == "dq":
        return ds * scale * k.abs().max().item() * (rows / (q.numel() // q.shape[-1])) ** 0.5
    if name == "dk":
        return ds * scale * q.abs().max().item() * (rows * k.shape[-2] / (k.numel() // k.shape[-1])) ** 0.5
    return ds * (rows * k.shape[-2] / options["attn_mask"].numel()) ** 0.5


@settings(
    max_examples=EXAMPLES, deadline=None, database=None, derandomize=True, suppress_health_check=list(HealthCheck)
)
@given(calls(), st.booleans(), st.sampled_from([_short.sdpa, _short.sdpa, _short.sdpa_in_python]))
def matches_torch(call, differentiate, way):
    values, options = call
    _sdpa.short = way
    for dtype in FORWARD:
        tensors = [laid_out(x.to(dtype), layout) for x, layout in values]
        mask = options.get("attn_mask")
        if mask is not None and mask.dtype == torch.float64:  # of the tensors' dtype
            check(tensors, options | {"attn_mask": mask.to(dtype)}, differentiate)
        else:
            check(tensors, options, differentiate)


def check(tensors, options, differentiate):
    dtype = tensors[0].dtype
    seed = sum(x.numel() for x in tensors)
    ours, dout = run(keel.torch.scaled_dot_product_attention, tensors, options, dtype, seed, differentiate)
    torchs, _ = run(F.scaled_dot_product_attention, tensors, options, dtype, seed, differentiate)
    straightforward = torchs
    mask = options.get("attn_mask")
    if dtype.itemsize == 2 and mask is not None and mask.dtype == torch.float32:
        straightforward, _ = run(
            F.scaled_dot_product_attention, tensors, options | {"attn_mask": mask.to(dtype)}, dtype, seed, differentiate
        )
    exact = torchs
    if dtype != torch.float64:
        exact, _ = run(F.scaled_dot_product_attention, tensors, options, torch.float64, seed, differentiate)
    seen["cases"] += 1
    seen["gradients"] += differentiate
    for name, a, b, c, e in zip(("out", "dq", "dk", "dv", "dmask"), ours, torchs, straightforward, exact):
        assert a.shape == b.shape and a.dtype == b.dtype, name
        assert torch.isfinite(a).all(), name
        defined = torch.isfinite(e)  # torch's gradients of fully masked rows may be NaN
        if not defined.any():
            continue
        error, *others = ((x.double() - e)[defined].nan_to_num().abs().max().item() for x in (a, b, c))
        allowed = max(others)
        unit = (FORWARD if name == "out" else BACKWARD)[dtype] * max(1.0, e[defined].abs().max().item())
        unit += noise(name, tensors, options, ours[0], dout)
        assert error <= 2 * allowed + unit, (name, error, allowed, unit)


def test_matches_torch_on_two_thousand_calls_and_more(monkeypatch):
    monkeypatch.setattr(_sdpa, "short", _short.sdpa)  # and put it back afterwards
    matches_torch()
    assert seen["cases"] >= 2000 and seen["gradients"] >= 500, seen
