"""Training on few problems: numbers by hand on a small record, and the committed record recomputed another way."""

import math

import pandas as pd
import pytest

from agpo_core.experiments import arm_tables, published, records, small_data, traces
from agpo_core.experiments import small_data_readings as readings
from agpo_core.experiments.records import Results

NAME = "rpp_table2_small_data_overfitting"
CURVES = {  # arm -> (problems trained on, others) after 0, 3 and 6 updates
    "grpo": ([0.4, 0.7, 0.9], [0.5, 0.6, 0.5]),
    "reinforce_pp_k": ([0.4, 0.6, 0.8], [0.5, 0.7, 0.6]),
}


def hand_made(seeds=(1, 2)) -> Results:
    """Two arms; in seed 2 the sampled scores on others are 10 points higher, and so are the greedy ones."""
    runs, rows = [], []
    for seed in seeds:
        more = 0.1 * (seed == 2)
        for arm, (known, others) in {"start": ([], []), **CURVES}.items():
            key = {"arm": arm, "seed": seed, "start": "a"}
            ends = {"train_pass_1": 0.9, "pass_1": 0.3 + more * (arm == "grpo"), "pass_16": 0.8, "score": 0.5}
            runs.append({**key, "task": "t", **ends})
            rows += [
                {**key, "update": 3 * i, "train": y, "dev": z + more, "reward": y}
                for i, (y, z) in enumerate(zip(known, others, strict=True))
            ]
    params = {"prompts_per_update": 30, "group_size": 8}
    return Results(pd.DataFrame(runs), pd.DataFrame(rows), {"profile": "tiny", "params": params})


@pytest.fixture(scope="module")
def record():
    return records.load(NAME, "tiny")


def test_a_level_is_crossed_where_a_straight_line_first_reaches_it():
    # from 70 to 90 between 3 and 6: 80 is half-way; later falls do not matter
    assert small_data.first_crossing([0, 3, 6, 9], [40, 70, 90, 60], 80) == 4.5
    assert small_data.first_crossing([0, 3], [40, 70], 70) == 3  # at an evaluation
    assert small_data.first_crossing([0, 3], [40, 70], 40) == 0  # reached before training
    assert math.isnan(small_data.first_crossing([0, 3], [40, 70], 71))  # censored
    assert math.isnan(small_data.first_crossing([], [], 1))


def test_levels_are_shares_of_a_runs_own_way_and_others_are_read_off_there():
    found = small_data.at_levels(hand_made(seeds=(1,)), (0.5, 0.75)).set_index(["arm", "share"])
    # half of the way from 40 to 100 is 70: after 3 updates, and half-way from 60 to 80 for the slower arm
    assert found.loc[("grpo", 0.5), "level"] == pytest.approx(70)
    assert found.loc[("grpo", 0.5), ["update", "others", "change"]].tolist() == pytest.approx([3, 60, 10])
    assert found.loc[("reinforce_pp_k", 0.5), ["update", "others", "change"]].tolist() == pytest.approx([4.5, 65, 15])
    # three quarters is 85: 3 + 3 * 15 / 20 updates; the slower arm never comes there
    assert found.loc[("grpo", 0.75), ["update", "others"]].tolist() == pytest.approx([5.25, 52.5])
    assert found.loc[("reinforce_pp_k", 0.75), ["update", "others", "change"]].isna().all()


def test_censored_runs_are_counted_and_left_out_of_the_differences():
    results = hand_made()
    needed = small_data.updates_needed(results)
    assert needed.xs("reinforce_pp_k", level="arm")[0.8].isna().all()
    assert small_data.difference(needed[0.8], "reinforce_pp_k", "grpo").empty
    table = arm_tables.learning_time(results)
    assert table.loc["GRPO", "reached 80%"] == "2 of 2"
    assert table.loc["REINFORCE++ (k > 1)", "reached 80%"] == "0 of 2"
    assert table.loc["REINFORCE++ (k > 1)", "greedy, 80%"] == ""
    assert "50%, never (0 of 2 runs) to 80%" in readings.how_soon(results)


def test_rollouts_of_an_update_belong_to_the_policy_before_it():
    points = small_data.rollouts(hand_made(seeds=(1,)))
    assert points.loc[points["arm"] == "grpo", "update"].tolist() == [-1, 2, 5]  # of updates 0, 3 and 6


def test_the_ends_are_percentages_and_the_gap_is_their_difference():
    values = small_data.ends(hand_made())
    assert values.loc[("grpo", 2, "a")].tolist() == pytest.approx([90, 40, 80, 50])  # 90 - 40
    assert small_data.difference(values[small_data.ONCE], "reinforce_pp_k", "grpo").tolist() == pytest.approx([0, -10])
    table = arm_tables.overfitting(hand_made())
    assert table.loc["supervised start", small_data.GAP] == "60.0"
    assert table.loc["REINFORCE++ (k > 1) − GRPO", small_data.ONCE].startswith("-5.0")


