"""What the notebooks of AGPO's Figs. 3 and 4 say about their runs: predictions answered, statements, readings.

Every number is computed from the runs that are shown, and an answer whose runs are missing says so. An interval in an
answer stands by itself; `traces.judge_parts` corrects for their number.
"""

import numpy as np
import pandas as pd

from agpo_core.comparison import t_interval
from agpo_core.config import TrainConfig
from agpo_core.experiments import traces
from agpo_core.experiments.grid import ARMS
from agpo_core.experiments.predictions import answered
from agpo_core.experiments.records import Results
from agpo_core.experiments.traces import Part
from agpo_core.experiments.verdicts import fill
from agpo_core.training.optimisation import learning_rate

LONG = ("agpo", "agpo_no_kl")  # arms of the long runs whose radius adapts
HEATED = ("grpo_ats", "agpo", "agpo_part_probe", "agpo_free_probe")
TOLD = ("agpo", "agpo_free_probe")  # those that the answers name; the tables have all


# -- Fig. 3 ------------------------------------------------------------------------------------


def of_fig3(record: Results, long: Results) -> str:
    """The four predictions of agpo_fig3_kl_clip_traces, answered.

    Args:
        record: of AGPO's Table 1; its runs are short.
        long: the notebook's own runs.
    """
    return answered(
        (record, ("agpo",), lambda: how_much_is_entropy(record)),
        (record, ("agpo",), lambda: how_small_the_drift_is(record, long)),
        (long, ("agpo",), lambda: the_floor(long)),
        (record, ("grpo", "agpo"), lambda: why_the_step_kl_falls(record)),
    )


def how_much_is_entropy(record: Results, arm: str = "agpo") -> str:
    """By what ε exceeds ε_base H on average, and what moves it within a run."""
    updates, params = traces.updates_of(record.traces, arm), record.meta["params"]
    factor = updates["epsilon_raw"] / (params["epsilon_base"] * updates["entropy"])
    part = traces.shares(updates, params)
    others = ", ".join(f"{name} {t_interval(100 * part[name]).text('+', 0)} %" for name in ("E", "σ̂", "|κ̃₃|", "D̂"))
    r = traces.lagged(updates, "entropy", "epsilon_raw", 0, differences=False)
    both = traces.lagged(updates, "vote_entropy", "sigma", 0, differences=False)
    return (
        f"The factor beside ε_base H is {factor.mean():.2f} on average and lies between {factor.min():.2f} and "
        f"{factor.max():.2f}. Of the variance of ln ε within a run H explains {t_interval(100 * part['H']).text()} %; "
        f"the others: {others}. Within runs ε and H are correlated with {traces.correlation_text(r)}. All of this is "
        f"about small movements: the standard deviation of ln ε within a run is {part['sd'].mean():.1%}. E raises ε "
        f"and σ̂ lowers it, and within runs the two are correlated with {traces.correlation_text(both)}."
    )


def how_small_the_drift_is(record: Results, long: Results) -> str:
    """The drift's share of the denominator of Eq. 4, and the γ at which it would be noticed."""
    words = []
    for results, runs in ((record, "recorded"), (long, "long")):
        for arm in traces.present(results, LONG):
            updates, params = traces.updates_of(results.traces, arm), results.meta["params"]
            below = traces.denominator(updates, params)
            share, needed = below["D̂"] / below["sum"], traces.gamma_needed(updates, params)
            words.append(
                f"in the {runs} runs of {ARMS[arm].title} {share.mean():.2%} on average and {share.max():.2%} at most, "
                f"and γ would have to be {t_interval(needed).text('', 0)} times as large"
            )
    return (
        "γ D̂ as a share of the denominator, and what γ would have to be for the mean drift of a run to make ε a tenth "
        f"smaller: {'; '.join(words)}."
    )


