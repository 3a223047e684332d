"""Intervals, p-values, corrections and power, against hand-worked numbers."""

import math

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from agpo_core import comparison
from agpo_core.comparison import (
    OVER,
    WITHIN,
    Interval,
    about,
    estimate,
    holm,
    macro,
    p_value,
    paired,
    pairs_needed,
    prediction,
    speaks,
    spread,
    t_interval,
    within,
)

T_2 = 4.302653  # t(.975, 2), from a table
T_3 = 3.182446


def by_start(**starts: list[float]) -> pd.Series:
    """Values of seeds, by start; a seed is used once."""
    keys = [start for start, values in starts.items() for _ in values]
    index = pd.MultiIndex.from_arrays([range(len(keys)), keys], names=["seed", "start"])
    return pd.Series([value for values in starts.values() for value in values], index=index, dtype=float)


def runs_of(scores: dict) -> pd.DataFrame:
    """Runs of one task from {(arm, seed, start): score}."""
    rows = [(*key, "steps", score, score) for key, score in scores.items()]
    return pd.DataFrame(rows, columns=["arm", "seed", "start", "task", "score", "macro"])


def test_the_t_interval_of_three_numbers_is_as_worked_by_hand():
    interval = t_interval([1.0, 2.0, 3.0])  # mean 2, s = 1
    assert interval.mean == 2.0 and interval.n == 3
    assert interval.half == pytest.approx(T_2 / math.sqrt(3), rel=1e-6)
    assert (interval.low, interval.high) == pytest.approx((2 - 2.484138, 2 + 2.484138), rel=1e-6)
    assert interval.text() == "2.0\u00a0±\u00a02.5"
    assert interval.text("+") == "+2.0\u00a0±\u00a02.5"


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
    assert math.isnan(p_value(values))
    assert pairs_needed(values) is None and math.isnan(prediction(values, [0.0] * 3).error)
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
def test_the_prediction_is_as_worked_by_hand(m, factor):
    found = prediction([1.0, 2.0, 3.0], [0.0] * m)  # mean 2, s = 1, sqrt(1/3 + 1/m)
    assert (found.mean, found.half()) == pytest.approx((2, T_2 * factor), rel=1e-6)


def test_the_mean_of_new_values_lies_where_predicted_at_its_rate_whatever_the_starts():
    rng = np.random.default_rng(0)
    levels = {"a": -20.0, "b": 0.0, "c": 5.0}
    held = 0
    recorded, new = by_start(a=[0.0] * 3, b=[0.0] * 3, c=[0.0] * 3), by_start(a=[0.0] * 2, b=[0.0])
    for _ in range(600):
        known, fresh = (_drawn(rng, values, levels, 1.0) for values in (recorded, new))
        found = prediction(known, fresh)
        held += abs(fresh.mean() - found.mean) <= found.half()
    assert held / 600 == pytest.approx(0.95, abs=0.027)  # three standard errors


def _drawn(rng, values, levels, s):
    """Normal values with the starts of others."""
    means = [levels[start] for start in values.index.get_level_values("start")]
    return pd.Series(rng.normal(means, s), index=values.index)


def test_a_prediction_is_for_the_starts_of_the_new_values():
    recorded = by_start(a=[10.0, 12.0], b=[20.0, 22.0])  # s² = (2 + 2) / 2, two degrees of freedom
    found = prediction(recorded, by_start(a=[0.0, 0.0], b=[0.0]))
    # (2 · 11 + 21) / 3; s sqrt(1/3 + (4/9) / 2 + (1/9) / 2)
    assert found[:3] == pytest.approx((43 / 3, math.sqrt(2) * math.sqrt(1 / 3 + 2 / 9 + 1 / 18), 2))
    assert math.isnan(prediction(recorded, by_start(c=[0.0])).error)  # of another start nothing is known
    singles = prediction(by_start(a=[1.0], b=[2.0], c=[3.0]), by_start(d=[0.0]))  # starts like these
    assert singles[:3] == pytest.approx((2, math.sqrt(4 / 3), 2))


def test_one_recorded_value_predicts_nothing():
    assert math.isnan(prediction([1.0], [0.0] * 3).error) and math.isnan(prediction([1.0, 2.0], []).error)


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


def test_a_family_of_contrasts_needs_more_pairs_and_starts_cost_degrees_of_freedom():
    one = [0.0, 1.0, 2.0]
    # by the definition, one n after the other: the level of one among five
    for level in (0.05, 0.01):
        n = next(n for n in range(2, 99) if _power(n, n - 1, 1.0, level) >= 0.8)
        assert pairs_needed(one, level) == n
    two = by_start(a=[0.0, 2.0], b=[10.0, 12.0]) - 5.0  # mean 1, s = sqrt 2 within starts
    n = next(n for n in range(3, 99) if _power(n, n - 2, 1 / math.sqrt(2), 0.05) >= 0.8)
    assert pairs_needed(two) == n < pairs_needed(two.tolist())


def _power(n, df, effect, level):
    critical = stats.t.ppf(1 - level / 2, df)
    return stats.nct.sf(critical, df, effect * math.sqrt(n)) + stats.nct.cdf(-critical, df, effect * math.sqrt(n))


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


# -- the error term ----------------------------------------------------------------------------------


