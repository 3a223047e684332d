"""The figures of speeds and of times draw what the tables state."""

import matplotlib

matplotlib.use("Agg")

import pytest

from agpo_core.experiments import plots, records, throughput
from agpo_core.experiments import time_to_target as ttt

RECORD = records.load("methods_overview", "tiny")
pytestmark = pytest.mark.skipif(RECORD is None, reason="there is no record")


@pytest.fixture(scope="module")
def results():
    return throughput.with_matched(RECORD.only(["start", "grpo", "ppo_critic", "agpo"]))


def test_a_speed_has_a_mark_a_measure_and_grpo_is_the_line_at_one(results):
    figure, data = plots.speed_ratios(results)
    assert "grpo" not in set(data["arm"])
    assert set(data.loc[data["arm"] == "agpo", "measure"]) >= {"counted", "recorded"}
    assert all(axes.get_xlabel() == "multiple of GRPO's" for axes in figure.axes)
    assert "AGPO" in plots.alt.speed_ratios(data)


def test_the_schedules_end_at_zero_and_the_shorter_one_at_half_the_updates(results):
    figure, data = plots.horizon_pair(results, ttt.points(results))
    last = data.sort_values("evaluation").groupby("arm").last()
    assert last["rate"].abs().max() < 1e-6
    assert last.loc["grpo_matched_updates", "update"] * 2 == pytest.approx(last.loc["grpo", "update"], rel=0.05)
    assert figure.axes[1].get_ylabel() == "macro-average (%)"


def test_each_currency_has_a_panel_and_lines_are_ratios_of_the_sweep(results):
    figure, data = plots.target_sweep(results, ttt.points(results))
    assert [axes.get_title() for axes in figure.axes] == [f"in {ttt.CURRENCIES[name]}" for name in ttt.PARTNERS]
    assert set(data["share"]) == set(ttt.SHARES)
    assert "AGPO to GRPO" in plots.alt.target_sweep(data)


def test_arms_that_are_missing_are_left_out_without_a_warning(recwarn):
    only = RECORD.only(["start", "grpo"])
    seen = ttt.points(only)
    for figure, _ in (plots.speed_ratios(only), plots.horizon_pair(only, seen), plots.target_sweep(only, seen)):
        figure.draw_without_rendering()
    assert not recwarn.list
