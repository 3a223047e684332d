"""Figures of arms in several families of models (AGPO Table 3). An arm looks as `style.LOOKS` says."""

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from agpo_core.comparison import macro, paired, t_interval
from agpo_core.experiments import families
from agpo_core.experiments.grid import ARMS, arms_of
from agpo_core.experiments.plots.runs import known
from agpo_core.experiments.plots.style import LOOKS, PLAIN, line, mark
from agpo_core.experiments.records import Results

STEP = 0.2  # between two arms of one family, in rows
BELOW = 0.07  # of an arm's runs under its mean, in rows
DRAWN = ["arm", "start", "score", "half", "gap", "gap_half", "pairs"]


def family_gaps(results: Results) -> tuple[Figure, pd.DataFrame]:
    """Level and paired difference from GRPO of each arm in each family; small marks are runs.

    The last row on the right holds the record of several starts of one family, a small mark a start: the large one with
    its bar is where another start of that family would be expected (`families.another_start`).

    Returns:
        The figure; a row an arm and start: score, half, and gap, gap_half, pairs against GRPO.
    """
    runs, record = results.runs, families.one_family(results)
    starts, arms = families.starts_of(runs), [arm for arm in arms_of(runs) if arm != "start"]
    rows = []
    with plt.rc_context(PLAIN):
        height = 1.5 + (0.2 + STEP * len(arms)) * (len(starts) + (record is not None)) * 1.15
        figure, (left, right) = plt.subplots(
            1, 2, figsize=(9, height), sharey=True, layout="constrained", width_ratios=(1, 1.35)
        )
        for i, start in enumerate(starts):
            before = macro(runs[(runs["arm"] == "start") & (runs["start"] == start)])
            left.plot(before, [i] * len(before), linestyle="", color=LOOKS["start"].color, marker="|", markersize=26)
            for arm in arms:
                y = i + _offset(arm, arms)
                values = macro(runs[(runs["arm"] == arm) & (runs["start"] == start)])
                gaps = families.gap(runs, arm, start) if arm != "grpo" else pd.Series(dtype=float)
                level, gap = t_interval(values), t_interval(gaps)
                _dots(left, values, y, arm)
                left.errorbar(level.mean, y, xerr=known(level.half), **mark(arm, markersize=6.5))
                if gap.n:
                    _dots(right, gaps, y, arm)
                    right.errorbar(gap.mean, y, xerr=known(gap.half), **mark(arm, markersize=6.5))
                rows.append((arm, start, *level[:2], *gap[:3]))
        labels = [families.title(start) for start in starts]
        if record is not None:
            labels.append(_one_family(right, record, arms, len(starts)))
        right.axvline(0, color="0.45", linewidth=1)
        left.set(yticks=range(len(labels)), yticklabels=labels, ylim=(max(len(labels), 1) - 0.45, -0.55))
        left.set(xlabel="macro-average on test (%)", title="Level; grey: before training")
        right.set(xlabel="paired difference from GRPO (points)", title="Difference from GRPO")
        for axes in (left, right):
            axes.grid(axis="x", color="0.92")
            axes.set_axisbelow(True)
            for boundary in np.arange(len(labels) - 1) + 0.5:
                axes.axhline(boundary, color="0.85", linewidth=0.8)
        _legend(figure, arms)
        figure.suptitle(f"Families, mean and 95 % interval over seeds: {results.title}")
    return figure, pd.DataFrame(rows, columns=DRAWN)


def family_contrasts(results: Results) -> tuple[Figure, pd.DataFrame]:
    """By how much each adaptive arm's difference from GRPO is larger in one family than in another; marks are seeds.

    Returns:
        The figure; the rows of `families.between`.
    """
    arms = families.adaptive(results.runs)
    data = families.between(results.runs, arms)
    pairs = list(dict.fromkeys(zip(data["one"], data["other"], strict=True)))
    with plt.rc_context(PLAIN):
        figure, axes = plt.subplots(figsize=(7.5, 1.4 + 0.55 * max(len(pairs), 1)), layout="constrained")
        for row in data.itertuples():
            y = pairs.index((row.one, row.other)) + _offset(row.arm, arms)
            _dots(axes, families.contrast(results.runs, row.arm, row.one, row.other), y, row.arm)
            axes.errorbar(row.mean, y, xerr=known(row.half), **mark(row.arm, markersize=6.5))
        labels = [f"{families.title(one)} − {families.title(other)}" for one, other in pairs]
        axes.axvline(0, color="0.45", linewidth=1)
        axes.set(yticks=range(len(pairs)), yticklabels=labels, ylim=(max(len(pairs), 1) - 0.5, -0.5))
        axes.set(xlabel="contrast of two families' differences from GRPO (points)")
        axes.grid(axis="x", color="0.92")
        axes.set_axisbelow(True)
        _legend(figure, arms)
        figure.suptitle(f"Do the families differ? Mean and 95 % interval: {results.title}")
    return figure, data


def _one_family(axes, record: Results, arms: list[str], row: int) -> str:
    """Draw the starts of one family in a row of their own; returns the row's label."""
    for arm in arms:
        if arm != "grpo" and arm in arms_of(record.runs):
            y, expected = row + _offset(arm, arms), families.another_start(record, arm)
            _dots(axes, paired(record.runs, arm, "grpo"), y, arm)
            axes.errorbar(expected.mean, y, xerr=known(expected.half), **mark(arm, markersize=6.5, alpha=0.55))
    n = record.runs["start"].nunique()
    return f"another start\nof {families.title(record.runs['start'].iloc[0])},\nfrom {n} starts"


def _offset(arm: str, arms: list[str]) -> float:
    return STEP * (arms.index(arm) - (len(arms) - 1) / 2)


def _dots(axes, values, y: float, arm: str) -> None:
    axes.scatter(values, np.full(len(values), y + BELOW), s=12, color=LOOKS[arm].color, alpha=0.5, linewidth=0)


def _legend(figure: Figure, arms: list[str]) -> None:
    handles = [plt.Line2D([], [], label=ARMS[arm].title, **line(arm) | {"linestyle": ""}) for arm in arms]
    figure.legend(handles=handles, loc="outside lower center", ncols=max(len(arms), 1))
