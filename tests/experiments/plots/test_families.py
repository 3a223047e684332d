"""The figures of several families draw the differences that the tables state."""

import matplotlib

matplotlib.use("Agg")

import pytest

from agpo_core.comparison import paired, t_interval
from agpo_core.experiments import families, grid, plots
from agpo_core.experiments.records import Results

STARTS = ["tiny-qwen2-a", "tiny-llama", "tiny-gemma2"]
FIGURES = [plots.family_gaps, plots.family_contrasts]


@pytest.fixture
def results(launched, trained, params):
    arms = ["start", "grpo", "agpo_no_ats", "agpo"]
    return trained("families", params | {"methods": arms, "models": STARTS, "cross_starts": True, "seeds": [1, 2]})


def test_every_arm_and_family_is_drawn_with_its_paired_difference(results):
    figure, data = plots.family_gaps(results)
    assert len(data) == 9 and (data.loc[data["arm"] == "grpo", "pairs"] == 0).all()
    for row in data[data["arm"] == "agpo"].itertuples():
        of_start = results.runs[results.runs["start"] == row.start]
        assert (row.gap, row.gap_half) == pytest.approx(t_interval(paired(of_start, "agpo", "grpo"))[:2])
    assert [label.get_text() for label in figure.axes[0].get_yticklabels()] == ["Qwen2", "Llama", "Gemma-2"]


def test_contrasts_are_those_of_the_table_and_the_axis_names_both_families(results):
    figure, data = plots.family_contrasts(results)
    assert data["mean"].tolist() == families.between(results.runs, ["agpo_no_ats", "agpo"])["mean"].tolist()
    names = [label.get_text() for label in figure.axes[0].get_yticklabels()]
    assert names == ["Qwen2 − Llama", "Qwen2 − Gemma-2", "Llama − Gemma-2"]
    assert "Qwen2 minus Llama" in plots.alt.family_contrasts(data)


def test_several_starts_of_one_family_have_a_row_of_their_own(results, monkeypatch):
    monkeypatch.setattr(families, "one_family", lambda _: results)
    figure, _ = plots.family_gaps(results)
    assert figure.axes[0].get_yticklabels()[-1].get_text().startswith("another start\nof Qwen2")


@pytest.mark.parametrize("draw", FIGURES)
def test_one_run_of_one_arm_and_nothing_at_all_are_drawn_without_a_warning(launched, params, draw, recwarn):
    one = {"methods": ["agpo"], "seeds": [42], "models": STARTS[:1]}
    figure, _ = draw(grid.run("families", params | one))
    figure.draw_without_rendering()
    _, data = draw(Results())
    assert data.empty and not recwarn.list
