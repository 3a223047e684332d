"""The policy, its reference, its critic, and log-probabilities with a group's prompt computed once.

All G completions of a prompt share it. `completion_logits` runs the prompt once, repeats its keys and values over the
group and runs only the completions on top; gradients flow through the shared cache. The plain path, which repeats the
prompt, gives the same numbers and serves where the cache is not kept (activation checkpointing).
"""

import copy
import functools
import hashlib
import json
import os
import shutil
from contextlib import nullcontext
from pathlib import Path

import torch
from torch import Tensor, nn

from agpo_core import paths, provenance
from agpo_core.config import TrainConfig
from agpo_core.training import loading

# Files of a folder that make a model what it is: weights, configuration, tokenizer, adapters.
MODEL_FILES = (
    "config.json", "generation_config.json", "adapter_*", "*.safetensors", "*.safetensors.index.json",
    "pytorch_model*", "tokenizer*", "vocab*", "merges.txt", "special_tokens_map.json", "added_tokens.json", "*.model",
    "chat_template*", "additional_chat_templates/*",
)  # fmt: skip


def embedded_models() -> list[str]:
    """Names of the tiny models that the package ships."""
    return sorted(path.parent.name for path in paths.models().glob("*/config.json"))


def model_source(name: str) -> str:
    """Where a model lies: in the package, in a folder (absolute, or relative to the repository), else on the hub."""
    if name in embedded_models():
        return str(paths.models() / name)
    folder = paths.root() / name
    return str(folder) if folder.is_dir() else name


def model_fingerprint(source: str) -> str | None:
    """What a model is, as twenty hex digits: another file, or another byte in one, gives others.

    The digest goes over the folder's weights, configuration and tokenizer, and over the base model of an adapter. Of a
    hub id it is that of the snapshot in the local cache. Where the folder lies, and when it was written, do not matter.

    Args:
        source: an embedded model's name, a folder, or a hub id.
    Returns:
        The digest; None for a hub id that is not in the local cache.
    """
    source = model_source(source)
    folder = Path(source) if Path(source).is_dir() else _cached_snapshot(source)
    if folder is None:
        return None
    parts = _digests(folder)
    if (base := _base_of_adapter(folder)) is not None:
        whole = Path(model_source(base)) if Path(model_source(base)).is_dir() else _cached_snapshot(base)
        # Not the base of the base: an adapter on an adapter is refused when it is loaded.
        parts.append(["base model", whole and _digests(whole)])
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:20]


def _digests(folder: Path) -> list[list[str]]:
    files = sorted({path for pattern in MODEL_FILES for path in folder.glob(pattern) if path.is_file()})
    return [[path.relative_to(folder).as_posix(), _file_digest(path)] for path in files]


def _cached_snapshot(hub_id: str) -> Path | None:
    """The folder of a hub model in the local cache."""
    from huggingface_hub import try_to_load_from_cache
    from huggingface_hub.errors import HFValidationError

    for name in ("config.json", "adapter_config.json"):
        try:
            found = try_to_load_from_cache(hub_id, name)
        except HFValidationError:  # no hub id at all
            return None
        if isinstance(found, str):
            return Path(found).parent
    return None


def _base_of_adapter(folder: Path) -> str | None:
    """The base model that an adapter's folder names; None where it holds no adapter, or names none."""
    try:
        settings = json.loads((folder / "adapter_config.json").read_bytes())
    except (OSError, ValueError):
        return None
    base = settings.get("base_model_name_or_path") if isinstance(settings, dict) else None
    return base if isinstance(base, str) and model_source(base) != str(folder) else None


def _file_digest(path: Path) -> str:
    """The digest of a file's content, computed once as long as the file stays as it is."""
    stat = path.stat()
    return _content_digest(path.resolve(), stat.st_size, stat.st_mtime_ns)


