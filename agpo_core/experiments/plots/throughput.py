"""Figures of speeds and of times to a target (AGPO Table 2). An arm looks as `style.LOOKS` says."""

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator

from agpo_core.experiments import throughput, time_to_target
from agpo_core.experiments.grid import ARMS, arms_of
from agpo_core.experiments.plots.style import LOOKS, PLAIN, line
from agpo_core.experiments.records import Results
from agpo_core.experiments.throughput_reading import FAIR, LINES, SAME_METHOD

MEASURES = {"counted": ("|", 13), "alone": ("x", 7), "recorded": ("o", 6)}  # marker and size of each
TITLES = {"generated": "Generated tokens a second", "trained": "Trained-on tokens a second"}


def speed_ratios(results: Results) -> tuple[Figure, pd.DataFrame]:
    """Speeds as multiples of GRPO's: counted, alone on a quiet machine, and recorded with the interval.

    Returns:
        The figure; the rows of `throughput.ratios`.
    """
    data = throughput.ratios(results)
    data = data[data["arm"] != "grpo"].reset_index(drop=True)
    arms = arms_of(data)
    with plt.rc_context(PLAIN):
        figure, panels = plt.subplots(
            1, 2, figsize=(9, 1.6 + 0.4 * max(len(arms), 1)), sharey=True, layout="constrained"
        )
        for axes, kind in zip(panels, throughput.KINDS, strict=True):
            for row in data[data["kind"] == kind].itertuples():
                y = arms.index(row.arm) + {"counted": 0.0, "alone": 0.0, "recorded": 0.22}[row.measure]
                marker, size = MEASURES[row.measure]
                bar = None if np.isnan(row.low) else [[row.ratio - row.low], [row.high - row.ratio]]
                axes.errorbar(
                    row.ratio, y, xerr=bar, marker=marker, markersize=size, color=LOOKS[row.arm].color,
                    markeredgewidth=2, capsize=3, linestyle="",
                )  # fmt: skip
            axes.axvline(1, color="0.45", linewidth=1)
            axes.set(title=TITLES[kind], xlabel="multiple of GRPO's", ylim=(max(len(arms), 1) - 0.4, -0.5))
            axes.set_xscale("log")
            ticks = [0.5, 0.6, 0.8, 1, 1.25, 1.5, 2]
            axes.xaxis.set_major_locator(FixedLocator(ticks))
            axes.xaxis.set_major_formatter("{x:g}")
            axes.minorticks_off()
            ends = [0.5, 2.0, *data[["ratio", "low", "high"]].stack().dropna()]
            axes.set_xlim(0.95 * min(ends), 1.05 * max(ends))
            axes.grid(axis="x", color="0.92")
            axes.set_axisbelow(True)
        panels[0].set(yticks=range(len(arms)), yticklabels=[ARMS[arm].title for arm in arms])
        words = {
            "counted": "counted passes",
            "alone": "alone on a quiet machine",
            "recorded": "recorded, 95 % interval",
        }
        handles = [
            plt.Line2D(
                [], [], color="0.3", linestyle="", marker=m, markersize=size, markeredgewidth=2, label=words[name]
            )
            for name, (m, size) in MEASURES.items()
        ]
        figure.legend(handles=handles, loc="outside lower center", ncols=3)
        figure.suptitle(f"Speed: {results.title}")
    return figure, data


def horizon_pair(results: Results, seen: pd.DataFrame) -> tuple[Figure, pd.DataFrame]:
    """GRPO over two horizons, and AGPO: learning rate and score on dev over the updates; means over runs.

    Returns:
        The figure; a row an arm and evaluation: means of update, rate, dev.
    """
    arms = [arm for arm in ("grpo", "grpo_matched_updates", "agpo") if arm in set(seen["arm"])]
    order = seen.assign(evaluation=seen.groupby(throughput.KEY).cumcount())
    data = order[order["arm"].isin(arms)].groupby(["arm", "evaluation"])[["update", "rate", "dev"]].mean().reset_index()
    with plt.rc_context(PLAIN):
        figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3.7), sharex=True, layout="constrained")
        for arm in arms:
            curve = data[data["arm"] == arm]
            if arm != "agpo":
                left.plot(*_schedule(results, arm, curve["update"].max()), **line(arm, ""), linewidth=1.8)
                left.plot(curve["update"], 100 * curve["rate"], **line(arm) | {"linestyle": ""}, markersize=5)
            right.plot(curve["update"], 100 * curve["dev"], **line(arm), label=ARMS[arm].title, markersize=5)
        for share in (0.5, 0.9) if "grpo" in arms else ():
            level = 100 * time_to_target.target(seen, share)
            right.axhline(level, color="0.6", linewidth=1, linestyle=":")
            right.annotate(
                f"{share:.0%} of GRPO's gain", (data["update"].max(), level), xytext=(0, 3), ha="right",
                textcoords="offset points", fontsize=8, color="0.35",
            )  # fmt: skip
        left.set(title="Learning rate (marks: evaluations)", xlabel="update", ylabel="share of the peak (%)")
        right.set(title="Score on dev, straight between evaluations", xlabel="update", ylabel="macro-average (%)")
        for axes in (left, right):
            axes.grid(color="0.93")
        figure.legend(loc="outside lower center", ncols=3)
        figure.suptitle(f"One method, two horizons: {results.title}")
    return figure, data


