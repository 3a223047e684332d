"""Figures of training on a few problems (R++ Table 2, Fig. 3): scores at the end, at matched levels, along training.

Small marks are runs, large ones their mean with the 95 % t-interval. An arm looks as `style.LOOKS` says.
"""

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from agpo_core.comparison import t_interval
from agpo_core.experiments import small_data
from agpo_core.experiments.grid import ARMS, arms_of
from agpo_core.experiments.plots.runs import known
from agpo_core.experiments.plots.style import LOOKS, PLAIN, line, mark
from agpo_core.experiments.records import Results

CELLS = ["measure", "arm", "mean", "half", "n", "gap", "gap_half", "pairs"]
ENDS = {  # column of small_data.ends -> title of its panel
    small_data.TRAINED: "Trained on, one try (pass@1)",
    small_data.ONCE: "Others, one try (pass@1)",
    small_data.OFTEN: "Others, sixteen tries (pass@16)",
}
CURVES = {  # title of a panel -> where its points come from, and their column
    "Trained on, greedy": (small_data.evaluations, "train"),
    "Trained on, sampled": (small_data.rollouts, "reward"),
    "Others (dev), greedy": (small_data.evaluations, "dev"),
}
AT_END = "the end"  # beside the levels


def overfitting_ends(results: Results) -> tuple[Figure, pd.DataFrame]:
    """Above, the scores at the end on the problems trained on and on others; below, paired differences from GRPO.

    Returns:
        The figure; a row a measure and arm: CELLS.
    """
    values = small_data.ends(results)[list(ENDS)].rename(columns=ENDS)
    figure, data, upper = _values_and_differences(results, values, "%", "points")
    for ax in upper:
        ax.set(xlim=(-2, 102))
    if not data.empty:
        figure.suptitle(f"After training on few problems, mean and 95 % interval: {results.title}")
    return figure, data


def learning_times(results: Results) -> tuple[Figure, pd.DataFrame]:
    """Above, the updates that bring a run to each level; below, paired differences from GRPO.

    Returns:
        The figure; a row a measure and arm: CELLS.
    """
    columns = {}
    for kind in (small_data.GREEDY, small_data.SAMPLED):
        needed = small_data.updates_needed(results, kind)
        columns |= {f"{share:.0%} of the way, {kind}": needed[share] for share in needed}
    figure, data, upper = _values_and_differences(results, pd.DataFrame(columns), "updates", "updates")
    for ax in upper:
        ax.set_xlim(left=0)
    if not data.empty:
        figure.suptitle(f"Updates to a level, mean and 95 % interval: {results.title}")
    return figure, data


def _values_and_differences(results: Results, values: pd.DataFrame, unit: str, unit_of_gap: str):
    """A column of panels a measure: values of each arm above, paired differences from GRPO below."""
    arms = arms_of(values.reset_index())
    if not arms:
        return blank(), pd.DataFrame(columns=CELLS), []
    rivals = [arm for arm in arms if arm not in ("start", "grpo") and "grpo" in arms]
    rows = []
    heights = [len(arms), max(len(rivals), 1) + 0.3]
    with plt.rc_context(PLAIN):
        figure, axes = plt.subplots(
            2, values.shape[1], figsize=(9.5, 1.5 + 0.3 * sum(heights)), sharey="row", squeeze=False,
            height_ratios=heights, layout="constrained",
        )  # fmt: skip
        for measure, upper, lower in zip(values, *axes, strict=True):
            for y, arm in enumerate(arms):
                single = values[measure].xs(arm, level="arm").dropna()
                gap = small_data.difference(values[measure], arm, "grpo") if arm in rivals else pd.Series(dtype=float)
                rows.append((measure, arm, *t_interval(single)[:3], *t_interval(gap)[:3]))
                _row(upper, y, single, arm, interval=arm != "start")
                if arm in rivals:
                    _row(lower, rivals.index(arm), gap, arm)
            upper.set(title=measure, xlabel=unit)
            lower.axvline(0, color="0.45", linewidth=1)
            lower.set(xlabel=f"from GRPO ({unit_of_gap})")
        for ax in axes.flat:
            ax.grid(axis="x", color="0.92")
            ax.set_axisbelow(True)
        for ax, shown in zip(axes[:, 0], (arms, rivals), strict=True):
            ax.set(yticks=range(len(shown)), yticklabels=[ARMS[arm].title for arm in shown])
            ax.set(ylim=(max(len(shown), 1) - 0.5, -0.5))
    return figure, pd.DataFrame(rows, columns=CELLS), list(axes[0])


def _row(ax, y: float, values: pd.Series, arm: str, interval: bool = True) -> None:
    """The runs of an arm in a row, and their mean with its interval."""
    if values.empty:
        return
    spread = y + np.linspace(-0.22, 0.22, len(values) + 2)[1:-1]
    ax.scatter(values, spread, s=8, color=LOOKS[arm].color, alpha=0.45, linewidth=0)
    found = t_interval(values)
    ax.errorbar(found.mean, y, xerr=known(found.half) if interval else None, **mark(arm, markersize=6.5))


