"""Tables of the recorded experiments whose reward is not exact match alone, or whose test is not the trained task.

Each row is an arm, and each cell the mean over its runs, ± the 95 % t-interval. Supervised starts, and runs whose
scores are all equal, have the mean alone. The highest point of a curve is shown together with its last one, because the
highest of several noisy points is an overestimate.

Rows below the arms hold their paired differences from GRPO. A star marks a difference that is not zero after Holm's
correction over all differences of the table. The corner of a table says what its intervals go over
(`comparison.spread`).
"""

import pandas as pd

from agpo_core.comparison import LEVEL, Interval, about, holm, p_value, t_interval
from agpo_core.experiments import small_data, votes
from agpo_core.experiments.grid import ARMS, arms_of
from agpo_core.experiments.records import Results
from agpo_core.tasks.preferences import to_gold

KEY = ["arm", "seed", "start"]
PLACEMENTS = (("reinforce_pp_k", "reinforce_pp_k_k3_loss"), ("grpo_k1_reward", "grpo"))  # of the global, of the local
# The 2 x 2 of R++ Table 1: (normaliser, placement of the KL) of each arm
SQUARE = {
    "grpo": ("local", "k3 in the loss"),
    "grpo_k1_reward": ("local", "k1 in the reward"),
    "reinforce_pp_k_k3_loss": ("global", "k3 in the loss"),
    "reinforce_pp_k": ("global", "k1 in the reward"),
}

# The others are no cells of the 2 x 2: one rollout a prompt, or a baseline without a normaliser
FACTORS = SQUARE | {
    "rloo": ("none", "k1 in the reward"),
    "remax": ("none", "k1 in the reward"),
    "reinforce_pp": SQUARE["reinforce_pp_k"],
}


def rlhf(record: Results) -> pd.DataFrame:
    """Training on a learned reward: the reward model's score, the hidden gold reward, and the KL to the reference.

    These are from samples at τ_base on test, at the end of training. Two more columns have the gold reward of such
    samples on dev: the highest along training, and the last.
    """
    values = _learned(record)
    for title, point in _curve(record, "dev_gold").items():
        values[f"gold on dev, {title}"] = to_gold(point).reindex(values.index)
    arms = [arm for arm in ("start", *FACTORS) if arm in values.index.get_level_values("arm")]
    shown = table(values, arms)
    for place, factor in enumerate(("normaliser", "KL")):
        factors = [FACTORS[arm][place] if arm in FACTORS else "" for arm in arms]
        shown.insert(place, factor, factors + [""] * (len(shown) - len(arms)))
    return shown


def main_effects(record: Results) -> pd.DataFrame:
    """The effect of each factor of the 2 x 2, averaged over the other: differences paired by seed and start."""
    return frame({}, effects(_learned(record)), digits=2)


def effects(values: pd.DataFrame, interaction: bool = False) -> dict[str, pd.DataFrame]:
    """The effect of each factor of the 2 x 2 in each pair of seed and start, averaged over the other factor.

    Args:
        values: one row a run, indexed by arm, seed and start; it holds the four arms of SQUARE.
        interaction: add by how much the placement's effect under the global normaliser exceeds that under the local.
    """
    by_seed = {arm: values.xs(arm, level="arm") for arm in SQUARE}
    rows = {}
    for name, of, ours, theirs in (
        ("k1 in the reward − k3 in the loss", 1, "k1 in the reward", "k3 in the loss"),
        ("global − local", 0, "global", "local"),
    ):
        mean = {
            level: sum(by_seed[arm] for arm, levels in SQUARE.items() if levels[of] == level) / 2
            for level in (ours, theirs)
        }
        rows[name] = (mean[ours] - mean[theirs]).dropna()
    if interaction:
        whole, local = (by_seed[one] - by_seed[other] for one, other in PLACEMENTS)
        rows["interaction"] = (whole - local).dropna()
    return rows


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
    """The highest and the last point of each run's curve."""
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
    return table(values, arms_of(record.runs), digits=1)


def overfitting(record: Results) -> pd.DataFrame:
    """What is left of `few_problems` at the end, from samples, and the gap in points (R++ Table 2)."""
    return table(small_data.ends(record), arms_of(record.runs), digits=1)


def at_matched_levels(record: Results) -> pd.DataFrame:
    """Greedy score on others where the problems trained on are at a level, and at equal updates, at the end; percent.

    The first column says how many runs came to the highest of the levels.
    """
    found = small_data.at_levels(record)
    columns = {f"others at {share:.0%}": rows.set_index(KEY)["others"] for share, rows in found.groupby("share")}
    columns["others at the end"] = small_data.best_of_others(record)["last"]
    return _with_reached(table(pd.DataFrame(columns), arms_of(found), digits=1), found)


