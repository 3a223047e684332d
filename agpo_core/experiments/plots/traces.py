"""Figures of AGPO's controllers along training: Figs. 3 and 4 of the paper, and what moves the two controllers.

Lines are medians over runs, bands their range. Runs stop at updates, so the same update of two runs falls on slightly
different progress: a line stands at the mean. An arm is drawn up to the update that all of its runs reached. Where runs
have many updates, each is first averaged over blocks of consecutive ones.
"""

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from matplotlib.ticker import PercentFormatter

from agpo_core.comparison import t_interval
from agpo_core.experiments import leverage, traces
from agpo_core.experiments.grid import ARMS, arms_of
from agpo_core.experiments.plots.runs import dev_points
from agpo_core.experiments.plots.style import LOOKS, PLAIN, line
from agpo_core.experiments.records import Results

MOST_POINTS = 50  # of a line; more updates than that are averaged in blocks
RADIUS = {  # column -> title, unit; of the radius and what it is to hold
    "entropy": ("Policy entropy H", "nats per token"),
    "epsilon": ("Clip radius ε; dashed, its floor", "ε"),
    "step_kl": (r"Step KL $\hat D_\mathrm{step}$", "nats per token"),
    "clip_fraction": ("Tokens on which the clip binds", "share"),
}
REFERENCE = {"reference_kl": ("KL to the reference", "nats per token"), "reward": ("Reward", "mean over the update")}
TEMPERATURE = {
    "tau": (r"Temperature τ; dashed, $τ_\mathrm{base}$", "τ"),
    "uncertainty": ("Uncertainty U; thin, its baseline Ū", "U"),
    "reward": ("Reward of the training rollouts", "mean over the update"),
}
POINT = ["arm", "update", "progress"]
SHARES = {"H": "H", "E": "$\\mathcal{E}$", "σ̂": "$\\hat\\sigma$", "|κ̃₃|": "$|\\tilde\\kappa_3|$", "D̂": "$\\hat D$"}


def radius_traces(results: Results, further: bool = False) -> tuple[Figure, pd.DataFrame]:
    """Entropy, radius, step KL and the tokens on which the clip binds, along training.

    Args:
        further: draw the KL to the reference and the reward too.
    Returns:
        The figure; a row an arm and update: median, low and high of each quantity.
    """
    panels = RADIUS | (REFERENCE if further else {})
    data = courses(results, list(panels))
    if data.empty:
        return _blank(), data
    with plt.rc_context(PLAIN):
        rows = len(panels) // 2
        figure, axes = plt.subplots(rows, 2, figsize=(9, 2.6 * rows + 0.4), sharex=True, layout="constrained")
        for ax, (column, (title, unit)) in zip(axes.flat, panels.items(), strict=True):
            for arm in arms_of(data):
                _course(ax, data[data["arm"] == arm], arm, column)
            ax.set(title=title, ylabel=unit)
        floor = axes.flat[list(panels).index("epsilon")]
        floor.axhline(results.meta["params"]["epsilon_min"], color="0.45", linestyle="--", linewidth=1)
        floor.set_ylim(bottom=0)
        axes.flat[list(panels).index("clip_fraction")].yaxis.set_major_formatter(PercentFormatter(1, decimals=0))
        _finish(figure, axes, arms_of(data))
        figure.suptitle(f"Radius and KL, median and range over runs: {about_runs(results)}")
    return figure, data


def radius_factors(results: Results, arm: str = "agpo") -> tuple[Figure, pd.DataFrame]:
    """Left: ε against H, an update a point. Right: which share of the variance of ln ε in a run each signal explains.

    The line on the left is ε = c ε_base H with the mean c of all updates: Eq. 4 were its other signals constant.

    Returns:
        The figure; a row a signal: share, half, n (of the mean over runs, in %).
    """
    updates, params = traces.updates_of(results.traces, arm), results.meta.get("params", {})
    names = ["share", "half", "n"]
    if updates.empty:
        return _blank(), pd.DataFrame(columns=names)
    part = 100 * traces.shares(updates, params)
    rows = {name: t_interval(part[name].dropna())[:3] for name in SHARES}
    data = pd.DataFrame.from_dict(rows, orient="index", columns=names)
    with plt.rc_context(PLAIN):
        figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3.4), layout="constrained")
        raw, H = updates["epsilon_raw"], updates["entropy"]
        factor = (raw / (params["epsilon_base"] * H)).mean()
        left.plot(H, raw, **line(arm) | {"linestyle": ""}, markersize=3.5, alpha=0.6)
        ends = np.array([H.min(), H.max()])
        left.plot(ends, factor * params["epsilon_base"] * ends, color="0.3", linewidth=1.2)
        left.set_title(f"ε before its bounds; the line is {factor:.2f} $ε_\\mathrm{{base}}$ H")
        left.set(xlabel="H (nats per token)", ylabel="ε")
        y = np.arange(len(data))
        right.barh(y, data["share"], xerr=data["half"].fillna(0), color="0.75", capsize=3)
        right.axvline(0, color="0.45", linewidth=1)
        right.set(yticks=y, yticklabels=SHARES.values(), xlabel="share of the variance of ln ε in a run (%)")
        right.set_title("What moves ε; mean and 95 % interval")
        right.invert_yaxis()
        for ax in (left, right):
            ax.grid(color="0.93")
            ax.set_axisbelow(True)
        figure.suptitle(f"{ARMS[arm].title}: {about_runs(results, averaged=False)}")
    return figure, data


