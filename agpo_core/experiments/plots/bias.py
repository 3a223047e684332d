"""Figures of the bias of normalised advantages: exact curves, where they cross the target, binary rewards, decay.

All rewards are in units of their standard deviation: e = ε/σ is the advantage without bias.
"""

import itertools

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import torch
from matplotlib.figure import Figure

from agpo_core.experiments.plots.style import BLUE, BROWN, GREEN, GREY, ORANGE, PLAIN, PURPLE, RED
from agpo_core.theory.bias import conditional_expectation, conditional_expectation_binary

LOOKS = [(BLUE, "-", "o"), (ORANGE, "--", "s"), (GREEN, "-.", "^"), (RED, ":", "D"), (PURPLE, (0, (5, 1)), "v"),
         (BROWN, (0, (1, 1)), "X")]  # fmt: skip
TARGET = {"color": "0.25", "linewidth": 1, "zorder": 1}


def bias_curves(points: pd.DataFrame, title: str) -> tuple[Figure, pd.DataFrame]:
    """E[A|ε] of every group size: exact lines, sampled points, and their distance in standard errors.

    Args:
        points: one row per N and point: N, epsilon (in units of σ), mean, standard_error.
        title: how the points were sampled.

    Returns:
        The figure; the points with exact, bias (= mean - epsilon) and z (= (mean - exact) / standard_error).
    """
    exact = [conditional_expectation(list(rows["epsilon"]), N) for N, rows in points.groupby("N", sort=False)]
    data = points.assign(exact=torch.cat(exact).numpy())
    data = data.assign(bias=data["mean"] - data["epsilon"], z=(data["mean"] - data["exact"]) / data["standard_error"])
    reach = points["epsilon"].abs().max()
    dense = torch.linspace(-reach, reach, 301, dtype=torch.float64)
    with plt.rc_context(PLAIN):
        figure, panels = plt.subplot_mosaic(
            [["curve", "bias"], ["z", "z"]], figsize=(9, 6.4), height_ratios=[3, 1.5], layout="constrained"
        )
        spread = np.linspace(-0.3, 0.3, data["N"].nunique()) * np.diff(np.unique(data["epsilon"])).min(initial=1.0)
        for (N, rows), (color, line, marker), shift in zip(
            data.groupby("N", sort=False), itertools.cycle(LOOKS), spread, strict=False
        ):
            curve = conditional_expectation(dense, N)
            mark = {"color": color, "marker": marker, "markersize": 4.5, "linestyle": "none"}
            for panel, lifted in (("curve", curve), ("bias", curve - dense)):
                panels[panel].plot(dense, lifted, color=color, linestyle=line, linewidth=1.4)
            for panel, values in (("curve", rows["mean"]), ("bias", rows["bias"])):
                panels[panel].errorbar(rows["epsilon"], values, yerr=rows["standard_error"], capsize=2, **mark)
            panels["z"].errorbar(rows["epsilon"] + shift, rows["z"], yerr=1, elinewidth=0.8, **mark)
        panels["curve"].plot(dense, dense, **TARGET)
        panels["bias"].axhline(0, **TARGET)
        panels["curve"].set(title="E[A|ε]: exact (lines) and sampled (marks)", xlabel="ε/σ", ylabel="E[A|ε]")
        panels["bias"].set(title="its bias, E[A|ε] - ε/σ", xlabel="ε/σ", ylabel="E[A|ε] - ε/σ")
        for height in (-4, 4):
            panels["z"].axhline(height, color="0.45", linestyle="--", linewidth=1)
        panels["z"].axhline(0, **TARGET)
        panels["z"].set(title="sampled minus exact, in standard errors (bars: ± 1; dashed: ± 4)", xlabel="ε/σ")
        handles = [plt.Line2D([], [], **TARGET, label="ε/σ, the target")]
        for N, (color, line, marker) in zip(data["N"].unique(), itertools.cycle(LOOKS), strict=False):
            handles.append(
                plt.Line2D([], [], color=color, linestyle=line, marker=marker, markersize=4.5, label=f"N = {N}")
            )
        figure.legend(handles=handles, loc="outside lower center", ncols=len(handles), handlelength=2.6)
        for axes in panels.values():
            axes.grid(color="0.93")
            axes.set_axisbelow(True)
        figure.suptitle(f"Local normalisation, Gaussian rewards: {title}")
    return figure, data


