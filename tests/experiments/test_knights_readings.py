"""R++ Fig. 4: leads by number of people, their slope, and the claim's trend, on records made by hand."""

import math

import numpy as np
import pandas as pd
import pytest

from agpo_core.experiments import knights_readings, traces
from agpo_core.experiments.records import Results

PEOPLE = (2, 3, 4)


def made(scores):
    """{(arm, seed): scores in % at 2, 3 and 4 people}; seed i from start i, and a start of 10 % everywhere."""
    starts = {("start", 0, f"s-{seed}"): (10, 10, 10) for _, seed in scores}
    every = starts | {(arm, seed, f"s-{seed}"): row for (arm, seed), row in scores.items()}
    runs = [
        {"arm": arm, "seed": seed, "start": start, "task": f"knights_{n}", "score": score / 100, "macro": 0.5}
        for (arm, seed, start), row in every.items()
        for n, score in zip(PEOPLE, row, strict=True)
    ]
    return Results(pd.DataFrame(runs), pd.DataFrame({"arm": []}), {"params": {"tasks": ["knights_2", "knights_3"]}})


@pytest.fixture
def results():
    rows = {}
    for seed, step in ((2, 1), (3, 2), (4, 3)):
        rows |= {("grpo", seed): (40, 30, 1), ("reinforce_pp_k", seed): (40, 30 + step, 1 + 2 * step)}
        rows["reinforce_pp_baseline", seed] = (41, 31, 2)
    return made(rows)


def test_columns_are_numbers_of_people_in_order():
    assert knights_readings.people_of("knights_and_knaves_8") == knights_readings.people_of("knights_8") == 8
    runs = made({("grpo", 2): (40, 30, 20)}).runs.iloc[::-1]
    table = knights_readings.by_people(runs)
    assert list(table.columns) == [2, 3, 4]
    assert table.loc["grpo", 2, "s-2"].tolist() == pytest.approx([40, 30, 20])


def test_a_slope_is_that_of_the_least_squares_line():
    rng = np.random.default_rng(0)
    d = pd.DataFrame(rng.normal(size=(5, 7)), columns=range(2, 9))
    expected = [np.polyfit(range(2, 9), row, 1)[0] for row in d.to_numpy()]
    assert knights_readings.slopes(d).tolist() == pytest.approx(expected)


def test_leads_are_paired_and_the_start_is_paired_by_start_alone(results):
    lead = knights_readings.leads(results.runs, "reinforce_pp_k")
    assert lead.to_numpy().tolist() == [pytest.approx([0, s, 2 * s]) for s in (1, 2, 3)]
    assert knights_readings.slopes(lead).tolist() == pytest.approx([1, 2, 3])
    gain = knights_readings.leads(results.runs, "grpo", "start")
    assert gain.to_numpy().tolist() == [pytest.approx([30, 20, -9])] * 3


def test_the_claim_is_one_slope_and_the_rest_are_controls(results):
    parts, others = knights_readings.parts(results), knights_readings.controls(results)
    assert [part.sign for part in parts] == [1] and {part.sign for part in others} == {0}
    row = traces.judge_parts(parts).iloc[0]
    # 1, 2, 3: mean 2, s 1, half 4.303 / sqrt(3) = 2.48, so zero is not excluded
    assert row["mean"] == pytest.approx(2) and row["half"] == pytest.approx(4.3027 / math.sqrt(3), abs=1e-3)
    assert row["verdict"] == "inconclusive"
    assert knights_readings.parts(results.only(["start", "grpo"])) == []
    # GRPO solves 1 % at four people: the controls also have the slope over two and three
    assert knights_readings.solved(results.runs) == [2, 3]
    narrow = next(part for part in others if "2 to 3 people" in part.says and "k > 1" in part.says)
    assert narrow.values.tolist() == pytest.approx([1, 2, 3])


def test_pages_test_asks_for_order_alone():
    rising = pd.DataFrame([[0, 1, 10], [0, 5, 6], [-3, -2, 0], [1, 2, 3]], columns=PEOPLE)
    assert knights_readings.page(rising) < 0.01 < 0.9 < knights_readings.page(-rising)
    assert math.isnan(knights_readings.page(rising[:1])) and math.isnan(knights_readings.page(rising[[2, 3]]))


def test_tables_have_a_mean_and_holm_over_numbers_and_arms(results):
    scores = knights_readings.scores_table(results.runs)
    assert list(scores.columns) == ["2", "3", "4", "mean", "runs"]
    assert scores.loc["supervised start", "mean"] == "10.0" and scores.loc["GRPO", "2"] == "40.0"
    leads = knights_readings.leads_table(results.runs)
    assert list(leads.index) == ["2", "3", "4", "mean"]
    # p of (1, 2, 3) is .0742, and of (2, 4, 6) the same: two tests with a spread
    assert leads["p of REINFORCE++ (k > 1)"].tolist() == ["", "0.148", "0.148", ""]
    assert leads.loc["mean", "REINFORCE++-baseline − GRPO"] == "+1.0"


def test_every_prediction_is_answered(results):
    lines = knights_readings.of_fig4(results)
    assert [line[:2] for line in lines.splitlines() if line[0].isdigit()] == ["1.", "2.", "3.", "4."]
    text = " ".join(lines.replace("\u00a0", " ").split())
    assert "2 25.0 % and 10.0 %" in text and "2 (trained on) +30.0" in text
    assert "its slope is +2.00 ± 2.48 points a person;" not in text and "+2.00 ± 2.48 points a person." in text
    assert "over 2 more people the lead may change by -1.0 to +9.0 points" in text
    assert "Not answered" in knights_readings.of_fig4(results.only(["start", "grpo"]))