def temperature_traces(results: Results) -> tuple[Figure, pd.DataFrame]:
    """Temperature, uncertainty, reward and dev accuracy along training (AGPO Fig. 4 and what feeds it).

    Returns:
        The figure; a row an arm and update: median, low and high of each quantity.
    """
    data = courses(results, [*TEMPERATURE, "uncertainty_baseline"])
    if data.empty:
        return _blank(), data
    scores = dev_points(results.traces[results.traces["arm"].isin(data["arm"])].dropna(subset=["dev"]))
    with plt.rc_context(PLAIN):
        figure, axes = plt.subplots(2, 2, figsize=(9, 5.6), sharex=True, layout="constrained")
        (tau, uncertainty), (reward, dev) = axes
        for arm in arms_of(data):
            of_arm = data[data["arm"] == arm]
            heats = "tau" in ARMS[arm].adapts
            for ax, column in ((tau, "tau"), (uncertainty, "uncertainty")) if heats else ():
                _course(ax, of_arm.dropna(subset=["uncertainty"]), arm, column)
            if heats:
                _course(uncertainty, of_arm, arm, "uncertainty_baseline", band=False, linewidth=0.8)
            _course(reward, of_arm, arm, "reward")
        for i, arm in enumerate(arms_of(data)):
            curve = scores[scores["arm"] == arm]
            shift = 0.008 * (i - (data["arm"].nunique() - 1) / 2)  # so that bars do not cover each other
            bars = {"yerr": curve["half"].fillna(0), "capsize": 2, "elinewidth": 0.9, "markersize": 4}
            dev.errorbar(curve["progress"] + shift, curve["dev"], **line(arm), **bars)
        tau.axhline(results.meta["params"]["tau_base"], color="0.45", linestyle="--", linewidth=1)
        for ax, (title, unit) in zip(
            axes.flat, [*TEMPERATURE.values(), ("Accuracy on dev; mean, 95 % interval", "%")], strict=True
        ):
            ax.set(title=title, ylabel=unit)
        uncertainty.set_ylim(bottom=0)
        _finish(figure, axes, arms_of(data))
        figure.suptitle(f"Temperature and accuracy, median and range over runs: {about_runs(results)}")
    return figure, data


def temperature_starts(results: Results, arms: list[str]) -> tuple[Figure, pd.DataFrame]:
    """τ as it was, as a constant U would give it, and as the same signals give it with Ū debiased; a panel an arm.

    Returns:
        The figure; a row an arm and update: means over runs of tau, warm_up, debiased.
    """
    present = [arm for arm in arms if arm in set(results.traces["arm"])]
    names = ["tau", "warm_up", "debiased"]
    if not present:
        return _blank(), pd.DataFrame(columns=["arm", "update", *names])
    params, parts = results.meta["params"], []
    for arm in present:
        updates = traces.probed(results.traces, arm)
        updates["warm_up"] = traces.warm_up(updates, params)
        updates["debiased"] = traces.temperature(updates, params, "debiased")
        parts.append(updates)
    means = blocks(common(pd.concat(parts)), names)
    data = means.groupby(["arm", "update"], sort=False)[names].mean().reset_index()
    with plt.rc_context(PLAIN):
        size = {"figsize": (9 if len(present) > 1 else 5.5, 3.2), "layout": "constrained"}
        figure, axes = plt.subplots(1, len(present), sharey=True, squeeze=False, **size)
        for ax, arm in zip(axes.flat, present, strict=True):
            of_arm, color = data[data["arm"] == arm], LOOKS[arm].color
            ax.plot(
                of_arm["update"], of_arm["warm_up"], color="0.6", linewidth=4, alpha=0.6, label="U constant: warm-up"
            )
            ax.plot(of_arm["update"], of_arm["tau"], color=color, linewidth=1.8, label="as it was, $Ū_0$ = 0")
            ax.plot(of_arm["update"], of_arm["debiased"], color="0.1", linewidth=1.3, linestyle=":", label="Ū debiased")
            ax.axhline(params["tau_base"], color="0.45", linestyle="--", linewidth=1)
            ax.set(title=ARMS[arm].title, xlabel="update")
            ax.grid(color="0.93")
        axes.flat[0].set_ylabel("τ")
        handles = axes.flat[0].get_legend_handles_labels()
        figure.legend(*handles, loc="outside lower center", ncols=3)
        figure.suptitle(f"τ from the same signals, mean over runs: {about_runs(results)}")
    return figure, data


