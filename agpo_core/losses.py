"""The clipped surrogate and its parts, AGPO Eqs. 2, 3 and 7; the losses of critics, preferences and reward models.

The loss of an update is `-aggregate(clipped_surrogate(...) - beta * kl_penalty(...), mask)`; PPO adds a multiple of
`aggregate(value_loss(...), mask)`. Choices where the papers leave room:

- The ratio is per token, the proxy "used in practice" (AGPO §3.4, Eqs. 13, 14). Eq. 2's product over the sequence is
  `level="sequence"`; on long answers it leaves any clip range at once.
- Losses are averaged over a sequence's tokens, then over sequences (Eq. 3's 1 / G).
- Eq. 13 lacks the `min` of Eqs. 3 and 7; it is kept here.
- Log-ratios are bounded to ±20. exp(20) = 5e8 lies beyond any clip range, and the bound keeps the exponential and its
  gradient finite.
- The reference KL is k3, averaged like the surrogate; Eq. 3 does not name an estimator.
- Schulman et al. 2017 print (V - R)² without a clip (Eq. 9); the clip of `value_loss` is that of their code.
"""

import torch
from torch.nn.functional import logsigmoid

from agpo_core.checks import (
    check_beside_tokens,
    check_choice,
    check_floats,
    check_matrix,
    check_same_shape,
    check_values,
    checked_denominator,
)
from agpo_core.kl import k1, k2, k3

LEVELS = ("token", "sequence", "sequence_geo")
AGGREGATIONS = ("sequence_mean", "token_mean", "constant")
KL_PENALTIES = {("k3", "loss"): k3, ("k2", "loss"): k2, ("k1", "reward"): k1}
LOG_RATIO_MAX = 20.0  # nats


def importance_ratio(logps_B_T, old_logps_B_T, mask_B_T, level="token"):
    """Give the importance ratio of the policy to the policy that sampled the tokens.

    token:         ρ[b, t] = π(a_t) / π_old(a_t)                                   (AGPO Eq. 14)
    sequence:      ρ[b, t] = Π_t π(a_t) / π_old(a_t)                               (AGPO Eq. 2)
    sequence_geo:  ρ[b, t] = (Π_t π(a_t) / π_old(a_t))^(1 / length)

    Sequence levels give every token of a row the row's ratio. The ratio is 1 where the policies agree. Masked tokens
    never matter. Beyond the bound of ±20 on log ρ the ratio has no gradient, not even where the surrogate would keep
    one: a token with A < 0 and ρ > exp(20) is not pushed down, and a token with A > 0 and ρ < exp(-20) is not pushed
    up.

    Args:
        logps_B_T: log-probabilities under the policy, nats; carries the gradient.
        old_logps_B_T: the same under the sampling policy, at the same temperature.
        mask_B_T: bool or 0/1, 1 on sampled tokens.
        level: "token", "sequence" or "sequence_geo".

    Returns:
        ratio_B_T, in [exp(-20), exp(20)].

    Raises:
        TypeError: log-probabilities that are neither float32 nor float64.
        ValueError: an unknown level, shapes that differ or are not (B, T), NaN or infinite unmasked values.

    Example:
        >>> logps, mask = torch.tensor([[0.5, 0.25]]).log(), torch.ones(1, 2)
        >>> importance_ratio(logps, torch.tensor([[0.25, 0.25]]).log(), mask, level="sequence")
        tensor([[2., 2.]])
    """
    check_choice("level", level, LEVELS)
    check_same_shape(logps_B_T=logps_B_T, old_logps_B_T=old_logps_B_T, mask_B_T=mask_B_T)
    check_matrix(mask_B_T=mask_B_T)
    check_values("logps_B_T", logps_B_T, mask_B_T.bool())
    check_values("old_logps_B_T", old_logps_B_T, mask_B_T.bool())
    log_ratio_B_T = (logps_B_T - old_logps_B_T).masked_fill(~mask_B_T.bool(), 0.0)
    if level != "token":
        total_B_1 = log_ratio_B_T.sum(dim=1, keepdim=True)
        if level == "sequence_geo":
            # At least 1: a row without tokens has ratio 1, not 0 / 0.
            total_B_1 = total_B_1 / mask_B_T.bool().sum(dim=1, keepdim=True).clamp(min=1)
        log_ratio_B_T = total_B_1.expand_as(log_ratio_B_T)
    return log_ratio_B_T.clamp(-LOG_RATIO_MAX, LOG_RATIO_MAX).exp()


