"""Learned rewards: equality, comparisons at equal KL and the words of two notebooks, on records made by hand."""

import math

import pandas as pd
import pytest
from scipy import stats

from agpo_core.experiments import learned_reward, records, traces
from agpo_core.experiments.learned_reward import GOLD, KL, LENGTH, MARGIN, PAPER, SCORE
from agpo_core.experiments.records import Results

RECORD, WEAK = (records.load(f"rpp_table1_{name}", "tiny") for name in ("general_rlhf", "weak_reward"))


def pairs(values):
    index = pd.MultiIndex.from_tuples([(i, f"s-{i}") for i in range(len(values))], names=["seed", "start"])
    return pd.Series(values, index, dtype=float)


def grade(gold):
    return (gold + 16) / 32


def by_hand(kl_of_grpo=(0.0, 1.0, 3.0), shift=0.0) -> Results:
    """Three seeds; GRPO gains 2 of gold, or a bit more; the paper's arm ends `shift` above it, at half of its KL."""
    runs, points = [], []
    for seed, wobble in ((1, -0.01), (2, 0.0), (3, 0.01)):
        start = f"s-{seed}"
        for arm in ("start", "grpo", PAPER):
            gold = 1.0 + 0.1 * seed if arm == "start" else 3.0 + 0.1 * seed + (shift + wobble) * (arm == PAPER)
            length = 6.0 - (0.5 + wobble) * (arm == PAPER)
            key = {"arm": arm, "seed": 0 if arm == "start" else seed, "start": start}
            kl = {"start": 0.0, "grpo": kl_of_grpo[-1], PAPER: kl_of_grpo[-1] / 2}[arm]
            sampled = {"gold": grade(gold), "score": gold / 2, "kl": kl, "length": length}
            runs.append({**key, "task": "t", "macro": 0.5, **{f"sampled_{name}": v for name, v in sampled.items()}})
            for i, distance in enumerate(kl_of_grpo) if arm != "start" else ():
                half = distance / 2 if arm == PAPER else distance
                reached = grade(1.0 + 0.1 * seed + i)  # of both alike
                line = {"dev_gold": reached, "dev_score": 1.0 * i, "dev_kl": half, "dev_length": length}
                points.append({**key, "update": 10 * i, "progress": i / 2, "reward": 1.0 + i + wobble, **line})
    meta = {"profile": "tiny", "params": {}}
    return Results(pd.DataFrame(runs), pd.DataFrame(points), meta)


def test_equality_is_two_one_sided_tests_on_numbers_of_each_pair():
    d, g = pairs([0.02, -0.04, 0.05, 0.01]), pairs([1.0, 1.2, 0.9, 1.1])
    found = learned_reward.equality(d, g)
    wanted = max(stats.ttest_1samp(side, 0, alternative="greater").pvalue for side in (d + 0.1 * g, 0.1 * g - d))
    assert found.p == pytest.approx(wanted)
    half = stats.t.ppf(0.95, 3) * d.std() / 2
    assert (found.low, found.high) == pytest.approx((0.01 - half, 0.01 + half))
    assert found.gain == pytest.approx(1.05)


@pytest.mark.parametrize(
    ("moved", "verdict"), [(0.0, "supported"), (0.05, "supported"), (0.11, "inconclusive"), (0.5, "contradicted")]
)
def test_a_difference_may_be_shown_and_yet_be_smaller_than_the_margin(moved, verdict):
    d = pairs([0.01, -0.01, 0.02, -0.02, 0.0]) + moved
    found = learned_reward.equality(d, pairs([1.0] * 5))
    assert found.verdict == verdict
    assert (found.difference.low > 0) == (moved > 0.02)  # whatever the verdict


def test_equality_is_shown_from_the_smallest_share_on():
    d, g = pairs([0.01, -0.01, 0.02, -0.02]), pairs([1.0, 1.0, 1.0, 1.0])
    # the 90 % interval is ± 2.353 · .01826 / 2 = .0215
    assert learned_reward.equality(d, g).shown_from == 0.03
    assert learned_reward.equality(d, g, share=0.02).verdict == "inconclusive"


def test_without_a_gain_or_without_pairs_nothing_is_decided():
    d = pairs([0.01, -0.01, 0.02])
    assert learned_reward.equality(d, pairs([-1.0, -1.1, -0.9])).verdict == "inconclusive"
    assert learned_reward.equality(d[:0], d[:0]).verdict == "not run"
    assert math.isnan(learned_reward.equality(d[:1], pairs([1.0])).p)


def test_a_run_is_read_where_it_first_reaches_a_kl():
    kl, values = [0.0, 1.0, 2.0, 1.5, 3.0], [0.0, 10.0, 30.0, 20.0, 50.0]
    assert learned_reward.at_crossing(kl, values, 0.0) == 0.0
    assert learned_reward.at_crossing(kl, values, 1.75) == 25.0  # not on the way down
    assert learned_reward.at_crossing(kl, values, 2.5) == pytest.approx(20 + 30 * 2 / 3)
    assert math.isnan(learned_reward.at_crossing(kl, values, 4.0))


