"""Advantages from rewards: every estimator of AGPO and of REINFORCE++, and those they are compared with.

AGPO Eq. 1; REINFORCE++ (R++, Hu et al. 2025) Eqs. 4-7 as a commentary on the paper gives them; Dr. GRPO, RLOO, ReMax
and PPO's GAE from their own papers. Tensors in, tensors out. A batch is B = P*G sequences, groups contiguous.

Means and standard deviations are taken over the tensors given. Where several ranks share a rollout batch, gather it
first and keep your own rows afterwards: a mean of the ranks' advantages is not the advantage of the whole batch.

Departures from the papers:

- Equal values (max == min) get exactly zero. Taken literally, Eq. 1 and R++ Eq. 5 divide the rounding error of their
  mean by 1e-8.
- A MAD or IQR of zero falls back as in `probe.dispersion`.
- A group of one is refused where a group mean is subtracted: its reward equals its mean, so its advantage would be
  zero. §3.1.2 says that Eq. 3 becomes PPO's surrogate at G = 1; it does not.
- R++ Eq. 4 gives the reward to all tokens; App. B.2 gives it to the last token alone. The first is the default, because
  public trainers do it; the second is `credit="last_token"`.
- R++'s Algorithm 1 normalises over all tokens, its paragraph on batch construction over all responses. The argument
  `population` chooses: the default is tokens for `reinforce_pp_advantages`, sequences for
  `reinforce_pp_baseline_advantages`.
- The papers do not say which standard deviation they mean. Here it is the unbiased one; `convention` also offers the
  formulas of two public trainers.
- A rollout without an unmasked token has nothing to train on. Estimators that take the token mask leave it out of every
  mean and standard deviation. The other estimators count every rollout.

In float32 a spread below about 1e-7 of the values' size is lost to the rounding of their mean; use float64 there.
"""

import torch

from agpo_core.checks import (
    check_choice,
    check_group_size,
    check_range,
    check_rewards,
    check_same_shape,
    check_token_mask,
    check_values,
)
from agpo_core.probe import dispersion

CREDITS = ("return_to_go", "last_token")
POPULATIONS = ("tokens", "sequences")
CONVENTIONS = ("paper", "openrlhf", "verl")


def group_advantages(rewards_P_G, mode="std", eps=1.0e-8, fallback="std"):
    """Normalise rewards inside each prompt's group.

    A[p, g] = (r[p, g] - mean_g r[p]) / (σ̂[p] + eps)                              (AGPO Eq. 1)

    Groups whose rewards are all equal get exactly zero. Under `fallback="zero"` so do groups whose
    MAD or IQR is zero. The advantages of a group sum to zero, whatever the mode.

    Args:
        rewards_P_G: training rewards, float32 or float64, finite, G >= 2.
        mode, fallback: the dispersion σ̂, as in `probe.dispersion`.
        eps: ε_A, units of reward, >= 0. It keeps the quotient finite; 1e-8 is too small to change it otherwise.

    Returns:
        advantages_P_G: broadcast a rollout's advantage to all its tokens.

    Raises:
        ValueError: G = 1, NaN or infinite rewards, an option unknown or out of range.

    Example:
        >>> import torch
        >>> group_advantages(torch.tensor([[1.0, 0.0], [1.0, 1.0]]))  # ±.5 / sqrt(.5)
        tensor([[ 0.7071, -0.7071],
                [ 0.0000,  0.0000]])
    """
    check_range("eps", eps)
    check_rewards(rewards_P_G)
    check_group_size(rewards_P_G, "normalise over the whole batch")
    sigma_P_1 = dispersion(rewards_P_G, mode, fallback)[:, None]
    centred_P_G = rewards_P_G - rewards_P_G.mean(dim=1, keepdim=True)
    return (centred_P_G / (sigma_P_1 + eps)).masked_fill(sigma_P_1 == 0, 0.0)


