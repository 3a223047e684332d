"""Figures of the KL estimators return the data that they draw."""

import matplotlib

matplotlib.use("Agg")

import math

import pytest
import torch

from agpo_core.experiments import plots
from agpo_core.theory import kl_estimators as ke

SCALES = [0.5, 2.0]
P = torch.tensor([1 / 2, 1 / 4, 1 / 4], dtype=torch.float64).log()
REF = torch.tensor([1 / 8, 1 / 8, 3 / 4], dtype=torch.float64).log()


@pytest.fixture(scope="module")
def policies():
    reference_V = ke.reference_policy(6, seed=0)
    return reference_V, {d: ke.moved_policies(reference_V, SCALES, d, seed=1) for d in ke.DIRECTIONS}


def line(axes, label):
    return next(drawn for drawn in axes.get_lines() if drawn.get_label() == label)


def test_the_curves_are_those_of_the_library_with_the_tokens_marked():
    figure, data = plots.kl_estimator_curves(-2, 2, marked=[-1.0, 1.5])
    at_minus_two = data[data["d"] == -2].set_index("estimator")
    assert at_minus_two["value"].tolist() == pytest.approx([-2, 2, math.exp(2) - 3])
    assert at_minus_two["slope"].tolist() == pytest.approx([1, -2, 1 - math.exp(2)])
    values, slopes = figure.axes
    for axes, column in ((values, "value"), (slopes, "slope")):
        drawn = line(axes, "k3")
        assert drawn.get_ydata().tolist() == data.loc[data["estimator"] == "k3", column].tolist()
        assert [-1.0, 1.5] == [mark.get_xdata()[0] for mark in axes.get_lines() if mark.get_color() == "0.8"]


def test_running_means_end_at_the_mean_of_all_draws():
    tokens = ke.draw(P[None], 500, torch.Generator().manual_seed(0))[0]
    values = {name: estimator(P, REF)[tokens] for name, estimator in ke.ESTIMATORS.items()}
    figure, data = plots.kl_running_means(values, {"reverse": 0.592}, "title")
    last = data[data["n"] == 500].set_index("estimator")
    for name, values_N in values.items():
        assert last.loc[name, "mean"] == pytest.approx(values_N.mean().item())
        assert last.loc[name, "error"] == pytest.approx(values_N.std().item() / math.sqrt(500))
        assert line(figure.axes[0], f"mean of {name}").get_ydata()[-1] == last.loc[name, "mean"]
    assert line(figure.axes[0], "reverse").get_ydata()[0] == 0.592


def test_expectations_are_drawn_beside_their_samples(policies):
    reference_V, moved = policies
    exact = {d: ke.expectations(logps, reference_V, SCALES) for d, logps in moved.items()}
    sampled = {d: ke.monte_carlo(logps, reference_V, SCALES, 50, 20, seed=0) for d, logps in moved.items()}
    figure, data = plots.kl_expectations(exact, sampled, "title")
    assert len(data) == 2 * 2 * 3 and not data.isna().any(axis=None)
    row = data[(data["direction"] == "random") & (data["scale"] == 2.0) & (data["estimator"] == "k3")].iloc[0]
    assert row["std"] == exact["random"].set_index(["scale", "estimator"]).loc[(2.0, "k3"), "std"]
    assert row["sampled_mean"] == sampled["random"].set_index(["scale", "estimator"]).loc[(2.0, "k3"), "mean"]
    assert len(figure.axes) == 4 and figure.axes[2].get_yscale() == "log"


def test_gradients_leave_out_the_tokens_that_k1_would_need(policies):
    reference_V, moved = policies
    tables = {d: ke.gradient_table(logps, reference_V, SCALES) for d, logps in moved.items()}
    figure, data = plots.kl_loss_gradients(tables, "title")
    assert len(data) == 12 and set(data["direction"]) == set(ke.DIRECTIONS)
    norms, _, tokens, _ = figure.axes
    assert len(norms.get_lines()) == 3 and len(tokens.get_lines()) == 2


def test_no_line_is_drawn_across_the_reference():
    reference_V, scales = ke.reference_policy(6, seed=0), [-0.5, -0.25, 0.25, 1.0]
    logps_S_V = ke.moved_policies(reference_V, scales, "temperature")
    exact = {"temperature": ke.expectations(logps_S_V, reference_V, scales)}
    sampled = {"temperature": ke.monte_carlo(logps_S_V, reference_V, scales, 50, 20, seed=0)}
    values, _ = plots.kl_expectations(exact, sampled, "title")
    gradients, data = plots.kl_loss_gradients({"temperature": ke.gradient_table(logps_S_V, reference_V, scales)}, "t")
    assert sorted(set(data["scale"])) == scales  # the gap is in the lines, not in the data
    for axes in values.axes + gradients.axes:
        lines = [drawn for drawn in axes.get_lines() if drawn.get_linestyle() != "None"]
        assert len(lines) >= 2
        for drawn in lines:
            assert drawn.get_xdata().tolist() == [-0.5, -0.25, 0.0, 0.25, 1.0]
            assert [math.isnan(y) for y in drawn.get_ydata()] == [False, False, True, False, False]


def test_descents_show_the_median_and_the_middle_of_the_runs():
    runs = torch.tensor([[1.0] * 10, [float(i) for i in range(1, 10)] + [math.inf]], dtype=torch.float64)
    figure, data = plots.kl_descents({"far": {"k2": runs[:, :1]}}, {"far": {"k2": runs}}, "title")
    end = data[(data["kind"] == "sampled") & (data["step"] == 1)].iloc[0]
    assert end[["low", "median", "high"]].tolist() == [1.0, 5.0, 9.0]
    figure.draw_without_rendering()
    assert [axes.get_title() for axes in figure.axes] == ["far, expected gradient", "far, sampled gradient"]


def test_equal_beta_is_drawn_with_the_paired_difference_of_the_others():
    table = ke.equal_beta([0.5, 1.0], vocabulary=3, problems=5, seed=0)
    figure, data = plots.kl_equal_beta(table, "title")
    assert data.equals(table)
    left, right = figure.axes
    assert len(left.containers) == 3 and len(right.containers) == 2
    drawn = right.containers[0].lines[0].get_ydata()
    assert list(drawn) == table.loc[table["penalty"] == "k2", "kl_gap"].tolist()


def test_runs_that_left_the_numbers_are_drawn_without_a_warning(recwarn):
    runs = torch.tensor([[1.0] * 4, [0.5, 2.0, math.inf, math.inf]], dtype=torch.float64)
    figure, data = plots.kl_descents({"far": {"k3": runs[:, :1]}}, {"far": {"k3": runs}}, "title")
    figure.draw_without_rendering()
    assert data.loc[data["kind"] == "sampled", "high"].max() == math.inf and not recwarn.list
