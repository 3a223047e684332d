"""Speeds and times to a target: worked by hand, and recomputed from the record in another way."""

import math

import numpy as np
import pandas as pd
import pytest

from agpo_core.experiments import profiles, records, throughput, throughput_reading
from agpo_core.experiments import time_to_target as ttt
from agpo_core.experiments.records import Results

PARAMS = profiles.settings("agpo_table2_throughput", "tiny")
RECORD = records.load("methods_overview", "tiny")
recorded = pytest.mark.skipif(RECORD is None, reason="there is no record")


def test_a_probe_makes_more_tokens_a_second_and_trains_on_fewer():
    # E = 2 epochs and a reference: 3 + 1 + 6 = 10 passes for a token that is trained on, 1 for a probe's
    found = throughput.counted(PARAMS, "agpo")
    assert found["generated"] == pytest.approx(10 / 5.5) and found["trained"] == pytest.approx(10 / 11)
    assert throughput.counted(PARAMS, "grpo") == {"generated": 1.0, "trained": 1.0}
    assert throughput.counted(PARAMS, "ppo_critic")["generated"] == pytest.approx(10 / 17)  # and 1 + 6 of the critic


def test_the_more_epochs_the_nearer_the_two_are_to_two_and_one():
    few, many = (throughput.counted(PARAMS | {"epochs": epochs}, "agpo") for epochs in (1, 50))
    assert 1 < few["generated"] < many["generated"] < 2 and 0.5 < few["trained"] < many["trained"] < 1


def test_a_share_of_sampling_gives_back_the_ratio_it_came_from():
    for share in (0.0, 0.3, 1.0):
        ratio = 1 / (share + (1 - share) / 2)
        assert throughput_reading.sampling_share(ratio) == pytest.approx(share)
    assert throughput_reading.sampling_share(0.97) > 1  # no share gives a ratio below one


def evaluations(dev, updates=(0, 10, 20), arm="grpo", seed=1) -> pd.DataFrame:
    table = pd.DataFrame({"update": updates, "dev": dev, "arm": arm, "seed": seed, "start": "a"})
    return table.assign(generated=100.0 * table["update"], passes=1000.0 * table["update"], quiet=np.nan, rate=1.0)


def test_a_time_lies_on_the_straight_line_and_between_two_evaluations():
    found = ttt.times(evaluations([0.4, 0.6, 0.7]), 0.65).iloc[0]
    assert found["update"] == pytest.approx(15) and found["generated"] == pytest.approx(1500)
    assert (found["update_low"], found["update_high"]) == (10, 20)


def test_the_first_crossing_counts_and_a_run_that_never_crosses_has_no_time():
    assert ttt.times(evaluations([0.4, 0.6, 0.3]), 0.5).iloc[0]["update"] == pytest.approx(5)
    assert math.isnan(ttt.times(evaluations([0.4, 0.6, 0.7]), 0.71).iloc[0]["update"])
    assert ttt.times(evaluations([0.4, 0.6, 0.7]), 0.4).iloc[0]["update"] == 0


def test_the_target_lies_a_share_of_the_way_from_the_starts_to_grpos_end():
    seen = pd.concat([evaluations([0.4, 0.6, 0.7]), evaluations([0.5, 0.6, 0.8], seed=2)])
    assert ttt.target(seen, 0.0) == pytest.approx(0.45) and ttt.target(seen, 1.0) == pytest.approx(0.75)
    assert ttt.target(seen, 0.5) == pytest.approx(0.6)


def test_an_order_is_certain_only_where_the_evaluations_do_not_overlap():
    early = evaluations([0.4, 0.6, 0.7], arm="agpo")
    apart, touching = evaluations([0.4, 0.45, 0.7]), evaluations([0.4, 0.6, 0.7])
    for other, sure in ((apart, 1), (touching, 0)):
        found = ttt.times(pd.concat([early, other]), 0.5)
        assert ttt.certain(found, "agpo", "grpo", "update") == sure


def test_a_ratio_leaves_out_pairs_that_do_not_both_arrive_and_counts_them():
    table = pd.concat(
        [evaluations([0.4, 0.6, 0.8], seed=seed) for seed in (1, 2)]
        + [evaluations([0.4, 0.8, 0.8], arm="agpo"), evaluations([0.4, 0.5, 0.5], arm="agpo", seed=2)]
    )
    row = ttt.sweep(table, [("agpo", "grpo", "update")], shares=(0.5,)).iloc[0]
    # the target is 0.6: GRPO is there after 10 updates, AGPO of seed 1 after 5, of seed 2 never
    assert row["ratio"] == pytest.approx(0.5) and (row["n"], row["pairs"]) == (1, 2)


@recorded
def test_the_last_evaluation_has_spent_what_the_run_has():
    seen = ttt.points(RECORD.only(["grpo", "agpo"]))
    last = seen.sort_values("update").groupby(throughput.KEY).last()
    runs = RECORD.runs.drop_duplicates(throughput.KEY).set_index(throughput.KEY).loc[last.index]
    assert np.allclose(last["generated"], runs["tokens_train"] + runs["tokens_probe"])
    assert np.allclose(last["passes"], 10 * runs["tokens_train"] + runs["tokens_probe"])


@recorded
def test_a_recorded_ratio_is_the_geometric_mean_over_pairs():
    runs = RECORD.runs.drop_duplicates(throughput.KEY).set_index(["arm", "seed"])
    speed = (runs["tokens_train"] + runs["tokens_probe"]) / runs["seconds"]
    each = [speed["agpo", seed] / speed["grpo", seed] for seed in speed["grpo"].index]
    found = throughput.ratios(RECORD.only(["grpo", "agpo"]))
    row = found[(found["arm"] == "agpo") & (found["kind"] == "generated") & (found["measure"] == "recorded")]
    assert row["ratio"].item() == pytest.approx(math.prod(each) ** (1 / len(each)))


@recorded
def test_arms_from_another_record_come_without_seconds_and_make_no_speed():
    results = throughput.with_matched(RECORD.only(["start", "grpo", "agpo"]))
    arms = {"grpo_matched_updates", "grpo_matched_compute"}
    assert arms <= set(results.runs["arm"])
    assert not arms & set(throughput.speeds(results).index.get_level_values("arm"))
    changed = Results(RECORD.runs, RECORD.traces, RECORD.meta | {"params": RECORD.meta["params"] | {"beta": 0.1}})
    assert throughput.with_matched(changed) is changed


@recorded
def test_the_shorter_run_has_decayed_where_it_ends_and_the_longer_one_has_not():
    seen = ttt.points(throughput.with_matched(RECORD.only(["start", "grpo", "agpo"])))
    found = ttt.two_horizons(seen)
    assert len(found) == 6 and found["rate_short"].abs().max() < 1e-6 and found["rate_long"].min() > 0.4


@recorded
def test_nothing_is_claimed_of_what_was_not_run_and_every_claim_has_its_parts():
    only = RECORD.only(["start", "grpo"])
    text = throughput.verdict_text((14, 15), *throughput_reading.statements(only, ttt.points(only)))
    assert text.count("verdict    not run") == 5 and "claim 14" in text and "claim 15" in text
    answers = throughput_reading.of_table2(only, ttt.points(only))
    assert answers.count("not run: AGPO") == 3 and answers.count("Not answered") == 4


def test_the_papers_columns_multiply_to_more_tokens_than_the_budget():
    found = throughput_reading.tokens_at_target()["tokens at the target, M"]
    assert found["GRPO (fixed ε)"] == pytest.approx(2.73 * 30.9 * 3.6) and found.idxmax() == "GRPO (fixed ε)"