def dr_grpo_advantages(rewards_P_G):
    """Subtract each prompt's mean reward, without dividing by a standard deviation.

    A[p, g] = r[p, g] - mean_g r[p]                                        (Dr. GRPO, Liu et al. 2025)

    Groups whose rewards are all equal get exactly zero. The advantages of a group sum to zero.

    Args:
        rewards_P_G: training rewards, float32 or float64, finite, G >= 2.

    Returns:
        advantages_P_G, units of reward: broadcast a rollout's advantage to all its tokens.

    Raises:
        ValueError: G = 1, or NaN or infinite rewards.

    Example:
        >>> dr_grpo_advantages(torch.tensor([[1.0, 0.0], [1.0, 1.0]]))
        tensor([[ 0.5000, -0.5000],
                [ 0.0000,  0.0000]])
    """
    check_rewards(rewards_P_G)
    check_group_size(rewards_P_G, "normalise over the whole batch")
    return _centre_groups(rewards_P_G)


def leave_one_out_advantages(rewards_P_G):
    """Subtract from each reward the mean of the other rewards of its group.

    A[p, g] = r[p, g] - Σ_{h≠g} r[p, h] / (G - 1)                          (RLOO, Ahmadian et al. 2024)
            = G / (G - 1) (r[p, g] - mean_g r[p])

    The baseline does not depend on the rollout that it is subtracted from, so the policy gradient stays unbiased.
    Groups whose rewards are all equal get exactly zero. The advantages of a group sum to zero.

    Args:
        rewards_P_G: training rewards, float32 or float64, finite, G >= 2.

    Returns:
        advantages_P_G, units of reward: broadcast a rollout's advantage to all its tokens.

    Raises:
        ValueError: G = 1, where there is no other rollout; or NaN or infinite rewards.

    Example:
        >>> leave_one_out_advantages(torch.tensor([[1.0, 0.0, 0.0]]))  # 1 - 0, 0 - 1/2, 0 - 1/2
        tensor([[ 1.0000, -0.5000, -0.5000]])
    """
    check_rewards(rewards_P_G)
    check_group_size(rewards_P_G, "take the greedy rollout's reward as the baseline")
    G = rewards_P_G.shape[1]
    return _centre_groups(rewards_P_G) * (G / (G - 1))


def greedy_baseline_advantages(rewards_P_G, greedy_rewards_P):
    """Subtract the reward of the prompt's greedy rollout from each reward.

    A[p, g] = r[p, g] - r_greedy[p]                                              (ReMax, Li et al. 2023)

    A rollout that earns as much as the greedy one gets zero. Works for G = 1.

    Args:
        rewards_P_G: rewards of the sampled rollouts, float32 or float64, finite, G >= 1.
        greedy_rewards_P: reward of one greedy rollout per prompt, same units, finite.

    Returns:
        advantages_P_G, units of reward: broadcast a rollout's advantage to all its tokens.

    Raises:
        ValueError: NaN or infinite rewards, or not one greedy reward per prompt.

    Example:
        >>> greedy_baseline_advantages(torch.tensor([[1.0], [0.0]]), torch.tensor([0.0, 1.0]))
        tensor([[ 1.],
                [-1.]])
    """
    check_rewards(rewards_P_G)
    check_values("greedy_rewards_P", greedy_rewards_P)
    if greedy_rewards_P.shape != rewards_P_G.shape[:1]:
        raise ValueError(
            f"greedy_rewards_P has shape {tuple(greedy_rewards_P.shape)}; give one greedy reward for each of the "
            f"{len(rewards_P_G)} prompts of rewards_P_G."
        )
    return rewards_P_G - greedy_rewards_P[:, None]


