"""Figures of R++ Table 4: learning to call a tool, and groups that stay silent. An arm looks as `style.LOOKS` says."""

import matplotlib.pyplot as plt
import pandas as pd
from matplotlib.figure import Figure

from agpo_core.comparison import t_interval
from agpo_core.experiments import tool_readings
from agpo_core.experiments.grid import ARMS, arms_of
from agpo_core.experiments.plots.runs import _blank
from agpo_core.experiments.plots.style import LOOKS, PLAIN, line
from agpo_core.experiments.records import Results

CURVES = ["arm", "update", "dev", "lead", "half", "calls"]


def tool_curves(results: Results) -> tuple[Figure, pd.DataFrame]:
    """Accuracy on dev, its paired lead over GRPO and calls an answer along training; means over runs.

    Bars are 95 % t-intervals of the lead. Levels have none: starts lie far apart, and every arm has the same ones.

    Returns:
        The figure; a row an arm and evaluation: dev (%), lead with half (points; NaN for GRPO), calls (an answer).
    """
    points = results.traces.dropna(subset=["dev"]) if "tool_calls" in results.traces else results.traces.iloc[:0]
    if points.empty:
        return _blank(), pd.DataFrame(columns=CURVES)
    indexed = points.set_index(["arm", "update", "seed", "start"]).sort_index()
    dev, calls = indexed["dev"], indexed["tool_calls"]
    rows = []
    for arm, update in dev.index.droplevel(["seed", "start"]).unique().sort_values():
        lead = []
        if arm != "grpo" and ("grpo", update) in dev.index.droplevel(["seed", "start"]):
            lead = 100 * (dev[arm, update] - dev["grpo", update]).dropna()
        gap = t_interval(lead)
        rows.append((arm, update, 100 * dev[arm, update].mean(), gap.mean, gap.half, calls[arm, update].mean()))
    data = pd.DataFrame(rows, columns=CURVES)
    arms = arms_of(data)
    with plt.rc_context(PLAIN):
        figure, panels = plt.subplots(1, 3, figsize=(9.5, 3.5), layout="constrained")
        for i, arm in enumerate(arms):
            curve = data[data["arm"] == arm]
            shift = 0.3 * (i - (len(arms) - 1) / 2)  # so that bars do not cover each other
            small = {"markersize": 3.5, "linewidth": 1.3} | line(arm)
            panels[0].plot(curve["update"], curve["dev"], **small)
            panels[1].errorbar(
                curve["update"] + shift, curve["lead"], curve["half"].fillna(0), capsize=1.5, elinewidth=0.8, **small
            )
            called = curve.dropna(subset=["calls"])
            panels[2].plot(called["update"], called["calls"], **small)
        panels[1].axhline(0, color=LOOKS["grpo"].color, linewidth=1)
        panels[0].set(title="Accuracy on dev", ylabel="%", ylim=(0, 103))
        panels[1].set(title="Lead over GRPO on dev, paired", ylabel="points")
        panels[2].set(title="Calls an answer", ylim=(0, None))
        for axes in panels:
            axes.set_xlabel("update")
            axes.xaxis.get_major_locator().set_params(integer=True)
            axes.grid(color="0.93")
            axes.set_axisbelow(True)
        handles = [plt.Line2D([], [], label=ARMS[arm].title, markersize=4, **line(arm)) for arm in arms]
        figure.legend(handles=handles, loc="outside lower center", ncols=len(arms))
        figure.suptitle(f"Learning to call, means over runs: {results.title}")
    return figure, data


def tool_scores(results: Results) -> tuple[Figure, pd.DataFrame]:
    """Test accuracy and area of every run, the runs of one start joined: how far starts lie apart, and arms.

    Returns:
        The figure; `tool_readings.per_run`, a row a run.
    """
    if results.runs.empty:
        return _blank(), pd.DataFrame(columns=list(tool_readings.MEASURES))
    data = tool_readings.per_run(results)
    arms = [arm for arm in arms_of(results.runs) if arm != "start"]
    with plt.rc_context(PLAIN):
        size = (9.5, 0.5 * len(arms) + 1.7)
        figure, panels = plt.subplots(1, 2, figsize=size, sharey=True, layout="constrained")
        for axes, column, title in zip(
            panels, ("accuracy", "area"), ("Test accuracy", "Area under the learning curve"), strict=True
        ):
            wide = data[column].unstack("arm")[arms]
            for _, run in wide.iterrows():
                axes.plot(run.to_numpy(), range(len(arms)), color="0.8", linewidth=0.9, zorder=1)
            for y, arm in enumerate(arms):
                axes.scatter(wide[arm], [y] * len(wide), s=14, color=LOOKS[arm].color, alpha=0.6, linewidth=0, zorder=2)
                axes.plot(wide[arm].mean(), y, **{**line(arm), "marker": "|"}, markersize=22, markeredgewidth=2.5)
            axes.set(title=title, xlabel="%")
            axes.grid(axis="x", color="0.93")
            axes.set_axisbelow(True)
        panels[0].set(yticks=range(len(arms)), yticklabels=[ARMS[arm].title for arm in arms])
        panels[0].set_ylim(len(arms) - 0.5, -0.5)
        figure.suptitle(f"Runs (grey lines join those of one start) and their means: {results.title}")
    return figure, data


def silent_groups(results: Results, groups: int, right: int, group: int) -> tuple[Figure, pd.DataFrame]:
    """Left and middle, exact: what silent groups do to advantages. Right: how many groups were silent in the runs.

    Args:
        groups, right, group: as for `tool_readings.by_silence`.
    Returns:
        The figure; `tool_readings.by_silence`.
    """
    data, seen = tool_readings.by_silence(groups, right, group), tool_readings.silence(results)
    with plt.rc_context(PLAIN):
        figure, panels = plt.subplots(1, 3, figsize=(9.5, 3.5), layout="constrained")
        for arm, of_arm in data.groupby("arm", sort=False):
            for axes, column in zip(panels[:2], ("live", "void"), strict=True):
                axes.plot(100 * of_arm["silent"], of_arm[column], markersize=4, linewidth=1.3, **line(arm))
        panels[0].set(title=f"Exact: a right answer, {right} of {group}", xlabel="silent groups (%)", ylim=(0, None))
        panels[0].set_ylabel("advantage")
        panels[1].set(title="Exact: an answer in a silent group", xlabel="silent groups (%)", ylabel="advantage")
        for arm, of_arm in seen.groupby("arm", sort=False):
            panels[2].plot(of_arm["update"], 100 * of_arm["silent"], linewidth=1.5, **line(arm, ""))
        panels[2].set(title="Measured: silent groups", xlabel="update", ylabel="%", ylim=(0, 100))
        if seen.empty:
            panels[2].text(0.5, 0.5, "not logged", ha="center", color="0.4", transform=panels[2].transAxes)
        for axes in panels:
            axes.grid(color="0.93")
            axes.set_axisbelow(True)
        handles = [plt.Line2D([], [], label=ARMS[arm].title, markersize=4, **line(arm)) for arm in data["arm"].unique()]
        figure.legend(handles=handles, loc="outside lower center", ncols=len(handles))
        figure.suptitle(f"Groups whose rewards are all equal (right panel: {results.title})")
    return figure, data
