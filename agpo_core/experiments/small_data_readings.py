"""What the notebooks of R++ Table 2 and Fig. 3 say about their runs: predictions answered, statements, readings.

Every number is computed from the runs that are shown, and an answer whose runs are missing says so. An interval in an
answer stands by itself; `traces.judge_parts` corrects for their number.
"""

import math

import pandas as pd
import torch

from agpo_core.advantages import global_advantages, group_advantages
from agpo_core.comparison import Interval, t_interval
from agpo_core.experiments import small_data
from agpo_core.experiments.grid import ARMS, arms_of
from agpo_core.experiments.predictions import answered
from agpo_core.experiments.records import Results
from agpo_core.experiments.small_data import GAP, GREEDY, OFTEN, ONCE, SAMPLED, TRAINED, difference
from agpo_core.experiments.traces import Part
from agpo_core.experiments.verdicts import fill

GLOBAL = ("reinforce_pp_k", "reinforce_pp_baseline")  # arms that normalise over the batch, the paper's first


def trained_arms(results: Results) -> list[str]:
    """The arms that were trained, in the order of the table."""
    return [arm for arm in arms_of(results.runs) if arm != "start"]


def last_wrong(prompts: int, group_size: int) -> dict[str, float]:
    """The advantage of the only wrong rollout of a batch, under each normaliser, and the bound that it reaches.

    |A| <= (N - 1) / sqrt(N) for N rewards that are normalised together, equal where one differs from all others

    Returns:
        "local" (GRPO), "global" (over all rollouts), "baseline" (group mean subtracted, then over all rollouts).
    """
    rewards_P_G = torch.ones(prompts, group_size, dtype=torch.float64)
    rewards_P_G[0, 0] = 0.0
    centred_P_G = rewards_P_G - rewards_P_G.mean(dim=1, keepdim=True)
    found = {
        "local": group_advantages(rewards_P_G),
        "global": global_advantages(rewards_P_G),
        "baseline": global_advantages(centred_P_G),
    }
    return {name: values[0, 0].item() for name, values in found.items()}


def largest(count: int) -> float:
    """The largest advantage that normalising `count` rewards together can give, (N - 1) / sqrt(N)."""
    return (count - 1) / math.sqrt(count)


# -- Table 2 -----------------------------------------------------------------------------------


def of_table2(results: Results) -> str:
    """The five predictions of rpp_table2_small_data_overfitting, answered."""
    return answered(
        (results, ("start", "grpo"), lambda: others_once(results)),
        (results, ("start", "grpo"), lambda: others_often(results)),
        (results, ("grpo",), lambda: gaps(results)),
        (results, ("grpo",), lambda: at_matched_levels(results)),
        (results, ("grpo",), lambda: the_last_wrong_one(results)),
    )


def others_once(results: Results) -> str:
    """How training on few problems changes the score on others, sampled and greedy."""
    values = small_data.ends(results)[ONCE]
    greedy = 100 * results.runs.drop_duplicates(small_data.KEY).set_index(small_data.KEY)["score"].astype(float)
    words = [
        f"{ARMS[arm].title} {_points(difference(values, arm, 'start'))} sampled (pass@1) and "
        f"{_points(difference(greedy, arm, 'start'))} greedy"
        for arm in trained_arms(results)
    ]
    return f"Change of the score on others since the start, in points: {'; '.join(words)}."


def others_often(results: Results) -> str:
    """What is left of pass@16 on others."""
    values = small_data.ends(results)[OFTEN]
    words = [f"{ARMS[arm].title} {_points(difference(values, arm, 'start'))}" for arm in trained_arms(results)]
    start = values.xs("start", level="arm").mean()
    return f"The start solves {start:.1f} % of the others in sixteen tries. Since then, in points: {', '.join(words)}."


def gaps(results: Results) -> str:
    """The arm with the largest gap between the problems trained on and others, and its differences from GRPO."""
    values = small_data.ends(results)[GAP]
    arms = trained_arms(results)
    means = {arm: values.xs(arm, level="arm").mean() for arm in arms}
    most = max(means, key=means.get)
    listed = ", ".join(f"{ARMS[arm].title} {mean:.1f}" for arm, mean in means.items())
    from_grpo = ", ".join(
        f"{ARMS[arm].title} {_points(difference(values, arm, 'grpo'))}" for arm in arms if arm != "grpo"
    )
    end = f" From GRPO: {from_grpo}." if from_grpo else ""
    return f"The gap of pass@1 in points: {listed}. The largest is that of {ARMS[most].title}.{end}"


