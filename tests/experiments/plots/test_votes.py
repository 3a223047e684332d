"""Figures of majority votes draw what the tables hold."""

import matplotlib.pyplot as plt
import pytest

from agpo_core.comparison import paired, t_interval
from agpo_core.experiments import plots
from agpo_core.experiments.plots import alt
from agpo_core.experiments.records import Results
from agpo_core.experiments.verdicts import MEASURES
from agpo_core.theory.voting import vote_chance
from tests.experiments.test_votes import results


@pytest.fixture(autouse=True)
def closed():
    yield
    plt.close("all")


def test_the_exact_curves_are_vote_chances_and_rise_or_fall_as_the_words_say():
    _, data = plots.vote_chances()
    assert len(data) == 7 * 7
    for row in data.itertuples():
        assert row.chance == pytest.approx(vote_chance(row.right, [(1 - row.right) / row.rivals] * row.rivals, row.k))
    words = alt.vote_chances(data)
    assert "p = 0.55 against 1 wrong" in words and "p = 0.45" not in words and words.endswith("other 3.")


def test_the_drawn_votes_are_the_measured_ones():
    found = results()
    figure, data = plots.majority_votes(found)
    assert set(data["arm"]) == {"start", "grpo", "grpo_ats", "agpo"} and set(data["k"]) == {1, 4, 16}
    row = data.set_index(["arm", "k"]).loc[("agpo", 4)]
    gap = t_interval(paired(found.runs, "agpo", "grpo", MEASURES["maj@4"]))
    assert (row["gap"], row["gap_half"], row["pairs"]) == pytest.approx(gap[:3], nan_ok=True)
    assert data.loc[data["arm"].isin(["start", "grpo"]), "pairs"].eq(0).all()
    left, right = figure.axes
    assert left.get_xscale() == "log" and len(right.containers) == 2
    assert "leave out zero" in alt.majority_votes(data)


def test_gains_by_task_are_drawn_and_told():
    _, data = plots.vote_gains(results())
    assert len(data) == 8 and "on average, below zero on" in alt.vote_gains(data)


def test_runs_without_votes_give_empty_figures():
    found = results()
    bare = Results(found.runs.filter(regex="^(?!maj)"), found.traces, found.meta)
    for draw, words in ((plots.majority_votes, alt.majority_votes), (plots.vote_gains, alt.vote_gains)):
        _, data = draw(bare)
        assert data.empty and words(data) == alt.EMPTY
