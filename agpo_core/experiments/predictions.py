"""The questions of a notebook's *Predict* section, answered by number from the runs that the notebook shows.

An answer whose arms were not run names them. Differences are paired, in points of the macro-average, ± their 95 %
t-interval. These intervals are not corrected for the number of comparisons; the verdicts are.
"""

import math
from collections.abc import Callable, Iterable
from functools import partial

import pandas as pd

from agpo_core.comparison import Interval, macro, paired, t_interval
from agpo_core.experiments import leverage, report, stability
from agpo_core.experiments.grid import ARMS, arms_of
from agpo_core.experiments.records import Results
from agpo_core.experiments.verdicts import fill
from agpo_core.theory import binary_groups


def of_table1(results: Results) -> str:
    """The four predictions of agpo_table1_main_results, answered."""
    return _answered(
        results,
        (["grpo"], fewer_updates),
        (["agpo"], entropy_at_the_floor),
        (["agpo"], first_temperature),
        (["agpo", "grpo", "grpo_matched_updates"], what_the_probe_costs),
    )


def of_methods(results: Results) -> str:
    """The four predictions of methods_overview, answered."""
    return _answered(
        results,
        (["grpo"], trained_on),
        (["reinforce_pp", "reinforce_pp_k", "grpo"], prompts_or_rollouts),
        (["agpo_free_probe"], free_probe),
        (["ppo", "grpo"], critic),
    )


def of_table4(results: Results) -> str:
    """The four predictions of agpo_table4_signal_ablation, answered."""
    return _answered(
        results,
        (["agpo"], radius_without_a_signal),
        (["agpo"], temperature_without_a_signal),
        (["agpo", "agpo_no_step_kl"], clipped_without_a_signal),
        (["agpo", *leverage.MASKED], score_without_a_signal),
    )


def of_table5(results: Results) -> str:
    """The four predictions of agpo_table5_robust_dispersion, answered."""
    return _answered(
        results,
        (["agpo_mad", "agpo_iqr"], vanishing_dispersions),
        (["agpo"], two_of_a_group),
        (["agpo", "agpo_mad", "agpo_iqr"], restless_gradients),
        (["agpo", "agpo_mad", "agpo_iqr"], score_of_a_dispersion),
    )


def _answered(results: Results, *answers: tuple[list[str], Callable[[Results], str]]) -> str:
    if results.runs.empty:
        return "Nothing was run, so there is nothing to answer."
    return answered(*((results, needs, partial(answer, results)) for needs, answer in answers))


def answered(*answers: tuple[Results, Iterable[str], Callable[[], str]]) -> str:
    """Numbered answers, each given as the runs that it is about, the arms that it needs, and what words it."""
    lines = []
    for i, (results, needs, answer) in enumerate(answers, 1):
        there = {arm for table in (results.runs, results.traces) if "arm" in table for arm in table["arm"]}
        missing = [ARMS[arm].title for arm in needs if arm not in there]
        text = f"Not answered, because not run: {'; '.join(missing)}." if missing else answer()
        lines.append(fill(text, bullet=f"{i}. "))
    return "\n".join(lines)


# -- AGPO, Table 1 -----------------------------------------------------------------------------


def fewer_updates(results: Results) -> str:
    """Which arms make fewer updates than GRPO from equally many tokens, and by what factor."""
    of = _once_a_run(results.runs).groupby("arm")[["updates", "tokens_probe"]].mean()
    ratios = {True: [], False: []}
    for arm in arms_of(results.runs):
        if arm not in ("start", "grpo") and not ARMS[arm].follows:  # those have a horizon of their own
            ratio = of.loc[arm, "updates"] / of.loc["grpo", "updates"]
            ratios[of.loc[arm, "tokens_probe"] > 0].append(f"{ARMS[arm].title} ({ratio:.2f})")
    lists = {True: "with a probe", False: "without a probe"}
    parts = [f"{lists[probe]}: {', '.join(of_kind)}" for probe, of_kind in ratios.items() if of_kind]
    others = f" Updates relative to GRPO's, {'; '.join(parts)}." if parts else ""
    return f"GRPO makes {of.loc['grpo', 'updates']:.1f} updates.{others}"


