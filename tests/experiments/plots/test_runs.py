"""Figures return the data that they draw."""

import matplotlib

matplotlib.use("Agg")

import pytest

from agpo_core.comparison import macro, paired, t_interval
from agpo_core.experiments import grid, plots
from agpo_core.experiments.records import Results

FIGURES = [plots.main_results, plots.learning_curves, plots.controller_traces]


@pytest.fixture
def results(launched, trained, params):
    return trained("table", params)


def test_scores_are_drawn_with_their_interval_and_their_difference_from_grpo(results):
    figure, data = plots.main_results(results)
    agpo = t_interval(macro(results.runs)["agpo"])
    gap = t_interval(paired(results.runs, "agpo", "grpo"))
    assert data.loc["agpo"].tolist() == pytest.approx([*agpo[:3], *gap[:3]])
    assert data.loc["grpo", "pairs"] == 0
    left, right = figure.axes
    assert [label.get_text() for label in left.get_yticklabels()] == [grid.ARMS[arm].title for arm in data.index]
    assert "%" in left.get_xlabel() and "points" in right.get_xlabel()


def test_grpo_has_a_mark_at_zero_and_the_start_is_named_beside_an_axis_that_holds_the_arms(results):
    figure, data = plots.main_results(results)
    left, right = figure.axes
    row = list(data.index).index("grpo")
    assert any(line.get_xdata()[0] == 0 and line.get_ydata()[0] == row for line in right.lines)
    start = macro(results.runs)["start"].mean()
    words = left.get_title(loc="left")
    assert f"supervised starts: {start:.1f} %" in words
    inside = left.get_xlim()[0] <= start <= left.get_xlim()[1]
    assert words.endswith("dashed") == inside


def test_learning_curves_start_at_the_start_and_end_at_the_horizon(results):
    figure, data = plots.learning_curves(results)
    for _, curve in data.groupby("arm"):
        assert curve["progress"].iloc[0] == 0.0 and curve["progress"].iloc[-1] == 1.0
        assert curve["progress"].is_monotonic_increasing
    # The seeds start from a, b and c, whose invented levels are 36, 40 and 30.
    assert data.groupby("arm")["dev"].first().tolist() == pytest.approx([106 / 3] * 8)
    assert [axes.get_title() for axes in figure.axes] == ["methods", "controls"]


def test_controllers_are_drawn_to_the_update_that_all_runs_reached(results):
    traces = results.traces
    short = (traces["arm"] == "agpo") & (traces["seed"] == 42) & (traces["update"] > 6)
    _, data = plots.controller_traces(Results(results.runs, traces[~short], results.meta))
    assert data.loc[data["arm"] == "agpo", "update"].max() == 6
    assert data.loc[data["arm"] == "grpo_ats", "update"].max() == 10
    assert set(data["arm"]) == {"grpo_ats", "agpo_no_ats", "agpo", "agpo_relative_entropy"}
    first = traces[(traces["arm"] == "agpo") & (traces["update"] == 1)]
    drawn = data[(data["arm"] == "agpo") & (data["update"] == 1)]
    assert drawn["tau"].item() == pytest.approx(first["tau"].mean())


@pytest.mark.parametrize("draw", FIGURES)
def test_a_figure_says_profile_and_seeds(results, draw):
    figure, _ = draw(results)
    assert figure.get_suptitle().endswith(results.title)


@pytest.mark.parametrize("draw", FIGURES)
def test_one_run_of_one_arm_is_drawn_without_interval_or_warning(launched, params, draw, recwarn):
    one = {"methods": ["agpo"], "seeds": [42], "models": ["tiny-qwen2-a"]}
    figure, data = draw(grid.run("table", params | one))
    figure.draw_without_rendering()
    assert not data.empty and not recwarn.list


@pytest.mark.parametrize("draw", FIGURES)
def test_nothing_run_gives_a_figure_that_says_so_and_no_data(draw):
    figure, data = draw(Results())
    assert figure.axes[0].texts[0].get_text() == "nothing to draw" and data.empty
    assert {"score", "dev", "tau"} & set(data.columns)
