"""The records show what they are said to show."""

import itertools
import math
from fractions import Fraction

import pandas as pd
import pytest

from agpo_core import paths, provenance
from agpo_core.config import TrainConfig
from agpo_core.experiments import records
from agpo_core.experiments.grid import ARMS
from agpo_core.recipes import RECIPES


@pytest.fixture(scope="module")
def traces():
    """The traces of the records in which every recipe was trained."""
    names = ("methods_overview", "agpo_table4_signal_ablation", "agpo_table5_robust_dispersion", "mixed_scaling")
    there = [name for name in names if (paths.reference() / "tiny" / name).is_dir()]  # the others fail their recipes
    found = [records.load(name, "tiny").traces for name in there]
    traces = pd.concat(found, ignore_index=True)
    traces = traces.drop_duplicates(["arm", "seed", "start", "update"])  # AGPO's runs stand in several records
    return traces.assign(method=[ARMS[arm].method for arm in traces["arm"]])


@pytest.mark.parametrize("method", RECIPES)
def test_every_recipe_learns_for_three_seeds_or_more(traces, method):
    runs = list(traces[traces["method"] == method].groupby(["seed", "start"]))
    assert len({seed for (seed, _), _ in runs}) >= 3
    for run, trace in runs:
        dev = trace["dev"].dropna()
        assert dev.iloc[-1] > dev.iloc[0], run
        reward = trace["reward"].dropna()
        third = len(reward) // 3
        if method != "dpo":  # offline: it draws its rollouts once
            assert reward[-third:].mean() > reward[:third].mean(), run


@pytest.mark.parametrize(("sizes", "rows"), [(4, [4, 4]), ({"a": 8, "b": 5}, [8, 5])])
def test_a_row_has_the_number_of_its_own_tasks_problems(sizes, rows):
    test = {"macro": 0.5, "problems": sizes, "score": {"a": 0.25, "b": 0.75}}
    found = records._run_rows({}, [], {"test": test}, TrainConfig(), {"hash": ""})
    assert [row["problems"] for row in found] == rows


def test_the_kept_samples_are_the_first_of_a_runs_first_and_last_update(tmp_path):
    for update, completion in ((1, "a"), (1, "b"), (1, "c"), (2, "d"), (3, "e"), (3, "f"), (3, "g")):
        provenance.append_jsonl(tmp_path / "samples.jsonl", {"update": update, "completion": completion})
    kept = records._first_and_last(tmp_path, 2)
    assert [line["completion"] for line in kept] == ["a", "b", "e", "f"]
    assert records._first_and_last(tmp_path, 0) == [] == records._first_and_last(tmp_path / "nowhere", 2)


def test_samples_of_arms_that_are_not_shown_are_left_out():
    meta = {"samples": [{"arm": "grpo", "completion": "a"}, {"arm": "agpo", "completion": "b"}], "warnings": []}
    assert records.Results(meta=meta).only(["agpo"]).meta["samples"] == [{"arm": "agpo", "completion": "b"}]


# -- majority votes


def by_enumeration(counts, samples, k):
    """The share of all choices of k completions whose vote answer 0 wins; a tie of m answers counts 1 / m."""
    ballots = [answer for answer, count in enumerate(counts) for _ in range(count)]
    ballots += [None] * (samples - len(ballots))
    total, choices = Fraction(0), list(itertools.combinations(ballots, k))
    for choice in choices:
        tally = [choice.count(answer) for answer in range(len(counts))]
        if 0 < tally[0] == max(tally):
            total += Fraction(1, tally.count(max(tally)))
    return total / len(choices)


def test_majorities_by_hand():
    # Of four samples: first problem, three right, one wrong; second, one right, two for one wrong answer, one silent.
    # maj@1: 3/4 and 1/4. maj@4: 1 and 0. The second loses 1/4, and the mean over both is 1/8.
    found = records.majorities([[3, 1], [1, 2]], 4)
    assert found == pytest.approx({"maj_1": 0.5, "maj_4": 0.5, "maj_loss": 0.125})
    # No larger vote than one sample: nothing is lost.
    assert records.majorities([[3], [0, 2]], 3) == pytest.approx({"maj_1": 0.5, "maj_loss": 0.0})


@pytest.mark.parametrize(
    "votes", [[[2, 3, 1], [0, 3], [0], [6]], [[1, 1, 1, 1, 1, 1, 1], [7], [2, 2, 2]], [[4, 3], [3, 4], [3, 3]]]
)
def test_majorities_are_those_of_every_choice_of_samples(votes):
    found = records.majorities(votes, 7)
    chances = {k: [by_enumeration(counts, 7, k) for counts in votes] for k in (1, 4)}
    assert set(found) == {"maj_1", "maj_4", "maj_loss"}
    for k, of_problems in chances.items():
        assert found[f"maj_{k}"] == pytest.approx(float(sum(of_problems) / len(votes)), abs=1e-12)
    lost = sum(max(Fraction(0), one - four) for one, four in zip(chances[1], chances[4], strict=True))
    assert found["maj_loss"] == pytest.approx(float(lost / len(votes)), abs=1e-12)


def test_majorities_of_sixteen_samples_are_those_of_every_choice():
    votes = [[5, 6, 3], [9, 4, 1, 1]]
    found = records.majorities(votes, 16)
    assert list(found) == ["maj_1", "maj_4", "maj_16", "maj_loss"]
    for k in (4, 16):
        assert found[f"maj_{k}"] == pytest.approx(float(sum(by_enumeration(c, 16, k) for c in votes) / 2), abs=1e-12)
    assert math.isclose(found["maj_16"], 0.5)


def test_a_row_holds_the_votes_where_the_run_counted_them():
    point = {"score": {"a": 0.5}, "samples": 4, "right": {"a": [3, 1]}}
    old = records._scores(point, "a")
    assert old == pytest.approx({"score": 0.5, "pass_1": 0.5})  # a run that counted no votes
    new = records._scores(point | {"votes": {"a": [[3, 1], [1, 2]]}}, "a", "train_")
    assert new == pytest.approx(
        {"train_score": 0.5, "train_pass_1": 0.5, "train_maj_1": 0.5, "train_maj_4": 0.5, "train_maj_loss": 0.125}
    )


def test_more_samples_than_the_metric_takes_give_no_majorities():
    assert records.majorities([[2000]], 2000) == {}
