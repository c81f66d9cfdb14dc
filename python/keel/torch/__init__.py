"""Keel for PyTorch: attention on CPU tensors under autograd, fake tensors and torch.compile.

scaled_dot_product_attention   torch's own signature and meaning
attention                      every option of Keel, with lse, statistics, and gradients for bias, scale and sinks
replace                        routes an existing model's F.scaled_dot_product_attention through Keel
last_fallback                  says what it left to torch, and why
ScaledDotProductAttention, MultiHeadAttention   modules, with weights, temperatures and other score functions
Monitor                        watches the softmax of a model, per layer and head, while it trains or runs
"""

from keel.torch import _threads
from keel.torch._attention import Attention, AttentionWeights, Statistics, attention
from keel.torch._modules import MultiHeadAttention, ScaledDotProductAttention
from keel.torch._monitor import Monitor
from keel.torch._replace import last_fallback, replace
from keel.torch._sdpa import scaled_dot_product_attention

__all__ = [
    "Attention",
    "AttentionWeights",
    "Monitor",
    "MultiHeadAttention",
    "ScaledDotProductAttention",
    "Statistics",
    "attention",
    "last_fallback",
    "replace",
    "scaled_dot_product_attention",
]

_threads.share()
