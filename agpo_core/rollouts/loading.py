"""Load a policy and its tokenizer: find, read and try them, and refuse in one line what cannot be trained."""

import torch

from agpo_core.config import TrainConfig
from agpo_core.model_files import embedded_models, model_source
from agpo_core.rollouts import model_parts
from agpo_core.rollouts.trial import try_out


def load_policy(config: TrainConfig):
    """Load the model and its tokenizer from the package, a folder or the hub, and refuse what cannot be trained.

    A folder with a LoRA adapter is loaded with the base model that it names. At the adapter's own lora_rank the adapter
    is trained further; at lora_rank 0 it is merged and all weights are trained.

    Args:
        config: uses model, dtype, attn_implementation, lora_rank, activation_checkpointing, shared_prompt, engine,
            max_sequence_tokens.
    Returns:
        (model, tokenizer); the tokenizer pads on the left and has a pad token.
    Raises:
        ConfigError: the model cannot be found (the message lists the embedded ones), its files do not fit one another,
            or the loop cannot train such a model; the message names the file or the reason.
    """
    source, dtype = model_source(config.model), getattr(torch, config.dtype)
    if config.attn_implementation == "flash_attention_2":
        model_parts.refuse_flash_attention(config)
    missing = (
        f"model {config.model!r} could not be loaded: give an embedded model ({', '.join(embedded_models())}), a "
        "folder with a Hugging Face model, or a hub id that this machine can reach."
    )
    with model_parts.refused(missing):
        model_parts.read_json_files(source)
        adapter = model_parts.read_adapter(source, config.lora_rank)
    base = source if adapter is None else model_source(adapter.base_model_name_or_path)
    if adapter is not None:
        missing = (
            f"the base model {base!r}, which adapter_config.json of {source} names, could not be loaded: put it there, "
            "or correct base_model_name_or_path."
        )
    with model_parts.refused(missing):
        if adapter is not None:
            model_parts.refuse_second_adapter(base, source)
        model_parts.read_json_files(base)
        model_config = model_parts.load_model_config(base)
        attention = model_parts.attention_of(model_config, config.attn_implementation)
        # On a CPU, where the model is tried, there is no flash attention.
        tried = None if attention == "flash_attention_2" else attention
        model = model_parts.load_weights(base, model_config, dtype, tried)
    with model_parts.refused(
        f"model {config.model!r}: its tokenizer could not be loaded: put back the model's own files."
    ):
        tokenizer = model_parts.load_tokenizer(source)
    model_parts.clean_generation_config(model)
    model_parts.fit_tokenizer(tokenizer, model, source)
    model_parts.check_that_it_can_be_saved(model, tokenizer, source)
    if adapter is not None:
        model = model_parts.with_adapter(model, source, adapter, merge=config.lora_rank == 0)
    elif config.lora_rank > 0:
        model = model_parts.with_new_adapter(model, config.lora_rank)
    if config.activation_checkpointing:
        with model_parts.refused("activation_checkpointing: the model does not support it; set it to false."):
            model.gradient_checkpointing_enable({"use_reentrant": False})
        if config.lora_rank > 0:
            model.enable_input_require_grads()
    try_out(model, config, len(tokenizer))
    if tried != attention:
        model.set_attn_implementation(attention)
    return model.train(), tokenizer
