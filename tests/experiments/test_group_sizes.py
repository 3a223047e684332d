"""Prompts or rollouts: the sizes of the arms, what their batches held, and the paired differences."""

import math

import pandas as pd
import pytest

from agpo_core.comparison import macro
from agpo_core.experiments import group_sizes, plots, profiles
from agpo_core.experiments.group_sizes import BATCH, GROUP, SWEEP
from agpo_core.experiments.records import Results

NAME = "beyond_prompts_or_rollouts"
PARAMS = profiles.settings(NAME, "tiny")


@pytest.fixture(scope="module")
def results(trained):
    found = trained(NAME, PARAMS | {"run_mode": "train", "horizon": 15_000.0})
    extra = {"equal_groups": 0.6, "reward_std": 0.5, "reference_kl": 0.01}  # an invented run does not log these
    found.traces = found.traces.assign(**extra)
    return found


def test_every_arm_of_the_experiment_stands_under_one_baseline_with_its_size():
    assert set(group_sizes.FAMILY) | {"start"} == set(PARAMS["methods"])
    sizes = {baseline: [group_sizes.size(arm, PARAMS) for arm in arms] for baseline, arms in SWEEP.items()}
    assert sizes == {"GRPO": [2, 4, 8], GROUP: [2, 4, 8], BATCH: [1, 2, 4, 8]}


def test_every_arm_has_as_many_rollouts_an_update(results):
    table = group_sizes.by_size(results)
    assert (table["G"] * table["P"] == 288).all() and len(table) == 10
    assert list(group_sizes.score_table(results).columns) == [
        f"G = {G}, {288 // G} prompts" for G in (1, 2, 4, 8)
    ]  # fmt: skip


def test_the_difference_of_differences_is_that_of_four_arms(results):
    scores = macro(results.runs)
    by_hand = (scores["batch_mean_2"] - scores["baseline_2"]) - (
        scores["batch_mean_8"] - scores["reinforce_pp_baseline"]
    )
    asked = group_sizes.contrasts(results)
    assert asked["both"].values.sort_index().tolist() == pytest.approx(by_hand.sort_index().tolist())
    assert len(asked) == 10 and not any(part.sign for part in asked.values())


def test_without_the_pairs_nothing_is_asked_of_them(results):
    asked = group_sizes.contrasts(results.only(["grpo", "reinforce_pp_baseline", "batch_mean_8"]))
    assert list(asked) == ["mean 8", "divisor 8"]


def test_a_signal_is_left_in_the_groups_that_differ_and_everywhere_under_the_batchs_mean(results):
    table = group_sizes.batches(results)["with a signal"]
    assert table["REINFORCE++-baseline, G = 2"] == f"{288 * 0.4:.0f}" and table["batch's mean, G = 2"] == "288"


def test_the_variance_within_prompts_is_half_of_the_pairs_that_differ():
    rows = [
        {"arm": "baseline_2", "seed": 1, "start": "a", "update": u, "equal_groups": e, "reward_std": 0.5}
        for u, e in ((0, math.nan), (1, 0.6), (2, 0.8))
    ]
    runs = pd.DataFrame([{"arm": "baseline_2", "seed": 1, "start": "a", "task": "steps", "macro": 0.5}])
    found = group_sizes.variances(Results(runs, pd.DataFrame(rows), {"params": PARAMS}))
    # (.4 + .2) / 2 / 2 = .15 of .25
    assert found.loc[("baseline_2", 1, "a"), ["within", "between"]].tolist() == pytest.approx([0.15, 0.10])


def test_the_answers_and_the_reading_are_of_these_runs(results):
    text = group_sizes.answers(results)
    assert text.count("\n") >= 4 and "nan" not in text
    assert "115 (60% of groups silent)" in text.replace("\n   ", " ")
    # W = .4 / 2, B = .25 - .2: 1 + 4
    assert "above G = 5.0" in text.replace("\n   ", " ")
    assert group_sizes.reading(results).count("- G = ") == 3


def test_an_arm_that_was_not_run_is_named_in_the_answers(results):
    text = group_sizes.answers(results.only(["start", "grpo"]))
    assert "Not answered, because not run: REINFORCE++-baseline, G = 2" in text


def test_the_figures_draw_the_table(results):
    figure, drawn = plots.group_size_scores(results)
    assert len(drawn) == 10 and drawn["pairs"].gt(0).sum() == 6
    assert plots.alt.group_size_scores(drawn).endswith(".")
    scores, _ = figure.axes
    assert scores.get_xticklabels()[0].get_text() == "1\n288 prompts"


def test_the_worth_is_drawn_for_both_means_and_both_kinds_of_prompts():
    _, drawn = plots.group_mean_worth(0.2, 0.05)
    runs = drawn[(drawn["prompts"] == "runs") & (drawn["G"] == 5)].set_index("mean")["worth"]
    assert runs["group"] == pytest.approx(0.8) and runs["batch"] == pytest.approx(0.8)
    assert "80% as in these runs" in plots.alt.group_mean_worth(drawn)
