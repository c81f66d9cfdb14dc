"""A program that uses Keel, as a type checker sees it: what is returned follows from what is asked for."""

from typing import Any

import jax
import keel
import keel.jax
import keel.torch
import keel.transformers
import numpy as np
import torch
from typing_extensions import assert_type


def arrays(flag: bool) -> None:
    q = np.zeros((1, 2, 3, 4), np.float32)
    assert_type(keel.attention(q, q, q, causal=True, window=(2, 0), scale=0.5), Any)
    assert_type(keel.attention(q, q, q, return_lse=True), keel.AttentionResult)
    assert_type(keel.attention(q, q, q, return_weights=True, threads=2), keel.AttentionResult)
    assert_type(keel.attention(q, q, q, return_stats=True, saturation_threshold=0.9), keel.AttentionResult)
    assert_type(keel.attention(q, q, q, return_key_sums=True, key_sum_rows=2), keel.AttentionResult)
    assert_type(keel.attention(q, q, q, return_scores="raw"), keel.AttentionResult)
    assert_type(keel.attention(q, q, q, return_lse=flag), Any)
    result = keel.attention(q, q, q, return_lse=True)
    assert_type(keel.attention_backward(q, q, q, result.out, result.lse, q), keel.Gradients)
    assert_type(keel.merge([result]), keel.Merged)
    assert_type(keel.merge([result], return_stats=True), keel.AttentionResult)
    assert_type(keel.explain(q, q, q), str)
    assert_type(keel.show_config("dicts"), dict[str, str])
    assert_type(keel.__version__, str)


def traced(flag: bool) -> None:
    q = jax.numpy.zeros((1, 2, 3, 4))
    assert_type(keel.jax.attention(q, q, q, causal=True, seed=jax.random.key(0)), jax.Array)
    assert_type(keel.jax.attention(q, q, q, return_lse=True), keel.AttentionResult)
    assert_type(keel.jax.attention(q, q, q, return_stats=True, out_dtype="float32"), keel.AttentionResult)
    assert_type(keel.jax.attention(q, q, q, return_lse=flag), Any)


def tensors(flag: bool) -> None:
    q = torch.zeros(1, 2, 3, 4)
    assert_type(keel.torch.scaled_dot_product_attention(q, q, q, is_causal=True), torch.Tensor)
    assert_type(keel.torch.attention(q, q, q, causal="bottom_right", out_dtype=torch.float32), torch.Tensor)
    assert_type(keel.torch.attention(q, q, q, return_lse=True), keel.torch.Attention)
    assert_type(keel.torch.attention(q, q, q, return_stats=True), keel.torch.Attention)
    assert_type(keel.torch.attention(q, q, q, return_lse=flag, return_weights=True), keel.torch.AttentionWeights)
    assert_type(keel.torch.attention(q, q, q, return_weights=flag, return_scores="raw"), keel.torch.AttentionScores)
    several = keel.torch.attention(q, q, q, return_lse=flag)
    assert_type(several, torch.Tensor | keel.torch.Attention | keel.torch.AttentionWeights | keel.torch.AttentionScores)
    with keel.torch.replace(strict=True):
        assert_type(keel.torch.last_fallback(), str | None)
    keel.transformers.register()
