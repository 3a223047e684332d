"""Groups of 0/1 rewards, exactly: how often MAD and IQR vanish, how much a dispersion scatters, what Eq. 1 makes of it.

A prompt is answered right with chance p, G times independently, so that a group is told by its number right c alone:
c has a binomial distribution, and every expectation is a sum over G + 1 groups (AGPO Eqs. 1, 5 and §4.5).
"""

import math

import torch

from agpo_core.advantages import group_advantages
from agpo_core.checks import check_choice
from agpo_core.probe import DISPERSIONS, dispersion, equal_rewards, skewness


def groups(group_size):
    """List every group of binary rewards, a row each: 0, 1, ... G right.

    rewards[c, g] = 1[g < c]                                                     (ours)

    Args:
        group_size: G >= 2, a number of rollouts.

    Returns:
        rewards, float64, shape (G + 1, G).

    Raises:
        ValueError: G < 2.

    Example:
        >>> groups(2)
        tensor([[0., 0.],
                [1., 0.],
                [1., 1.]], dtype=torch.float64)
    """
    if group_size < 2:
        raise ValueError(f"group_size={group_size}: a group needs two rollouts or more.")
    return (torch.arange(group_size) < torch.arange(group_size + 1)[:, None]).double()


def chances(group_size, p):
    """Compute how likely each number right is.

    P(c) = C(G, c) p^c (1 - p)^(G - c)                                           (ours)

    Args:
        group_size: G >= 2.
        p: chance of a right answer, in [0, 1]; a number or a tensor.

    Returns:
        float64, the shape of p and a last axis of G + 1.

    Raises:
        ValueError: p outside [0, 1].

    Example:
        >>> chances(2, 0.5)
        tensor([0.2500, 0.5000, 0.2500], dtype=torch.float64)
    """
    p = torch.as_tensor(p, dtype=torch.float64)[..., None]
    if not ((0 <= p) & (p <= 1)).all():
        raise ValueError("p must lie in [0, 1]: it is the chance of a right answer.")
    right = torch.arange(group_size + 1)
    ways = torch.tensor([math.comb(group_size, c) for c in range(group_size + 1)], dtype=torch.float64)
    return ways * p**right * (1 - p) ** (group_size - right)


def collapse_chance(group_size, p, mode):
    """Compute how often a dispersion is zero although the rewards differ.

    P(σ̂ = 0 and 0 < c < G)                                                      (ours; AGPO §4.5, Eq. 1)

    Args:
        group_size, p: as for `chances`.
        mode: "std", "mad" or "iqr"; the first never collapses.

    Returns:
        float64, the shape of p.

    Example:
        >>> collapse_chance(8, 0.5, "mad")  # all but c = 0, 4, 8: 1 - (1 + 70 + 1) / 256
        tensor(0.7188, dtype=torch.float64)
    """
    check_choice("mode", mode, DISPERSIONS)
    rewards = groups(group_size)
    collapsed = (dispersion(rewards, mode, fallback="zero") == 0) & ~equal_rewards(rewards)
    return chances(group_size, p) @ collapsed.double()


def scatter(group_size, p, statistic, fallback="std"):
    """Compute mean and standard deviation of a statistic of one group.

    mean = Σ_c P(c) s(c),  sd² = Σ_c P(c) (s(c) - mean)²                         (ours)

    The mean over P prompts of the same p scatters by sd / sqrt(P).

    Args:
        group_size, p: as for `chances`.
        statistic: "std", "mad" or "iqr", the σ̂ of that mode; or "skewness", |κ̃₃|.
        fallback: of MAD and IQR, as in `probe.dispersion`.

    Returns:
        (mean, sd): float64, the shape of p.

    Example:
        >>> mean, sd = scatter(2, 0.5, "std")  # 0 or sqrt(.5), equally often
        >>> f"{mean:.4f} {sd:.4f}"
        '0.3536 0.3536'
    """
    check_choice("statistic", statistic, (*DISPERSIONS, "skewness"))
    rewards = groups(group_size)
    values = skewness(rewards).abs() if statistic == "skewness" else dispersion(rewards, statistic, fallback)
    P = chances(group_size, p)
    mean = P @ values
    return mean, (P * (values - mean[..., None]).square()).sum(dim=-1).sqrt()


def pull(group_size, mode, fallback="std"):
    """Compute how large the advantages of each group are.

    pull[c] = sqrt(mean_g A[c, g]²)                                              (ours; AGPO Eq. 1)

    Under "std" it is sqrt((G - 1) / G) for every group whose rewards differ: Eq. 1 gives them all the same weight.

    Args:
        group_size: G >= 2.
        mode, fallback: as in `probe.dispersion`.

    Returns:
        float64, shape (G + 1,): by the number right.

    Example:
        >>> pull(2, "std")  # 0 or ±.5 / sqrt(.5)
        tensor([0.0000, 0.7071, 0.0000], dtype=torch.float64)
    """
    return group_advantages(groups(group_size), mode, fallback=fallback).square().mean(dim=1).sqrt()
