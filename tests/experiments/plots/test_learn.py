"""Figures of the learn notebooks agree with hand-worked values, closed forms and slow sums."""

import itertools
import math

import matplotlib

matplotlib.use("Agg")

import pytest
import torch

from agpo_core.advantages import dr_grpo_advantages, group_advantages, leave_one_out_advantages
from agpo_core.controllers import AdaptiveClip, AdaptiveTemperature, ClipSignals
from agpo_core.experiments import plots
from agpo_core.experiments.plots.learn import SIGNALS, binary_probes

CLIP = AdaptiveClip(vocabulary_size=100)
AT = ClipSignals(sigma=0.5, skewness=0.5, vote_entropy=1.0, entropy=1.0)
HALVES = {"one": [1.5] * 70, "two": [1.0, 2.0] * 35}


def test_one_right_of_eight_has_the_largest_advantage():
    _, data = plots.binary_advantages(8)
    # σ̂ = sqrt(8 * 1/8 * 7/8 / 7) = .35355; (7/8) / σ̂ and (-1/8) / σ̂
    assert data.iloc[0].tolist() == pytest.approx([1, 2.474874, -0.353553], abs=1e-5)
    assert data.iloc[6].tolist() == pytest.approx([7, 0.353553, -2.474874], abs=1e-5)
    assert data["right"].tolist() == list(range(1, 8))


def test_the_pull_of_a_prompt_is_the_sum_over_all_outcomes_of_its_group():
    _, data = plots.prompt_weights(4)
    estimators = {
        "GRPO": group_advantages,
        "Dr. GRPO": dr_grpo_advantages,
        "leave-one-out": leave_one_out_advantages,
    }
    for name, estimator in estimators.items():
        row = data[data["estimator"] == name].iloc[30]
        p, expected = row["p"], 0.0
        for outcome in itertools.product([0.0, 1.0], repeat=4):
            chance = math.prod(p if r else 1 - p for r in outcome)
            A = estimator(torch.tensor([outcome], dtype=torch.float64))[0]
            expected += chance * sum(a * (r - p) for a, r in zip(A.tolist(), outcome, strict=True)) / 4
        assert row["gradient"] == pytest.approx(expected, rel=1e-9)
        assert row["ratio"] == pytest.approx(expected / (p * (1 - p)), rel=1e-9)


def test_leave_one_out_alone_pulls_as_the_true_gradient_does():
    _, data = plots.prompt_weights(8)
    spread = data.groupby("estimator")["ratio"].agg(["min", "max"])
    assert spread.loc["leave-one-out"].tolist() == pytest.approx([1, 1])
    assert spread.loc["Dr. GRPO"].tolist() == pytest.approx([7 / 8, 7 / 8])
    assert 1.5 < spread.loc["GRPO", "min"] < 2 < spread.loc["GRPO", "max"] < 2.4749


def test_mad_of_binary_rewards_is_positive_where_half_are_right():
    _, data = plots.binary_dispersions(8)
    assert data.loc[data["mad"] > 0, "right"].tolist() == [4]
    assert data["mad"][4] == pytest.approx(1.4826 * 0.5)
    assert data.loc[data["iqr"] == 0, "right"].tolist() == [0, 1, 7, 8]
    assert data["std"].tolist() == pytest.approx([math.sqrt(c * (8 - c) / 56) for c in range(9)])


def test_the_radius_is_that_of_equation_4_with_one_signal_moved():
    _, data = plots.clip_radius(CLIP, AT)
    assert set(data["signal"]) == set(SIGNALS)
    for row in data.iloc[::50].itertuples():
        s = {**vars(AT), row.signal: row.value}
        fall = 1 + s["sigma"] + 0.05 * s["skewness"] + 0.5 * s["step_kl"]
        raw = 0.2 * s["entropy"] * (1 + 0.2 * s["vote_entropy"]) / fall
        assert row.raw == pytest.approx(raw)
        assert row.epsilon == pytest.approx(min(max(raw, 0.05), 0.4))


