"""Keel for PyTorch: attention on CPU and CUDA tensors under autograd, fake tensors and torch.compile.

scaled_dot_product_attention   torch's own signature and meaning
attention                      every option of Keel, with lse, statistics, and gradients for bias, scale and sinks
block_mask, document_mask, prefix_lm   masks in tiles, for attention's option block_mask (it takes FlexAttention's too)
t5_table                       T5's bias of relative positions, for attention's option relative_bias
replace                        routes an existing model's F.scaled_dot_product_attention through Keel
last_fallback                  says why a call within replace was left to torch
ScaledDotProductAttention, MultiHeadAttention   modules, with weights, temperatures and other score functions
ring_attention                 attention over the processes of a group, each of which has some rows
context_parallel               runs an existing model over such a group; shard says which rows a rank has
Monitor                        watches the softmax of a model, per layer and head, while it trains or runs
"""

from keel._blocks import BlockMask
from keel._shard import shard
from keel.torch import _threads
from keel.torch._attention import Attention, AttentionScores, AttentionWeights, Statistics, attention
from keel.torch._blocks import block_mask, document_mask, prefix_lm, t5_table
from keel.torch._modules import MultiHeadAttention, ScaledDotProductAttention
from keel.torch._monitor import Monitor
from keel.torch._replace import last_fallback, replace
from keel.torch._ring import context_parallel, ring_attention
from keel.torch._sdpa import scaled_dot_product_attention

__all__ = [
    "Attention",
    "AttentionScores",
    "AttentionWeights",
    "BlockMask",
    "Monitor",
    "MultiHeadAttention",
    "ScaledDotProductAttention",
    "Statistics",
    "attention",
    "block_mask",
    "context_parallel",
    "document_mask",
    "last_fallback",
    "prefix_lm",
    "replace",
    "ring_attention",
    "scaled_dot_product_attention",
    "shard",
    "t5_table",
]

_threads.share()
