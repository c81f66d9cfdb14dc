"""Keel as an attention implementation for Hugging Face models: attn_implementation="keel".

import keel.transformers

keel.transformers.register()
model = AutoModelForCausalLM.from_pretrained(name, attn_implementation="keel")
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

import keel.torch


def register(name: str = "keel") -> None:
    """Makes `attn_implementation=name` work in the models of transformers that use its AttentionInterface.

    Models build their masks as for "sdpa". Grouped heads are read in place, not repeated. Softcaps, sinks and position
    biases are supported. It may be called more than once.

    Shapes: query (B, H_q, N_q, D), key and value (B, H_kv, N_k, D), attention_mask (B, 1, N_q, N_k).

    >>> import keel.transformers
    >>> keel.transformers.register()
    """
    from transformers import AttentionInterface, AttentionMaskInterface
    from transformers.masking_utils import sdpa_mask

    AttentionInterface.register(name, attention_forward)
    AttentionMaskInterface.register(name, sdpa_mask)


def attention_forward(
    module: torch.nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    dropout: float = 0.0,
    scaling: float | None = None,
    is_causal: bool | None = None,
    softcap: float | None = None,
    s_aux: Tensor | None = None,
    position_bias: Tensor | None = None,
    **kwargs: Any,
) -> tuple[Tensor, None]:
    """What transformers calls in each attention layer; returns (B, N_q, H_q, D), and no weights."""
    if kwargs.get("output_attentions"):
        raise ValueError(
            "[attention] output_attentions: expected False with Keel, got True; use 'eager' for the weights"
        )
    # A mask, if there is one, holds the whole pattern. Without one, several queries are the start of a prompt, over a
    # cache that may be longer, and a single query sees every key.
    if is_causal is None:
        is_causal = getattr(module, "is_causal", True)
    causal = "top_left" if query.shape[2] > 1 and attention_mask is None and is_causal else None
    if position_bias is None and softcap is None and s_aux is None:
        out = keel.torch.scaled_dot_product_attention(
            query, key, value, attention_mask, dropout, causal is not None, scale=scaling, enable_gqa=True
        )
    else:
        bias = position_bias
        if attention_mask is not None and attention_mask.is_floating_point():
            bias = attention_mask if bias is None else bias + attention_mask
            attention_mask = None
        out = keel.torch.attention(
            query,
            key,
            value,
            mask=attention_mask,
            bias=bias,
            causal=causal,
            scale=scaling,
            softcap=softcap,
            sinks=s_aux,
            dropout=dropout,
        )
    return out.transpose(1, 2).contiguous(), None
