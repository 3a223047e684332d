"""Figures of the KL estimators: curves, values and gradients as the policy leaves the reference, and use as a loss.

k1, k2 and k3 keep their colour, line and marker throughout.
"""

import math

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import torch
from matplotlib.figure import Figure

from agpo_core.experiments.plots.style import BLUE, GREY, ORANGE, PLAIN
from agpo_core.theory.kl_estimators import ESTIMATORS, slopes

STYLES = {  # estimator -> colour, line, marker
    "k1": (GREY, "-", "o"),
    "k2": (BLUE, "--", "s"),
    "k3": (ORANGE, "-.", "^"),
    "k3, clipped": ("0.25", ":", "D"),
    "sequence": (GREY, "-", "o"),
}
DIRECTION_TITLES = {
    "random": "in a random direction",
    "temperature": "along temperature (flatter < 0 < sharper)",
}
PENALTY_TITLES = {
    "sequence": "KL of the answer (k1 to go, in the reward)",
    "k2": "k2 per token, as a loss",
    "k3": "k3 per token, as a loss",
}


def kl_estimator_curves(low: float = -4.5, high: float = 4.5, marked=()) -> tuple[Figure, pd.DataFrame]:
    """What one token contributes, over its log-ratio d: the value, and the factor of ∇log π in the gradient.

    Args:
        low, high: ends of the axis of d, nats.
        marked: values of d to mark by vertical lines.

    Returns:
        The figure; one row per estimator and d: estimator, d, value, slope.
    """
    d_N = torch.linspace(low, high, 181, dtype=torch.float64)
    frames = []
    for name, estimator in ESTIMATORS.items():
        zero_N = torch.zeros_like(d_N)
        frames.append(pd.DataFrame({
            "estimator": name, "d": d_N, "value": estimator(d_N, zero_N), "slope": slopes(name, d_N, zero_N)
        }))  # fmt: skip
    data = pd.concat(frames, ignore_index=True)
    with plt.rc_context(PLAIN):
        figure, panels = plt.subplots(1, 2, figsize=(9, 3.4), layout="constrained")
        for axes, column in zip(panels, ("value", "slope"), strict=True):
            for name, curve in data.groupby("estimator"):
                axes.plot(curve["d"], curve[column], linewidth=1.8, label=name, **_line(name, ""))
            for d in marked:
                axes.axvline(d, color="0.8", linewidth=1, zorder=0)
            axes.axhline(0, color="0.45", linewidth=0.8, zorder=0)
            axes.set(xlabel=r"d = log π − log $π_\mathrm{ref}$ (nats)", xlim=(low, high))
        panels[0].set(ylim=(-5, 15), title="value of one token (nats)")
        panels[1].set(ylim=(-10, 5), title="its derivative in log π")
        panels[0].legend()
        figure.suptitle("k1, k2, k3 of one token" + ("; grey lines: the tokens of the example" if len(marked) else ""))
    return figure, data


def kl_running_means(values: dict, exact: dict, title: str) -> tuple[Figure, pd.DataFrame]:
    """The mean of the first n sampled values, as n grows, with divergences to compare it with.

    Args:
        values: estimator -> its values at the same sampled tokens, in the order drawn, (N,).
        exact: name -> a divergence to draw as a horizontal line, nats.
        title: of the figure.

    Returns:
        The figure; one row per estimator and n: estimator, n, mean, error (the standard error, from the draws alone).
    """
    frames = []
    for name, values_N in values.items():
        n = np.unique(np.geomspace(10, len(values_N), 120).astype(int))
        series = pd.Series(values_N.numpy()).expanding()
        mean, error = (column.iloc[n - 1].to_numpy() for column in (series.mean(), series.sem()))
        frames.append(pd.DataFrame({"estimator": name, "n": n, "mean": mean, "error": error}))
    data = pd.concat(frames, ignore_index=True)
    with plt.rc_context(PLAIN):
        figure, axes = plt.subplots(figsize=(9, 3.4), layout="constrained")
        for (name, value), line in zip(exact.items(), ("-", (0, (1, 2))), strict=False):
            axes.axhline(value, color="black", linewidth=1, linestyle=line, label=name, zorder=1)
        for name, curve in data.groupby("estimator"):
            axes.plot(curve["n"], curve["mean"], linewidth=1.8, label=f"mean of {name}", **_line(name, ""))
            band = (curve["mean"] - curve["error"], curve["mean"] + curve["error"])
            axes.fill_between(curve["n"], *band, color=STYLES[name][0], alpha=0.15, linewidth=0)
        axes.set(xscale="log", xlabel="tokens drawn", ylabel="nats", title=title)
        axes.legend(loc="center left", bbox_to_anchor=(1.01, 0.5))
    return figure, data


