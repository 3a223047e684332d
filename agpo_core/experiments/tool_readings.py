"""What runs with a tool say of R++ Table 4 and of §5.1: scores, learning curves, calls, and groups that stay silent.

A group is *silent* if its rewards are all equal, so that subtracting its mean leaves nothing. At the beginning of these
runs that is mostly a group that never calls the tool and is wrong eight times.
"""

from __future__ import annotations

import math

import pandas as pd
import torch

from agpo_core.advantages import global_advantages, group_advantages, reinforce_pp_baseline_advantages
from agpo_core.comparison import Interval, about, paired, t_interval
from agpo_core.experiments.arm_tables import KEY
from agpo_core.experiments.grid import ARMS, arms_of
from agpo_core.experiments.predictions import answered
from agpo_core.experiments.records import Results
from agpo_core.experiments.traces import Part
from agpo_core.experiments.verdicts import fill

HALF = 0.5  # of the problems on dev
MEASURES = {  # column of `per_run`: its heading
    "accuracy": "test, %",
    "area": "area, %",
    "waited": "updates to 50 %",
    "calls": "calls an answer",
    "failed": "failed calls, %",
}
PAIRS = (("reinforce_pp_baseline", "grpo"), ("grpo", "ppo"), ("reinforce_pp_baseline", "ppo"), ("reinforce_pp", "grpo"))
GROUPED = ("grpo", "reinforce_pp_baseline")  # arms that subtract a group's mean


# -- one number a run ---------------------------------------------------------------------------


def per_run(results: Results) -> pd.DataFrame:
    """What a run reached and how it got there; a row a trained run, indexed by arm, seed and start.

    accuracy  greedy, on test, in %
    area      the mean of the accuracy on dev over the run, in %: the area under its learning curve (trapezoids)
    waited    updates until the accuracy on dev first is 50 % or more; the run's length if it never is
    reached   whether it ever is
    calls     calls of the tool an answer, among the rollouts of the last update
    failed    share of these calls that gave an error, in %
    """
    runs = results.runs[results.runs["arm"] != "start"].set_index(KEY)
    rows = {key: _of_curve(points) for key, points in results.traces.dropna(subset=["dev"]).groupby(KEY)}
    found = pd.DataFrame.from_dict(rows, orient="index", columns=["area", "waited", "reached"])
    found.index = pd.MultiIndex.from_tuples(found.index, names=KEY)
    found = found.reindex(runs.index)
    found.insert(0, "accuracy", 100 * runs["score"])
    last = results.traces.dropna(subset=["tool_calls"]).sort_values("update").groupby(KEY).last()
    found["calls"] = last["tool_calls"].reindex(runs.index)
    found["failed"] = 100 * last["tool_failures"].reindex(runs.index)
    return found


def _of_curve(points: pd.DataFrame) -> tuple[float, float, bool]:
    points = points.sort_values("update")
    x, y = points["update"].to_numpy(float), points["dev"].to_numpy(float)
    area = 100 * float(((y[1:] + y[:-1]) / 2 * (x[1:] - x[:-1])).sum() / (x[-1] - x[0])) if len(x) > 1 else math.nan
    above = x[y >= HALF]
    return area, float(above[0] if len(above) else x[-1]), bool(len(above))


def gaps(values: pd.DataFrame, arm: str, baseline: str) -> pd.DataFrame:
    """Differences of `per_run` between two arms, of runs with equal seed and start."""
    columns = list(MEASURES)
    return (values.xs(arm, level="arm")[columns] - values.xs(baseline, level="arm")[columns]).dropna(how="all")


def table(results: Results) -> pd.DataFrame:
    """A row an arm: `per_run`, mean ± t-interval over runs, and how many runs reached 50 % on dev."""
    values, rows, shown = per_run(results), {}, []
    for arm in arms_of(results.runs):
        if arm == "start":
            starts = 100 * results.runs.loc[results.runs["arm"] == arm, "score"]
            rows[ARMS[arm].title] = {MEASURES["accuracy"]: f"{starts.mean():.1f}"}
            continue
        of_arm = values.xs(arm, level="arm")
        cells = {column: t_interval(of_arm[column].dropna()) for column in MEASURES}
        shown += cells.values()
        digits = {"calls": 2}
        rows[ARMS[arm].title] = {
            heading: cells[column].text(digits=digits.get(column, 1)) for column, heading in MEASURES.items()
        } | {"runs that reach 50 %": f"{of_arm['reached'].sum():.0f} of {len(of_arm)}"}
    frame = pd.DataFrame.from_dict(rows, orient="index").fillna("")
    return frame.rename_axis(columns=about(shown) or None)


