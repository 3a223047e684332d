"""Try a model on a few tokens before it is trained, and refuse it if the loop's assumptions do not hold.

There is no list of supported model families. Instead a model is compared with itself: every way in which the loop
computes log-probabilities must give the same values as running each row alone.
"""

import copy
import functools
from collections.abc import Callable
from types import SimpleNamespace

import torch
from torch import Tensor, nn

from agpo_core.config import ConfigError, TrainConfig
from agpo_core.rollouts import model_parts
from agpo_core.rollouts.policy import completion_logits, prefill, token_logps

# Lengths of the rows to try a model on: they differ, so that prompts and completions are both padded.
PROMPTS, COMPLETIONS = (1, 3), (3, 1, 2, 3)
ROUNDING = {torch.float32: 3.0e-4, torch.bfloat16: 0.1}  # nats per token by which the order of sums may change a value


@torch.no_grad()
def try_out(model: nn.Module, config: TrainConfig, vocabulary: int) -> None:
    """Compare the ways in which the loop computes log-probabilities with each row run alone, on a few tokens.

    Args:
        model: as loaded, on any device.
        config: uses model (in messages), shared_prompt, engine, max_sequence_tokens.
        vocabulary: number of tokens to draw from.
    Raises:
        ConfigError: two forward passes differ; a token sees later ones; padding or other rows change a row; the cache
            gives other values; or a sequence of max_sequence_tokens is longer than the model can read.
    """
    name, training = f"model {config.model!r}", model.training
    draw = functools.partial(torch.randint, vocabulary, generator=torch.Generator().manual_seed(0))
    prompts, completions = ([draw((n,)).tolist() for n in lengths] for lengths in (PROMPTS, COMPLETIONS))
    batch = token_batch(prompts, completions, next(model.parameters()).device)
    with torch.random.fork_rng(devices=[]):
        with model_parts.refused(f"{name} cannot be trained here: its forward pass fails."):
            check_two_forwards(model.train(), batch, name)
            alone = _logps_alone(model.eval(), batch)
            check_order(model, batch, name)
            check_padding(model, batch, alone, name)
        if config.shared_prompt:
            check_cache(model.train(), batch, alone, _shared_logps, f"{name}: training", "shared_prompt to false")
        if config.engine == "transformers":
            check_cache(model.eval(), batch, alone, _decoded_logps, f"{name}: sampling", "engine to vllm")
        check_positions(model.eval(), config)
    model.train(training)


def check_two_forwards(model: nn.Module, batch, name: str) -> None:
    """Check that nothing in training mode is random: the importance ratio of a policy to itself must be 1."""
    plain, again = (_plain_logps(model, batch) for _ in range(2))
    if plain.isnan().any():
        raise ConfigError(
            f"{name}: its log-probabilities are NaN: its checkpoint is broken, or dtype cannot hold its values. Put "
            "back the model's own checkpoint, or set another dtype."
        )
    noise = (plain - again).abs().max().item()
    if not noise <= 0.1 * ROUNDING[model.dtype]:
        raise ConfigError(
            f"{name}: two forward passes with the same weights differ by {noise:.2g} nats in training mode, so the "
            f"importance ratio of the policy to itself is not 1. Switch off {_noisy_modules(model)}."
        )


def check_order(model: nn.Module, batch, name: str) -> None:
    """Check that a token's probability does not depend on the tokens after it."""
    row = _rows(batch)[-1]
    whole, cut = (model(row[:, :n], use_cache=False).logits.float().log_softmax(-1) for n in (row.shape[1], -1))
    if _apart(whole[:, :-1], cut, model):
        raise ConfigError(
            f"{name}: a token's probability depends on the tokens after it, so it is not a causal language model: take "
            "one that reads from left to right."
        )