@functools.cache
def _content_digest(path: Path, size: int, changed: int) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def load_policy(config: TrainConfig):
    """Load the model and its tokenizer from the package, a folder or the hub, and refuse what cannot be trained.

    A folder with a LoRA adapter is loaded with the base model that it names: at the adapter's own lora_rank the adapter
    is trained on, at lora_rank 0 it is merged and all weights are trained.

    Args:
        config: uses model, dtype, attn_implementation, lora_rank, activation_checkpointing, shared_prompt, engine,
            max_sequence_tokens.
    Returns:
        (model, tokenizer); the tokenizer pads on the left and has a pad token.
    Raises:
        ConfigError: the model is found nowhere (the message lists the embedded ones), its files do not fit one another,
            or the loop cannot train such a model; the message names the file or the reason.
    """
    source, dtype = model_source(config.model), getattr(torch, config.dtype)
    if config.attn_implementation == "flash_attention_2":
        loading.refuse_flash_attention(config)
    missing = (
        f"model {config.model!r} could not be loaded: give an embedded model ({', '.join(embedded_models())}), a "
        "folder with a Hugging Face model, or a hub id that this machine can reach."
    )
    with loading.refused(missing):
        loading.read_json_files(source)
        adapter = loading.read_adapter(source, config.lora_rank)
    base = source if adapter is None else model_source(adapter.base_model_name_or_path)
    if adapter is not None:
        missing = (
            f"the base model {base!r}, which adapter_config.json of {source} names, could not be loaded: put it there, "
            "or mend base_model_name_or_path."
        )
    with loading.refused(missing):
        if adapter is not None:
            loading.refuse_second_adapter(base, source)
        loading.read_json_files(base)
        model_config = loading.load_model_config(base)
        attention = loading.attention_of(model_config, config.attn_implementation)
        # On a CPU, where the model is tried, there is no flash attention.
        tried = None if attention == "flash_attention_2" else attention
        model = loading.load_weights(base, model_config, dtype, tried)
    with loading.refused(f"model {config.model!r}: its tokenizer could not be loaded: put back the model's own files."):
        tokenizer = loading.load_tokenizer(source)
    loading.clean_generation_config(model)
    loading.fit_tokenizer(tokenizer, model, source)
    loading.check_that_it_can_be_saved(model, tokenizer, source)
    if adapter is not None:
        model = loading.with_adapter(model, source, adapter, merge=config.lora_rank == 0)
    elif config.lora_rank > 0:
        model = loading.with_new_adapter(model, config.lora_rank)
    if config.activation_checkpointing:
        with loading.refused("activation_checkpointing: the model does not support it; set it to false."):
            model.gradient_checkpointing_enable({"use_reentrant": False})
        if config.lora_rank > 0:
            model.enable_input_require_grads()
    from agpo_core.training.trial import try_out  # it computes with the functions below

    try_out(model, config, len(tokenizer))
    if tried != attention:
        model.set_attn_implementation(attention)
    return model.train(), tokenizer


def base_source(name: str) -> str:
    """Where a model's whole weights lie: those of the base model, where the folder holds an adapter."""
    source = model_source(name)
    return model_source(_base_of_adapter(Path(source)) or source)


class Reference:
    """The reference policy pi_ref: a frozen copy of the start, or the model with its adapters disabled.

    Args:
        model: the policy before training.
        config: uses reference, lora_rank, beta.
    """

    def __init__(self, model: nn.Module, config: TrainConfig):
        kind = config.reference
        if kind == "auto":
            # An adapter that is trained on has moved the start away from its base model.
            fresh = config.lora_rank > 0 and not any(p.any() for n, p in model.named_parameters() if "lora_B" in n)
            kind = "adapter_disabled" if fresh else "frozen_copy"
            kind = kind if config.beta > 0 else "none"  # nothing would read it
        self.kind = kind
        self.policy = model
        self.copy = None
        if kind == "frozen_copy":
            self.copy = copy.deepcopy(model).requires_grad_(False)

    def to(self, device) -> "Reference":
        if self.copy is not None:
            self.copy.to(device)
        return self

    @torch.no_grad()
    def logps(self, batch, shared: bool) -> Tensor | None:
        """Log-probabilities of the completions at T = 1, shape (B, T); None without a reference."""
        if self.kind == "none":
            return None
        model = self.policy if self.copy is None else self.copy
        with model.disable_adapter() if self.copy is None else nullcontext():
            logits = completion_logits(model, batch, shared)
        return token_logps(logits, batch.completion_ids_B_T)


