"""Stability as AGPO §4.5 measures it: the measures of a run, and how arms differ in them."""

import math

import pandas as pd
import pytest

from agpo_core.experiments import stability
from agpo_core.experiments.records import Results
from agpo_core.experiments.stability import AT_BOUND, CLIPPED, KL, VARIANCE


def results(kl, variance, clipped=((0.1, 0.3), (0.0, 0.4))) -> Results:
    """Two updates a run, of 100 and 300 tokens; an arm's runs have seeds 1, 2, ... and no start of their own."""
    runs, traces = [], []
    for arm in kl:
        for seed, (level, var) in enumerate(zip(kl[arm], variance[arm], strict=True), 1):
            key = {"arm": arm, "seed": seed, "start": "a"}
            runs.append(key | {"task": "steps", "macro": 0.5, "grad_norm_variance": var})
            traces.append(key | {"update": 0})
            for update, tokens in ((1, 100), (2, 300)):
                share = clipped[arm != "agpo"][update - 1]
                row = {"update": update, "tokens": tokens, "clip_fraction": share, "reference_kl": level * update}
                traces.append(key | row | {"epsilon_at_bound": float(update == 2)})
    return Results(pd.DataFrame(runs), pd.DataFrame(traces), {})


THREE = results({"agpo": (0.1, 0.2, 0.3), "agpo_mad": (0.2, 0.4, 0.3)}, {"agpo": (1, 1, 2), "agpo_mad": (2, 4, 16)})


def test_the_measures_of_a_run_are_those_worked_by_hand():
    values = stability.per_run(THREE)
    assert len(values) == 6
    first = values.loc[("agpo", 1, "a")]
    assert first[KL] == pytest.approx(0.15)  # (.1 + .2) / 2
    assert first[CLIPPED] == pytest.approx(25.0)  # (.1 * 100 + .3 * 300) / 400
    assert first[AT_BOUND] == pytest.approx(50.0)
    assert first[VARIANCE] == pytest.approx(1000.0)


def test_differences_are_paired_and_a_variance_is_compared_by_its_ratio():
    found = stability.contrasts(THREE).set_index("measure")
    # 1.5 * (.1, .2, 0): mean .15, s .15, half 4.3027 * .15 / sqrt(3)
    assert found.loc[KL, ["mean", "low", "high"]].tolist() == pytest.approx(
        [0.15, 0.15 - 0.37262, 0.15 + 0.37262], abs=1e-4
    )
    # ratios 2, 4, 8: geometric mean 4, log2 of it 2 ± 4.3027 / sqrt(3)
    ends = [4.0, 2 ** (2 - 4.30265 / math.sqrt(3)), 2 ** (2 + 4.30265 / math.sqrt(3))]
    assert found.loc[VARIANCE, ["mean", "low", "high"]].tolist() == pytest.approx(ends, rel=1e-4)
    assert found.loc[CLIPPED, "mean"] == pytest.approx(5.0) and math.isnan(found.loc[CLIPPED, "low"])  # 30 - 25, equal
    assert (found["n"] == 3).all()


def test_the_table_shows_the_baselines_level_and_the_others_difference():
    table = stability.stability(THREE)
    assert list(table.index) == ["AGPO", "AGPO, MAD, from AGPO"]
    assert table.loc["AGPO", AT_BOUND] == "50" and table.loc["AGPO, MAD, from AGPO", AT_BOUND] == "+0"
    assert table.loc["AGPO, MAD, from AGPO", VARIANCE] == "× 4.00 (0.71 to 22.38)"
    assert table.loc["AGPO, MAD, from AGPO", CLIPPED] == "+5.00"


def test_a_difference_that_stands_after_the_correction_has_a_star():
    kl = {"agpo": (0.1, 0.2, 0.3), "agpo_mad": (0.2, 0.301, 0.399)}
    table = stability.stability(results(kl, {"agpo": (1, 1, 2), "agpo_mad": (2, 4, 16)}))
    assert table.loc["AGPO, MAD, from AGPO", KL].endswith(" *")
    assert not table.loc["AGPO, MAD, from AGPO", VARIANCE].endswith(" *")


def test_an_arm_without_a_clip_has_no_clip_saturation():
    mixed = results({"agpo": (0.1, 0.2), "dpo": (0.2, 0.4)}, {"agpo": (1, 1), "dpo": (2, 4)})
    mixed.traces.loc[mixed.traces["arm"] == "dpo", ["clip_fraction", "epsilon_at_bound"]] = None
    table = stability.stability(mixed)
    assert table.loc["DPO, from AGPO", CLIPPED] == "" and table.loc["DPO, from AGPO", VARIANCE].startswith("× 2.83")


def test_without_the_baseline_there_is_nothing_to_compare():
    alone = results({"agpo_mad": (0.1, 0.2)}, {"agpo_mad": (1, 2)})
    assert stability.contrasts(alone).empty


def test_the_share_of_vanished_dispersions_is_read_from_the_warnings():
    said = (
        "mad was zero although the rewards differed in 71% of the probe's groups, and became their std: with such ..."
    )
    lines = [
        {"arm": "agpo_mad", "seed": 1, "start": "a", "warning": said},
        {"arm": "agpo_mad", "seed": 1, "start": "a", "warning": "something else in 12% of updates"},
    ]
    found = stability.fallbacks(Results(meta={"warnings": lines}))
    assert found.to_numpy().tolist() == [["agpo_mad", 1, "a", 0.71]]
    assert stability.fallbacks(Results(meta={})).empty


def test_the_warning_that_is_read_is_the_one_that_runs_write():
    from agpo_core.recipes import resolve
    from agpo_core.training import run_warnings

    warning = run_warnings.dispersion_collapses(resolve("agpo_mad"), [{"dispersion_fallback": 0.71}] * 100)
    meta = {"warnings": [{"arm": "agpo_mad", "seed": 1, "start": "a", "warning": warning}]}
    assert stability.fallbacks(Results(meta=meta))["share"].tolist() == [0.71]