def parts(results: Results) -> list[Part]:
    """How fast the arms of Table 4 learn, in pairs: the area and the updates to 50 %; no paper claims it."""
    values, arms = per_run(results), set(results.runs["arm"])
    asks = {"area": ("area under the learning curve, points", 1), "waited": ("updates to 50 %", 1)}
    return [
        Part(f"{ARMS[arm].title} less {ARMS[baseline].title}: {words}.", gaps(values, arm, baseline)[column].dropna(),
             0, digits)
        for arm, baseline in PAIRS
        if {arm, baseline} <= arms
        for column, (words, digits) in asks.items()
    ]  # fmt: skip


# -- groups that never call ---------------------------------------------------------------------


def of_methods(rewards_P_G: torch.Tensor) -> dict[str, torch.Tensor]:
    """The advantages of a batch of groups under three estimators; an answer's tokens all get the same.

    GRPO subtracts a group's mean and divides by its deviation. REINFORCE++-baseline subtracts the group's mean and
    divides by the batch's deviation. REINFORCE++ subtracts the batch's mean and divides by the batch's deviation.
    """
    return {
        "grpo": group_advantages(rewards_P_G),
        "reinforce_pp_baseline": reinforce_pp_baseline_advantages(rewards_P_G),
        "reinforce_pp_k": global_advantages(rewards_P_G),
    }


def silent_batch(silent: int, live: int, right: int, group: int) -> torch.Tensor:
    """Rewards of a batch, a row a group: first `live` groups with some right, then `silent` ones that are all wrong.

    Args:
        right: rewards of 1 in each live group; 1 to group - 1.
    """
    rewards_P_G = torch.zeros(silent + live, group, dtype=torch.float64)
    rewards_P_G[:live, :right] = 1.0
    return rewards_P_G


def by_silence(groups: int, right: int, group: int) -> pd.DataFrame:
    """Advantages as the share of silent groups rises; exact.

    Args:
        groups: in the batch. All but one may be silent.
        right: rewards of 1 in each live group.
    Returns:
        A row an estimator and a number of silent groups: arm, silent (their share), live (the advantage of a right
        answer in a live group), void (that of an answer in a silent group), law (what the baseline's `live` is by the
        law: its value without silent groups, over the root of the share of live ones).
    """
    rows = []
    for silent in range(groups):
        for arm, A_P_G in of_methods(silent_batch(silent, groups - silent, right, group)).items():
            void = A_P_G[-1, 0].item() if silent else math.nan
            rows.append((arm, silent / groups, A_P_G[0, 0].item(), void))
    data = pd.DataFrame(rows, columns=["arm", "silent", "live", "void"])
    first = data.loc[data["arm"] == "reinforce_pp_baseline", "live"].iloc[0]
    return data.assign(law=first / (1 - data["silent"]) ** 0.5)


def silence(results: Results) -> pd.DataFrame:
    """The share of silent groups in each update of the arms with groups; a row an arm and update, means over runs.

    Returns:
        arm, update, silent, half, reward and calls (share of answers that call), each in [0, 1]; empty where the runs
        did not log it.
    """
    columns = ["arm", "update", "silent", "half", "reward", "calls"]
    traces = results.traces
    if "equal_groups" not in traces or "tool_share" not in traces:
        return pd.DataFrame(columns=columns)
    updates = traces[(traces["update"] > 0) & traces["arm"].isin(GROUPED)].dropna(subset=["equal_groups"])
    rows = []
    for (arm, update), of_one in updates.groupby(["arm", "update"]):
        found = t_interval(of_one.set_index("start")["equal_groups"])
        rows.append((arm, update, found.mean, found.half, of_one["reward"].mean(), of_one["tool_share"].mean()))
    return pd.DataFrame(rows, columns=columns)


def first_updates(results: Results) -> pd.DataFrame:
    """The first update of GRPO beside that of REINFORCE++-baseline, from the same start: a row a run.

    Returns:
        silent (share of silent groups, mean of the two), law (1 / sqrt(1 - silent)), ratio (of the gradient's norm
        before clipping, baseline over GRPO); rows whose groups were all silent are left out.
    """
    columns = ["silent", "law", "ratio"]
    traces = results.traces
    first = traces[traces["update"] == 1].set_index(KEY)
    if "equal_groups" not in traces or not set(GROUPED) <= set(first.index.get_level_values("arm")):
        return pd.DataFrame(columns=columns)
    one, other = (first.xs(arm, level="arm")[["equal_groups", "grad_norm"]] for arm in GROUPED)
    silent = (one["equal_groups"] + other["equal_groups"]) / 2
    found = pd.DataFrame(
        {"silent": silent, "law": (1 - silent) ** -0.5, "ratio": other["grad_norm"] / one["grad_norm"]}
    )
    return found[(found["silent"] < 1) & found.notna().all(axis=1)]