def learning_time(record: Results) -> pd.DataFrame:
    """Updates that bring the score on the problems trained on to each level, by greedy and by sampled answers."""
    found = small_data.at_levels(record)
    columns = {
        f"{kind}, {share:.0%}": needed[share]
        for kind in (small_data.GREEDY, small_data.SAMPLED)
        for needed in (small_data.updates_needed(record, kind),)
        for share in needed
    }
    return _with_reached(table(pd.DataFrame(columns), arms_of(found), digits=1), found)


def _with_reached(table: pd.DataFrame, found: pd.DataFrame) -> pd.DataFrame:
    """A table with a first column that counts the runs that came to the highest level; the others are censored."""
    top = found[found["share"] == found["share"].max()]
    reached = {ARMS[arm].title: f"{rows['update'].notna().sum()} of {len(rows)}" for arm, rows in top.groupby("arm")}
    table.insert(0, f"reached {top['share'].max():.0%}", [reached.get(row, "") for row in table.index])
    return table


def by_task(record: Results) -> pd.DataFrame:
    """Greedy test score of each task, in percent (in R++ Fig. 4 each number of people is a task)."""
    runs = record.runs
    values = 100 * runs.pivot_table(index=KEY, columns="task", values="score")[list(dict.fromkeys(runs["task"]))]
    return table(values, arms_of(runs), digits=1)


def majority_votes(record: Results) -> pd.DataFrame:
    """Right answers in percent: greedy, by votes, and what the largest vote gains and loses (AGPO Fig. 2)."""
    return table(votes.values(record), arms_of(record.runs), digits=1)


def tool_use(record: Results, updates: tuple[int, ...] = (6, 10, 20)) -> pd.DataFrame:
    """Greedy accuracy along training and on test, in percent, and how the policy used its tool in the last update.

    Args:
        record: of a task with a tool.
        updates: after how many updates the accuracy on dev is shown.
    """
    runs, traces = record.runs.set_index(KEY), record.traces.set_index(KEY)
    values = pd.DataFrame(index=runs.index)
    points = traces.dropna(subset=["dev"])
    for update in updates:
        values[f"dev after {update} updates"] = 100 * points[points["update"] == update]["dev"].reindex(values.index)
    values["test"] = 100 * runs["score"]
    last = traces.dropna(subset=["tool_calls"]).groupby(KEY).last()
    for column, title in (("tool_calls", "calls an answer"), ("tool_failures", "calls that failed, %")):
        values[title] = last[column].reindex(values.index) * (100 if column == "tool_failures" else 1)
    return table(values, arms_of(runs.reset_index()), digits=1)


def table(values: pd.DataFrame, arms: list[str], digits: int = 2, baseline: str = "grpo") -> pd.DataFrame:
    """One row per arm, and below them the differences from the baseline."""
    by_arm = {arm: values.xs(arm, level="arm") for arm in arms}
    means = {}
    for arm, of_arm in by_arm.items():
        cells = {column: t_interval(of_arm[column].dropna()) for column in values}
        # These are all starts, not a sample of them: no interval.
        if arm == "start":
            cells = {column: cell._replace(half=float("nan"), about="") for column, cell in cells.items()}
        means[ARMS[arm].title] = cells
    gaps = {
        f"{ARMS[arm].title} − {ARMS[baseline].title}": of_arm - by_arm[baseline].reindex(of_arm.index)
        for arm, of_arm in by_arm.items()
        if baseline in by_arm and arm not in ("start", baseline)
    }
    return frame(means, gaps, digits)


def frame(means: dict[str, dict[str, Interval]], gaps: dict[str, pd.DataFrame], digits: int = 2) -> pd.DataFrame:
    """Rows of means, then rows of differences; a star marks those that pass Holm's correction over all of them."""
    tested = {(row, column): gap[column].dropna() for row, gap in gaps.items() for column in gap}
    adjusted = dict(zip(tested, holm([p_value(gap) for gap in tested.values()]), strict=True))
    intervals = {key: t_interval(gap) for key, gap in tested.items()}
    rows = {row: {column: cell.text(digits=digits) for column, cell in cells.items()} for row, cells in means.items()}
    for (row, column), interval in intervals.items():
        star = " *" if adjusted[row, column] < LEVEL else ""
        rows.setdefault(row, {})[column] = interval.text("+", digits) + star
    shown = [*intervals.values(), *(cell for cells in means.values() for cell in cells.values())]
    return pd.DataFrame.from_dict(rows, orient="index").rename_axis(columns=about(shown))
