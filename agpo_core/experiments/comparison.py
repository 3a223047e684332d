"""Statistics of finished runs: intervals, paired differences, corrections, power.

The primary endpoint is the macro-average over tasks, in points (%). Runs are paired by seed and
start.
"""

import math
from typing import NamedTuple

import numpy as np
import pandas as pd
from scipy import stats

LEVEL = 0.05  # of a two-sided test; intervals cover 1 - LEVEL
POWER = 0.8
MOST_PAIRS = 1000  # beyond this many, no number is named
TIE = 2e-3  # points: differences this close are equal, for a record keeps five digits of each score


def macro(runs: pd.DataFrame) -> pd.Series:
    """The macro-average of each run in points, indexed by (arm, seed, start)."""
    key = ["arm", "seed", "start"]
    return 100 * runs.drop_duplicates(key).set_index(key)["macro"].astype(float)


def paired(runs: pd.DataFrame, arm: str, baseline: str) -> pd.Series:
    """Differences of macro-averages in points, arm - baseline, of runs with equal seed and start.

    The supervised start is paired by start alone: it has one score, whatever the seed.
    """
    scores = macro(runs)
    arms = scores.index.get_level_values("arm")
    ours, theirs = (scores[arms == name].droplevel("arm") for name in (arm, baseline))
    if baseline == "start":
        theirs = theirs.droplevel("seed")
        ours = ours[ours.index.get_level_values("start").isin(theirs.index)]
        return ours - theirs.reindex(ours.index.get_level_values("start")).to_numpy()
    return (ours - theirs).dropna()


class Interval(NamedTuple):
    """A mean with the half-width of its 95 % t-interval; NaN where the values have no spread."""

    mean: float
    half: float
    n: int

    @property
    def low(self) -> float:
        return self.mean - self.half

    @property
    def high(self) -> float:
        return self.mean + self.half

    def text(self, sign: str = "") -> str:
        spread = "" if math.isnan(self.half) else f" ± {self.half:.1f}"
        return f"{self.mean:{sign}.1f}{spread}" if self.n else ""


def t_interval(values) -> Interval:
    """The mean and the half-width of its t-interval.

    half = t(.975, n - 1) s / sqrt(n),  s the unbiased standard deviation

    NaN for one value, and for values that are all equal: without a spread there is nothing to judge their mean by.

    Example:
        >>> t_interval([1.0, 2.0, 3.0]).half  # 4.3027 * 1 / sqrt(3)
        2.484137...
    """
    values = np.asarray(values, dtype=float)
    n = len(values)
    if n == 0:
        return Interval(math.nan, math.nan, 0)
    if np.ptp(values) <= 1e-9 * np.abs(values).max() + 1e-12:  # equal, but for rounding
        return Interval(float(values.mean()), math.nan, n)
    half = stats.t.ppf(1 - LEVEL / 2, n - 1) * values.std(ddof=1) / math.sqrt(n)
    return Interval(float(values.mean()), float(half), n)


def p_value(differences) -> float:
    """Two-sided p of the one-sample t-test against zero; NaN where the differences have no spread.

    One difference has none, nor have differences that are equal (to within TIE). A chance tie of two seeds would
    otherwise count as proof.
    """
    differences = np.asarray(differences, dtype=float)
    if not have_spread(differences):
        return math.nan
    return float(stats.ttest_1samp(differences, 0.0).pvalue)


def have_spread(values) -> bool:
    """Whether values, in points, differ by more than TIE; fewer than two do not."""
    return len(values) > 1 and bool(np.ptp(np.asarray(values, dtype=float)) > TIE)


def holm(p_values) -> np.ndarray:
    """Holm's step-down adjustment: the family-wise error stays at the level used (Holm 1979).

    adjusted p_(i) = max over j <= i of (m - j + 1) p_(j), at most 1,  p_(1) <= ... <= p_(m)

    NaN marks a contrast that was not tested; it stays NaN and does not count in m.
    """
    p = np.asarray(p_values, dtype=float)
    adjusted = np.full(len(p), math.nan)
    order = [i for i in np.argsort(p) if not math.isnan(p[i])]
    steps = [(len(order) - j) * p[i] for j, i in enumerate(order)]
    adjusted[order] = np.minimum(np.maximum.accumulate(steps), 1.0) if order else []
    return adjusted


def prediction_interval(recorded, m: int) -> tuple[float, float]:
    """Where the mean of m new values falls with 95 % probability, given n recorded ones.

    mean ± t(.975, n - 1) s sqrt(1 / n + 1 / m)

    NaN where the recorded values have no spread: one value, or equal ones (to within TIE).
    """
    recorded = np.asarray(recorded, dtype=float)
    n = len(recorded)
    if not have_spread(recorded):
        return math.nan, math.nan
    half = stats.t.ppf(1 - LEVEL / 2, n - 1) * recorded.std(ddof=1) * math.sqrt(1 / n + 1 / m)
    return float(recorded.mean() - half), float(recorded.mean() + half)


def pairs_needed(differences) -> int | None:
    """Pairs that give 80 % power for a true difference as large as the one measured.

    The smallest n with P(|T| > t(.975, n - 1)) >= .8, T noncentral t with n - 1 degrees of freedom
    and noncentrality mean / s sqrt(n). None: more than MOST_PAIRS, or differences without a spread.
    """
    differences = np.asarray(differences, dtype=float)
    if not have_spread(differences):
        return None
    effect = abs(differences.mean()) / differences.std(ddof=1)
    n = np.arange(2, MOST_PAIRS + 1)
    critical, shift = stats.t.ppf(1 - LEVEL / 2, n - 1), effect * np.sqrt(n)
    power = stats.nct.sf(critical, n - 1, shift) + stats.nct.cdf(-critical, n - 1, shift)
    enough = n[power >= POWER]
    return int(enough[0]) if len(enough) else None