class ActorCritic(nn.Module):
    """The policy and a value V(s_t) of each state, as one module, so that one engine trains both.

    V is a linear function, zero at the start, of the last hidden state that predicts token t: of the policy's own
    ("head"), or of a copy of the policy that is trained apart ("model"), as large as the policy.

    Args:
        policy: a causal language model.
        critic: "head" or "model".
    """

    def __init__(self, policy: nn.Module, critic: str):
        super().__init__()
        self.policy = policy
        self.body = copy.deepcopy(policy) if critic == "model" else None
        weight = next(policy.parameters())
        self.value_head = nn.Linear(_hidden_width(policy), 1).to(weight)
        nn.init.zeros_(self.value_head.weight)
        nn.init.zeros_(self.value_head.bias)

    def forward(self, batch, shared: bool = True) -> tuple[Tensor, Tensor]:
        """Logits (B, T, V) and values (B, T) at the state before each completion token."""
        if self.body is None:
            logits, hidden = _completion_outputs(self.policy, batch, shared, hidden=True)
        else:
            logits = completion_logits(self.policy, batch, shared)
            _, hidden = _completion_outputs(self.body, batch, shared, hidden=True)
        return logits, self.value_head(hidden).squeeze(-1).float()

    def critic_parameters(self) -> list[nn.Parameter]:
        """What belongs to the critic alone."""
        return [p for name, p in self.named_parameters() if not name.startswith("policy.") and p.requires_grad]


@torch.no_grad()
def _hidden_width(model: nn.Module) -> int:
    """Width of the last hidden states, as a forward gives them: not in every model that of the layers."""
    token = torch.zeros(1, 1, dtype=torch.long, device=next(model.parameters()).device)
    return model(input_ids=token, use_cache=False, output_hidden_states=True).hidden_states[-1].shape[-1]


def logits_and_values(model: nn.Module, batch, config: TrainConfig) -> tuple[Tensor, Tensor | None]:
    """What the loss reads of a model: logits, and values where the method has a critic."""
    if config.critic == "none":
        return completion_logits(model, batch, config.shared_prompt), None
    return model(batch, config.shared_prompt)


def completion_logits(model: nn.Module, batch, shared: bool = True) -> Tensor:
    """Logits that predict each completion token, in shape (B, T, V).

    Args:
        model: a causal language model with a key-value cache.
        batch: has prompt_ids_P_S (left-padded), prompt_mask_P_S, completion_ids_B_T, present_B_T (False on padding);
            B = P * G rows with the groups contiguous.
        shared: run each prompt once instead of once a completion.
    """
    return _completion_outputs(model, batch, shared)[0]