def entropy_at_the_floor(results: Results) -> str:
    """The entropy at which AGPO's own probes put ε at its floor, and what the runs' entropy was.

    Literal Eq. 4 is linear in H, so that H_floor = H ε_min / ε, with ε before its bounds.
    """
    params, updates = results.meta["params"], _updates(results, "agpo")
    if params.get("clip_entropy", "raw") != "raw":
        return f"Not answered: with clip_entropy {params['clip_entropy']!r} the radius is not a multiple of H."
    floor = params["epsilon_min"] * updates["entropy"] / updates["epsilon_raw"]
    return (
        f"With the probe signals of AGPO's runs, Eq. 4 gives ε_min at H = {floor.min():.2f} to {floor.max():.2f} nats "
        f"(exercise 2 computes it for the six numbers). In these runs H lay between {updates['entropy'].min():.2f} "
        f"and {updates['entropy'].max():.2f} nats, and ε was at its floor in "
        f"{report.floor_share(updates, params):.0%} of updates."
    )


def first_temperature(results: Results) -> str:
    """On which side of its base τ starts under Ū_0 = 0, and for how many updates it stays above."""
    params = results.meta["params"]
    base = params["tau_base"]
    if params.get("baseline_start", "zero") != "zero":
        return f"Not answered: with baseline_start {params['baseline_start']!r} Ū does not start at 0."
    arms = [arm for arm in ("grpo_ats", "agpo") if arm in set(results.runs["arm"])]
    runs = [run["tau"].to_numpy() for arm in arms for _, run in _updates(results, arm).groupby(["seed", "start"])]
    above = sum(tau[0] > base for tau in runs)
    cooled = [int((tau <= base).argmax()) for tau in runs if (tau <= base).any()]  # updates before the first such one
    few, many = min(map(len, runs)), max(map(len, runs))
    last = "τ does not come down to τ_base in any of them"
    if cooled:
        last = f"τ comes down to τ_base in {len(cooled)} of them, after {min(cooled)} updates at the earliest"
    return (
        "Above: in the first update Eq. 12 gives τ_base (1 + λ U), and U is never negative. In "
        f"{above} of {len(runs)} runs of {' and '.join(ARMS[arm].title for arm in arms)} the first τ lies above "
        f"τ_base; its mean is {sum(tau[0] for tau in runs) / len(runs):.2f}. {last}; the runs make "
        f"{few if few == many else f'{few} to {many}'} updates."
    )


def what_the_probe_costs(results: Results) -> str:
    """AGPO against GRPO at equal tokens, updates and compute, and what the probe's cost explains of it."""
    runs = results.runs
    compute = ""
    if "grpo_matched_compute" in set(runs["arm"]):
        compute = f"; at equal compute, {_gap(runs, 'agpo', 'grpo_matched_compute')}"
    return (
        f"AGPO differs from GRPO by {_gap(runs, 'agpo', 'grpo')} at equal tokens; at equal updates, by "
        f"{_gap(runs, 'agpo', 'grpo_matched_updates')}{compute}. The difference at equal updates is due to the "
        "controllers, because the probe's tokens do not count there. The probe also takes updates away: GRPO with as "
        f"few updates as AGPO differs from GRPO by {_gap(runs, 'grpo_matched_updates', 'grpo')}."
    )


# -- all methods -------------------------------------------------------------------------------


