"""Intervals, p-values, corrections and power, against hand-worked numbers."""

import math

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agpo_core.experiments import comparison
from agpo_core.experiments.comparison import (
    holm,
    macro,
    p_value,
    paired,
    pairs_needed,
    prediction_interval,
    t_interval,
)

T_2 = 4.302653  # t(.975, 2), from a table


def runs_of(scores: dict) -> pd.DataFrame:
    """Runs of one task from {(arm, seed, start): score}."""
    rows = [(*key, "steps", score, score) for key, score in scores.items()]
    return pd.DataFrame(rows, columns=["arm", "seed", "start", "task", "score", "macro"])


def test_the_t_interval_of_three_numbers_is_as_worked_by_hand():
    interval = t_interval([1.0, 2.0, 3.0])  # mean 2, s = 1
    assert interval.mean == 2.0 and interval.n == 3
    assert interval.half == pytest.approx(T_2 / math.sqrt(3), rel=1e-6)
    assert (interval.low, interval.high) == pytest.approx((2 - 2.484138, 2 + 2.484138), rel=1e-6)
    assert interval.text() == "2.0 ± 2.5"
    assert interval.text("+") == "+2.0 ± 2.5"


def test_one_value_has_a_mean_and_no_interval_and_none_has_neither():
    one, none = t_interval([3.0]), t_interval([])
    assert one.mean == 3.0 and math.isnan(one.half) and one.text() == "3.0"
    assert none.n == 0 and none.text() == ""


@given(st.lists(st.floats(-100, 100), min_size=2, max_size=8), st.floats(-10, 10))
def test_the_interval_moves_with_the_values_and_keeps_its_width(values, shift):
    moved = t_interval(np.array(values) + shift)
    assert moved.mean == pytest.approx(t_interval(values).mean + shift, abs=1e-9)
    halves = [0.0 if math.isnan(interval.half) else interval.half for interval in (moved, t_interval(values))]
    assert halves[0] == pytest.approx(halves[1], abs=1e-6)  # a spread below rounding may be lost by the shift


def test_the_p_value_of_three_differences_is_as_worked_by_hand():
    # t = 2 / (1 / sqrt 3), t^2 = 12; with 2 degrees of freedom p = 1 - t / sqrt(2 + t^2)
    assert p_value([1.0, 2.0, 3.0]) == pytest.approx(1 - math.sqrt(12 / 14), rel=1e-9)


@pytest.mark.parametrize("n", [1, 2, 3, 10])
@pytest.mark.parametrize("value", [0.0, 0.5, -3.7])
@pytest.mark.parametrize("noise", [0.0, 1e-15, 1e-3])  # none; of floats; of a record's five digits
def test_differences_without_spread_decide_nothing_however_many(n, value, noise):
    values = value + noise * (np.arange(n) % 2)
    assert math.isnan(p_value(values)) and not comparison.have_spread(values)
    assert pairs_needed(values) is None
    assert all(math.isnan(bound) for bound in prediction_interval(values, 3))
    if noise < 1e-3:
        interval = t_interval(values)
        assert math.isnan(interval.half) and interval.mean == pytest.approx(value) and interval.n == n
        assert interval.text("+") == f"{value:+.1f}"


def test_two_differences_that_are_not_equal_are_tested():
    # 2 and 3 points: t = 2.5 / .5 = 5 with one degree of freedom, p = 1 - (2 / pi) atan 5
    assert p_value([2.0, 3.0]) == pytest.approx(1 - 2 / math.pi * math.atan(5))


def test_holm_steps_down_and_never_reorders():
    # sorted .01 .03 .04 -> 3 x .01, 2 x .03, and 1 x .04 raised to .06
    np.testing.assert_allclose(holm([0.01, 0.04, 0.03]), [0.03, 0.06, 0.06])
    np.testing.assert_allclose(holm([0.6, 0.9]), [1.0, 1.0])


