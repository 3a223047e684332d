"""What the probe measures: reward dispersion, reward skewness, vote entropy, and their sum U.

AGPO Eqs. 1, 5, 8, 9 and the robust dispersions of §4.5. Departures from the paper:

- A group whose rewards are all equal (max == min) has dispersion, skewness and advantage exactly zero. In floating
  point the mean of equal rewards can differ from them by a rounding error, and Eq. 1 divides that error by 1e-8.
- MAD and IQR can be zero although the rewards differ: with eight binary rewards MAD is zero unless exactly four are
  right, and IQR is zero when one or seven are. Eq. 1 would then give advantages near 9e7, so the standard deviation is
  used instead. `prompt_statistics` counts these groups.
- The median of an even number is the mean of the middle two (`torch.median` takes the lower one).
- The guard of Eq. 5 compares σ_min with the standard deviation in every dispersion mode. With `guard="mode"` it uses
  the mode's own dispersion, and then switches skewness off for most binary groups under MAD.
- Skewness is g1. Its largest value in a group of G is (G - 2) / sqrt(G - 1): 2.27 at G = 8. The bound kappa_max = 10
  does not bind below G = 103.
- Answers that could not be extracted count as one and the same answer.
- A spread whose square underflows (below about 1e-22 in float32) counts as no spread: the dispersion is zero, as Eq.
  1's own formula gives, and so is its gradient.
"""

import math
from collections import Counter
from dataclasses import dataclass

import torch

from agpo_core.checks import check_answers, check_choice, check_range, check_rewards, check_same_shape

DISPERSIONS = ("std", "mad", "iqr")
FALLBACKS = ("std", "zero", "error")
SKEWNESS_ESTIMATORS = ("g1", "G1", "b1")
GUARDS = ("std", "mode")
MISSING = ("shared", "drop", "unique")


@dataclass(frozen=True)
class ProbeState:
    """The update's statistical state: means over the prompts of all ranks (AGPO §3.1.1, §3.3)."""

    sigma: float  # mean of σ̂, units of reward, >= 0
    skewness: float  # mean of |κ̃₃|, in [0, κ_max]
    vote_entropy: float  # mean of E_probe, nats, in [0, log G]

    @classmethod
    def mean(cls, statistics):
        """Average the _P tensors of `prompt_statistics`, gathered from all ranks, in float64."""
        if not statistics["sigma"].numel():
            raise ValueError("statistics holds no prompt, so it has no mean; probe one prompt or more.")
        return cls(**{name: statistics[name].double().mean().item() for name in ("sigma", "skewness", "vote_entropy")})


def equal_rewards(rewards_P_G):
    """Say which groups have equal rewards, and so carry no signal.

    equal[p] = 1[max_g r[p, g] = min_g r[p, g]]                                  (ours; guards AGPO Eq. 1)

    Compared exactly, without a tolerance: a small spread is a signal too.

    Args:
        rewards_P_G: rewards, float32 or float64, finite.

    Returns:
        equal_P: bool. A loop that drops or resamples such groups selects them with it.

    Example:
        >>> equal_rewards(torch.tensor([[1.0, 1.0], [1.0, 0.0]]))
        tensor([ True, False])
    """
    check_rewards(rewards_P_G)
    return rewards_P_G.amax(dim=1) == rewards_P_G.amin(dim=1)


