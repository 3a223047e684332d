"""Statistics of traces agree with hand-worked values, with the controllers themselves, and with obvious loops."""

import math

import numpy as np
import pandas as pd
import pytest

from agpo_core.comparison import t_interval
from agpo_core.controllers import AdaptiveClip, AdaptiveTemperature, ClipSignals
from agpo_core.experiments import records, traces
from agpo_core.experiments.records import Results
from agpo_core.experiments.traces import Part
from agpo_core.probe import ProbeState

PARAMS = {
    "epsilon_base": 0.2, "epsilon_min": 0.05, "epsilon_max": 0.4,
    "alpha": 1.0, "gamma": 0.5, "delta": 0.2, "zeta": 0.05,
    "tau_base": 1.0, "tau_min": 0.5, "tau_max": 1.5, "sensitivity": 0.15, "momentum": 0.95, "weights": [1.0, 1.0, 0.1],
}  # fmt: skip


def invented(runs: int = 3, updates: int = 12, seed: int = 0) -> pd.DataFrame:
    """Traces of AGPO with invented signals, as a run would log them, and a row 0 each."""
    rng, rows = np.random.default_rng(seed), []
    for run in range(runs):
        baseline = 0.0
        for update in range(updates + 1):
            key = {"arm": "agpo", "seed": run, "start": "abc"[run % 3], "update": update, "progress": update / updates}
            if not update:
                rows.append(key | {"dev": 0.4})
                continue
            signals = {
                "sigma": rng.uniform(0.3, 0.5), "skewness": rng.uniform(0.5, 1.0),
                "vote_entropy": rng.uniform(0.6, 1.1),
                "entropy": 0.8 - 0.02 * update + rng.normal(0, 0.01), "step_kl_used": rng.uniform(-0.01, 0.1),
            }  # fmt: skip
            U = signals["sigma"] + signals["vote_entropy"] + 0.1 * signals["skewness"]
            row = key | signals | {"uncertainty": U, "uncertainty_baseline": baseline, "tau": 1 + 0.15 * (U - baseline)}
            row |= {"reward": rng.uniform(0.3, 0.6), "step_kl": 0.01 / update, "reference_kl": 0.01 * update}
            baseline = 0.95 * baseline + 0.05 * U
            below = 1 + row["sigma"] + 0.05 * row["skewness"] + 0.5 * max(row["step_kl_used"], 0.0)
            row["epsilon_raw"] = 0.2 * row["entropy"] * (1 + 0.2 * row["vote_entropy"]) / below
            rows.append(row | {"epsilon": max(row["epsilon_raw"], 0.05), "clip_fraction": 0.01})
    return pd.DataFrame(rows)


@pytest.fixture
def updates():
    return traces.updates_of(invented(), "agpo")


def test_updates_leave_out_the_score_before_training_and_other_arms():
    table = invented()
    other = table.assign(arm="grpo")
    found = traces.updates_of(pd.concat([other, table]).sample(frac=1, random_state=1), "agpo")
    assert set(found["arm"]) == {"agpo"} and found["update"].min() == 1
    assert found.groupby("seed")["update"].apply(list).tolist() == [list(range(1, 13))] * 3


def test_quarters_of_a_run_are_means_of_its_updates_and_never_empty():
    run = pd.DataFrame({"seed": 1, "start": "a", "x": [float(i) for i in range(1, 9)]})  # quarters 12 34 56 78
    first, third, last = (traces.quarter(run, "x", which).item() for which in traces.QUARTERS)
    assert (first, third, last) == (1.5, 5.5, 7.5)
    assert traces.change(run, "x").item() == 6.0 and traces.change(run, "x", "third").item() == 2.0
    for n in (1, 2, 3, 5):
        assert all(len(traces.quarter(run[:n], "x", which)) == 1 for which in traces.QUARTERS)
    assert traces.quarter(run[:1], "x", "last").item() == 1.0


def test_no_run_gives_no_number_and_a_run_of_nan_is_left_out(updates):
    assert traces.each_run(updates[:0], len).empty
    assert traces.each_run(updates[:0], len).index.names == traces.RUN
    assert (
        len(traces.quarter(updates.assign(entropy=updates["entropy"].where(updates["seed"] > 0)), "entropy", "last"))
        == 2
    )


def test_the_radius_is_that_of_the_controller(updates):
    clip = AdaptiveClip()
    for row, found in zip(updates.itertuples(), traces.radius(updates, PARAMS), strict=True):
        signals = ClipSignals(row.sigma, row.skewness, row.vote_entropy, entropy=row.entropy, step_kl=row.step_kl_used)
        assert found == pytest.approx(clip.raw(clip.initial_state(), signals), rel=1e-12)


