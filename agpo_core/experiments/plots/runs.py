"""Figures of trained runs: scores, learning curves, controllers. An arm looks as `style.LOOKS` says."""

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from agpo_core.comparison import macro, paired, t_interval
from agpo_core.experiments.grid import ARMS, arms_of
from agpo_core.experiments.plots.style import LOOKS, PLAIN, line, mark
from agpo_core.experiments.records import Results

SCORES = ["score", "half", "n", "gap", "gap_half", "pairs"]
POINTS = ["arm", "evaluation", "progress", "dev", "half", "n"]
DRAWN = ["epsilon", "epsilon_raw", "tau", "uncertainty", "uncertainty_baseline", "entropy"]
METHODS = ("grpo", "grpo_ats", "agpo_no_ats", "agpo")


def main_results(results: Results) -> tuple[Figure, pd.DataFrame]:
    """Macro-average of every arm on test, and its paired difference from GRPO.

    Small marks are runs, large ones their mean with the 95 % t-interval.

    Returns:
        The figure; one row per arm: score, half, n, and gap, gap_half, pairs against GRPO.
    """
    runs = results.runs
    if runs.empty:
        return _blank(), pd.DataFrame(columns=SCORES)
    arms = [arm for arm in arms_of(runs) if arm != "start"]
    scores = macro(runs)
    rows = {}
    for arm in arms:
        gap = t_interval(paired(runs, arm, "grpo") if arm != "grpo" else [])
        rows[arm] = (*t_interval(scores[arm])[:3], *gap[:3])
    data = pd.DataFrame.from_dict(rows, orient="index", columns=SCORES)
    with plt.rc_context(PLAIN):
        figure, (left, right) = plt.subplots(
            1, 2, figsize=(9, 1.6 + 0.38 * len(arms)), sharey=True, layout="constrained"
        )
        for y, arm in enumerate(arms):
            spread = y + np.linspace(-0.18, 0.18, len(scores[arm]) + 2)[1:-1]
            left.scatter(scores[arm], spread, s=9, color=LOOKS[arm].color, alpha=0.45, linewidth=0)
            row = data.loc[arm]
            left.errorbar(row["score"], y, xerr=known(row["half"]), **mark(arm, markersize=7))
            if row["pairs"]:
                right.errorbar(row["gap"], y, xerr=known(row["gap_half"]), **mark(arm, markersize=7))
            elif arm == "grpo":
                right.plot(0, y, markersize=7, **line(arm))
        finish_scores(left, right, scores, arms)
        figure.suptitle(f"Test score, mean and 95 % interval: {results.title}")
    return figure, data


def learning_curves(results: Results) -> tuple[Figure, pd.DataFrame]:
    """Macro-average on dev over the consumed share of the horizon, methods and controls in separate panels.

    Lines are means over runs, bars their 95 % t-intervals. Runs stop at updates, so the same evaluation falls on
    slightly different progress in each: the mean progress is drawn.

    Returns:
        The figure; one row per arm and evaluation: progress, dev, half, n.
    """
    scored = results.traces.dropna(subset=["dev"])
    if scored.empty:
        return _blank(), pd.DataFrame(columns=POINTS)
    data = dev_points(scored)
    with plt.rc_context(PLAIN):
        figure, panels = plt.subplots(1, 2, figsize=(9, 4.2), sharex=True, sharey=True, layout="constrained")
        groups = {
            "methods": [arm for arm in arms_of(data) if arm in METHODS],
            "controls": [arm for arm in arms_of(data) if arm not in METHODS[1:3]],
        }
        for axes, (title, arms) in zip(panels, groups.items(), strict=True):
            for i, arm in enumerate(arms):
                curve = data[data["arm"] == arm]
                shift = 0.006 * (i - (len(arms) - 1) / 2)  # so that bars do not cover each other
                axes.errorbar(
                    curve["progress"] + shift, curve["dev"], yerr=curve["half"].fillna(0),
                    label=ARMS[arm].title, markersize=4.5, capsize=2, elinewidth=1, **line(arm),
                )  # fmt: skip
            axes.set(title=title, xlabel="consumed share of the horizon")
            axes.xaxis.set_major_formatter("{x:.0%}")
            axes.grid(color="0.93")
            axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.17), ncols=2)
        after_the_start(panels, data)
        figure.suptitle(f"Learning curves: {results.title}")
    return figure, data


