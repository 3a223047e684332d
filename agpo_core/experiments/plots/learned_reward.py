"""Figures of runs on a learned reward: differences from GRPO, gold against KL, and reward and KL along training."""

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from matplotlib.ticker import PercentFormatter

from agpo_core.comparison import t_interval
from agpo_core.experiments import learned_reward, traces
from agpo_core.experiments.grid import ARMS, arms_of
from agpo_core.experiments.learned_reward import GOLD, KL, LENGTH, SCORE
from agpo_core.experiments.plots.runs import known
from agpo_core.experiments.plots.style import LOOKS, PLAIN, line, mark
from agpo_core.experiments.records import Results

TITLES = {GOLD: "Gold", SCORE: "Reward model's score", LENGTH: "Length", KL: "KL to the start"}
UNITS = {GOLD: "points", SCORE: "score", LENGTH: "tokens", KL: "nats a sequence"}
GAPS = ["arm", "measure", "mean", "half", "n"]
BLOCK = 4  # updates that a point of the training reward averages


def reward_gaps(results: Results, equal_kl: bool = False) -> tuple[Figure, pd.DataFrame]:
    """Each arm's paired differences from GRPO; a panel and an axis for each measure.

    Small points are pairs of runs, markers their mean, bars the 95 % t-interval.

    Args:
        equal_kl: on dev, where both runs of a pair first reach a KL that both reach, instead of on test at the end.
    Returns:
        The figure; a row an arm and measure: mean, half, n.
    """
    measures = [GOLD, SCORE, LENGTH] if equal_kl else [GOLD, SCORE, LENGTH, KL]
    if equal_kl:
        gaps = learned_reward.equal_kl_gaps(results)
    else:
        values = learned_reward.outcomes(results)
        arms = [arm for arm in arms_of(results.runs) if arm not in ("start", "grpo")]
        gaps = {arm: pd.DataFrame({m: learned_reward.gap(values, m, arm) for m in measures}) for arm in arms}
    gaps = {arm: of for arm, of in gaps.items() if len(of)}
    rows = [(arm, m, *t_interval(of[m].dropna())[:3]) for arm, of in gaps.items() for m in measures]
    data = pd.DataFrame(rows, columns=GAPS)
    if data.empty:
        return _blank(), data
    with plt.rc_context(PLAIN):
        size = {"figsize": (9.5, 1.5 + 0.42 * len(gaps)), "layout": "constrained"}
        figure, panels = plt.subplots(1, len(measures), sharey=True, **size)
        for ax, measure in zip(panels, measures, strict=True):
            for y, (arm, of) in enumerate(gaps.items()):
                spread = y + 0.27 * np.linspace(-1, 1, len(of) + 2)[1:-1]
                ax.scatter(of[measure].sort_values(), spread, s=8, color=LOOKS[arm].color, alpha=0.45, linewidth=0)
                row = data[(data["arm"] == arm) & (data["measure"] == measure)].iloc[0]
                ax.errorbar(row["mean"], y, xerr=known(row["half"]), **mark(arm, markersize=6.5))
            ax.axvline(0, color="0.45", linewidth=1)
            ax.set(title=TITLES[measure], xlabel=UNITS[measure])
            ax.locator_params(axis="x", nbins=5)
            ax.grid(axis="x", color="0.92")
            ax.set_axisbelow(True)
        panels[0].set(yticks=range(len(gaps)), yticklabels=[ARMS[arm].title for arm in gaps])
        panels[0].set_ylim(len(gaps) - 0.5, -0.5)
        where = "at equal KL, on dev" if equal_kl else "at the end of training, on test"
        figure.suptitle(f"Difference from GRPO {where}: {results.title}")
    return figure, data


def reward_against_kl(records: dict[str, Results], measures=(GOLD, SCORE)) -> tuple[Figure, pd.DataFrame]:
    """How far gold and score are above the start, over the KL to it; a column a record, a row a measure.

    A point is an evaluation, means over runs of both coordinates; the bar at the end is the 95 % t-interval.

    Args:
        records: {title of the column: results}.
    Returns:
        The figure; a row a record, arm and evaluation: kl, and of each measure its mean gain and `<measure>_half`.
    """
    frames = [_gains(results, measures).assign(record=title) for title, results in records.items()]
    frames = [frame for frame in frames if len(frame)]
    if not frames:
        return _blank(), pd.DataFrame(columns=["record", "arm", "evaluation", "kl", *measures])
    data = pd.concat(frames, ignore_index=True)
    shown = list(data["record"].unique())
    with plt.rc_context(PLAIN):
        size = {"figsize": (9, 0.9 + 2.7 * len(measures)), "layout": "constrained"}
        figure, grid = plt.subplots(len(measures), len(shown), sharey="row", sharex="col", squeeze=False, **size)
        for column, title in enumerate(shown):
            for row, measure in enumerate(measures):
                ax = grid[row, column]
                for arm in arms_of(data[data["record"] == title]):
                    of = data[(data["record"] == title) & (data["arm"] == arm)]
                    ax.plot(of["kl"], of[measure], markersize=3.5, linewidth=1.4, **line(arm))
                    last, color = of.iloc[-1], LOOKS[arm].color
                    end = {"yerr": known(last[f"{measure}_half"]), "fmt": "none", "capsize": 2.5, "elinewidth": 1}
                    ax.errorbar(last["kl"], last[measure], ecolor=color, **end)
                ax.axhline(0, color="0.45", linewidth=1)
                ax.grid(color="0.93")
                ax.set_axisbelow(True)
                if row == 0:
                    ax.set_title(f"{title}: {records[title].title}", fontsize=9.5)
                if row == len(measures) - 1:
                    ax.set_xlabel("KL to the start (nats a sequence)")
            for row, measure in enumerate(measures):
                grid[row, 0].set_ylabel(f"{TITLES[measure]}\nabove the start ({UNITS[measure]})")
        handles = [plt.Line2D([], [], markersize=4, label=ARMS[arm].title, **line(arm)) for arm in arms_of(data)]
        figure.legend(handles=handles, loc="outside lower center", ncols=3, handlelength=3.5)
        figure.suptitle("What is gained over the distance from the start, samples on dev, mean over runs")
    return figure, data