def test_the_common_kl_is_the_smallest_of_the_largest_and_no_reward_enters_it():
    results = by_hand(kl_of_grpo=(0.0, 4.0, 2.0))  # GRPO reached 4 and came back; the other reached 2
    found = learned_reward.at_equal_kl(results, ("grpo", PAPER))
    assert (found[KL] == 2.0).all()
    # GRPO is half-way to its second evaluation, the other at it: gains of .5 and 1, and progress of .25 and .5
    gaps = learned_reward.equal_kl_gaps(results)[PAPER]
    assert gaps[GOLD].tolist() == pytest.approx([0.5] * 3) and gaps[SCORE].tolist() == pytest.approx([0.5] * 3)
    assert found["progress"].groupby("arm").first().to_dict() == {"grpo": 0.25, PAPER: 0.5}
    changed = Results(results.runs, results.traces.assign(dev_gold=0.1, dev_score=7.0), results.meta)
    assert (learned_reward.at_equal_kl(changed, ("grpo", PAPER))[KL] == 2.0).all()


def test_the_start_is_paired_by_start_alone():
    values = learned_reward.outcomes(by_hand())
    assert learned_reward.gap(values, GOLD, "grpo", "start").tolist() == pytest.approx([2.0] * 3)
    assert learned_reward.gap(values, LENGTH, PAPER).tolist() == pytest.approx([-0.49, -0.5, -0.51])
    assert learned_reward.gap(values, GOLD, "rloo").empty


def test_the_claim_of_equality_is_about_gold_and_the_papers_arm():
    text = learned_reward.equality_text(learned_reward.equalities(by_hand(shift=0.05)))
    assert text.count("  verdict    ") == 1 and "equal, supported" in text.split("  asks")[0]
    assert "REINFORCE++ (k = 1): 46.7; GRPO: 46.8" in text and f"{MARGIN:.0%} of what GRPO gains" in text
    assert "not equal, contradicted" in learned_reward.equality_text(learned_reward.equalities(by_hand(shift=-1.0)))
    assert "an arm was not run" in text  # REINFORCE++ (k > 1)


def test_claim_37_is_judged_by_length_and_a_missing_row_is_told():
    results = by_hand()
    parts = learned_reward.parts_of_length(results, Results())
    judged = traces.judge_parts(parts)
    assert judged["verdict"].tolist() == ["supported", "not run"]
    assert judged["mean"].iloc[0] == pytest.approx(0.5)
    assert "no run has it" in traces.claim_text(37, judged, parts)


def test_claim_38_is_judged_by_the_last_quarter_of_the_reward_and_by_the_kl_at_the_end():
    results = by_hand()
    results.traces.loc[results.traces["arm"] == "grpo", "reward"] += 1.0
    reward, kl = traces.judge_parts(learned_reward.parts_of_fig2(results, Results()))["mean"].iloc[:2]
    assert reward == pytest.approx(1.0) and kl == pytest.approx(1.5)  # 3 less half of it
    ratio = learned_reward.controls_of_fig2(results)[0].values
    assert ratio.tolist() == pytest.approx([math.log(2)] * 3)


def test_what_comes_later_is_the_end_less_the_middle():
    assert learned_reward.later(by_hand(), "grpo", GOLD).tolist() == pytest.approx([1.0] * 3)


def test_answers_name_what_was_not_run_and_count_in_the_notebooks_order():
    text = learned_reward.of_table1(by_hand(shift=0.2), Results())
    assert "ends +0.20\u00a0±" in text.replace("\n   ", " ") and "That is +10%" in text.replace("\n   ", " ")
    assert "3. Not answered, because not run: GRPO, k1 in the reward" in text and "4. Not answered" in text
    # GRPO's KL is twice the other's in every pair, so that there is no interval
    assert "GRPO's is 2.00 times" in learned_reward.of_fig2(by_hand(), Results()).replace("\n   ", " ")
    assert learned_reward.of_fig2(Results(), Results()).count("Not answered") == 3


@pytest.mark.skipif(RECORD is None, reason="there is no record")
def test_the_tables_of_the_record_have_its_differences():
    values = learned_reward.outcomes(RECORD)
    table = learned_reward.outcome_table(RECORD)
    wanted = learned_reward.gap(values, GOLD, "reinforce_pp_k").mean()
    assert table.loc["REINFORCE++ (k > 1) − GRPO", "gold"].startswith(f"{wanted:+.2f}")
    effects = learned_reward.effects_table(values)
    of = values[GOLD].unstack("arm")
    square = (of["reinforce_pp_k"] - of["reinforce_pp_k_k3_loss"]) - (of["grpo_k1_reward"] - of["grpo"])
    assert effects.loc["interaction", GOLD].startswith(f"{square.mean():+.2f}")
    assert learned_reward.effects_table(learned_reward.outcomes(RECORD.only(["grpo", "start"]))).empty
    assert len(learned_reward.equal_kl_table(RECORD)) == RECORD.runs["arm"].nunique() - 2
    assert list(learned_reward.square_at_equal_kl(RECORD).index) == list(effects.index)
