"""Advantages from the rewards of a group: AGPO Eq. 1, which is GRPO's.

Departures from the paper:

- Groups of equal rewards get exactly zero; Eq. 1 divides their rounding error by 1e-8.
- A MAD or IQR of zero falls back as in `probe.dispersion`.
- A group of one is refused. Its reward equals its mean, so that its advantage would be zero: Eq. 3
  does not become PPO's surrogate at G = 1, as §3.1.2 says it does.
"""

from agpo_core.checks import check_rewards
from agpo_core.probe import dispersion


def group_advantages(rewards_P_G, mode="std", eps=1.0e-8, fallback="std"):
    """Normalise rewards inside each prompt's group.

    A[p, g] = (r[p, g] - mean_g r[p]) / (σ̂[p] + eps)                              (AGPO Eq. 1)

    Groups whose rewards are all equal get exactly zero. Under `fallback="zero"` so do groups whose
    MAD or IQR is zero. The advantages of a group sum to zero, whatever the mode.

    Args:
        rewards_P_G: training rewards, float32 or float64, finite, G >= 2.
        mode, fallback: the dispersion σ̂, as in `probe.dispersion`.
        eps: ε_A, units of reward; it keeps the quotient finite, and 1e-8 leaves it unchanged.

    Returns:
        advantages_P_G: broadcast a rollout's advantage to all its tokens.

    Raises:
        ValueError: G = 1, or NaN or infinite rewards.

    Example:
        >>> import torch
        >>> group_advantages(torch.tensor([[1.0, 0.0], [1.0, 1.0]]))  # ±.5 / sqrt(.5)
        tensor([[ 0.7071, -0.7071],
                [ 0.0000,  0.0000]])
    """
    check_rewards(rewards_P_G)
    if rewards_P_G.shape[1] == 1:
        raise ValueError(
            "rewards_P_G: a group of one equals its own mean, so that its advantage carries no "
            "signal; sample two or more rollouts a prompt, or normalise over the whole batch."
        )
    sigma_P_1 = dispersion(rewards_P_G, mode, fallback)[:, None]
    centred_P_G = rewards_P_G - rewards_P_G.mean(dim=1, keepdim=True)
    return (centred_P_G / (sigma_P_1 + eps)).masked_fill(sigma_P_1 == 0, 0.0)
