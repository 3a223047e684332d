"""Figures of majority votes (AGPO Fig. 2): exact for given chances, and measured of the final policies."""

import matplotlib.pyplot as plt
import pandas as pd
from matplotlib.figure import Figure

from agpo_core.comparison import paired, t_interval
from agpo_core.experiments import votes
from agpo_core.experiments.grid import ARMS, arms_of
from agpo_core.experiments.plots.style import BLUE, GREEN, GREY, LOOKS, ORANGE, PLAIN, PURPLE, RED, line, mark
from agpo_core.experiments.records import Results
from agpo_core.experiments.verdicts import MEASURES
from agpo_core.theory.voting import vote_chance

SIZES = (1, 2, 4, 8, 16, 32, 64)
TWO = {0.3: (PURPLE, "v"), 0.45: (RED, "s"), 0.55: (BLUE, "o"), 0.7: (GREEN, "^")}  # p -> colour and marker
SHARED = {1: (RED, "s"), 2: (ORANGE, "D"), 4: (GREEN, "^")}  # number of wrong answers -> colour and marker
FIXED = 0.4  # the right answer's chance where the others share the rest
POINTS = ["arm", "k", "score", "half", "n", "gap", "gap_half", "pairs"]


def vote_chances() -> tuple[Figure, pd.DataFrame]:
    """The chance that a vote of k is right, exactly: against one wrong answer, and against several that share the rest.

    Returns:
        The figure; a row a curve and k: right, rivals, k, chance.
    """
    curves = [(p, 1, *look) for p, look in TWO.items()], [(FIXED, m, *look) for m, look in SHARED.items()]
    frames = []
    with plt.rc_context(PLAIN):
        figure, panels = plt.subplots(1, 2, figsize=(9, 3.4), sharey=True, layout="constrained")
        for axes, several in zip(panels, curves, strict=True):
            for p, rivals, color, marker in several:
                chances = [vote_chance(p, [(1 - p) / rivals] * rivals, k) for k in SIZES]
                frames.append(pd.DataFrame({"right": p, "rivals": rivals, "k": SIZES, "chance": chances}))
                axes.plot(SIZES, [100 * chance for chance in chances], color=color, marker=marker, markersize=5)
                text = f"p = {p:g}" if axes is panels[0] else f"{rivals} wrong answer{'s' * (rivals > 1)}"
                axes.annotate(
                    text, (SIZES[-1], 100 * chances[-1]), xytext=(8, 0), textcoords="offset points", color=color,
                    fontsize=9, va="center",
                )  # fmt: skip
            _over_votes(axes, SIZES)
            axes.set_ylim(-3, 103)
        panels[0].set(title="One wrong answer", ylabel="the vote is right (%)")
        panels[1].set_title(f"p = {FIXED:g}, the rest shared by several wrong answers")
        figure.suptitle("A vote of k independent samples, each right with chance p: exact")
    return figure, pd.concat(frames, ignore_index=True)


