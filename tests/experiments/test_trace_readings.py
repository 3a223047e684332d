"""What the notebooks of Figs. 3 and 4 say is computed from the runs that they show."""

import pytest

from agpo_core.experiments import published, records, trace_readings, traces
from agpo_core.experiments.records import Results


@pytest.fixture(scope="module")
def table1():
    return records.load("agpo_table1_main_results", "tiny")


@pytest.fixture(scope="module")
def overview():
    return records.load("methods_overview", "tiny")


def sentences(text: str) -> list[str]:
    """The answers, each on one line."""
    return text.replace("\n   ", " ").splitlines()


def test_the_answers_on_fig_3_are_the_numbers_of_their_runs(table1):
    entropy, drift, floor, fall = sentences(trace_readings.of_fig3(table1, table1))
    updates, params = traces.updates_of(table1.traces, "agpo"), table1.meta["params"]
    factor = (updates["epsilon_raw"] / (params["epsilon_base"] * updates["entropy"])).mean()
    assert entropy.startswith(f"1. The factor beside ε_base H is {factor:.2f} on average")
    assert f"H explains {100 * traces.shares(updates, params)['H'].mean():.1f}\u00a0±" in entropy
    below = traces.denominator(updates, params)
    assert drift.count(f"runs of AGPO {(below['D̂'] / below['sum']).mean():.2%} on average") == 2
    # ε_min H / ε is the entropy at the floor
    assert f"H = {(0.05 * updates['entropy'] / updates['epsilon_raw']).min():.2f} to" in floor
    assert "in 0 of 6 runs" in floor and "AGPO, β" not in floor
    assert "the step KL falls in GRPO from" in fall and "(the learning rate to 7%)" in fall


def test_a_run_at_the_floor_is_told_with_its_update(table1):
    pinned = table1.traces.copy()
    pinned.loc[(pinned["arm"] == "agpo") & (pinned["update"] >= 9) & (pinned["seed"] < 3), "epsilon"] = 0.05
    text = trace_readings.the_floor(Results(table1.runs, pinned, table1.meta))
    assert "its floor in 2 of 6 runs, for the first time in update 9." in text


def test_the_answers_on_fig_4_are_the_numbers_of_their_runs(overview):
    baseline, warm_up, debiased, reward, after = sentences(trace_readings.of_fig4(overview, overview))
    updates = traces.probed(overview.traces, "agpo")
    assert "AGPO 56% (56%, 17 updates)" in baseline  # 1 - .95^16
    share = traces.explained(updates, traces.warm_up(updates, overview.meta["params"])).mean()
    assert f"AGPO {100 * share:.0f}\u00a0±" in warm_up and "GRPO + ATS" not in warm_up
    assert f"{updates['tau'].min():.2f} to {updates['tau'].max():.2f} as it was" in debiased
    values = traces.lagged(updates, "tau", "reward", 0)
    assert f"{traces.correlation_text(values)} at lag 0" in reward
    assert after.startswith("5. In the 17 updates of the long runs of AGPO")


def test_what_was_not_run_is_named(table1, overview):
    assert sentences(trace_readings.of_fig3(table1, Results()))[2] == "3. Not answered, because not run: AGPO."
    assert "5. Not answered" in trace_readings.of_fig4(overview, Results())
    assert trace_readings.of_fig3(Results(), Results()).count("Not answered") == 4


def test_the_statements_are_those_of_their_claims_and_controls_claim_nothing(table1, overview):
    says = {claim.number: claim.says for claim in published.claims()}
    assert "bounded" in says[18] and "heats early" in says[19]
    parts, others = trace_readings.parts_of_fig3(table1), trace_readings.controls_of_fig3(table1)
    assert [part.sign for part in parts] == [-1, -1, -1] and [part.sign for part in others] == [0]
    change = traces.change(traces.updates_of(table1.traces, "agpo"), "epsilon")
    assert traces.judge_parts(parts)["mean"].iloc[0] == pytest.approx(change.mean())
    heat = trace_readings.parts_of_fig4(overview, overview)
    assert [part.sign for part in heat] == [1, -1, -1] * 2 and len(
        trace_readings.parts_of_fig4(overview, Results())
    ) == 3
    left = trace_readings.controls_of_fig4(overview, Results())
    assert [part.sign for part in left] == [0, 0]
    judged = traces.judge_parts(heat + left)
    assert trace_readings.reading(judged).startswith("- Of 6 statements at this scale: ")


def test_a_grid_without_agpo_has_statements_that_are_not_run(table1):
    judged = traces.judge_parts(trace_readings.parts_of_fig3(table1.only(["grpo"])))
    assert set(judged["verdict"]) == {"not run"}
    assert trace_readings.controls_of_fig3(table1.only(["grpo"])) == []
