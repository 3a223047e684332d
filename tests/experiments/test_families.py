"""Differences within families and between them: worked by hand, and recomputed from the table of runs."""

import math

import pandas as pd
import pytest
from scipy import stats

from agpo_core.comparison import paired
from agpo_core.experiments import families
from agpo_core.experiments.records import Results
from agpo_core.experiments.verdicts import Pair

STARTS = ("tiny-qwen2-a", "tiny-llama", "tiny-gemma2")
SCORES = {  # of seeds 1, 2, 3, in %, by start
    "start": {"tiny-qwen2-a": (50,), "tiny-llama": (46,), "tiny-gemma2": (42,)},
    "grpo": {"tiny-qwen2-a": (70, 72, 71), "tiny-llama": (66, 66, 67), "tiny-gemma2": (72, 71, 70)},
    "agpo": {"tiny-qwen2-a": (72, 74.5, 74), "tiny-llama": (66, 67, 70.5), "tiny-gemma2": (70, 68, 68)},
}


def runs(seeds=3) -> pd.DataFrame:
    rows = []
    for arm, of_arm in SCORES.items():
        for start, values in of_arm.items():
            for seed, score in enumerate(values[:seeds], 1):
                key = {"arm": arm, "seed": 0 if arm == "start" else seed, "start": start}
                rows += [
                    key | {"task": task, "score": score / 100, "macro": score / 100} for task in ("steps", "programs")
                ]
    return pd.DataFrame(rows)


def test_a_start_has_the_name_of_its_family_and_any_other_start_its_own():
    assert [families.title(start) for start in (*STARTS, "Qwen2.5-14B")] == ["Qwen2", "Llama", "Gemma-2", "Qwen2.5-14B"]


def test_a_contrast_of_two_families_is_paired_by_seed():
    # AGPO - GRPO: Qwen2 2, 2.5, 3 and Llama 0, 1, 3.5, so that the contrasts are 2, 1.5, -0.5
    found = families.contrast(runs(), "agpo", "tiny-qwen2-a", "tiny-llama")
    assert found.tolist() == pytest.approx([2.0, 1.5, -0.5])
    row = families.between(runs(), ["agpo"]).iloc[0]
    assert (row["one"], row["other"]) == STARTS[:2] and row["mean"] == pytest.approx(1.0)
    # s = sqrt((1 + 0.25 + 2.25) / 2), and the half-width is 4.303 s / sqrt(3)
    assert row["half"] == pytest.approx(stats.t.ppf(0.975, 2) * math.sqrt(3.5 / 2) / math.sqrt(3))


def test_every_two_families_are_compared_once_and_swapping_them_changes_the_sign():
    found = families.between(runs(), ["agpo"])
    assert len(found) == 3 and (found["tests"] == 3).all()
    back = families.contrast(runs(), "agpo", "tiny-llama", "tiny-qwen2-a")
    assert (back + families.contrast(runs(), "agpo", "tiny-qwen2-a", "tiny-llama")).abs().max() < 1e-9


def test_a_verdict_in_each_family_is_corrected_over_all_of_them():
    found = families.cells(runs(), [Pair("agpo", "grpo", claims=("a claim",))]).set_index("start")
    p = {start: stats.ttest_1samp(families.gap(runs(), "agpo", start), 0).pvalue for start in STARTS}
    low, middle, high = sorted(p.values())
    expected = {low: 3 * low, middle: max(3 * low, 2 * middle), high: max(3 * low, 2 * middle, high)}
    for start in STARTS:
        assert found.loc[start, "p_holm"] == pytest.approx(min(expected[p[start]], 1.0))
    # 2, 2.5, 3 has t = 8.7, p = .013; three times that is below .05. -2, -3, -2 has t = -7, p = .020, twice that too.
    assert found["verdict"].tolist() == ["supported", "inconclusive", "contradicted"]


def test_over_families_is_the_interval_of_their_own_means():
    found = families.over_families(runs(), "agpo")
    assert found.n == 3 and found.mean == pytest.approx((2.5 + 1.5 - 7 / 3) / 3)


def test_adding_a_constant_to_a_family_changes_no_difference():
    moved = runs()
    moved.loc[moved["start"] == "tiny-llama", "macro"] += 0.1
    pd.testing.assert_frame_equal(families.between(moved, ["agpo"]), families.between(runs(), ["agpo"]))


def test_a_share_of_grpos_gain_is_a_hundred_percent_where_an_arm_equals_grpo():
    table = runs()
    grpo = table[table["arm"] == "grpo"].assign(arm="agpo")
    shares = families.levels(pd.concat([table[table["arm"] != "agpo"], grpo]))["gain of AGPO, % of GRPO's"]
    assert set(shares) == {"100"}


def test_one_seed_gives_means_and_no_interval_or_verdict():
    one = runs(seeds=1)
    assert families.between(one, ["agpo"])["half"].isna().all()
    assert families.cells(one, [Pair("agpo", "grpo", claims=("a claim",))])["verdict"].eq("inconclusive").all()
    results = Results(one, pd.DataFrame(columns=["arm"]), {})
    assert "One seed gives no interval" in families.of_table3(results).replace("\n   ", " ")


def test_answers_name_what_was_not_run_and_the_families_beside_each_other():
    results = Results(runs(), pd.DataFrame(columns=["arm"]), {})
    first, second, third, fourth = families.of_table3(results).replace("\n   ", " ").splitlines()
    assert "Qwen2 50.0 %, Llama 46.0 %, Gemma-2 42.0 %, 8.0 points apart" in first and "another order" in first
    assert "below GRPO in 1 of 3 families, farthest from it on Qwen2; 2 of the intervals exclude zero" in second
    assert "Qwen2 − Llama +1.0" in third and "no record of several starts" in fourth
    without = Results(runs()[lambda table: table["arm"] != "agpo"], pd.DataFrame(columns=["arm"]), {})
    assert families.of_table3(without).count("not run: AGPO") == 3


def test_where_another_start_would_lie_is_the_prediction_interval_over_starts():
    found = families.another_start(Results(runs(seeds=1), None, {}), "agpo")
    gaps = paired(runs(seeds=1), "agpo", "grpo")  # 2, 0, -2: s = 2
    assert found.mean == pytest.approx(gaps.mean()) == pytest.approx(0.0)
    assert found.half == pytest.approx(stats.t.ppf(0.975, 2) * 2 * math.sqrt(1 + 1 / 3))
