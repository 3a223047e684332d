"""Read a model's folder or hub repository, and refuse in one line a model that cannot be trained as it is.

Each check names the file or the setting, and the remedy. Checks that need a forward pass are in `trial`.
"""

import json
import re
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import torch
from torch import nn

from agpo_core.config import ConfigError, TrainConfig

JSON_FILES = ("config.json", "generation_config.json", "tokenizer_config.json", "adapter_config.json")
NOISE = re.compile("drop|jitter")  # settings of a model that make two forwards of the same weights differ
ATTENTION_CAP = re.compile("att.*cap")  # settings that bound attention logits, such as attn_logit_softcapping
MARK = re.compile(r"<.*>|\[.*\]")  # how tokens that are not text are written
REASON = 240  # most characters of another library's error in a message


@contextmanager
def refused(what: str) -> Iterator[None]:
    """Turn any error that a library raises on a bad file into a ConfigError of one line that starts with `what`."""
    try:
        yield
    except (ConfigError, MemoryError, torch.OutOfMemoryError):
        raise
    except Exception as error:
        reason = " ".join(str(error).split()) or type(error).__name__
        reason = reason if len(reason) <= REASON else f"{reason[:REASON]} ..."
        raise ConfigError(f"{what} ({type(error).__name__}: {reason})") from error


def read_json_files(source: str) -> None:
    """Refuse a folder whose configuration files are not JSON objects.

    Raises:
        ConfigError: the message names the file.
    """
    for name in JSON_FILES:
        path = Path(source) / name
        if path.exists():
            with refused(f"{path} cannot be read: put back the model's own file."):
                if not isinstance(json.loads(path.read_bytes()), dict):
                    raise ValueError("it holds no JSON object")


# -- the model's configuration


def load_model_config(source: str):
    """The model's configuration, with everything switched off that makes a forward pass random.

    The importance ratio of a policy to itself is 1 only if two forward passes with the same weights agree.

    Raises:
        ConfigError: the configuration is broken, of an unknown type, needs code of its own, or is not that of a causal
            language model.
    """
    from transformers import MODEL_FOR_CAUSAL_LM_MAPPING, AutoConfig, PreTrainedConfig

    refuse_own_code(PreTrainedConfig.get_config_dict(source)[0], f"config.json of {source}")
    model_config = AutoConfig.from_pretrained(source, trust_remote_code=False)
    if getattr(model_config, "is_encoder_decoder", False):
        raise ConfigError(
            f"config.json of {source} is of an encoder-decoder ({model_config.model_type}): take a causal language "
            "model, which reads prompt and completion as one text."
        )
    if type(model_config) not in MODEL_FOR_CAUSAL_LM_MAPPING:
        raise ConfigError(
            f"config.json of {source} is of a {model_config.model_type} model, which does not write text token by "
            "token: take a causal language model."
        )
    for part in nested_configs(model_config):
        for name, value in vars(part).items():
            if NOISE.search(name) and isinstance(value, (int, float)) and not isinstance(value, bool):
                setattr(part, name, type(value)(0))
    return model_config


def nested_configs(model_config) -> list:
    """A model's configuration, and those of its parts: text, decoder, vision."""
    from transformers import PreTrainedConfig

    found = [model_config]
    for value in vars(model_config).values():
        if isinstance(value, PreTrainedConfig):
            found += nested_configs(value)
    return found


def refuse_own_code(settings: dict, what: str) -> None:
    """Refuse a model that needs code of its own, which is never run.

    Raises:
        ConfigError: `auto_map` names code; null entries are ignored.
    """
    named = settings.get("auto_map") or {}
    classes = [name for entry in named.values() for name in (entry if isinstance(entry, list) else [entry]) if name]
    if classes:
        raise ConfigError(
            f"{what} asks for code of its own (auto_map: {', '.join(classes)}), which is never run: take a model that "
            "transformers knows; if it knows this type, remove auto_map from a copy of the folder."
        )


def attention_of(model_config, wanted: str) -> str | None:
    """The attention implementation with which to load a model; None leaves the choice to transformers.

    "auto" gives eager attention where the model bounds its attention logits (Gemma-2), because SDPA silently ignores
    the bound.

    Args:
        model_config: the model's configuration.
        wanted: the setting `attn_implementation`.
    """
    if wanted != "auto":
        return wanted
    return "eager" if any(map(_caps_attention, nested_configs(model_config))) else None


def _caps_attention(part) -> bool:
    return any(ATTENTION_CAP.search(name) and value for name, value in vars(part).items())


def refuse_flash_attention(config: TrainConfig) -> None:
    """Refuse flash attention, before anything is loaded, where its requirements are not met.

    Raises:
        ConfigError: there is no GPU, the package is missing, or the weights are not in half precision.
    """
    from transformers.utils import is_flash_attn_2_available

    if config.dtype == "float32":
        raise ConfigError("attn_implementation flash_attention_2 needs dtype bfloat16: set it, or take sdpa.")
    if not (torch.cuda.is_available() and is_flash_attn_2_available()):
        raise ConfigError(
            "attn_implementation flash_attention_2 needs a GPU and the package flash-attn: install it, or take sdpa."
        )