def at_matched_levels(results: Results) -> str:
    """The difference on others at matched levels, and the one that is left at the end."""
    found, words = small_data.at_levels(results), []
    for arm in [arm for arm in GLOBAL if arm in trained_arms(results)]:
        parts = []
        for share, rows in found.groupby("share"):
            gap = difference(rows.set_index(small_data.KEY)["others"], arm, "grpo")
            parts.append(f"{_points(gap)} at {share:.0%} of the way")
        last = small_data.best_of_others(results)["last"]
        parts.append(f"{_points(difference(last, arm, 'grpo'))} at the end")
        words.append(f"{ARMS[arm].title} less GRPO {', '.join(parts)}")
    return f"Greedy score on others (dev), in points: {'; '.join(words) or 'no arm to compare'}."


def the_last_wrong_one(results: Results) -> str:
    """The advantage of the last wrong rollout of an update, local and global."""
    params = results.meta["params"]
    P, G = params["prompts_per_update"], params["group_size"]
    found = last_wrong(P, G)
    return (
        f"Of {P * G} rollouts one is wrong. GRPO gives it A = {found['local']:.2f}, the largest that a group of {G} "
        f"allows. Normalised over the batch it has {found['global']:.2f}, with the group's mean subtracted before "
        f"{found['baseline']:.2f}; the bound is {largest(P * G):.2f}. The global advantages are the larger ones once "
        "nearly everything is right."
    )


def parts_of_table2(results: Results) -> list[Part]:
    """What claim 39 says, as statements that can be judged; all in points."""
    values, title = small_data.ends(results), ARMS["reinforce_pp_k"].title

    def gap(column: str, arm: str, baseline: str) -> pd.Series:
        return difference(values[column], arm, baseline)

    return [
        Part(f"{title} solves more of the others in sixteen tries than GRPO: the difference of pass@16 is above zero.",
             gap(OFTEN, "reinforce_pp_k", "grpo"), 1, 1),
        Part(f"{title} solves more of the others in one try than GRPO: the difference of pass@1 is above zero.",
             gap(ONCE, "reinforce_pp_k", "grpo"), 1, 1),
        Part("GRPO falls on others, in one try: its pass@1 less its start's is below zero.",
             gap(ONCE, "grpo", "start"), -1, 1),
        Part("GRPO falls on others, in sixteen tries: its pass@16 less its start's is below zero.",
             gap(OFTEN, "grpo", "start"), -1, 1),
        Part(f"{title} does not fall, in sixteen tries: its pass@16 less its start's is above zero.",
             gap(OFTEN, "reinforce_pp_k", "start"), 1, 1),
        Part(f"GRPO learns the problems trained on further than {title}: the difference of pass@1 there is above zero.",
             gap(TRAINED, "grpo", "reinforce_pp_k"), 1, 1),
    ]  # fmt: skip


def controls_of_table2(results: Results) -> list[Part]:
    """Differences about which the paper claims nothing: REINFORCE++-baseline, and matched levels; all in points."""
    values, levels = small_data.ends(results), small_data.at_levels(results)
    parts = []
    if "reinforce_pp_baseline" in trained_arms(results):
        name = ARMS["reinforce_pp_baseline"].title
        asks = {OFTEN: "others in sixteen tries (pass@16)", ONCE: "others in one try (pass@1)"}
        parts += [
            Part(f"{name} less GRPO, {what}.", difference(values[column], "reinforce_pp_baseline", "grpo"), 0, 1)
            for column, what in asks.items()
        ]
    for arm in [arm for arm in GLOBAL if arm in trained_arms(results)]:
        for share, rows in levels.groupby("share"):
            others = difference(rows.set_index(small_data.KEY)["others"], arm, "grpo")
            parts.append(Part(
                f"{ARMS[arm].title} less GRPO, others (dev, greedy) where the problems trained on are {share:.0%} of "
                "the way from the start to 1.", others, 0, 1,
            ))  # fmt: skip
    return parts


