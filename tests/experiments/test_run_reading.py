"""How a run's log is read: the glossary, the rule of thumb, and what the recorded lesson says."""

import pandas as pd
import pytest

from agpo_core.experiments import records, run_reading
from agpo_core.experiments.records import Results
from agpo_core.metrics import LOGGED


@pytest.fixture(scope="module")
def results():
    return records.load("learn_04_reading_a_run", "tiny")


def test_every_logged_metric_stands_in_one_group():
    grouped = [name for names in run_reading.GROUPS.values() for name in names]
    assert sorted(grouped) == sorted(LOGGED)
    assert len(run_reading.glossary().splitlines()) == 2 + len(LOGGED)


@pytest.mark.parametrize(
    ("first", "reward", "equal", "kind"),
    [
        (0.4, 0.5, 0.1, "healthy"),
        (0.4, 0.2, 0.1, "healthy"),  # half is not below half
        (0.4, 0.19, 0.7, "collapsed"),
        (0.0, 0.0, 1.0, "no signal"),
        (0.4, 0.0, 1.0, "no signal"),  # whatever it had before, nothing is compared now
        (0.0, 0.0, 0.99, "healthy"),  # one reward in a hundred groups is a signal
    ],
)
def test_the_rule_of_thumb_asks_for_equal_groups_first(first, reward, equal, kind):
    assert run_reading.kind_of(first, reward, equal) == kind
    assert run_reading.number_of(first, reward, equal) == run_reading.NUMBERS[kind]


def test_each_hint_is_for_one_letter_and_one_wrong_answer():
    wrong = []
    for mistaken in run_reading.MISTAKES.values():
        off = [(letter, mistaken(letter)) for letter in "ABC" if mistaken(letter) != run_reading.of_letter(letter)]
        assert len(off) == 1
        wrong += off
    assert len(set(wrong)) == len(wrong)


def test_the_later_half_is_what_the_rule_looks_at():
    run = pd.DataFrame(
        {"update": [0, 1, 2, 3, 4], "reward": [None, 0.4, 0.3, 0.2, 0.1], "equal_groups": [None, 0, 0, 1, 0]}
    )
    assert run_reading.late(run) == pytest.approx((0.4, 0.15, 0.5))


def test_the_recorded_runs_are_of_the_kinds_that_they_are_there_for(results):
    runs = run_reading.runs_of(results)
    assert {kind for kind, _ in runs} == set(run_reading.NUMBERS) and len(runs) == 6
    for (kind, _), run in runs.items():
        assert run_reading.kind_of(*run_reading.late(run)) == kind


def test_the_first_line_differs_in_what_the_gradient_steps_change_alone(results):
    first, *_ = run_reading.predicted(results)
    equal, other = first.split(". Different: ")
    assert equal.removeprefix("Equal in the first line: ").split(", ") == list(run_reading.SAMPLED)
    assert other.split(". ")[0].split(", ") == list(run_reading.STEPPED)


def test_kinds_that_were_not_run_are_named(results):
    assert run_reading.predicted(results.only(["agpo"])) == ["Not answered: not run were collapsed, no signal."]


def test_the_lines_of_the_exercise_are_of_the_last_seed_and_of_every_kind(results):
    table = run_reading.mystery(results)
    assert table.index.tolist() == ["A", "B", "C"]
    assert table.loc["A", "equal_groups"] == "1.000"
    assert float(table.loc["C", "reference_kl"]) > 10 * float(table.loc["B", "reference_kl"])


def test_samples_are_those_of_the_first_seed_and_missing_ones_are_said_to_be(results):
    text = run_reading.samples(results)
    assert [f"{kind}, update " in text for kind in run_reading.NUMBERS] == [True] * 3
    seeds = {line["seed"] for line in results.meta["samples"]}
    assert len(seeds) == 2 and text.count("reward") == len(results.meta["samples"]) / 2
    assert run_reading.samples(Results()) == "These results keep no samples."


@pytest.mark.parametrize(("value", "text"), [(0.12345, "0.123"), (-0.0001, "0.000"), (7287.85, "7,288")])
def test_numbers_are_short(value, text):
    assert run_reading._short(value) == text
