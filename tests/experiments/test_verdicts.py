"""Verdicts on claims, and on whether fresh runs agree with the record."""

import math

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from agpo_core.comparison import pairs_needed
from agpo_core.experiments import published
from agpo_core.experiments.grid import ARMS
from agpo_core.experiments.records import Results
from agpo_core.experiments.verdicts import (
    CONTROLS,
    Pair,
    agreement,
    agreement_text,
    claimed,
    controls,
    in_print,
    judge,
    p_text,
    verdicts,
)

A_CLAIM = published.Claim(99, "R++", "§9", "AGPO scores higher.", "none")


def said(arm: str, baseline: str, relation: str = "above") -> Pair:
    """Two arms about which something is claimed."""
    return Pair(arm, baseline, relation, (A_CLAIM,))


def runs_of(**arms: list[float]) -> pd.DataFrame:
    """Runs of one task, seeds 0, 1, ... of one start; a run's hash is its arm and seed."""
    rows = [
        (arm, seed, "a", "steps", score, score, f"{arm}{seed}")
        for arm, scores in arms.items()
        for seed, score in enumerate(scores)
    ]
    return pd.DataFrame(rows, columns=["arm", "seed", "start", "task", "score", "macro", "hash"])


def verdict(**arms) -> pd.Series:
    return judge(runs_of(**arms), [said("agpo", "grpo")]).iloc[0]


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
    alone, second = said("agpo", "grpo"), said("grpo_ats", "grpo")
    judged = judge(runs, [alone, second])
    assert judged["p_holm"][0] == pytest.approx(2 * judged["p"][0])  # .070
    assert judged["verdict"].tolist() == ["inconclusive", "inconclusive"]
    assert "the 95 % interval excludes zero" in verdicts(judged, [alone, second])


def test_one_pair_decides_nothing_and_a_missing_arm_is_said_to_be_missing():
    runs, claims = runs_of(grpo=[0.5], agpo=[0.9]), [said("agpo", "grpo"), said("agpo", "grpo_ats")]
    judged = judge(runs, claims)
    assert judged["verdict"].tolist() == ["inconclusive", "not run"]
    text = verdicts(judged, claims)
    assert "+40.0 points, one pair, no interval" in text
    assert "one pair cannot decide" in text and "an arm was not run" in text


def test_a_missing_arm_does_not_count_in_the_correction():
    runs = runs_of(grpo=[0.50, 0.50, 0.50], agpo=[0.52, 0.53, 0.54])
    judged = judge(runs, [said("agpo", "grpo"), said("agpo", "grpo_ats")])
    assert judged["verdict"].tolist() == ["supported", "not run"]


@pytest.mark.parametrize("gap", [0.0, 0.02, -0.3])
@pytest.mark.parametrize("n", [2, 3, 10])
@pytest.mark.parametrize("relation", ["above", "equal"])
def test_equal_differences_are_no_proof_of_anything(gap, n, relation):
    grpo = [0.5 + 0.01 * seed for seed in range(n)]
    pair = said("agpo", "grpo", relation)
    judged = judge(runs_of(grpo=grpo, agpo=[score + gap for score in grpo]), [pair])
    row = judged.iloc[0]
    assert row["verdict"] == "inconclusive" and math.isnan(row["p"]) and math.isnan(row["half"])
    text = verdicts(judged, [pair])
    assert f"{100 * gap:+.1f} points, equal within each start in {n} pairs, no interval" in text
    assert "there is no spread to test them by" in text.replace("\n" + " " * 13, " ")


def test_equality_can_be_contradicted_on_either_side_and_is_never_proved():
    higher, lower = [0.52, 0.53, 0.54], [0.50, 0.50, 0.50]
    pair = said("agpo", "grpo", "equal")
    for agpo, grpo in ((higher, lower), (lower, higher)):
        assert judge(runs_of(agpo=agpo, grpo=grpo), [pair]).iloc[0]["verdict"] == "contradicted"
    judged = judge(runs_of(agpo=[0.50, 0.51, 0.49], grpo=lower), [pair])
    assert "neither a difference nor equality is shown" in verdicts(judged, [pair])