def reading_of_table2(results: Results) -> str:
    """What the numbers say of memorising and of the methods, a sentence or two a line; intervals are uncorrected."""
    if not {"start", "grpo"} <= set(arms_of(results.runs)):
        return bullets("Without the start and GRPO there is nothing to compare with.")
    values, lines = small_data.ends(results), []
    once, often = (t_interval(difference(values[column], "grpo", "start")) for column in (ONCE, OFTEN))
    sharper = "A policy that only grew surer, of right and of wrong answers, would show the same two signs."
    other = "Sharpening as in the example above would keep the first and lower the second; these runs do not show that."
    lines.append(
        f"GRPO on others, since the start: {once.text('+')} points in one try, {often.text('+')} in sixteen. "
        f"{sharper if often.mean < 0 <= once.mean else other}"
    )
    found, last = small_data.at_levels(results), small_data.best_of_others(results)["last"]
    for arm in [arm for arm in GLOBAL if arm in trained_arms(results)]:
        gap = t_interval(difference(values[OFTEN], arm, "grpo"))
        direction = {"above zero": "as the paper has it", "below zero": "against the paper's direction"}
        lines.append(
            f"{ARMS[arm].title} less GRPO, others in sixteen tries: {gap.text('+')} points, {side(gap)}"
            f"{', ' * (side(gap) in direction)}{direction.get(side(gap), '')}."
        )
        levels = [t_interval(difference(rows.set_index(small_data.KEY)["others"], arm, "grpo"))
                  for _, rows in found.groupby("share")]  # fmt: skip
        resolved = sum(side(level) != "not resolved" for level in levels)
        end = t_interval(difference(last, arm, "grpo"))
        lines.append(
            f"{ARMS[arm].title} less GRPO, greedy on others: {resolved} of {len(levels)} differences at matched levels "
            f"are resolved; the one at the end, after equally many updates, is {side(end)}."
        )
    return bullets(*lines)


# -- Fig. 3 ------------------------------------------------------------------------------------


def of_fig3(results: Results) -> str:
    """The four predictions of rpp_fig3_overfitting_curves, answered."""
    return answered(
        (results, ("grpo",), lambda: how_soon(results)),
        (results, ("grpo",), lambda: others_along(results)),
        (results, ("grpo",), lambda: greedy_and_sampled(results)),
        (results, ("grpo",), lambda: how_alike(results)),
    )


def how_soon(results: Results) -> str:
    """After how many updates each arm comes to each level, and how many runs never do."""
    found, words = small_data.updates_needed(results), []
    for arm in trained_arms(results):
        of_arm = found.xs(arm, level="arm")
        parts = [
            f"{_span(of_arm[share])} ({of_arm[share].notna().sum()} of {len(of_arm)} runs) to {share:.0%}"
            for share in of_arm
        ]
        words.append(f"{ARMS[arm].title} {', '.join(parts)}")
    return f"Updates to a share of the way from the start to 1, greedy answers, mean over runs: {'; '.join(words)}."


def others_along(results: Results) -> str:
    """Where the score on others is highest, and where it ends."""
    found, words = small_data.best_of_others(results), []
    curves = small_data.curve(small_data.evaluations(results), "dev")
    for arm in trained_arms(results):
        of_arm = found.xs(arm, level="arm")
        mean = curves[curves["arm"] == arm].set_index("update")["mean"]
        fall = t_interval(of_arm["last"] - mean_at(results, arm, mean.idxmax()))
        words.append(
            f"{ARMS[arm].title}: from {of_arm['first'].mean():.1f} % its mean rises to {mean.max():.1f} % after "
            f"{mean.idxmax()} updates and ends at {of_arm['last'].mean():.1f} %, {fall.text('+')} points from there "
            f"and {t_interval(of_arm['last'] - of_arm['first']).text('+')} from the start"
        )
    return f"Greedy score on others (dev). {'; '.join(words)}. The update of the highest mean was chosen by its height."


def mean_at(results: Results, arm: str, update: int) -> pd.Series:
    """An arm's scores on others at one evaluation, in %, indexed by seed and start."""
    points = small_data.evaluations(results)
    there = points[(points["arm"] == arm) & (points["update"] == update)]
    return there.set_index(["seed", "start"])["dev"]


def greedy_and_sampled(results: Results) -> str:
    """How far sampled answers on the problems trained on lag behind greedy ones."""
    last = small_data.LEVELS[-1]
    greedy, sampled = (small_data.updates_needed(results, kind)[last] for kind in (GREEDY, SAMPLED))
    words = [
        f"{ARMS[arm].title} {_span(greedy.xs(arm, level='arm'))} and {_span(sampled.xs(arm, level='arm'))}"
        for arm in trained_arms(results)
    ]
    return f"Updates to {last:.0%} of the way, greedy and sampled, each from its own start: {'; '.join(words)}."


