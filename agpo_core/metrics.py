"""What a run is judged by: pass@k, clip saturation, variance of the gradient norm.

Clip saturation is "% of steps hitting clip bounds" and "% of steps with clipped ratio at bounds" in
AGPO §4.5, which reads three ways; all three are given, named apart.
"""

import math

import torch

from agpo_core.losses import clip_range


def pass_at_k(correct_P_N, k):
    """Estimate the chance that at least one of k samples is right, from N >= k samples.

    pass@k = 1 - C(N - c, k) / C(N, k),  c the number right                        (unbiased)

    The mean over all choices of k of the N samples; at k = 1 the share of right samples.

    Args:
        correct_P_N: bool or 0/1, one row a problem.
        k: samples, 1 <= k <= N.

    Returns:
        pass_P: float64, in [0, 1].

    Example:
        >>> pass_at_k(torch.tensor([[1, 0, 0, 0]]), k=2)  # 1 - C(3, 2) / C(4, 2)
        tensor([0.5000], dtype=torch.float64)
    """
    if not ((correct_P_N == 0) | (correct_P_N == 1)).all():
        raise ValueError("correct_P_N must hold 0 or 1; threshold graded rewards first.")
    N = correct_P_N.shape[1]
    if not 1 <= k <= N:
        raise ValueError(f"k={k} must lie between 1 and the {N} samples a problem; sample more or lower k.")
    wrong_P = (N - correct_P_N.long().sum(dim=1)).tolist()
    return torch.tensor([1 - math.comb(wrong, k) / math.comb(N, k) for wrong in wrong_P], dtype=torch.float64)


def clip_binds(ratio_B_T, advantages_B_T, epsilon_low, epsilon_high=None):
    """Say on which tokens the clip stops the gradient.

    binds = (A > 0 and ρ > 1 + ε_high) or (A < 0 and ρ < 1 - ε_low)

    A ratio outside the range on the other side does not bind: `min` in Eq. 3 keeps it. Arguments as
    for `losses.clipped_surrogate`.

    Returns:
        binds_B_T: bool. Combine it with the token mask before counting.

    Example:
        >>> clip_binds(torch.tensor([[1.5, 1.5, 0.5]]), torch.tensor([[1.0, -1.0, -1.0]]), 0.2)
        tensor([[ True, False,  True]])
    """
    lowest, highest = clip_range(epsilon_low, epsilon_high)
    above = (advantages_B_T > 0) & (ratio_B_T > highest)
    below = (advantages_B_T < 0) & (ratio_B_T < lowest)
    return above | below


def clip_saturation(at_bound_U, clip_fraction_U, tokens_U):
    """Report clip saturation (AGPO §4.5) in the three meanings that the paper's words allow.

    updates_at_bound:  share of updates whose ε lies at ε_min or ε_max
    tokens_clipped:    share of tokens where the clip binds, Σ_u f_u n_u / Σ_u n_u (the headline)
    updates_clipped:   share of updates in which the clip binds anywhere, f_u > 0

    Args:
        at_bound_U: one bool an update: ε lay at a bound.
        clip_fraction_U: f_u, share of the update's tokens where `clip_binds`, in [0, 1].
        tokens_U: n_u, tokens that the fraction was taken over, > 0.

    Returns:
        dict of three floats in [0, 1].

    Example:
        >>> clip_saturation([True, False], [0.0, 0.5], [300, 100])
        {'updates_at_bound': 0.5, 'tokens_clipped': 0.125, 'updates_clipped': 0.5}
    """
    at_bound_U, clip_fraction_U, tokens_U = (
        torch.as_tensor(values, dtype=torch.float64) for values in (at_bound_U, clip_fraction_U, tokens_U)
    )
    if not len(at_bound_U) == len(clip_fraction_U) == len(tokens_U) > 0:
        raise ValueError("at_bound_U, clip_fraction_U and tokens_U need one value an update, and one update.")
    return {
        "updates_at_bound": at_bound_U.mean().item(),
        "tokens_clipped": ((clip_fraction_U * tokens_U).sum() / tokens_U.sum()).item(),
        "updates_clipped": (clip_fraction_U > 0).double().mean().item(),
    }