def dispersion(rewards_P_G, mode="std", fallback="std"):
    """Measure the spread of each group's rewards.

    std:  σ̂ = sqrt(Σ_g (r_g - μ)² / (G - 1))                                    (AGPO Eq. 1)
    mad:  σ̂ = 1.4826 median_i |r_i - median_j r_j|                              (AGPO §4.5)
    iqr:  σ̂ = (Q_0.75(r) - Q_0.25(r)) / 1.349                                   (AGPO §4.5)

    Quantiles interpolate linearly. The dispersion and its gradient are exactly zero when all rewards of a group are
    equal, and so at G = 1.

    Args:
        rewards_P_G: rewards, float32 or float64, finite.
        mode: "std", "mad" or "iqr".
        fallback: what replaces a MAD or IQR of zero where the rewards differ: their "std", "zero", or an "error".

    Returns:
        sigma_P: σ̂ of each prompt's group, >= 0, in units of reward.

    Raises:
        ValueError: NaN or infinite rewards, an unknown option, or, with `fallback="error"`, a MAD or IQR of zero where
            the rewards differ.

    Example:
        >>> dispersion(torch.tensor([[0.0, 0.0, 1.0, 1.0]]))  # sqrt((4 * .25) / 3)
        tensor([0.5774])
    """
    check_choice("fallback", fallback, FALLBACKS)
    sigma_P = _dispersion_as_printed(rewards_P_G, mode)
    if mode == "std" or fallback == "zero":
        return sigma_P
    collapsed_P = (sigma_P == 0) & ~equal_rewards(rewards_P_G)
    if not collapsed_P.any():
        return sigma_P
    if fallback == "error":
        rows = collapsed_P.nonzero().flatten().tolist()
        raise ValueError(
            f"rewards_P_G: {mode} is zero in groups {rows} although their rewards differ; take "
            "fallback='std' or 'zero', or mode='std'."
        )
    return torch.where(collapsed_P, _dispersion_as_printed(rewards_P_G, "std"), sigma_P)


def _dispersion_as_printed(rewards_P_G, mode):
    """σ̂ of one mode, without fallback, zero exactly where all rewards are equal."""
    check_choice("mode", mode, DISPERSIONS)
    equal_P = equal_rewards(rewards_P_G)
    if not len(rewards_P_G):
        return rewards_P_G.sum(dim=1)  # quantile refuses what is empty
    if mode == "std":
        residual_P_G = rewards_P_G - rewards_P_G.mean(dim=1, keepdim=True)
        variance_P = residual_P_G.square().sum(dim=1) / max(rewards_P_G.shape[1] - 1, 1)
        # The square root has no gradient at zero: equal groups, and groups whose squares underflow, take the root of 1
        # here and are set to zero below.
        equal_P = equal_P | (variance_P == 0)
        sigma_P = variance_P.masked_fill(equal_P, 1.0).sqrt()
    elif mode == "mad":
        # quantile(0.5) is the mean of the middle two where G is even.
        median_P_1 = rewards_P_G.quantile(0.5, dim=1, keepdim=True)
        sigma_P = 1.4826 * (rewards_P_G - median_P_1).abs().quantile(0.5, dim=1)
    else:
        sigma_P = (rewards_P_G.quantile(0.75, dim=1) - rewards_P_G.quantile(0.25, dim=1)) / 1.349
    return sigma_P.masked_fill(equal_P, 0.0)