def test_shares_of_the_variance_add_up_to_one_and_the_rest_is_small(updates):
    part = traces.shares(updates, PARAMS)
    assert part.drop(columns="sd").sum(axis=1).tolist() == pytest.approx([1.0] * 3)
    assert part["rest"].abs().max() < 0.05
    spread = np.log(updates["epsilon_raw"]).groupby(updates["seed"]).std()
    assert part["sd"].tolist() == pytest.approx(spread.tolist())


def test_a_signal_that_moves_alone_has_the_whole_share(updates):
    still = updates.assign(sigma=0.4, skewness=0.8, vote_entropy=0.9, step_kl_used=0.0)
    part = traces.shares(still, PARAMS)
    assert part["H"].tolist() == pytest.approx([1.0] * 3) and part[["E", "σ̂", "D̂"]].abs().max(axis=None) < 1e-9
    only = updates.assign(entropy=0.7, sigma=0.4, skewness=0.8, step_kl_used=0.0)
    assert traces.shares(only, PARAMS)["E"].tolist() == pytest.approx([1.0] * 3)


def test_with_the_gamma_needed_a_constant_drift_makes_the_radius_a_tenth_smaller():
    one = invented(1)
    still = traces.updates_of(one.assign(sigma=0.4, skewness=0.8, step_kl_used=0.02), "agpo")
    ratio = traces.gamma_needed(still, PARAMS).item()
    # 1.44 (1 / .9 - 1) / (.5 * .02) = 16
    assert ratio == pytest.approx(16.0)
    with_it = traces.radius(still, PARAMS | {"gamma": 0.5 * ratio})
    without = traces.radius(still, PARAMS | {"gamma": 0.0})
    assert (with_it / without).tolist() == pytest.approx([0.9] * 12)
    assert traces.gamma_needed(still.assign(step_kl_used=-0.01), PARAMS).empty


def test_a_run_at_its_floor_is_counted(updates):
    pinned = updates.assign(epsilon=np.where(updates["update"] <= 3, 0.05, 0.1))
    assert traces.at_floor(pinned, PARAMS).tolist() == [0.25] * 3


def test_the_temperature_from_the_signals_is_the_recorded_one_and_that_of_another_start(updates):
    assert traces.temperature(updates, PARAMS, "zero").tolist() == pytest.approx(updates["tau"].tolist())
    other = traces.temperature(updates, PARAMS, "debiased")
    for _, run in updates.groupby("seed"):
        seen, total, weight = [], 0.0, 0.0
        for U in run["uncertainty"]:
            baseline = total / weight if weight else U
            seen.append(1 + 0.15 * (U - baseline))
            total, weight = 0.95 * total + 0.05 * U, 0.95 * weight + 0.05
        assert other[run.index].tolist() == pytest.approx(seen)


def test_the_warm_up_is_what_the_controller_gives_at_constant_uncertainty(updates):
    constant = updates.assign(uncertainty=1.4, sigma=0.0, skewness=0.0, vote_entropy=1.4)
    ats = AdaptiveTemperature()
    state, expected = ats.initial_state(), []
    for _ in range(12):
        tau, state = ats.update(state, ProbeState(0.0, 0.0, 1.4))
        expected.append(tau)
    found = traces.warm_up(constant, PARAMS)
    assert found.tolist() == pytest.approx(3 * expected)
    assert traces.explained(constant.assign(tau=found), found).tolist() == [1.0] * 3


def test_a_free_probe_has_no_signals_in_its_first_update():
    table = invented()
    table.loc[table["update"] == 1, "uncertainty"] = math.nan
    assert traces.probed(table, "agpo")["update"].min() == 2


def test_a_lagged_correlation_of_changes_is_that_of_an_obvious_loop(updates):
    for lag in (-2, 0, 1):
        found = traces.lagged(updates, "tau", "reward", lag)
        for (seed, _), run in updates.groupby(traces.RUN):
            x, y = run["tau"].diff().tolist(), run["reward"].diff().tolist()
            pairs = [(x[i], y[i + lag]) for i in range(1, 12) if 1 <= i + lag < 12]
            assert found.xs(seed, level="seed").item() == pytest.approx(np.corrcoef(*zip(*pairs, strict=True))[0, 1])


def test_series_that_only_trend_are_correlated_in_levels_and_not_in_changes():
    rng = np.random.default_rng(3)
    rows = [
        {"seed": seed, "start": "a", "x": -t + rng.normal(), "y": t + rng.normal()}
        for seed in range(8) for t in range(60)
    ]  # fmt: skip
    table = pd.DataFrame(rows)
    levels = traces.mean_correlation(traces.lagged(table, "x", "y", 0, differences=False))
    changes = traces.mean_correlation(traces.lagged(table, "x", "y", 0))
    assert levels[0] < -0.95 and changes[1] < 0 < changes[2]


