"""A majority vote of independent samples, exactly: how often does the right answer win?

Each of k samples names the right answer with chance `right`, one of several wrong answers with chances `wrong`, or none
with what remains. The answer with the most votes wins; in a tie of m answers each wins with chance 1 / m. Where
`metrics.majority_at_k` estimates this from drawn samples, here the chances are given (AGPO §4.4.2).
"""

import math

import numpy as np

SUM_TOLERANCE = 1e-9  # chances that add up to 1 may exceed it by rounding


def vote_chance(right, wrong, k):
    """Compute the chance that a vote of k independent samples names the right answer.

    maj@k = Σ_n 1[n_0 = max n] / m(n) · k! Π_j p_j^n_j / n_j!        (AGPO §4.4.2; vote: Wang et al. 2023; ties: ours)

    n = (n_0, n_1, …) are the votes of the right and of the wrong answers and the samples that do not vote, Σ n_j = k;
    m(n) is the number of answers that share the most votes. At k = 1 the result is `right`. With one wrong answer and
    no silent sample it rises with k if right > 1/2, and falls if right < 1/2: Condorcet's jury theorem (1785).

    Args:
        right: p_0, the chance of the right answer in a sample, a number in [0, 1].
        wrong: p_1, p_2, …, the chances of the wrong answers, a list of numbers in [0, 1]. What is left to 1 is the
            chance that a sample does not vote.
        k: samples in a vote, in [1, 170].

    Returns:
        The chance, a number in [0, 1].

    Raises:
        ValueError: chances below 0 or of a sum above 1, or k out of range.

    Example:
        >>> round(vote_chance(0.6, [0.4], 3), 3)  # 0.6³ + 3 · 0.6² · 0.4
        0.648
    """
    chances = [right, *wrong]
    silent = 1 - sum(chances)
    if min(chances) < 0 or silent < -SUM_TOLERANCE:
        raise ValueError(f"right={right} and wrong={wrong} must be 0 or more and add up to 1 or less.")
    if not 1 <= k <= 170:
        raise ValueError(f"k={k} must lie between 1 and 170: the factorial of a larger number overflows.")
    won = 0.0
    for top in range(1, k + 1):  # votes of the right answer, if it is among the first
        left = k - top
        # ways[ties][n]: Σ Π p_j^n_j / n_j! over the votes of the wrong answers so far, of sum n, `ties` of them top
        ways = {0: np.eye(1, left + 1)[0]}
        for chance in wrong:
            terms = _terms(chance, left)
            below = np.where(np.arange(left + 1) < top, terms, 0.0)
            found = {ties: np.convolve(way, below)[: left + 1] for ties, way in ways.items()}
            if top <= left:
                for ties, way in ways.items():
                    level = np.zeros(left + 1)
                    level[top:] = terms[top] * way[: left + 1 - top]
                    found[ties + 1] = found.get(ties + 1, 0.0) + level
            ways = found
        quiet = _terms(max(silent, 0.0), left)[::-1]  # the silent fill what the others leave
        shared = sum(float(way @ quiet) / (1 + ties) for ties, way in ways.items())
        won += math.factorial(k) * float(right) ** top / math.factorial(top) * shared
    return min(won, 1.0)


def _terms(chance, most):
    """p^n / n! for n = 0 … most."""
    return np.array([float(chance) ** n / math.factorial(n) for n in range(most + 1)])