def trained_on(results: Results) -> str:
    """Which methods train on fewer of their tokens than GRPO."""
    runs = _once_a_run(results.runs)
    sums = runs[runs["arm"] != "start"].groupby("arm")[["tokens_train", "tokens_probe"]].sum()
    share = (sums["tokens_train"] / sums.sum(axis=1)).sort_values()
    fewer = [f"{ARMS[arm].title}: {part:.0%}" for arm, part in share[share < share["grpo"]].items()]
    if not fewer:
        return f"None: every method trains on {share['grpo']:.0%} of its tokens."
    rest = "GRPO trains" if len(fewer) == len(share) - 1 else "GRPO and the others train"
    return (
        f"These methods train on a smaller share of their tokens than GRPO: {'; '.join(fewer)}. "
        f"{rest} on {share['grpo']:.0%}."
    )


def prompts_or_rollouts(results: Results) -> str:
    """One rollout of many prompts against many rollouts of few."""
    runs, params = results.runs, results.meta["params"]
    few, size = params["prompts_per_update"], params["group_size"]
    return (
        f"A group of {size} gives the better baseline, and {few * size} prompts give the more varied batch. The scores "
        f"say which matters more here. REINFORCE++ (k = 1) differs from GRPO by {_gap(runs, 'reinforce_pp', 'grpo')}. "
        f"It differs by {_gap(runs, 'reinforce_pp', 'reinforce_pp_k')} from REINFORCE++ (k > 1), which has the same "
        f"normaliser, and GRPO's {few} prompts. REINFORCE++ (k > 1) differs from GRPO by "
        f"{_gap(runs, 'reinforce_pp_k', 'grpo')}."
    )


def free_probe(results: Results) -> str:
    """Whether a free probe raises its own temperature without end."""
    params = results.meta["params"]
    arms = [arm for arm in ("grpo_ats", "agpo") if arm in set(results.runs["arm"])]
    gains = {arm: report.feedback(results.traces, arm, params)["gain"] for arm in arms if params["sensitivity"]}
    tau = _updates(results, "agpo_free_probe")
    last = tau.loc[tau.groupby(["seed", "start"])["update"].idxmax(), "tau"]
    text = ""
    if gains:
        shares = " and ".join(f"{gain:.0%} ({ARMS[arm].title})" for arm, gain in gains.items())
        end = "so a rise dies out" if max(gains.values()) < 1 else "so a rise need not die out"
        text = f"The arms with a real probe give an estimate: a rise of τ feeds back {shares} of itself, {end}. "
    return (
        f"{text}In the runs of AGPO with the free probe, τ lies between {tau['tau'].min():.2f} and "
        f"{tau['tau'].max():.2f} (its bounds are {params['tau_min']:g} and {params['tau_max']:g}). Its mean in the "
        f"last update is {last.mean():.2f}."
    )


def critic(results: Results) -> str:
    """How much of the variance of the returns a critic explains, and whether PPO gains by it."""
    gap = f"PPO with a value head differs from GRPO by {_gap(results.runs, 'ppo', 'grpo')}."
    name = "explained_variance"
    if name not in results.traces or results.traces[name].isna().all():
        return f"These runs did not log how much of the variance the critic explains. {gap}"
    parts, lowest = [], 0.0
    for arm in arms_of(results.traces[results.traces[name].notna()]):
        updates = _updates(results, arm).dropna(subset=[name])
        order = updates.groupby(["seed", "start"])["update"]
        first, last = (updates.loc[of, name].mean() for of in (order.idxmin(), order.idxmax()))
        parts.append(f"{ARMS[arm].title}: {first:.0%}, then {last:.0%}")
        lowest = min(lowest, first, last)
    below = " (A negative share means that the critic predicts worse than the mean return.)" if lowest < 0 else ""
    return (
        "Share of the returns' variance that the critic explains in the first and then in the last update: "
        f"{'; '.join(parts)}.{below} {gap}"
    )


# -- AGPO, Tables 4 and 5 ----------------------------------------------------------------------


