"""Training on a few problems (R++ Table 2, Fig. 3): what runs know of them and of others, and after how many updates.

A run of such a grid has a score on the problems that it trains on, and one on others. Three kinds are recorded:

* at the end     pass@1 and pass@16 from sampled answers, on the problems trained on and on the test problems
* along training, at evaluations    greedy answers: `train` on the problems trained on, `dev` on others
* along training, at every update   the mean reward of the training rollouts, which are sampled answers to all problems
                                    trained on if an update has as many prompts: the policy before the update

A method that is less far along looks less overfitted than one that is farther along the same curve. So methods are also
compared at a *matched level*: where the score on the problems trained on has gone a share of the way from that of the
run's own start to 1. LEVELS are round shares; no result enters them. Runs with equal seed and start have the same start
and the same problems, and so the same level.
"""

import math
from collections.abc import Sequence

import pandas as pd

from agpo_core.comparison import t_interval
from agpo_core.experiments.grid import arms_of
from agpo_core.experiments.records import Results

KEY = ["arm", "seed", "start"]
LEVELS = (0.5, 0.8)  # shares of the way from a run's start to 1
TRAINED, ONCE, OFTEN, GAP = "trained on: pass@1", "others: pass@1", "others: pass@16", "gap of pass@1"
GREEDY, SAMPLED = "greedy", "sampled"  # which score along training is meant
POINTS = ["arm", "update", "mean", "half", "n"]


def ends(results: Results) -> pd.DataFrame:
    """The scores at the end of every run, in %: TRAINED, ONCE, OFTEN, and the GAP between the first two, in points."""
    runs = results.runs.drop_duplicates(KEY).set_index(KEY)
    names = {"train_pass_1": TRAINED, "pass_1": ONCE, "pass_16": OFTEN}
    values = 100 * runs.reindex(columns=list(names)).rename(columns=names).astype(float)
    return values.assign(**{GAP: values[TRAINED] - values[ONCE]})


def difference(values: pd.Series, arm: str, baseline: str) -> pd.Series:
    """One arm less another, paired by seed and start; pairs without both values are left out."""
    there = values.index.get_level_values("arm")
    ours, theirs = (values[there == name].droplevel("arm") for name in (arm, baseline))
    return (ours - theirs).dropna()


def evaluations(results: Results) -> pd.DataFrame:
    """The evaluations along training, in %: arm, seed, start, update, train, dev; those without both are left out."""
    traces = results.traces.reindex(columns=[*KEY, "update", "train", "dev"]).dropna()
    return traces.assign(**{name: 100 * traces[name].astype(float) for name in ("train", "dev")}).sort_values("update")


def rollouts(results: Results) -> pd.DataFrame:
    """The sampled score on the problems trained on, in %: arm, seed, start, update, reward.

    The rollouts of update t come from the policy after t - 1 updates; `update` is t - 1.
    """
    traces = results.traces.reindex(columns=[*KEY, "update", "reward"]).dropna().sort_values("update")
    return traces.assign(update=traces["update"] - 1, reward=100 * traces["reward"].astype(float))


def first_crossing(x: Sequence[float], y: Sequence[float], level: float) -> float:
    """Where a course of points, joined by straight lines, first reaches a level; NaN if it never does.

    x_i + (x_(i+1) - x_i) (level - y_i) / (y_(i+1) - y_i)  at the first i with y_(i+1) >= level;  x_0 if y_0 >= level

    Example:
        >>> first_crossing([0, 3, 6], [40, 70, 90], 80)  # half-way from 70 to 90
        4.5
    """
    if len(y) and y[0] >= level:
        return float(x[0])
    for (before, low), (after, high) in zip(zip(x, y), zip(x[1:], y[1:]), strict=False):
        if high >= level:
            return float(before + (after - before) * (level - low) / (high - low))
    return math.nan