def gradient_norm_variance(norms_U, window=1000, reference_norms_U=None):
    """Measure how restless the gradient is: Var(‖∇L‖₂) per window of steps (AGPO §4.5).

    The unbiased variance in each full window of consecutive steps, averaged over windows; a run
    shorter than one window is one window. Divided by that of a reference run, if one is given
    (Table 5 sets the std run to 1.00).

    Args:
        norms_U: global gradient norms before clipping, at least two.
        window: steps, >= 2.
        reference_norms_U: the reference run's norms, not all equal.

    Returns:
        A float: norm², or a ratio without unit.

    Example:
        >>> gradient_norm_variance([1.0, 3.0, 5.0, 5.0], window=2)  # (2 + 0) / 2
        1.0
    """
    norms_U = torch.as_tensor(norms_U, dtype=torch.float64)
    if len(norms_U) < 2 or window < 2 or not norms_U.isfinite().all():
        raise ValueError(
            f"norms_U has {len(norms_U)} norms, window={window}: a variance needs two or more, and finite ones."
        )
    variance = norms_U.unfold(0, min(window, len(norms_U)), window).var(dim=1).mean().item()
    if reference_norms_U is None:
        return variance
    reference = gradient_norm_variance(reference_norms_U, window)
    if reference == 0:
        raise ValueError("reference_norms_U are all equal: no ratio to them exists; choose another run.")
    return variance / reference


# Every entry of metrics.jsonl: what it is, and its unit. The loop refuses to log anything that is not here.
LOGGED = {
    "update": ("updates made, this one included", "updates"),
    "progress": ("consumed share of the horizon: spent / total", "[0, 1]"),
    "tokens_train": ("sampled continuation tokens, training phase, with EOS, all ranks", "tokens"),
    "tokens_probe": ("the same, probe phase; never trained on", "tokens"),
    "seconds": ("time in updates, evaluation apart; slowest rank", "s"),
    "seconds_left": ("seconds (1 - progress) / progress", "s"),
    "learning_rate": ("warm-up, then cosine, of the progress at the update's start", "1"),
    "reward": ("mean of r over the training rollouts", "[0, 1]"),
    "probe_reward": ("mean of r over the probe", "[0, 1]"),
    "equal_groups": ("share of groups with max r = min r: advantage 0", "[0, 1]"),
    "length": ("tokens per completion", "tokens"),
    "truncated": ("share of completions cut by the length limit", "[0, 1]"),
    "sigma": ("mean over prompts of σ̂ on the probe (Eq. 1, §4.5)", "reward"),
    "skewness": ("mean over prompts of |κ̃₃| on the probe (Eq. 5)", "1"),
    "vote_entropy": ("mean over prompts of E_probe (Eq. 8)", "nats"),
    "dispersion_fallback": (
        "share of prompts whose MAD or IQR was 0 with unequal rewards",
        "[0, 1]",
    ),
    "uncertainty": ("U_t = w_r σ̂ + w_e E_probe + w_k |κ̃₃| (Eq. 9)", "1"),
    "uncertainty_baseline": ("Ū_t, read before U_t is folded in (Eq. 11)", "1"),
    "tau": ("τ_t (Eq. 12): the sampler's temperature", "1"),
    "tau_raw": ("τ_t before its bounds", "1"),
    "tau_at_bound": ("1 where a bound holds τ_t", "[0, 1]"),
    "epsilon": ("ε (Eq. 4): the clip radius", "1"),
    "epsilon_raw": ("ε before its bounds", "1"),
    "epsilon_at_bound": ("1 where a bound holds ε (clip saturation, first meaning)", "[0, 1]"),
    "clip_fraction": ("share of tokens whose gradient the clip stops (second meaning)", "[0, 1]"),
    "clip_fraction_active": ("the same, among tokens with A ≠ 0", "[0, 1]"),
    "entropy": ("H(π_old): mean token entropy, T = 1, training rollouts", "nats/token"),
    "step_kl": ("D̂_step of this update (Eq. 6), T = 1; negative values occur", "nats/token"),
    "step_kl_used": ("D̂_step of the update before, which entered Eq. 4", "nats/token"),
    "reference_kl": ("mean of log π_old - log π_ref, T = 1: estimates KL(π‖π_ref)", "nats/token"),
    "reference_kl_sequence": ("reference_kl × length", "nats/sequence"),
    "sampler_gap": (
        "mean of log p_sampler - log π_old at the ratio's temperature",
        "nats/token",
    ),
    "loss": ("Eq. 7, mean over the update's gradient steps; no measure of progress", "1"),
    "grad_norm": ("‖∇L‖₂ before clipping, mean over the update's steps", "1"),
    "grad_norms": ("the same, each step", "1"),
}