def radius_without_a_signal(results: Results) -> str:
    """By what factor ε would change in AGPO's own runs, signal by signal; the largest change first."""
    found = leverage.leverage(results.traces, results.meta["params"])
    if found.empty:
        return "Not answered: these runs kept no signals."
    parts = {arm: leverage.middle(of["epsilon_factor"]) for arm, of in found.groupby("arm")}
    order = sorted(parts, key=lambda arm: -abs(math.log(parts[arm][0])))
    texts = [f"{ARMS[arm].title} {parts[arm][0]:.3f} ({parts[arm][1]:.3f} to {parts[arm][2]:.3f})" for arm in order]
    updates = len(found) // len(parts)
    return (
        "ε without a signal, as a multiple of ε, largest change first (the median, and the range of 95 % of "
        f"{updates} updates): {', '.join(texts)}."
    )


def temperature_without_a_signal(results: Results) -> str:
    """How much lower τ would be without a signal of the probe, in the first update and in the last."""
    found = leverage.leverage(results.traces, results.meta["params"])
    if found.empty:
        return "Not answered: these runs kept no signals."
    runs = found.sort_values("update").groupby(["arm", "seed", "start"])["tau_shift"]
    ends = pd.DataFrame({"first": runs.first(), "last": runs.last()}).groupby("arm").mean()
    texts = [
        f"{ARMS[arm].title} {ends.loc[arm, 'first']:+.3f} and {ends.loc[arm, 'last']:+.3f}"
        for arm in leverage.MASKED
        if ends.loc[arm].any()
    ]
    shrinks = "The change shrinks: " if (ends["last"].abs() <= ends["first"].abs()).all() else ""
    return (
        "Down: a mask takes a term out of Eq. 9 that is not negative. τ changes in the first update and in the last "
        f"by: {', '.join(texts)}. {shrinks}Ū starts at 0 and comes to hold the same signal, and a mask takes it out of "
        "U and Ū alike. The step KL does not enter Eq. 9, so that without it τ is what it was."
    )


def clipped_without_a_signal(results: Results) -> str:
    """Whether the clip stops more tokens without a signal, as the paper's Table 4 has it."""
    found = stability.contrasts(results)
    found = found[found["measure"] == stability.CLIPPED].set_index("arm")
    base = stability.per_run(results).xs("agpo", level="arm")[stability.CLIPPED].mean()
    texts = [f"{ARMS[arm].title} {_ends(found.loc[arm], 2)}" for arm in leverage.MASKED if arm in found.index]
    return (
        "Not by Eq. 4 alone: σ̂, |κ̃₃| and D_step stand below its line, so that at the same signals ε is no smaller "
        "without them, and a wider radius stops no more tokens of the same update. In AGPO's "
        f"runs the clip stops {base:.2f} % of the tokens; the differences from that, in points: {', '.join(texts)}."
    )


def score_without_a_signal(results: Results) -> str:
    """The paired differences in score, and how far from zero their intervals reach."""
    gaps = {arm: t_interval(paired(results.runs, arm, "agpo")) for arm in leverage.MASKED}
    texts = [f"{ARMS[arm].title} {_gap(results.runs, arm, 'agpo')}" for arm in gaps]
    reach = max(max(abs(gap.low), abs(gap.high)) for gap in gaps.values())
    bound = "" if math.isnan(reach) else f" No interval reaches farther than {reach:.1f} points from zero."
    return f"From AGPO: {', '.join(texts)}.{bound}"


def vanishing_dispersions(results: Results) -> str:
    """How often MAD and IQR are zero though the rewards differ: exactly at p = 1/2, and in the probes of the runs."""
    G = results.meta["params"]["group_size"]
    exact = {mode: binary_groups.collapse_chance(G, 0.5, mode).item() for mode in ("mad", "iqr")}
    said = stability.fallbacks(results).groupby("arm")["share"].mean()
    seen = "These runs do not say how often it happened in their probes."
    if len(said):
        shares = ", ".join(f"{ARMS[arm].title} {share:.0%}" for arm, share in said.items())
        seen = f"In the probes of these runs, where p differs from prompt to prompt: {shares}."
    return (
        f"With G = {G} and p = 1/2 the MAD is zero, although the rewards differ, in {exact['mad']:.1%} of all groups, "
        f"the IQR in {exact['iqr']:.1%}. {seen}"
    )


