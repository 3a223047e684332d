"""Tables of learned rewards, few problems, other tasks and tools, on records made by hand."""

import pandas as pd
import pytest

from agpo_core.experiments import arm_tables
from agpo_core.experiments.records import Results


def record(runs, traces=()):
    return Results(pd.DataFrame(runs), pd.DataFrame(traces))


def run(arm, seed, **columns):
    return {"arm": arm, "seed": seed, "start": f"s-{seed}", "task": "t", **columns}


def learned(arm, seed, score, gold, kl=1.0, length=5.0):
    # gold is stored as a grade: (gold + 16) / 32
    return run(
        arm, seed, sampled_score=score, sampled_gold=(gold + 16) / 32, sampled_kl=kl, sampled_length=length
    )  # fmt: skip


@pytest.fixture
def square():
    """Two seeds: k1 in the reward adds 1 (seed 1) or 3 (seed 2) to gold, global normalisation 0.5 or 1.5."""
    runs, traces = [], []
    for seed, k1, whole in ((1, 1.0, 0.5), (2, 3.0, 1.5)):
        runs.append(learned("start", seed, 0.0, 2.0))
        for arm, (normaliser, placement) in arm_tables.SQUARE.items():
            gold = seed + k1 * (placement == "k1 in the reward") + whole * (normaliser == "global")
            runs.append(learned(arm, seed, 2.0, gold))
            for update, value in ((0, 2.0), (10, 8.0), (20, gold)):
                traces.append(run(arm, seed, update=update, dev_gold=(value + 16) / 32))
    return record(runs, traces)


def test_main_effects_are_paired_differences_averaged_over_the_other_factor(square):
    effects = arm_tables.main_effects(square)["gold"]
    # differences 1 and 3: mean 2, half-width t(.975, 1) sqrt(2) / sqrt(2) = 12.706
    assert effects["k1 in the reward − k3 in the loss"] == "+2.00\u00a0±\u00a012.71"
    assert effects["global − local"] == "+1.00\u00a0±\u00a06.35"  # .5 and 1.5: half of it
    assert set(arm_tables.main_effects(square)["model's score"]) == {"+0.00"}  # equal, so without an interval


def test_the_table_of_learned_rewards_has_gold_in_its_own_unit_and_at_its_best(square):
    table = arm_tables.rlhf(square)
    assert list(table["normaliser"]) == ["", "local", "local", "global", "global", "", "", ""]  # three differences
    assert table.loc["supervised start", "gold"] == "2.00"
    assert table.loc["supervised start", "gold on dev, highest"] == ""
    assert (
        table.loc["GRPO", "gold"] == table.loc["GRPO", "gold on dev, at the end"] == "1.50\u00a0±\u00a06.35"
    )  # seeds 1 and 2
    assert table.loc["GRPO", "gold on dev, highest"] == "8.00"  # at update 10, in both seeds
    assert list(arm_tables.rlhf(square.only(["start", "grpo"]))["normaliser"]) == ["", "local"]


def test_few_problems_in_percent():
    columns = {"train_pass_1": 0.9, "train_pass_16": 1.0, "pass_1": 0.4, "pass_16": 0.8, "score": 0.5}
    table = arm_tables.few_problems(
        record([run("grpo", 1, **columns)], [run("grpo", 1, update=u, dev=dev) for u, dev in ((5, 0.7), (9, 0.6))])
    )
    assert list(table.loc["GRPO"]) == ["90.0", "100.0", "40.0", "80.0", "50.0", "70.0", "60.0"]


def test_tasks_are_columns_in_the_order_of_the_record():
    runs = [
        {**run("grpo", seed), "task": task, "score": score}
        for seed, scores in ((1, (0.5, 0.25)), (2, (0.5, 0.75)))
        for task, score in zip(("knights_3", "knights_2"), scores, strict=True)
    ]
    table = arm_tables.by_task(record(runs))
    assert list(table.columns) == ["knights_3", "knights_2"]
    assert table.loc["GRPO", "knights_3"] == "50.0"  # equal, so without an interval
    assert table.loc["GRPO", "knights_2"].startswith("50.0\u00a0±\u00a0317.7")  # 25 and 75: 12.706 * 25


def test_tools_are_shown_along_training_and_in_the_last_update():
    traces = [
        run("ppo", 1, update=update, dev=dev, tool_calls=calls, tool_failures=0.5 * calls)
        for update, dev, calls in ((6, 0.3, 0.5), (10, 0.4, 1.0))
    ]
    table = arm_tables.tool_use(record([run("ppo", 1, score=0.9)], traces), (6, 20))
    # after 6 updates, after 20 (not recorded), test, calls, failures
    assert list(table.loc["PPO, value head"]) == ["30.0", "", "90.0", "1.0", "50.0"]


def test_differences_stand_below_the_arms_and_a_star_is_given_after_the_correction():
    runs = []
    for seed in range(8):
        # on t: 10 points with a scatter of 1; on u: 3 points with a scatter of 3, raw p .02
        wobble = 0.01 if seed % 2 else -0.01
        for arm, t, u in (("grpo", 0.5, 0.5), ("rloo", 0.6 + wobble, 0.53 + 3 * wobble), ("remax", 0.5, 0.5 + wobble)):
            start = "ab"[seed // 4]
            runs += [{**run(arm, seed, score=s), "task": task, "start": start} for task, s in (("t", t), ("u", u))]
    table = arm_tables.by_task(record(runs))
    # s = sqrt(8 / 6) within two starts of four, t(.975, 6) = 2.447: half 2.447 · sqrt(8 / 6) / sqrt(8) = 1.0
    assert table.loc["RLOO − GRPO"].tolist() == ["+10.0\u00a0±\u00a01.0 *", "+3.0\u00a0±\u00a03.0"]
    assert table.loc["ReMax − GRPO"].tolist() == ["+0.0", "+0.0\u00a0±\u00a01.0"]  # equal: no interval, no test
    assert table.columns.name == "± over seeds" and "GRPO − GRPO" not in table.index