def target_sweep(results: Results, seen: pd.DataFrame) -> tuple[Figure, pd.DataFrame]:
    """Ratios of times to a target, over targets, a panel a currency. Hollow: some pair does not reach the target.

    Full lines have AGPO against the arm of equal horizon in that currency; dashed ones have another horizon on each
    side: AGPO against GRPO, and, in blue, GRPO over a shorter horizon against GRPO.

    Returns:
        The figure; the rows of `time_to_target.sweep`.
    """
    data = time_to_target.sweep(seen, LINES)
    with plt.rc_context(PLAIN):
        figure, panels = plt.subplots(1, 3, figsize=(9.6, 3.9), sharey=True, layout="constrained")
        for axes, currency in zip(panels, time_to_target.PARTNERS, strict=True):
            for pair in LINES:
                same = [data[name] == value for name, value in zip(("arm", "baseline", "currency"), pair, strict=True)]
                rows = data[np.logical_and.reduce(same)].dropna(subset=["ratio"])
                if pair[2] == currency and len(rows):
                    _sweep_line(axes, pair, rows)
            axes.axhline(1, color="0.45", linewidth=1)
            axes.set(title=f"in {time_to_target.CURRENCIES[currency]}", xlabel="target, share of GRPO's gain")
            axes.xaxis.set_major_formatter("{x:.0%}")
            axes.grid(color="0.93")
            if axes.get_legend_handles_labels()[0]:
                axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.2), fontsize=7.5)
        panels[0].set_yscale("log")
        panels[0].yaxis.set_major_locator(FixedLocator([0.5, 0.7, 1, 1.4, 2]))
        panels[0].yaxis.set_major_formatter("{x:g}")
        panels[0].minorticks_off()
        panels[0].set_ylabel("time to the target, ratio\n(below 1: sooner)")
        figure.suptitle(f"Who is first? Mean over pairs and 95 % interval: {results.title}")
    return figure, data


def _sweep_line(axes, pair: tuple, rows: pd.DataFrame) -> None:
    arm, baseline, _ = pair
    style = line(arm) | {"linestyle": "-" if pair in FAIR else "--"}
    shift = {True: 0.0}.get(pair in FAIR, 0.012 if pair in SAME_METHOD else -0.012)
    bars = np.vstack([rows["ratio"] - rows["low"], rows["high"] - rows["ratio"]])
    x, whole = rows["share"] + shift, (rows["n"] == rows["pairs"]).to_numpy()
    words = {
        "grpo": "GRPO",
        "grpo_matched_updates": "GRPO, equal updates",
        "grpo_matched_compute": "GRPO, equal compute",
    }
    names = {"agpo": "AGPO", "grpo_matched_updates": "GRPO, shorter", "grpo_matched_compute": "GRPO, shorter"}
    axes.errorbar(
        x, rows["ratio"], yerr=np.nan_to_num(bars), capsize=2, elinewidth=1, linewidth=1.4, markersize=0, fmt="",
        **{key: style[key] for key in ("color", "linestyle")}, label=f"{names[arm]} / {words[baseline]}",
    )  # fmt: skip
    marks = {key: style[key] for key in ("color", "marker")} | {"linestyle": "", "markersize": 5}
    axes.plot(x[whole], rows["ratio"][whole], **marks)
    axes.plot(x[~whole], rows["ratio"][~whole], **marks, markerfacecolor="white")


def _schedule(results: Results, arm: str, last: float) -> tuple[np.ndarray, np.ndarray]:
    config = throughput.config_of(results.meta["params"], arm)
    progress = np.linspace(0, 1, 201)
    rate = [time_to_target.learning_rate(config, p) / config.learning_rate for p in progress]
    return last * progress, 100 * np.array(rate)
