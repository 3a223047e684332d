"""Figures of AGPO's signals (Table 4): their leverage on ε and τ, beside what masking them does to the score."""

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from agpo_core.comparison import paired, t_interval
from agpo_core.experiments.grid import ARMS
from agpo_core.experiments.leverage import MASKED, controllers_of, leverage, middle, recompute, runs_of
from agpo_core.experiments.plots.runs import known
from agpo_core.experiments.plots.style import LOOKS, PLAIN, line, mark
from agpo_core.experiments.records import Results

DATA = ["factor", "factor_low", "factor_high", "shift", "shift_low", "shift_high", "gap", "half", "pairs"]


def signal_leverage(results: Results) -> tuple[Figure, pd.DataFrame]:
    """What masking a signal changes: ε and τ, recomputed for every recorded update of AGPO, and the score, measured.

    A panel a quantity, each with an axis of its own. Points are updates, or pairs of runs. In the first two panels the
    marker is the median and the bar holds 95 % of updates; in the third they are mean and 95 % t-interval.

    Returns:
        The figure; a row an arm: factor and shift with the ends of their ranges; gap, half and pairs of the score.
    """
    found = leverage(results.traces, results.meta["params"])
    arms = [arm for arm in MASKED if arm in set(found["arm"])]
    rows, gaps = {}, {arm: paired(results.runs, arm, "agpo") for arm in arms}
    for arm in arms:
        of = found[found["arm"] == arm]
        rows[arm] = (*middle(of["epsilon_factor"]), *middle(of["tau_shift"]), *t_interval(gaps[arm])[:3])
    data = pd.DataFrame.from_dict(rows, orient="index", columns=DATA)
    with plt.rc_context(PLAIN):
        figure, panels = plt.subplots(1, 3, figsize=(9.5, 1.5 + 0.45 * len(MASKED)), sharey=True, layout="constrained")
        for y, arm in enumerate(arms):
            of, row = found[found["arm"] == arm], data.loc[arm]
            look = mark(arm, markersize=7)
            for axes, column, name in ((panels[0], "epsilon_factor", "factor"), (panels[1], "tau_shift", "shift")):
                _points(axes, of[column], y, arm)
                ends = [[row[name] - row[f"{name}_low"]], [row[f"{name}_high"] - row[name]]]
                axes.errorbar(row[name], y, xerr=ends, **look)
            _points(panels[2], gaps[arm], y, arm)
            if row["pairs"]:
                panels[2].errorbar(row["gap"], y, xerr=known(row["half"]), **look)
        panels[0].set(yticks=range(len(arms)), yticklabels=[ARMS[arm].title for arm in arms], xlabel="ε without it / ε")
        panels[0].set(ylim=(max(len(arms), 1) - 0.5, -0.5), title="Leverage on ε")
        panels[1].set(xlabel="τ without it − τ", title="Leverage on τ")
        panels[2].set(xlabel="difference from AGPO (points)", title="Score, measured")
        for axes, nothing in zip(panels, (1, 0, 0), strict=True):
            axes.axvline(nothing, color="0.45", linewidth=1)
            axes.grid(axis="x", color="0.92")
            axes.set_axisbelow(True)
        figure.suptitle(f"A signal masked, {len(found) // max(len(arms), 1)} updates: {results.title}")
    return figure, data


def masked_courses(results: Results) -> tuple[Figure, pd.DataFrame]:
    """ε and τ of AGPO's recorded runs, update by update, and what each mask would have made of them; means over runs.

    Returns:
        The figure; a row an arm and update: means of epsilon and tau over the runs that reached the update.
    """
    tables = []
    for arm in ("agpo", *MASKED):
        for _, updates in runs_of(results.traces, "agpo"):
            asked = recompute(updates, *controllers_of(results.meta["params"], arm))
            tables.append(asked.assign(arm=arm, update=updates["update"]))
    columns = ["arm", "update", "epsilon", "tau"]
    data = pd.concat(tables)[columns] if tables else pd.DataFrame(columns=columns)
    data = data.groupby(["arm", "update"], as_index=False)[["epsilon", "tau"]].mean()
    with plt.rc_context(PLAIN):
        figure, panels = plt.subplots(1, 2, figsize=(9, 3.6), layout="constrained")
        for arm in ("agpo", *MASKED):
            course = data[data["arm"] == arm]
            look = {"markersize": 4.5, "linewidth": 1.4, "label": ARMS[arm].title, **line(arm)}
            for axes, column in zip(panels, ("epsilon", "tau"), strict=True):
                axes.plot(course["update"], course[column], **look)
        panels[0].set(xlabel="update", ylabel="ε", title="Clip radius")
        panels[1].set(xlabel="update", ylabel="τ", title="Temperature")
        panels[1].axhline(results.meta["params"]["tau_base"], color="0.45", linestyle="--", linewidth=1)
        figure.legend(*panels[0].get_legend_handles_labels(), loc="outside lower center", ncols=5, handlelength=3)
        for axes in panels:
            axes.xaxis.get_major_locator().set_params(integer=True)
            axes.grid(color="0.93")
        figure.suptitle(f"Recorded signals, a mask a line: {results.title}")
    return figure, data


def _points(axes, values: pd.Series, y: int, arm: str) -> None:
    """Single values around the line of an arm, spread so that none hides another."""
    spread = y + 0.3 * np.linspace(-1, 1, len(values) + 2)[1:-1]
    alpha = 0.18 if len(values) > 50 else 0.5
    axes.scatter(values.sort_values(), spread, s=6, color=LOOKS[arm].color, alpha=alpha, linewidth=0)
