"""Statistics of finished runs: intervals, paired differences, corrections, power.

The primary endpoint is the macro-average over tasks, in points (%). A start is the supervised model from which a run
begins. Runs are paired by seed and start.

Scores differ more between starts than between seeds of one start. Every interval, test and power therefore uses one
error term, `spread`. Where some start has two seeds or more, it is the scatter of seeds within their start; an interval
then says what other seeds of these starts would give. Where every start has one seed, the scatter within starts is
unknown. The error term is then the scatter over starts; an interval then says what other starts of their kind would
give.
"""

import math
from collections.abc import Callable, Iterable
from typing import NamedTuple

import numpy as np
import pandas as pd
from scipy import stats

LEVEL = 0.05  # of a two-sided test; intervals cover 1 - LEVEL
PLUS_MINUS = "\u00a0±\u00a0"  # between spaces that do not break
POWER = 0.8
MOST_PAIRS = 1000  # `pairs_needed` names no number beyond this
TIE = 2e-3  # points; differences this close count as equal, because a record keeps five digits of each score
WITHIN, OVER = "seeds", "starts"  # what an interval is about: other seeds, or other starts


def macro(runs: pd.DataFrame) -> pd.Series:
    """The macro-average of each run in points, indexed by (arm, seed, start)."""
    key = ["arm", "seed", "start"]
    return 100 * runs.drop_duplicates(key).set_index(key)["macro"].astype(float)


def over_tasks(runs: pd.DataFrame, column: str) -> pd.Series:
    """A score's mean over a run's tasks, in points, indexed by (arm, seed, start); runs without the score are left out.

    Args:
        column: of a score in [0, 1]; without such a column the result is empty.
    """
    key = ["arm", "seed", "start"]
    return 100 * runs.reindex(columns=[*key, column]).groupby(key, sort=False)[column].mean().dropna().astype(float)


def paired(
    runs: pd.DataFrame, arm: str, baseline: str, score: Callable[[pd.DataFrame], pd.Series] = macro
) -> pd.Series:
    """Differences of scores in points, arm - baseline, of runs with equal seed and start.

    The supervised start is paired by start alone: it has one score, whatever the seed.

    Args:
        score: of a table of runs, indexed by (arm, seed, start); the macro-average if nothing is said.
    """
    scores = score(runs)
    arms = scores.index.get_level_values("arm")
    ours, theirs = (scores[arms == name].droplevel("arm") for name in (arm, baseline))
    if baseline == "start":
        theirs = theirs.droplevel("seed")
        ours = ours[ours.index.get_level_values("start").isin(theirs.index)]
        return ours - theirs.reindex(ours.index.get_level_values("start")).to_numpy()
    return (ours - theirs).dropna()


class Spread(NamedTuple):
    """The error term: how much single values scatter.

    Attributes:
        s: standard deviation, in the values' unit; NaN where they have no spread.
        df: its degrees of freedom, the number of values minus the number of fitted means.
        about: whether an interval with this term is about seeds (WITHIN) or starts (OVER); "" where no starts are
            named.
    """

    s: float
    df: int
    about: str = ""


def spread(values, tie: float = 0.0) -> Spread:
    """The error term of values: within starts if some start has several values, else over all values.

    s² = Σ_k Σ_i (x_ki - x̄_k)² / (N - K),  K starts with n_k values each, N = Σ_k n_k

    This is the mean square within groups of a one-way analysis of variance with fixed groups (Fisher 1925, ch. VII).
    The mean of all values, Σ_k n_k x̄_k / N, has the standard error s / sqrt(N). It estimates Σ_k n_k μ_k / N, the
    starts' own means weighted by their numbers of seeds. A start with one value counts in the mean but not in s. Where
    every start has one value, or no starts are named, K = 1 and s is the usual standard deviation.

    Args:
        values: a Series with a level "start" in its index; anything else has no starts.
        tie: values that differ by no more than this, plus rounding, count as equal. Where the values of every start are
            equal, s is NaN: nothing is known about the error of their mean.
    """
    values, starts = _by_start(values)
    if not starts:
        return within(values, np.zeros(len(values)), tie)
    if len(set(starts)) == len(starts):
        return within(values, np.zeros(len(values)), tie)._replace(about=OVER)
    return within(values, starts, tie)._replace(about=WITHIN)


def within(values, groups, tie: float = 0.0) -> Spread:
    """The error term within groups, by the formula of `spread`; `groups` holds a label for each value."""
    values = np.asarray(values, dtype=float)
    labels, group = np.unique(np.asarray(groups), return_inverse=True)
    parts = [values[group == k] for k in range(len(labels))]
    widest = max((np.ptp(part) for part in parts), default=0.0)
    rounding = 1e-9 * np.abs(values).max(initial=0.0) + 1e-12
    df = len(values) - len(labels)
    if widest <= tie + rounding:
        return Spread(math.nan, df)
    return Spread(math.sqrt(sum(((part - part.mean()) ** 2).sum() for part in parts) / df), df)


def _by_start(values) -> tuple[np.ndarray, list]:
    """The values, and the start of each; the list of starts is empty where none are named."""
    named = isinstance(values, pd.Series) and "start" in values.index.names
    return np.asarray(values, dtype=float), list(values.index.get_level_values("start")) if named else []


class Estimate(NamedTuple):
    """A mean and its standard error: (mean - truth) / error has a t-distribution with df degrees of freedom.

    `about` is taken from the error term (see `Spread`).
    """

    mean: float
    error: float
    df: int
    about: str = ""

    def half(self, level: float = LEVEL) -> float:
        """The half-width of the interval that covers 1 - level."""
        return float(stats.t.ppf(1 - level / 2, self.df) * self.error)

    @property
    def p(self) -> float:
        """Two-sided p of the test that the truth is zero; NaN where the error is unknown."""
        return float(2 * stats.t.sf(abs(self.mean) / self.error, self.df))


