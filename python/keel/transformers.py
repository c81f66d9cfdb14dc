"""Keel as an attention implementation for Hugging Face models: attn_implementation="keel".

import keel.transformers

keel.transformers.register()
model = AutoModelForCausalLM.from_pretrained(name, attn_implementation="keel")
"""

from __future__ import annotations

import functools
import inspect
import re
import sys
from typing import Any

import torch
from torch import Tensor

import keel.torch

_names: set[str] = set()  # the implementations that stand for Keel


def register(name: str = "keel") -> None:
    """Makes `attn_implementation=name` work in the models of transformers that use its AttentionInterface.

    Models build their masks as for "sdpa". Grouped heads are read in place, not repeated. Softcaps, sinks and position
    biases are supported. This function may be called more than once.

    A model that does not go through the interface is refused with a ValueError when it is made, or when it is asked
    to change its implementation: it would never call Keel, and its own attention would misread the mask.

    Shapes: query (B, H_q, N_q, D), key and value (B, H_kv, N_k, D), attention_mask (B, 1, N_q, N_k).

    >>> import keel.transformers
    >>> keel.transformers.register()
    """
    from transformers import AttentionInterface, AttentionMaskInterface
    from transformers.masking_utils import sdpa_mask

    AttentionInterface.register(name, attention_forward)
    AttentionMaskInterface.register(name, sdpa_mask)
    if not _names:
        _refuse_models()
    _names.add(name)


def _refuse_models() -> None:
    """Has transformers' check of an implementation ask Keel too."""
    from transformers import PreTrainedModel

    def asking(method: Any) -> Any:
        @functools.wraps(method)
        def asks(self: Any, implementation: Any, *args: Any, **kwargs: Any) -> Any:
            _check_model(type(self), implementation)
            return method(self, implementation, *args, **kwargs)

        return asks

    # The second asks the first about the parts of a model, but only warns if the model itself cannot change.
    for name in ("get_correct_attn_implementation", "set_attn_implementation"):
        setattr(PreTrainedModel, name, asking(getattr(PreTrainedModel, name)))


def _check_model(kind: type, implementation: Any) -> None:
    if isinstance(implementation, dict):
        implementation = implementation.get("")
    if implementation in _names and not _goes_through_the_interface(kind):
        raise ValueError(
            f"[attention] attn_implementation: expected a model that uses transformers' AttentionInterface, "
            f"got {kind.__name__} with {implementation!r}; make it with 'sdpa', if it has that, or 'eager', and call "
            "it within keel.torch.replace(), which serves whatever calls torch's scaled_dot_product_attention"
        )


@functools.cache
def _goes_through_the_interface(kind: Any) -> bool:
    """Whether all attention of a model's class goes through the interface, as far as its flags and source tell.

    Masks are as for "sdpa". A model that has no "sdpa" may still take them, if it says that it leaves masks alone, as
    it must for "flex_attention"; another may add its own numbers to what it believes to be numbers.
    """
    leaves_masks_alone = kind._supports_attention_backend and kind._supports_flex_attn
    if not (kind._supports_sdpa or leaves_masks_alone):
        return False
    for base in kind.__mro__:
        if base.__module__ == "transformers.modeling_utils":
            break
        try:
            code = inspect.getsource(sys.modules[base.__module__])
        except (KeyError, OSError, TypeError):
            continue
        if re.search(r"^class \w*Attention\w*\(nn\.Module\):", code, re.MULTILINE):
            return "ALL_ATTENTION_FUNCTIONS" in code
    return True  # a model of other models, which are asked themselves


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
    if kwargs.get("cache") is not None:
        raise ValueError(
            f"[attention] cache: expected None with Keel, got {type(kwargs['cache']).__name__}; use 'sdpa' for "
            "continuous batching"
        )
    blocks = attention_mask if keel.torch._blocks.is_flex_mask(attention_mask) else None
    if blocks is not None:
        attention_mask = None
    # A mask, if there is one, holds the whole pattern. Without one, several queries are the start of a prompt, over a
    # cache that may be longer, and a single query sees every key.
    if is_causal is None:
        is_causal = getattr(module, "is_causal", True)
    causal = "top_left" if query.shape[2] > 1 and attention_mask is None and blocks is None and is_causal else None
    if all(x is None for x in (position_bias, blocks, softcap, s_aux)):
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
            block_mask=blocks,
            causal=causal,
            scale=scaling,
            softcap=softcap,
            sinks=s_aux,
            dropout=dropout,
        )
    return out.transpose(1, 2).contiguous(), None