def matched_levels(results: Results) -> tuple[Figure, pd.DataFrame]:
    """Left, the gain on others over the way gone on the problems trained on; right, differences at matched levels.

    A point on the left is an evaluation, the mean over runs of both scores. Points of later updates lie farther right.

    Returns:
        The figure; a row a level (or the end) and arm: at, arm, mean, half, n (of the paired difference from GRPO on
        others, in points).
    """
    names = ["at", "arm", "mean", "half", "n"]
    points = small_data.shares_of_the_way(results)
    if points.empty:
        return blank(), pd.DataFrame(columns=names)
    arms = arms_of(points)
    rivals = [arm for arm in arms if arm != "grpo" and "grpo" in arms]
    found = small_data.at_levels(results)
    others = {f"{share:.0%}": rows.set_index(small_data.KEY)["others"] for share, rows in found.groupby("share")}
    others[AT_END] = small_data.best_of_others(results)["last"]
    rows = []
    with plt.rc_context(PLAIN):
        figure, (left, right) = plt.subplots(1, 2, figsize=(9.5, 3.7), width_ratios=(3, 2), layout="constrained")
        means = points.groupby(["arm", "update"])[["way", "change"]].mean()
        for arm in arms:
            path = means.loc[arm]
            left.plot(path["way"], path["change"], **line(arm), markersize=4.5, linewidth=1.2, label=ARMS[arm].title)
        for share in small_data.LEVELS:
            left.axvline(100 * share, color="0.45", linestyle="--", linewidth=1)
        left.axhline(0, color="0.45", linewidth=1)
        left.set(xlabel="way from the start to 1, problems trained on (%)", ylabel="gain since the start (points)")
        left.set_title("Others (dev), an evaluation a mark; dashed, the levels")
        left.legend(loc="upper left")
        for y, (at, values) in enumerate(others.items()):
            for i, arm in enumerate(rivals):
                gap = small_data.difference(values, arm, "grpo")
                rows.append((at, arm, *t_interval(gap)[:3]))
                _row(right, y + 0.36 * (i - (len(rivals) - 1) / 2), gap, arm)
        right.axvline(0, color="0.45", linewidth=1)
        right.set(xlabel="difference from GRPO on others (points)", title="At matched levels, and at the end")
        right.set(yticks=range(len(others)), yticklabels=others, ylim=(len(others) - 0.5, -0.5))
        for ax in (left, right):
            ax.grid(color="0.93")
            ax.set_axisbelow(True)
        figure.suptitle(f"At the same score on the problems trained on: {results.title}")
    return figure, pd.DataFrame(rows, columns=names)


def overfitting_curves(results: Results) -> tuple[Figure, pd.DataFrame]:
    """Scores along training, a panel a kind: greedy and sampled on the problems trained on, greedy on others.

    Lines are means over runs, bands their 95 % t-intervals.

    Returns:
        The figure; a row a panel, arm and update: panel, arm, update, mean, half, n.
    """
    parts = {title: small_data.curve(read(results), column) for title, (read, column) in CURVES.items()}
    data = pd.concat([part.assign(panel=title) for title, part in parts.items()], ignore_index=True)
    if data.empty:
        return blank(), data
    arms = arms_of(data)
    with plt.rc_context(PLAIN):
        figure, axes = plt.subplots(1, 3, figsize=(9.5, 3.6), sharex=True, layout="constrained")
        for ax, (title, points) in zip(axes, parts.items(), strict=True):
            for arm in arms:
                of_arm = points[points["arm"] == arm]
                half = of_arm["half"].fillna(0)
                often = len(of_arm) > 30  # so many marks would hide the line
                ax.plot(of_arm["update"], of_arm["mean"], **line(arm, "" if often else None), markersize=3.5)
                ends = of_arm["mean"] - half, of_arm["mean"] + half
                ax.fill_between(of_arm["update"], *ends, color=LOOKS[arm].color, alpha=0.1, linewidth=0)
            ax.set(title=title, xlabel="updates")
            ax.grid(color="0.93")
            ax.set_axisbelow(True)
        axes[0].set_ylabel("right answers (%)")
        handles = [plt.Line2D([], [], markersize=4, label=ARMS[arm].title, **line(arm)) for arm in arms]
        figure.legend(handles=handles, loc="outside lower center", ncols=len(arms), handlelength=3.5)
        figure.suptitle(f"Along training, mean and 95 % interval: {results.title}")
    return figure, data


def blank() -> Figure:
    figure, ax = plt.subplots(figsize=(9, 0.8))
    ax.axis("off")
    ax.text(0.5, 0.5, "nothing to draw", ha="center", va="center", color="0.4")
    return figure