def the_floor(long: Results) -> str:
    """At which entropy the long runs' signals put ε at its floor, and how far the entropy fell."""
    params, sentences = long.meta["params"], []
    for arm in traces.present(long, LONG):
        updates = traces.updates_of(long.traces, arm)
        at = params["epsilon_min"] * updates["entropy"] / updates["epsilon_raw"]
        floor = traces.at_floor(updates, params)
        H = {which: traces.quarter(updates, "entropy", which).mean() for which in ("first", "last")}
        when = ""
        if (floor > 0).any():
            there = updates[np.isclose(updates["epsilon"].astype(float), params["epsilon_min"])]
            when = f", for the first time in update {there['update'].min()}"
        sentences.append(
            f"{ARMS[arm].title}: Eq. 4 comes to ε_min at H = {at.min():.2f} to {at.max():.2f} nats; H went from "
            f"{H['first']:.2f} (first quarter of a run) to {H['last']:.2f} (last), with {updates['entropy'].min():.2f} "
            f"as its lowest value, and ε reached its floor in {(floor > 0).sum()} of {len(floor)} runs{when}."
        )
    return " ".join(sentences)


def why_the_step_kl_falls(record: Results) -> str:
    """By which factor the step KL falls with a fixed and with an adaptive radius, beside that of the learning rate."""
    config = TrainConfig.from_dict({name: record.meta["params"][name] for name in ("warmup", "learning_rate")})
    words = []
    for arm in ("grpo", "agpo"):
        updates = traces.updates_of(record.traces, arm)
        begun = updates.groupby(traces.RUN)["progress"].shift(fill_value=0.0)
        updates["rate"] = [learning_rate(config, progress) for progress in begun]
        first, last = (traces.quarter(updates, "step_kl", which).mean() for which in ("first", "last"))
        rate = traces.quarter(updates, "rate", "last").mean() / traces.quarter(updates, "rate", "first").mean()
        words.append(f"{ARMS[arm].title} from {first:.4f} to {last:.4f} nats (the learning rate to {rate:.0%})")
    return (
        f"Between the first and the last quarter of a run the step KL falls in {' and in '.join(words)}. GRPO's radius "
        "is the same in every update, so the fall needs no adaptive radius: a falling learning rate suffices."
    )


def parts_of_fig3(long: Results) -> list[Part]:
    """What claim 18 says of AGPO's long runs, as statements that can be judged."""
    updates, floor = traces.updates_of(long.traces, "agpo"), long.meta["params"]["epsilon_min"]
    updates["over_floor"] = np.log(updates["epsilon_raw"].astype(float) / floor)
    return [
        Part("ε falls: its mean in the last quarter of a run less that in the first is below zero.",
             traces.change(updates, "epsilon"), -1),
        Part("ε reaches its floor: the mean of ln(ε / ε_min) in the last quarter, ε before its bounds, is below zero.",
             traces.quarter(updates, "over_floor", "last"), -1),
        Part("The KL to the reference is bounded: it is no longer growing, so that its mean in the last quarter less "
             "that in the quarter before is below zero.", traces.change(updates, "reference_kl", "third"), -1, 4),
    ]  # fmt: skip


def controls_of_fig3(long: Results) -> list[Part]:
    """What holds the KL: differences between arms of the long runs, paired by run; no paper claims anything of them."""
    logs = {}
    for arm in traces.present(long, ("grpo", "agpo", "grpo_no_kl", "agpo_no_kl")):
        updates = traces.updates_of(long.traces, arm)
        logs[arm] = np.log(traces.quarter(updates, "reference_kl", "last").clip(lower=1e-6))
    asks = {
        ("agpo", "grpo"): "Does the adaptive radius hold the KL to the reference",
        ("agpo_no_kl", "grpo_no_kl"): "Does it without a KL term",
        ("agpo", "agpo_no_kl"): "Does the KL term",
    }
    return [
        Part(f"{ask}? ln of the KL in the last quarter, {ARMS[one].title} less {ARMS[other].title}.",
             (logs[one] - logs[other]).dropna(), 0, 2)
        for (one, other), ask in asks.items()
        if {one, other} <= set(logs)
    ]  # fmt: skip