def test_the_error_term_within_starts_is_as_worked_by_hand():
    # within a: -1 0 1, within b: -1 1; s² = (2 + 2) / (5 - 2), mean (1 + 2 + 3 + 10 + 12) / 5
    values = by_start(a=[1.0, 2.0, 3.0], b=[10.0, 12.0])
    assert spread(values) == pytest.approx((math.sqrt(4 / 3), 3, WITHIN))
    interval = t_interval(values)
    assert interval[:3] == pytest.approx((5.6, T_3 * math.sqrt(4 / 3 / 5), 5), rel=1e-6)
    assert interval.about == WITHIN
    t = 5.6 / math.sqrt(4 / 15)
    assert p_value(values) == pytest.approx(2 * stats.t.sf(t, 3))


def test_the_error_term_is_that_of_a_one_way_analysis_of_variance():
    rng = np.random.default_rng(1)
    parts = {"a": rng.normal(0, 1, 4), "b": rng.normal(9, 1, 2), "c": rng.normal(-5, 1, 3), "d": [7.0]}
    values, term = by_start(**parts), spread(by_start(**parts))
    between = sum(len(part) * (np.mean(part) - values.mean()) ** 2 for part in parts.values()) / (len(parts) - 1)
    assert between / term.s**2 == pytest.approx(stats.f_oneway(*parts.values()).statistic)
    assert term.df == len(values) - len(parts)


@settings(max_examples=20, deadline=None)
@given(st.lists(st.floats(-100, 100), min_size=2, max_size=8))
def test_one_start_and_no_starts_and_a_seed_a_start_give_the_plain_t_test(values):
    plain = t_interval(values)
    for one, kind in (
        (by_start(a=values), WITHIN),
        (by_start(**{f"s{i}": [value] for i, value in enumerate(values)}), OVER),
    ):
        assert t_interval(one)[:3] == pytest.approx(plain[:3], nan_ok=True)
        assert t_interval(one).about == ("" if math.isnan(plain.half) else kind)
        assert p_value(one) == pytest.approx(p_value(values), nan_ok=True)
        assert pairs_needed(one) == pairs_needed(values)
    if not math.isnan(p_value(values)):
        assert p_value(values) == pytest.approx(stats.ttest_1samp(values, 0.0).pvalue)


@given(st.lists(st.floats(-50, 50), min_size=3, max_size=3))
def test_what_starts_differ_by_moves_the_mean_and_not_the_error_term(levels):
    seeds = ([0.0, 2.0], [-1.0, 1.5], [3.0])
    here = by_start(**dict(zip("abc", seeds, strict=True)))
    moved = by_start(**{s: np.add(part, up) for s, part, up in zip("abc", seeds, levels, strict=True)})
    assert t_interval(moved).half == pytest.approx(t_interval(here).half)
    shuffled = moved.sample(frac=1.0, random_state=0)
    assert t_interval(shuffled)[:3] == pytest.approx(t_interval(moved)[:3])


@pytest.mark.parametrize("noise", [0.0, 1e-3])
def test_differences_that_are_equal_within_each_start_decide_nothing(noise):
    values = by_start(a=[3.0, 3.0 + noise], b=[5.0, 5.0], c=[9.0])  # starts differ; no start says by how much seeds do
    assert math.isnan(p_value(values)) and pairs_needed(values) is None
    assert math.isnan(prediction(values, values).error)
    assert not math.isnan(p_value(by_start(a=[3.0, 3.5], b=[5.0, 5.0])))


def test_the_interval_covers_the_mean_of_its_starts_at_its_rate_and_the_plain_one_is_too_wide():
    rng = np.random.default_rng(2)
    levels, trials = {"a": -3.0, "b": 1.0, "c": 4.0}, 600
    shape = by_start(a=[0.0] * 2, b=[0.0] * 2, c=[0.0] * 2)
    truth, covered, plain, halves = sum(levels.values()) / 3, 0, 0, []
    for _ in range(trials):
        gaps = _drawn(rng, shape, levels, 1.0)
        found, wide = t_interval(gaps), t_interval(gaps.tolist())
        covered += found.low <= truth <= found.high
        plain += wide.low <= truth <= wide.high
        halves.append((found.half, wide.half))
    assert covered / trials == pytest.approx(0.95, abs=0.027)  # three standard errors
    assert plain == trials and np.mean(halves, axis=0)[1] > 2 * np.mean(halves, axis=0)[0]


def test_over_starts_the_interval_covers_the_mean_of_all_starts():
    rng = np.random.default_rng(3)
    covered, trials, shape = 0, 600, by_start(**{f"s{i}": [0.0] for i in range(6)})
    for _ in range(trials):
        found = t_interval(_drawn(rng, shape, {f"s{i}": rng.normal(0, 2) for i in range(6)}, 1.0))
        covered += found.low <= 0 <= found.high
    assert covered / trials == pytest.approx(0.95, abs=0.027)


def test_a_standard_deviation_is_pooled_over_groups():
    # 0 2 | 5 5 8: squares 2 and 6, three degrees of freedom
    assert within([0.0, 2.0, 5.0, 5.0, 8.0], list("xxyyy"))[:2] == pytest.approx((math.sqrt(8 / 3), 3))
    nothing = within([], [])
    assert math.isnan(nothing.s) and nothing.df == 0 and math.isnan(estimate([]).mean)


def test_a_table_says_what_its_intervals_speak_of():
    here, there, none = Interval(1, 1, 4, WITHIN), Interval(1, 1, 4, OVER), Interval(1, math.nan, 1)
    assert about([here, none]) == "± over seeds" and about([there]) == "± over starts"
    assert about([there, here]) == "± over seeds or starts" and about([none]) == ""
    assert "what other seeds of these starts would give." in speaks(about([here]))
    assert "a seed each: what other starts of their kind would give." in speaks(about([there]))
    assert "several seeds" in speaks(about([here, there])) and speaks("") == speaks(None) == ""