def controllers_again(results: Results, arm: str, clip, temperature) -> tuple[Figure, pd.DataFrame]:
    """ε and τ as an arm's runs recorded them, and as other controllers would have set them on the same signals.

    Args:
        clip, temperature: the other controllers. What training under them would have made of the signals is not in it.

    Returns:
        The figure; a row an update: means over runs of epsilon and tau, recorded and (`_again`) recomputed.
    """
    parts = []
    for _, run in leverage.runs_of(results.traces, arm):
        again = leverage.recompute(run, clip, temperature)
        parts.append(run.assign(epsilon_again=again["epsilon"], tau_again=again["tau"]))
    names = ["epsilon", "epsilon_again", "tau", "tau_again"]
    if not parts:
        return _blank(), pd.DataFrame(columns=["update", *names])
    data = blocks(common(pd.concat(parts)), names).groupby("update")[names].mean().reset_index()
    params = results.meta["params"]
    with plt.rc_context(PLAIN):
        figure, axes = plt.subplots(1, 2, figsize=(9, 3.2), layout="constrained")
        for ax, name, symbol in zip(axes, ("epsilon", "tau"), "ετ", strict=True):
            ax.plot(data["update"], data[f"{name}_again"], color=LOOKS[arm].color, linewidth=1.8, label="yours")
            ax.plot(data["update"], data[name], color="0.1", linewidth=1.3, linestyle=":", label="recorded")
            for bound in ("min", "max"):
                ax.axhline(params[f"{name}_{bound}"], color="0.45", linestyle="--", linewidth=1)
            low, high = params[f"{name}_min"], params[f"{name}_max"]
            ax.set(xlabel="update", ylabel=symbol, ylim=(low - 0.05 * (high - low), high + 0.05 * (high - low)))
            ax.grid(color="0.93")
        figure.legend(*axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=2)
        figure.suptitle(f"{ARMS[arm].title}, the same signals, mean over runs: {about_runs(results)}")
    return figure, data


def temperature_lags(results: Results, arms: list[str], lags=(-3, -2, -1, 0, 1, 2, 3)) -> tuple[Figure, pd.DataFrame]:
    """Left: τ against the reward of the same update. Right: how changes of the two go together within runs, by lag.

    Returns:
        The figure; a row an arm and lag: mean, low, high, n (`traces.mean_correlation`).
    """
    names = ["arm", "lag", "mean", "low", "high", "n"]
    present = [arm for arm in arms if arm in set(results.traces["arm"])]
    if not present:
        return _blank(), pd.DataFrame(columns=names)
    rows = [
        (
            arm,
            lag,
            *traces.mean_correlation(traces.lagged(traces.updates_of(results.traces, arm), "tau", "reward", lag)),
        )
        for arm in present
        for lag in lags
    ]
    data = pd.DataFrame(rows, columns=names)
    with plt.rc_context(PLAIN):
        figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3.6), layout="constrained")
        for i, arm in enumerate(present):
            points = line(arm) | {"linestyle": ""}
            updates = traces.probed(results.traces, arm)
            left.plot(updates["tau"], updates["reward"], markersize=2.8, alpha=0.45, **points)
            of_arm = data[data["arm"] == arm]
            spread = of_arm["lag"] + 0.09 * (i - (len(present) - 1) / 2)
            bars = np.array([of_arm["mean"] - of_arm["low"], of_arm["high"] - of_arm["mean"]])
            right.errorbar(
                spread, of_arm["mean"], yerr=np.nan_to_num(bars), markersize=4.5, capsize=2, elinewidth=1.1,
                label=ARMS[arm].title, **points,
            )  # fmt: skip
        left.axvline(results.meta["params"]["tau_base"], color="0.45", linestyle="--", linewidth=1)
        left.set(xlabel="τ", ylabel="reward of the update", title="An update a point, all runs")
        right.axhline(0, color="0.45", linewidth=1)
        right.set(xticks=list(lags), ylim=(-1, 1), xlabel="lag: reward so many updates after τ")
        right.set(ylabel="correlation of changes", title="Mean over runs, 95 % interval")
        for ax in (left, right):
            ax.grid(color="0.93")
            ax.set_axisbelow(True)
        figure.legend(*right.get_legend_handles_labels(), loc="outside lower center", ncols=len(present))
        figure.suptitle(f"Temperature and reward: {about_runs(results, averaged=False)}")
    return figure, data


