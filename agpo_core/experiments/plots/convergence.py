"""Figures of Theorem 3.1: the rate, the constant, and where the clip binds. One panel per problem.

An arm keeps its colour, marker and line in all figures. Error bars are 95 % t-intervals over seeds.
"""

import matplotlib.pyplot as plt
import pandas as pd
from matplotlib.figure import Figure

from agpo_core.experiments.plots.style import BLUE, GREY, PLAIN, RED
from agpo_core.theory import convergence

STYLES = {  # arm -> colour, line, marker, filled; the fixed radius is GRPO's, the adaptive one AGPO's
    "one_step": (GREY, "-", "s", True),
    "fixed": (BLUE, "-", "o", True),
    "adaptive": (RED, "-", "D", True),
    "fixed_cosine": (BLUE, ":", "o", False),
    "adaptive_cosine": (RED, ":", "D", False),
    "fixed_cosine_low": (BLUE, "--", "v", False),
}
THEOREM = ("fixed", "adaptive")


def convergence_rates(runs: pd.DataFrame, about: str) -> tuple[Figure, pd.DataFrame]:
    """Mean squared gradient against T, both axes logarithmic, with a line C / sqrt(T).

    C is the smallest that bounds the arms under the theorem's schedule at all horizons drawn.

    Returns:
        The figure; one row per problem, arm and horizon: mean, half, and bound (the value of the line).
    """
    drawn = _of(runs, [arm for arm in STYLES if arm != "one_step"])
    data = convergence.over_seeds(drawn, "gradient").reset_index()
    largest = convergence.over_seeds(_of(runs, THEOREM), convergence.scaled)["mean"].groupby("problem").max()
    data["bound"] = data["problem"].map(largest) / data["horizon"] ** 0.5
    with plt.rc_context(PLAIN):
        figure, panels = _panels(data, "mean of $|∇L|^2$ over the updates")
        for axes, (_, part) in zip(panels, data.groupby("problem", sort=False), strict=True):
            line = part.drop_duplicates("horizon")
            axes.plot(
                line["horizon"], line["bound"], color="0.25", linestyle="--", linewidth=1.2,
                label=r"$C/\sqrt{T}$, smallest $C$ that bounds the filled arms",
            )  # fmt: skip
            _arms(axes, part)
            axes.set_yscale("log")
        _finish(figure, panels, f"Theorem 3.1, the rate: {about}")
    return figure, data


def convergence_constants(
    runs: pd.DataFrame, eta_0: float, inner_steps: int, about: str
) -> tuple[Figure, pd.DataFrame]:
    """sqrt(T) times the mean squared gradient: flat where Eq. 15 holds with one C and is tight.

    A dashed line is what the telescoping sum gives alone, (F(θ_{T+1}) - F(θ_1)) / (steps η_0). The black line is the
    computed C for one inner step.

    Returns:
        The figure; one row per problem, arm and horizon: mean, half, telescoped, and bound (the computed C; NaN except
        for one inner step).
    """
    drawn = _of(runs, ["one_step", *THEOREM])
    steps = drawn["arm"].map({arm: 1 if convergence.ARMS[arm].one_step else inner_steps for arm in STYLES})
    data = convergence.over_seeds(drawn, convergence.scaled)
    data["telescoped"] = convergence.over_seeds(drawn, lambda rows: rows["gain"] / (steps * eta_0))["mean"]
    data = data.reset_index()
    bounds = {name: convergence.constants(convergence.PROBLEMS[name]).bound(eta_0) for name in data["problem"].unique()}
    data["bound"] = data["problem"].map(bounds).where(data["arm"] == "one_step")
    with plt.rc_context(PLAIN):
        figure, panels = _panels(data, r"$\sqrt{T}\ \times$ mean of $|∇L|^2$")
        for axes, (_, part) in zip(panels, data.groupby("problem", sort=False), strict=True):
            one = part[part["arm"] == "one_step"]
            axes.plot(one["horizon"], one["bound"], color="0.1", linewidth=1.2, label="computed C, one inner step")
            _arms(axes, part)
            for arm, of_arm in part.groupby("arm", sort=False):
                axes.plot(of_arm["horizon"], of_arm["telescoped"], color=STYLES[arm][0], linestyle="--", linewidth=1)
            axes.plot([], [], color="0.4", linestyle="--", linewidth=1, label="telescoping sum alone")
            axes.set_ylim(bottom=0)
        _finish(figure, panels, f"Theorem 3.1, the constant: {about}")
    return figure, data


