"""Figures of Theorem 3.1 draw the runs, and return what they drew."""

import matplotlib

matplotlib.use("Agg")

import numpy as np
import pytest

from agpo_core.experiments.plots import convergence as plots
from agpo_core.theory import convergence

ETA_0, INNER = 20.0, 2


@pytest.fixture(scope="module")
def runs():
    return convergence.runs([10, 20], [0, 1], ETA_0, 2.0, 0.6, INNER)


def labels(figure):
    return {text.get_text() for text in figure.legends[0].get_texts()}


def test_the_line_of_the_rate_bounds_the_theorems_arms_and_touches_them(runs):
    figure, data = plots.convergence_rates(runs, "2 seeds")
    assert figure.get_suptitle().endswith("2 seeds")
    assert "$C/\\sqrt{T}$, smallest $C$ that bounds the filled arms" in labels(figure)
    assert set(data["arm"]) == set(plots.STYLES) - {"one_step"}
    of_theorem = data[data["arm"].isin(plots.THEOREM)]
    slack = of_theorem["bound"] / of_theorem["mean"]
    assert (slack > 1 - 1e-12).all()
    assert slack.groupby(of_theorem["problem"]).min().tolist() == pytest.approx([1, 1])
    drawn = runs[(runs["problem"] == "distinct") & (runs["arm"] == "fixed") & (runs["horizon"] == 10)]["gradient"]
    row = data[(data["problem"] == "distinct") & (data["arm"] == "fixed") & (data["horizon"] == 10)]
    assert row["mean"].item() == pytest.approx(drawn.mean())


def test_the_constant_is_drawn_with_its_telescoped_part_and_the_computed_bound(runs):
    figure, data = plots.convergence_constants(runs, ETA_0, INNER, "2 seeds")
    assert len(figure.axes) == 2
    gain = runs.groupby(["problem", "arm", "horizon"])["gain"].mean()
    for _, row in data.iterrows():
        steps = 1 if row["arm"] == "one_step" else INNER
        expected = gain[row["problem"], row["arm"], row["horizon"]] / (steps * ETA_0)
        assert row["telescoped"] == pytest.approx(expected)
        assert np.isnan(row["bound"]) == (row["arm"] != "one_step")


def test_clipping_is_drawn_with_the_horizon_from_which_it_ends(runs):
    figure, data = plots.convergence_clipping(runs, ETA_0, INNER, "2 seeds")
    assert "theorem's schedule: no clip binds from here on" in labels(figure)
    assert data["mean"].between(0, 1).all()
    inert = data.groupby("arm")["inert"].first()
    assert inert["adaptive"] > inert["fixed"] > 0
    assert inert[["fixed_cosine", "adaptive_cosine", "fixed_cosine_low"]].isna().all()


def test_one_problem_and_one_seed_are_drawn_without_a_warning(runs, recwarn):
    one = runs[(runs["problem"] == "distinct") & (runs["seed"] == 0)]
    for figure, data in (
        plots.convergence_rates(one, ""),
        plots.convergence_constants(one, ETA_0, INNER, ""),
        plots.convergence_clipping(one, ETA_0, INNER, ""),
    ):
        figure.draw_without_rendering()
        legend = figure.legends[0].get_window_extent()
        assert figure.bbox.x0 <= legend.x0 and legend.x1 <= figure.bbox.x1
        assert len(figure.axes) == 1 and not data.empty
    assert not recwarn.list


def test_every_arm_has_a_look_of_its_own():
    assert set(plots.STYLES) == set(convergence.ARMS)
    assert len(set(plots.STYLES.values())) == len(plots.STYLES)
