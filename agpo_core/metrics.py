"""Metrics of a run: pass@k and related scores, clip saturation, gradient noise, and intervals.

AGPO §4.5 describes clip saturation as "% of steps hitting clip bounds" and as "% of steps with clipped ratio at
bounds". These words can mean three things; all three are computed, under different names. R++'s "average@32" (Table 4)
is `average_at_k` of 32 samples: the text calls it pass@32, but the evaluation computes the mean.
"""

from collections import Counter

import torch

from agpo_core.checks import check_answers, check_beside_tokens, check_matrix, check_values
from agpo_core.losses import clip_range

PASS_SAMPLES_MAX = 2**16  # beyond, log-gammas of about n log n cancel to an error above 1e-9
SAMPLES_MAX = 1029  # C(1030, 515) overflows float64
RESAMPLES_AT_ONCE = 2**22  # random indices drawn together: 32 MB


def pass_at_k(n, c, k):
    """Estimate the chance that at least one of k samples is right, from n >= k samples.

    pass@k = 1 - C(n - c, k) / C(n, k)                                       (Chen et al. 2021, Eq. 1)

    This is the mean over all choices of k of the n samples, and so unbiased; 1 - (1 - c / n)^k is not. At k = 1 it is
    the share of right samples. It never falls as c or k rises. It is within 1e-11 of the exact value at n = 1024, and
    within 1e-9 at n = 65,536, the largest n allowed. Ints and integer tensors broadcast.

    Args:
        n: samples per problem, in [1, 65,536].
        c: right samples among them, in [0, n]: `correct_P_N.sum(dim=1)`.
        k: samples in a try, in [1, n].

    Returns:
        pass: float64, in [0, 1], of the broadcast shape.

    Raises:
        TypeError: n, c or k is not integer.
        ValueError: n, c or k out of range.

    Example:
        >>> pass_at_k(4, torch.tensor([0, 1, 4]), k=2)  # 1 - C(3, 2) / C(4, 2) = 1 - 3 / 6
        tensor([0.0000, 0.5000, 1.0000], dtype=torch.float64)
    """
    counts = {name: torch.as_tensor(value) for name, value in (("n", n), ("c", c), ("k", k))}
    for name, count in counts.items():
        if count.is_floating_point() or count.is_complex() or count.dtype == torch.bool:
            raise TypeError(f"{name} is {count.dtype}; give integer counts: n samples, c = correct_P_N.sum(dim=1), k.")
    n, c, k = (count.double() for count in counts.values())
    if (n > PASS_SAMPLES_MAX).any():
        raise ValueError(f"n exceeds {PASS_SAMPLES_MAX:,} samples per problem: give fewer, or the ninth digit is lost.")
    if not ((0 <= c) & (c <= n)).all():
        raise ValueError("c must lie between 0 and n: it counts the right ones among n samples.")
    if not ((1 <= k) & (k <= n)).all():
        raise ValueError("k must lie between 1 and n, the samples per problem; sample more or lower k.")
    wrong = n - c
    enough = wrong >= k  # else every choice of k holds a right one
    # C(w, k) / C(n, k) = w! (n - k)! / (n! (w - k)!); the differences in brackets are exactly 0 at c = 0.
    log_miss = ((wrong + 1).lgamma() - (n + 1).lgamma()) + (
        (n - k + 1).lgamma() - (wrong - k).where(enough, 0.0).add(1).lgamma()
    )
    return (1 - log_miss.exp()).where(enough, 1.0).clamp(0.0, 1.0)


def average_at_k(correct_P_N):
    """Average each problem's scores over its N samples: average@N, the expected accuracy of one sample.

    average@N[p] = Σ_n correct[p, n] / N                                       (R++ Table 4, average@32)

    Equals pass@1 of the same samples.

    Args:
        correct_P_N: one row per problem, one column per sample; bool, 0/1 or graded in [0, 1].

    Returns:
        average_P: float64, in [0, 1].

    Raises:
        ValueError: not a matrix with a column, or scores outside [0, 1].

    Example:
        >>> average_at_k(torch.tensor([[1, 0, 0, 0], [1, 1, 1, 0]]))
        tensor([0.2500, 0.7500], dtype=torch.float64)
    """
    correct_P_N = torch.as_tensor(correct_P_N, dtype=torch.float64)
    if correct_P_N.ndim != 2 or correct_P_N.shape[1] == 0:
        raise ValueError(
            f"correct_P_N has shape {tuple(correct_P_N.shape)}; give one row per problem, one column per sample."
        )
    if not ((0 <= correct_P_N) & (correct_P_N <= 1)).all():
        raise ValueError("correct_P_N must hold scores in [0, 1]; grade every sample.")
    return correct_P_N.mean(dim=1)