def _completion_outputs(model: nn.Module, batch, shared: bool, hidden: bool = False) -> tuple[Tensor, Tensor | None]:
    """Logits and, where asked for, the last hidden states at the positions that predict completion tokens."""
    ids_P_S, mask_P_S = batch.prompt_ids_P_S, batch.prompt_mask_P_S
    ids_B_T, mask_B_T = batch.completion_ids_B_T, batch.present_B_T
    group = len(ids_B_T) // len(ids_P_S)
    wanted = {"output_hidden_states": True} if hidden else {}
    prompt_mask_B_S = mask_P_S.repeat_interleave(group, dim=0)
    mask = torch.cat([prompt_mask_B_S, mask_B_T.to(mask_P_S.dtype)], dim=1)[:, :-1]
    positions = (mask.cumsum(dim=1) - 1).clamp(min=0)
    S, T = ids_P_S.shape[1], ids_B_T.shape[1]
    if not shared:
        ids = torch.cat([ids_P_S.repeat_interleave(group, dim=0), ids_B_T[:, :-1]], dim=1)
        out = model(input_ids=ids, attention_mask=mask, position_ids=positions, use_cache=False,
                    logits_to_keep=T, **wanted)  # fmt: skip
        return out.logits[:, -T:], out.hidden_states[-1][:, -T:] if hidden else None
    prefix = prefill(model, ids_P_S, mask_P_S, **wanted)
    first_B_1_V = prefix.logits[:, -1:].repeat_interleave(group, dim=0)
    first_B_1_D = prefix.hidden_states[-1][:, -1:].repeat_interleave(group, dim=0) if hidden else None
    if T == 1:
        return first_B_1_V, first_B_1_D
    cache = prefix.past_key_values
    cache.batch_repeat_interleave(group)
    out = model(
        input_ids=ids_B_T[:, :-1],
        attention_mask=mask,
        position_ids=positions[:, S:],
        past_key_values=cache,
        use_cache=True,
        **wanted,
    )
    logits_B_T_V = torch.cat([first_B_1_V, out.logits], dim=1)
    return logits_B_T_V, torch.cat([first_B_1_D, out.hidden_states[-1]], dim=1) if hidden else None


def prefill(model: nn.Module, ids_P_S: Tensor, mask_P_S: Tensor, **wanted):
    """Run left-padded prompts once; returns the model's output with its cache and the last logits."""
    positions = (mask_P_S.cumsum(dim=1) - 1).clamp(min=0)
    return model(
        input_ids=ids_P_S,
        attention_mask=mask_P_S,
        position_ids=positions,
        use_cache=True,
        logits_to_keep=1,
        **wanted,
    )


LOGITS_AT_ONCE = 2**22  # that log-probabilities or entropies are computed of at once: 16 MiB in float32


def token_logps(logits_B_T_V: Tensor, ids_B_T: Tensor, temperature=1.0) -> Tensor:
    """Log-probability of each token under softmax(logits / temperature), in float32.

    Computed and differentiated a few tokens at a time: beside the logits and their gradient, memory holds the
    intermediate values of `LOGITS_AT_ONCE` logits alone.

    Args:
        logits_B_T_V: logits; scaled before the softmax.
        ids_B_T: the tokens.
        temperature: > 0, a number or a (B, 1, 1) tensor.
    """
    return _logps_at(logits_B_T_V, ids_B_T, temperature).squeeze(-1)


def token_logps_and_T1(logits_B_T_V: Tensor, ids_B_T: Tensor, temperature) -> tuple[Tensor, Tensor]:
    """`token_logps` at a temperature and at 1, with one gradient of the logits for both; arguments as there."""
    return _logps_at(logits_B_T_V, ids_B_T, temperature, 1.0).unbind(dim=-1)


def token_entropy(logits_B_T_V: Tensor) -> Tensor:
    """Entropy in nats of each token's full distribution at T = 1, shape (B, T); a few tokens at a time."""
    return _Entropy.apply(logits_B_T_V.flatten(end_dim=-2)).view(logits_B_T_V.shape[:-1])


def _logps_at(logits_B_T_V: Tensor, ids_B_T: Tensor, *temperatures) -> Tensor:
    """Log-probabilities at K temperatures, (B, T, K)."""
    shape = ids_B_T.shape
    each = [torch.as_tensor(t, dtype=torch.float32, device=ids_B_T.device).expand(*shape, 1) for t in temperatures]
    temperature_N_K = torch.cat(each, dim=-1).flatten(end_dim=-2)
    found_N_K = _Logps.apply(logits_B_T_V.flatten(end_dim=-2), ids_B_T.flatten(), temperature_N_K)
    return found_N_K.view(*shape, len(temperatures))