def how_alike(results: Results) -> str:
    """The differences of the learning times, and the size of what they are differences of."""
    words = []
    for kind in (GREEDY, SAMPLED):
        found = small_data.updates_needed(results, kind)
        for arm in [arm for arm in GLOBAL if arm in trained_arms(results)]:
            parts = [f"{t_interval(difference(found[s], arm, 'grpo')).text('+')} at {s:.0%}" for s in found]
            words.append(f"{ARMS[arm].title} less GRPO, {kind}: {', '.join(parts)}")
    return f"Updates needed. {'; '.join(words) or 'No arm to compare'}."


def parts_of_fig3(results: Results) -> list[Part]:
    """What claim 40 says, as statements that can be judged."""
    title = ARMS["reinforce_pp_k"].title
    needed = {kind: small_data.updates_needed(results, kind) for kind in (GREEDY, SAMPLED)}
    parts = [
        Part(f"GRPO is sooner: {title} needs more updates to {share:.0%} of the way ({kind} answers).",
             difference(table[share], "reinforce_pp_k", "grpo"), 1, 1)
        for kind, table in needed.items() for share in table
    ]  # fmt: skip
    early = small_data.first_evaluation(results)
    score = small_data.at_update(results, early)
    return [
        *parts,
        Part(f"GRPO is ahead after few updates: its greedy score on the problems trained on less that of {title} is "
             f"above zero after {early} updates, in points.", difference(score, "grpo", "reinforce_pp_k"), 1, 1),
    ]  # fmt: skip


def controls_of_fig3(results: Results) -> list[Part]:
    """Differences about which the paper claims nothing: REINFORCE++-baseline less GRPO, in updates."""
    if "reinforce_pp_baseline" not in trained_arms(results):
        return []
    name = ARMS["reinforce_pp_baseline"].title
    return [
        Part(f"{name} less GRPO, updates to {share:.0%} of the way ({kind} answers).",
             difference(table[share], "reinforce_pp_baseline", "grpo"), 0, 1)
        for kind in (GREEDY, SAMPLED)
        for table in (small_data.updates_needed(results, kind),) for share in table
    ]  # fmt: skip


def reading_of_fig3(results: Results) -> str:
    """What the curves say, a sentence or two a line; intervals are uncorrected."""
    if "grpo" not in trained_arms(results):
        return bullets("Without GRPO there is nothing to compare with.")
    lines = []
    for arm in [arm for arm in GLOBAL if arm in trained_arms(results)]:
        gaps = [
            t_interval(difference(table[share], arm, "grpo"))
            for kind in (GREEDY, SAMPLED)
            for table in (small_data.updates_needed(results, kind),)
            for share in table
        ]
        slower, faster = (sum(side(gap) == where for gap in gaps) for where in ("above zero", "below zero"))
        widest = max((gap.half for gap in gaps if not math.isnan(gap.half)), default=math.nan)
        within = (
            "" if math.isnan(widest) else f" The widest of these intervals reaches {widest:.1f} updates to each side."
        )
        lines.append(
            f"{ARMS[arm].title} less GRPO: of {len(gaps)} differences in updates {slower} are above zero and {faster} "
            f"below, the others not resolved.{within}"
        )
    needed = small_data.updates_needed(results)
    never = {arm: int(needed.xs(arm, level="arm").isna().any(axis=1).sum()) for arm in trained_arms(results)}
    lines.append(
        "Runs that never came to one of the levels, and are left out of its differences: "
        f"{', '.join(f'{ARMS[arm].title} {count}' for arm, count in never.items())}."
    )
    best = small_data.best_of_others(results)
    end = t_interval((best["last"] - best["first"]).xs("grpo", level="arm"))
    lines.append(f"GRPO ends at {end.text('+')} points from its start on others (dev, greedy), {side(end)}.")
    return bullets(*lines)


# -- words -------------------------------------------------------------------------------------


def bullets(*sentences: str) -> str:
    """Sentences as a list, each wrapped."""
    return "\n".join(fill(sentence, bullet="- ") for sentence in sentences)


def side(found: Interval) -> str:
    """On which side of zero an interval lies: "above zero", "below zero" or "not resolved"."""
    if math.isnan(found.half) or found.low <= 0 <= found.high:
        return "not resolved"
    return "above zero" if found.mean > 0 else "below zero"


def _points(values: pd.Series) -> str:
    return t_interval(values).text("+") or "(no pair)"


def _span(values: pd.Series) -> str:
    return t_interval(values.dropna()).text() or "never"