def estimate(values, tie: float = 0.0) -> Estimate:
    """The mean of values with the standard error s / sqrt(n), s by `spread`."""
    n, term = len(values), spread(values, tie)
    mean = float(np.mean(np.asarray(values, dtype=float))) if n else math.nan
    return Estimate(mean, term.s / math.sqrt(max(n, 1)), *term[1:])


class Interval(NamedTuple):
    """A mean with the half-width of its 95 % t-interval, and what the interval is about (see `Spread`).

    The half-width is NaN, and `about` is empty, where the values have no spread.
    """

    mean: float
    half: float
    n: int
    about: str = ""

    @property
    def low(self) -> float:
        return self.mean - self.half

    @property
    def high(self) -> float:
        return self.mean + self.half

    def text(self, sign: str = "", digits: int = 1) -> str:
        """The mean ± the half-width, with spaces at which no table and no line breaks; "" where there is no value."""
        spread = "" if math.isnan(self.half) else f"{PLUS_MINUS}{self.half:.{digits}f}"
        return f"{self.mean:{sign}.{digits}f}{spread}" if self.n else ""


def t_interval(values, tie: float = 0.0) -> Interval:
    """The mean and the half-width of its t-interval.

    half = t(.975, df) s / sqrt(n),  s and df by `spread`

    The half-width is NaN where there is no spread: for one value, or for equal values (equal within each start, if some
    start has several).

    Example:
        >>> t_interval([1.0, 2.0, 3.0]).half  # 4.3027 * 1 / sqrt(3)
        2.484137...
    """
    found = estimate(values, tie)
    if math.isnan(found.error):
        return Interval(found.mean, math.nan, len(values))
    return Interval(found.mean, found.half(), len(values), found.about)


def about(intervals: Iterable[Interval]) -> str:
    """A few words for a table's corner that say what its intervals are about; "" where no starts are named."""
    kinds = {interval.about for interval in intervals}
    return f"± over {' or '.join(kind for kind in (WITHIN, OVER) if kind in kinds)}" if kinds - {""} else ""


def speaks(corner: str | None) -> str:
    """The sentence that stands under a table with this corner (see `about`)."""
    within = "over seeds, start by start: what other seeds of these starts would give"
    over = "over starts, a seed each: what other starts of their kind would give"
    return {
        f"± over {WITHIN}": f"± is a 95 % t-interval {within}.",
        f"± over {OVER}": f"± is a 95 % t-interval {over}.",
        f"± over {WITHIN} or {OVER}": f"± is a 95 % t-interval. Where a start has several seeds it is {within}; "
        f"where each has one it is {over}.",
    }.get(corner or "", "")


def p_value(differences) -> float:
    """Two-sided p of the t-test of their mean against zero, on the error term of `spread`.

    NaN where the differences have no spread: for one difference, or where the differences of each start are equal to
    within TIE. Otherwise a chance tie of two seeds would count as proof.
    """
    return estimate(differences, TIE).p


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


def prediction(recorded, new) -> Estimate:
    """Predict the mean of new values from recorded ones, with the standard error of the prediction.

    mean = Σ_k m_k x̄_k / m,  error = s sqrt(1 / m + Σ_k (m_k / m)² / n_k)

    with n_k recorded and m_k new values of start k, m = Σ_k m_k, and s by `spread`. Where every start has one recorded
    value, or no starts are named, all values form one group, and error = s sqrt(1 / m + 1 / n). The mean of new values
    lies within mean ± t(.975, df) error with 95 % probability.

    Args:
        recorded: values, as in `spread`. The error is NaN if they are equal to within TIE, or if a new value has a
            start that is not among theirs.
        new: values; only their number and their starts are used.
    """
    term = spread(recorded, TIE)
    (values, starts), (_, goals) = _by_start(recorded), _by_start(new)
    if term.about != WITHIN:
        starts, goals = [""] * len(values), [""] * len(new)
    groups, m = {k: values[[start == k for start in starts]] for k in set(starts)}, len(new)
    if not m or not set(goals) <= set(groups):
        return Estimate(math.nan, math.nan, *term[1:])
    share = {k: goals.count(k) / m for k in set(goals)}
    mean = sum(part * groups[k].mean() for k, part in share.items())
    variance = 1 / m + sum(part**2 / len(groups[k]) for k, part in share.items())
    return Estimate(float(mean), term.s * math.sqrt(variance), *term[1:])


def pairs_needed(differences, level: float = LEVEL) -> int | None:
    """The number of pairs that gives 80 % power if the true difference is as large as the measured one.

    It is the smallest n with P(|T| > t(1 - level / 2, n - K)) >= .8. T has a noncentral t-distribution with n - K
    degrees of freedom and noncentrality mean / s sqrt(n), with s by `spread`. K is the number of means that `spread`
    fits: the number of starts, if the pairs are divided among them as they are now, or 1. The result is None if more
    than MOST_PAIRS are needed, or if the differences have no spread.

    Args:
        level: of the test. In a family of m contrasts, LEVEL / m suffices for each, whatever the others give: it is the
            first step of `holm`, and later steps are easier.
    """
    found, term = estimate(differences, TIE), spread(differences, TIE)
    if math.isnan(term.s):
        return None
    n = np.arange(len(differences) - term.df + 1, MOST_PAIRS + 1)
    df, shift = n - (len(differences) - term.df), abs(found.mean) / term.s * np.sqrt(n)
    critical = stats.t.ppf(1 - level / 2, df)
    power = stats.nct.sf(critical, df, shift) + stats.nct.cdf(-critical, df, shift)
    enough = n[power >= POWER]
    return int(enough[0]) if len(enough) else None
