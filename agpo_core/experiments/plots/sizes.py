"""Figures of prompts or rollouts: what a group's mean is worth, exactly, and the scores over the group's size.

A baseline has the colour of its arm with the most rollouts a prompt; each arm has its own marker (`style.LOOKS`).
"""

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import torch
from matplotlib.figure import Figure

from agpo_core.comparison import t_interval
from agpo_core.experiments import group_sizes
from agpo_core.experiments.group_sizes import BATCH, GROUP, GRPO, SWEEP
from agpo_core.experiments.plots.runs import known
from agpo_core.experiments.plots.style import LOOKS, PLAIN, mark
from agpo_core.experiments.records import Results
from agpo_core.theory import group_means

POINTS = 101  # of a curve
SIZES = (2, 4, 8)
SHADES = dict(zip(SIZES, ("0.65", "0.4", "0.1"), strict=True))
SHIFT = {GRPO: -0.06, GROUP: 0.0, BATCH: 0.06}  # in log2 G, so that intervals do not cover each other


def group_mean_worth(within: float, between: float) -> tuple[Figure, pd.DataFrame]:
    """How often a group is silent over p, and what a rollout is worth over G under the group's and the batch's mean.

    Args:
        within, between: the variance of the rewards within prompts and between them, as seen in runs; not drawn where
            they are NaN. A second line of the batch's mean is for p uniform on [0, 1].

    Returns:
        The figure; a row a group size, prompts ("uniform" or "runs") and mean: worth.
    """
    p = torch.linspace(0, 1, POINTS, dtype=torch.float64)
    G = torch.linspace(1, 16, 16 * 4 - 3, dtype=torch.float64)
    parts = {"uniform": (1 / 6, 1 / 12)} | ({"runs": (within, between)} if within > 0 else {})
    frames = [
        pd.DataFrame({"G": G, "prompts": name, "mean": mean, "worth": group_means.worth(mean, G, *split)})
        for name, split in parts.items()
        for mean in group_means.MEANS
    ]
    data = pd.concat(frames, ignore_index=True)
    group, batch = (LOOKS[SWEEP[baseline][-1]].color for baseline in (GROUP, BATCH))
    with plt.rc_context(PLAIN):
        figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3.6), layout="constrained")
        for size, shade in SHADES.items():
            left.plot(p, 100 * group_means.silent_share(size, p), color=shade, linewidth=2, label=f"G = {size}")
        left.set(xlabel="p, the chance of a right answer", ylabel="silent groups (%)", xlim=(0, 1), ylim=(0, 100))
        left.set_title("Groups whose rewards are all equal")
        left.legend(loc="upper center")
        right.plot(G, 100 * group_means.worth("group", G, 1, 1), color=group, linewidth=2, label="group's mean")
        for (name, split), dashes in zip(parts.items(), ("--", "-"), strict=False):
            worth = 100 * group_means.worth("batch", 1, *split).item()
            seen = "p uniform" if name == "uniform" else "as in these runs"
            right.axhline(worth, color=batch, linestyle=dashes, linewidth=2, label=f"batch's mean, {seen}")
            if split[1] > 0 and 1 < (even := group_means.break_even(*split)) <= 16:
                right.plot(even, worth, "o", color="0.2", markersize=5, zorder=4)
        right.set(xscale="log", xlim=(1, 16), ylim=(0, 100), xlabel="G, rollouts a prompt")
        right.set_xticks([1, 2, 4, 8, 16], ["1", "2", "4", "8", "16"])
        right.minorticks_off()
        right.set(ylabel="worth of a rollout (%)", title="Compared with subtracting p itself")
        right.legend(loc="lower right")
        _finish(left, right)
        figure.suptitle("Rewards of 0 or 1: exact")
    return figure, data


def group_size_scores(results: Results) -> tuple[Figure, pd.DataFrame]:
    """Test score over the rollouts a prompt, a line a baseline; and the paired differences from the baseline.

    Left, small marks are runs, large ones their mean with the 95 % t-interval. Right, GRPO and the batch's mean less
    REINFORCE++-baseline at the same group size.

    Returns:
        The figure; a row an arm: arm, baseline, G, P, score, half, n, and gap, gap_half, pairs against
        REINFORCE++-baseline.
    """
    data, asked = group_sizes.by_size(results), group_sizes.contrasts(results)
    scores = group_sizes.macro(results.runs)
    key = {BATCH: "mean", GRPO: "divisor"}
    rows = []
    for row in data.itertuples():
        part = asked.get(f"{key.get(row.baseline)} {row.G}")
        rows.append(t_interval([] if part is None else part.values)[:3])
    gaps = pd.DataFrame(rows, columns=["gap", "gap_half", "pairs"], index=data.index, dtype=float)
    data = pd.concat([data, gaps], axis=1)
    with plt.rc_context(PLAIN):
        figure, (left, right) = plt.subplots(1, 2, figsize=(9.5, 4), width_ratios=[1.25, 1], layout="constrained")
        for baseline in [name for name in SWEEP if name in set(data["baseline"])]:
            of = data[data["baseline"] == baseline].sort_values("G")
            color, x = LOOKS[SWEEP[baseline][-1]].color, np.log2(of["G"]) + SHIFT[baseline]
            left.plot(x, of["score"], color=color, linewidth=1.8, label=baseline)
            for at, row in zip(x, of.itertuples(), strict=True):
                singles = scores[row.arm]
                spread = at + 0.02 * np.linspace(-1, 1, len(singles) + 2)[1:-1]
                left.scatter(spread, singles, s=8, color=color, alpha=0.45, linewidth=0)
                left.errorbar(at, row.score, yerr=known(row.half), **mark(row.arm, markersize=7))
                if row.pairs:
                    right.errorbar(at, row.gap, yerr=known(row.gap_half), **mark(row.arm, markersize=7))
            paired = of[of["pairs"] > 0]
            right.plot(np.log2(paired["G"]) + SHIFT[baseline], paired["gap"], color=color, linewidth=1.8)
        right.axhline(0, color=LOOKS[SWEEP[GROUP][-1]].color, linewidth=1.8)
        sizes = data.drop_duplicates("G").sort_values("G")
        ticks = [f"{row.G}\n{row.P} prompts" for row in sizes.itertuples()]
        left.set_xticks(np.log2(sizes["G"]), ticks)
        left.set(ylabel="macro-average on test (%)", title="Scores")
        both = sizes["G"].isin(data.loc[data["pairs"] > 0, "G"])
        right.set_xticks(np.log2(sizes["G"][both]), [tick for tick, shown in zip(ticks, both, strict=True) if shown])
        right.set(ylabel="difference (points)", title="Less REINFORCE++-baseline, at the same G")
        for axes in (left, right):
            axes.set_xlabel("G, rollouts a prompt")
            axes.margins(x=0.08)
        _finish(left, right)
        figure.legend(*left.get_legend_handles_labels(), loc="outside lower center", ncols=3)
        figure.suptitle(f"Prompts or rollouts, mean and 95 % interval: {results.title}")
    return figure, data


def _finish(*panels) -> None:
    for axes in panels:
        axes.grid(color="0.93")
        axes.set_axisbelow(True)