def clip_range(epsilon):
    """Give the ends of the range that the ratio is clipped to.

    lowest = 1 - ε,  highest = 1 + ε                                               (AGPO Eqs. 3, 7)

    Args:
        epsilon: ε, >= 0: a number, or a tensor of any shape.

    Returns:
        (lowest, highest), each of the type and shape of epsilon.

    Raises:
        ValueError: epsilon is negative or NaN.

    Example:
        >>> clip_range(0.25)
        (0.75, 1.25)
    """
    if not (torch.as_tensor(epsilon) >= 0).all():
        raise ValueError(f"epsilon={epsilon} is not a radius; give a number >= 0.")
    return 1 - epsilon, 1 + epsilon


def clipped_surrogate(ratio_B_T, advantages_B_T, epsilon):
    """Give the clipped objective of each token, which is to be maximised.

    J[b, t] = min(ρ A, clip(ρ, 1 - ε, 1 + ε) A)                                    (AGPO Eqs. 3, 7)

    Equals A where the ratio is 1. Its gradient is zero where the clip binds (`metrics.clip_binds`).

    Args:
        ratio_B_T: ρ, from `importance_ratio`.
        advantages_B_T: A, (B, T), or (B, 1) to broadcast a rollout's advantage.
        epsilon: ε, >= 0, constant in the policy: a number, or a tensor of shape (B, T), or (B, 1) for one radius a
            rollout.

    Returns:
        objective_B_T.

    Raises:
        ValueError: a ratio that is not (B, T), advantages or epsilon of a shape other than those above, epsilon < 0.

    Example:
        >>> clipped_surrogate(torch.tensor([[1.5, 0.5]]), torch.tensor([[2.0, -2.0]]), 0.2)
        tensor([[ 2.4000, -1.6000]])
    """
    check_matrix(ratio_B_T=ratio_B_T, advantages_B_T=advantages_B_T)
    check_floats(ratio_B_T=ratio_B_T, advantages_B_T=advantages_B_T)
    check_beside_tokens(ratio_B_T, advantages_B_T=advantages_B_T, epsilon=epsilon)
    lowest, highest = clip_range(epsilon)
    return torch.minimum(ratio_B_T * advantages_B_T, ratio_B_T.clamp(lowest, highest) * advantages_B_T)


def aggregate(values_B_T, mask_B_T, mode="sequence_mean", max_length=None, denominator=None):
    """Average token values over a minibatch.

    sequence_mean:  v̄ = Σ_b (Σ_t m v / Σ_t m) / N                                  (AGPO Eq. 3)
    token_mean:     v̄ = Σ_b Σ_t m v / M                                            (Yu et al. 2025, DAPO)
    constant:       v̄ = Σ_b Σ_t m v / (N max_length)                               (Liu et al. 2025, Dr. GRPO)

    N is the number of sequences with at least one token, M the number of tokens. Masked values never change the result,
    but fill them before the loss: in a gradient 0 × inf is NaN. The result is zero when everything is masked.

    Args:
        values_B_T: token values; the gradient flows through.
        mask_B_T: bool or 0/1, 1 on sampled tokens.
        mode: "sequence_mean", "token_mean" or "constant".
        max_length: tokens a sequence may have, > 0; used by "constant" alone.
        denominator: N (or M for "token_mean") of the whole minibatch, when these rows are a part of it, such as a
            micro-batch or a rank's share; the results of the parts then add up to that of the whole. Default: that of
            the rows given. Zero counts as one, so that an empty minibatch gives zero.

    Returns:
        A scalar tensor.

    Raises:
        TypeError: values that are neither float32 nor float64.
        ValueError: an unknown mode, shapes that differ or are not (B, T), NaN or infinite unmasked values, "constant"
            without `max_length`, a denominator below zero.

    Example:
        >>> values, mask = torch.tensor([[1.0, 3.0], [5.0, 0.0]]), torch.tensor([[1, 1], [1, 0]])
        >>> aggregate(values, mask), aggregate(values, mask, "token_mean")
        (tensor(3.5000), tensor(3.))
    """
    check_choice("mode", mode, AGGREGATIONS)
    check_same_shape(values_B_T=values_B_T, mask_B_T=mask_B_T)
    check_matrix(values_B_T=values_B_T)
    check_values("values_B_T", values_B_T, mask_B_T.bool())
    if mode == "constant" and not (max_length and max_length > 0):
        raise ValueError(f"max_length={max_length}: mode='constant' needs the tokens that a sequence may have, > 0.")
    # Fill, not multiply: padding may hold anything, and 0 * NaN is NaN.
    sums_B = values_B_T.masked_fill(~mask_B_T.bool(), 0.0).sum(dim=1)
    lengths_B = mask_B_T.bool().sum(dim=1)
    if denominator is None:
        count = lengths_B.sum() if mode == "token_mean" else (lengths_B > 0).sum()
        denominator = count.clamp(min=1)  # at least 1: an empty minibatch gives 0, not 0 / 0
    else:
        denominator = checked_denominator(denominator)
    if mode == "sequence_mean":
        sums_B = sums_B / lengths_B.clamp(min=1)
    elif mode == "constant":
        sums_B = sums_B / max_length
    return sums_B.sum() / denominator


