"""Verdicts on claims, and on whether fresh runs agree with the record."""

import math

import pandas as pd
import pytest

from agpo_core.experiments.records import Results
from agpo_core.experiments.verdicts import Claim, agreement, agreement_text, judge, verdicts


def runs_of(**arms: list[float]) -> pd.DataFrame:
    """Runs of one task, seeds 0, 1, ... of one start; a run's hash is its arm and seed."""
    rows = [
        (arm, seed, "a", "steps", score, score, f"{arm}{seed}")
        for arm, scores in arms.items()
        for seed, score in enumerate(scores)
    ]
    return pd.DataFrame(rows, columns=["arm", "seed", "start", "task", "score", "macro", "hash"])


def verdict(**arms) -> pd.Series:
    return judge(runs_of(**arms), [Claim("agpo", "grpo")]).iloc[0]


def test_a_difference_above_zero_supports_and_one_below_contradicts():
    # differences of 2, 3, 4 points: mean 3, s = 1, t = 3 sqrt 3, p = 1 - sqrt(27 / 29) = .035
    above = verdict(grpo=[0.50, 0.50, 0.50], agpo=[0.52, 0.53, 0.54])
    assert above["verdict"] == "supported"
    assert above["mean"] == pytest.approx(3.0)
    assert above["p"] == above["p_holm"] == pytest.approx(1 - math.sqrt(27 / 29), rel=1e-6)
    assert math.isnan(above["needed"])
    assert verdict(grpo=[0.52, 0.53, 0.54], agpo=[0.50, 0.50, 0.50])["verdict"] == "contradicted"


def test_a_difference_that_crosses_zero_is_inconclusive_and_names_the_pairs_it_needs():
    # differences of 0, 1, 2 points: mean / s = 1, ten pairs
    row = verdict(grpo=[0.50, 0.50, 0.50], agpo=[0.50, 0.51, 0.52])
    assert row["verdict"] == "inconclusive" and row["needed"] == 10


def test_the_correction_can_take_a_verdict_away():
    runs = runs_of(grpo=[0.50, 0.50, 0.50], agpo=[0.52, 0.53, 0.54], grpo_ats=[0.50, 0.51, 0.48])
    alone, second = Claim("agpo", "grpo"), Claim("grpo_ats", "grpo")
    judged = judge(runs, [alone, second])
    assert judged["p_holm"][0] == pytest.approx(2 * judged["p"][0])  # .070
    assert judged["verdict"].tolist() == ["inconclusive", "inconclusive"]
    assert "the interval alone leaves out zero" in verdicts(judged, [alone, second])


def test_one_pair_decides_nothing_and_a_missing_arm_is_said_to_be_missing():
    runs, claims = runs_of(grpo=[0.5], agpo=[0.9]), [Claim("agpo", "grpo"), Claim("agpo", "grpo_ats")]
    judged = judge(runs, claims)
    assert judged["verdict"].tolist() == ["inconclusive", "not run"]
    text = verdicts(judged, claims)
    assert "+40.0 points, one pair, no interval" in text
    assert "one pair cannot decide" in text and "an arm was not run" in text


def test_a_missing_arm_does_not_count_in_the_correction():
    runs = runs_of(grpo=[0.50, 0.50, 0.50], agpo=[0.52, 0.53, 0.54])
    judged = judge(runs, [Claim("agpo", "grpo"), Claim("agpo", "grpo_ats")])
    assert judged["verdict"].tolist() == ["supported", "not run"]


def test_equal_scores_are_inconclusive():
    row = verdict(grpo=[0.5, 0.6], agpo=[0.5, 0.6])
    assert row["verdict"] == "inconclusive" and row["p"] == 1.0


def test_a_claim_states_the_papers_difference_and_ours_on_lines_of_their_own():
    claim = Claim("grpo_ats", "grpo", ("GRPO + ATS", "GRPO (fixed ε)"))
    runs = runs_of(grpo=[0.50, 0.50, 0.50], grpo_ats=[0.52, 0.53, 0.54])
    lines = verdicts(judge(runs, [claim]), [claim]).splitlines()
    # The nine rows differ by .8 1.2 .9 7.3 -.5 .8 1.8 .2 -.6: 11.9 / 9
    assert lines == [
        "GRPO + ATS above GRPO",
        "  the paper  +1.3 points on average over its benchmarks, ahead on 7 of 9",
        "  measured   +3.0 points, 95 % interval [+0.5, +5.5], 3 pairs, p = 0.035 (Holm over 1)",
        "  verdict    supported at this scale",
    ]