# -- weights


def load_weights(source: str, model_config, dtype: torch.dtype, attention: str | None) -> nn.Module:
    """A causal language model whose every weight comes from the checkpoint.

    Raises:
        ConfigError: the checkpoint has tensors of other shapes than config.json says, lacks tensors, or has extra ones.
    """
    from transformers import AutoModelForCausalLM

    model, loaded = AutoModelForCausalLM.from_pretrained(
        source,
        config=model_config,
        dtype=dtype,
        attn_implementation=attention,
        trust_remote_code=False,
        ignore_mismatched_sizes=True,  # the error below names them
        output_loading_info=True,
    )
    other = [f"{name} {tuple(has)} for {tuple(needs)}" for name, has, needs in sorted(loaded["mismatched_keys"])]
    for names, fault in (
        (other, "has tensors of another size"),
        (sorted(loaded["missing_keys"]), "lacks tensors, which would start at random"),
        (sorted(loaded["unexpected_keys"]), "has tensors that config.json does not describe"),
    ):
        if names:
            shown = ", ".join(names[:3]) + f" and {len(names) - 3} more" * (len(names) > 3)
            raise ConfigError(
                f"the checkpoint in {source} does not fit its config.json: it {fault} ({shown}). Take both from the "
                "same model."
            )
    return model


def clean_generation_config(model: nn.Module) -> None:
    """Reduce a generation config to what can be saved again: transformers reads some that it refuses to write.

    An example is a config with sampling settings but without `do_sample`. The loop reads only the ids of tokens.
    """
    from transformers import GenerationConfig

    found = model.generation_config
    try:
        found.validate(strict=True)
    except Exception:  # a value of the wrong type raises anything
        ids = {name: getattr(found, name) for name in ("bos_token_id", "eos_token_id")}
        model.generation_config = GenerationConfig(**ids, pad_token_id=model.config.get_text_config().pad_token_id)
        warnings.warn(
            "generation_config.json has settings that contradict one another and could not be saved: only its ids "
            "of tokens are kept. Sampling is set by tau_base and top_p.",
            stacklevel=2,
        )


# -- the tokenizer


def load_tokenizer(source: str):
    """A model's tokenizer, which pads on the left.

    A tokenizer that was saved with the general class is read as it was saved. `AutoTokenizer` would apply the rules of
    the usual class for the model's type, such as Qwen2's, and so give other tokens.

    Raises:
        ConfigError: it needs code of its own.
    """
    from transformers import AutoTokenizer, PreTrainedTokenizerFast
    from transformers.models.auto.tokenization_auto import get_tokenizer_config

    settings = get_tokenizer_config(source)
    refuse_own_code(settings, f"tokenizer_config.json of {source}")
    general = settings.get("tokenizer_class") in ("PreTrainedTokenizerFast", "TokenizersBackend")
    loader = PreTrainedTokenizerFast if general else AutoTokenizer
    tokenizer = loader.from_pretrained(source, padding_side="left", trust_remote_code=False)
    tokenizer(["a text"])  # a setting of the wrong type fails here
    return tokenizer


def fit_tokenizer(tokenizer, model: nn.Module, source: str) -> None:
    """Refuse the tokenizer of another model, and set a padding token where there is none.

    Raises:
        ConfigError: token ids lie beyond the embedding, the tokenizer is far too small for it, the ids that end a text
            are ordinary tokens, or no token ends a text.
    """
    file, rows = f"the tokenizer in {source}", model.get_input_embeddings().weight.shape[0]
    ids = set(tokenizer.get_vocab().values())
    if max(ids, default=0) >= rows:
        raise ConfigError(
            f"{file} has token ids up to {max(ids)}, but the model's embedding has {rows} rows: put back the model's "
            "own tokenizer files (tokenizer.json, tokenizer_config.json)."
        )
    if len(ids) < rows / 2:
        raise ConfigError(
            f"{file} has {len(ids)} tokens for the {rows} rows of the model's embedding, so it is incomplete or that "
            "of another model: put back the model's own tokenizer files (tokenizer.json, tokenizer_config.json)."
        )
    stop = stop_ids(model, source)
    ends = {i for i in (*stop, tokenizer.eos_token_id) if i in ids}
    if not ends:
        raise ConfigError(
            f"{source} has no end-of-sequence token that its tokenizer knows: set eos_token in tokenizer_config.json, "
            "or eos_token_id in generation_config.json."
        )
    marks = {*tokenizer.all_special_ids, *tokenizer.added_tokens_decoder}
    known = {i: tokenizer.convert_ids_to_tokens(i) for i in stop if i < len(tokenizer)}
    ordinary = [f"{i}, {text!r}" for i, text in known.items() if i not in marks and not MARK.fullmatch(str(text))]
    if tokenizer.eos_token_id not in (None, *known) and known and len(ordinary) == len(known):
        raise ConfigError(
            f"{file} does not fit the model: the model's configuration ends a text at token {ordinary[0]}, which is an "
            f"ordinary token of this tokenizer; its own end is {tokenizer.eos_token!r}. Put back the model's own "
            "tokenizer files, or correct eos_token_id in config.json and generation_config.json."
        )
    if tokenizer.pad_token is None:
        tokenizer.pad_token = tokenizer.eos_token or tokenizer.convert_ids_to_tokens(min(ends))