def test_a_pair_without_a_claim_has_no_verdict_and_does_not_count_in_the_correction_of_the_claims():
    runs = runs_of(grpo=[0.50, 0.50, 0.50], agpo=[0.52, 0.53, 0.54], agpo_global=[0.60, 0.61, 0.63])
    pairs = [said("agpo", "grpo"), Pair("agpo_global", "agpo", asks="Does it help?")]
    judged = judge(runs, pairs)
    assert judged["verdict"].tolist() == ["supported", "no claim"]
    assert judged["family"].tolist() == [1, 1]  # each kind is corrected apart
    lines = verdicts(judged, pairs).split("\n\n")[1].splitlines()
    # differences of 8, 8 and 9 points: mean 8.3, s = 1 / sqrt 3, half = 4.303 / 3
    assert lines == [
        "AGPO, global against AGPO",
        "  claim      none",
        "  asks       Does it help?",
        "  published  no table of either paper scores both",
        "  measured   +8.3 points, 95 % interval [+6.9, +9.8], 3 pairs, p = 0.002 (Holm over 1 pair without",
        "             a claim)",
    ]


def test_pairs_without_a_claim_are_corrected_among_themselves():
    runs = runs_of(grpo=[0.50, 0.50, 0.50], agpo=[0.52, 0.53, 0.54], rloo=[0.50, 0.51, 0.48], ppo=[0.51] * 3)
    judged = judge(runs, [Pair(arm, "grpo") for arm in ("agpo", "rloo", "ppo", "dpo")])
    assert judged["p_holm"][0] == pytest.approx(2 * judged["p"][0])  # equal and missing ones were not tested
    assert judged["family"].tolist() == [2] * 4 and judged["verdict"].tolist() == ["no claim"] * 4


def test_the_named_number_of_pairs_allows_for_the_correction():
    runs = runs_of(grpo=[0.50, 0.50, 0.50], agpo=[0.50, 0.51, 0.52], rloo=[0.50, 0.51, 0.48])
    pairs = [said("agpo", "grpo"), said("rloo", "grpo")]
    judged = judge(runs, pairs)
    assert judged["needed"][0] == pairs_needed([0.0, 1.0, 2.0], 0.025) > 10
    assert "pairs at the level 0.05 / 2 (Holm's strictest)" in verdicts(judged, pairs).replace("\n" + " " * 13, " ")


def test_what_two_starts_differ_by_does_not_blur_a_verdict():
    # +1 and +2 from one start, +7 and +8 from the other: mean 4.5, s = sqrt(.5), t = 4.5 / (s / 2) = 12.7, df 2
    runs = runs_of(grpo=[0.5] * 4, agpo=[0.51, 0.52, 0.57, 0.58])
    of_two = runs.assign(start=["a", "a", "b", "b"] * 2)
    row, plain = (judge(table, [said("agpo", "grpo")]).iloc[0] for table in (of_two, runs))
    assert (row["verdict"], plain["verdict"]) == ("supported", "inconclusive") and row["about"] == "seeds"
    assert row["p"] == pytest.approx(2 * stats.t.sf(4.5 / (math.sqrt(0.5) / 2), 2))
    apart = runs.assign(start=list("abcd") * 2)
    judged = judge(apart, [said("agpo", "grpo")])
    assert judged["about"][0] == "starts" and judged["half"][0] == pytest.approx(plain["half"])
    assert verdicts(judged, [said("agpo", "grpo")]).endswith("what other starts of their kind would give.")


def test_every_control_asks_something_and_is_no_claim_of_the_same_experiment():
    named = {name for arm, baseline, _ in CONTROLS for name in (arm, baseline)}
    assert named - {"grpo_matched_compute"} <= set(ARMS)
    unordered = [frozenset((arm, baseline)) for arm, baseline, _ in CONTROLS]
    assert len(set(unordered)) == len(CONTROLS) and all(asks.endswith("?") for *_, asks in CONTROLS)
    for experiment in ("agpo_table1_main_results", "methods_overview", "rpp_table4_tool_use"):
        both = [*claimed(experiment, ARMS), *controls(experiment, ARMS)]
        pairs = {frozenset((pair.arm, pair.baseline)) for pair in both}
        assert len(pairs) == len(both)
    assert [pair.arm for pair in controls("methods_overview", ["agpo", "grpo", "rloo"])] == ["rloo"]


