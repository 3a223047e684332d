"""The policy, its reference and its critic, and log-probabilities that compute a group's prompt only once.

All G completions of a group have the same prompt. `completion_logits` runs the prompt once, repeats its keys and values
over the group, and then runs only the completions; gradients flow through the shared cache. The plain path, which
repeats the prompt, gives the same numbers. It is used where the model does not keep the cache (activation
checkpointing).
"""

import copy
import os
import shutil
from contextlib import nullcontext
from pathlib import Path

import torch
from torch import Tensor, nn

from agpo_core import provenance
from agpo_core.config import TrainConfig


class Reference:
    """The reference policy pi_ref: a frozen copy of the start, or the model with its adapters disabled.

    Args:
        model: the policy before training.
        config: uses reference, lora_rank, beta.
    """

    def __init__(self, model: nn.Module, config: TrainConfig):
        kind = config.reference
        if kind == "auto":
            # A trained adapter has moved the start away from its base model.
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
    """The policy and a critic with a value V(s_t) of each state, in one module, so that one engine trains both.

    V is a linear function of the last hidden state that predicts token t, and is zero at the start. The hidden state is
    the policy's own ("head"), or that of a copy of the policy which is trained separately ("model").

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
        """The parameters that belong to the critic alone."""
        return [p for name, p in self.named_parameters() if not name.startswith("policy.") and p.requires_grad]


@torch.no_grad()
def _hidden_width(model: nn.Module) -> int:
    """Width of the last hidden states, measured in a forward pass: in some models it is not the width of the layers."""
    token = torch.zeros(1, 1, dtype=torch.long, device=next(model.parameters()).device)
    return model(input_ids=token, use_cache=False, output_hidden_states=True).hidden_states[-1].shape[-1]


def logits_and_values(model: nn.Module, batch, config: TrainConfig) -> tuple[Tensor, Tensor | None]:
    """The outputs of a model that the loss needs: logits, and values where the method has a critic."""
    if config.critic == "none":
        return completion_logits(model, batch, config.shared_prompt), None
    return model(batch, config.shared_prompt)


def completion_logits(model: nn.Module, batch, shared: bool = True) -> Tensor:
    """Logits that predict each completion token, in shape (B, T, V).

    Args:
        model: a causal language model with a key-value cache.
        batch: has prompt_ids_P_S (left-padded), prompt_mask_P_S, completion_ids_B_T, present_B_T (False on padding);
            B = P * G rows with the groups contiguous.
        shared: run each prompt once, instead of once per completion.
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


LOGITS_AT_ONCE = 2**22  # logits whose log-probabilities or entropies are computed at once: 16 MiB in float32


def token_logps(logits_B_T_V: Tensor, ids_B_T: Tensor, temperature=1.0) -> Tensor:
    """Log-probability of each token under softmax(logits / temperature), in float32.

    They are computed and differentiated for a few tokens at a time. Beside the logits and their gradient, memory holds
    only the intermediate values of `LOGITS_AT_ONCE` logits.

    Args:
        logits_B_T_V: logits; scaled before the softmax.
        ids_B_T: the tokens.
        temperature: > 0, a number or a (B, 1, 1) tensor.
    """
    return _logps_at(logits_B_T_V, ids_B_T, temperature).squeeze(-1)


def token_logps_and_T1(logits_B_T_V: Tensor, ids_B_T: Tensor, temperature) -> tuple[Tensor, Tensor]:
    """`token_logps` at a temperature and at 1, with one gradient of the logits for both; takes the same arguments."""
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
    """Save a policy in Hugging Face format, completely or not at all; an earlier policy in the folder is replaced.

    For a model with LoRA adapters, the adapters and the place of the base model are saved; `load_policy` and peft's
    AutoPeftModelForCausalLM load adapters and base model together.
    """
    temporary = f"{folder}.partial"
    shutil.rmtree(temporary, ignore_errors=True)  # left by a save that was interrupted
    model.save_pretrained(temporary)
    if hasattr(model, "peft_config"):
        tokenizer = copy.deepcopy(tokenizer)
        tokenizer.init_kwargs.pop("auto_map", None)  # an empty auto_map cannot be read without a config.json
    tokenizer.save_pretrained(temporary)
    provenance.sync_tree(Path(temporary))
    shutil.rmtree(folder, ignore_errors=True)  # os.replace needs an empty place
    os.replace(temporary, folder)
