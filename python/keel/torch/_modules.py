"""Attention as modules: nn.Module, batch first, with the score functions and temperatures of the lab."""

from __future__ import annotations

import math
import warnings
from typing import Any

import torch
from torch import Tensor, nn

from keel.torch._attention import attention
from keel.torch._check import check_tensor, refuse

_SCORES = ("scaled", "dot", "general", "additive")


class ScaledDotProductAttention(nn.Module):
    """softmax(score(q, k)) v on tensors (B, N, D), or (B, H, N, D) with heads.

    score        "scaled": q·k/√d_k. "dot": q·k. "general": qᵀ W k (Luong). "additive": wᵀ tanh(W_q q + W_k k)
                 (Bahdanau). The last two learn, and need d_k.
    temperature  what q·k is divided by: None for √d_k (1 with "dot"), a number, or "learned", which begins at √d_k, one
                 per head. Not with "additive".
    dropout      of the weights, while training
    d_k, heads   sizes, where something is learned

    forward(q, k, v, mask=None, is_causal=False, return_weights=False) returns the output, or (output, weights), the
    weights detached and after dropout. In a boolean mask True means visible, as in torch's
    scaled_dot_product_attention; a mask of numbers is added to the scores. torch.tril(torch.ones(n, n)) is such a mask
    of numbers: it hides nothing. Pass it as .bool().

    >>> import torch
    >>> from keel.torch import ScaledDotProductAttention
    >>> q, k, v = torch.randn(2, 5, 64), torch.randn(2, 7, 64), torch.randn(2, 7, 32)
    >>> out, weights = ScaledDotProductAttention()(q, k, v, return_weights=True)
    >>> out.shape, weights.shape
    (torch.Size([2, 5, 32]), torch.Size([2, 5, 7]))
    """

    def __init__(
        self,
        *,
        score: str = "scaled",
        temperature: float | str | None = None,
        dropout: float = 0.0,
        d_k: int | None = None,
        heads: int = 1,
    ) -> None:
        super().__init__()
        name = "ScaledDotProductAttention"
        if score not in _SCORES:
            refuse(name, "score", f"one of {', '.join(_SCORES)}", repr(score))
        learned = temperature == "learned"
        if temperature is not None and not learned and not _is_positive(temperature):
            refuse(name, "temperature", "None, 'learned' or a positive number", repr(temperature))
        if temperature is not None and score == "additive":
            refuse(name, "temperature", "None with score 'additive', which has no q·k to divide", repr(temperature))
        size = d_k or 0
        if (learned or score in ("general", "additive")) and size < 1:
            refuse(name, "d_k", "the size of a head, since something is learned", d_k)
        if not 0 <= dropout < 1:
            refuse(name, "dropout", "a number in [0, 1)", dropout)
        self.score, self.temperature, self.dropout = score, temperature, dropout
        if learned:
            self.log_temperature = nn.Parameter(torch.full((heads,), 0.5 * math.log(size)))
        if score == "general":
            self.w = nn.Linear(size, size, bias=False)
        elif score == "additive":
            self.w_q, self.w_k = nn.Linear(size, size, bias=False), nn.Linear(size, size, bias=False)
            self.v = nn.Parameter(torch.randn(size) / math.sqrt(size))

    def forward(
        self,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        mask: Tensor | None = None,
        is_causal: bool = False,
        return_weights: bool = False,
    ) -> Any:
        name = "ScaledDotProductAttention"
        for label, x in (("q", q), ("k", k), ("v", v)):
            check_tensor(name, label, x)
            if x.dim() not in (3, 4) or x.dim() != q.dim():
                refuse(name, label, "(B, N, D), or (B, H, N, D) like the others", tuple(x.shape))
        flat = q.dim() == 3
        if flat:
            q, k, v = q.unsqueeze(1), k.unsqueeze(1), v.unsqueeze(1)
            mask = mask.unsqueeze(1) if mask is not None and mask.dim() == 3 else mask
        check_mask(name, mask)
        options: dict[str, Any] = {"causal": is_causal or None}
        if mask is not None:
            options["mask"] = mask
        if self.dropout and self.training:
            options["dropout"] = self.dropout
        if self.score == "additive":
            # softmax(scores) v is attention whose scores are all bias.
            hidden = torch.tanh(self.w_q(q).unsqueeze(3) + self.w_k(k).unsqueeze(2))
            scores = hidden @ self.v
            if mask is not None and mask.dtype != torch.bool:
                scores = scores + options.pop("mask")
            options |= {"bias": scores, "scale": 0.0}
        else:
            q = self.w(q) if self.score == "general" else q
            options["scale"] = self._scale(q.shape[-1])
        if not return_weights:
            out = attention(q, k, v, **options)
            return out.squeeze(1) if flat else out
        found = attention(q, k, v, return_weights=True, **options)
        return (found.out.squeeze(1), found.weights.squeeze(1)) if flat else (found.out, found.weights)

    def _scale(self, d_k: int) -> Any:
        if self.temperature == "learned":
            return torch.exp(-self.log_temperature).view(1, -1, 1)
        if self.temperature is not None:
            return 1 / float(self.temperature)
        return 1.0 if self.score == "dot" else 1 / math.sqrt(d_k)

    def extra_repr(self) -> str:
        return f"score={self.score!r}, temperature={self.temperature!r}, dropout={self.dropout}"