def majority_at_k(answers_P_N, gold_P, k=None):
    """Compute the chance that the plurality vote of k samples names the gold answer.

    maj@k = Σ_S 1[gold among the top of S] / m(S) / C(N, k)            (vote: Wang et al. 2023; ties: ours)

    S runs over all choices of k of the N samples, and m(S) is the number of answers that share the most votes in S: in
    a tie of m answers each counts 1 / m, whatever their order. The result is exact for every k, by counting. At k = 1
    it is the share of gold answers.

    Args:
        answers_P_N: one list of N hashable answers per problem, in the grader's canonical form. None, for a sample
            without an extracted answer, does not vote; nor does NaN. A problem with no votes gets 0.
        gold_P: the gold answer of each problem, in the same form.
        k: samples in a vote, in [1, N]; all N by default.

    Returns:
        majority_P: float64, in [0, 1].

    Raises:
        TypeError: a row that is a string or a tensor.
        ValueError: rows of different length, more than 1,029 samples, no gold answer for a row, or k
            out of range.

    Example:
        >>> majority_at_k([["4", "4", "5", None]], ["4"])
        tensor([1.], dtype=torch.float64)
        >>> majority_at_k([["4", "4", "5", None]], ["4"], k=2)  # 44 1, 45 1/2 twice, 4- 1 twice, 5- 0: 4 of 6
        tensor([0.6667], dtype=torch.float64)
    """
    answers_P_N = check_answers("answers_P_N", answers_P_N)
    lengths = {len(answers_N) for answers_N in answers_P_N}
    if len(lengths) != 1 or lengths == {0}:
        raise ValueError(f"answers_P_N has rows of {sorted(lengths)} answers; give N >= 1 samples to every problem.")
    if len(gold_P) != len(answers_P_N) or any(gold is None for gold in gold_P):
        raise ValueError(
            f"gold_P must hold one answer for each of the {len(answers_P_N)} problems, and none that is None."
        )
    (N,) = lengths
    if N > SAMPLES_MAX:
        raise ValueError(f"answers_P_N has {N} samples per problem; give {SAMPLES_MAX} or fewer.")
    k = N if k is None else k
    if not 1 <= k <= N:
        raise ValueError(f"k={k} must lie between 1 and the {N} samples per problem; sample more or lower k.")
    return _plurality_chance(*_vote_counts(answers_P_N, gold_P), k)


def _vote_counts(answers_P_N, gold_P):
    """Votes for gold, votes for each of its rivals (most first, padded with 0), and samples that do not vote."""
    gold_votes, rivals, silent = [], [], []
    for answers_N, gold in zip(answers_P_N, gold_P, strict=True):
        counts = Counter(answers_N)
        silent.append(counts.pop(None, 0))
        gold_votes.append(counts.pop(gold, 0))
        rivals.append(sorted(counts.values(), reverse=True))
    width = max(map(len, rivals))
    rivals_P_C = torch.tensor([row + [0] * (width - len(row)) for row in rivals], dtype=torch.long)
    return torch.tensor(gold_votes), rivals_P_C.view(len(rivals), width), torch.tensor(silent)


