"""What a group's mean is worth as a baseline, exactly, for rewards of 0 and 1; and what the batch's mean is worth.

A prompt is answered right with chance p, G times independently. Its best constant baseline would be p, which nobody
knows. REINFORCE++-baseline subtracts the group's mean in its place (R++ Eq. 6), REINFORCE++ the batch's (R++ Eq. 5).
"""

import torch

MEANS = ("group", "batch")


def silent_share(group_size, p):
    """Compute how often a group's rewards are all equal, so that the group's mean leaves nothing of them.

    silent = p^G + (1 - p)^G                                                     (ours)

    One at G = 1: a reward equals its own mean.

    Args:
        group_size: G >= 1.
        p: chance of a right answer, in [0, 1]; a number or a tensor.

    Returns:
        float64, the shape of p.

    Raises:
        ValueError: G < 1, or p outside [0, 1].

    Example:
        >>> silent_share(2, 0.5)
        tensor(0.5000, dtype=torch.float64)
    """
    _check_size(group_size)
    p = torch.as_tensor(p, dtype=torch.float64)
    if not ((0 <= p) & (p <= 1)).all():
        raise ValueError("p must lie in [0, 1]: it is the chance of a right answer.")
    return p**group_size + (1 - p) ** group_size


def informative(rollouts, group_size, p):
    """Compute how many rollouts of a batch are expected to lie in a group whose rewards differ.

    informative = N (1 - p^G - (1 - p)^G)                                        (ours)

    Args:
        rollouts: N, all of prompts with the same p.
        group_size, p: as for `silent_share`.

    Returns:
        float64, the shape of p.

    Example:
        >>> informative(288, 2, 0.5)
        tensor(144., dtype=torch.float64)
    """
    return rollouts * (1 - silent_share(group_size, p))


def split_variance(p_P):
    """Split the variance of the rewards of many prompts into its part within prompts and its part between them.

    W = mean_p p (1 - p)
    B = mean_p (p - p̄)²,  so that W + B is p̄ (1 - p̄)                            (ours)

    Args:
        p_P: each prompt's chance of a right answer.

    Returns:
        (W, B): float64.

    Example:
        >>> within, between = split_variance([0.0, 0.5, 1.0])
        >>> f"{within:.4f} {between:.4f}"
        '0.0833 0.1667'
    """
    p_P = torch.as_tensor(p_P, dtype=torch.float64)
    return (p_P * (1 - p_P)).mean(), p_P.var(correction=0)


def worth(mean, group_size, within, between):
    """Compute what a rollout is worth under a baseline, as a share of its worth if p were known.

    κ = E[A (r - p)] / W
    worth = κ² W / E[A²]                                                         (ours)

    group:  A = r - mean of the group,  κ = (G - 1) / G,  E[A²] = W (G - 1) / G,  worth = (G - 1) / G
    batch:  A = r - p̄,                  κ = 1,            E[A²] = W + B,          worth = W / (W + B)

    κ is the signal that is left, and E[A²] the noise, so that dividing all advantages by one number changes nothing.
    The batch is so large that its mean is p̄. A score function whose size does not depend on the reward is assumed.

    Args:
        mean: whose mean is subtracted, "group" or "batch".
        group_size: G >= 1, a number or a tensor.
        within, between: W and B of `split_variance`.

    Returns:
        float64.

    Raises:
        ValueError: another mean, or G < 1.

    Example:
        >>> worth("group", 2, 1 / 6, 1 / 12), worth("batch", 2, 1 / 6, 1 / 12)  # p uniform on [0, 1]
        (tensor(0.5000, dtype=torch.float64), tensor(0.6667, dtype=torch.float64))
    """
    _check_size(group_size)
    if mean not in MEANS:
        raise ValueError(f"mean={mean!r}: choose from {', '.join(MEANS)}.")
    G = torch.as_tensor(group_size, dtype=torch.float64)
    return (G - 1) / G if mean == "group" else torch.full_like(G, within / (within + between))


def break_even(within, between):
    """Compute the group size at which (G - 1) / G is W / (W + B); the group's mean is worth more above it.

    G = 1 + W / B                                                                (ours)

    Args:
        within, between: W and B of `split_variance`, B > 0.

    Returns:
        float.

    Example:
        >>> break_even(1 / 6, 1 / 12)
        3.0
    """
    return 1 + float(within) / float(between)


def _check_size(group_size):
    if (torch.as_tensor(group_size) < 1).any():
        raise ValueError(f"group_size={group_size}: a group has at least one rollout.")
