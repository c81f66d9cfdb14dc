"""Every architecture of the installed transformers that can be built small from its configuration alone.

A configuration is made small by the names that its fields have in most models; what cannot be built or run so with
transformers' own attention ("eager") is left out.
"""

import copy
import inspect
import re

import torch
import transformers
from transformers.models.auto import modeling_auto

LAYERS = 3
SMALL = {
    ("vocab_size", "text_vocab_size"): 64,
    ("hidden_size", "d_model", "n_embd", "dim", "emb_dim", "embedding_size", "attention_hidden_size"): 32,
    ("intermediate_size", "ffn_dim", "d_ff", "n_inner", "encoder_ffn_dim", "decoder_ffn_dim", "ffn_hidden_size",
     "moe_intermediate_size", "shared_expert_intermediate_size", "intermediate_size_mlp", "hidden_dim"): 48,
    ("num_hidden_layers", "n_layer", "n_layers", "num_layers", "encoder_layers", "decoder_layers",
     "num_decoder_layers", "num_encoder_layers"): LAYERS,
    ("num_attention_heads", "n_head", "n_heads", "num_heads", "encoder_attention_heads", "decoder_attention_heads",
     "num_decoder_attention_heads", "num_encoder_attention_heads"): 4,
    ("num_key_value_heads", "num_kv_heads"): 2,
    ("head_dim", "d_kv", "kv_channels", "d_head"): 8,
    ("q_lora_rank", "kv_lora_rank", "qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim", "rotary_dim"): 8,
    ("max_position_embeddings", "n_positions", "n_ctx", "max_seq_len", "max_source_positions",
     "max_target_positions"): 64,
    ("num_local_experts", "num_experts", "n_routed_experts", "moe_num_experts"): 4,
    ("num_experts_per_tok", "moe_topk", "num_experts_per_token", "moe_k"): 2,
    ("n_group", "topk_group", "first_k_dense_replace", "n_shared_experts"): 1,
    ("sliding_window", "attention_window_size"): 4,
    ("type_vocab_size",): 2,
    ("pad_token_id",): 0,
    ("bos_token_id",): 1,
    ("eos_token_id",): 2,
    ("decoder_start_token_id",): 1,
    ("dropout", "attention_dropout", "hidden_dropout_prob", "attention_probs_dropout_prob", "attn_pdrop",
     "resid_pdrop", "embd_pdrop", "activation_dropout", "dropout_rate", "hidden_dropout", "embedding_dropout",
     "layerdrop", "encoder_layerdrop", "decoder_layerdrop", "classifier_dropout", "embed_dropout"): 0.0,
}  # fmt: skip
FIELDS = {name: value for names, value in SMALL.items() for name in names}
SPECIAL = {
    "gpt_neo": {"vocab_size": 64, "hidden_size": 32, "num_layers": 2, "num_heads": 4, "attention_types": [
        [["global", "local"], 1]], "window_size": 4, "max_position_embeddings": 64},
    "mpt": {"vocab_size": 64, "d_model": 32, "n_heads": 4, "n_layers": 2, "max_seq_len": 64},
}  # fmt: skip
KINDS = {
    "causal": modeling_auto.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES,
    "encoder": modeling_auto.MODEL_FOR_MASKED_LM_MAPPING_NAMES,
    "encoder-decoder": modeling_auto.MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING_NAMES,
}


def all_of_them():
    """(kind, model type, class name), each class once."""
    seen = set()
    for kind, names in KINDS.items():
        for model_type, classes in names.items():
            for name in [classes] if isinstance(classes, str) else classes:
                if name not in seen:
                    seen.add(name)
                    yield kind, model_type, name


def small_config(model_type):
    """A small configuration, or None if this kind of model has parts with configurations of their own."""
    kind = transformers.CONFIG_MAPPING[model_type]
    if model_type in SPECIAL:
        return kind(**SPECIAL[model_type])
    config = kind()
    if config.sub_configs:
        return None
    own = {name: value for name, value in FIELDS.items() if is_set(config, name)}
    if is_set(config, "kv_lora_rank"):
        own["num_key_value_heads"] = 4
    if isinstance(getattr(config, "layer_types", None), list):
        own["layer_types"] = some_of(config.layer_types)
    while True:
        try:
            return kind(**own)
        except AttributeError as error:  # a field that follows from others
            derived = re.search(r"property '(\w+)' of", str(error))
            if not derived or own.pop(derived[1], None) is None:
                raise


def is_set(config, name):
    try:
        return getattr(config, name, None) is not None
    except Exception:  # differs from layer to layer
        return False


def some_of(layer_types):
    """As many types as there are layers, all that differ among them."""
    kinds = list(dict.fromkeys(layer_types))
    return (kinds + layer_types[-LAYERS:])[:LAYERS] if len(kinds) <= LAYERS else layer_types[-LAYERS:]


def build(name, config, implementation):
    """The model, in evaluation mode."""
    config = copy.deepcopy(config)
    config._attn_implementation = implementation
    torch.manual_seed(0)
    model = getattr(transformers, name)(config).eval()
    for parameter in model.parameters():  # most start near 0, where every weight of a softmax is the same
        if parameter.dim() > 1:
            torch.nn.init.normal_(parameter, std=parameter.shape[-1] ** -0.5)
    return model


WAYS = ("none", "left", "right", "cache")


def logits(model, way):
    """What the model gives for three sentences, where they are not padding: with no padding, with some on a side, or in
    two parts, the second over the cache of the first. None if the model has no such cache."""
    generator = torch.Generator().manual_seed(1)
    ids = torch.randint(3, 64, (3, 12), generator=generator)
    mask = torch.ones_like(ids)
    if way == "left":
        ids[1, :4], mask[1, :4] = 0, 0
    elif way == "right":
        ids[1, 8:], mask[1, 8:] = 0, 0
    inputs = {"input_ids": ids, "attention_mask": mask}
    parameters = inspect.signature(model.forward).parameters
    with torch.no_grad():
        if "decoder_input_ids" in parameters:
            inputs["decoder_input_ids"] = ids.flip(0)[:, :7]
            return None if way == "cache" else model(**inputs).logits
        if way != "cache":
            return model(**inputs).logits[mask.bool()]
        if "past_key_values" not in parameters:
            return None
        first = model(input_ids=ids[:, :7], use_cache=True)
        if getattr(first, "past_key_values", None) is None:
            return None
        second = model(input_ids=ids[:, 7:], past_key_values=first.past_key_values, use_cache=True)
    return torch.cat([first.logits, second.logits], 1)