def controller_traces(results: Results) -> tuple[Figure, pd.DataFrame]:
    """What the controllers saw and did, update by update; means over runs, bands their range.

    The panels show the clip radius with its value before clipping (thin) and its bounds, the temperature, U with its
    baseline (thin), and the policy entropy. An arm is drawn up to the last update that all of its runs reached.

    Returns:
        The figure; one row per arm and update: means of epsilon, epsilon_raw, tau, uncertainty, uncertainty_baseline
        and entropy.
    """
    updates = results.traces[results.traces["update"] > 0]
    arms = [arm for arm in arms_of(updates) if ARMS[arm].adapts]
    if not arms:
        return _blank(), pd.DataFrame(columns=["arm", "update", *DRAWN])
    params = results.meta["params"]
    updates = updates[updates["arm"].isin(arms)]
    runs = updates.groupby("arm")[["seed", "start"]].apply(lambda r: len(r.drop_duplicates()))
    grouped = updates.groupby(["arm", "update"])[DRAWN]
    reached = grouped.size() == runs.reindex(grouped.size().index, level="arm")
    mean, low, high = (getattr(grouped, name)()[reached] for name in ("mean", "min", "max"))
    with plt.rc_context(PLAIN):
        figure, panels = plt.subplots(2, 2, figsize=(9, 5.6), sharex=True, layout="constrained")
        (clip, temperature), (uncertainty, entropy) = panels
        for arm in arms:
            if "epsilon" in ARMS[arm].adapts:
                _trace(clip, arm, mean, low, high, "epsilon", thin="epsilon_raw")
            if "tau" in ARMS[arm].adapts:
                _trace(temperature, arm, mean, low, high, "tau")
                _trace(uncertainty, arm, mean, low, high, "uncertainty", "uncertainty_baseline")
            _trace(entropy, arm, mean, low, high, "entropy")
        for bound in ("epsilon_min", "epsilon_max"):
            clip.axhline(params[bound], color="0.45", linestyle="--", linewidth=1)
        temperature.axhline(params["tau_base"], color="0.45", linestyle="--", linewidth=1)
        clip.set_yscale("log")
        ticks = [0.025, 0.05, 0.1, 0.2, 0.4]
        clip.set_yticks(ticks, [f"{tick:g}" for tick in ticks])
        clip.minorticks_off()
        handles = [plt.Line2D([], [], label=ARMS[arm].title, **line(arm, "")) for arm in arms]
        figure.legend(handles=handles, loc="outside lower center", ncols=len(arms))
        clip.set(ylabel="ε", title="Clip radius ε (thin: before its bounds; dashed: bounds)")
        temperature.set(ylabel="τ", title=r"Temperature τ (dashed: $τ_\mathrm{base}$)")
        uncertainty.set(ylabel="U", title="Uncertainty U (thin: its baseline Ū)", xlabel="update")
        entropy.set(ylabel="H (nats per token)", title="Policy entropy H", xlabel="update")
        for axes in panels.flat:
            axes.xaxis.get_major_locator().set_params(integer=True)
            axes.grid(color="0.93")
            axes.set_axisbelow(True)
        figure.suptitle(f"Controllers, mean and range over runs: {results.title}")
    return figure, mean.reset_index()


def _blank() -> Figure:
    figure, axes = plt.subplots(figsize=(9, 0.8))
    axes.axis("off")
    axes.text(0.5, 0.5, "nothing to draw", ha="center", va="center", color="0.4")
    return figure


def _trace(axes, arm, mean, low, high, column, thin=None):
    style = line(arm, "")
    x = mean.loc[arm].index
    axes.plot(x, mean.loc[arm][column], linewidth=1.8, **style)
    axes.fill_between(
        x,
        low.loc[arm][column],
        high.loc[arm][column],
        color=style["color"],
        alpha=0.12,
        linewidth=0,
    )
    if thin:
        axes.plot(x, mean.loc[arm][thin], linewidth=0.8, alpha=0.8, **style)


def finish_scores(left, right, scores: pd.Series, arms: list[str]) -> None:
    """Label a figure with scores on the left and paired differences from GRPO on the right, one row per arm.

    The left axis holds the arms. The supervised starts lie far below them: their mean stands above the axis as text,
    or as a line where it falls among the arms.
    """
    if "start" in scores.index.get_level_values("arm"):
        start, (low, high) = scores["start"].mean(), left.get_xlim()
        if low <= start <= high:
            left.axvline(start, color="0.45", linestyle="--", linewidth=1)
        side = "dashed" if low <= start <= high else f"off the axis to the {'left' if start < low else 'right'}"
        left.set_title(f"supervised starts: {start:.1f} %, {side}", loc="left", fontsize=8.5, color="0.35")
    right.axvline(0, color="0.45", linewidth=1)
    if "grpo" in arms:
        right.annotate(
            "the reference", (0, arms.index("grpo")), xytext=(6, 0), textcoords="offset points", va="center",
            color="0.35", fontsize=8,
        )  # fmt: skip
    left.set(yticks=range(len(arms)), yticklabels=[ARMS[arm].title for arm in arms])
    left.set(xlabel="macro-average on test (%)", ylim=(len(arms) - 0.5, -0.5))
    right.set(xlabel="paired difference from GRPO (points)")
    for axes in (left, right):
        axes.grid(axis="x", color="0.92")
        axes.set_axisbelow(True)


def after_the_start(panels, data: pd.DataFrame) -> None:
    """Let the axis of learning curves begin below their first evaluation after the start, which lies far below it."""
    later = data[data["evaluation"] > 0]
    label = "macro-average on dev (%)"
    if not later.empty:
        half, start = later["half"].fillna(0), data.loc[data["evaluation"] == 0, "dev"].mean()
        low, high = (later["dev"] - half).min(), (later["dev"] + half).max()
        room = 0.05 * (high - low) + 0.5
        if start < low - room:
            panels[0].set_ylim(low - room, high + room)
            panels[0].set_xlim(left=later["progress"].min() - 0.12)
            label += f"\nall begin at {start:.0f} %, below the axis"
    panels[0].set_ylabel(label)


def dev_points(scored: pd.DataFrame) -> pd.DataFrame:
    """Mean progress and dev score, with its t-interval: one row per arm and evaluation."""
    scored = scored.assign(evaluation=scored.groupby(["arm", "seed", "start"]).cumcount())
    rows = []
    for (arm, evaluation), points in scored.groupby(["arm", "evaluation"]):
        dev = 100 * points.set_index("start")["dev"]
        rows.append((arm, evaluation, points["progress"].mean(), *t_interval(dev)[:3]))
    return pd.DataFrame(rows, columns=POINTS)


def known(half: float) -> float | None:
    """The length of an error bar; None where a single run has no interval."""
    return None if np.isnan(half) else half