class _Logps(torch.autograd.Function):
    """log softmax(logits / T)[id] of each token at K temperatures.

    d log p_i / d logit_j = (1[i = j] - p_j) / T
    """

    @staticmethod
    def forward(ctx, logits_N_V: Tensor, ids_N: Tensor, temperature_N_K: Tensor) -> Tensor:
        found_N_K, normaliser_N_K = torch.empty_like(temperature_N_K), torch.empty_like(temperature_N_K)
        for found, normaliser, logits, ids, temperatures in _chunks(
            logits_N_V, found_N_K, normaliser_N_K, logits_N_V, ids_N, temperature_N_K
        ):
            for k, temperature in enumerate(temperatures.split(1, dim=1)):
                scaled = logits.float() / temperature
                normaliser[:, k] = scaled.logsumexp(dim=-1)
                found[:, k] = scaled.gather(-1, ids.unsqueeze(-1)).squeeze(-1) - normaliser[:, k]
        ctx.save_for_backward(logits_N_V, ids_N, temperature_N_K, normaliser_N_K)
        return found_N_K

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, gradient_N_K: Tensor):
        logits_N_V, *saved = ctx.saved_tensors
        found_N_V = torch.empty_like(logits_N_V)
        for into, logits, gradients, ids, *of_k in _chunks(logits_N_V, found_N_V, logits_N_V, gradient_N_K, *saved):
            whole = None
            for gradient, temperature, normaliser in zip(*(t.split(1, dim=1) for t in (gradients, *of_k)), strict=True):
                part = (logits.float() / temperature).sub_(normaliser).exp_().mul_(-gradient)
                part.scatter_add_(-1, ids.unsqueeze(-1), gradient).div_(temperature)
                whole = part if whole is None else whole.add_(part)
            into.copy_(whole)
        return found_N_V, None, None


class _Entropy(torch.autograd.Function):
    """H = -sum_j p_j log p_j of each token.

    dH / d logit_j = -p_j (log p_j + H)
    """

    @staticmethod
    def forward(ctx, logits_N_V: Tensor) -> Tensor:
        found_N = torch.empty(len(logits_N_V), device=logits_N_V.device)
        for found, logits in _chunks(logits_N_V, found_N, logits_N_V):
            logps = logits.float().log_softmax(dim=-1)
            found[:] = -(logps.exp().mul_(logps)).sum(dim=-1)
        ctx.save_for_backward(logits_N_V, found_N)
        return found_N

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, gradient_N: Tensor):
        logits_N_V, entropy_N = ctx.saved_tensors
        found_N_V = torch.empty_like(logits_N_V)
        for into, logits, entropy, gradient in _chunks(logits_N_V, found_N_V, logits_N_V, entropy_N, gradient_N):
            logps = logits.float().log_softmax(dim=-1)
            p = logps.exp()
            into.copy_(p.mul_(logps.add_(entropy.unsqueeze(-1))).mul_(-gradient.unsqueeze(-1)))
        return found_N_V


def _chunks(logits_N_V: Tensor, *tensors_N: Tensor):
    """The same rows of several tensors, `LOGITS_AT_ONCE` logits at a time."""
    size = max(1, LOGITS_AT_ONCE // logits_N_V.shape[1])
    return zip(*(tensor.split(size) for tensor in tensors_N), strict=True)


def save_policy(model: nn.Module, tokenizer, folder) -> None:
    """Save in Hugging Face format, whole or not at all; an earlier policy in the folder is replaced.

    Of a model with LoRA adapters these are saved, with the place of the base model; `load_policy` and peft's
    AutoPeftModelForCausalLM load both.
    """
    temporary = f"{folder}.partial"
    shutil.rmtree(temporary, ignore_errors=True)  # of a save that was broken off
    model.save_pretrained(temporary)
    if hasattr(model, "peft_config"):
        tokenizer = copy.deepcopy(tokenizer)
        tokenizer.init_kwargs.pop("auto_map", None)  # without a config.json beside it, an empty one cannot be read
    tokenizer.save_pretrained(temporary)
    provenance.sync_tree(Path(temporary))
    shutil.rmtree(folder, ignore_errors=True)  # os.replace needs an empty place
    os.replace(temporary, folder)
