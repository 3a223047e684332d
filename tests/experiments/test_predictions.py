"""Predictions are answered by the numbers of the runs that are shown."""

import numpy as np
import pandas as pd
import pytest

from agpo_core.comparison import paired, t_interval
from agpo_core.experiments import leverage, predictions, records, stability
from agpo_core.experiments.grid import ARMS
from agpo_core.experiments.records import Results

PARAMS = {
    "tau_base": 1.0, "tau_min": 0.5, "tau_max": 1.5, "epsilon_min": 0.05, "sensitivity": 0.15,
    "prompts_per_update": 36, "group_size": 8,
}  # fmt: skip
SCORES = {  # of seeds 1, 2, 3, in %
    "start": (40.0,),
    "grpo": (70.0, 72.0, 74.0),
    "agpo": (68.0, 69.0, 73.0),
    "grpo_matched_updates": (68.0, 70.0, 72.0),
    "grpo_matched_compute": (70.0, 71.0, 74.0),
    "grpo_narrow": (70.0, 72.0, 74.0),
    "agpo_free_probe": (70.0, 71.0, 74.0),
    "agpo_relative_entropy": (68.0, 70.0, 75.0),
    "remax": (60.0, 61.0, 62.0),
    "reinforce_pp": (75.0, 77.0, 79.0),
    "reinforce_pp_k": (70.0, 73.0, 73.0),
    "ppo": (70.0, 72.0, 74.0),
}
PROBED = ("agpo", "agpo_relative_entropy", "remax")


def results(arms=tuple(SCORES), params=PARAMS) -> Results:
    runs, traces = [], []
    for arm in arms:
        for seed, score in enumerate(SCORES[arm], 1):
            key = {"arm": arm, "seed": seed if arm != "start" else 0, "start": "a"}
            probe = 500 * (arm in PROBED)
            updates = 10 if arm == "agpo" else 20
            runs.append(
                {**key, "task": "steps", "macro": score / 100, "updates": updates, "tokens_train": 1000 - probe,
                 "tokens_probe": probe}
            )  # fmt: skip
            for update, tau in enumerate((1.3, 1.1, 0.9), 1) if arm != "start" else ():
                traces.append(
                    {**key, "update": update, "tau": tau, "entropy": 0.7, "epsilon": 0.1, "epsilon_raw": 0.1,
                     "uncertainty": 1.0, "uncertainty_train": 1.0 + tau, "explained_variance": 0.1 * update}
                )  # fmt: skip
    return Results(pd.DataFrame(runs), pd.DataFrame(traces), {"params": params, "profile": "tiny"})


def sentences(text: str) -> list[str]:
    """The answers, each on one line."""
    return text.replace("\n   ", " ").splitlines()


def test_the_answers_on_table_1_are_the_numbers_of_its_runs():
    updates, entropy, temperature, cost = sentences(predictions.of_table1(results()))
    assert updates.startswith("1. GRPO makes 20.0 updates. Updates relative to GRPO's, with a probe: AGPO (0.50), ")
    assert "without a probe: GRPO at ε = .05 (1.00)" in updates and "at AGPO's" not in updates
    # ε_min H / ε = .05 * .7 / .1
    assert "Eq. 4 gives ε_min at H = 0.35 to 0.35 nats" in entropy and "at its floor in 0% of updates" in entropy
    assert "In 3 of 3 runs of AGPO the first τ lies above τ_base; its mean is 1.30." in temperature
    assert "τ comes down to τ_base in 3 of them, after 2 updates at the earliest; the runs make 3" in temperature
    # -2, -3, -1; 0, -1, +1; -2, -2, -1: t(.975, 2) = 4.303, halves 2.48, 2.48, 1.43
    assert "AGPO differs from GRPO by -2.0\u00a0±\u00a02.5 points (the interval includes zero) at equal tokens" in cost
    assert "at equal updates, by +0.0\u00a0±\u00a02.5 points (the interval includes zero)" in cost
    assert "at equal compute, -1.7\u00a0±\u00a01.4 points (the interval excludes zero)" in cost


def test_the_answers_on_all_methods_are_the_numbers_of_their_runs():
    share, prompts, probe, critic = sentences(predictions.of_methods(results()))
    assert "AGPO: 50%" in share and "ReMax: 50%" in share and "GRPO and the others train on 100%." in share
    assert (
        "288 prompts" in prompts and "differs from GRPO by +5.0 points (no interval)." in prompts
    )  # equal differences
    assert "+5.0\u00a0±\u00a02.5 points (the interval excludes zero) from REINFORCE++ (k > 1)" in prompts  # 5, 4, 6
    # U rises by τ over the probe's; slope (.3 * 1.3 + .1 * 1.1 - .1 * .9) / (.09 + .01 + .01) = 3.73, times .15
    assert "a rise of τ feeds back 56% (AGPO) of itself, so a rise dies out" in probe
    assert "between 0.90 and 1.30 (its bounds are 0.5 and 1.5). Its mean in the last update is 0.90." in probe
    assert "then in the last update:" in critic and "PPO, value head: 10%, then 30%" in critic