def test_a_claim_states_its_paper_its_place_and_its_numbers_and_ours_on_lines_of_their_own():
    pairs = claimed("methods_overview", ["grpo_ats", "grpo"])
    runs = runs_of(grpo=[0.50, 0.50, 0.50], grpo_ats=[0.52, 0.53, 0.54])
    lines = verdicts(judge(runs, pairs), pairs).splitlines()
    # The nine rows differ by .8 1.2 .9 7.3 -.5 .8 1.8 .2 -.6: 11.9 / 9
    assert lines == [
        "GRPO + ATS above GRPO",
        "  claim      AGPO §4.2.3, claim 9: GRPO with adaptive temperature alone scores higher than GRPO.",
        "  published  AGPO Table 1: +1.32 points on average, ahead on 7 of 9 scores",
        "  measured   +3.0 points, 95 % interval [+0.5, +5.5], 3 pairs, p = 0.035 (Holm over 1 test)",
        "  verdict    supported at this scale",
        "",
        "± is a 95 % t-interval over seeds, start by start: what other seeds of these starts would give.",
    ]


@pytest.mark.parametrize(
    ("arm", "baseline", "text"),
    [
        ("reinforce_pp", "grpo", "R++ Table 1 (by the commentary): 46.7 against 46.8"),
        ("remax", "reinforce_pp", "R++ Table 1 (by the commentary): 45.1 against 46.7"),
        # 30.83 27.18 17.91 18.95 25.62 less GRPO's 31.66 21.87 16.97 17.70 24.68: 7.61 / 5
        (
            "reinforce_pp_baseline",
            "grpo",
            "Table 4 (by the commentary): +1.52 points on average, ahead on 4 of 5 scores",
        ),
        (
            "reinforce_pp_baseline",
            "ppo",
            "Table 4 (by the commentary): +2.25 points on average, ahead on 5 of 5 scores",
        ),
        ("reinforce_pp_baseline", "ppo_critic", "R++ Table 4"),
        ("grpo", "ppo", "AGPO Table 1: +5.00 points on average, ahead on 9 of 9 scores; R++ Table 4"),
        ("agpo_no_step_kl", "agpo", "AGPO Table 4: -0.5"),
        ("agpo_mad", "agpo", "AGPO Table 5: +0.15 points on average, ahead on 4 of 4 scores"),
        ("reinforce_pp_baseline", "rloo", "no table of either paper scores both"),
        ("agpo", "grpo_narrow", "no table of either paper scores both"),
    ],
)
def test_what_the_papers_report_of_two_arms_is_found_wherever_it_stands(arm, baseline, text):
    assert text in in_print(arm, baseline)


def test_a_claim_is_judged_in_the_experiments_that_it_names_and_nowhere_else():
    assert claimed("rpp_table4_tool_use", ["grpo", "ppo", "reinforce_pp_baseline"])
    assert not [pair for pair in claimed("methods_overview", ARMS) if pair.arm == "reinforce_pp_baseline"]
    assert claimed("another", ARMS) == [] and claimed("methods_overview", ["grpo"]) == []


# -- agreement ----------------------------------------------------------------------------------------

RECORD = runs_of(grpo=[0.51, 0.52, 0.53])


def fresh(*scores: float, first_seed: int = 10) -> pd.DataFrame:
    runs = runs_of(grpo=list(scores))
    return runs.assign(seed=runs["seed"] + first_seed)


def shifted(runs: pd.DataFrame, **by: list[float]) -> pd.DataFrame:
    """The same runs with other scores: points added, by arm and seed."""
    change = [by[arm][seed] / 100 for arm, seed in zip(runs["arm"], runs["seed"], strict=True)]
    return runs.assign(score=runs["score"] + change, macro=runs["macro"] + change)


