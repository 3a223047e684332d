"""One update's rollouts as tensors, and the loss of a part of them (AGPO Eq. 7).

The data of the rollouts grow in three steps, each a class whose fields are all set when it is made. `Tokens` holds the
tokens. `Measured` adds their values under the policy that sampled them, its reference and its critic. `Batch` adds what
else the loss needs.
"""

import math
from dataclasses import dataclass
from typing import Self

from torch import Tensor

from agpo_core import losses, metrics
from agpo_core.config import TrainConfig
from agpo_core.rollouts import policy


@dataclass(kw_only=True)
class Tokens:
    """Prompts and completions as a forward pass reads them; B = P * G rows, the groups contiguous."""

    prompt_ids_P_S: Tensor
    prompt_mask_P_S: Tensor
    completion_ids_B_T: Tensor
    mask_B_T: Tensor  # True on tokens that the policy sampled
    present_B_T: Tensor | None = None  # False on padding; None: mask_B_T, as every token but padding was sampled
    temperature_B: Tensor  # the ratio's temperature: that of the sampler, or 1

    def __post_init__(self):
        if self.present_B_T is None:
            self.present_B_T = self.mask_B_T

    def rows(self, start: int, stop: int) -> Self:
        """Prompts start..stop with their groups, without columns that hold only padding; of the same class."""
        G = len(self.completion_ids_B_T) // len(self.prompt_ids_P_S)
        P, B = slice(start, stop), slice(start * G, stop * G)
        S = int(self.prompt_mask_P_S[P].any(dim=0).int().argmax())
        T = int(self.present_B_T[B].any(dim=0).sum())
        fields = {}
        for name, value in vars(self).items():
            if name in ("prompt_ids_P_S", "prompt_mask_P_S"):
                value = value[P, S:]
            elif isinstance(value, Tensor):
                value = value[B, :T] if name.endswith("_B_T") else value[B]
            fields[name] = value
        return type(self)(**fields)

    def parts(self, size: int) -> list[Self]:
        """Parts of `size` prompts, in order; the last may be smaller."""
        return [self.rows(i, i + size) for i in range(0, len(self.prompt_ids_P_S), size)]

    def split(self, parts: int) -> list[Self]:
        """A given number of parts of equal size, in order."""
        return self.parts(math.ceil(len(self.prompt_ids_P_S) / parts))


@dataclass(kw_only=True)
class Measured(Tokens):
    """Rollouts with log-probabilities, values and entropy under the sampling policy, its reference and its critic."""

    keep_B: Tensor  # False: the row's group has no signal and is dropped
    old_logps_B_T: Tensor  # at temperature_B
    old_logps_T1_B_T: Tensor  # at temperature 1
    reference_logps_B_T: Tensor | None  # at temperature 1; None: no reference
    old_values_B_T: Tensor | None = None  # of the critic, before the update; None: no critic
    entropy: float  # H(pi_old), nats per token over all ranks
    entropies: list[float] | None = None  # H of each of all ranks' prompts; None: one radius for all prompts


@dataclass(kw_only=True)
class Batch(Measured):
    """Rollouts with everything that the loss needs."""

    beta: float  # weight of the KL to the reference
    epsilon_B_1: Tensor  # the clip radius
    advantages_B_T: Tensor  # (B, T), or (B, 1), one for all tokens of a rollout
    returns_B_T: Tensor | None = None  # the critic's targets; None: no critic


def forward_prompts(config: TrainConfig, ranks: int) -> int:
    """Prompts of one forward pass on a rank, with their groups, in every phase: its share of a minibatch, or fewer."""
    return config.micro_batch_prompts or config.prompts_per_update // (config.minibatches * ranks)


def minibatch_loss(model, batch: Batch, config: TrainConfig, denominator: int):
    """The loss of Eq. 7 on a part of a minibatch, plus the critic's loss where there is a critic.

    L = -aggregate( min(rho A, clip(rho, 1 - eps, 1 + eps) A) - beta KL - c_v L_V )

    Args:
        model: the policy, or an ActorCritic; gradients flow into it.
        batch: a micro-batch with advantages and radii.
        config: ratio, aggregation, kl_estimator, kl_placement, shared_prompt, value_clip, value_weight.
        denominator: sequences (or tokens) of the whole minibatch over micro-batches and ranks.
    Returns:
        The loss, whose sum over all parts is the loss of the minibatch; the critic's part of it, a float; and a mask of
        the tokens where the clip binds, (B, T).
    """
    c = config
    logits, values_B_T = policy.logits_and_values(model, batch, c)
    ids, mask_B_T = batch.completion_ids_B_T, batch.mask_B_T
    temperature, with_kl = batch.temperature_B.view(-1, 1, 1), batch.beta > 0 and c.kl_placement == "loss"
    if with_kl and (temperature != 1).any():
        logps_B_T, logps_T1_B_T = policy.token_logps_and_T1(logits, ids, temperature)
    else:
        logps_B_T = logps_T1_B_T = policy.token_logps(logits, ids, temperature)
    ratio_B_T = losses.importance_ratio(logps_B_T, batch.old_logps_B_T, mask_B_T, c.ratio)
    objective_B_T = losses.clipped_surrogate(ratio_B_T, batch.advantages_B_T, batch.epsilon_B_1)
    if with_kl:
        # With the mask: on an observation the policies may be far apart, and in a gradient 0 * inf is NaN.
        objective_B_T = objective_B_T - batch.beta * losses.kl_penalty(
            logps_T1_B_T, batch.reference_logps_B_T, c.kl_estimator, mask_B_T=mask_B_T
        )
    reduction = {
        "mask_B_T": mask_B_T & batch.keep_B.unsqueeze(1),
        "mode": c.aggregation,
        "max_length": c.max_completion_tokens if c.aggregation == "constant" else None,
        "denominator": denominator,
    }
    loss, value_loss = -losses.aggregate(objective_B_T, **reduction), 0.0
    if values_B_T is not None:
        error_B_T = losses.value_loss(values_B_T, batch.old_values_B_T, batch.returns_B_T, c.value_clip)
        critic_loss = c.value_weight * losses.aggregate(error_B_T, **reduction)
        loss, value_loss = loss + critic_loss, critic_loss.item()
    binds_B_T = metrics.clip_binds(ratio_B_T.detach(), batch.advantages_B_T, batch.epsilon_B_1)
    return loss, value_loss, binds_B_T