def at_levels(results: Results, shares: Sequence[float] = LEVELS) -> pd.DataFrame:
    """When each run comes to each level, and its score on others there.

    Both by the greedy scores, straight between evaluations.

    Returns:
        A row a run and share: arm, seed, start, share, level (%), update (NaN: never reached), others (%), and `change`
        of others since the start (points).
    """
    rows = []
    for key, run in evaluations(results).groupby(KEY):
        x, known, others = (run[name].tolist() for name in ("update", "train", "dev"))
        for share in shares:
            level = known[0] + share * (100 - known[0])
            update = first_crossing(x, known, level)
            there = _between(x, others, update)
            rows.append((*key, share, level, update, there, there - others[0]))
    return pd.DataFrame(rows, columns=[*KEY, "share", "level", "update", "others", "change"])


def _between(x: list, y: list, at: float) -> float:
    for (before, low), (after, high) in zip(zip(x, y), zip(x[1:], y[1:]), strict=False):
        if before <= at <= after:
            return low + (high - low) * (at - before) / (after - before)
    return y[0] if len(x) == 1 and at == x[0] else math.nan


def updates_needed(results: Results, kind: str = GREEDY, shares: Sequence[float] = LEVELS) -> pd.DataFrame:
    """After how many updates each run first reaches each level: a row a run (indexed by KEY), a column a share.

    Args:
        kind: by the greedy scores at evaluations, or by the sampled ones of every update. A sampled score scatters, so
            that its first crossing comes early; the arms share that.
    Returns:
        NaN where a level is never reached: such a run is censored.
    """
    points, column = (evaluations(results), "train") if kind == GREEDY else (rollouts(results), "reward")
    rows = {}
    for key, run in points.groupby(KEY):
        x, y = run["update"].tolist(), run[column].tolist()
        rows[key] = [first_crossing(x, y, y[0] + share * (100 - y[0])) for share in shares]
    index = pd.MultiIndex.from_tuples(rows, names=KEY) if rows else pd.MultiIndex.from_arrays([[]] * 3, names=KEY)
    return pd.DataFrame(list(rows.values()), index, columns=list(shares), dtype=float)


def shares_of_the_way(results: Results) -> pd.DataFrame:
    """`evaluations` with `way`, how far the score on the problems trained on has gone from the start to 1, in %.

    And with `change`, the points that the score on others has gained since the start.
    """
    points = evaluations(results)
    first = points.groupby(KEY)[["train", "dev"]].transform("first")
    way = 100 * (points["train"] - first["train"]) / (100 - first["train"])
    return points.assign(way=way, change=points["dev"] - first["dev"])


def curve(points: pd.DataFrame, column: str) -> pd.DataFrame:
    """The mean of a column over the runs of each arm, update by update, with its t-interval: POINTS."""
    rows = []
    for arm in arms_of(points):
        for update, of_update in points[points["arm"] == arm].groupby("update"):
            rows.append((arm, update, *t_interval(of_update.set_index(["seed", "start"])[column])[:3]))
    return pd.DataFrame(rows, columns=POINTS)


def best_of_others(results: Results) -> pd.DataFrame:
    """Of each run (indexed by KEY): the highest score on others, the update of it, that at the start and at the end.

    The highest of several noisy scores is too high as an estimate of what the policy could do there.
    """
    rows = {}
    for key, run in evaluations(results).groupby(KEY):
        top = run["dev"].idxmax()
        rows[key] = (run["dev"].iloc[0], run.loc[top, "dev"], run.loc[top, "update"], run["dev"].iloc[-1])
    index = pd.MultiIndex.from_tuples(rows, names=KEY) if rows else pd.MultiIndex.from_arrays([[]] * 3, names=KEY)
    return pd.DataFrame(list(rows.values()), index, columns=["first", "highest", "update", "last"], dtype=float)


def at_update(results: Results, update: int) -> pd.Series:
    """The greedy score on the problems trained on at one evaluation, in %, indexed by KEY."""
    points = evaluations(results)
    return points[points["update"] == update].set_index(KEY)["train"]


def first_evaluation(results: Results) -> int:
    """The update of the first evaluation after the start; 0 where there is none."""
    updates = evaluations(results)["update"]
    return int(updates[updates > 0].min()) if (updates > 0).any() else 0
