"""attn_implementation="keel" over the architectures of transformers: equal to its own attention, or refused."""

import functools

import keel.transformers
import pytest
import torch

transformers = pytest.importorskip("transformers")

import architectures  # noqa: E402 (it needs transformers)

keel.transformers.register()
transformers.logging.set_verbosity_error()

FEW = (
    "BertForMaskedLM BloomForCausalLM BartForConditionalGeneration Cohere2ForCausalLM FalconForCausalLM "
    "GPT2LMHeadModel LlamaForCausalLM LongformerForMaskedLM MixtralForCausalLM ModernBertForMaskedLM Qwen3ForCausalLM "
    "T5ForConditionalGeneration"
).split()
# A model without the interface would never call Keel. Under the mask of "sdpa" the first would see the future.
WITHOUT = (
    "BloomForCausalLM CodeGenForCausalLM XGLMForCausalLM LongformerForMaskedLM MptForCausalLM GPTJForCausalLM "
    "GPTNeoForCausalLM FalconForCausalLM"
).split()
REFUSAL = "expected a model that uses transformers' AttentionInterface, got {}.* with 'keel'.*keel.torch.replace"
LARGEST = 10_000_000  # parameters
checked = {"equal": [], "refused": []}
types = {name: model_type for _, model_type, name in architectures.all_of_them()}


@functools.cache
def eager(name):
    """A model, and what it gives; pytest.skip where there is none."""
    try:
        config = architectures.small_config(types[name])
        if config is None:
            pytest.skip("made of models that have their own configurations")
        with torch.device("meta"):
            size = sum(x.numel() for x in getattr(transformers, name)(config).parameters())
        if size > LARGEST:
            pytest.skip(f"not small: {size} parameters")
        model = architectures.build(name, config, "eager")
        results = {way: architectures.logits(model, way) for way in architectures.WAYS}
    except Exception as error:
        pytest.skip(f"cannot be built small and run: {error!r}")
    if not all(x is None or torch.isfinite(x).all() for x in results.values()):
        pytest.skip("not finite with transformers' own attention")
    return config, model, results


def check(name, calls):
    config, theirs, results = eager(name)
    try:
        ours = architectures.build(name, config, "keel")
    except ValueError as error:
        assert "keel.torch.replace()" in str(error), error
        checked["refused"].append(name)
        return
    ours.load_state_dict(theirs.state_dict())
    for way, expected in results.items():
        if expected is not None:
            scale = max(1.0, expected.abs().max().item())
            got = architectures.logits(ours, way)
            torch.testing.assert_close(got, expected, rtol=0, atol=1e-4 * scale, msg=lambda m, w=way: f"{w}: {m}")
    assert calls, "Keel was never called"
    checked["equal"].append(name)


@pytest.mark.parametrize("name", FEW)
def test_is_equal_or_refused(name, calls):
    check(name, calls)
    assert name in checked["refused" if name in WITHOUT else "equal"]


@pytest.mark.deep
@pytest.mark.parametrize("name", types)
def test_every_architecture_is_equal_or_refused(name, calls):
    check(name, calls)


@pytest.mark.deep
def test_more_than_a_hundred_were_checked():
    counts = {kind: len(set(names)) for kind, names in checked.items()}
    assert sum(counts.values()) >= 100 and counts["equal"] >= 100, counts


@pytest.mark.parametrize("name", WITHOUT)
def test_models_without_the_interface_are_refused_by_name(name):
    config = architectures.small_config(types[name])
    with pytest.raises(ValueError, match=REFUSAL.format(name[:4])):
        architectures.build(name, config, "keel")
    model = architectures.build(name, config, "eager")
    with pytest.raises(ValueError, match=REFUSAL.format(name)):
        model.set_attn_implementation("keel")
    assert model.config._attn_implementation == "eager"


def test_models_that_add_numbers_to_their_masks_are_refused():
    config = architectures.small_config("deepseek_v4")
    with pytest.raises(ValueError, match=REFUSAL.format("DeepseekV4")):
        architectures.build("DeepseekV4ForCausalLM", config, "keel")


def test_an_own_subclass_of_a_model_is_asked_as_the_model():
    class Own(transformers.FalconForCausalLM):
        pass

    config = architectures.small_config("falcon")
    config._attn_implementation = "keel"
    with pytest.raises(ValueError, match=REFUSAL.format("Own")):
        Own(config)


def test_the_other_implementations_are_left_alone():
    config = architectures.small_config("bloom")
    assert architectures.build("BloomForCausalLM", config, "eager").config._attn_implementation == "eager"
    config = architectures.small_config("llama")
    assert architectures.build("LlamaForCausalLM", config, "sdpa").config._attn_implementation == "sdpa"
