"""Keel for PyTorch: attention on CPU and CUDA tensors under autograd, fake tensors and torch.compile.

scaled_dot_product_attention   torch's own signature and meaning
attention                      every option of Keel, with lse, statistics, and gradients for bias, scale and sinks
replace                        routes an existing model's F.scaled_dot_product_attention through Keel
last_fallback                  says what it left to torch, and why
ScaledDotProductAttention, MultiHeadAttention   modules, with weights, temperatures and other score functions
ring_attention                 attention over the processes of a group, each of which has some rows
context_parallel               runs an existing model over such a group; shard says which rows a rank has
Monitor                        watches the softmax of a model, per layer and head, while it trains or runs
"""

from keel._shard import shard
from keel.torch import _threads
from keel.torch._attention import Attention, AttentionWeights, Statistics, attention
from keel.torch._modules import MultiHeadAttention, ScaledDotProductAttention
from keel.torch._monitor import Monitor
from keel.torch._replace import last_fallback, replace
from keel.torch._ring import context_parallel, ring_attention
from keel.torch._sdpa import scaled_dot_product_attention

__all__ = [
    "Attention",
    "AttentionWeights",
    "Monitor",
    "MultiHeadAttention",
    "ScaledDotProductAttention",
    "Statistics",
    "attention",
    "context_parallel",
    "last_fallback",
    "replace",
    "ring_attention",
    "scaled_dot_product_attention",
    "shard",
]

_threads.share()
