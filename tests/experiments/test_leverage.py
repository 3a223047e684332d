"""The leverage of a signal: Eqs. 4 and 9 to 12, asked again with a mask, on signals that were recorded."""

import numpy as np
import pandas as pd
import pytest

from agpo_core.comparison import paired, t_interval
from agpo_core.controllers import AdaptiveClip, AdaptiveTemperature
from agpo_core.experiments import leverage, profiles, records
from agpo_core.recipes import RECIPES

PARAMS = profiles.settings("none", "tiny")
# Two updates: σ̂, |κ̃₃|, E, H, D_step of the update before
SIGNALS = [(0.5, 1.0, 1.0, 0.6, 0.0), (0.4, 2.0, 0.5, 0.5, 0.2)]
# Eq. 4: .2 * .6 * 1.2 / 1.55 and .2 * .5 * 1.1 / (1 + .4 + .1 + .1)
EPSILON = [0.144 / 1.55, 0.11 / 1.6]
# Eq. 9: .5 + 1 + .1 and .4 + .5 + .2; Ū is 0, then .05 * 1.6
TAU = [1 + 0.15 * 1.6, 1 + 0.15 * (1.1 - 0.08)]


@pytest.fixture
def traces():
    """One run of AGPO with the two updates, beside row 0, which holds no signals."""
    rows = [{"update": 0}, *({"update": u, **dict(zip(leverage.SIGNALS, s, strict=True))}
                             for u, s in enumerate(SIGNALS, 1))]  # fmt: skip
    return pd.DataFrame(rows).assign(arm="agpo", seed=1, start="a")


def test_radius_and_temperature_of_two_updates_are_those_worked_by_hand(traces):
    found = leverage.recompute(traces[traces["update"] > 0], AdaptiveClip(), AdaptiveTemperature())
    assert found["epsilon_raw"].tolist() == pytest.approx(EPSILON)
    assert found["epsilon"].tolist() == pytest.approx(EPSILON)  # both lie between .05 and .4
    assert found["tau"].tolist() == pytest.approx(TAU)


@pytest.mark.parametrize(
    ("arm", "factors", "shifts"),
    [
        # without σ̂: 1.55 / 1.05 and 1.6 / 1.2; U 1.1, then .7 with Ū = .055
        ("agpo_no_dispersion", (1.55 / 1.05, 1.6 / 1.2), (-0.15 * 0.5, -0.15 * (0.4 - 0.05 * 0.5))),
        # without |κ̃₃|: 1.55 / 1.5 and 1.6 / 1.5
        ("agpo_no_skewness", (1.55 / 1.5, 1.6 / 1.5), (-0.15 * 0.1, -0.15 * (0.2 - 0.05 * 0.1))),
        # without E: 1 / 1.2 and 1 / 1.1
        ("agpo_no_vote_entropy", (1 / 1.2, 1 / 1.1), (-0.15 * 1.0, -0.15 * (0.5 - 0.05 * 1.0))),
        # without D_step, which was 0 and .2 (times γ = .5); it does not enter Eq. 9
        ("agpo_no_step_kl", (1.0, 1.6 / 1.5), (0.0, 0.0)),
    ],
)
def test_the_leverage_of_each_signal_is_the_one_worked_by_hand(traces, arm, factors, shifts):
    found = leverage.leverage(traces, PARAMS)
    found = found[found["arm"] == arm]
    assert found["update"].tolist() == [1, 2]
    assert found["epsilon_factor"].tolist() == pytest.approx(factors)
    assert found["tau_shift"].tolist() == pytest.approx(shifts)
    assert not found["cut"].any()
    # Eq. 4 is linear in H: the larger radius comes to .05 at H * .05 / radius
    larger = [e * max(f, 1) for e, f in zip(EPSILON, factors, strict=True)]
    wanted = [s[3] * 0.05 / e for s, e in zip(SIGNALS, larger, strict=True)]
    assert found["hidden_below"].tolist() == pytest.approx(wanted)


