"""Figures of Tables 4 and 5: what is drawn is what was recorded, and what was recomputed from it."""

import matplotlib

matplotlib.use("Agg")

import pytest

from agpo_core.comparison import paired, t_interval
from agpo_core.experiments import leverage, plots, records, stability
from agpo_core.experiments.grid import ARMS

TABLE4, TABLE5 = (
    records.load(f"agpo_{name}", "tiny") for name in ("table4_signal_ablation", "table5_robust_dispersion")
)
pytestmark = pytest.mark.skipif(TABLE4 is None or TABLE5 is None, reason="there is no record")


def test_leverage_and_score_stand_in_panels_with_axes_of_their_own():
    figure, data = plots.signal_leverage(TABLE4)
    assert list(data.index) == list(leverage.MASKED)
    assert len({axes.get_xlabel() for axes in figure.axes}) == 3
    assert [label.get_text() for label in figure.axes[0].get_yticklabels()] == [ARMS[arm].title for arm in data.index]
    found = leverage.leverage(TABLE4.traces, TABLE4.meta["params"])
    for arm, row in data.iterrows():
        assert row["factor"] == found.loc[found["arm"] == arm, "epsilon_factor"].median()
        assert row[["gap", "half", "pairs"]].tolist() == pytest.approx(t_interval(paired(TABLE4.runs, arm, "agpo"))[:3])


def test_the_course_of_agpo_is_the_recorded_one():
    _, data = plots.masked_courses(TABLE4)
    recorded = TABLE4.traces[(TABLE4.traces["arm"] == "agpo") & (TABLE4.traces["update"] > 0)]
    for name in ("epsilon", "tau"):
        wanted = recorded.groupby("update")[name].mean()
        drawn = data[data["arm"] == "agpo"].set_index("update")[name]
        assert drawn.tolist() == pytest.approx(wanted.tolist(), rel=1e-4)


def test_a_line_marks_the_share_that_the_runs_saw():
    seen = stability.fallbacks(TABLE5)
    figure, data = plots.vanishing_dispersion(8, seen)
    half = data[data["p"] == 0.5].set_index("mode")["collapsed"]
    assert half.to_dict() == pytest.approx({"mad": 184 / 256, "iqr": 16 / 256})  # see test_binary_groups
    texts = [text.get_text() for text in figure.axes[0].texts]
    for share in seen.groupby("arm")["share"].mean():
        assert f"seen in probes: {share:.0%}" in texts
    assert len(plots.vanishing_dispersion(4, seen.iloc[:0])[0].axes[0].texts) == 2  # without runs the names alone


def test_mad_and_iqr_are_drawn_with_the_intervals_of_the_table():
    _, data = plots.robust_dispersion(TABLE5)
    found = stability.contrasts(TABLE5).set_index(["arm", "measure"])
    for row in data.itertuples():
        if row.measure != "score":
            assert (row.mean, row.low, row.high) == tuple(found.loc[(row.arm, row.measure), ["mean", "low", "high"]])
    assert set(data["measure"]) == {"score", stability.VARIANCE, stability.KL}


@pytest.mark.parametrize("arms", [["start"], ["start", "agpo"], ["agpo_mad"]])
def test_figures_of_too_few_arms_are_empty_and_not_an_error(arms):
    assert len(plots.signal_leverage(TABLE4.only(arms))[1]) in (0, 4)  # leverage needs AGPO alone
    plots.masked_courses(TABLE4.only(arms))
    assert plots.robust_dispersion(TABLE5.only(arms))[1].empty
