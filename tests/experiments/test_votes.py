"""Majority votes of final policies: values a run, pairs, sentences, and their judgement."""

import math

import pandas as pd
import pytest

from agpo_core.comparison import over_tasks, paired
from agpo_core.experiments import arm_tables, claim_tables, grid, profiles, votes
from agpo_core.experiments.records import Results, majorities
from agpo_core.experiments.verdicts import MEASURES, VOTE_GAIN, Pair, claimed, judge, verdicts

NAME = "agpo_fig2_majority_vote"
# Votes of 16 samples for the right answer and for one rival, on two problems of each of two tasks
TALLIES = {
    "start": [[9, 7], [6, 10]],
    "grpo": [[12, 4], [7, 9]],
    "grpo_ats": [[13, 3], [7, 9]],
    "agpo": [[13, 3], [9, 7]],
}


def results(seeds=(1, 2, 3), arms=tuple(TALLIES)) -> Results:
    rows = []
    for arm in arms:
        for seed in (0,) if arm == "start" else seeds:
            for task, shift in (("steps", 0), ("programs", 1)):
                moved = [[a + shift * (seed % 2), b - shift * (seed % 2)] for a, b in TALLIES[arm]]
                rows.append({"arm": arm, "seed": seed, "start": "a", "task": task, "score": 0.5, "macro": 0.5,
                             "hash": f"{arm}{seed}", **majorities(moved, 16)})  # fmt: skip
    meta = {"profile": "tiny", "params": {}}
    return Results(pd.DataFrame(rows), pd.DataFrame({"arm": pd.Series(dtype=str)}), meta)


def test_a_measure_is_the_mean_over_a_runs_tasks():
    runs = results().runs
    # maj@1 of grpo, seed 2: (12 + 7) / 32 on both tasks; seed 1: one more right on each problem of programs
    found = MEASURES["maj@1"](runs).xs("grpo", level="arm")
    assert found.loc[2, "a"] == pytest.approx(100 * 19 / 32)
    assert found.loc[1, "a"] == pytest.approx(100 * (19 / 32 + 21 / 32) / 2)
    gain = MEASURES[VOTE_GAIN](runs)
    expected = MEASURES["maj@16"](runs) - MEASURES["maj@1"](runs)
    pd.testing.assert_series_equal(gain, expected)


def test_runs_without_votes_have_no_measure_and_are_not_judged():
    old = results().runs.drop(columns=["maj_1", "maj_4", "maj_16", "maj_loss"])
    assert over_tasks(old, "maj_4").empty and len(paired(old, "agpo", "grpo")) == 3
    judged = judge(old, claimed(NAME, TALLIES))
    assert set(judged["verdict"]) == {"not run"}
    nothing = Results(old, results().traces, results().meta)
    assert votes.voters(nothing) == [] and list(votes.values(nothing)) == ["greedy"]
    assert votes.of_fig2(nothing) == votes.NONE == votes.reading(nothing, judged)
    assert votes.by_task(nothing).empty


def test_the_claims_of_the_figure_are_judged_by_their_votes():
    pairs = claimed(NAME, TALLIES)
    assert [(pair.arm, pair.relation, pair.measure) for pair in pairs] == [
        ("agpo", "equal", "maj@1"), ("agpo", "above", "maj@4"), ("agpo", "above", "maj@16"),
        ("grpo_ats", "above", "maj@4"),
    ]  # fmt: skip
    runs = results().runs
    judged = judge(runs, pairs)
    for pair, row in zip(pairs, judged.itertuples(), strict=True):
        gap = MEASURES[pair.measure](runs).xs(pair.arm, level="arm") - MEASURES[pair.measure](runs).xs(
            "grpo", level="arm"
        )
        assert row.mean == pytest.approx(gap.mean()) and row.family == judged["p"].notna().sum()
    text = verdicts(judged, pairs)
    assert "AGPO equal to GRPO, maj@1" in text and "GRPO + ATS above GRPO, maj@4" in text
    assert "AGPO §4.4.2, AGPO (full), GSM8K dev, maj@64: 92" in text
    assert "GSM8K, maj@4: 88.4" in text and "on average, ahead on" not in text  # no scores of another table