def test_the_columns_of_the_table_are_those_of_the_table_on_few_problems(record):
    ours, theirs = arm_tables.overfitting(record), arm_tables.few_problems(record)
    same = [small_data.TRAINED, small_data.ONCE, small_data.OFTEN]
    arms = [row for row in ours.index if " − " not in row]  # stars depend on the other differences of a table
    pd.testing.assert_frame_equal(ours.loc[arms, same], theirs.loc[arms, same])


def test_the_last_wrong_rollout_reaches_the_bound():
    found = readings.last_wrong(30, 8)
    assert found["local"] == pytest.approx(-7 / math.sqrt(8), rel=1e-6)
    assert found["global"] == pytest.approx(-239 / math.sqrt(240), rel=1e-6)
    # group mean subtracted: -7/8 once and 1/8 seven times, squares 7/8 over 239
    assert found["baseline"] == pytest.approx(-(7 / 8) / math.sqrt(7 / 8 / 239), rel=1e-6)
    assert readings.largest(8) == pytest.approx(7 / math.sqrt(8)) and readings.largest(1) == 0


def test_the_statements_are_those_of_their_claims_with_the_papers_signs(record):
    says = {claim.number: claim.says for claim in published.claims()}
    assert "collapses on others" in says[39] and "in a few steps" in says[40]
    parts, others = readings.parts_of_table2(record), readings.controls_of_table2(record)
    assert [part.sign for part in parts] == [1, 1, -1, -1, 1, 1] and not any(part.sign for part in others)
    wide = record.runs[record.runs["arm"] != "start"].pivot_table("pass_16", ["seed", "start"], "arm")
    gap = 100 * (wide["reinforce_pp_k"] - wide["grpo"])
    judged = traces.judge_parts(parts + others)
    assert judged["mean"].iloc[0] == pytest.approx(gap.mean())
    sooner = readings.parts_of_fig3(record)
    assert [part.sign for part in sooner] == [1] * 5 and len(readings.controls_of_fig3(record)) == 4


def test_the_answers_are_the_numbers_of_their_runs(record):
    once, often, gaps, levels, last = readings.of_table2(record).replace("\n   ", " ").splitlines()
    values = small_data.ends(record)
    rise = small_data.difference(values[small_data.ONCE], "grpo", "start").mean()
    assert f"GRPO {rise:+.1f}\u00a0±" in once
    assert f"GRPO {small_data.difference(values[small_data.OFTEN], 'grpo', 'start').mean():+.1f}" in often
    means = values[small_data.GAP].drop(index="start", level="arm").groupby("arm").mean()
    title = {"grpo": "GRPO", "reinforce_pp_k": "REINFORCE++ (k > 1)", "reinforce_pp_baseline": "REINFORCE++-baseline"}
    assert f"The largest is that of {title[means.idxmax()]}." in gaps
    assert "at 50% of the way" in levels and "at the end" in levels and "-2.47" in last
    soon, others, _, _ = readings.of_fig3(record).replace("\n   ", " ").splitlines()
    assert f"GRPO {small_data.updates_needed(record).loc['grpo', 0.5].mean():.1f}" in soon
    assert f"ends at {small_data.best_of_others(record).loc['grpo', 'last'].mean():.1f} %" in others


def test_the_reading_says_what_is_resolved_and_which_way():
    # pass@16 is the same in all runs, so that nothing is resolved
    text = readings.reading_of_table2(hand_made()).replace("\n  ", " ")
    assert "others in sixteen tries: +0.0 points, not resolved." in text
    assert "do not show that" in text  # pass@16 has not fallen
    assert "REINFORCE++ (k > 1) 2" in readings.reading_of_fig3(hand_made()).replace("\n  ", " ")


@pytest.mark.parametrize("arms", [["start"], ["reinforce_pp_k"], ["start", "reinforce_pp_k", "reinforce_pp_baseline"]])
def test_grids_without_grpo_have_statements_that_are_not_run(record, arms):
    part = record.only(arms)
    for parts in (readings.parts_of_table2(part), readings.parts_of_fig3(part)):
        assert "not run" in set(traces.judge_parts(parts)["verdict"])
    assert "Not answered" in readings.of_table2(part) and "Not answered" in readings.of_fig3(part)
    for reading in (readings.reading_of_table2(part), readings.reading_of_fig3(part)):
        assert "nothing to compare" in reading


def test_nothing_run_is_told():
    assert readings.of_table2(Results()).count("Not answered") == 5
    assert small_data.at_levels(Results()).empty and small_data.first_evaluation(Results()) == 0