def stop_ids(model: nn.Module, source: str) -> list[int]:
    """The ids of the tokens that end a text, by the model's generation config.

    Raises:
        ConfigError: one of them is not a token id.
    """
    found = getattr(model.generation_config, "eos_token_id", None)
    found = found if isinstance(found, (list, tuple)) else [] if found is None else [found]
    for i in found:
        if not isinstance(i, int) or isinstance(i, bool) or i < 0:
            raise ConfigError(f"eos_token_id in generation_config.json of {source} holds {i!r}: give ids of tokens.")
    return list(found)


def check_that_it_can_be_saved(model: nn.Module, tokenizer, source: str) -> None:
    """Save everything but the weights once, so that a model that could not be saved at the end is refused at the start.

    Raises:
        ConfigError: the message names what transformers refuses to write.
    """
    with TemporaryDirectory() as folder, refused(f"{source} could not be saved again after training: correct it."):
        model.config.save_pretrained(folder)
        model.generation_config.save_pretrained(folder)
        tokenizer.save_pretrained(folder)


# -- adapters


def read_adapter(source: str, lora_rank: int):
    """The LoRA configuration of an adapter's folder; None where the folder holds a whole model.

    Raises:
        ConfigError: it is not a LoRA adapter, names no base model, has another rank than the setting, or cannot be
            merged.
    """
    from transformers.utils import find_adapter_config_file

    if find_adapter_config_file(source) is None:
        return None
    from peft import PeftConfig

    with refused(f"adapter_config.json of {source} cannot be read: put back the adapter's own file."):
        adapter = PeftConfig.from_pretrained(source)
    base = adapter.base_model_name_or_path
    if adapter.peft_type != "LORA" or not (base and isinstance(base, str)):
        raise ConfigError(
            f"adapter_config.json of {source} is not that of a LoRA adapter with a base model (peft_type "
            f"{adapter.peft_type}, base_model_name_or_path {base!r}): merge it into its model first."
        )
    if lora_rank not in (0, adapter.r):
        raise ConfigError(
            f"lora_rank {lora_rank} does not fit the adapter in {source}, which has rank {adapter.r}: set lora_rank to "
            f"{adapter.r} to train this adapter on, or to 0 to merge it into its model and train all weights."
        )
    if lora_rank == 0 and adapter.layer_replication:
        raise ConfigError(
            f"the adapter in {source} repeats layers of its model (layer_replication), which share their weights: it "
            f"cannot be merged, so set lora_rank to {adapter.r}."
        )
    adapter.lora_dropout = 0.0
    return adapter


def refuse_second_adapter(base: str, source: str) -> None:
    """Refuse a base model whose folder holds an adapter too: transformers would apply it without a message.

    Raises:
        ConfigError: the base model's folder holds an adapter.
    """
    from transformers.utils import find_adapter_config_file

    if find_adapter_config_file(base) is not None:
        raise ConfigError(
            f"the base model {base!r}, which adapter_config.json of {source} names, holds an adapter itself: merge "
            "that into its model, and name the merged model in base_model_name_or_path."
        )


def with_new_adapter(model: nn.Module, rank: int) -> nn.Module:
    """A model with new LoRA adapters, which change nothing at first, on all linear layers but the head.

    Raises:
        ConfigError: there is no layer to adapt.
    """
    from peft import LoraConfig, get_peft_model

    adapter = LoraConfig(r=rank, lora_alpha=2 * rank, lora_dropout=0.0, target_modules="all-linear")
    with refused("lora_rank: no adapters can be put on this model; set lora_rank to 0."):
        return get_peft_model(model, adapter)


def with_adapter(model: nn.Module, source: str, adapter, merge: bool) -> nn.Module:
    """A base model with the adapter from a folder, which is either trained further or merged into the weights.

    Raises:
        ConfigError: the adapter's weights do not fit the base model.
    """
    from peft import PeftModel, get_peft_model_state_dict, load_peft_weights

    with refused(f"the adapter in {source} does not fit its base model {adapter.base_model_name_or_path}."):
        model = PeftModel.from_pretrained(model, source, config=adapter, is_trainable=True)
        needs, has = get_peft_model_state_dict(model).keys(), load_peft_weights(source, device="cpu").keys()
        differ = sorted(name for name in needs ^ has if "lora_" in name or name.endswith(".bias"))
        if differ:
            raise ValueError(f"{len(differ)} tensors are in only one of the two, such as {differ[0]}")
        # Peft freezes the base model.
        return model.merge_and_unload().requires_grad_(True) if merge else model
