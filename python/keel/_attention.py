"""keel.attention: the forward pass on arrays."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, NamedTuple, overload

from keel import _core
from keel._arrays import check_outputs, check_tensors, maker_for, prepare
from keel._backward import gradient_sources
from keel._options import ArrayOptions, takes

if TYPE_CHECKING:
    from typing_extensions import Unpack


class HeadStats(NamedTuple):
    """Per head, over the rows that see at least one key. Each field is a NumPy array (B, H_q) in float64 or, for GPU
    arrays, an array of the output's library on that GPU; for a packed batch, B is the number of entries.

    max_logit            largest score (the one QK-clip watches); -inf when no row sees a key
    mean_entropy         nats
    min_entropy          nats
    normalised_entropy   mean of entropy / ln(visible keys, plus one with a sink), over rows with at least two outcomes
    saturated            share of rows whose largest weight is above the threshold
    rows                 how many rows see a key (int64)
    """

    max_logit: Any
    mean_entropy: Any
    min_entropy: Any
    normalised_entropy: Any
    saturated: Any
    rows: Any


class RowStats(NamedTuple):
    """Statistics of each row's softmax: arrays (B, H_q, N_q), and `heads`, their summary per head.

    max_logit    largest visible score
    entropy      of the softmax, in nats
    max_weight   largest weight
    logit_mean   mean of the visible scores above -2^64, which leaves out keys that a finite bias masks
    logit_var    variance of these scores
    visible      how many keys the row sees (int64)
    logit_count  how many scores logit_mean and logit_var are taken over (int64)
    heads        HeadStats; None after `keel.merge`, and from keel.jax
    """

    max_logit: Any
    entropy: Any
    max_weight: Any
    logit_mean: Any
    logit_var: Any
    visible: Any
    logit_count: Any
    heads: HeadStats | None


STATISTICS = tuple(name for name in RowStats._fields if name != "heads")  # one number per row
COUNTS = ("visible", "logit_count")  # those that are integers


ScoreStage = Literal["raw", "capped", "masked"]


class AttentionResult(NamedTuple):
    """What `keel.attention` returns when asked for more than the output. What was not asked for is None.

    out       (B, H_q, N_q, d_v)
    lse       (B, H_q, N_q), log of the softmax denominator, float32 (float64 for float64 inputs)
    weights   (B, H_q, N_q, N_k), what multiplied v
    stats     RowStats
    key_sums  (B, H_q, N_k), the sum of each key's weights over the rows, float32 (float64 for float64 inputs)
    scores    (B, H_q, N_q, N_k), at the stage that return_scores named
    """

    out: Any
    lse: Any = None
    weights: Any = None
    stats: RowStats | None = None
    key_sums: Any = None
    scores: Any = None


class ArraySettings(ArrayOptions, total=False):
    """The other arguments of `keel.attention`, for its overloads."""

    out: Any
    out_dtype: Any
    saturation_threshold: float
    key_sum_rows: int


@overload
def attention(
    q: Any,
    k: Any,
    v: Any,
    *,
    return_lse: Literal[False] = False,
    return_weights: Literal[False] = False,
    return_stats: Literal[False] = False,
    return_key_sums: Literal[False] = False,
    return_scores: None = None,
    **settings: Unpack[ArraySettings],
) -> Any: ...
@overload
def attention(
    q: Any,
    k: Any,
    v: Any,
    *,
    return_lse: Literal[True],
    return_weights: bool = False,
    return_stats: bool = False,
    return_key_sums: bool = False,
    return_scores: ScoreStage | None = None,
    **settings: Unpack[ArraySettings],
) -> AttentionResult: ...
@overload
def attention(
    q: Any,
    k: Any,
    v: Any,
    *,
    return_lse: bool = False,
    return_weights: Literal[True],
    return_stats: bool = False,
    return_key_sums: bool = False,
    return_scores: ScoreStage | None = None,
    **settings: Unpack[ArraySettings],
) -> AttentionResult: ...
@overload
def attention(
    q: Any,
    k: Any,
    v: Any,
    *,
    return_lse: bool = False,
    return_weights: bool = False,
    return_stats: Literal[True],
    return_key_sums: bool = False,
    return_scores: ScoreStage | None = None,
    **settings: Unpack[ArraySettings],
) -> AttentionResult: ...
@overload
def attention(
    q: Any,
    k: Any,
    v: Any,
    *,
    return_lse: bool = False,
    return_weights: bool = False,
    return_stats: bool = False,
    return_key_sums: Literal[True],
    return_scores: ScoreStage | None = None,
    **settings: Unpack[ArraySettings],
) -> AttentionResult: ...
@overload
def attention(
    q: Any,
    k: Any,
    v: Any,
    *,
    return_lse: bool = False,
    return_weights: bool = False,
    return_stats: bool = False,
    return_key_sums: bool = False,
    return_scores: ScoreStage,
    **settings: Unpack[ArraySettings],
) -> AttentionResult: ...
@overload
def attention(
    q: Any,
    k: Any,
    v: Any,
    *,
    return_lse: bool = False,
    return_weights: bool = False,
    return_stats: bool = False,
    return_key_sums: bool = False,
    return_scores: ScoreStage | None = None,
    **settings: Unpack[ArraySettings],
) -> Any: ...
@takes(ArrayOptions)
def attention(
    q: Any,
    k: Any,
    v: Any,
    *,
    return_lse: bool = False,
    return_weights: bool = False,
    return_stats: bool = False,
    out: Any = None,
    out_dtype: Any = None,
    saturation_threshold: float = 0.99,
    return_key_sums: bool = False,
    key_sum_rows: int = 0,
    return_scores: ScoreStage | None = None,
    **options: Unpack[ArrayOptions],
) -> Any:
    """Attention of the queries q over the keys k and values v: softmax(scale · q kᵀ) v.

    Shapes: q (B, H_q, N_q, d_k), k (B, H_kv, N_k, d_k), v (B, H_kv, N_k, d_v), result (B, H_q, N_q, d_v). B, or B and
    H, may be missing from all three. H_q is a multiple of H_kv. The arrays share one dtype (float64, float32,
    float16 or bfloat16), may have any strides, and are not copied. The result is a torch tensor for torch tensors,
    a CuPy array for CuPy arrays, else a NumPy array. All are on the CPU or all on one CUDA device; lengths and offsets
    may be on the CPU in any case. Work on a GPU is queued, not waited for; GPU arrays of other libraries (JAX, for
    example) need `out`, a torch tensor or a CuPy array.

    mask       (B, H_q, N_q, N_k), any dimension 1 or missing from the left: bool, True = attend; or numbers that are
               added to the scores, -inf = hidden
    bias       numbers to add to the scores, where mask is bool
    block_mask   a mask in tiles, which costs only what its visible tiles cost: see `keel.block_mask`
    causal     "top_left" (or True), "bottom_right" (the one for a KV cache), or None
    window     (left, right): how far from the diagonal a key may be; None for an unbounded side
    origin     (query, key): the positions of the first rows of q and k in a longer problem of which they are a slice;
               causal, window, alibi, relative_bias and dropout follow them; add n_q and n_k, the whole's lengths, if
               it continues after the slice
    scale      a number, 1/sqrt(d_k) by default, or an array (B, H_q, N_q), any dimension 1
    softcap    c: scores become c·tanh(score/c)
    alibi      (H_q,) slopes, or (B, H_q): one per batch entry and head
    relative_bias   (H_q, 2R + 1), or (1, 2R + 1) for all heads: numbers to add to the scores by the distance of a key
               from the diagonal, from -R to R; farther keys take the last ones
    sinks      (H_q,) logits that join the softmax denominator
    dropout    the probability of zeroing a weight; `seed` decides which
    q_lengths, k_lengths   (B,): how many rows of a padded batch are real
    k_starts   (B,): how many leading keys are padding, in a batch or cache that is padded on the left
    q_offsets, k_offsets   (E + 1,): where the entries of a packed batch (B = 1) begin and end
    out        where to write the result: an array of q's dtype, or float32 for 16-bit inputs
    out_dtype  the dtype of a new result, by the same rule: float32 for partial results that are to be merged
    split_products   float32 on a CPU with AMX: multiply each number as a sum of three bfloat16, which is as accurate
               and, for long rows, faster
    threads    at most this many; None for all that the process may use
    stream     on a GPU: the stream to work on, of torch or CuPy, or its number; by default the current one of the
               library of q, if that is torch or CuPy, else CUDA's default stream
    saturation_threshold   the weight above which a row counts as saturated in return_stats
    key_sum_rows   sum key_sums over this many last rows of each entry; 0 for all rows
    return_scores  "raw": scale · q kᵀ; "capped": after the softcap; "masked": after biases and masks too, as the
               softmax gets them, -inf where a key is hidden. The first two cover every query and key, whatever masks
               hide, except that padding, and rows and keys of different packed entries, are -inf

    Returns the output; an AttentionResult when any of the return_... arguments asks for more.

    >>> import keel, numpy as np
    >>> x = np.eye(3, dtype=np.float32)[None, None]
    >>> keel.attention(x, x, x, causal=True)[0, 0].round(2)
    array([[1.  , 0.  , 0.  ],
           [0.36, 0.64, 0.  ],
           [0.26, 0.26, 0.47]], dtype=float32)
    """
    maker, q_shape = maker_for("attention", "q", q, out)
    check_tensors("attention", q=q, k=k, v=v)
    prepare("attention", options, q, k)
    if out is not None and out_dtype is not None:
        raise ValueError(
            f"[attention] out_dtype: expected None together with out, which has a dtype, got {out_dtype!r}"
        )
    if out is None:
        _, v_shape, _ = _core.describe("attention", "v", v)
        dtype = None if out_dtype is None else maker.out_dtype("attention", out_dtype)
        out = maker.empty(q_shape[:-1] + tuple(v_shape[-1:]), dtype)
    else:
        check_outputs("attention", out=out)
    rows = q_shape[:-1]
    outputs: dict[str, Any] = {}
    if return_lse:
        outputs["lse"] = maker.row(rows)
    if return_weights or return_key_sums or return_scores is not None:
        _, k_shape, _ = _core.describe("attention", "k", k)
        keys = tuple(k_shape[-2:-1])
        if return_weights:
            outputs["weights"] = maker.empty(rows + keys)
        if return_key_sums:
            outputs["key_sums"] = maker.row(rows[:-1] + keys)
        if return_scores is not None:
            outputs["scores"] = maker.empty(rows + keys)
    if return_stats:
        outputs |= {name: new_statistic(maker, name, rows) for name in STATISTICS}
        outputs["heads"] = _new_heads(maker, q_shape, options.get("q_offsets"))
    settings: dict[str, Any] = {"saturation_threshold": saturation_threshold, "key_sum_rows": key_sum_rows}
    if return_scores is not None:
        settings["score_stage"] = return_scores
    _core.attention(q, k, v, out, options, outputs | settings)
    if not outputs:
        return out
    stats = None
    if return_stats:
        *means, rows_seen = (outputs["heads"][..., i] for i in range(len(HeadStats._fields)))
        heads = HeadStats._make([*means, maker.as_counts(rows_seen)])
        stats = RowStats._make([*(outputs[name] for name in STATISTICS), heads])
    more = (outputs.get(name) for name in ("key_sums", "scores"))
    return AttentionResult(out, outputs.get("lse"), outputs.get("weights"), stats, *more)


def new_statistic(maker: Any, name: str, rows: tuple[int, ...]) -> Any:
    """An array for a statistic of each row."""
    return maker.count(rows) if name in COUNTS else maker.row(rows)


def _new_heads(maker: Any, q_shape: tuple[int, ...], offsets: Any) -> Any:
    """Memory for HeadStats, per entry (of the packed batch, where there are offsets) and head."""
    batch, heads, *_ = (1,) * (4 - len(q_shape)) + q_shape
    entries = batch if offsets is None else max(len(offsets) - 1, 0)
    return maker.heads((entries, heads, len(HeadStats._fields)))


@takes(ArrayOptions)
def explain(q: Any, k: Any, v: Any, *, want: tuple[str, ...] | None = None, **options: Unpack[ArrayOptions]) -> str:
    """How `keel.attention` would serve this call: backend, kernel, SIMD target, tiles, threads, workspace, and why.
    With `want`, the names of gradients, how `keel.attention_backward` would.

    Shapes and arguments are those of the two functions; nothing is computed.

    >>> import keel, numpy as np
    >>> x = np.zeros((1, 8, 1024, 64), np.float32)
    >>> print(keel.explain(x, x, x, causal=True))  # doctest: +ELLIPSIS
    backend ...
    """
    if want is None:
        prepare("attention", options, q, k)
        return _core.explain(q, k, v, options)
    prepare("attention_backward", options, q, k)
    gradient_sources("attention_backward", want, (q, k, v), options)
    return _core.explain_backward(q, k, v, options, list(want))