def kl_penalty(logps_B_T, reference_logps_B_T, estimator="k3", placement="loss", mask_B_T=None):
    """Give each token's KL penalty, which holds the policy near the reference: D_KL(π‖π_ref) of AGPO Eqs. 3 and 7.

    loss:    penalty = k3 or k2 of d = log π(a) - log π_ref(a)                      (AGPO Eq. 3; R++ Eq. 8)
    reward:  penalty = k1 = d                                                       (R++ Eq. 4)

    k3 or k2 belong in the loss, where their gradient acts; k1 belongs in the reward, where its
    value acts.

    Args:
        logps_B_T: log-probabilities under the policy at temperature 1, nats.
        reference_logps_B_T: the same under the reference; no gradient flows into it.
        estimator: "k3" or "k2" with placement "loss"; "k1" with placement "reward".
        placement: "loss" (subtract β times it from the objective) or "reward" (subtract β times it
            from the token's reward; detached, for a reward has no gradient).
        mask_B_T: bool or 0/1, 1 on sampled tokens: masked log-probabilities may then hold anything, and get a penalty
            and a gradient of zero. Without it the gradient is NaN where a masked k3 overflows (d < -88 in float32),
            though `aggregate` leaves its value out.

    Returns:
        penalty_B_T, nats.

    Raises:
        TypeError: log-probabilities that are not floating-point numbers.
        ValueError: shapes that differ or are not (B, T); any other pair of estimator and placement. k1 as a loss would
            not hold the policy at all.

    Example:
        >>> kl_penalty(torch.tensor([[-1.0]]), torch.tensor([[-3.0]]), "k2")
        tensor([[2.]])
    """
    if (estimator, placement) == ("k1", "loss"):
        raise ValueError(
            "estimator='k1' as a loss has the gradient of log π alone, which is zero in expectation and "
            "independent of the reference. Use estimator='k3' or 'k2', or placement='reward'."
        )
    check_choice("(estimator, placement)", (estimator, placement), tuple(KL_PENALTIES))
    check_matrix(logps_B_T=logps_B_T)
    if mask_B_T is not None:
        check_same_shape(logps_B_T=logps_B_T, reference_logps_B_T=reference_logps_B_T, mask_B_T=mask_B_T)
        # Fill before the estimator: exp can overflow on masked entries, and in a gradient 0 * inf is NaN
        logps_B_T, reference_logps_B_T = (
            logps.masked_fill(~mask_B_T.bool(), 0.0) for logps in (logps_B_T, reference_logps_B_T)
        )
    penalty_B_T = KL_PENALTIES[estimator, placement](logps_B_T, reference_logps_B_T.detach())
    return penalty_B_T.detach() if placement == "reward" else penalty_B_T


def value_loss(values_B_T, old_values_B_T, returns_B_T, clip_range=0.2):
    """Give the critic's squared error, clipped so that the critic stays near the values behind the advantages.

    L[b, t] = ½ max((V - R)², (clip(V, V_old - c, V_old + c) - R)²)

    The clip can only raise the loss. Where V has left the range in the direction of R, the gradient is zero. The loss
    is zero where V = R within the range. Give the result to `aggregate`, which removes padding. Source: the code of
    Schulman et al. 2017 and of Ziegler et al. 2019; unclipped, Eq. 9 of the former.

    Args:
        values_B_T: V, units of reward; carries the gradient. Finite, padding included: in a
            gradient, zero times NaN is NaN.
        old_values_B_T: V_old, the critic's values when the rollouts were scored; no gradient.
        returns_B_T: R, for instance advantages plus V_old (GAE); no gradient.
        clip_range: c, units of reward, > 0; None for no clip.

    Returns:
        loss_B_T, >= 0.

    Raises:
        TypeError: values that are not floating-point numbers.
        ValueError: shapes differ or are not (B, T), or `clip_range` is not above zero.

    Example:
        >>> V, V_old, R = torch.tensor([[1.0, 1.0]]), torch.tensor([[0.0, 1.0]]), torch.tensor([[2.0, 2.0]])
        >>> value_loss(V, V_old, R)  # max(1, 1.8²) / 2, max(1, 1) / 2
        tensor([[1.6200, 0.5000]])
    """
    check_same_shape(values_B_T=values_B_T, old_values_B_T=old_values_B_T, returns_B_T=returns_B_T)
    check_matrix(values_B_T=values_B_T)
    check_floats(values_B_T=values_B_T, old_values_B_T=old_values_B_T, returns_B_T=returns_B_T)
    old_values_B_T, returns_B_T = old_values_B_T.detach(), returns_B_T.detach()
    loss_B_T = (values_B_T - returns_B_T).square()
    if clip_range is not None:
        if not clip_range > 0:
            raise ValueError(f"clip_range={clip_range} must be above 0, in units of reward; None turns the clip off.")
        clipped_B_T = values_B_T.clamp(old_values_B_T - clip_range, old_values_B_T + clip_range)
        loss_B_T = torch.maximum(loss_B_T, (clipped_B_T - returns_B_T).square())
    return loss_B_T / 2


