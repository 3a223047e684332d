"""The figure of all claims draws what the tables hold."""

import matplotlib.pyplot as plt

from agpo_core.experiments import claim_tables, plots
from agpo_core.experiments.plots.claims import MARKS


def test_every_judged_difference_is_drawn_and_its_mark_says_its_verdict():
    found = claim_tables.effects()
    figure, drawn = plots.claims_overview(found)
    bars, forest = figure.axes
    judged = found[(found["verdict"] != claim_tables.NOT_JUDGED) & (found["unit"] == "points")]
    assert len(drawn) == len(judged)
    marks = [container for container in forest.containers]
    assert [c[0].get_xdata()[0] for c in marks] == drawn["mean"].tolist()
    assert [c[0].get_marker() for c in marks] == [MARKS[verdict][1] for verdict in drawn["verdict"]]
    assert sum(patch.get_width() for patch in bars.patches) == 56
    plt.close(figure)


def test_without_records_the_bars_are_drawn_and_the_panel_below_says_so():
    figure, drawn = plots.claims_overview(claim_tables.effects("smoke"))
    assert drawn.empty
    assert "no record judges a claim" in [text.get_text() for text in figure.axes[1].texts]
    plt.close(figure)