def test_holm_leaves_out_what_was_not_tested():
    np.testing.assert_allclose(holm([0.01, math.nan, 0.04]), [0.02, math.nan, 0.04])
    assert np.isnan(holm([math.nan, math.nan])).all()
    assert len(holm([])) == 0


@given(st.lists(st.floats(0, 1), min_size=1, max_size=8))
def test_holm_lies_between_the_raw_p_and_bonferroni(p):
    adjusted = holm(p)
    assert (adjusted >= np.array(p) - 1e-12).all()
    assert (adjusted <= np.minimum(np.array(p) * len(p), 1.0) + 1e-12).all()


@pytest.mark.parametrize(("m", "factor"), [(1, math.sqrt(4 / 3)), (3, math.sqrt(2 / 3))])
def test_the_prediction_interval_is_as_worked_by_hand(m, factor):
    low, high = prediction_interval([1.0, 2.0, 3.0], m)  # mean 2, s = 1, sqrt(1/3 + 1/m)
    assert (low, high) == pytest.approx((2 - T_2 * factor, 2 + T_2 * factor), rel=1e-6)


def test_the_prediction_interval_holds_the_mean_of_new_values_at_its_rate():
    rng = np.random.default_rng(0)
    held = 0
    for _ in range(2000):
        low, high = prediction_interval(rng.normal(size=6), 3)
        held += low <= rng.normal(size=3).mean() <= high
    assert held / 2000 == pytest.approx(0.95, abs=0.015)  # three standard errors


def test_one_recorded_value_predicts_nothing():
    assert all(math.isnan(bound) for bound in prediction_interval([1.0], 3))


@pytest.mark.parametrize(
    ("differences", "pairs"),
    [
        ([0.0, 1.0, 2.0], 10),  # mean / s = 1: ten pairs, in every table of power
        ([-0.5, 0.5, 1.5], 34),  # mean / s = .5
        ([-1.0, 1.0], None),  # mean 0: no number of pairs
        ([1.0, 1.0], None),  # no spread: nothing to reckon with
        ([1.0], None),
    ],
)
def test_the_pairs_that_a_difference_needs_are_those_of_a_power_table(differences, pairs):
    assert pairs_needed(differences) == pairs


def test_no_more_pairs_are_named_than_anybody_would_run():
    tiny = np.array([-1.0, 1.0]) + 0.01
    assert pairs_needed(tiny) is None and comparison.MOST_PAIRS == 1000


def test_runs_are_paired_by_seed_and_start_and_the_rest_is_left_out():
    runs = runs_of(
        {
            ("grpo", 1, "a"): 0.50,
            ("grpo", 1, "b"): 0.60,
            ("grpo", 2, "a"): 0.70,
            ("agpo", 1, "a"): 0.53,
            ("agpo", 1, "b"): 0.58,
            ("agpo", 3, "a"): 0.90,
        }
    )
    gaps = paired(runs, "agpo", "grpo")
    assert gaps.to_dict() == pytest.approx({(1, "a"): 3.0, (1, "b"): -2.0})
    assert paired(runs, "agpo", "grpo_ats").empty


def test_a_start_is_paired_by_start_whatever_the_seed():
    runs = runs_of(
        {
            ("start", 0, "a"): 0.30,
            ("start", 0, "b"): 0.40,
            ("grpo", 1, "a"): 0.50,
            ("grpo", 2, "b"): 0.55,
            ("grpo", 3, "c"): 0.99,
        }
    )
    gains = paired(runs, "grpo", "start")
    assert gains.to_dict() == pytest.approx({(1, "a"): 20.0, (2, "b"): 15.0})


def test_a_run_counts_once_however_many_tasks_it_has():
    runs = runs_of({("grpo", 1, "a"): 0.5})
    twice = pd.concat([runs, runs.assign(task="cloze_equations")])
    assert macro(twice).tolist() == [50.0]