def kl_expectations(exact: dict, sampled: dict, title: str) -> tuple[Figure, pd.DataFrame]:
    """Mean and standard deviation of each estimator, as the policy leaves the reference.

    Lines are exact, marks are sampled; a bar is ± 1.96 standard errors, where they are larger than the mark. The
    divergences themselves are thin black lines. All lines break at s = 0, where everything is zero.

    Args:
        exact, sampled: direction -> a table of `kl_estimators.expectations`, of `kl_estimators.monte_carlo`.
        title: of the figure.

    Returns:
        The figure; one row per direction, scale and estimator: mean, std, reverse, forward; sampled_mean, sampled_std.
    """
    frames = []
    for direction in exact:
        drawn = sampled[direction].rename(columns={"mean": "sampled_mean", "std": "sampled_std"})
        drawn = drawn[["scale", "estimator", "sampled_mean", "sampled_std", "exact_error"]]
        frames.append(exact[direction].merge(drawn, on=["scale", "estimator"]).assign(direction=direction))
    data = pd.concat(frames, ignore_index=True)
    with plt.rc_context(PLAIN):
        figure, panels = plt.subplots(2, len(exact), figsize=(9, 6), sharex="col", layout="constrained", squeeze=False)
        for (top, bottom), direction in zip(panels.T, exact, strict=True):
            part = data[data["direction"] == direction]
            for name, rows in part.groupby("estimator"):
                color, line, marker = STYLES[name]
                width = {"k1": 4, "k2": 1.8, "k3": 1.8}[name]  # k1 and k3 have one mean
                shade = 0.45 if name == "k1" else 1
                parts = _broken_at_zero(rows)
                for axes, column in ((top, "mean"), (bottom, "std")):
                    axes.plot(parts["scale"], parts[column], color=color, linestyle=line, linewidth=width, alpha=shade)
                bars = {"yerr": 1.96 * rows["exact_error"], "fmt": marker, "color": color, "markersize": 5}
                top.errorbar(rows["scale"], rows["sampled_mean"], capsize=2, elinewidth=1, **bars)
                bottom.plot(rows["scale"], rows["sampled_std"], marker, color=color, markersize=5)
            one = _broken_at_zero(part.drop_duplicates("scale"))
            top.plot(one["scale"], one["reverse"], color="black", linewidth=0.9)
            top.plot(one["scale"], one["forward"], color="black", linewidth=0.9, linestyle=(0, (1, 2)))
            top.set(title=DIRECTION_TITLES[direction], ylim=(0, 1.08 * one["forward"].max()))
            bottom.set(yscale="log", xlabel="scale s of the log-ratio (nats)")
            for axes in (top, bottom):
                axes.grid(color="0.93")
                axes.set_axisbelow(True)
        panels[0, 0].set_ylabel("mean (nats)")
        panels[1, 0].set_ylabel("standard deviation (nats)")
        handles = [plt.Line2D([], [], label=name, **_line(name)) for name in ESTIMATORS]
        for name, line in ((r"KL(π‖$π_\mathrm{ref}$)", "-"), (r"KL($π_\mathrm{ref}$‖π)", (0, (1, 2)))):
            handles.append(plt.Line2D([], [], label=name, color="black", linewidth=0.9, linestyle=line))
        figure.legend(handles=handles, loc="outside lower center", ncols=5)
        figure.suptitle(title)
    return figure, data


def kl_loss_gradients(tables: dict, title: str) -> tuple[Figure, pd.DataFrame]:
    """Norm of each estimator's expected gradient as a loss, and the number of tokens that resolve it.

    Args:
        tables: direction -> a table of `kl_estimators.gradient_table`.
        title: of the figure.

    Returns:
        The figure; the tables with a column direction. k1's expectation is zero, so no number of tokens resolves it.
        Lines break at s = 0, where every norm is zero.
    """
    data = pd.concat([table.assign(direction=name) for name, table in tables.items()], ignore_index=True)
    with plt.rc_context(PLAIN):
        figure, panels = plt.subplots(
            2, len(tables), figsize=(9, 5.6), sharex="col", layout="constrained", squeeze=False
        )
        for (top, bottom), direction in zip(panels.T, tables, strict=True):
            for name, rows in data[data["direction"] == direction].groupby("estimator"):
                parts = _broken_at_zero(rows)
                top.plot(parts["scale"], parts["norm"], linewidth=1.6, markersize=5, **_line(name))
                if name != "k1":
                    bottom.plot(parts["scale"], parts["tokens"], linewidth=1.6, markersize=5, **_line(name))
            top.set(title=DIRECTION_TITLES[direction])
            bottom.set(yscale="log", xlabel="scale s of the log-ratio (nats)")
            for axes in (top, bottom):
                axes.grid(color="0.93")
                axes.set_axisbelow(True)
        panels[0, 0].set_ylabel("norm of the expected gradient")
        panels[1, 0].set_ylabel("tokens for a standard\nerror of that norm")
        handles = [plt.Line2D([], [], label=name, **_line(name)) for name in ESTIMATORS]
        figure.legend(handles=handles, loc="outside lower center", ncols=3)
        figure.suptitle(title)
    return figure, data