def convergence_clipping(runs: pd.DataFrame, eta_0: float, inner_steps: int, about: str) -> tuple[Figure, pd.DataFrame]:
    """Share of sampled rollouts whose gradient the clip stops, against T.

    A vertical line marks the T from which on the clip of an arm cannot bind under the theorem's schedule, whether its
    radius is ε_base or ε_min.

    Returns:
        The figure; one row per problem, arm and horizon: mean, half, and inert (that T; NaN under cosine).
    """
    drawn = _of(runs, [arm for arm in STYLES if arm != "one_step"])
    data = convergence.over_seeds(drawn, "clipped").reset_index()
    smallest = {"fixed": convergence.ARMS["fixed"].controller.epsilon}
    smallest["adaptive"] = convergence.ARMS["adaptive"].controller.epsilon_min
    data["inert"] = [
        convergence.inert_horizon(convergence.PROBLEMS[problem], smallest[arm], eta_0, inner_steps)
        if arm in smallest else float("nan")
        for problem, arm in zip(data["problem"], data["arm"], strict=True)
    ]  # fmt: skip
    with plt.rc_context(PLAIN):
        figure, panels = _panels(data, "share of rollouts that the clip stops")
        for axes, (_, part) in zip(panels, data.groupby("problem", sort=False), strict=True):
            _arms(axes, part)
            for arm, of_arm in part.dropna().groupby("arm", sort=False):
                if of_arm["inert"].iloc[0] < 1.3 * data["horizon"].max():
                    axes.axvline(of_arm["inert"].iloc[0], color=STYLES[arm][0], linewidth=1, linestyle="-.")
            axes.plot(
                [], [], color="0.4", linestyle="-.", linewidth=1, label="theorem's schedule: no clip binds from here on"
            )
            axes.set_yscale("symlog", linthresh=1e-5, linscale=0.6)
            axes.set_ylim(-3e-6, 0.2)
            axes.set_yticks([0, 1e-5, 1e-4, 1e-3, 1e-2, 1e-1])
        _finish(figure, panels, f"Where the clip binds: {about}")
    return figure, data


def _of(runs, arms):
    return runs[runs["arm"].isin(arms)]


def _panels(data, label):
    problems = list(data["problem"].unique())
    figure, panels = plt.subplots(
        1, len(problems), figsize=(9, 4.1), sharex=True, sharey=True, squeeze=False, layout="constrained"
    )
    for axes, name in zip(panels[0], problems, strict=True):
        axes.set(title=f"{name}: {convergence.PROBLEMS[name].title}", xlabel="T, updates", xscale="log")
        axes.grid(color="0.93")
        axes.set_axisbelow(True)
    panels[0, 0].set_ylabel(label)
    return figure, panels[0]


def _arms(axes, part):
    for i, (arm, of_arm) in enumerate(part.groupby("arm", sort=False)):
        color, line, marker, filled = STYLES[arm]
        axes.errorbar(
            of_arm["horizon"], of_arm["mean"], yerr=of_arm["half"].fillna(0), color=color, linestyle=line,
            marker=marker, markersize=7 - 0.6 * i, markerfacecolor=color if filled else "white",
            linewidth=1.4, capsize=2, elinewidth=1, label=convergence.ARMS[arm].title, zorder=3 + i,
        )  # fmt: skip


def _finish(figure, panels, title):
    handles, labels = panels[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=3)
    figure.suptitle(title)