def test_other_measures_are_compared_as_before():
    runs = results().runs.assign(
        macro=lambda t: 0.5 + 0.01 * (t["arm"] == "agpo") + 0.001 * t["seed"] * (t["arm"] == "agpo")
    )
    found = judge(runs, [Pair("agpo", "grpo")]).iloc[0]
    assert found["mean"] == pytest.approx(1.2)


def test_what_a_vote_gains_and_loses_by_hand():
    found = votes.values(results(seeds=(2,)))
    # start: one sample is right with 15 / 32; the vote wins the first problem of two. It gains 7/16 there and loses
    # 6/16 on the second: means 7/32 and 6/32.
    start = found.xs("start", level="arm").iloc[0]
    assert start["maj@1"] == pytest.approx(100 * 15 / 32) and start["maj@16"] == pytest.approx(50)
    assert start["16 votes gain"] == pytest.approx(100 * 7 / 32)
    assert start["16 votes lose"] == pytest.approx(100 * 6 / 32)
    for _, row in found.iterrows():
        assert row["maj@16"] - row["maj@1"] == pytest.approx(row["16 votes gain"] - row["16 votes lose"])
    tasks = votes.by_task(results(seeds=(2,)))
    assert list(tasks["arm"].unique()) == ["start", "grpo", "grpo_ats", "agpo"] and len(tasks) == 8
    assert tasks.iloc[0]["gain"] == pytest.approx(100 * 1 / 32)


def test_the_table_has_an_arm_a_row_and_differences_below():
    table = arm_tables.majority_votes(results())
    assert list(table.index[:4]) == ["supervised start", "GRPO", "GRPO + ATS", "AGPO"]
    assert list(table) == ["greedy", "maj@1", "maj@4", "maj@16", "16 votes gain", "16 votes lose"]
    # AGPO's votes are all right. GRPO loses a problem of two, but for a tie in seeds 1 and 3: 50, 37.5 and 37.5 points
    assert table.loc["AGPO − GRPO", "maj@16"].startswith("+41.7")


def test_every_prediction_is_answered_and_directions_are_computed():
    text = votes.of_fig2(results())
    flat = " ".join(text.split())
    assert [line[:2] for line in text.splitlines() if line[0] in "12345"] == ["1.", "2.", "3.", "4.", "5."]
    assert "Not answered" not in text and "nan" not in text
    assert "40% with 1 vote," in flat
    assert "takes" not in flat and "The difference is largest with 16 votes." in flat
    missing = votes.of_fig2(results(arms=("grpo", "agpo")))
    assert missing.count("Not answered, because not run: supervised start.") == 2
    judged = judge(results().runs, claimed(NAME, TALLIES))
    assert "Of 4 claimed differences" in votes.reading(results(), judged)


def test_controls_name_only_arms_that_were_run():
    assert len(votes.controls(results())) == 4
    assert [pair.arm for pair in votes.controls(results(arms=("grpo", "agpo")))] == ["agpo", "agpo"]
    assert not any(math.isnan(row.mean) for row in judge(results().runs, votes.controls(results())).itertuples()
                   if row.baseline == "start")  # fmt: skip


def test_the_claims_page_shows_the_measure_beside_the_pair(monkeypatch):
    rows = claim_tables._judged(NAME, results())
    assert [(row[0], row[3], row[4]) for row in rows] == [
        (16, "AGPO equal to GRPO", "maj@1"), (16, "AGPO above GRPO", "maj@4"), (16, "AGPO above GRPO", "maj@16"),
        (17, "GRPO + ATS above GRPO", "maj@4"),
    ]  # fmt: skip


@pytest.mark.parametrize("profile", ["smoke", "tiny", "paper"])
def test_every_profile_samples_enough_for_a_vote_of_sixteen(profile):
    params = profiles.settings(NAME, profile)
    assert params["test_samples"] >= 16 and params["methods"] == ["start", "grpo", "grpo_ats", "agpo"]
    assert grid.plan(NAME, params)
