"""attn_implementation="keel" against transformers' own, on models of random weights built here."""

import copy
import doctest

import keel.torch
import keel.transformers
import pytest
import torch

transformers = pytest.importorskip("transformers")
keel.transformers.register()

SMALL = dict(vocab_size=64, num_hidden_layers=2, num_attention_heads=4, hidden_size=32, intermediate_size=48)
TOKENS = dict(pad_token_id=0, bos_token_id=1, eos_token_id=2)


def llama(**changes):
    return transformers.LlamaForCausalLM, transformers.LlamaConfig(**SMALL, **TOKENS, num_key_value_heads=2, **changes)


def gpt2():
    config = transformers.GPT2Config(vocab_size=64, n_layer=2, n_head=4, n_embd=32, n_positions=64, **TOKENS)
    config.attn_pdrop = config.resid_pdrop = config.embd_pdrop = 0.0
    return transformers.GPT2LMHeadModel, config


def bert():
    config = transformers.BertConfig(**SMALL, pad_token_id=0, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)
    return transformers.BertForMaskedLM, config


def t5():
    config = transformers.T5Config(
        vocab_size=64,
        d_model=32,
        d_kv=8,
        d_ff=48,
        num_layers=2,
        num_heads=4,
        dropout_rate=0.0,
        decoder_start_token_id=0,
    )
    return transformers.T5ForConditionalGeneration, config


def gemma2():
    config = transformers.Gemma2Config(**SMALL, **TOKENS, num_key_value_heads=2, head_dim=8, sliding_window=4)
    config.attn_logit_softcapping = 0.05  # small enough to bite
    return transformers.Gemma2ForCausalLM, config


def gpt_oss():
    config = transformers.GptOssConfig(
        **SMALL,
        **TOKENS,
        num_key_value_heads=2,
        head_dim=8,
        num_local_experts=2,
        num_experts_per_tok=1,
        sliding_window=4,
    )
    return transformers.GptOssForCausalLM, config


def pair(make, other="sdpa"):
    """The same model twice: with Keel, and with the other implementation."""
    kind, config = make()
    torch.manual_seed(0)
    config._attn_implementation = other
    theirs = kind(copy.deepcopy(config))
    config._attn_implementation = "keel"
    ours = kind(copy.deepcopy(config))
    ours.load_state_dict(theirs.state_dict())
    assert (ours.config._attn_implementation, theirs.config._attn_implementation) == ("keel", other)
    return ours, theirs


def tokens(padding):
    generator = torch.Generator().manual_seed(1)
    ids = torch.randint(3, 64, (3, 10), generator=generator)
    mask = torch.ones_like(ids)
    if padding == "left":
        ids[1, :3], mask[1, :3] = 0, 0
        ids[2, :7], mask[2, :7] = 0, 0
    elif padding == "right":
        ids[1, 7:], mask[1, 7:] = 0, 0
    return ids, mask


CASES = [
    (bert, "sdpa"),
    (gpt2, "sdpa"),
    (llama, "sdpa"),
    (t5, "sdpa"),
    (gemma2, "eager"),
    (gpt_oss, "eager"),
]


@pytest.mark.parametrize("make, other", CASES, ids=[case[0].__name__ for case in CASES])
@pytest.mark.parametrize("padding", ["none", "left", "right"])
def test_outputs_and_gradients_are_the_same(make, other, padding, calls):
    ours, theirs = pair(make, other)
    ids, mask = tokens(padding)
    results = []
    for model in (ours, theirs):
        logits = model(input_ids=ids, attention_mask=mask, labels=ids).logits
        seen = mask.bool()
        logits[seen].float().square().mean().backward()
        results.append((logits[seen].detach(), {n: p.grad for n, p in model.named_parameters() if p.grad is not None}))
    assert calls
    torch.testing.assert_close(results[0][0], results[1][0], rtol=1e-4, atol=1e-5)
    assert results[0][1].keys() == results[1][1].keys()
    for name, gradient in results[0][1].items():
        torch.testing.assert_close(
            gradient, results[1][1][name], rtol=1e-3, atol=1e-6, msg=lambda m, n=name: f"{n}: {m}"
        )


@pytest.mark.parametrize("make", [gpt2, llama])
@pytest.mark.parametrize("cache", [None, "static"])
def test_generates_the_same_tokens_with_a_cache_and_left_padding(make, cache, calls):
    ours, theirs = pair(make)
    ids, mask = tokens("left")
    options = dict(max_new_tokens=12, do_sample=False, return_dict_in_generate=True, output_logits=True)
    options |= {"cache_implementation": cache, "disable_compile": True} if cache else {}
    with torch.no_grad():
        a, b = (model.eval().generate(input_ids=ids, attention_mask=mask, **options) for model in (ours, theirs))
    assert len(calls) >= 2 * 12  # two layers, twelve steps
    assert torch.equal(a.sequences, b.sequences)
    for x, y in zip(a.logits, b.logits):
        torch.testing.assert_close(x, y, rtol=1e-4, atol=1e-5)


def test_weights_are_refused_and_eager_is_named():
    query = torch.zeros(1, 2, 3, 4)
    with pytest.raises(ValueError, match="output_attentions: expected False with Keel, got True; use 'eager'"):
        keel.transformers.attention_forward(torch.nn.Module(), query, query, query, None, output_attentions=True)


def test_paged_caches_are_refused_and_sdpa_is_named():
    query = torch.zeros(1, 2, 3, 4)
    with pytest.raises(
        ValueError, match="cache: expected None with Keel, got dict; use 'sdpa' for continuous batching"
    ):
        keel.transformers.attention_forward(torch.nn.Module(), query, query, query, None, cache={})


def test_examples_of_the_docstrings_hold():
    results = doctest.testmod(keel.transformers)
    assert results.attempted and not results.failed