def dpo_loss(chosen_logps_B, rejected_logps_B, reference_chosen_logps_B, reference_rejected_logps_B, beta=0.1):
    """Give the DPO loss, which fits a policy to preferences without a reward model.

    L[b] = -log σ(β (log π(y_c) / π_ref(y_c) - log π(y_r) / π_ref(y_r)))      (Rafailov et al. 2023, Eq. 7)

    y_c is the chosen answer, y_r the rejected one. The loss is log 2 where the policies agree, and falls as the chosen
    answer gains on the rejected one. At a large margin on the wrong side it grows linearly and stays finite.

    Args:
        chosen_logps_B, rejected_logps_B: log-probabilities of whole answers under the policy, nats,
            summed over tokens; carry the gradient.
        reference_chosen_logps_B, reference_rejected_logps_B: the same under the reference; no
            gradient.
        beta: β, > 0; the larger β, the less the policy must move from the reference to reach a given loss.

    Returns:
        loss_B, >= 0: in floating point a large margin rounds to zero.

    Raises:
        TypeError: log-probabilities that are neither float32 nor float64.
        ValueError: shapes differ, NaN or infinite values, or `beta` is not above zero.

    Example:
        >>> same = torch.tensor([-4.0])
        >>> dpo_loss(torch.tensor([-2.0]), same, same, same, beta=0.5)  # -log σ(.5 * 2)
        tensor([0.3133])
    """
    logps = {
        "chosen_logps_B": chosen_logps_B,
        "rejected_logps_B": rejected_logps_B,
        "reference_chosen_logps_B": reference_chosen_logps_B,
        "reference_rejected_logps_B": reference_rejected_logps_B,
    }
    check_same_shape(**logps)
    for name, logps_B in logps.items():
        check_values(name, logps_B)
    if not beta > 0:
        raise ValueError(f"beta={beta} must be above 0: without it the loss does not see the preferences.")
    chosen_B = chosen_logps_B - reference_chosen_logps_B.detach()
    rejected_B = rejected_logps_B - reference_rejected_logps_B.detach()
    return -logsigmoid(beta * (chosen_B - rejected_B))


def bradley_terry_loss(chosen_rewards_B, rejected_rewards_B):
    """Give the Bradley-Terry loss, which fits a reward model to preferences.

    L[b] = -log σ(r(y_c) - r(y_r))                                      (Ouyang et al. 2022, Eq. 1)

    This is the negative log-likelihood of Bradley and Terry's model (1952). It is log 2 where the rewards agree, and
    unchanged when a constant is added to all rewards. At a large margin on the wrong side it grows linearly and stays
    finite.

    Args:
        chosen_rewards_B, rejected_rewards_B: the model's rewards of the two answers of each pair, without unit, of the
            same shape; carry the gradient.

    Returns:
        loss_B, >= 0: in floating point a large margin rounds to zero.

    Raises:
        TypeError: rewards that are neither float32 nor float64.
        ValueError: shapes differ, or NaN or infinite rewards.

    Example:
        >>> bradley_terry_loss(torch.tensor([1.0, 0.0]), torch.tensor([0.0, 0.0]))
        tensor([0.3133, 0.6931])
    """
    check_same_shape(chosen_rewards_B=chosen_rewards_B, rejected_rewards_B=rejected_rewards_B)
    check_values("chosen_rewards_B", chosen_rewards_B)
    check_values("rejected_rewards_B", rejected_rewards_B)
    return -logsigmoid(chosen_rewards_B - rejected_rewards_B)