def test_the_free_range_ends_where_the_bounds_begin_to_hold():
    _, data = plots.free_range(CLIP, 8)
    assert len(data) == 18
    for row in data.itertuples():
        probe = binary_probes(8, row.wrong)[row.right]

        def radius(H, probe=probe):
            return CLIP.update(CLIP.initial_state(), ClipSignals(**vars(probe), entropy=H))[0]

        assert radius(0.99 * row.floor) == 0.05 < radius(1.01 * row.floor)
        assert radius(1.01 * row.ceiling) == 0.4 > radius(0.99 * row.ceiling)


def test_the_most_uncertain_probe_has_one_right_and_no_two_answers_alike():
    scores = {w: [AdaptiveTemperature().uncertainty(s) for s in binary_probes(8, w)] for w in ("agree", "differ")}
    # 1 / sqrt(8) + log 8 + .1 * 6 / sqrt(7)
    assert scores["differ"][1] == max(map(max, scores.values())) == pytest.approx(2.65977, abs=1e-5)
    assert scores["agree"][0] == scores["agree"][8] == scores["differ"][8] == 0
    assert scores["agree"] == pytest.approx(scores["agree"][::-1])


def test_a_constant_uncertainty_heats_by_lambda_u_rho_to_the_t_from_a_baseline_of_zero():
    _, data = plots.temperature_run(HALVES, AdaptiveTemperature())
    zero = data[(data["course"] == "one") & (data["start"] == "zero")]
    assert zero["tau"].tolist() == pytest.approx([1 + 0.15 * 1.5 * 0.95**t for t in range(70)])
    for start in ("first", "debiased"):
        assert data.loc[(data["course"] == "one") & (data["start"] == start), "tau"].tolist() == pytest.approx([1] * 70)


def test_the_starts_differ_at_first_and_agree_at_last():
    _, data = plots.temperature_run({"two": [1.0, 2.0] * 200}, AdaptiveTemperature())
    tau = data.pivot(index="update", columns="start", values="tau")
    spread = tau.max(axis=1) - tau.min(axis=1)
    assert spread.iloc[0] > 0.1 and spread.iloc[-1] < 1e-8


def test_one_start_can_be_drawn_alone():
    _, data = plots.temperature_run(HALVES, AdaptiveTemperature(), ["debiased"])
    assert set(data["start"]) == {"debiased"} and len(data) == 140


def test_what_stands_for_the_entropy_decides_whether_the_radius_reaches_its_floor():
    entropies = [1.0, 0.8, 0.4, 0.1]
    _, data = plots.entropy_terms(entropies, CLIP, AT)
    raw = data.pivot(index="update", columns="term", values="raw")
    unit = 0.2 * 1.2 / 1.525
    assert raw["raw"].tolist() == pytest.approx([unit * H for H in entropies])
    assert raw["normalised"].tolist() == pytest.approx([unit * H / math.log(100) for H in entropies])
    assert raw["off"].tolist() == pytest.approx([unit] * 4)
    # EMA(H) is 1 and .998 at the second and third update; .8 / 1, and .4 / .998 = .401 is clipped to .5
    assert raw["ratio_ema"].tolist() == pytest.approx([unit * ratio for ratio in (1.0, 0.8, 0.5, 0.5)])
    assert data.loc[data["term"] == "raw", "epsilon"].iloc[-1] == 0.05


def test_figures_of_given_courses_say_that_these_are_invented():
    for figure, _ in (
        plots.temperature_run(HALVES, AdaptiveTemperature()),
        plots.entropy_terms([1.0, 0.5], CLIP, AT),
    ):
        assert "invented course" in figure.get_suptitle()


@pytest.mark.parametrize(
    "draw",
    [
        plots.binary_advantages,
        plots.prompt_weights,
        plots.binary_dispersions,
        lambda: plots.clip_radius(CLIP, AT),
        lambda: plots.clip_radius(CLIP, ClipSignals(0.0, 0.0, 0.0, entropy=0.0)),
        lambda: plots.free_range(CLIP),
        lambda: plots.temperature_run(HALVES, AdaptiveTemperature()),
        lambda: plots.entropy_terms([1.0, 0.5], CLIP, AT),
    ],
)
def test_a_figure_is_drawn_without_warning_and_shows_its_data(draw, recwarn):
    figure, data = draw()
    figure.draw_without_rendering()
    assert not recwarn.list
    assert data.notna().all(axis=None) and len(data) > 1
    assert all(axes.get_xlabel() or axes.get_title() or axes.get_ylabel() for axes in figure.axes)