def check_padding(model: nn.Module, batch, alone_B_T: Tensor, name: str) -> None:
    """Check that neither padding nor the other rows of a batch change a row."""
    plain_B_T = _plain_logps(model, batch)
    if _apart(plain_B_T, alone_B_T, model):
        raise ConfigError(
            f"{name}: padding or the other rows of a batch change a row's log-probabilities by "
            f"{(plain_B_T - alone_B_T).abs().max().item():.2g} nats: take a model that masks padding."
        )


def check_cache(model: nn.Module, batch, alone_B_T: Tensor, logps_of: Callable, use: str, remedy: str) -> None:
    """Check that a cache whose rows were repeated or selected gives the same values as each row alone."""
    with model_parts.refused(
        f"{use} repeats and selects the rows of the model's cache, which it does not allow: take a model with a usual "
        f"cache of keys and values, or set {remedy}."
    ):
        found_B_T = logps_of(model, batch)
        if _apart(found_B_T, alone_B_T, model):
            raise ValueError(f"log-probabilities are {(found_B_T - alone_B_T).abs().max().item():.2g} nats off")


@torch.no_grad()
def check_positions(model: nn.Module, config: TrainConfig) -> None:
    """Check max_sequence_tokens against a model's positions, by reading the last token of such a sequence.

    Rotary positions have no largest position, nor has most models' ALiBi; a table of positions or of biases has one.

    Args:
        model: already tried on the trial's rows, so it can read as many tokens as they have.
        config: uses max_sequence_tokens.
    Raises:
        ConfigError: the longest sequence does not fit; the message says which length does.
    """
    longest, known = config.max_sequence_tokens, max(PROMPTS) + max(COMPLETIONS)
    # Without a cache that can be filled, only the position of a single token can be tried.
    reads = functools.partial(_works, _reads_on_a_cache, model)
    if not reads(known):
        reads = functools.partial(_works, _reads_last, model)
    if longest <= known or reads(longest):
        return
    low, high = known, longest  # the model reads low tokens, and not high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if reads(middle) else (low, middle)
    raise ConfigError(
        f"max_sequence_tokens {longest} is more than model {config.model!r} can read: it has {low} positions. Set "
        f"max_sequence_tokens to {low} or less."
    )


def _works(probe: Callable[[nn.Module, int], None], model: nn.Module, length: int) -> bool:
    try:
        probe(model, length)
    except (AttributeError, IndexError, RuntimeError, TypeError, ValueError):
        return False
    return True


def _reads_last(model: nn.Module, length: int) -> None:
    """Read one token at the last position of a sequence of some length."""
    token = torch.zeros((1, 1), dtype=torch.long, device=next(model.parameters()).device)
    model(input_ids=token, position_ids=token + length - 1, use_cache=False)


def _reads_on_a_cache(model: nn.Module, length: int) -> None:
    """Read one token after a cache as long as the sequence before it, filled by repeating one token's entries."""
    token = torch.zeros((1, 1), dtype=torch.long, device=next(model.parameters()).device)
    cache = prefill(model, token, token + 1).past_key_values
    for i, layer in enumerate(cache.layers):
        cache.update(*(kept.expand(-1, -1, length - 2, -1) for kept in (layer.keys, layer.values)), i)
    model(input_ids=token, attention_mask=token.new_ones(1, length), position_ids=token + length - 1,
          past_key_values=cache, use_cache=True)  # fmt: skip


def token_batch(prompts: list[list[int]], completions: list[list[int]], device):
    """Rows of tokens as a batch with the fields that a forward pass reads."""
    S, T = max(map(len, prompts)), max(map(len, completions))
    left = [[0] * (S - len(row)) + row for row in prompts]
    right = [row + [0] * (T - len(row)) for row in completions]
    return SimpleNamespace(
        prompt_ids_P_S=torch.tensor(left, device=device),
        prompt_mask_P_S=torch.tensor([[int(i >= S - len(row)) for i in range(S)] for row in prompts], device=device),
        completion_ids_B_T=torch.tensor(right, device=device),
        present_B_T=torch.tensor([[i < len(row) for i in range(T)] for row in completions], device=device),
    )


