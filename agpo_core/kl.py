"""KL divergence of two policies: per-token estimators, the exact value, the step drift of Eq. 6.

With d = log π(a) - log π_ref(a) and actions sampled from π, k1 and k3 have the expectation KL(π‖π_ref); k2 has it to
second order. As losses they differ: the expected gradient of k2 is that of KL(π‖π_ref), and that of k3 is that of
KL(π_ref‖π). The gradient of k1 is zero in expectation and does not depend on π_ref (see `losses.kl_penalty`).
"""

import torch

from agpo_core.checks import (
    check_choice,
    check_floats,
    check_matrix,
    check_same_shape,
    check_values,
    checked_denominator,
)


def k1(logps, reference_logps):
    """Estimate KL(π‖π_ref) without bias; single values may be negative.

    k1 = d = log π(a) - log π_ref(a)                                                   (Schulman 2020)

    Zero where the policies agree.

    Args:
        logps, reference_logps: log-probabilities of the sampled tokens under π and π_ref, nats, any shape, the same for
            both.

    Returns:
        d per token, nats.

    Raises:
        TypeError: log-probabilities that are not floating-point numbers.
        ValueError: shapes that differ.

    Example:
        >>> k1(torch.tensor([-1.0, -6.0]), torch.tensor([-3.0, -1.0]))
        tensor([ 2., -5.])
    """
    check_same_shape(logps=logps, reference_logps=reference_logps)
    check_floats(logps=logps, reference_logps=reference_logps)
    return logps - reference_logps


def k2(logps, reference_logps):
    """Estimate KL(π‖π_ref) to second order: biased, never negative. Arguments as for `k1`.

    k2 = d² / 2                                                             (Schulman 2020; R++ Eq. 8)

    Returns:
        k2 per token, nats.

    Example:
        >>> k2(torch.tensor([-1.0, -6.0]), torch.tensor([-3.0, -1.0]))
        tensor([ 2.0000, 12.5000])
    """
    return k1(logps, reference_logps).square() / 2


def k3(logps, reference_logps):
    """Estimate KL(π‖π_ref) without bias, with values that are never negative. Arguments as for `k1`.

    k3 = exp(-d) - 1 + d                                                                (Schulman 2020)

    It grows exponentially where a token is more likely under the reference than under the policy: it is 142 at d = -5,
    where k2 is 12.5, and infinite in float32 at d < -88.7.

    Returns:
        k3 per token, nats.

    Example:
        >>> k3(torch.tensor([-1.0, -6.0]), torch.tensor([-3.0, -1.0]))
        tensor([  1.1353, 142.4132])
    """
    d = k1(logps, reference_logps)
    return torch.expm1(-d) + d


def categorical_kl(logits, reference_logits):
    """Compute KL(π‖π_ref) exactly, from the whole vocabulary.

    KL = Σ_v π(v) (log π(v) - log π_ref(v))                               (Kullback and Leibler 1951)

    Zero when the distributions are equal; tokens of probability zero under π add nothing.

    Args:
        logits, reference_logits: unnormalised log-probabilities, (..., V), of the same shape.

    Returns:
        KL in nats, (...).

    Example:
        >>> categorical_kl(torch.tensor([3.0, 1.0]).log(), torch.tensor([1.0, 1.0]).log())
        tensor(0.1308)
    """
    check_same_shape(logits=logits, reference_logits=reference_logits)
    check_floats(logits=logits, reference_logits=reference_logits)
    logps, reference_logps = logits.log_softmax(-1), reference_logits.log_softmax(-1)
    # 0 log 0 = 0: without the mask a logit of -inf gives 0 * inf.
    log_ratio = (logps - reference_logps).masked_fill(logps == -torch.inf, 0.0)
    return (logps.exp() * log_ratio).sum(-1)


def step_drift(old_logps_B_T, new_logps_B_T, mask_B_T, estimator="k1", denominator=None):
    """Estimate how far one update moved the policy, on the tokens that the old policy sampled.

    D̂_step = Σ_t m_t (log π_old(a_t) - log π_new(a_t)) / Σ_t m_t                   (AGPO Eq. 6)

    This estimates KL(π_old‖π_new) at temperature 1, and is detached. Eq. 6 uses k1, which can be negative; k3 cannot.
    Zero when the policy did not move or no token is kept.

    Args:
        old_logps_B_T, new_logps_B_T: log-probabilities before and after the update, nats.
        mask_B_T: bool or 0/1, 1 on sampled tokens.
        estimator: "k1" (Eq. 6) or "k3".
        denominator: number of tokens of the whole batch, when these rows are a part of it; the results of the parts
            then add up to that of the whole. Default: the number of unmasked tokens given. Zero counts as one.

    Returns:
        A scalar tensor, nats per token.

    Raises:
        TypeError: log-probabilities that are neither float32 nor float64.
        ValueError: shapes that differ or are not (B, T), NaN or infinite unmasked values, a denominator below zero.

    Example:
        >>> old, new = torch.tensor([[-1.0, -2.0]]), torch.tensor([[-1.5, -9.0]])
        >>> step_drift(old, new, torch.tensor([[1, 0]]))
        tensor(0.5000)
    """
    check_choice("estimator", estimator, ("k1", "k3"))
    check_same_shape(old_logps_B_T=old_logps_B_T, new_logps_B_T=new_logps_B_T, mask_B_T=mask_B_T)
    check_matrix(mask_B_T=mask_B_T)
    check_values("old_logps_B_T", old_logps_B_T, mask_B_T.bool())
    check_values("new_logps_B_T", new_logps_B_T, mask_B_T.bool())
    drift_B_T = (k1 if estimator == "k1" else k3)(old_logps_B_T.detach(), new_logps_B_T.detach())
    # Fill, not multiply: padding may hold anything. At least 1: without a token the drift is 0, not 0 / 0.
    tokens = mask_B_T.bool().sum().clamp(min=1) if denominator is None else checked_denominator(denominator)
    return drift_B_T.masked_fill(~mask_B_T.bool(), 0.0).sum() / tokens