def test_the_mean_of_correlations_is_taken_in_fishers_z():
    values = pd.Series([0.5, -0.2, 0.8])
    mean, low, high, n = traces.mean_correlation(values)
    z = t_interval(np.arctanh(values))
    assert (mean, low, high, n) == pytest.approx((math.tanh(z.mean), math.tanh(z.low), math.tanh(z.high), 3))
    assert traces.correlation_text(values[:1]) == "+0.50" and traces.correlation_text(values[:0]) == "no number"
    assert all(abs(x) <= 1 for x in traces.mean_correlation(pd.Series([1.0, -1.0, 1.0]))[:3])  # not infinite


def test_short_or_constant_runs_have_no_correlation(updates):
    assert traces.lagged(updates[updates["update"] <= 4], "tau", "reward", 0).empty
    assert traces.lagged(updates.assign(tau=1.0), "tau", "reward", 0).empty


# -- tables and verdicts


def test_tables_show_a_row_a_signal_and_a_row_an_arm():
    results = Results(pd.DataFrame(), invented(), {"params": PARAMS})
    table = traces.signals_table(traces.updates_of(results.traces, "agpo"), PARAMS)
    assert list(table.index) == list(traces.TERMS) and table.loc["H", "of denominator"] == ""
    radius = traces.radius_table(results, ["start", "grpo", "agpo"])
    assert list(radius.index) == ["AGPO"] and radius.loc["AGPO", "runs at floor"] == "0 of 3"
    assert radius.loc["AGPO", "dev, %"] == "40.0 → 40.0"
    heat = traces.temperature_table(results, ["agpo"])
    assert heat.loc["AGPO", "below base"] == "0.0%"


def of_runs(*values) -> pd.Series:
    index = pd.MultiIndex.from_tuples([(i, "abcdef"[i]) for i in range(len(values))], names=traces.RUN)
    return pd.Series(values, index, dtype=float)


def test_the_sign_of_the_mean_decides_against_what_is_claimed():
    values = of_runs(1.0, 1.1, 0.9, 1.05)
    parts = [
        Part("a", values, 1),
        Part("b", values, -1),
        Part("c", of_runs(1.0, -1.2, 0.8, -0.9), 1),
        Part("d", values, 0),
    ]
    judged = traces.judge_parts(parts)
    assert judged["verdict"].tolist() == ["supported", "contradicted", "inconclusive", "no claim"]
    assert judged["family"].tolist() == [3, 3, 3, 1] and judged["about"].iloc[0] == "starts"
    # Holm: the smallest of three p is tripled, the second doubled
    p = judged["p"]
    assert judged.loc[[0, 1], "p_holm"].tolist() == pytest.approx([3 * p[0]] * 2) and judged.loc[3, "p_holm"] == p[3]


def test_small_effects_are_judged_whatever_their_unit():
    """`comparison.TIE` is in points: it must not make a tie of temperatures."""
    values = of_runs(0.001, 0.0011, 0.0009, 0.00105)
    assert traces.judge_parts([Part("a", values, 1)])["verdict"].item() == "supported"
    undecided = traces.judge_parts([Part("a", of_runs(1e-4, -1.2e-4, 1e-4, -0.5e-4, 2e-4), 1)])
    scaled = traces.judge_parts([Part("a", of_runs(1.0, -1.2, 1.0, -0.5, 2.0), 1)])
    assert undecided["needed"].item() == scaled["needed"].item() > 5


def test_one_run_decides_nothing_and_no_run_is_said_to_be_missing():
    parts = [Part("one", of_runs(1.0), 1), Part("none", of_runs(), -1)]
    judged = traces.judge_parts(parts)
    assert judged["verdict"].tolist() == ["inconclusive", "not run"]
    text = traces.claim_text(18, judged, parts)
    assert text.startswith("AGPO §4.4.2, Fig. 3, claim 18") and "lowest ε (Fig. 3): 0.05" in text
    assert "without an interval nothing is decided" in text and "no run has it" in text
    assert "verdict" not in traces.controls_text(judged[:1].assign(verdict="no claim"), [Part("one", of_runs(1.0), 0)])


def test_the_recorded_radius_and_temperature_follow_from_the_recorded_signals():
    record = records.load("agpo_table1_main_results", "tiny")
    updates, params = traces.updates_of(record.traces, "agpo"), record.meta["params"]
    assert (traces.radius(updates, params) - updates["epsilon_raw"]).abs().max() < 2e-5
    assert (traces.temperature(updates, params, "zero") - updates["tau"]).abs().max() < 1e-4