def _rows(batch) -> list[Tensor]:
    """Each row's prompt and completion without padding, (1, tokens)."""
    G = len(batch.completion_ids_B_T) // len(batch.prompt_ids_P_S)
    prompts = [ids[mask.bool()] for ids, mask in zip(batch.prompt_ids_P_S, batch.prompt_mask_P_S, strict=True)]
    completions = [ids[mask] for ids, mask in zip(batch.completion_ids_B_T, batch.present_B_T, strict=True)]
    return [torch.cat([prompts[i // G], ids]).unsqueeze(0) for i, ids in enumerate(completions)]


def _logps_alone(model: nn.Module, batch) -> Tensor:
    """Log-probabilities of completions from each row alone, without padding or a cache; 0 past a row's end."""
    logps_B_T = torch.zeros(batch.present_B_T.shape, device=batch.present_B_T.device)
    for i, (row, mask) in enumerate(zip(_rows(batch), batch.present_B_T, strict=True)):
        n = int(mask.sum())
        logits = model(row, use_cache=False).logits[:, -n - 1 : -1]
        logps_B_T[i, :n] = token_logps(logits, row[:, -n:])[0]
    return logps_B_T


def _plain_logps(model: nn.Module, batch) -> Tensor:
    return token_logps(completion_logits(model, batch, False), batch.completion_ids_B_T) * batch.present_B_T


def _shared_logps(model: nn.Module, batch) -> Tensor:
    return token_logps(completion_logits(model, batch, True), batch.completion_ids_B_T) * batch.present_B_T


def _decoded_logps(model: nn.Module, batch) -> Tensor:
    """Log-probabilities of a batch read as the sampler reads it: token by token, dropping rows that have ended."""
    G = len(batch.completion_ids_B_T) // len(batch.prompt_ids_P_S)
    prompt_of = torch.arange(len(batch.prompt_ids_P_S), device=batch.prompt_ids_P_S.device).repeat_interleave(G)
    prefix = prefill(model, batch.prompt_ids_P_S, batch.prompt_mask_P_S)
    cache = copy.deepcopy(prefix.past_key_values)
    cache.batch_select_indices(prompt_of)
    logits, seen = prefix.logits[:, -1:][prompt_of], batch.prompt_mask_P_S[prompt_of]
    live = torch.arange(len(prompt_of), device=seen.device)
    logps_B_T = torch.zeros(batch.present_B_T.shape, device=seen.device)
    for t in range(batch.present_B_T.shape[1]):
        keep = batch.present_B_T[live, t].nonzero().squeeze(1)
        live, logits, seen = live[keep], logits[keep], seen[keep]
        ids = batch.completion_ids_B_T[live, t : t + 1]
        logps_B_T[live, t] = token_logps(logits, ids).squeeze(1)
        cache.batch_select_indices(keep)
        seen = torch.cat([seen, seen.new_ones(len(live), 1)], dim=1)
        logits = model(input_ids=ids, attention_mask=seen, position_ids=seen.sum(dim=1, keepdim=True) - 1,
                       past_key_values=cache, use_cache=True).logits[:, -1:]  # fmt: skip
    return logps_B_T


def _apart(found: Tensor, expected: Tensor, model: nn.Module) -> bool:
    """Whether log-probabilities differ by more than the order of sums explains; NaN counts as different."""
    return not (found - expected).abs().mean().item() <= ROUNDING[model.dtype]


def _noisy_modules(model: nn.Module) -> str:
    """Names of dropout layers that are on, and of modules with a setting named like one."""
    found = []
    for path, module in model.named_modules():
        settings = {"p": module.p} if isinstance(module, nn.modules.dropout._DropoutNd) else vars(module)
        noisy = {name: value for name, value in settings.items() if name == "p" or model_parts.NOISE.search(name)}
        found += [f"{path}.{name}" for name, value in noisy.items() if isinstance(value, float) and value > 0]
    return ", ".join(found[:3]) + ", ..." * (len(found) > 3) if found else "what is random in it"