# -- Fig. 4 ------------------------------------------------------------------------------------


def of_fig4(results: Results, long: Results) -> str:
    """The five predictions of agpo_fig4_temperature_accuracy, answered.

    Args:
        results: the arms of methods_overview that heat, and GRPO.
        long: the runs of agpo_fig3_kl_clip_traces.
    """
    return answered(
        (results, ("agpo",), lambda: how_far_the_baseline_comes(results)),
        (results, ("agpo",), lambda: how_much_is_warm_up(results)),
        (results, ("agpo",), lambda: what_debiasing_changes(results)),
        (results, ("agpo",), lambda: how_it_goes_with_reward(results)),
        (long, ("agpo",), lambda: after_the_warm_up(long)),
    )


def how_far_the_baseline_comes(results: Results) -> str:
    """The share of a constant U that Ū reaches, and what it reached."""
    rho, words = results.meta["params"]["momentum"], []
    for arm in traces.present(results, TOLD):
        updates = traces.probed(results.traces, arm)
        last = updates.loc[updates.groupby(traces.RUN)["update"].idxmax()]
        seen = updates.groupby(traces.RUN).size().mean()
        reached = (last["uncertainty_baseline"] / last["uncertainty"]).mean()
        words.append(f"{ARMS[arm].title} {reached:.0%} ({1 - rho ** (seen - 1):.0%}, {seen:.0f} updates)")
    return (
        "Ū read in update t holds t - 1 earlier ones, hence 1 - ρ_U^(t - 1) of a constant U. In the last update Ū had "
        f"reached, of that update's U (and would have, of a constant one): {'; '.join(words)}."
    )


def how_much_is_warm_up(results: Results) -> str:
    """The share of τ's movement within a run that needs no signal but the mean of U."""
    params, words = results.meta["params"], []
    for arm in traces.present(results, TOLD):
        updates = traces.probed(results.traces, arm)
        share = traces.explained(updates, traces.warm_up(updates, params))
        words.append(f"{ARMS[arm].title} {t_interval(100 * share).text('', 0)} %")
    return f"Of the variance of τ within a run the warm-up at a constant U explains: {'; '.join(words)}."


def what_debiasing_changes(results: Results) -> str:
    """Between which temperatures τ would have moved from the same signals under a debiased Ū."""
    params, words = results.meta["params"], []
    for arm in traces.present(results, TOLD):
        updates = traces.probed(results.traces, arm)
        other = traces.temperature(updates, params, "debiased")
        below = (other < params["tau_base"] - 1e-9).mean()
        as_it_was = f"{updates['tau'].min():.2f} to {updates['tau'].max():.2f} as it was"
        words.append(
            f"{ARMS[arm].title} {as_it_was}, {other.min():.2f} to {other.max():.2f} debiased, and then below τ_base in "
            f"{below:.0%} of updates"
        )
    return f"{'; '.join(words)}."


def how_it_goes_with_reward(results: Results) -> str:
    """Correlations of τ and reward within runs: of levels, of changes, and at the lag of a free probe."""
    words = []
    for arm in traces.present(results, TOLD):
        updates = traces.probed(results.traces, arm)
        levels = traces.lagged(updates, "tau", "reward", 0, differences=False)
        changes = ", ".join(
            f"{traces.correlation_text(traces.lagged(updates, 'tau', 'reward', lag))} at lag {lag}"
            for lag in (-1, 0, 1)
        )
        step = updates.groupby(traces.RUN)["tau"].diff().abs().mean()
        words.append(
            f"{ARMS[arm].title}: levels {traces.correlation_text(levels)}, changes {changes} (τ changes by {step:.3f} "
            "from one update to the next)"
        )
    return f"{'. '.join(words)}. Means over runs, 95 % interval; at lag -1 the reward came one update before τ."