def _gains(results: Results, measures) -> pd.DataFrame:
    """Mean KL and gains above the start of each arm and evaluation."""
    points = learned_reward.curves(results)
    runs = points.groupby(learned_reward.KEY)
    rows = []
    points = points.assign(**{name: points[name] - runs[name].transform("first") for name in measures})
    for (arm, evaluation), of in points.groupby(["arm", "evaluation"]):
        row = {"arm": arm, "evaluation": evaluation, "kl": of[KL].mean()}
        for name in measures:
            found = t_interval(of.set_index(["seed", "start"])[name])
            row |= {name: found.mean, f"{name}_half": found.half}
        rows.append(row)
    return pd.DataFrame(rows)


def reward_dynamics(results: Results, arms) -> tuple[Figure, pd.DataFrame]:
    """Reward and KL along training: above, means over runs; below, paired differences from GRPO with 95 % bands.

    The reward is the reward model's, of the training rollouts, averaged over blocks of updates; the KL is that of
    samples on dev. Starts differ by more than methods do, so that the bands are drawn below alone.

    Returns:
        The figure; a row a quantity ("reward" or "kl"), arm and update: progress, mean, gap, half, n.
    """
    present = [arm for arm in arms if arm in set(results.traces["arm"])]
    columns = ["quantity", "arm", "update", "progress", "mean", "gap", "half", "n"]
    if not present:
        return _blank(), pd.DataFrame(columns=columns)
    kept = results.traces[results.traces["arm"].isin(present)]
    updates = kept[kept["update"] > 0].assign(value=lambda t: t["reward"])
    block = (updates["update"] - 1) // BLOCK
    grouped = updates.groupby([*learned_reward.KEY, block.rename("block")])
    reward = grouped[["value", "progress"]].mean().assign(update=grouped["update"].max()).reset_index()
    kl = learned_reward.curves(results)
    kl = kl[kl["arm"].isin(present)].rename(columns={KL: "value"})
    data = pd.concat([_over_time(reward, "reward"), _over_time(kl, "kl")], ignore_index=True)[columns]
    with plt.rc_context(PLAIN):
        figure, axes = plt.subplots(2, 2, figsize=(9, 5.4), sharex=True, layout="constrained")
        for column, quantity in enumerate(("reward", "kl")):
            dots = {"markersize": 3.5} if quantity == "kl" else {"marker": ""}
            for arm in present:
                of = data[(data["quantity"] == quantity) & (data["arm"] == arm)]
                axes[0, column].plot(of["progress"], of["mean"], linewidth=1.6, **line(arm) | dots)
                if arm != "grpo" and of["gap"].notna().any():
                    axes[1, column].plot(of["progress"], of["gap"], linewidth=1.6, **line(arm) | dots)
                    ends = (of["gap"] - of["half"], of["gap"] + of["half"])
                    axes[1, column].fill_between(of["progress"], *ends, color=LOOKS[arm].color, alpha=0.1, linewidth=0)
            axes[1, column].axhline(0, color=LOOKS["grpo"].color, linewidth=1.2)
            axes[1, column].set_xlabel("consumed share of the horizon")
        axes[0, 0].set(title="Reward of the training rollouts", ylabel="reward model's score")
        axes[0, 1].set(title="KL to the start, samples on dev", ylabel="nats a sequence")
        axes[1, 0].set(title="Reward, difference from GRPO; 95 % band", ylabel="reward model's score")
        axes[1, 1].set(title="KL, difference from GRPO; 95 % band", ylabel="nats a sequence")
        for ax in axes.flat:
            ax.grid(color="0.93")
            ax.set_axisbelow(True)
            ax.xaxis.set_major_formatter(PercentFormatter(1))
        handles = [plt.Line2D([], [], markersize=4, label=ARMS[arm].title, **line(arm)) for arm in present]
        figure.legend(handles=handles, loc="outside lower center", ncols=len(present), handlelength=3.5)
        figure.suptitle(f"Training on a learned reward: {traces_title(results)}")
    return figure, data


def _over_time(points: pd.DataFrame, quantity: str) -> pd.DataFrame:
    """Mean value of each arm and update, and the paired difference from GRPO with its half-width."""
    rows, index = [], ["seed", "start"]
    for update, of in points.groupby("update"):
        by_arm = {arm: run.set_index(index)["value"] for arm, run in of.groupby("arm")}
        for arm, values in by_arm.items():
            gap = (values - by_arm["grpo"]).dropna() if "grpo" in by_arm and arm != "grpo" else values.iloc[:0]
            found = t_interval(gap)
            progress = of.loc[of["arm"] == arm, "progress"].mean()
            rows.append((quantity, arm, update, progress, values.mean(), found.mean, found.half, len(values)))
    return pd.DataFrame(rows, columns=["quantity", "arm", "update", "progress", "mean", "gap", "half", "n"])


def traces_title(results: Results) -> str:
    """Scale, seeds and starts."""
    return results.title if len(results.runs) else f"{len(results.traces.drop_duplicates(traces.RUN))} runs"


def _blank() -> Figure:
    figure, ax = plt.subplots(figsize=(9, 0.8))
    ax.axis("off")
    ax.text(0.5, 0.5, "nothing to draw", ha="center", va="center", color="0.4")
    return figure