@pytest.mark.parametrize("answer", [predictions.of_table1, predictions.of_methods])
@pytest.mark.parametrize("arms", [("start", "grpo"), ("start", "agpo"), ("start",), ("ppo", "reinforce_pp")])
def test_an_answer_without_its_arms_names_them(answer, arms):
    found = sentences(answer(results(arms)))
    assert [line[:2] for line in found] == ["1.", "2.", "3.", "4."]
    assert any("Not answered, because not run:" in line for line in found)
    assert not any("nan" in line for line in found)


@pytest.mark.parametrize(("setting", "line"), [({"clip_entropy": "ratio_ema"}, 1), ({"baseline_start": "first"}, 2)])
def test_a_question_about_another_equation_is_not_answered(setting, line):
    answer = sentences(predictions.of_table1(results(params=PARAMS | setting)))[line]
    (name, value) = next(iter(setting.items()))
    assert f"Not answered: with {name} {value!r}" in answer


def test_runs_without_the_critics_share_say_so():
    runs = results()
    runs.traces = runs.traces.drop(columns="explained_variance")
    answer = sentences(predictions.of_methods(runs))[3]
    assert "did not log how much" in answer and "from GRPO" in answer


def test_nothing_run_gives_nothing_to_answer():
    assert "Nothing was run" in predictions.of_table1(Results())


def test_the_freed_radius_is_told_with_its_difference_or_its_lack():
    text = predictions.freed_radius(results()).replace("\n", " ")
    # 0, +1, +2 against AGPO
    assert (
        "AGPO scores 70.0 %, and AGPO with H/EMA(H) scores 71.0 %. The paired difference is +1.0\u00a0±\u00a02.5 points"
        in text
    )
    assert "no record" in predictions.freed_radius(None) and "no record" in predictions.freed_radius(results(["agpo"]))


RECORDS = {
    predictions.of_table4: "agpo_table4_signal_ablation",
    predictions.of_table5: "agpo_table5_robust_dispersion",
}
RECORDED = all(records.load(name, "tiny") for name in RECORDS.values())


@pytest.mark.skipif(not RECORDED, reason="there is no record")
def test_the_answers_on_tables_4_and_5_are_the_numbers_of_their_records():
    table4, table5 = (records.load(name, "tiny") for name in RECORDS.values())
    radius, temperature, clipped, score = sentences(predictions.of_table4(table4))
    found = leverage.leverage(table4.traces, table4.meta["params"]).groupby("arm")
    factors = found["epsilon_factor"].median()
    largest = (np.log(factors).abs()).idxmax()
    assert f"204 updates): {ARMS[largest].title} {factors[largest]:.3f} (" in radius
    assert temperature.startswith("2. Down") and "AGPO − D_step" not in temperature
    gap = stability.contrasts(table4).set_index(["arm", "measure"]).loc[("agpo_no_step_kl", stability.CLIPPED)]
    assert f"AGPO − D_step {gap['mean']:+.2f} [" in clipped
    halves = [t_interval(paired(table4.runs, arm, "agpo")) for arm in leverage.MASKED]
    reach = max(max(abs(gap.low), abs(gap.high)) for gap in halves)
    assert f"No interval reaches farther than {reach:.1f} points" in score
    vanishing, pulls, restless, score = sentences(predictions.of_table5(table5))
    assert "in 71.9% of all groups" in vanishing and "AGPO, MAD 71%" in vanishing
    assert "With 2 right of 8" in pulls and "2.34 under the IQR" in pulls
    ratio = stability.contrasts(table5).set_index(["arm", "measure"]).loc[("agpo_iqr", stability.VARIANCE)]
    assert f"AGPO, IQR × {ratio['mean']:.2f} [" in restless
    assert f"AGPO, MAD {t_interval(paired(table5.runs, 'agpo_mad', 'agpo')).text('+')} points" in score


@pytest.mark.skipif(not RECORDED, reason="there is no record")
@pytest.mark.parametrize("answer", RECORDS)
@pytest.mark.parametrize("arms", [["start"], ["start", "agpo"], ["agpo_mad", "agpo_no_skewness"]])
def test_tables_4_and_5_with_arms_left_out_name_what_was_not_run(answer, arms):
    text = answer(records.load(RECORDS[answer], "tiny").only(arms))
    assert "Not answered, because not run: " in text or "Nothing was run" in text