def test_a_bound_hides_leverage_and_is_counted(traces):
    pinned = leverage.leverage(traces, PARAMS | {"epsilon_min": 0.2, "epsilon_max": 0.4})
    assert (pinned["epsilon_factor"] == 1).all()  # both radii lie at the floor
    changed = ~np.isclose(pinned["raw_factor"], 1)
    assert (pinned["cut"] == changed).all() and pinned["cut"].sum() == 7  # all but D_step's first, which was 0
    halfway = leverage.leverage(traces, PARAMS | {"epsilon_min": 0.1})
    first = halfway[halfway["arm"] == "agpo_no_dispersion"].iloc[0]
    assert first["cut"] and first["epsilon_factor"] == pytest.approx(0.144 / 1.05 / 0.1)  # from the floor


def test_the_masks_are_those_of_the_ablations_and_each_takes_one_signal():
    masks = [RECIPES[arm].settings["signals_mask"] for arm in leverage.MASKED]
    assert [mask.index(0) for mask in masks] == [0, 1, 2, 3] and all(sum(mask) == 3 for mask in masks)


@pytest.mark.skipif(records.load("agpo_table4_signal_ablation", "tiny") is None, reason="there is no record")
def test_recorded_radii_and_temperatures_come_out_again_to_the_records_rounding():
    record = records.load("agpo_table4_signal_ablation", "tiny")
    found = leverage.deviations(record.traces, record.meta["params"])
    assert list(found.index) == ["agpo", *leverage.MASKED]
    assert (found["updates"] == len(record.traces[record.traces["update"] > 0]) / 5).all()
    assert found[["epsilon", "tau"]].to_numpy().max() < 1e-4  # five digits of each signal, and of the value itself


def test_the_table_has_median_and_range_of_every_signal(traces):
    table = leverage.leverage_table(leverage.leverage(traces, PARAMS))
    assert list(table.index) == ["AGPO − σ̂", "AGPO − |κ̃₃|", "AGPO − E", "AGPO − D_step"]
    # the middle of 1 and 1.0667; 2.5 % and 97.5 % of the way between them
    assert table.loc["AGPO − D_step", "ε without it / ε"] == "1.033 [1.002, 1.065]"
    assert table.loc["AGPO − D_step", "τ without it − τ"] == "+0.000 [+0.000, +0.000]"
    assert (table["cut by ε's bounds"] == "0% of updates").all()


def test_runs_without_signals_have_no_leverage():
    empty = pd.DataFrame([{"arm": "agpo", "seed": 1, "start": "a", "update": 1, **dict.fromkeys(leverage.SIGNALS)}])
    assert leverage.leverage(empty, PARAMS).empty and leverage.deviations(empty, PARAMS).empty
    assert leverage.leverage_table(leverage.leverage(empty, PARAMS)).empty


def test_signals_that_move_together_correlate_fully():
    rows = [(u, x, 2 * x, 3 - x, 0.5, 0.0) for u, x in enumerate((0.3, 0.5, 0.4), 1)]
    frame = pd.DataFrame(rows, columns=["update", "sigma", "vote_entropy", "skewness", *leverage.SIGNALS[3:]])
    found = leverage.correlations(frame.assign(arm="agpo", seed=1, start="a"))
    assert found.tolist() == pytest.approx([1.0, -1.0, -1.0])
    short = leverage.correlations(frame.iloc[:2].assign(arm="agpo", seed=1, start="a"))
    assert short.isna().all()


@pytest.mark.skipif(records.load("agpo_table4_signal_ablation", "tiny") is None, reason="there is no record")
def test_the_explanation_names_the_signal_of_least_leverage_and_what_is_nearly_constant():
    record = records.load("agpo_table4_signal_ablation", "tiny")
    text = leverage.explained(record, None).replace("\n  ", " ").splitlines()
    assert text[0].startswith("- AGPO − D_step has the least leverage: in 95 % of updates ε would change by +0.0%")
    assert [line.split(":")[0] for line in text[1:]] == ["- AGPO − σ̂", "- AGPO − E"]  # the others move ε by under 10 %
    table1 = records.load("agpo_table1_main_results", "tiny")
    gap = t_interval(paired(table1.runs, "grpo_narrow", "grpo")).text("+")
    scaled = leverage.explained(record, table1).replace("\n  ", " ")
    assert f"runs that differ by a radius divided by four have scores that differ by {gap} points" in scaled
    assert leverage.explained(record.only(["start"]), None) == "These runs kept no signals."