def text_of(runs: pd.DataFrame, record: pd.DataFrame, **changed) -> str:
    params = {"horizon": 5.0}
    return agreement_text(
        Results(runs, meta={"params": params | changed}),
        Results(record, meta={"params": params, "profile": "tiny"}),
    ).replace("\n", " ")


def test_the_same_runs_with_the_same_scores_are_identical():
    table = agreement(RECORD, RECORD)
    assert table[["kind", "n", "equal", "agrees"]].values.tolist() == [["identical", 3, 3, True]]
    assert text_of(RECORD.iloc[:2], RECORD) == (
        "Agrees with the record. 2 of 2 runs equal the recorded run of the same settings, seed and start."
    )


def test_scores_are_compared_at_the_digits_that_a_record_keeps():
    rounded = RECORD.assign(score=RECORD["score"] + 1e-9)
    assert agreement(rounded, RECORD)["equal"].tolist() == [3]


def test_runs_of_recorded_seeds_are_judged_by_paired_differences_pooled_over_arms():
    record = runs_of(grpo=[0.41, 0.52, 0.63], agpo=[0.45, 0.50, 0.61], rloo=[0.4, 0.5, 0.6])
    runs = shifted(record, grpo=[0, 1, 2], agpo=[-3, 0, 0], rloo=[0, 0, 0])
    table = agreement(runs, record).set_index("arm")
    # squares 2 and 6 about the means 1 and -1, four degrees of freedom: s = sqrt 2; identical arms tell nothing of s
    assert table["kind"].to_dict() == {"grpo": "paired", "agpo": "paired", "rloo": "identical"}
    assert table["mean"].to_dict() == pytest.approx({"grpo": 1.0, "agpo": -1.0, "rloo": 0.0})
    error = math.sqrt(2 / 3)
    assert table["half"]["grpo"] == pytest.approx(stats.t.ppf(1 - 0.05 / 4, 4) * error)  # two arms are judged
    assert table["p_holm"]["agpo"] == pytest.approx(min(2 * 2 * stats.t.sf(1 / error, 4), 1))
    text = text_of(runs, record)
    assert text.startswith("Agrees with the record. 6 of 9 runs equal")
    assert f"Holm over 2. In every arm a difference above {table['half']['grpo']:.1f} points would show." in text


def test_pairs_see_what_three_seeds_of_one_arm_cannot():
    rng = np.random.default_rng(0)
    arms = ["grpo", "agpo", "rloo", "ppo", "remax"]
    record = runs_of(**{arm: list(rng.normal(0.5, 0.05, 3)) for arm in arms})  # seeds differ by five points
    noise = {arm: rng.normal(0, 0.5, 3) for arm in arms}
    agrees = agreement(shifted(record, **noise), record)
    assert agrees["agrees"].all()
    broken = agreement(shifted(record, **noise | {"agpo": noise["agpo"] + 2.5}), record).set_index("arm")
    assert broken["agrees"].to_dict() == {arm: arm != "agpo" for arm in ARMS if arm in arms}
    assert broken["half"].max() < 1.5 < agreement(shifted_seeds(record), record)["half"].min()
    text = text_of(shifted(record, **noise | {"agpo": noise["agpo"] + 2.5}), record)
    assert text.startswith("Disagrees with the record in 1 of 5 arms; by chance alone, some arm disagrees")


def shifted_seeds(runs: pd.DataFrame) -> pd.DataFrame:
    return runs.assign(seed=runs["seed"] + 100)


def test_by_chance_some_arm_differs_in_one_comparison_of_twenty_at_most():
    rng = np.random.default_rng(1)
    record = runs_of(**{arm: [0.4, 0.5, 0.6] for arm in ("grpo", "agpo", "rloo", "ppo")})
    arms, trials = record["arm"].unique(), 60
    found = sum(
        not agreement(shifted(record, **{arm: rng.normal(0, 1, 3) for arm in arms}), record)["agrees"].all()
        for _ in range(trials)
    )
    assert found / trials < 0.05 + 3 * math.sqrt(0.05 * 0.95 / trials)