# -- predictions --------------------------------------------------------------------------------


def of_table4(results: Results) -> str:
    """The five predictions of rpp_table4_tool_use, answered."""
    return answered(
        (results, ("grpo",), lambda: how_it_learns(results)),
        (results, ("ppo", "grpo", "reinforce_pp_baseline"), lambda: who_is_ahead(results)),
        (results, ("reinforce_pp", "grpo"), lambda: one_rollout(results)),
        (results, GROUPED, lambda: how_silent(results)),
        (results, GROUPED, lambda: how_much_larger(results)),
    )


def how_it_learns(results: Results) -> str:
    """Where the runs of GRPO begin and end, and how far their starts are apart."""
    points = results.traces[results.traces["arm"] == "grpo"].dropna(subset=["dev"]).sort_values("update")
    ends = 100 * points.groupby(KEY)["dev"].last()
    values = per_run(results).xs("grpo", level="arm")
    begins = 100 * points.groupby(KEY)["dev"].first()
    return (
        f"GRPO's accuracy on dev goes from {begins.mean():.1f} % to {ends.mean():.1f} %, and the runs end between "
        f"{ends.min():.0f} and {ends.max():.0f} %. {values['reached'].sum():.0f} of {len(values)} runs reach 50 %. In "
        f"the last update an answer calls {values['calls'].mean():.2f} times."
    )


def who_is_ahead(results: Results) -> str:
    """The three pairs of the claim, in points."""
    pairs = PAIRS[:3]
    return f"On test, in points: {'; '.join(_pair(results, *pair) for pair in pairs)}."


def one_rollout(results: Results) -> str:
    """REINFORCE++ with one rollout a prompt, in score and in speed."""
    area = t_interval(gaps(per_run(results), "reinforce_pp", "grpo")["area"].dropna())
    return (
        f"On test, in points: {_pair(results, 'reinforce_pp', 'grpo')}. The area under its learning curve differs from "
        f"GRPO's by {area.text('+')} points ({_zero(area)})."
    )


def how_silent(results: Results) -> str:
    """The share of silent groups at the beginning, at its lowest and at the end."""
    found, words = silence(results), []
    for arm, of_arm in found.groupby("arm", sort=False):
        least = of_arm.loc[of_arm["silent"].idxmin()]
        words.append(
            f"{ARMS[arm].title} {of_arm['silent'].iloc[0]:.0%} in the first update, {least['silent']:.0%} at the "
            f"least (update {least['update']:.0f}) and {of_arm['silent'].iloc[-1]:.0%} in the last, when "
            f"{of_arm['reward'].iloc[-1]:.0%} of the rewards are 1"
        )
    return f"Silent groups, means over runs: {'; '.join(words)}." if words else "These runs did not log it."


def how_much_larger(results: Results) -> str:
    """What silent groups do to the gradient of REINFORCE++-baseline, beside GRPO's."""
    found = first_updates(results)
    if found.empty:
        return "These runs did not log it."
    law, ratio = (t_interval(found[name]) for name in ("law", "ratio"))
    return (
        f"In the first update, with {found['silent'].mean():.0%} of the groups silent, 1 / √(1 − s) is "
        f"{law.mean:.2f} on average over {len(found)} starts. The norm of the gradient of REINFORCE++-baseline is "
        f"{ratio.text(digits=2)} times GRPO's."
    )


def reading(results: Results) -> str:
    """How far the ten starts lie apart beside the differences between the arms, in one sentence."""
    values = per_run(results)
    wide = values["accuracy"].groupby(level=["seed", "start"]).mean()
    means = values["accuracy"].groupby(level="arm").mean()
    return fill(
        f"The arms' means lie within {means.max() - means.min():.1f} points of each other, and the means of the "
        f"{len(wide)} starts between {wide.min():.1f} and {wide.max():.1f} %.",
        bullet="- ",
    )


def _pair(results: Results, arm: str, baseline: str) -> str:
    interval = t_interval(paired(results.runs, arm, baseline))
    return f"{ARMS[arm].title} less {ARMS[baseline].title} {interval.text('+')} ({_zero(interval)})"


def _zero(interval: Interval) -> str:
    if math.isnan(interval.half):
        return "no interval"
    return f"the interval {'excludes' if interval.low > 0 or interval.high < 0 else 'includes'} zero"
