"""The figure of three runs draws every run in every panel."""

import matplotlib.pyplot as plt

from agpo_core.experiments import plots, records
from agpo_core.experiments.plots.reading import LOOKS, PANELS


def test_every_run_is_in_every_panel_and_each_kind_has_a_look_of_its_own():
    results = records.load("learn_04_reading_a_run", "tiny")
    figure, drawn = plots.three_runs(results)
    assert len(figure.axes) == len(PANELS) == drawn["metric"].nunique()
    for axes, name in zip(figure.axes, PANELS, strict=True):
        lines = axes.get_lines()
        assert len(lines) == 6
        looks = {(str(line.get_color()), line.get_linestyle()) for line in lines}
        assert len(looks) == len(LOOKS)
        values = [value for line in lines for value in line.get_ydata()]
        assert values == drawn.loc[drawn["metric"] == name, "value"].tolist()
    plt.close(figure)


def test_kinds_that_were_not_run_are_left_out():
    figure, drawn = plots.three_runs(records.load("learn_04_reading_a_run", "tiny").only(["agpo"]))
    assert set(drawn["kind"]) == {"healthy"}
    plt.close(figure)