def majority_votes(results: Results) -> tuple[Figure, pd.DataFrame]:
    """maj@k of every arm over k, and its paired difference from GRPO; bars are 95 % t-intervals.

    Supervised starts are drawn without an interval: they are all starts, not a sample.

    Returns:
        The figure; a row an arm and k: score, half, n, and gap, gap_half, pairs against GRPO, in points.
    """
    ks, arms, rows = votes.voters(results), arms_of(results.runs), []
    for arm in arms:
        for k in ks:
            score = MEASURES[f"maj@{k}"]
            of_arm = score(results.runs[results.runs["arm"] == arm])
            gap = t_interval(paired(results.runs, arm, "grpo", score) if arm not in ("grpo", "start") else [])
            rows.append((arm, k, *t_interval(of_arm)[:3], *gap[:3]))
    data = pd.DataFrame(rows, columns=POINTS)
    compared = [arm for arm in arms if arm not in ("grpo", "start")]
    with plt.rc_context(PLAIN):
        figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3.8), sharex=True, layout="constrained")
        for arm in arms:
            rows = data[data["arm"] == arm]
            shift = 1.05 ** (arms.index(arm) - (len(arms) - 1) / 2)  # so that bars do not cover each other
            half = None if arm == "start" else _bars(rows["half"])
            left.errorbar(
                rows["k"] * shift, rows["score"], yerr=half, label=ARMS[arm].title, markersize=6, capsize=3,
                **(line(arm, "o") if arm == "start" else line(arm)),
            )  # fmt: skip
        for arm in compared:
            rows = data[data["arm"] == arm]
            shift = 1.14 ** (compared.index(arm) - (len(compared) - 1) / 2)
            style = mark(arm, markersize=7, linestyle=LOOKS[arm].line, linewidth=0.8)
            style["fmt"] = style["fmt"] or "o"
            right.errorbar(rows["k"] * shift, rows["gap"], yerr=_bars(rows["gap_half"]), **style)
        right.axhline(0, color="0.45", linewidth=1)
        for axes in (left, right):
            _over_votes(axes, ks)
        left.set(title="maj@k, mean over tasks", ylabel="right (%)")
        right.set(title="Paired difference from GRPO", ylabel="points")
        figure.legend(*left.get_legend_handles_labels(), loc="outside lower center", ncols=len(arms))
        figure.suptitle(f"Majority votes of the final policies: {results.title}")
    return figure, data


def vote_gains(results: Results) -> tuple[Figure, pd.DataFrame]:
    """What a large vote gains and loses against one sample, arm by arm; and its gain on each task over maj@1.

    Returns:
        The figure; a row an arm and task, as `votes.by_task` gives them.
    """
    data, ks, means = votes.by_task(results), votes.voters(results), votes.values(results).groupby("arm").mean()
    arms = arms_of(results.runs)
    with plt.rc_context(PLAIN):
        figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3.4), width_ratios=(1, 1.25), layout="constrained")
        if ks[1:]:
            gains, loses = (means.loc[arms, f"{ks[-1]} votes {what}"] for what in ("gain", "lose"))
            colors = [LOOKS[arm].color for arm in arms]
            left.barh(range(len(arms)), gains, color=colors, alpha=0.75, height=0.55)
            left.barh(range(len(arms)), -loses, color="white", edgecolor=colors, hatch="////", height=0.55)
            left.plot(gains - loses, range(len(arms)), "k|", markersize=16, markeredgewidth=2)
            left.set(yticks=range(len(arms)), yticklabels=[ARMS[arm].title for arm in arms])
            left.set(
                ylim=(len(arms) - 0.5, -0.5),
                xlabel="points",
                title=f"{ks[-1]} votes against one sample: gains,\nlosses (hatched), and the difference (mark)",
            )
        for arm in arms:
            rows = data[data["arm"] == arm]
            style = line(arm, "o") if arm == "start" else line(arm)
            right.plot(rows["one"], rows["gain"], **(style | {"linestyle": ""}), markersize=6, label=ARMS[arm].title)
        right.set(title="Each task, mean over runs", xlabel="maj@1 (%)", ylabel=f"maj@{min(ks[-1:] + [16])} − maj@1")
        right.legend()
        for axes, zero in ((left, left.axvline), (right, right.axhline)):
            zero(0, color=GREY, linewidth=1)
            axes.grid(color="0.93")
            axes.set_axisbelow(True)
        figure.suptitle(f"Where voting gains, and where it loses: {results.title}")
    return figure, data


def _bars(half: pd.Series) -> pd.Series | None:
    """Lengths of error bars; None where no point has an interval."""
    return None if half.isna().all() else half


def _over_votes(axes, ks) -> None:
    axes.set_xscale("log", base=2)
    axes.set_xticks(ks, [str(k) for k in ks])
    axes.minorticks_off()
    axes.set_xlabel("k, samples in a vote")
    axes.grid(color="0.93")
    axes.set_axisbelow(True)