def kl_descents(expected: dict, sampled: dict, title: str) -> tuple[Figure, pd.DataFrame]:
    """KL to the reference during gradient descent with an estimator as the only loss.

    Args:
        expected: start -> loss -> kl_T_R of `kl_estimators.descend` with expected gradients, one run.
        sampled: the same with drawn tokens, many runs: the median is a line, the band holds the middle 80 %.
        title: of the figure.

    Returns:
        The figure; one row per start, kind ("expected" or "sampled"), loss and step: low, median, high. A run whose
        logits are no longer finite counts as infinitely far.
    """
    frames = []
    for kind, starts in (("expected", expected), ("sampled", sampled)):
        for start, paths in starts.items():
            for loss, kl_T_R in paths.items():
                low, median, high = (_quantile(kl_T_R, share) for share in (0.1, 0.5, 0.9))
                frames.append(pd.DataFrame({
                    "kind": kind, "start": start, "loss": loss, "step": range(len(kl_T_R)),
                    "low": low, "median": median, "high": high,
                }))  # fmt: skip
    data = pd.concat(frames, ignore_index=True)
    with plt.rc_context(PLAIN):
        figure, panels = plt.subplots(
            2, len(expected), figsize=(9, 6), sharex=True, sharey="col", layout="constrained", squeeze=False
        )
        for row, kind in zip(panels, ("expected", "sampled"), strict=True):
            for axes, start in zip(row, expected, strict=True):
                part = data[(data["kind"] == kind) & (data["start"] == start)]
                for loss, path in part.groupby("loss"):
                    every = max(1, len(path) // 6)
                    axes.plot(path["step"], path["median"], linewidth=1.6, markevery=every, markersize=5, **_line(loss))
                    if kind == "sampled":
                        color = STYLES[loss][0]
                        axes.fill_between(path["step"], path["low"], path["high"], color=color, alpha=0.15, linewidth=0)
                axes.set(title=f"{start}, {kind} gradient", yscale="log")
                axes.yaxis.set_major_formatter("{x:g}")
                axes.grid(color="0.93")
        for axes in panels[1]:
            axes.set_xlabel("step")
        for axes in panels[:, 0]:
            axes.set_ylabel(r"KL(π‖$π_\mathrm{ref}$), nats")
        losses = list(dict.fromkeys(data["loss"]))
        handles = [plt.Line2D([], [], label=loss, markersize=5, **_line(loss)) for loss in losses]
        figure.legend(handles=handles, loc="outside lower center", ncols=len(losses))
        figure.suptitle(title)
    return figure, data


def kl_equal_beta(table: pd.DataFrame, title: str) -> tuple[Figure, pd.DataFrame]:
    """KL of the answer at each penalty's stationary policy, over β, and its paired difference from the KL penalty's.

    Args:
        table: of `kl_estimators.equal_beta`.
        title: of the figure.

    Returns:
        The figure; the table. Bars are ± 1.96 standard errors over problems.
    """
    with plt.rc_context(PLAIN):
        figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3.6), layout="constrained")
        for penalty, rows in table.groupby("penalty", sort=False):
            style = {**_line(penalty), "linewidth": 1.6, "markersize": 5, "capsize": 2, "elinewidth": 1}
            bars = 1.96 * rows["kl_error"]
            left.errorbar(rows["beta"], rows["kl"], yerr=bars, label=PENALTY_TITLES[penalty], **style)
            if penalty != "sequence":
                right.errorbar(rows["beta"], rows["kl_gap"], yerr=1.96 * rows["kl_gap_error"], **style)
        right.axhline(0, color="0.45", linewidth=1)
        betas = sorted(table["beta"].unique())
        for axes in (left, right):
            axes.set(xscale="log", xlabel="β (reward per nat)")
            axes.set_xticks(betas, [f"{beta:g}" for beta in betas])
            axes.minorticks_off()
            axes.grid(color="0.93")
            axes.set_axisbelow(True)
        left.set(ylabel="KL of the answer (nats)", title="at each penalty's stationary policy")
        right.set(ylabel="paired difference (nats)", title="difference from the KL of the answer as penalty")
        figure.legend(loc="outside lower center", ncols=3)
        figure.suptitle(title)
    return figure, table


def _line(name: str, marker: str | None = None) -> dict:
    color, line, own_marker = STYLES[name]
    return {"color": color, "linestyle": line, "marker": own_marker if marker is None else marker}


def _broken_at_zero(rows: pd.DataFrame) -> pd.DataFrame:
    """The rows in order of scale; an empty row at 0 breaks a line whose scales lie on both sides of it."""
    rows = rows.set_index("scale").sort_index()
    if rows.index.min() < 0 < rows.index.max():
        rows = rows.reindex(rows.index.union([0.0]))
    return rows.rename_axis("scale").reset_index()


def _quantile(kl_T_R, share: float):
    """The value that at least `share` of the runs do not exceed; infinite values are allowed."""
    return kl_T_R.sort(dim=1).values[:, min(math.ceil(share * kl_T_R.shape[1]), kl_T_R.shape[1]) - 1].numpy()