def token_returns(rewards_B, mask_B_T, kl_B_T=None, beta=0.0, credit="return_to_go"):
    """Turn each sequence's reward, and the KL of its tokens, into one return per token.

    return_to_go:  A_t = r - β Σ_{i>=t} KL(i)                                              (R++ Eq. 4)
    last_token:    A_T = r - β KL(T),  A_t = 0 for t < T                              (R++ App. B.2)

    i and t run over the unmasked tokens, and T is the last of them. There is no discount (γ = 1). Masked tokens between
    unmasked ones, such as a tool's observation, neither end the return nor add to it.

    Args:
        rewards_B: one reward per sequence, float32 or float64, finite where the sequence has an unmasked token.
        mask_B_T: bool or 0/1, 1 on sampled tokens.
        kl_B_T: KL(t), nats: log π_old(o_t) - log π_ref(o_t) (`kl.k1`, detached). Masked entries may hold anything.
        beta: β, units of reward per nat, >= 0.
        credit: "return_to_go" or "last_token".

    Returns:
        returns_B_T, units of reward; zero on masked tokens.

    Raises:
        ValueError: beta > 0 without kl_B_T, shapes that do not fit, NaN or infinite values.

    Example:
        >>> mask_B_T = torch.tensor([[1, 0, 1, 1]])
        >>> token_returns(torch.tensor([1.0]), mask_B_T, kl_B_T=torch.ones(1, 4), beta=0.1)
        tensor([[0.7000, 0.0000, 0.8000, 0.9000]])
        >>> token_returns(torch.tensor([1.0]), mask_B_T, credit="last_token")
        tensor([[0., 0., 0., 1.]])
    """
    check_choice("credit", credit, CREDITS)
    check_range("beta", beta)
    if rewards_B.ndim != 1:
        raise ValueError(
            f"rewards_B has shape {tuple(rewards_B.shape)}; give one reward per sequence: rewards_P_G.flatten()."
        )
    check_token_mask("rewards_B", rewards_B, mask_B_T)
    mask_B_T = mask_B_T.bool()
    check_values("rewards_B", rewards_B, mask_B_T.any(dim=1))
    if kl_B_T is None and beta > 0:
        raise ValueError(f"beta={beta} without kl_B_T: give the KL of each token, or beta=0.")
    returns_B_T = rewards_B[:, None].expand(mask_B_T.shape)
    if kl_B_T is not None:
        check_same_shape(kl_B_T=kl_B_T, mask_B_T=mask_B_T)
        check_values("kl_B_T", kl_B_T, mask_B_T)
        kl_B_T = torch.where(mask_B_T, kl_B_T, 0.0)
        returns_B_T = returns_B_T - beta * (_from_here_on(kl_B_T) if credit == "return_to_go" else kl_B_T)
    return torch.where(mask_B_T if credit == "return_to_go" else _last_tokens(mask_B_T), returns_B_T, 0.0)


