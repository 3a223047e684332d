"""Figures of MAD and IQR in place of the standard deviation (AGPO Table 5): exact for 0/1 rewards, and measured.

As dispersions the three have the colours of `learn.LOOKS`; as arms MAD and IQR look as `style.LOOKS` says.
"""

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import torch
from matplotlib.figure import Figure

from agpo_core.comparison import paired, t_interval
from agpo_core.experiments import stability
from agpo_core.experiments.grid import ARMS
from agpo_core.experiments.plots.learn import LOOKS as DISPERSIONS
from agpo_core.experiments.plots.runs import known
from agpo_core.experiments.plots.style import LOOKS, PLAIN, mark
from agpo_core.experiments.records import Results
from agpo_core.theory import binary_groups

MODE = {"agpo_mad": "mad", "agpo_iqr": "iqr"}
POINTS = 101  # of a curve


def vanishing_dispersion(group_size: int, seen: pd.DataFrame) -> tuple[Figure, pd.DataFrame]:
    """How often MAD and IQR of 0/1 rewards are zero though these differ, and how large Eq. 1's advantages are then.

    Args:
        group_size: G.
        seen: of `stability.fallbacks`: shares that runs reported of their probes, drawn as dashed lines at their mean.
    Returns:
        The figure; a row a mode and p: mode, p, collapsed (exact chance).
    """
    p = torch.linspace(0, 1, POINTS, dtype=torch.float64)
    frames = [
        pd.DataFrame({"mode": mode, "p": p, "collapsed": binary_groups.collapse_chance(group_size, p, mode)})
        for mode in ("mad", "iqr")
    ]
    data = pd.concat(frames, ignore_index=True)
    with plt.rc_context(PLAIN):
        figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3.6), layout="constrained")
        for mode, curve in data.groupby("mode", sort=False):
            color, line, _ = DISPERSIONS[mode]
            left.plot(curve["p"], 100 * curve["collapsed"], color=color, linestyle=line, linewidth=2)
            peak = curve.loc[curve["collapsed"].idxmax()]
            left.annotate(
                mode.upper(), (peak["p"], 100 * peak["collapsed"]), xytext=(0, 4), textcoords="offset points",
                color=color, ha="center", fontsize=9,
            )  # fmt: skip
        for arm, share in seen.groupby("arm")["share"].mean().items():
            left.axhline(100 * share, color=DISPERSIONS[MODE[arm]][0], linestyle=(0, (4, 4)), linewidth=1)
            left.annotate(
                f"seen in probes: {share:.0%}", (0.5, 100 * share), xytext=(0, 8 if share < 0.5 else -10),
                textcoords="offset points", color=DISPERSIONS[MODE[arm]][0], fontsize=8, ha="center",
            )  # fmt: skip
        left.set(xlabel="p, the chance of a right answer", ylabel="groups (%)", ylim=(0, 100), xlim=(0, 1))
        left.set_title("Zero although the rewards differ")
        for mode, (color, line, marker) in DISPERSIONS.items():
            pulls = binary_groups.pull(group_size, mode)
            right.plot(range(group_size + 1), pulls, color=color, linestyle=line, marker=marker, label=mode)
        right.set(
            xlabel=f"rollouts right, of {group_size}", ylabel="root mean square of A", xticks=range(group_size + 1)
        )
        right.set(title="Size of the advantages (Eq. 1), std where zero", ylim=(0, None))
        right.legend()
        for axes in (left, right):
            axes.grid(color="0.93")
            axes.set_axisbelow(True)
        figure.suptitle(f"Groups of {group_size} rewards of 0 or 1: exact")
    return figure, data


def robust_dispersion(results: Results) -> tuple[Figure, pd.DataFrame]:
    """MAD and IQR against the standard deviation: score, variance of the gradient norm, KL; a panel and an axis each.

    Points are pairs of runs, markers their mean (of a ratio, the geometric one), bars the 95 % t-interval.

    Returns:
        The figure; a row an arm and measure: mean, low, high, n. The score's measure is "score".
    """
    arms = [arm for arm in MODE if arm in set(results.runs["arm"]) and "agpo" in set(results.runs["arm"])]
    values, rows = stability.per_run(results), []
    scores = {arm: paired(results.runs, arm, "agpo") for arm in arms}
    for arm, gap in scores.items():
        interval = t_interval(gap)
        rows.append((arm, "score", interval.mean, interval.low, interval.high, interval.n))
    found = stability.contrasts(results)
    shown = [stability.VARIANCE, stability.KL]
    names = ["arm", "measure", "mean", "low", "high", "n"]
    data = pd.concat([pd.DataFrame(rows, columns=names), found[found["measure"].isin(shown)][names]], ignore_index=True)
    with plt.rc_context(PLAIN):
        figure, panels = plt.subplots(1, 3, figsize=(9.5, 2.5), sharey=True, layout="constrained")
        for axes, measure in zip(panels, ["score", *shown], strict=True):
            for row in data[(data["measure"] == measure) & data["arm"].isin(arms)].itertuples():
                y = arms.index(row.arm)
                singles = scores[row.arm] if measure == "score" else _pairs(values[measure], row.arm, measure)
                spread = y + 0.25 * np.linspace(-1, 1, len(singles) + 2)[1:-1]
                axes.scatter(singles, spread, s=9, color=LOOKS[row.arm].color, alpha=0.45, linewidth=0)
                ends = None if known(row.low) is None else [[row.mean - row.low], [row.high - row.mean]]
                axes.errorbar(row.mean, y, xerr=ends, **mark(row.arm, markersize=7))
            axes.axvline(1 if measure in stability.RATIO else 0, color="0.45", linewidth=1)
            axes.grid(axis="x", color="0.92")
            axes.set_axisbelow(True)
        panels[0].set(yticks=range(len(arms)), yticklabels=[ARMS[arm].title for arm in arms])
        panels[0].set(ylim=(max(len(arms), 1) - 0.5, -0.5), xlabel="difference from AGPO (points)", title="Score")
        panels[1].set(xscale="log", xlabel="as a multiple of AGPO's", title="Variance of the gradient norm")
        ticks = [0.5, 1, 2, 5, 10, 20]
        panels[1].set_xticks(ticks, [f"{tick:g}" for tick in ticks])
        panels[1].minorticks_off()
        panels[2].set(xlabel="difference from AGPO (nats a token)", title="KL to the reference")
        figure.suptitle(f"MAD and IQR in place of the standard deviation: {results.title}")
    return figure, data


def _pairs(values: pd.Series, arm: str, measure: str) -> pd.Series:
    ours, theirs = (values.xs(name, level="arm") for name in (arm, "agpo"))
    return (ours / theirs if measure in stability.RATIO else ours - theirs).dropna()
