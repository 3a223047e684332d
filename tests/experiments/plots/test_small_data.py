"""Figures of training on few problems draw the record's numbers, for one run as for many."""

import matplotlib

matplotlib.use("Agg")

import pytest

from agpo_core.experiments import plots, records, small_data
from agpo_core.experiments.records import Results

FIGURES = ("overfitting_ends", "matched_levels", "overfitting_curves", "learning_times")


@pytest.fixture(scope="module")
def record():
    return records.load("rpp_table2_small_data_overfitting", "tiny")


def one_run(record) -> Results:
    runs, traces = (table[table["seed"] == 42] for table in (record.runs, record.traces))
    return Results(runs, traces[traces["update"] <= 3], record.meta)


@pytest.mark.parametrize("name", FIGURES)
def test_a_figure_says_scale_and_seeds_and_its_words_have_no_nan(record, name, recwarn):
    for results, seeds in ((record, "8 seeds"), (one_run(record), "seed 42"), (record.only(["start", "grpo"]), "8 s")):
        figure, data = getattr(plots, name)(results)
        figure.draw_without_rendering()
        words = getattr(plots.alt, name)(data)
        assert seeds in figure.get_suptitle() and "nan" not in words and words.endswith("."), words
    assert not recwarn.list


@pytest.mark.parametrize("name", FIGURES)
def test_nothing_run_gives_a_figure_that_says_so(name):
    figure, data = getattr(plots, name)(Results())
    assert figure.axes[0].texts[0].get_text() == "nothing to draw" and data.empty
    assert len(getattr(plots.alt, name)(data).split()) > 3


def test_the_panels_hold_the_means_and_the_paired_differences(record):
    _, data = plots.overfitting_ends(record)
    row = data[(data["measure"].str.contains("pass@16")) & (data["arm"] == "reinforce_pp_k")].iloc[0]
    wide = 100 * record.runs.pivot_table("pass_16", ["seed", "start"], "arm")
    assert row["mean"] == pytest.approx(wide["reinforce_pp_k"].mean())
    assert row["gap"] == pytest.approx((wide["reinforce_pp_k"] - wide["grpo"]).mean()) and row["pairs"] == 8
    _, times = plots.learning_times(record)
    assert times["mean"].iloc[0] == pytest.approx(small_data.updates_needed(record).loc["grpo", 0.5].mean())


def test_a_point_of_a_curve_is_the_mean_over_runs(record):
    _, data = plots.overfitting_curves(record)
    row = data[(data["panel"] == "Others (dev), greedy") & (data["arm"] == "grpo") & (data["update"] == 6)].iloc[0]
    of = record.traces[(record.traces["arm"] == "grpo") & (record.traces["update"] == 6)]
    assert row["mean"] == pytest.approx(100 * of["dev"].mean()) and row["n"] == 8