def global_advantages(values, mask=None, eps=1.0e-8, population="tokens", convention="paper"):
    """Normalise values by the mean and the standard deviation of the whole batch.

    A = (x - μ) / (σ + eps)                                                                (R++ Eq. 5)

    μ = Σ w x / N,  σ² = Σ w (x - μ)² / (N - 1), over the unmasked entries:
    tokens:     w = 1, N the number of entries: long sequences weigh more than short ones.
    sequences:  w = 1 / (unmasked entries of the row), N the number of rows that have any. Where a row's entries are
                equal, these are the statistics of one number per row.

    paper:     as above: unbiased σ, eps added to it.
    openrlhf:  (x - μ) / sqrt(max(σ², 1e-8)), σ² divided by N instead.
    verl:      (x - μ) / sqrt(σ² + 1e-8).

    In every convention the result is exactly zero when all unmasked entries are equal (max == min), and so when there
    is only one. With N = 1 an unbiased σ does not exist, and the result is zero. Masked entries are exactly zero.
    (OpenRLHF leaves (0 - μ) / σ there, which its loss mask removes.) The weighted mean of the result is zero.

    The values and the mask must be those of the whole rollout batch, of all ranks: gather them first.

    Args:
        values: any shape, float32 or float64, finite where unmasked: one number per sequence, (B,) or (P, G), or one
            per token, (B, T).
        mask: the same shape, bool or 0/1, 1 where an entry counts. With a mask, the last axis holds a row's tokens;
            without one, every entry is a sequence of its own.
        eps: ε of Eq. 5, units of the values, >= 0; it keeps the quotient finite. For convention "paper" only.
        population: "tokens" or "sequences". Both give the same for one number per sequence: shape (B,), or no mask.
        convention: "paper", "openrlhf" or "verl".

    Returns:
        advantages of the shape of values, without unit.

    Raises:
        ValueError: NaN or infinite unmasked values, shapes that differ, an unknown option.

    Example:
        >>> global_advantages(torch.tensor([1.0, 2.0, 3.0]))
        tensor([-1.,  0.,  1.])
        >>> values_B_T = torch.tensor([[1.0, 1.0, 1.0], [0.0, 9.0, 9.0]])
        >>> mask_B_T = torch.tensor([[1, 1, 1], [1, 0, 0]])
        >>> global_advantages(values_B_T, mask_B_T)  # μ = 3/4, σ² = (3/16 + 9/16) / 3
        tensor([[ 0.5000,  0.5000,  0.5000],
                [-1.5000,  0.0000,  0.0000]])
        >>> global_advantages(values_B_T, mask_B_T, population="sequences")  # μ = 1/2, σ² = 1/2
        tensor([[ 0.7071,  0.7071,  0.7071],
                [-0.7071,  0.0000,  0.0000]])
    """
    check_choice("population", population, POPULATIONS)
    if mask is None:
        counted = torch.ones_like(values, dtype=torch.bool)
    else:
        check_same_shape(values=values, mask=mask)
        counted = mask.bool()
    check_values("values", values, counted)
    weights, count = None, counted.count_nonzero()
    if population == "sequences" and mask is not None and values.ndim > 1:
        lengths = counted.count_nonzero(dim=-1).unsqueeze(-1)
        weights, count = counted.to(values) / lengths.clamp(min=1), lengths.count_nonzero()
    return _normalise(values, counted, count, eps, convention, weights)


def reinforce_pp_advantages(
    rewards_B,
    mask_B_T,
    kl_B_T=None,
    beta=0.0,
    credit="return_to_go",
    population="tokens",
    eps=1.0e-8,
    convention="paper",
):
    """REINFORCE++ advantages: returns that include the KL, normalised over the whole batch.

    A_t = (R_t - μ) / (σ + eps),  R_t as in `token_returns`, μ and σ as in `global_advantages`   (R++ Eqs. 4, 5)

    Groups play no part: one rollout per prompt (k = 1) is enough, and more are allowed. Advantages are exactly zero
    when all returns are equal. But where the rewards are equal and beta > 0, returns still differ by their KL, and Eq.
    5 scales even a spread of 1e-4 to unit variance.

    With credit "last_token" μ and σ are taken over the last tokens alone, one per sequence, and all other tokens get
    zero. A sequence without unmasked tokens is ignored, whatever its reward.

    The batch must be the whole rollout batch, of all ranks: gather it first.

    Args:
        rewards_B, mask_B_T, kl_B_T, beta, credit: as in `token_returns`.
        population, eps, convention: as in `global_advantages`.

    Returns:
        advantages_B_T, without unit; zero on masked tokens.

    Raises:
        ValueError: as `token_returns` and `global_advantages`.

    Example:
        >>> mask_B_T = torch.tensor([[1, 0, 0], [1, 1, 1]])
        >>> reinforce_pp_advantages(torch.tensor([1.0, 0.0]), mask_B_T)  # μ = 1/4, σ² = (9/16 + 3/16) / 3
        tensor([[ 1.5000,  0.0000,  0.0000],
                [-0.5000, -0.5000, -0.5000]])
    """
    returns_B_T = token_returns(rewards_B, mask_B_T, kl_B_T, beta, credit)
    counted_B_T = mask_B_T if credit == "return_to_go" else _last_tokens(mask_B_T.bool())
    return global_advantages(returns_B_T, counted_B_T, eps, population, convention)