class MultiHeadAttention(nn.Module):
    """Attention in several heads, with the four projections: W_o · concat(head_1, …), as torch.nn.MultiheadAttention
    with batch_first=True.

    embed_dim, num_heads  sizes; a head has head_dim, embed_dim / num_heads by default
    kdim, vdim            sizes of key and value, embed_dim by default
    bias                  of the projections
    dropout, score, temperature   as in ScaledDotProductAttention

    forward(query, key=None, value=None, mask=None, is_causal=False, return_weights=False): key is query by default,
    value is key. The mask is that of ScaledDotProductAttention, for all heads (B, N_q, N_k) or for each
    (B, H, N_q, N_k): True means seen, the opposite of torch.nn.MultiheadAttention's. Weights are (B, H, N_q, N_k).

    >>> import torch
    >>> from keel.torch import MultiHeadAttention
    >>> x = torch.randn(2, 10, 32)
    >>> out, weights = MultiHeadAttention(32, 4)(x, is_causal=True, return_weights=True)
    >>> out.shape, weights.shape, weights.triu(1).abs().max().item()
    (torch.Size([2, 10, 32]), torch.Size([2, 4, 10, 10]), 0.0)
    """

    def __init__(
        self,
        embed_dim: int,
        num_heads: int,
        *,
        dropout: float = 0.0,
        bias: bool = True,
        kdim: int | None = None,
        vdim: int | None = None,
        head_dim: int | None = None,
        score: str = "scaled",
        temperature: float | str | None = None,
    ) -> None:
        super().__init__()
        if num_heads < 1 or (head_dim is None and embed_dim % num_heads):
            refuse("MultiHeadAttention", "num_heads", f"a divisor of embed_dim {embed_dim}, or head_dim", num_heads)
        head_dim = head_dim or embed_dim // num_heads
        self.num_heads, self.head_dim = num_heads, head_dim
        self.w_q = nn.Linear(embed_dim, num_heads * head_dim, bias=bias)
        self.w_k = nn.Linear(kdim or embed_dim, num_heads * head_dim, bias=bias)
        self.w_v = nn.Linear(vdim or kdim or embed_dim, num_heads * head_dim, bias=bias)
        self.w_o = nn.Linear(num_heads * head_dim, embed_dim, bias=bias)
        self.attention = ScaledDotProductAttention(
            score=score, temperature=temperature, dropout=dropout, d_k=head_dim, heads=num_heads
        )

    def forward(
        self,
        query: Tensor,
        key: Tensor | None = None,
        value: Tensor | None = None,
        mask: Tensor | None = None,
        is_causal: bool = False,
        return_weights: bool = False,
    ) -> Any:
        key = query if key is None else key
        value = key if value is None else value
        for label, x in (("query", query), ("key", key), ("value", value)):
            check_tensor("MultiHeadAttention", label, x)
            if x.dim() != 3:
                refuse("MultiHeadAttention", label, "(B, N, D)", tuple(x.shape))
        if mask is not None and mask.dim() == 3:
            mask = mask.unsqueeze(1)
        heads = [
            project(x).unflatten(-1, (self.num_heads, self.head_dim)).transpose(1, 2)
            for project, x in ((self.w_q, query), (self.w_k, key), (self.w_v, value))
        ]
        found = self.attention(*heads, mask=mask, is_causal=is_causal, return_weights=return_weights)
        out, weights = found if return_weights else (found, None)
        out = self.w_o(out.transpose(1, 2).flatten(2))
        return (out, weights) if return_weights else out


def check_mask(name: str, mask: Tensor | None) -> None:
    """Refuses a mask of integers; warns of one of numbers that looks like a boolean one."""
    if mask is None:
        return
    check_tensor(name, "mask", mask)
    if mask.dtype != torch.bool and not mask.dtype.is_floating_point:
        refuse(name, "mask", "bool, or numbers to add to the scores", mask.dtype)
    if mask.dtype == torch.bool or torch.compiler.is_compiling() or mask.requires_grad:
        return
    ones = mask == 1
    if bool(ones.any()) and bool((ones | (mask == 0)).all()):
        warnings.warn(
            f"[{name}] mask: a mask of numbers is added to the scores, and this one has only 0 and 1, as "
            "torch.tril(torch.ones(n, n)) has: it hides nothing. For a mask of what is seen, pass mask.bool()",
            stacklevel=3,
        )


def _is_positive(x: Any) -> bool:
    return isinstance(x, (int, float)) and not isinstance(x, bool) and 0 < x < math.inf