def test_fresh_seeds_are_compared_with_what_the_record_predicts():
    # record: mean 52, s = 1, t(.975, 2) sqrt(1/3 + 1/2) = 3.928
    table = agreement(fresh(0.50, 0.49), RECORD)
    assert table[["kind", "n", "agrees"]].values.tolist() == [["predicted", 2, True]]
    assert table[["mean", "half"]].values.tolist()[0] == pytest.approx([-2.5, 3.928], abs=1e-3)
    text = text_of(fresh(0.48, 0.48), RECORD)
    assert text.startswith("Disagrees with the record in 1 of 1 arms")
    assert "a difference above 3.9 points would show" in text and "GRPO: -4.0 points from the record (2 runs)" in text


def test_fresh_seeds_are_compared_with_their_own_starts():
    scores = [0.30, 0.31, 0.32, 0.60, 0.61, 0.62]
    record = runs_of(grpo=scores).assign(start=list("aaabbb"))
    one = fresh(0.605).assign(start="b")  # far from the record's mean, and where b lies
    assert agreement(one, record)["mean"].tolist() == pytest.approx([-0.5])
    assert agreement(one.assign(start="a"), record)["agrees"].tolist() == [False]


def test_an_arm_can_have_recorded_and_new_seeds():
    runs = pd.concat([shifted(RECORD, grpo=[0.1, 0.2, 0.6]), fresh(0.52, 0.53)])
    assert agreement(runs, RECORD)[["kind", "n"]].values.tolist() == [["paired", 3], ["predicted", 2]]


def test_paired_differences_without_spread_are_judged_as_new_seeds():
    for runs in (shifted(RECORD, grpo=[1, 1, 1]), shifted(RECORD, grpo=[1, 0, 0]).iloc[:1]):
        table = agreement(runs, RECORD)
        assert table["kind"].tolist() == ["predicted"] and table["agrees"].tolist() == [True]
    assert text_of(shifted(RECORD, grpo=[1, 1, 1]), RECORD).startswith("Agrees with the record. 0 of 3 runs equal")


def test_a_record_of_other_numerics_is_said_to_be_one_and_its_runs_are_paired_all_the_same():
    results, record = Results(shifted(RECORD, grpo=[0.5, -0.5, 0.2])), Results(RECORD)
    for found, versions in ((results, [2]), (record, [1])):
        found.meta = {"params": {"horizon": 5.0}, "profile": "tiny", "numerics_version": versions}
    text = agreement_text(results, record)
    assert text.startswith(
        "Agrees with the record.\nThe record has numerics version 1, and these runs have 2: no run is"
    )
    assert "equal the recorded run of" not in text and "GRPO: +0.1 points from the record (3 pairs)" in text


def test_a_record_of_one_run_and_a_missing_record_judge_nothing():
    assert "cannot be judged" in text_of(fresh(0.5), RECORD.iloc[:1])
    assert "cannot be judged" in text_of(runs_of(rloo=[0.5, 0.6]), RECORD)  # an arm that the record lacks
    assert "no record of this profile" in agreement_text(Results(RECORD), None)


def test_other_settings_are_named_and_no_agreement_is_claimed():
    text = text_of(RECORD, RECORD, horizon=9.0)
    assert text.startswith("Not compared with the record") and "horizon 5.0, not 9.0" in text


def test_seeds_and_ways_to_launch_are_not_other_settings():
    assert "Agrees" in text_of(RECORD, RECORD, seeds=[1], parallel=4, run_mode="train")


@pytest.mark.parametrize(
    ("p", "text"),
    [(0.0004, "p < 0.001"), (0.01234, "p = 0.012"), (0.04968, "p = 0.0497"), (0.0501, "p = 0.0501"),
     (0.049996, "p = 0.049996"), (0.0506, "p = 0.051"), (0.3, "p = 0.300")],
)  # fmt: skip
def test_a_p_value_shows_on_which_side_of_the_level_it_lies(p, text):
    assert p_text(p) == text