def reinforce_pp_baseline_advantages(
    rewards_P_G, mask_B_T=None, population="sequences", eps=1.0e-8, convention="paper"
):
    """REINFORCE++ with baseline: subtract the prompt's mean reward, then normalise over the whole batch.

    A'[p, g] = r[p, g] - mean_g r[p]                                                       (R++ Eq. 6)
    A[p, g] = (A'[p, g] - μ) / (σ + eps),  μ and σ those of A' over the batch              (R++ Eq. 7)

    sequences:  every rollout counts once. In exact arithmetic μ = 0; a group of equal rewards gets exactly zero.
    tokens:     a rollout counts as often as it has tokens. μ is not zero, and a group of equal rewards has A = -μ / σ.

    All advantages are exactly zero when no group has unequal rewards. A rollout without unmasked tokens counts in
    neither mean and has A = 0, whatever its reward; without a mask all rollouts count.

    The batch must be the whole rollout batch, of all ranks: gather it first.

    Args:
        rewards_P_G: training rewards, float32 or float64, finite, G >= 2.
        mask_B_T: bool or 0/1, 1 on sampled tokens; B = P*G, groups contiguous. Needed for population "tokens".
        population: "sequences" or "tokens".
        eps, convention: as in `global_advantages`.

    Returns:
        advantages_P_G, without unit: broadcast a rollout's advantage to all its tokens.

    Raises:
        ValueError: G = 1 (use `reinforce_pp_advantages`), population "tokens" without a mask, NaN or infinite rewards.

    Example:
        >>> rewards_P_G = torch.tensor([[1.0, 0.0], [1.0, 1.0]])
        >>> reinforce_pp_baseline_advantages(rewards_P_G)  # A' = ±1/2, 0, 0; σ² = (1/4 + 1/4) / 3
        tensor([[ 1.2247, -1.2247],
                [ 0.0000,  0.0000]])
    """
    check_choice("population", population, POPULATIONS)
    if mask_B_T is None:
        if population == "tokens":
            raise ValueError("mask_B_T is missing: population='tokens' weighs a rollout by its number of tokens.")
        lengths_P_G = torch.ones_like(rewards_P_G, dtype=torch.long)
    else:
        check_token_mask("rewards_P_G", rewards_P_G, mask_B_T)
        lengths_P_G = mask_B_T.bool().sum(dim=1).view_as(rewards_P_G)
    counted_P_G = lengths_P_G > 0
    rewards_P_G = rewards_P_G.masked_fill(~counted_P_G, 0.0)
    check_rewards(rewards_P_G)
    check_group_size(rewards_P_G, "use reinforce_pp_advantages")
    centred_P_G = _centre_groups(rewards_P_G, counted_P_G)
    weights_P_G = (lengths_P_G if population == "tokens" else counted_P_G).to(centred_P_G)
    count = lengths_P_G.sum() if population == "tokens" else counted_P_G.count_nonzero()
    advantages_P_G = _normalise(centred_P_G, counted_P_G, count, eps, convention, weights_P_G)
    if population == "tokens":
        return advantages_P_G
    # μ is 0 up to rounding. A reward equal to its group's mean has no advantage, nor has any reward of an equal group.
    return advantages_P_G.masked_fill(centred_P_G == 0, 0.0)


