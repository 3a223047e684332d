"""Figures of the bias return the data that they draw, and the data are right."""

import math

import numpy as np
import pandas as pd
import pytest

from agpo_core.experiments import plots
from agpo_core.theory import bias

GRID = [-2.0, 0.0, 1.0]


@pytest.fixture
def points():
    """Two group sizes, drawn two standard errors above and one below the exact curve."""
    tables = []
    for N, lift in ((2, 2.0), (8, -1.0)):
        exact = bias.conditional_expectation(GRID, N).numpy()
        tables.append(pd.DataFrame({"N": N, "epsilon": GRID, "mean": exact + lift * 0.01, "standard_error": 0.01}))
    return pd.concat(tables, ignore_index=True)


def test_points_are_drawn_where_they_lie_and_held_against_the_exact_curve(points):
    figure, data = plots.bias_curves(points, "a title")
    assert data["z"].tolist() == pytest.approx([2.0] * 3 + [-1.0] * 3)
    assert data["exact"].tolist()[:3] == pytest.approx([math.erf(e / 2**0.5) for e in GRID])  # N = 2
    assert data["bias"].tolist() == pytest.approx((data["mean"] - data["epsilon"]).tolist())
    curve, lifted, z = figure.axes
    for axes, column in ((curve, "mean"), (lifted, "bias"), (z, "z")):
        drawn = np.concatenate([container.lines[0].get_ydata() for container in axes.containers])
        assert drawn.tolist() == pytest.approx(data[column].tolist())
    assert "a title" in figure.get_suptitle()


def test_standard_errors_are_drawn(points):
    figure, _ = plots.bias_curves(points, "")
    for axes, half in zip(figure.axes, (0.01, 0.01, 1.0), strict=True):
        (bars,) = axes.containers[0].lines[2]
        low, high = bars.get_segments()[0][:, 1]
        assert high - low == pytest.approx(2 * half)


def test_the_crossing_is_where_the_exact_curve_meets_the_target():
    figure, data = plots.bias_signs(8, [2, 4, 8, 64])
    found = data.set_index(["ddof", "N"])["crossing"]
    assert math.isnan(found[0, 2]) and math.isnan(found[1, 4])
    for (ddof, N), crossing in found.dropna().items():
        assert bias.conditional_expectation(crossing, N, ddof=ddof).item() == pytest.approx(crossing, abs=1e-3)
    # The limits: zeros of e (3 - 2 e²) and, with N - 1, of e (1 - 2 e²).
    assert found[0, 64] < math.sqrt(3 / 2) and found[1, 64] < math.sqrt(1 / 2)
    left, right = figure.axes
    assert right.lines[0].get_xdata().tolist() == [4, 8, 64]
    assert "N = 8" in left.get_title()


def test_a_slope_above_one_is_an_over_estimate():
    _, data = plots.bias_signs(8, [2, 3, 4, 8])
    assert ((data["slope"] > 1) == (data["over"] > 0)).all()
    assert data["slope"].iloc[0] == pytest.approx(math.sqrt(2 / math.pi), abs=1e-6)  # erf'(0) / sqrt(2)


def test_binary_weights_by_hand():
    figure, data = plots.binary_weights([2, 3])
    row = data[(data["N"] == 3) & np.isclose(data["p"], 0.25)].squeeze()
    # E[A | 1] - E[A | 0] = (9 √2 + 6 √½) / 16 + (6 √½ + √2) / 16 = √2.
    assert row["weight"] == pytest.approx(math.sqrt(2))
    assert row["equal"] == pytest.approx((1 + 27) / 64)
    assert row["limit"] == pytest.approx(1 / math.sqrt(3 / 16))
    # Of two rewards A = r_1 - r_2: the weight is 1 at every p.
    assert data.loc[data["N"] == 2, "weight"].tolist() == pytest.approx([1.0] * 99)
    assert figure.axes[0].lines[1].get_ydata().tolist() == data.loc[data["N"] == 3, "weight"].tolist()


def test_the_fit_finds_the_exponent_of_a_power_law_and_is_drawn_where_it_was_fitted():
    sizes = [2, 4, 8, 16, 32]
    measured = pd.DataFrame({"N": sizes, "first": [9.0, *(3 / N for N in sizes[1:])], "second": 1.0})
    figure, data = plots.bias_decay(measured, fit_from=4, level=0.5)
    assert math.isnan(data["fit"][0]) and data["fit"][1:].tolist() == pytest.approx([3 / N for N in sizes[1:]])
    drawn = figure.axes[0].lines[2].get_xydata()
    assert drawn[np.isfinite(drawn[:, 1]), 0].tolist() == sizes[1:]
    labels = [text.get_text() for text in figure.axes[0].get_legend().get_texts()]
    assert labels == ["first", "second", "first, fitted from N = 4 on: $N^{-1.00}$", "0.5"]


def test_figures_are_drawn_without_warning(points, recwarn):
    measured = pd.DataFrame({"N": [2, 4], "rms": [0.4, 0.2]})
    for figure, _ in (
        plots.bias_curves(points, "t"),
        plots.bias_signs(8, [2, 8]),
        plots.binary_weights([2]),
        plots.bias_decay(measured, 2, 0.1),
    ):
        figure.draw_without_rendering()
    assert not recwarn.list