def bias_signs(group_size: int, sizes: list[int]) -> tuple[Figure, pd.DataFrame]:
    """Where E[A|ε] over-estimates ε/σ, where it under-estimates it, and where it crosses it, for both divisors of D².

    Args:
        group_size: N of the left half.
        sizes: N of the right half, ascending.

    Returns:
        The figure; one row per divisor (ddof) and N: slope at zero, crossing (NaN: E[A|ε] is below ε/σ everywhere), and
        over, the largest E[A|ε] - ε/σ.
    """
    e = torch.linspace(0, 3, 3001, dtype=torch.float64)[1:]
    rows = []
    for ddof in (0, 1):
        for N in sizes:
            bias = conditional_expectation(e, N, ddof=ddof) - e
            above = e[bias > 0]
            crossing = above[-1].item() if len(above) else np.nan
            rows.append((ddof, N, 1 + (bias[0] / e[0]).item(), crossing, max(bias.max().item(), 0.0)))
    data = pd.DataFrame(rows, columns=["ddof", "N", "slope", "crossing", "over"])
    with plt.rc_context(PLAIN):
        figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3.6), layout="constrained")
        for ddof, (color, line, marker), divisor in zip((0, 1), LOOKS, ("N", "N - 1"), strict=False):
            bias = (conditional_expectation(e, group_size, ddof=ddof) - e).numpy()
            left.plot(e, bias, color=color, linestyle=line, label=f"D² divides by {divisor}")
            mine = data[(data["ddof"] == ddof) & data["crossing"].notna()]
            right.plot(mine["N"], mine["crossing"], color=color, linestyle=line, marker=marker, markersize=4.5)
            limit = (1.5 if ddof == 0 else 0.5) ** 0.5
            right.axhline(limit, color=color, linestyle=":", linewidth=1)
            if ddof == 0:
                left.fill_between(e, bias, 0, where=bias > 0, color=color, alpha=0.35, linewidth=0)
                left.fill_between(e, bias, 0, where=bias < 0, color=color, alpha=0.12, linewidth=0)
        left.axhline(0, **TARGET)
        left.set(xlabel="ε/σ", ylabel="E[A|ε] - ε/σ")
        left.set_title(f"N = {group_size}: over-estimated above 0, under-estimated below")
        left.legend(loc="lower left")
        right.set_xscale("log", base=2)
        right.set_xticks(sizes, [str(N) for N in sizes])
        right.minorticks_off()
        right.set(xlabel="N", ylabel="ε/σ", ylim=(0, 1.4), xlim=(sizes[0] / 1.2, sizes[-1] * 1.2))
        right.set_title("Largest ε/σ that is over-estimated (dotted: N → ∞)")
        for axes in (left, right):
            axes.grid(color="0.93")
            axes.set_axisbelow(True)
        figure.suptitle("Where local normalisation over-estimates and under-estimates: Gaussian rewards, exact")
    return figure, data


def binary_weights(sizes: list[int]) -> tuple[Figure, pd.DataFrame]:
    """The weight w of a prompt under binary rewards, E[A|r] = w (r - p), and the share of groups without signal.

    Returns:
        The figure; one row per N and p: weight, limit (= 1 / sqrt(p (1 - p))) and equal, the chance that all rewards
        are equal.
    """
    p = torch.linspace(0.01, 0.99, 99, dtype=torch.float64)
    limit = (p * (1 - p)).rsqrt()
    tables = []
    for N in sizes:
        weight = conditional_expectation_binary(1, N, p) - conditional_expectation_binary(0, N, p)
        columns = {"p": p, "weight": weight, "limit": limit, "equal": p**N + (1 - p) ** N}
        tables.append(pd.DataFrame({"N": N} | {name: values.numpy() for name, values in columns.items()}))
    data = pd.concat(tables, ignore_index=True)
    with plt.rc_context(PLAIN):
        figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3.8), layout="constrained")
        for (N, rows), (color, line, marker) in zip(data.groupby("N", sort=False), LOOKS, strict=False):
            look = {"color": color, "linestyle": line, "marker": marker, "markersize": 4.5, "markevery": (9, 20)}
            left.plot(rows["p"], rows["weight"], label=f"N = {N}", **look)
            right.plot(rows["p"], rows["equal"], **look)
        left.plot(p, limit, color="0.25", linewidth=1, label="1/√(p(1-p)), N → ∞")
        left.set(yscale="log", xlabel="p, the chance of a right answer", ylabel="w")
        left.set_yticks([1, 2, 4, 8], ["1", "2", "4", "8"])
        left.minorticks_off()
        left.set_title("Weight of a prompt, E[A|r] = w (r - p)")
        right.set(xlabel="p, the chance of a right answer", ylabel="share of groups", ylim=(0, 1.02))
        right.set_title("Groups whose rewards are all equal: A = 0")
        figure.legend(loc="outside lower center", ncols=len(sizes) + 1, handlelength=2.6)
        for axes in (left, right):
            axes.grid(color="0.93")
            axes.set_axisbelow(True)
        figure.suptitle("Local normalisation, binary rewards: exact")
    return figure, data


def bias_decay(measured: pd.DataFrame, fit_from: int, level: float) -> tuple[Figure, pd.DataFrame]:
    """Measures of the bias over N, both axes logarithmic, with a power law fitted to the first.

    Args:
        measured: one row per N: N, and one column per measure, named as in the legend.
        fit_from: the power law is fitted to the N from here on, and drawn over them alone.
        level: drawn as a dashed line.

    Returns:
        The figure; the table with `fit`, the power law of the first measure (NaN below fit_from).
    """
    _, first, *others = measured.columns
    tail = measured[measured["N"] >= fit_from]
    exponent, intercept = np.polyfit(np.log(tail["N"]), np.log(tail[first]), 1)
    data = measured.assign(fit=np.exp(intercept) * tail["N"] ** exponent)  # by index: NaN before the tail
    with plt.rc_context(PLAIN):
        figure, axes = plt.subplots(figsize=(7, 4.2), layout="constrained")
        for name, (color, _, marker) in zip((first, *others), LOOKS, strict=False):
            axes.plot(data["N"], data[name], color=color, marker=marker, markersize=5, linestyle="none", label=name)
        label = f"{first}, fitted from N = {fit_from} on: $N^{{{exponent:.2f}}}$"
        axes.plot(data["N"], data["fit"], color=LOOKS[0][0], linewidth=1.2, label=label)
        axes.axhline(level, color=GREY, linestyle="--", linewidth=1.2, label=f"{level:g}")
        axes.set(xscale="log", yscale="log", xlabel="N, rewards that are normalised together", ylabel="bias")
        axes.set_xticks(data["N"], [str(N) for N in data["N"]], rotation=45)
        axes.minorticks_off()
        axes.grid(color="0.93")
        axes.set_axisbelow(True)
        axes.legend(loc="lower left")
        figure.suptitle("How the bias decays: Gaussian rewards, exact")
    return figure, data
