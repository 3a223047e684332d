"""Tables of the recorded experiments whose reward is not exact match alone, or whose test is not the trained task.

A row is an arm; a cell the mean over its runs, ± the 95 % t-interval. Supervised starts, and runs whose scores are all
equal, have the mean alone. Where a curve's highest point stands, its last one stands beside it: the highest of several
noisy points is too high.
"""

import math

import pandas as pd

from agpo_core.experiments.comparison import t_interval
from agpo_core.experiments.grid import ARMS, arms_of
from agpo_core.experiments.records import Results
from agpo_core.tasks.preferences import to_gold

KEY = ["arm", "seed", "start"]
# The 2 x 2 of R++ Table 1: (normaliser, placement of the KL) of each arm
SQUARE = {
    "grpo": ("local", "k3 in the loss"),
    "grpo_k1_reward": ("local", "k1 in the reward"),
    "reinforce_pp_k_k3_loss": ("global", "k3 in the loss"),
    "reinforce_pp_k": ("global", "k1 in the reward"),
}


def rlhf(record: Results) -> pd.DataFrame:
    """Training on a learned reward: what it says, what the hidden gold reward says, and how far the policy went.

    At the end, sampled at τ_base on test; and the gold reward of the same kind of samples on dev, along training.
    """
    values = _learned(record)
    for title, point in _curve(record, "dev_gold").items():
        values[f"gold on dev, {title}"] = to_gold(point).reindex(values.index)
    arms = [arm for arm in ("start", *SQUARE) if arm in values.index.get_level_values("arm")]
    table = _table(values, arms)
    for place, factor in enumerate(("normaliser", "KL")):
        table.insert(place, factor, [SQUARE[arm][place] if arm in SQUARE else "" for arm in arms])
    return table


def main_effects(record: Results) -> pd.DataFrame:
    """What each factor of the 2 x 2 does, averaged over the other: differences paired by seed."""
    values = _learned(record)
    by_seed = {arm: values.xs(arm, level="arm").droplevel("start") for arm in SQUARE}
    rows = {}
    for name, of, ours, theirs in (
        ("k1 in the reward − k3 in the loss", 1, "k1 in the reward", "k3 in the loss"),
        ("global − local", 0, "global", "local"),
    ):
        mean = {
            level: sum(by_seed[arm] for arm, levels in SQUARE.items() if levels[of] == level) / 2
            for level in (ours, theirs)
        }
        differences = mean[ours] - mean[theirs]
        rows[name] = {column: _cell(differences[column], "+") for column in differences}
    return pd.DataFrame.from_dict(rows, orient="index")


def _learned(record: Results) -> pd.DataFrame:
    runs = record.runs.drop_duplicates(KEY).set_index(KEY)
    return pd.DataFrame(
        {
            "model's score": runs["sampled_score"],
            "gold": to_gold(runs["sampled_gold"]),
            "KL, nats a sequence": runs["sampled_kl"],
            "length": runs["sampled_length"],
        }
    )


def _curve(record: Results, column: str) -> dict[str, pd.Series]:
    """Of each run the highest and the last point of a curve."""
    points = record.traces.dropna(subset=[column]).sort_values("update").groupby(KEY)[column]
    return {"highest": points.max(), "at the end": points.last()}


def few_problems(record: Results) -> pd.DataFrame:
    """Training on few problems: right answers on them and on others, in percent, at the end (R++ Table 2)."""
    runs = record.runs.drop_duplicates(KEY).set_index(KEY)
    titles = {
        "train_pass_1": "trained on: pass@1",
        "train_pass_16": "trained on: pass@16",
        "pass_1": "others: pass@1",
        "pass_16": "others: pass@16",
        "score": "others: greedy",
    }
    values = 100 * runs[list(titles)].rename(columns=titles)
    for title, point in _curve(record, "dev").items():
        values[f"dev, greedy, {title}"] = 100 * point.reindex(values.index)
    return _table(values, arms_of(record.runs), digits=1)


def by_task(record: Results) -> pd.DataFrame:
    """Greedy test score of each task, in percent (R++ Fig. 4: a number of people is a task)."""
    runs = record.runs
    values = 100 * runs.pivot_table(index=KEY, columns="task", values="score")[list(dict.fromkeys(runs["task"]))]
    return _table(values, arms_of(runs), digits=1)


def tool_use(record: Results, kind: str, updates: tuple[int, ...] = (6, 10, 20)) -> pd.DataFrame:
    """Greedy accuracy along training and on test, in percent, and how the policy used its tool in the last update.

    Args:
        record: of a task with a tool.
        kind: what the names of the starts begin with.
        updates: after how many the accuracy on dev is shown.
    """
    runs = record.runs[record.runs["start"].str.fullmatch(kind + r"-\d+")].set_index(KEY)
    traces = record.traces.set_index(KEY)
    values = pd.DataFrame(index=runs.index)
    points = traces.dropna(subset=["dev"])
    for update in updates:
        values[f"dev after {update} updates"] = 100 * points[points["update"] == update]["dev"].reindex(values.index)
    values["test"] = 100 * runs["score"]
    last = traces.dropna(subset=["tool_calls"]).groupby(KEY).last()
    for column, title in (("tool_calls", "calls an answer"), ("tool_failures", "calls that failed, %")):
        values[title] = last[column].reindex(values.index) * (100 if column == "tool_failures" else 1)
    return _table(values, arms_of(runs.reset_index()), digits=1)


def _table(values: pd.DataFrame, arms: list[str], digits: int = 2) -> pd.DataFrame:
    rows = {}
    for arm in arms:
        of_arm = values.xs(arm, level="arm")
        cells = {column: _cell(of_arm[column].dropna(), digits=digits) for column in values}
        if arm == "start":
            cells = {column: cell.split(" ± ")[0] for column, cell in cells.items()}
        rows[ARMS[arm].title] = cells
    return pd.DataFrame.from_dict(rows, orient="index")


def _cell(values: pd.Series, sign: str = "", digits: int = 2) -> str:
    interval = t_interval(values)
    if not interval.n:
        return ""
    spread = "" if math.isnan(interval.half) else f" ± {interval.half:.{digits}f}"
    return f"{interval.mean:{sign}.{digits}f}{spread}"
