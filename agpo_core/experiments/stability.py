"""How steadily a run trains (AGPO §4.5): KL to the reference, clip saturation, variance of the gradient norm.

A difference is paired by seed and start, with the intervals of `comparison`. A variance is positive, and one spike can
make it many times larger: it is compared by the ratio of two runs, averaged as a logarithm.
"""

import re

import numpy as np
import pandas as pd

from agpo_core import comparison, metrics
from agpo_core.comparison import LEVEL, PLUS_MINUS, holm, p_value, t_interval
from agpo_core.experiments.grid import ARMS, arms_of
from agpo_core.experiments.records import Results

KEY = ["arm", "seed", "start"]
KL, CLIPPED, AT_BOUND, VARIANCE = (
    "D̄_KL, nats a token", "tokens clipped, %", "updates with ε at a bound, %", "Var ‖∇‖ × 1000",
)  # fmt: skip
RATIO = {VARIANCE: "Var ‖∇‖, ratio"}  # compared by their ratio
DIGITS = {KL: 4, CLIPPED: 2, AT_BOUND: 0, VARIANCE: 1}
COLUMNS = ["arm", "measure", "mean", "low", "high", "n", "p_holm", "about"]


def per_run(results: Results) -> pd.DataFrame:
    """The measures of each trained run.

    D̄_KL      mean over updates of the KL to the reference (Table 4: ↑ is worse)
    clipped   share of tokens whose gradient the clip stops, and of updates with ε at a bound: two readings of "steps
              hitting clip bounds" (metrics.clip_saturation)
    Var ‖∇‖   metrics.gradient_norm_variance, of all gradient steps
    """
    variance = results.runs.drop_duplicates(KEY).set_index(KEY)["grad_norm_variance"].astype(float)
    rows = {}
    for run, updates in results.traces[results.traces["update"] > 0].groupby(KEY, sort=False):
        names = ("epsilon_at_bound", "clip_fraction", "tokens")
        clipped = updates[list(names)].astype(float).dropna()  # DPO has no clip
        rows[run] = {KL: updates["reference_kl"].mean(), VARIANCE: 1000 * variance[run]}
        if len(clipped):
            saturation = metrics.clip_saturation(*(clipped[name].tolist() for name in names))
            rows[run] |= {CLIPPED: 100 * saturation["tokens_clipped"], AT_BOUND: 100 * saturation["updates_at_bound"]}
    index = pd.MultiIndex.from_tuples(rows, names=KEY) if rows else pd.MultiIndex.from_arrays([[]] * 3, names=KEY)
    return pd.DataFrame(list(rows.values()), index=index, columns=list(DIGITS))


def contrasts(results: Results, baseline: str = "agpo") -> pd.DataFrame:
    """How each arm differs from the baseline in each measure, paired; Holm's p over all of them.

    Returns:
        A row an arm and measure: mean, low and high of the 95 % interval (NaN without a spread), n, p_holm, about. Of a
        variance these are ratios: exp of the mean and of the interval of log(variance / baseline's).
    """
    values, rows, tests = per_run(results), [], []
    trained = values.reset_index()
    arms = [arm for arm in arms_of(trained) if arm != baseline]
    for arm in arms if baseline in set(trained["arm"]) else []:
        ours, theirs = (values.xs(name, level="arm") for name in (arm, baseline))
        for measure in DIGITS:
            one, other = ours[measure].dropna(), theirs[measure].dropna()
            if measure in RATIO:
                one, other = np.log(one), np.log(other)
            gap = (one - other).dropna()
            interval = t_interval(gap)
            ends = np.array([interval.mean, interval.low, interval.high])
            rows.append((arm, measure, *(np.exp(ends) if measure in RATIO else ends), interval.n, interval.about))
            tests.append(p_value(gap))
    found = pd.DataFrame(rows, columns=[name for name in COLUMNS if name != "p_holm"])
    return found.assign(p_holm=holm(tests))[COLUMNS]


def stability(results: Results, baseline: str = "agpo") -> pd.DataFrame:
    """The measures of the baseline, mean ± interval, and below how each other arm differs from it.

    A star marks a difference that is not zero, or a ratio that is not one, after Holm's correction over the table. The
    corner says what the intervals speak of.
    """
    values, found = per_run(results), contrasts(results, baseline)
    means = values.xs(baseline, level="arm") if baseline in values.index.get_level_values("arm") else values.iloc[:0]
    rows = {ARMS[baseline].title: {name: t_interval(means[name]).text(digits=d) for name, d in DIGITS.items()}}
    for row in found.itertuples():
        rows.setdefault(f"{ARMS[row.arm].title}, from {ARMS[baseline].title}", {})[row.measure] = _cell(row)
    corner = comparison.about(comparison.Interval(row.mean, 0.0, row.n, row.about) for row in found.itertuples())
    table = pd.DataFrame.from_dict(rows, orient="index").rename_axis(columns=corner or None)
    return table.fillna("")


def _cell(row) -> str:
    star = " *" if row.p_holm < LEVEL else ""
    if np.isnan(row.mean):
        return ""
    if row.measure in RATIO:
        between = "" if np.isnan(row.low) else f" ({row.low:.2f} to {row.high:.2f})"
        return f"× {row.mean:.2f}{between}{star}"
    half = "" if np.isnan(row.low) else f"{PLUS_MINUS}{row.high - row.mean:.{DIGITS[row.measure]}f}"
    return f"{row.mean:+.{DIGITS[row.measure]}f}{half}{star}"


def fallbacks(results: Results) -> pd.DataFrame:
    """How often MAD or IQR was zero though the rewards differed, in the probes of each run, as the runs warned.

    Returns:
        A row a run that warned: arm, seed, start, share (of all its probe groups, to a percent).
    """
    rows = []
    for line in results.meta.get("warnings", []):
        if said := re.search(
            r"was zero although the rewards differed in (\d+)% of the probe's groups", line["warning"]
        ):
            rows.append((line["arm"], line["seed"], line["start"], int(said[1]) / 100))
    return pd.DataFrame(rows, columns=[*KEY, "share"])