def skewness(rewards_P_G, sigma_min=1.0e-6, kappa_max=10.0, estimator="g1", guard_mode="std"):
    """Measure the asymmetry of a group's rewards, guarded and bounded.

    κ̃₃ = 1[σ̂ >= σ_min] clip(κ₃, -κ_max, κ_max)                                  (AGPO Eq. 5)

    g1:  κ₃ = m₃ / m₂^(3/2),  m_k = Σ_g (r_g - μ)^k / G
    G1:  g1 sqrt(G (G - 1)) / (G - 2)
    b1:  m₃ / s³ = g1 ((G - 1) / G)^(3/2),  s the unbiased standard deviation

    Zero when all rewards of a group are equal, and for G <= 2; also where m₂^(3/2) underflows.

    Args:
        rewards_P_G: rewards, float32 or float64, finite.
        sigma_min: σ_min, units of reward, >= 0.
        kappa_max: κ_max, > 0.
        estimator: "g1", "G1" or "b1".
        guard_mode: the mode of `dispersion` whose σ̂ is compared with σ_min: "std", "mad" or "iqr", without fallback.

    Returns:
        kappa_P: κ̃₃ with its sign; positive when few rollouts are right.

    Raises:
        ValueError: NaN or infinite rewards, an unknown option, or a bound out of range.

    Example:
        >>> skewness(torch.tensor([[1.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0]]))  # 6 / sqrt(7)
        tensor([2.2678])
    """
    check_choice("estimator", estimator, SKEWNESS_ESTIMATORS)
    check_choice("guard_mode", guard_mode, DISPERSIONS)
    check_range("sigma_min", sigma_min)
    if not kappa_max > 0:
        raise ValueError(f"kappa_max={kappa_max} must be above 0, for it bounds |κ₃|.")
    guarded_P = _dispersion_as_printed(rewards_P_G, guard_mode) < sigma_min
    equal_P, G = equal_rewards(rewards_P_G), rewards_P_G.shape[1]
    residual_P_G = rewards_P_G - rewards_P_G.mean(dim=1, keepdim=True)
    second_P = residual_P_G.square().mean(dim=1)
    # m₂^(3/2) = 0 would divide by zero, and a subnormal m₂^(3/2) has an infinite gradient: such groups take m₂ = 1 here
    # and are set to zero below.
    underflow_P = second_P.pow(1.5) < torch.finfo(second_P.dtype).tiny
    silent_P = guarded_P | equal_P | underflow_P | (G <= 2)
    second_P = second_P.masked_fill(silent_P, 1.0)
    kappa_P = residual_P_G.pow(3).mean(dim=1) / second_P.pow(1.5)
    if estimator == "G1" and G > 2:
        kappa_P = kappa_P * math.sqrt(G * (G - 1)) / (G - 2)
    elif estimator == "b1":
        kappa_P = kappa_P * ((G - 1) / G) ** 1.5
    return kappa_P.clamp(-kappa_max, kappa_max).masked_fill(silent_P, 0.0)


def vote_entropy(answers_P_G, missing="shared"):
    """Measure how far the answers of a group disagree, in nats.

    E_probe = -Σ_y p(y) log p(y),  p(y) the share of the group's votes for y      (AGPO Eq. 8)

    Zero when all answers agree; log G when all differ. Two answers agree if the grader's canonical forms are equal.

    Args:
        answers_P_G: one list of hashable answers per prompt; None, or NaN, where nothing could be extracted.
        missing: all None count as one "shared" answer, do not vote ("drop"), or each count as an answer of their own
            ("unique").

    Returns:
        entropy_P: float64, in [0, log G]; zero for a group without votes.

    Raises:
        TypeError: a row that is a string or a tensor.
        ValueError: an unknown option.

    Example:
        >>> vote_entropy([["4", "4", "5", None]])  # 1.5 log 2
        tensor([1.0397], dtype=torch.float64)
    """
    check_choice("missing", missing, MISSING)
    rows = check_answers("answers_P_G", answers_P_G)
    return torch.tensor([_entropy_of_votes(answers_G, missing) for answers_G in rows], dtype=torch.float64)


def _entropy_of_votes(answers_G, missing):
    counts = Counter(answers_G)
    if missing != "shared":
        unread = counts.pop(None, 0)
        if missing == "unique":
            counts.update({object(): 1 for _ in range(unread)})
    votes = sum(counts.values())
    return sum(count / votes * math.log(votes / count) for count in counts.values())