def after_the_warm_up(long: Results) -> str:
    """What τ does in long runs, once Ū has caught up with U."""
    params = long.meta["params"]
    updates = traces.probed(long.traces, "agpo")
    first, last = (traces.quarter(updates, "tau", which) - params["tau_base"] for which in ("first", "last"))
    cooled = traces.each_run(updates, lambda run: (run["tau"] < params["tau_base"]).iloc[len(run) // 4 :].mean())
    begins = updates[updates["tau"] < params["tau_base"]].groupby(traces.RUN)["update"].min()
    ends = sorted({begins.min(), begins.max()}) if len(begins) else []
    when = f", for the first time in update {' to '.join(map(str, ends))}" if ends else ""
    same = traces.lagged(updates, "tau", "reward", 0)
    U = [traces.quarter(updates, "uncertainty", which).mean() for which in ("first", "last")]
    scatter = traces.each_run(updates, lambda run: run["tau"].iloc[len(run) // 4 :].std())
    return (
        f"In the {updates.groupby(traces.RUN).size().mean():.0f} updates of the long runs of AGPO τ - τ_base is "
        f"{t_interval(first).text('+', 3)} on average in the first quarter of a run, and in the last "
        f"{t_interval(last).text('+', 3)}. τ lies below τ_base in {cooled.mean():.0%} of the updates after the first "
        f"quarter{when}. There its standard deviation within a run is {scatter.mean():.3f}. U falls from {U[0]:.2f} to "
        f"{U[1]:.2f}. Changes of τ and reward in the same update are correlated with {traces.correlation_text(same)}."
    )


def parts_of_fig4(results: Results, long: Results) -> list[Part]:
    """What claim 19 says of AGPO's short and long runs, as statements that can be judged."""
    parts = []
    for runs in (results, long):
        if "agpo" not in set(runs.traces["arm"]):
            continue
        updates, base = traces.probed(runs.traces, "agpo"), runs.meta["params"]["tau_base"]
        where = f"in runs of {updates.groupby(traces.RUN).size().mean():.0f} updates"
        first, last = (traces.quarter(updates, "tau", which) - base for which in ("first", "last"))
        parts += [
            Part(f"AGPO heats early, {where}: the mean of τ - τ_base in the first quarter is above zero.", first, 1),
            Part(f"It cools late, {where}: the mean of τ - τ_base in the last quarter is below zero.", last, -1),
            Part(f"Later batches are more certain, {where}: U in the last quarter less U in the first is below zero.",
                 traces.change(updates, "uncertainty"), -1),
        ]  # fmt: skip
    return parts


def controls_of_fig4(results: Results, long: Results) -> list[Part]:
    """The same with Ū debiased: what of claim 19 does not come from Ū_0 = 0; no paper claims anything of it."""
    parts = []
    for runs in (results, long):
        if "agpo" not in set(runs.traces["arm"]):
            continue
        params = runs.meta["params"]
        updates = traces.probed(runs.traces, "agpo")
        updates["other"] = traces.temperature(updates, params, "debiased") - params["tau_base"]
        n = updates.groupby(traces.RUN).size().mean()
        parts += [
            Part(f"With Ū debiased, runs of {n:.0f} updates: the mean of τ - τ_base in the {which} quarter.",
                 traces.quarter(updates, "other", which), 0, 4)
            for which in ("first", "last")
        ]  # fmt: skip
    return parts


def reading(judged: pd.DataFrame) -> str:
    """How many statements came out how, in one sentence."""
    claimed = judged[judged["verdict"] != "no claim"]
    counts = claimed["verdict"].value_counts(sort=False)
    found = ", ".join(f"{counts[verdict]} {verdict}" for verdict in counts.index) or "none"
    return fill(f"Of {len(claimed)} statements at this scale: {found}.", bullet="- ")