def gae(rewards_B_T, values_B_T, mask_B_T, gamma=1.0, lam=0.95):
    """PPO's generalised advantage estimation (GAE), from token rewards and a critic's values.

    δ_t = r_t + γ V_{t+1} - V_t,   A_t = δ_t + γ λ A_{t+1},   R_t = A_t + V_t            (Schulman et al. 2016, Eq. 16)

    t + 1 is the next unmasked token: masked tokens in between, such as a tool's observation, are skipped without a
    discount. V and A after the last token are zero. With λ = 1 and V = 0, A is the return-to-go.

    Args:
        rewards_B_T: reward of each token, float32 or float64, finite where unmasked.
        values_B_T: V, the critic's value of the state before each token, units of reward.
        mask_B_T: bool or 0/1, 1 on sampled tokens. Masked rewards and values may hold anything.
        gamma: γ in [0, 1].
        lam: λ in [0, 1].

    Returns:
        advantages_B_T, returns_B_T (the critic's target), units of reward; zero on masked tokens. Gradients flow from
        both to the values: pass detached values, or detach the results, before you use them in a loss.

    Raises:
        ValueError: shapes that differ, NaN or infinite unmasked values, gamma or lam out of range.

    Example:
        >>> rewards_B_T, values_B_T = torch.tensor([[0.0, 9.0, 1.0]]), torch.tensor([[0.5, 9.0, 0.75]])
        >>> gae(rewards_B_T, values_B_T, torch.tensor([[1, 0, 1]]), lam=0.5)  # .25; .25 + .5 * .25
        (tensor([[0.3750, 0.0000, 0.2500]]), tensor([[0.8750, 0.0000, 1.0000]]))
    """
    check_range("gamma", gamma, high=1.0)
    check_range("lam", lam, high=1.0)
    check_same_shape(rewards_B_T=rewards_B_T, values_B_T=values_B_T, mask_B_T=mask_B_T)
    mask_B_T = mask_B_T.bool()
    check_values("rewards_B_T", rewards_B_T, mask_B_T)
    check_values("values_B_T", values_B_T, mask_B_T)
    if mask_B_T.ndim != 2 or mask_B_T.shape[1] == 0:
        raise ValueError(f"mask_B_T has shape {tuple(mask_B_T.shape)}; give one row a sequence and at least one token.")
    # Fill, not multiply: padding may hold anything, and its gradient must be zero and not NaN.
    rewards_B_T, values_B_T = rewards_B_T.masked_fill(~mask_B_T, 0.0), values_B_T.masked_fill(~mask_B_T, 0.0)
    next_advantage_B = next_value_B = torch.zeros_like(values_B_T[:, 0])
    reversed_T_B = []
    for rewards_t, values_t, mask_t in zip(
        reversed(rewards_B_T.unbind(1)), reversed(values_B_T.unbind(1)), reversed(mask_B_T.unbind(1)), strict=True
    ):
        delta_B = rewards_t + gamma * next_value_B - values_t
        next_advantage_B = torch.where(mask_t, delta_B + gamma * lam * next_advantage_B, next_advantage_B)
        next_value_B = torch.where(mask_t, values_t, next_value_B)
        reversed_T_B.append(next_advantage_B)
    advantages_B_T = torch.stack(reversed_T_B[::-1], dim=1).masked_fill(~mask_B_T, 0.0)
    return advantages_B_T, advantages_B_T + values_B_T


def mixed_advantages(rewards_P_G, local_share=0.5, eps=1.0e-8):
    """Mix local and global scaling prompt by prompt, weighted by the variance of the prompt's rewards.

    A[p, g] = w[p] A_global[p, g] + (1 - w[p]) A_local[p, g]                          (ours, see below)
    w[p] = (1 - m) v[p] / ((1 - m) v[p] + m v̄)

    A_local is `group_advantages` (std), A_global `reinforce_pp_baseline_advantages` (sequences); v[p] is the variance
    of the prompt's rewards, v̄ its mean over the batch's prompts, m the local share.

    The commentary on R++ leaves open whether scaling should be mixed like this: more global scaling for prompts whose
    rewards vary, more local scaling for prompts whose rewards hardly vary. The formula is ours. It is the simplest that
    has both methods as limits: m = 0 gives A_global and m = 1 gives A_local. A prompt of average variance has w = 1 -
    m. w lies in [0, 1] and rises with v; at m = 1/2 it does not exceed P / (P + 1). Shifting a prompt's rewards, or
    scaling all rewards by one factor, leaves every w unchanged.

    The commentary calls prompts of high variance easy. For binary rewards this is not so: their variance is largest
    where half of the rollouts are right, and it is the same at 1/8 as at 7/8.

    Groups whose rewards are all equal get exactly zero. The advantages of a group sum to zero. The batch must be the
    whole rollout batch, of all ranks: gather it first.

    Args:
        rewards_P_G: training rewards, float32 or float64, finite, G >= 2.
        local_share: m in [0, 1].
        eps: added to both standard deviations, units of reward, >= 0.

    Returns:
        advantages_P_G, without unit: broadcast a rollout's advantage to all its tokens.

    Raises:
        ValueError: G = 1, local_share out of range, or NaN or infinite rewards.

    Example:
        >>> rewards_P_G = torch.tensor([[1.0, 0.0], [1.0, 1.0]])
        >>> mixed_advantages(rewards_P_G)  # v = 1/4, 0; w = 2/3; ±(2/3 * 1.2247 + 1/3 * .7071)
        tensor([[ 1.0522, -1.0522],
                [ 0.0000,  0.0000]])
    """
    check_range("local_share", local_share, high=1.0)
    local_P_G = group_advantages(rewards_P_G, eps=eps)
    global_P_G = reinforce_pp_baseline_advantages(rewards_P_G, eps=eps)
    variance_P = _centre_groups(rewards_P_G).square().mean(dim=1)
    globally_P = (1 - local_share) * variance_P
    # At m = 0, or in a batch of equal groups, w of an equal group would be 0 / 0; both of its advantages are zero.
    total_P = (globally_P + local_share * variance_P.mean()).masked_fill(variance_P == 0, 1.0)
    weight_P_1 = (globally_P / total_P)[:, None]
    mixed_P_G = weight_P_1 * global_P_G + (1 - weight_P_1) * local_P_G
    return mixed_P_G.masked_fill(variance_P[:, None] == 0, 0.0)