def about_runs(results: Results, averaged: bool = True) -> str:
    """Scale, seeds, starts and blocks, for the title of a figure, such as "micro scale, 6 seeds on 6 starts"."""
    trained = results.traces.drop_duplicates(traces.RUN)
    seeds, starts = trained["seed"].nunique(), trained["start"].nunique()
    profile = results.meta["profile"]
    scale = {"tiny": "micro scale"}.get(profile, f"profile {profile}")
    found = f"{scale}, {seeds} seed{'s' * (seeds != 1)} on {starts} start{'s' * (starts != 1)}"
    size = block_size(results) if averaged else 1
    return found + (f", means over {size} updates" if size > 1 else "")


def common(updates: pd.DataFrame) -> pd.DataFrame:
    """The updates that all runs of their arm reached."""
    last = updates.groupby(["arm", *traces.RUN])["update"].max().groupby("arm").min()
    return updates[updates["update"] <= updates["arm"].map(last)]


def blocks(updates: pd.DataFrame, columns: list[str]) -> pd.DataFrame:
    """Each run's means over blocks of consecutive updates, of equal size within an arm, MOST_POINTS at most.

    Returns:
        A row a run and block: arm, seed, start, update (the block's last one) and the columns.
    """
    size = np.ceil(updates.groupby("arm")["update"].transform("max") / MOST_POINTS)
    block = ((updates["update"] - 1) // size).rename("block")
    grouped = updates.groupby(["arm", *traces.RUN, block])
    return grouped[columns].mean().assign(update=grouped["update"].max()).reset_index()


def block_size(results: Results) -> int:
    """How many updates the largest block of a figure holds."""
    updates = results.traces[results.traces["update"] > 0]
    return int(np.ceil(common(updates)["update"].max() / MOST_POINTS))


def courses(results: Results, columns: list[str]) -> pd.DataFrame:
    """Median, lowest and highest value over the runs of each arm, update by update.

    Returns:
        A row an arm and update: arm, update, progress (mean), and of each column its median under its own name, and
        the lowest and highest value as `<column>_low` and `<column>_high`.
    """
    updates = results.traces[results.traces["update"] > 0]
    if updates.empty:
        return pd.DataFrame(columns=[*POINT, *columns])
    grouped = blocks(common(updates), ["progress", *columns]).groupby(["arm", "update"])
    parts = [grouped["progress"].mean(), grouped[columns].median()]
    parts += [grouped[columns].min().add_suffix("_low"), grouped[columns].max().add_suffix("_high")]
    return pd.concat(parts, axis=1).reset_index()


def _course(ax, data: pd.DataFrame, arm: str, column: str, band: bool = True, marker: str | None = "", **style) -> None:
    ax.plot(data["progress"], data[column], **line(arm, marker) | {"linewidth": 1.6} | style)
    if band:
        ends = (data[f"{column}_low"].astype(float), data[f"{column}_high"].astype(float))
        ax.fill_between(data["progress"], *ends, color=LOOKS[arm].color, alpha=0.1, linewidth=0)


def _finish(figure, axes, arms: list[str]) -> None:
    for ax in axes.flat:
        ax.grid(color="0.93")
        ax.set_axisbelow(True)
        ax.xaxis.set_major_formatter(PercentFormatter(1))
    for ax in axes[-1]:
        ax.set_xlabel("consumed share of the horizon")
    handles = [plt.Line2D([], [], markersize=4, label=ARMS[arm].title, **line(arm)) for arm in arms]
    figure.legend(handles=handles, loc="outside lower center", ncols=len(arms), handlelength=3.5)


def _blank() -> Figure:
    figure, ax = plt.subplots(figsize=(9, 0.8))
    ax.axis("off")
    ax.text(0.5, 0.5, "nothing to draw", ha="center", va="center", color="0.4")
    return figure