def two_of_a_group(results: Results) -> str:
    """The advantages of a group with a quarter right, under each dispersion."""
    G = results.meta["params"]["group_size"]
    c = max(G // 4, 1)
    pulls = {mode: binary_groups.pull(G, mode)[c].item() for mode in ("std", "mad", "iqr")}
    return (
        f"With {c} right of {G} the root mean square of A is {pulls['std']:.2f} under the standard deviation, "
        f"{pulls['mad']:.2f} under the MAD (which is replaced by the standard deviation where it is zero), and "
        f"{pulls['iqr']:.2f} under the IQR."
    )


def restless_gradients(results: Results) -> str:
    """The variance of the gradient norm under MAD and IQR, as a ratio to the standard deviation's."""
    found = stability.contrasts(results)
    found = found[found["measure"] == stability.VARIANCE].set_index("arm")
    texts = [f"{ARMS[arm].title} × {found.loc[arm, 'mean']:.2f}{_between(found.loc[arm], 1.0)}" for arm in found.index]
    return f"Var ‖∇‖ as a multiple of that under the standard deviation: {', '.join(texts)}."


def score_of_a_dispersion(results: Results) -> str:
    """The paired differences in score of MAD and IQR from the standard deviation."""
    texts = [f"{ARMS[arm].title} {_gap(results.runs, arm, 'agpo')}" for arm in ("agpo_mad", "agpo_iqr")]
    return f"From AGPO: {', '.join(texts)}."


def _ends(row, digits: int) -> str:
    """A paired difference with its interval, and whether zero lies within."""
    return f"{row['mean']:+.{digits}f}{_between(row, 0.0, digits)}"


def _between(row, nothing: float, digits: int = 2) -> str:
    if math.isnan(row["low"]):
        return " (no interval)"
    side = "within" if row["low"] <= nothing <= row["high"] else "outside"
    return f" [{row['low']:.{digits}f}, {row['high']:.{digits}f}] ({nothing:g} lies {side})"


# -- learn_02 ----------------------------------------------------------------------------------


def freed_radius(record: Results | None) -> str:
    """Whether AGPO scores higher with H/EMA(H) in place of H, in the record of Table 1."""
    if record is None or not {"agpo", "agpo_relative_entropy"} <= set(record.runs["arm"]):
        return "There is no record of both AGPO and AGPO with H/EMA(H)."
    mean = macro(record.runs).groupby("arm").mean()
    floor = report.floor_share(_updates(record, "agpo"), record.meta["params"])
    return fill(
        f"In the record of Table 1 ({record.title}) AGPO's ε lies at its floor in {floor:.0%} of updates. AGPO scores "
        f"{mean['agpo']:.1f} %, and AGPO with H/EMA(H) scores {mean['agpo_relative_entropy']:.1f} %. The paired "
        f"difference is {_gap(record.runs, 'agpo_relative_entropy', 'agpo')}."
    )


# -- helpers -----------------------------------------------------------------------------------


def _once_a_run(runs: pd.DataFrame) -> pd.DataFrame:
    return runs.drop_duplicates(["arm", "seed", "start"])


def _updates(results: Results, arm: str) -> pd.DataFrame:
    traces = results.traces
    return traces[(traces["arm"] == arm) & (traces["update"] > 0)].sort_values(["seed", "start", "update"])


def _gap(runs: pd.DataFrame, arm: str, baseline: str) -> str:
    """A paired difference in words, and whether its interval excludes zero."""
    interval = t_interval(paired(runs, arm, baseline))
    return f"{interval.text('+')} points ({_zero(interval)})"


def _zero(interval: Interval) -> str:
    if math.isnan(interval.half):
        return "no interval"
    return f"the interval {'excludes' if interval.low > 0 or interval.high < 0 else 'includes'} zero"
