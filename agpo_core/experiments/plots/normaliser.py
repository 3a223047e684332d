"""Figures of the 2 x 3 of normaliser and KL: effects, dev over KL, and the gain by the level of a task."""

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from agpo_core.experiments import normaliser_kl as nk
from agpo_core.experiments.grid import ARMS
from agpo_core.experiments.plots.runs import known
from agpo_core.experiments.plots.style import CYAN, GREY, PLAIN, RED, line
from agpo_core.experiments.records import Results

MEASURES = {  # -> label of the axis
    nk.SCORE: "points", nk.AT_KL: "points", nk.RISE: "binary logarithm of a ratio",
    nk.VARIANCE: "binary logarithm of a ratio",
}  # fmt: skip
THIRDS = ["solved worst by the start", "between", "solved best by the start"]
THIRD_LOOKS = [(RED, "v"), (GREY, "o"), (CYAN, "^")]
TITLES = {nk.SCORE: "Test score", nk.AT_KL: "Dev score at equal KL", nk.RISE: "Largest rise of the KL"}


def factor_effects(results: Results) -> tuple[Figure, pd.DataFrame]:
    """The five contrasts of the 2 x 3, a panel a measure; points are pairs, marks their mean, bars 95 % t-intervals.

    Returns:
        The figure; a row a contrast and measure, as `normaliser_kl.effects` gives them.
    """
    values, weights = nk.per_run(results), nk.weights()
    data = nk.effects(values, list(MEASURES))
    names = list(weights.index)
    with plt.rc_context(PLAIN):
        figure, panels = plt.subplots(1, 4, figsize=(11.5, 3.1), sharey=True, layout="constrained")
        for axes, (measure, unit) in zip(panels, MEASURES.items(), strict=True):
            for row in data[data["measure"] == measure].itertuples():
                y = names.index(row.contrast)
                singles = nk.effect(values, measure, weights.loc[row.contrast])
                spread = y + 0.22 * np.linspace(-1, 1, len(singles) + 2)[1:-1]
                axes.scatter(singles, spread, s=8, color="0.55", linewidth=0)
                axes.errorbar(
                    row.mean, y, xerr=known(row.high - row.mean), fmt="D" if "×" in row.contrast else "o",
                    color="0.1", markersize=6, capsize=3, elinewidth=1.6, zorder=3,
                )  # fmt: skip
            axes.axvline(0, color="0.45", linewidth=1)
            axes.set(title=TITLES.get(measure, measure), xlabel=unit)
            axes.grid(axis="x", color="0.92")
            axes.set_axisbelow(True)
        panels[0].set(yticks=range(len(names)), ylim=(len(names) - 0.5, -0.5))
        panels[0].set_yticklabels([name.replace(": ", ":\n").replace(", both", ",\nboth") for name in names])
        figure.suptitle(f"Effects of normaliser and KL, paired: {results.title}")
    return figure, data


def dev_over_kl(results: Results) -> tuple[Figure, pd.DataFrame]:
    """The score on dev over the KL to the reference along training, a panel a normaliser; means over runs.

    The grey band is the range of the KLs at which runs are compared (`normaliser_kl.common_kl`).

    Returns:
        The figure; a row an arm and evaluation: dev, kl.
    """
    points = nk.along(results)
    points["evaluation"] = points.groupby(nk.RUN).cumcount()
    data = points.groupby(["arm", "evaluation"])[["dev", "kl"]].mean().reset_index()
    common = nk.common_kl(points)
    with plt.rc_context(PLAIN):
        figure, panels = plt.subplots(1, 2, figsize=(9.5, 3.8), sharex=True, sharey=True, layout="constrained")
        for axes, divisor in zip(panels, ("group", "batch"), strict=True):
            for arm in [arm for arm, (of, _) in nk.CELLS.items() if of == divisor and arm in set(data["arm"])]:
                curve = data[data["arm"] == arm].sort_values("evaluation")
                axes.plot(curve["kl"], curve["dev"], markersize=4.5, label=ARMS[arm].title, **line(arm))
            if len(common):
                axes.axvspan(common.min(), common.max(), color="0.9", zorder=0)
            axes.set(title=f"divided by the {divisor}'s deviation", xlabel="KL to the reference (nats a token)")
            axes.grid(color="0.93")
            axes.set_axisbelow(True)
            if axes.lines:
                axes.legend(loc="lower right")
        panels[0].set_ylabel("macro-average on dev (%)")
        figure.suptitle(f"Dev over KL, means (grey: the KLs at which runs are compared): {results.title}")
    return figure, data


def gain_by_level(results: Results) -> tuple[Figure, pd.DataFrame]:
    """How much more the group's deviation gains on a task than the batch's, over the start's score on it.

    A point is a task of a seed and start, a mean over the forms of the KL. A black mark is the mean of the points of
    one third: of each start the tasks that it solves worst, those between, and those that it solves best.

    Returns:
        The figure; a row a seed, start and task: level (of the start, %), gap (points), third.
    """
    gains = nk.gains(results)
    gains["divisor"] = [nk.CELLS[arm][0] for arm in gains["arm"]]
    wide = gains.groupby(["seed", "start", "task", "level", "divisor"])["gain"].mean().unstack("divisor")
    wide = wide.reindex(columns=["group", "batch"])
    data = (wide["group"] - wide["batch"]).rename("gap").reset_index().dropna(subset=["gap"])
    rank = data.groupby(["seed", "start"])["level"].rank(method="first", pct=True)
    data["third"] = pd.cut(rank, [0, 1 / 3, 2 / 3, 1], labels=THIRDS)
    with plt.rc_context(PLAIN):
        figure, axes = plt.subplots(figsize=(8, 3.6), layout="constrained")
        for (third, of), (color, marker) in zip(data.groupby("third", observed=True), THIRD_LOOKS, strict=False):
            axes.scatter(of["level"], of["gap"], s=18, color=color, marker=marker, linewidth=0, alpha=0.7, label=third)
            axes.plot(of["level"].mean(), of["gap"].mean(), marker, color="0.1", markersize=9, zorder=4)
        axes.axhline(0, color="0.45", linewidth=1)
        axes.set(xlabel="the start's score on the task (%)", ylabel="difference in gain (points)")
        axes.set_title("Group's less batch's deviation, means over the forms of the KL", fontsize=9.5)
        axes.grid(color="0.93")
        axes.set_axisbelow(True)
        if len(data):
            figure.legend(loc="outside lower center", ncols=3)
        figure.suptitle(f"Gain by the level of a task (black: means): {results.title}")
    return figure, data
