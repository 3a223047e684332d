"""The table of an evaluation's lines: each metric worked out by hand."""

import math

import pytest

from agpo_core.evaluation.evaluation_table import COLUMNS, POINT, table, text, values_of


def line(rewards, answers=None, gold="7", **more):
    k = len(rewards)
    given = {"tokens": [10] * k, "truncated": [False] * k, "too_long": False, "seconds": 0.5}
    return {"rewards": rewards, "answers": answers or [None] * k, "gold": gold} | given | more


def described(k, tau, p=1.0):
    return {"model": "m", "k": k, "tau": tau, "p": p, "prompt": "zero", "template": "base", "grading": "modern"}


def test_four_samples_give_the_mean_the_tries_and_the_vote():
    lines = [
        line([1.0, 1.0, 0.0, 0.0], ["7", "7", "8", None]),
        line([0.0, 1.0, 0.0, 0.0], ["8", "7", "8", "9"]),
        line([0.0, 0.0, 0.0, 0.0], ["7.0", None, None, None]),  # no completion is right: no key is gold's
    ]
    found = values_of(lines, greedy=False)
    assert list(found) == ["avg@4", "pass@2", "pass@4", "maj@4"]
    assert found["avg@4"] == [0.5, 0.25, 0.0]
    # 1 - C(2, 2) / C(4, 2) = 5 / 6; 1 - C(3, 2) / C(4, 2) = 1 / 2
    assert found["pass@2"] == pytest.approx([5 / 6, 1 / 2, 0.0])
    assert found["pass@4"] == [1.0, 1.0, 0.0]
    assert found["maj@4"] == [1.0, 0.0, 0.0]


def test_a_tie_counts_by_expectation():
    assert values_of([line([1.0, 0.0], ["7", "8"])], greedy=False)["maj@2"] == [0.5]


@pytest.mark.parametrize(("k", "tries"), [(2, [2]), (3, [2, 3]), (4, [2, 4]), (5, [2, 4, 5]), (32, [2, 4, 8, 16, 32])])
def test_tries_are_powers_of_two_and_k(k, tries):
    found = values_of([line([1.0] * k, ["7"] * k)], greedy=False)
    assert [name for name in found if name.startswith("pass")] == [f"pass@{j}" for j in tries]
    assert set(map(tuple, found.values())) == {(1.0,)}


def test_programs_have_no_vote_and_a_share_of_their_tests_is_not_right():
    found = values_of([line([0.5, 1.0], gold="")], greedy=False)
    assert found == {"avg@2": [0.5], "mean reward": [0.75], "pass@2": [1.0]}
    assert values_of([line([0.5, 0.5], gold="")], greedy=False)["pass@2"] == [0.0]
    found = values_of([line([0.25], gold=""), line([1.0], gold="")], greedy=True)
    assert found == {"accuracy": [0.0, 1.0], "mean reward": [0.25, 1.0]}


def test_one_completion_is_accuracy_if_greedy_and_avg_1_if_sampled():
    lines = [line([1.0]), line([0.0])]
    assert values_of(lines, greedy=True) == {"accuracy": [1.0, 0.0]}
    assert values_of(lines, greedy=False) == {"avg@1": [1.0, 0.0]}


def test_a_row_holds_sums_shares_and_an_interval_within_the_values():
    lines = {
        "a": [line([1.0]), line([0.0], truncated=[True]), line([0.0], tokens=[0], too_long=True), line([0.0])],
        "b": [line([1.0, 1.0], ["7", "7"])],
    }
    found = table(lines, {"a": described(1, 0.0), "b": described(2, 1.0, 0.95)})
    assert list(found.columns) == COLUMNS
    a = found.iloc[0]
    assert (a["task"], a["n"], a["metric"], a["value"]) == ("a", 4, "accuracy", 0.25)
    assert (a["truncated"], a["too_long"], a["tokens"], a["seconds"]) == (0.25, 1, 30, 2.0)
    assert 0.0 <= a["low"] < 0.25 < a["high"] <= 1.0
    of_b = found[found["task"] == "b"]
    assert list(of_b["metric"]) == ["avg@2", "pass@2", "maj@2"] and (of_b["p"] == 0.95).all()
    assert of_b["low"].map(math.isnan).all()  # the spread of one problem is unknown
    shown = text(found)
    assert "25.0" in shown and "accuracy" in shown and "[0.0, 75.0]" in shown
    assert POINT not in shown


@pytest.mark.parametrize("reward", [0.0, 1.0])
def test_an_interval_that_is_a_point_has_a_footnote(reward):
    found = table({"a": [line([reward])] * 50}, {"a": described(1, 0.0)})
    assert (found["low"][0], found["high"][0]) == (reward, reward)
    assert text(found).endswith(f"\n\n{POINT}")
