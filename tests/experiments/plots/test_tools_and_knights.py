"""Figures of R++ Table 4 and Fig. 4: what is drawn is what was measured, and an empty grid draws nothing."""

import matplotlib

matplotlib.use("Agg")

import pytest

from agpo_core.experiments import knights_readings, plots, tool_readings
from agpo_core.experiments.records import Results
from tests.experiments import test_knights_readings as puzzles
from tests.experiments import test_tool_readings as tools


@pytest.fixture
def calling():
    curves = {
        (arm, seed): (0.0, 0.2 * seed, 0.2 * seed + 0.1 * i) for i, arm in enumerate(tools.ARMS) for seed in (2, 3)
    }
    return tools.made(curves)


def test_curves_of_calls_and_accuracy(calling):
    figure, data = plots.tool_curves(calling)
    last = data[(data["arm"] == "ppo") & (data["update"] == 4)].iloc[0]
    assert (last["dev"], last["lead"], last["calls"]) == pytest.approx((50, -10, 0.5))
    assert data.loc[data["arm"] == "grpo", "lead"].isna().all()
    assert len(figure.axes) == 3 and "PPO, value head 50 % and 0.50 calls" in plots.alt.tool_curves(data)


def test_runs_of_one_start_are_joined(calling):
    figure, data = plots.tool_scores(calling)
    assert len(data) == 8
    # in the order of grid.ARMS: GRPO, REINFORCE++, REINFORCE++-baseline, PPO
    grey = [line for line in figure.axes[0].lines if line.get_color() == "0.8"]
    assert sorted(line.get_xdata().tolist() for line in grey) == [
        pytest.approx([50, 60, 70, 40]), pytest.approx([70, 80, 90, 60]),
    ]  # fmt: skip
    assert data.columns.tolist()[:2] == ["accuracy", "area"]


def test_silent_groups_are_drawn_with_and_without_a_record(calling):
    figure, data = plots.silent_groups(calling, 16, 1, 8)
    assert data.equals(tool_readings.by_silence(16, 1, 8))
    assert len(figure.axes[2].lines) == len(tool_readings.GROUPED)
    figure, _ = plots.silent_groups(tools.made({("grpo", 2): (0.0, 0.6, 1.0)}, logged=False), 4, 1, 2)
    assert not figure.axes[2].lines and "at 94% they are" in plots.alt.silent_groups(data)


def test_leads_are_drawn_with_the_line_of_their_mean_slope():
    rows = {}
    for seed, step in ((2, 1), (3, 2), (4, 3)):
        rows |= {("grpo", seed): (40, 30, 1), ("reinforce_pp_k", seed): (40, 30 + step, 1 + 2 * step)}
    results = puzzles.made(rows)
    results.meta["profile"] = "tiny"
    figure, data = plots.people_scores(results)
    of = data[data["arm"] == "reinforce_pp_k"]
    assert of["lead"].tolist() == pytest.approx([0, 2, 4]) and of["score"].tolist() == pytest.approx([40, 32, 5])
    slope = knights_readings.slopes(knights_readings.leads(results.runs, "reinforce_pp_k")).mean()
    lines = [line.get_ydata() for line in figure.axes[1].lines if len(line.get_ydata()) == 3]
    assert any(y[2] - y[0] == pytest.approx(2 * slope) for y in lines)
    assert "GRPO 40.0 % at 2 people and 1.0 % at 4" in plots.alt.people_scores(data)


def test_nothing_is_drawn_of_nothing():
    for name in ("tool_curves", "tool_scores", "people_scores"):
        _, data = getattr(plots, name)(Results())
        assert data.empty and getattr(plots.alt, name)(data) == plots.alt.EMPTY
