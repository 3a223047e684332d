"""Figures of all methods at one budget. A method looks as `style.LOOKS` says."""

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from agpo_core.comparison import macro, paired, t_interval
from agpo_core.experiments.grid import ARMS, arms_of
from agpo_core.experiments.plots.runs import after_the_start, dev_points, finish_scores, known
from agpo_core.experiments.plots.style import GREY, LOOKS, PLAIN, line, mark
from agpo_core.experiments.records import Results

MEMBERS = {  # family -> its methods, in the order of the panels' legends
    "group baselines": ("grpo", "dr_grpo", "rloo", "remax"),
    "REINFORCE++": ("reinforce_pp", "reinforce_pp_k", "reinforce_pp_baseline"),
    "critic, or offline": ("ppo", "ppo_critic", "adaptive_kl_ppo", "dpo"),
    "AGPO": ("agpo", "grpo_ats", "agpo_no_ats", "agpo_official_code"),
    "AGPO, ours": ("agpo_global", "agpo_part_probe", "agpo_free_probe"),
}
SCORES = ["family", "score", "half", "n", "gap", "gap_half", "pairs"]


def method_scores(results: Results) -> tuple[Figure, pd.DataFrame]:
    """Macro-average of every method on test, and its paired difference from GRPO, by family, best first within each.

    Returns:
        The figure; one row per method: family, score, half, n, and gap, gap_half, pairs against GRPO.
    """
    runs, scores = results.runs, macro(results.runs)
    rows = {}
    for family, arms in MEMBERS.items():
        present = sorted((arm for arm in arms if arm in set(arms_of(runs))), key=lambda arm: -scores[arm].mean())
        for arm in present:
            gap = t_interval(paired(runs, arm, "grpo") if arm != "grpo" else [])
            rows[arm] = (family, *t_interval(scores[arm])[:3], *gap[:3])
    data = pd.DataFrame.from_dict(rows, orient="index", columns=SCORES)
    with plt.rc_context(PLAIN):
        figure, (left, right) = plt.subplots(
            1, 2, figsize=(9, 1.4 + 0.27 * len(data)), sharey=True, layout="constrained"
        )
        for y, (arm, row) in enumerate(data.iterrows()):
            spread = y + np.linspace(-0.2, 0.2, len(scores[arm]) + 2)[1:-1]
            left.scatter(scores[arm], spread, s=7, color=LOOKS[arm].color, alpha=0.4, linewidth=0)
            left.errorbar(row["score"], y, xerr=known(row["half"]), **mark(arm, markersize=6))
            if row["pairs"]:
                right.errorbar(row["gap"], y, xerr=known(row["gap_half"]), **mark(arm, markersize=6))
            elif arm == "grpo":
                right.plot(0, y, markersize=6, **line(arm))
        for boundary in np.flatnonzero(data["family"].to_numpy()[1:] != data["family"].to_numpy()[:-1]):
            for axes in (left, right):
                axes.axhline(boundary + 0.5, color="0.85", linewidth=0.8)
        finish_scores(left, right, scores, list(data.index))
        figure.suptitle(f"All methods, mean and 95 % interval: {results.title}")
    return figure, data


def method_curves(results: Results) -> tuple[Figure, pd.DataFrame]:
    """Macro-average on dev over the consumed share of the horizon: one panel per family, with GRPO in grey in each.

    Lines are means over runs, bars their 95 % t-intervals.

    Returns:
        The figure; one row per method and evaluation: progress, dev, half, n.
    """
    data = dev_points(results.traces.dropna(subset=["dev"]))
    with plt.rc_context(PLAIN):
        figure, panels = plt.subplots(
            1, len(MEMBERS), figsize=(11, 3.8), sharex=True, sharey=True, layout="constrained"
        )
        for axes, (family, arms) in zip(panels, MEMBERS.items(), strict=True):
            present = [arm for arm in arms if arm in set(data["arm"])]
            if "grpo" not in present:
                _curve(axes, data, "grpo", "GRPO", 0.0, color=GREY, linestyle="-", marker="", linewidth=2.2, alpha=0.6)
            for i, arm in enumerate(present):
                _curve(axes, data, arm, ARMS[arm].title, 0.012 * (i - (len(present) - 1) / 2), **line(arm))
            axes.set(title=family, xlabel="share of horizon")
            axes.set_xticks([0, 0.5, 1.0], ["0", "50 %", "100 %"])
            axes.grid(color="0.93")
            axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.2), fontsize=7.5)
        after_the_start(panels, data)
        figure.suptitle(f"Learning curves: {results.title}")
    return figure, data


def _curve(axes, data: pd.DataFrame, arm: str, label: str, shift: float, **style) -> None:
    curve = data[data["arm"] == arm]
    bars = {"markersize": 3.5, "capsize": 1.5, "elinewidth": 0.9, "linewidth": 1.3} | style
    axes.errorbar(curve["progress"] + shift, curve["dev"], yerr=curve["half"].fillna(0), label=label, **bars)
