"""Figures of traces draw what the runs say, for one run as for many, and say how many they are."""

from dataclasses import replace

import matplotlib

matplotlib.use("Agg")

import pandas as pd
import pytest

from agpo_core.experiments import leverage, plots, records, traces
from agpo_core.experiments.plots.traces import about_runs
from agpo_core.experiments.records import Results


def again(results):
    params = records.load("methods_overview", "tiny").meta["params"]
    return plots.controllers_again(results, "agpo", *leverage.controllers_of(params, "agpo"))


HEATED = ["grpo_ats", "agpo", "agpo_part_probe", "agpo_free_probe"]
FIGURES = {
    "radius": plots.radius_traces,
    "long": lambda results: plots.radius_traces(results, further=True),
    "factors": plots.radius_factors,
    "temperature": plots.temperature_traces,
    "starts": lambda results: plots.temperature_starts(results, HEATED),
    "again": again,
    "lags": lambda results: plots.temperature_lags(results, HEATED),
}


@pytest.fixture(scope="module")
def record():
    return records.load("methods_overview", "tiny").only(["grpo", *HEATED])


@pytest.mark.parametrize("name", FIGURES)
def test_a_figure_says_scale_and_seeds_and_needs_no_pyplot_warning(record, name, recwarn):
    figure, data = FIGURES[name](record)
    figure.draw_without_rendering()
    assert figure.get_suptitle().endswith("micro scale, 6 seeds on 6 starts") and not data.empty and not recwarn.list


@pytest.mark.parametrize("name", FIGURES)
def test_one_run_of_two_updates_is_drawn(record, name, recwarn):
    table = record.traces
    one = Results(record.runs, table[(table["seed"] == 42) & (table["update"] <= 2)], record.meta)
    figure, data = FIGURES[name](one)
    figure.draw_without_rendering()
    assert "1 seed on 1 start" in figure.get_suptitle() and not data.empty and not recwarn.list


@pytest.mark.parametrize("name", FIGURES)
def test_nothing_run_gives_a_figure_that_says_so(name):
    figure, data = FIGURES[name](Results())
    assert figure.axes[0].texts[0].get_text() == "nothing to draw" and data.empty


def test_lines_are_medians_over_the_runs_that_all_reached_the_update(record):
    table = record.traces
    short = (table["arm"] == "agpo") & (table["seed"] == 42) & (table["update"] > 6)
    _, data = plots.radius_traces(Results(record.runs, table[~short], record.meta))
    assert data.loc[data["arm"] == "agpo", "update"].max() == 6
    of = table[(table["arm"] == "agpo") & (table["update"] == 3)]["entropy"]
    row = data[(data["arm"] == "agpo") & (data["update"] == 3)]
    found = [row[name].item() for name in ("entropy", "entropy_low", "entropy_high")]
    assert found == pytest.approx([of.median(), of.min(), of.max()])


def test_the_bars_are_the_shares_of_the_variance(record):
    _, data = plots.radius_factors(record)
    part = traces.shares(traces.updates_of(record.traces, "agpo"), record.meta["params"])
    assert data["share"].tolist() == pytest.approx([100 * part[name].mean() for name in traces.TERMS])


def test_the_temperatures_are_means_of_what_traces_give(record):
    _, data = plots.temperature_starts(record, ["agpo"])
    updates = traces.probed(record.traces, "agpo")
    other = traces.temperature(updates, record.meta["params"], "debiased").groupby(updates["update"]).mean()
    assert data["debiased"].tolist() == pytest.approx(other.tolist())


def test_the_recorded_controllers_give_the_recorded_values_again_and_others_do_not(record):
    clip, temperature = leverage.controllers_of(record.meta["params"], "agpo")
    _, data = plots.controllers_again(record, "agpo", clip, temperature)
    for name in ("epsilon", "tau"):
        assert data[f"{name}_again"].tolist() == pytest.approx(data[name].tolist(), abs=1e-4)
    _, data = plots.controllers_again(record, "agpo", clip, replace(temperature, sensitivity=0.0))
    assert (data["tau_again"] == 1.0).all()


def test_a_lag_is_the_mean_correlation_of_the_runs(record):
    _, data = plots.temperature_lags(record, HEATED, lags=(0,))
    row = data[data["arm"] == "agpo"].iloc[0]
    values = traces.lagged(traces.probed(record.traces, "agpo"), "tau", "reward", 0)
    assert tuple(row[["mean", "low", "high", "n"]]) == pytest.approx(traces.mean_correlation(values))


def test_other_profiles_are_named(record):
    assert about_runs(Results(record.runs, record.traces, record.meta | {"profile": "paper"})).startswith(
        "profile paper"
    )


def test_many_updates_are_averaged_in_blocks_of_each_run(record):
    one = record.traces[(record.traces["arm"] == "agpo") & (record.traces["seed"] == 42)]
    first = one[one["update"] == 1].iloc[0]
    many = pd.DataFrame([{**first, "update": i, "progress": i / 120, "entropy": i / 100} for i in range(1, 121)])
    figure, data = plots.radius_traces(Results(record.runs, many, record.meta))
    # 120 updates in blocks of 3: the first is (1 + 2 + 3) / 300
    assert len(data) == 40 and data["entropy"].iloc[0] == pytest.approx(0.02) and data["update"].iloc[0] == 3
    assert figure.get_suptitle().endswith("means over 3 updates")
