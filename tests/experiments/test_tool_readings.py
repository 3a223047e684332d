"""R++ Table 4 and §5.1: one number a run, silent groups, and the words about them, on records made by hand."""

import math

import pandas as pd
import pytest
import torch

from agpo_core import advantages
from agpo_core.experiments import tool_readings
from agpo_core.experiments.records import Results

ARMS = ("ppo", "grpo", "reinforce_pp", "reinforce_pp_baseline")


def made(curves, logged=True):
    """Runs with these dev scores at updates 0, 2 and 4: {(arm, seed): scores}; seed i from start i."""
    runs, traces = [], []
    for (arm, seed), dev in curves.items():
        key = {"arm": arm, "seed": seed, "start": f"s-{seed}"}
        runs.append({**key, "task": "products", "score": dev[-1], "macro": dev[-1], "updates": 4})
        for update, score in zip((0, 2, 4), dev, strict=True):
            line = {**key, "update": update, "dev": score}
            if update:
                line |= {"tool_calls": score, "tool_failures": 0.25, "tool_share": score, "reward": score}
                line |= {"equal_groups": 1 - 0.1 * update, "grad_norm": 2.0 if arm == "reinforce_pp_baseline" else 1.0}
            traces.append(line)
    for seed in {seed for _, seed in curves}:
        runs.append({"arm": "start", "seed": 0, "start": f"s-{seed}", "task": "products", "score": 0.1, "macro": 0.1})
    for line in traces:
        line["update"] = {0: 0, 2: 1, 4: 2}[line["update"]] if logged == "first" else line["update"]
    traces = pd.DataFrame(traces)
    return Results(pd.DataFrame(runs), traces if logged else traces.drop(columns="equal_groups"), {"profile": "tiny"})


@pytest.fixture
def results():
    return made({(arm, seed): (0.0, 0.2 * seed, 0.2 * seed + 0.1 * i) for i, arm in enumerate(ARMS) for seed in (2, 3)})


def test_a_runs_numbers_by_hand():
    values = tool_readings.per_run(made({("grpo", 2): (0.0, 0.6, 1.0), ("grpo", 3): (0.0, 0.2, 0.4)}))
    # trapezoids over updates 0, 2, 4: (.3 * 2 + .8 * 2) / 4 and (.1 * 2 + .3 * 2) / 4
    assert values["area"].tolist() == pytest.approx([55, 20])
    assert values["waited"].tolist() == [2, 4] and values["reached"].tolist() == [True, False]
    assert values["accuracy"].tolist() == [100, 40]
    assert values["calls"].tolist() == [1.0, 0.4] and values["failed"].tolist() == [25, 25]


def test_gaps_are_paired_by_start_and_listed_for_the_claims_pairs_and_one_more(results):
    gaps = tool_readings.gaps(tool_readings.per_run(results), "reinforce_pp_baseline", "ppo")
    assert gaps["accuracy"].tolist() == pytest.approx([30, 30])
    parts = tool_readings.parts(results)
    assert len(parts) == 2 * len(tool_readings.PAIRS) and all(part.sign == 0 for part in parts)
    assert parts[0].says.startswith("REINFORCE++-baseline less GRPO: area")


def test_the_table_has_the_starts_and_says_how_many_runs_reach_half(results):
    table = tool_readings.table(results)
    assert table.loc["supervised start", "test, %"] == "10.0"
    assert table.loc["GRPO", "runs that reach 50 %"] == "2 of 2"
    assert table.loc["PPO, value head", "runs that reach 50 %"] == "1 of 2"
    assert table.columns.name == "± over starts"


def test_a_silent_group_leaves_the_others_with_the_inverse_root_of_their_share():
    data = tool_readings.by_silence(16, 1, 8)
    of = {arm: rows.reset_index(drop=True) for arm, rows in data.groupby("arm")}
    baseline = of["reinforce_pp_baseline"]
    assert baseline["live"].tolist() == pytest.approx(baseline["law"].tolist())
    # one live group of eight among 128 answers: A' = 7/8, squares add up to 7/8, over 127
    assert baseline["live"].iloc[-1] == pytest.approx(7 / 8 / math.sqrt(7 / 8 / 127))
    assert (baseline["void"].dropna() == 0).all() and (of["grpo"]["void"].dropna() == 0).all()
    assert of["grpo"]["live"].nunique() == 1
    assert (of["reinforce_pp_k"]["void"].dropna() < 0).all()


def test_without_the_groups_mean_it_is_reinforce_pp_on_answers_of_equal_length():
    rewards_P_G = tool_readings.silent_batch(2, 1, 2, 4)
    assert rewards_P_G.tolist() == [[1, 1, 0, 0], [0, 0, 0, 0], [0, 0, 0, 0]]
    mask_B_T = torch.ones(12, 3, dtype=torch.bool)
    expected = advantages.reinforce_pp_advantages(rewards_P_G.flatten(), mask_B_T)
    # per token N is three times as large: the divisor N - 1 differs
    factor = math.sqrt((35 / 36) / (11 / 12))
    found = tool_readings.of_methods(rewards_P_G)["reinforce_pp_k"].flatten() * factor
    assert found.tolist() == pytest.approx(expected[:, 0].tolist())


def test_silence_is_read_from_the_arms_with_groups_and_is_empty_where_it_was_not_logged(results):
    found = tool_readings.silence(results)
    assert set(found["arm"]) == set(tool_readings.GROUPED)
    assert found.loc[found["update"] == 2, "silent"].tolist() == pytest.approx([0.8, 0.8])
    old = made({("grpo", 2): (0.0, 0.6, 1.0)}, logged=False)
    assert tool_readings.silence(old).empty and tool_readings.first_updates(old).empty


def test_the_first_gradients_are_compared_from_the_same_start():
    curves = {(arm, seed): (0.0, 0.2, 0.4) for arm in tool_readings.GROUPED for seed in (2, 3)}
    found = tool_readings.first_updates(made(curves, logged="first"))
    assert found["ratio"].tolist() == [2, 2]
    assert found["law"].tolist() == pytest.approx([0.2**-0.5] * 2)  # a share of .8 is silent


def test_every_prediction_is_answered_or_names_what_was_not_run(results):
    lines = tool_readings.of_table4(results)
    assert [line[:2] for line in lines.splitlines() if line[0].isdigit()] == ["1.", "2.", "3.", "4.", "5."]
    assert "REINFORCE++-baseline less GRPO +20.0" in " ".join(lines.split()).replace("\u00a0", " ")
    assert "Not answered" in tool_readings.of_table4(results.only(["start", "grpo"]))
    assert "between 45.0 and 65.0" not in tool_readings.reading(results.only(["grpo"]))
    assert "the means of the 2 starts between 55.0 and 75.0 %" in " ".join(tool_readings.reading(results).split())