def _plurality_chance(gold_P, rivals_P_C, silent_P, k):
    """Count the choices of k samples in which gold has `top` votes, no rival more, and `ties` rivals as many."""
    N = int((gold_P + rivals_P_C.sum(dim=1) + silent_P)[0])
    if k == N:  # the only choice: every sample votes
        wins = (gold_P > 0) & (gold_P >= rivals_P_C[:, :1].sum(dim=1))  # not below the first, the strongest rival
        return wins.double() / (1 + (rivals_P_C == gold_P.unsqueeze(1)).sum(dim=1))
    choose = _pascal(N)
    chance_P = torch.zeros(len(gold_P), dtype=torch.float64)
    for top in range(1, min(k, int(gold_P.max())) + 1):
        rest = k - top  # choices left to rivals and to the silent
        # ways[p, votes, ties]: ways to give the rivals seen so far that many votes, that many of them with `top`
        ways = torch.zeros(len(gold_P), rest + 1, rest // top + 1, dtype=torch.float64)
        ways[:, 0, 0] = 1.0
        for rival_P in rivals_P_C.T:
            before = ways.clone()  # votes = 0 for this rival
            for votes in range(1, min(top, rest, int(rival_P.max())) + 1):
                given = choose[rival_P, votes, None, None] * before[:, : rest + 1 - votes]
                if votes < top:
                    ways[:, votes:] += given
                else:
                    ways[:, votes:, 1:] += given[:, :, :-1]
        shares = 1 / torch.arange(1, ways.shape[2] + 1, dtype=torch.float64)  # 1 / m
        unvoted = choose[silent_P, : rest + 1].flip(1)  # the silent fill what the rivals leave
        chance_P += choose[gold_P, top] * (unvoted * (ways @ shares)).sum(dim=1)
    return chance_P / choose[N, k]


def _pascal(N):
    """Table of C(n, j) for n, j in 0..N, float64."""
    rows = [torch.zeros(N + 1, dtype=torch.float64)]
    rows[0][0] = 1.0
    for _ in range(N):
        rows.append(rows[-1] + torch.cat([rows[-1].new_zeros(1), rows[-1][:-1]]))
    return torch.stack(rows)


def clip_binds(ratio_B_T, advantages_B_T, epsilon):
    """Say on which tokens the clip stops the gradient.

    binds = (A > 0 and ρ > 1 + ε) or (A < 0 and ρ < 1 - ε)                             (AGPO Eqs. 3, 7)

    A ratio outside the range on the other side does not bind: the `min` in Eq. 3 keeps its gradient. That gradient is
    still zero where `losses.importance_ratio` bounds the ratio, at exp(±20); this is not counted here. Arguments as for
    `losses.clipped_surrogate`; a single row, (T,), is allowed too.

    Returns:
        binds_B_T: bool. Combine it with the token mask before counting.

    Raises:
        ValueError: shapes as `losses.clipped_surrogate` refuses, NaN or infinite values, or a radius < 0.

    Example:
        >>> clip_binds(torch.tensor([[1.5, 1.5, 0.5]]), torch.tensor([[1.0, -1.0, -1.0]]), 0.2)
        tensor([[ True, False,  True]])
    """
    check_matrix(ratio_B_T=torch.atleast_2d(ratio_B_T))
    check_beside_tokens(ratio_B_T, advantages_B_T=advantages_B_T, epsilon=epsilon)
    check_values("ratio_B_T", ratio_B_T)
    check_values("advantages_B_T", advantages_B_T)
    lowest, highest = clip_range(epsilon)
    above = (advantages_B_T > 0) & (ratio_B_T > highest)
    below = (advantages_B_T < 0) & (ratio_B_T < lowest)
    return above | below


def clip_saturation(at_bound_U, clip_fraction_U, tokens_U):
    """Report clip saturation (AGPO §4.5) in the three meanings that the paper's words allow.

    updates_at_bound = Σ_u 1[ε_u lies at ε_min or ε_max] / U
    tokens_clipped = Σ_u f_u n_u / Σ_u n_u
    updates_clipped = Σ_u 1[f_u > 0] / U

    The second is the one to report: the share of tokens whose gradient the clip stops. The third is nearly always 1 in
    training.

    Args:
        at_bound_U: one number per update, in [0, 1]: 1 where ε lay at a bound, or the share of the prompts whose ε did.
        clip_fraction_U: f_u, share of the update's tokens where `clip_binds`, in [0, 1].
        tokens_U: n_u, tokens that the fraction was taken over, > 0.

    Returns:
        dict of three floats in [0, 1].

    Raises:
        ValueError: not one value per update, no update, or a value out of its range.

    Example:
        >>> clip_saturation([True, False], [0.0, 0.5], [300, 100])
        {'updates_at_bound': 0.5, 'tokens_clipped': 0.125, 'updates_clipped': 0.5}
    """
    at_bound_U, clip_fraction_U, tokens_U = (
        torch.as_tensor(values, dtype=torch.float64) for values in (at_bound_U, clip_fraction_U, tokens_U)
    )
    if not len(at_bound_U) == len(clip_fraction_U) == len(tokens_U) > 0:
        raise ValueError("at_bound_U, clip_fraction_U and tokens_U need one value per update, and at least one update.")
    for name, values_U in (("at_bound_U", at_bound_U), ("clip_fraction_U", clip_fraction_U)):
        if not ((0 <= values_U) & (values_U <= 1)).all():
            raise ValueError(f"{name} must lie in [0, 1]; give shares, not percent, and leave out updates without one.")
    if not ((tokens_U > 0) & tokens_U.isfinite()).all():
        raise ValueError("tokens_U must be above 0 and finite; leave out updates without tokens.")
    return {
        "updates_at_bound": at_bound_U.mean().item(),
        "tokens_clipped": ((clip_fraction_U * tokens_U).sum() / tokens_U.sum()).item(),
        "updates_clipped": (clip_fraction_U > 0).double().mean().item(),
    }


def gradient_norm_variance(norms_U, window=1000, reference_norms_U=None):
    """Measure how much the gradient norm varies: Var(‖∇L‖₂) per window of steps (AGPO §4.5).

    Var = mean over windows w of Σ_{u in w} (norm_u - mean_w)² / (window - 1)

    This is the unbiased variance in each full window of consecutive steps, averaged over windows; a run shorter than
    one window is one window. If a reference run is given, the result is divided by its variance (Table 5 sets the std
    run to 1.00).

    Args:
        norms_U: global gradient norms before clipping, at least two.
        window: steps, >= 2.
        reference_norms_U: the reference run's norms, not all equal.

    Returns:
        A float: norm², or a ratio without unit.

    Raises:
        ValueError: fewer than two norms or steps, norms that are not finite, or a reference without variance.

    Example:
        >>> gradient_norm_variance([1.0, 3.0, 5.0, 5.0], window=2)  # (2 + 0) / 2
        1.0
    """
    variance = _windows("norms_U", norms_U, window).var(dim=1).mean().item()
    if reference_norms_U is None:
        return variance
    windows = _windows("reference_norms_U", reference_norms_U, window)
    reference = windows.var(dim=1).mean().item()
    # The variance of equal norms may be a rounding error instead of zero
    if reference == 0 or (windows.amax(dim=1) == windows.amin(dim=1)).all():
        raise ValueError(
            "reference_norms_U are all equal, in every window: no ratio to their variance exists; choose another run."
        )
    return variance / reference


def _windows(name, norms_U, window):
    """Cut the norms into full windows, one per row."""
    norms_U = torch.as_tensor(norms_U, dtype=torch.float64)
    if len(norms_U) < 2 or window < 2 or not norms_U.isfinite().all():
        raise ValueError(
            f"{name} has {len(norms_U)} norms, window={window}: a variance needs two or more, and finite ones."
        )
    return norms_U.unfold(0, min(window, len(norms_U)), window)


def bootstrap_interval(values, level=0.95, resamples=10_000, seed=0):
    """Give a percentile bootstrap interval of a mean over problems.

    low = Q_a,  high = Q_{1 - a} of the means of resamples of the values,  a = (1 - level) / 2           (Efron 1979)

    The interval covers the choice of problems alone, not seeds. With few values it is slightly too narrow: by the
    factor sqrt((n - 1) / n), and because the normal's quantile stands in place of Student's. It is a point when all
    values are equal.

    Args:
        values: one finite number per problem, two or more: a list or a tensor (N,).
        level: of coverage, in (0, 1).
        resamples: how many, >= 1.
        seed: of the interval's own generator; the global one is not touched.

    Returns:
        (low, high): floats in units of the values, within their range.

    Raises:
        ValueError: fewer than two values (their spread is unknown), values that are not finite, or a
            setting out of range.

    Example:
        >>> low, high = bootstrap_interval([0.0] * 50 + [1.0] * 50)  # .5 ± 1.96 * .05
        >>> f"{low:.2f} {high:.2f}"
        '0.40 0.60'
    """
    values_N = torch.as_tensor(values, dtype=torch.float64).cpu()  # one generator, one result on every device
    if values_N.ndim != 1 or values_N.numel() == 0 or not values_N.isfinite().all():
        raise ValueError(f"values has shape {tuple(values_N.shape)}: give two or more finite numbers, (N,).")
    n = len(values_N)
    if n < 2:
        raise ValueError(f"values has {n} number(s): an interval needs two problems or more.")
    if not 0 < level < 1:
        raise ValueError(f"level={level} must lie between 0 and 1: .95 for a 95 % interval.")
    if resamples < 1:
        raise ValueError(f"resamples={resamples} must be 1 or more; 10,000 hold the ends to about 1 % of the width.")
    generator = torch.Generator().manual_seed(seed)
    means, part = [], max(RESAMPLES_AT_ONCE // n, 1)
    for start in range(0, resamples, part):
        index = torch.randint(n, (min(part, resamples - start), n), generator=generator)
        means.append(values_N[index].mean(dim=1))
    # A mean of equal values may differ from them by a rounding error
    bounded = torch.cat(means).clamp(values_N.min(), values_N.max())
    tails = torch.tensor([(1 - level) / 2, (1 + level) / 2], dtype=torch.float64)
    return tuple(bounded.quantile(tails).tolist())


# Every entry of metrics.jsonl: what it is, and its unit. The loop refuses to log anything that is not here.
LOGGED = {
    "update": ("updates made, this one included", "updates"),
    "progress": ("consumed share of the horizon: spent / total", "[0, 1]"),
    "tokens_train": ("sampled continuation tokens, training phase, with EOS, all ranks", "tokens"),
    "tokens_probe": ("the same for completions that are not trained on: the probe, ReMax's greedy ones", "tokens"),
    "seconds": ("time spent in updates, without evaluation; slowest rank", "s"),
    "seconds_left": ("seconds (1 - progress) / progress", "s"),
    "learning_rate": ("warm-up, then cosine, of the progress at the update's start", "1"),
    "reward": ("mean of r over the training rollouts; r in [0, 1] for the papers' tasks", "reward"),
    "reward_gold": ("mean of the task's grade, where r is a reward model's score", "reward"),
    "reward_std": ("standard deviation of r over all training rollouts of the update", "reward"),
    "probe_reward": ("mean of r over the probe", "reward"),
    "failed_grades": ("gradings that failed since the last line, and count as r = 0; all phases and ranks", "gradings"),
    "equal_groups": ("share of groups with max r = min r: advantage 0", "[0, 1]"),
    "length": ("tokens per completion", "tokens"),
    "truncated": ("share of completions cut by a limit of tokens or turns", "[0, 1]"),
    "tool_share": ("share of completions with an answered call of a tool", "[0, 1]"),
    "tool_calls": ("answered calls per completion", "calls"),
    "tool_failures": ("share of answered calls whose answer was an error", "[0, 1]"),
    "sigma": ("mean over prompts of σ̂ on the probe (Eq. 1, §4.5)", "reward"),
    "skewness": ("mean over prompts of |κ̃₃| on the probe (Eq. 5)", "1"),
    "vote_entropy": ("mean over prompts of E_probe (Eq. 8)", "nats"),
    "dispersion_fallback": (
        "share of prompts whose MAD or IQR was 0 with unequal rewards",
        "[0, 1]",
    ),
    "uncertainty": ("U_t = w_r σ̂ + w_e E_probe + w_k |κ̃₃| (Eq. 9)", "1"),
    "uncertainty_baseline": ("Ū_t, read before U_t enters it (Eq. 11)", "1"),
    "uncertainty_train": ("U (Eq. 9) of the training rollouts, drawn at τ_t: what a free probe sees", "1"),
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
    "beta": ("β of an adaptive KL controller, in this update", "1"),
    "value_loss": ("weighted, clipped loss of the critic, mean over the update's gradient steps", "1"),
    "explained_variance": ("1 - Var(R - V) / Var(R) over tokens, V before the update", "1"),
    "pairs": ("preference pairs that DPO was trained on", "pairs"),
    "sampler_gap": (
        "mean of log p_sampler - log π_old at the ratio's temperature",
        "nats/token",
    ),
    "sampler_gap_abs": ("mean of its magnitude, token by token: gaps of either sign add up", "nats/token"),
    "loss": ("Eq. 7, mean over the update's gradient steps; no measure of progress", "1"),
    "grad_norm": ("‖∇L‖₂ before clipping, mean over the update's steps", "1"),
    "grad_norms": ("the same, each step", "1"),
}