def _centre_groups(rewards_P_G, counted_P_G=None):
    """Subtract each group's mean over its counted rollouts; exactly zero in equal groups and where not counted."""
    if counted_P_G is None:
        mean_P_1 = rewards_P_G.mean(dim=1, keepdim=True)
        counted_P_G = torch.ones_like(rewards_P_G, dtype=torch.bool)
    else:
        counts_P_1 = counted_P_G.sum(dim=1, keepdim=True)
        mean_P_1 = rewards_P_G.masked_fill(~counted_P_G, 0.0).sum(dim=1, keepdim=True) / counts_P_1.clamp(min=1)
    lowest_P_1 = rewards_P_G.masked_fill(~counted_P_G, torch.inf).amin(dim=1, keepdim=True)
    highest_P_1 = rewards_P_G.masked_fill(~counted_P_G, -torch.inf).amax(dim=1, keepdim=True)
    return (rewards_P_G - mean_P_1).masked_fill(~counted_P_G | (lowest_P_1 == highest_P_1), 0.0)


def _normalise(values, counted, count, eps, convention, weights=None):
    """(x - μ) / σ, with μ = Σ w x / N and σ² = Σ w (x - μ)² / (N or N - 1); zero where not counted or x is constant.

    N is `count`; w is 1 where counted, or `weights`, zero where not counted.
    """
    check_choice("convention", convention, CONVENTIONS)
    check_range("eps", eps)

    def total(x):
        return (x if weights is None else weights * x).sum()

    values = torch.where(counted, values, 0.0)
    if not count:
        return values
    lost = 0 if convention == "openrlhf" else 1  # degrees of freedom that the mean uses up
    lowest = torch.where(counted, values, torch.inf).amin()
    highest = torch.where(counted, values, -torch.inf).amax()
    heard = counted & (lowest < highest) & (count > lost)
    centred = torch.where(heard, values - total(values) / count, 0.0)
    variance = total(centred.square()) / (count - lost).clamp(min=1)
    if convention == "openrlhf":
        inverse = variance.clamp(min=1.0e-8).rsqrt()
    elif convention == "verl":
        inverse = (variance + 1.0e-8).rsqrt()
    else:
        # At zero, where x is constant or its squares underflow, the square root has no gradient: take the root of 1
        # there.
        inverse = 1 / (variance.masked_fill(variance == 0, 1.0).sqrt() + eps)
    return centred * inverse


def _from_here_on(values_B_T):
    """Sum each row from each token to its end."""
    return values_B_T.flip(1).cumsum(1).flip(1)


def _last_tokens(mask_B_T):
    """Mark the last unmasked token of each row that has one; mask_B_T is bool."""
    return mask_B_T & (_from_here_on(mask_B_T.long()) == 1)
