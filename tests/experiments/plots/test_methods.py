"""Figures of all methods: every arm of the overview has its place, and what is drawn is what was measured."""

import matplotlib

matplotlib.use("Agg")

import pytest

from agpo_core.comparison import macro, paired, t_interval
from agpo_core.experiments import grid, plots, profiles
from agpo_core.experiments.plots.methods import MEMBERS

METHODS = profiles.settings("methods_overview", "tiny")["methods"]


@pytest.fixture
def results(launched, trained, params):
    return trained("overview", params | {"methods": METHODS})


def test_every_method_of_the_overview_belongs_to_one_family():
    placed = [arm for arms in MEMBERS.values() for arm in arms]
    assert sorted(placed) == sorted(set(METHODS) - {"start"})


def test_scores_are_drawn_with_their_interval_and_their_difference_from_grpo(results):
    figure, data = plots.method_scores(results)
    assert set(data.index) == set(METHODS) - {"start"}
    rloo = t_interval(macro(results.runs)["rloo"])
    gap = t_interval(paired(results.runs, "rloo", "grpo"))
    assert data.loc["rloo"].tolist()[1:] == pytest.approx([*rloo[:3], *gap[:3]])
    for _, family in data.groupby("family", sort=False):
        assert family["score"].is_monotonic_decreasing
    assert [label.get_text() for label in figure.axes[0].get_yticklabels()] == [grid.ARMS[a].title for a in data.index]


def test_curves_run_from_the_start_to_the_horizon_and_grpo_stands_in_every_panel(results):
    figure, data = plots.method_curves(results)
    for _, curve in data.groupby("arm"):
        assert curve["progress"].iloc[-1] == 1.0 and curve["progress"].is_monotonic_increasing
    for axes in figure.axes:
        assert any(text.get_text() == "GRPO" for text in axes.get_legend().get_texts())