def test_a_control_is_said_not_to_be_in_the_paper():
    claim = Claim("agpo", "grpo_narrow")
    text = verdicts(judge(runs_of(agpo=[0.5]), [claim]), [claim])
    assert "does not report this control" in text


# -- agreement ----------------------------------------------------------------------------------------

RECORD = runs_of(grpo=[0.51, 0.52, 0.53])


def fresh(*scores: float, first_seed: int = 10) -> pd.DataFrame:
    runs = runs_of(grpo=list(scores))
    runs["seed"] += first_seed
    return runs.assign(hash=[f"grpo{seed}" for seed in runs["seed"]])


def text_of(runs: pd.DataFrame, record: pd.DataFrame, **changed) -> str:
    params = {"horizon": 5.0}
    return agreement_text(
        Results(runs, meta={"params": params | changed}),
        Results(record, meta={"params": params, "profile": "tiny"}),
    )


def test_the_same_runs_with_the_same_scores_are_identical():
    assert agreement(RECORD, RECORD).loc["grpo", "agrees"] == "identical"
    text = text_of(RECORD.iloc[:2], RECORD)
    assert text.startswith("Agrees with the record.\n2 of 2 runs equal the recorded run")


def test_scores_are_compared_at_the_digits_that_a_record_keeps():
    rounded = RECORD.assign(score=RECORD["score"] + 1e-9)
    assert agreement(rounded, RECORD).loc["grpo", "identical"] == 3


def test_fresh_seeds_are_held_against_the_prediction_interval():
    # record: mean 52, s = 1, t(.975, 2) sqrt(1/3 + 1/2) = 3.928
    table = agreement(fresh(0.50, 0.49), RECORD)
    assert table.loc["grpo", ["low", "high"]].tolist() == pytest.approx([48.072, 55.928], abs=1e-3)
    assert table.loc["grpo", "agrees"] == "within"
    assert agreement(fresh(0.48, 0.48), RECORD).loc["grpo", "agrees"] == "outside"
    text = text_of(fresh(0.48, 0.48), RECORD)
    assert text.startswith("Disagrees with the record in 1 of 1 arms")
    assert "mean 48.0 of 2 fresh runs, outside the record's prediction interval [48.1, 55.9]" in text


def test_the_same_runs_with_other_scores_are_said_to_differ_and_are_judged_as_fresh():
    other = RECORD.assign(score=RECORD["score"] + 0.01, macro=RECORD["macro"] + 0.01)
    text = text_of(other, RECORD)
    assert text.startswith("Agrees with the record.\n0 of 3 runs equal")
    assert "3 differ from theirs, as they may on another kind of machine" in text


def test_a_record_of_other_numerics_is_said_to_be_one_and_judges_by_the_interval_alone():
    runs = fresh(0.50, 0.49)
    results, record = Results(runs), Results(RECORD)
    for found, versions in ((results, [2]), (record, [1])):
        found.meta = {"params": {"horizon": 5.0}, "profile": "tiny", "numerics_version": versions}
    text = agreement_text(results, record)
    assert text.startswith("Agrees with the record.\nThe record is of numerics version 1, these runs are of 2: none is")
    assert "equal the recorded run of" not in text and "within the record's prediction interval" in text


def test_a_record_of_one_run_and_a_missing_record_judge_nothing():
    assert "cannot be judged" in text_of(fresh(0.5), RECORD.iloc[:1])
    assert "no record of this profile" in agreement_text(Results(RECORD), None)


def test_other_settings_are_named_and_no_agreement_is_claimed():
    text = text_of(RECORD, RECORD, horizon=9.0)
    assert text.startswith("No agreement is claimed") and "horizon 5.0, not 9.0" in text


def test_seeds_and_ways_to_launch_are_not_other_settings():
    assert "Agrees" in text_of(RECORD, RECORD, seeds=[1], parallel=4, run_mode="train")
