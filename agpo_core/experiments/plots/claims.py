"""One figure of all claims: how many stand where, and every difference that was judged."""

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from agpo_core.experiments import claim_tables
from agpo_core.experiments.plots.style import BLUE, ORANGE, PLAIN

GREY = "0.45"
MARKS = {  # verdict -> colour, marker, what fills it
    "supported": (BLUE, "o", BLUE),
    "contradicted": (ORANGE, "s", ORANGE),
    "inconclusive": (GREY, "D", "white"),
    "not run": (GREY, "D", "white"),
}
BARS = {  # standing -> colour of its bar
    "supported": BLUE,
    "contradicted": ORANGE,
    "inconclusive": "0.62",
    "in part": "0.80",
    "untested": "0.93",
}
NAMES = {"AGPO": "AGPO", "R++": "REINFORCE++"}


def claims_overview(found: pd.DataFrame) -> tuple[Figure, pd.DataFrame]:
    """Above, how many claims of each paper stand where; below, every judged difference with its 95 % interval.

    A hatched part of a bar was computed, a plain one comes from runs. A filled mark is a verdict for or against the
    claim after Holm's correction; an open one is inconclusive. Marks are grouped by the experiment that judges them.

    Args:
        found: `claim_tables.effects`.
    Returns:
        The figure; the judged differences in points, in the order in which they are drawn.
    """
    stands = claim_tables.standings(found)
    judged = found[(found["verdict"] != claim_tables.NOT_JUDGED) & (found["unit"] == "points")].dropna(subset=["mean"])
    order = {name: i for i, name in enumerate(dict.fromkeys(judged["experiment"]))}
    drawn = judged.sort_values("experiment", key=lambda names: names.map(order), kind="stable", ignore_index=True)
    rows = len(drawn) + len(order)  # a line above each group names it
    with plt.rc_context(PLAIN | {"hatch.linewidth": 0.7}):
        figure, (above, below) = plt.subplots(
            2, 1, figsize=(9, 2.5 + 0.235 * max(rows, 2)), height_ratios=[1.5, 0.8 + 0.235 * max(rows, 2)],
            layout="constrained",
        )  # fmt: skip
        _bars(above, stands)
        _forest(below, drawn)
        figure.suptitle(
            f"{len(stands)} claims of two papers, and {len(drawn)} differences of scores judged at micro scale"
        )
    return figure, drawn


def _bars(axes, stands: pd.DataFrame) -> None:
    papers = list(NAMES)
    for y, paper in enumerate(papers):
        left = 0
        for name, color in BARS.items():
            for by in ("runs", "computed", ""):
                here = (stands["paper"] == paper) & (stands["standing"] == name) & (stands["by"] == by)
                if not (width := int(here.sum())):
                    continue
                hatch = "////" if by == "computed" else None
                axes.barh(y, width, left=left, height=0.62, color=color, edgecolor="white", hatch=hatch)
                look = {"facecolor": color, "edgecolor": "none", "pad": 1.2}
                dark = name in ("supported", "contradicted", "inconclusive")
                axes.text(left + width / 2, y, str(width), ha="center", va="center", fontsize=9, bbox=look,
                          color="white" if dark else "0.2")  # fmt: skip
                left += width
    axes.set(yticks=range(len(papers)), ylim=(len(papers) - 0.5, -0.5), xlabel="claims")
    axes.set_yticklabels(NAMES.values())
    axes.set_xlim(0, stands["paper"].value_counts().max())
    handles = [Patch(color=color, label=name) for name, color in BARS.items()]
    handles.append(Patch(facecolor="0.6", edgecolor="white", hatch="////", label="computed"))
    axes.legend(handles=handles, loc="lower center", bbox_to_anchor=(0.45, 1.0), ncols=len(handles),
                handlelength=1.4, columnspacing=1.2)  # fmt: skip


def _forest(axes, drawn: pd.DataFrame) -> None:
    axes.axvline(0, color="0.45", linewidth=1)
    places, names, y = [], [], 0
    for experiment, group in drawn.groupby("experiment", sort=False):
        places.append(y)
        names.append(experiment)
        y += 1
        for row in group.itertuples():
            color, marker, face = MARKS[row.verdict]
            half = None if np.isnan(row.half) else row.half
            axes.errorbar(row.mean, y, xerr=half, fmt=marker, color=color, markerfacecolor=face, markersize=6,
                          capsize=2.5, elinewidth=1.5)  # fmt: skip
            places.append(y)
            names.append(f"{row.pair}   {row.claim}")
            y += 1
    axes.set(yticks=places, ylim=(max(y, 1) - 0.4, -0.7), xlabel="paired difference, points of the macro-average")
    for label, name in zip(axes.set_yticklabels(names), names, strict=True):
        if name in set(drawn["experiment"]):
            label.set_fontweight("bold")
    for tick, name in zip(axes.yaxis.get_major_ticks(), names, strict=True):
        if name in set(drawn["experiment"]):
            tick.tick1line.set_visible(False)
    handles = [
        plt.Line2D([], [], color=color, marker=marker, markerfacecolor=face, linestyle="-", label=verdict)
        for verdict, (color, marker, face) in MARKS.items()
        if verdict != "not run"
    ]
    axes.legend(handles=handles, loc="lower right", bbox_to_anchor=(1.0, 1.0), ncols=len(handles), borderaxespad=0.2)
    if drawn.empty:
        axes.text(0.5, 0.5, "no record judges a claim", ha="center", va="center", transform=axes.transAxes, color="0.4")
    axes.grid(axis="x", color="0.92")
    axes.set_axisbelow(True)