def uncertainty(sigma, skewness, vote_entropy, weights=(1.0, 1.0, 0.1), signals_mask=(1, 1, 1, 1)):
    """Add the probe's signals up to one raw uncertainty score.

    U = w_r σ̂ + w_e E_probe + w_k |κ̃₃|                                           (AGPO Eq. 9)

    With the paper's weights and eight binary rewards U <= 2.66: Eq. 12 keeps τ in [.60, 1.40], and
    its bounds [.5, 1.5] never bind.

    Args:
        sigma, skewness, vote_entropy: numbers or tensors of one shape.
        weights: (w_r, w_e, w_k), numbers >= 0 in the paper's order: σ̂, E_probe, |κ̃₃|.
        signals_mask: 0 removes a signal; order of §4.5: σ̂, |κ̃₃|, E_probe, step KL. Bits after the
            third do not enter Eq. 9.

    Returns:
        U, >= 0, of the same type.

    Raises:
        ValueError: tensors of shapes that differ, weights that are not three numbers >= 0, or bits that are not 0 or 1.

    Example:
        >>> uncertainty(sigma=0.5, skewness=2.0, vote_entropy=1.0)
        1.7
    """
    signals = {"sigma": sigma, "skewness": skewness, "vote_entropy": vote_entropy}
    check_same_shape(**{name: value for name, value in signals.items() if isinstance(value, torch.Tensor)})
    if len(weights) != 3:
        raise ValueError(f"weights={weights}: give three numbers, (w_r, w_e, w_k).")
    for name, weight in zip(("w_r", "w_e", "w_k"), weights, strict=True):
        check_range(name, weight)
    if not 3 <= len(signals_mask) <= 5 or any(bit not in (0, 1) for bit in signals_mask):
        raise ValueError(
            f"signals_mask={signals_mask}: give a bit, 0 or 1, for each of σ̂, |κ̃₃| and E_probe, and at most two more."
        )
    use_sigma, use_skewness, use_vote_entropy = signals_mask[:3]
    w_r, w_e, w_k = weights
    return use_sigma * w_r * sigma + use_vote_entropy * w_e * vote_entropy + use_skewness * w_k * abs(skewness)


def prompt_statistics(
    rewards_P_G,
    answers_P_G,
    mode="std",
    fallback="std",
    estimator="g1",
    guard="std",
    missing="shared",
    sigma_min=1.0e-6,
    kappa_max=10.0,
):
    """Measure each prompt's probe group: everything the controllers need (AGPO §3.1.1).

    statistics[p] = (σ̂, |κ̃₃|, E_probe) of prompt p                               (AGPO Eqs. 1, 5, 8)

    Gather the tensors over ranks, then average them with `ProbeState.mean(statistics)`.

    Args:
        rewards_P_G: probe rewards, float32 or float64, finite.
        answers_P_G: probe answers, lists of hashable or None, the shape of the rewards.
        mode, fallback: as in `dispersion`.
        estimator, sigma_min, kappa_max: as in `skewness`.
        guard: what Eq. 5's guard compares with σ_min: "std", or "mode", the dispersion chosen in `mode` before its
            fallback. (`skewness` does not know `mode`; there the argument `guard_mode` names the dispersion.)
        missing: as in `vote_entropy`.

    Returns:
        dict of _P tensors in the rewards' dtype: sigma, skewness (= |κ̃₃|), vote_entropy, and
        fallback (1 where MAD or IQR was zero although the rewards differ).

    Raises:
        TypeError: a row of answers that is a string or a tensor.
        ValueError: NaN or infinite rewards, not one answer per reward, or an option unknown or out of range.

    Example:
        >>> statistics = prompt_statistics(torch.tensor([[1.0, 0.0, 0.0]]), [["4", "5", "5"]])
        >>> {name: round(value.item(), 3) for name, value in statistics.items()}  # sqrt(1/3), 1/sqrt(2), ...
        {'sigma': 0.577, 'skewness': 0.707, 'vote_entropy': 0.637, 'fallback': 0.0}
    """
    rows = check_answers("answers_P_G", answers_P_G)
    check_rewards(rewards_P_G)
    check_choice("guard", guard, GUARDS)
    P, G = rewards_P_G.shape
    if len(rows) != P or any(len(answers_G) != G for answers_G in rows):
        raise ValueError(f"answers_P_G must hold {P} lists of {G} answers, one for each reward.")
    collapsed_P = (_dispersion_as_printed(rewards_P_G, mode) == 0) & ~equal_rewards(rewards_P_G)
    return {
        "sigma": dispersion(rewards_P_G, mode, fallback),
        "skewness": skewness(
            rewards_P_G, sigma_min, kappa_max, estimator, guard_mode=mode if guard == "mode" else "std"
        ).abs(),
        "vote_entropy": vote_entropy(rows, missing).to(rewards_P_G),
        "fallback": collapsed_P.to(rewards_P_G),
    }
