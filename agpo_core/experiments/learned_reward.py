"""Runs that train on a learned reward (R++ Table 1 and Fig. 2): outcomes, equality, and comparisons at equal KL.

Every statistic is one number a run or a pair of runs first; intervals go over those (`comparison.spread`). A pair has
the same seed and start, and with them the same reward model.
"""

import math
from dataclasses import dataclass
from functools import partial

import numpy as np
import pandas as pd
from scipy import stats

from agpo_core.comparison import LEVEL, Estimate, Interval, about, estimate, p_value, speaks, t_interval
from agpo_core.experiments import arm_tables, published, traces
from agpo_core.experiments.arm_tables import KEY, SQUARE
from agpo_core.experiments.grid import ARMS, arms_of
from agpo_core.experiments.predictions import answered
from agpo_core.experiments.records import SAMPLED, Results
from agpo_core.experiments.traces import RUN, Part
from agpo_core.experiments.verdicts import fill, p_text
from agpo_core.tasks.preferences import to_gold

GOLD, SCORE, LENGTH, DENSITY, KL = "gold", "model's score", "length", "gold a token", "KL, nats a sequence"
MARGIN = 0.1  # two arms count as equal if they differ by less than this share of what GRPO gains over its start
SHARES = np.arange(1, 201) / 100  # margins that are tried for the smallest at which equality is shown
PAPER, SAME_PROMPTS = "reinforce_pp", "reinforce_pp_k"  # the paper's row; the same normaliser on GRPO's prompts


# -- at the end --------------------------------------------------------------------------------


def outcomes(results: Results) -> pd.DataFrame:
    """What samples on test have at the end of each run, indexed by arm, seed and start.

    Returns:
        gold (the hidden reward), model's score (what was trained on), length (tokens, the end included), gold a token
        (mean gold over mean length, as R++ Table 1 divides score by length), KL (to the start, nats a sequence).
    """
    runs = results.runs.drop_duplicates(KEY).set_index(KEY)
    runs = runs.reindex(columns=[f"sampled_{name}" for name in SAMPLED])  # runs without a reward model lack them
    gold = to_gold(runs["sampled_gold"])
    return pd.DataFrame(
        {
            GOLD: gold,
            SCORE: runs["sampled_score"],
            LENGTH: runs["sampled_length"],
            DENSITY: gold / runs["sampled_length"],
            KL: runs["sampled_kl"],
        }
    )


def outcome_table(results: Results) -> pd.DataFrame:
    """Means of every arm, and their paired differences from GRPO; a star after Holm's correction over the table."""
    return arm_tables.table(outcomes(results), arms_of(results.runs))


def gap(values: pd.DataFrame, measure: str, arm: str, baseline: str = "grpo") -> pd.Series:
    """The paired differences of two arms in one measure, indexed by seed and start; empty where an arm is missing.

    The supervised start is paired by start alone.
    """
    there = values.index.get_level_values("arm")
    if not {arm, baseline} <= set(there):
        return pd.Series(dtype=float, index=pd.MultiIndex.from_arrays([[], []], names=RUN))
    ours, theirs = (values[measure].xs(name, level="arm") for name in (arm, baseline))
    if baseline == "start":
        theirs = theirs.droplevel("seed").reindex(ours.index.get_level_values("start"))
        return ours - theirs.to_numpy()
    return (ours - theirs).dropna()


def effects_table(values: pd.DataFrame) -> pd.DataFrame:
    """Main effects and interaction of the 2 x 2; empty where one of its arms is missing."""
    if not set(SQUARE) <= set(values.index.get_level_values("arm")):
        return pd.DataFrame()
    return arm_tables.frame({}, arm_tables.effects(values, interaction=True))


def square_at_equal_kl(results: Results) -> pd.DataFrame:
    """`effects_table` at a KL that all four arms of the 2 x 2 reach."""
    values = at_equal_kl(results, tuple(SQUARE))
    return effects_table(values.drop(columns=[KL, "progress"]))


# -- equality ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Equality:
    """Whether two arms are equal up to a margin that is a share of a gain; see `equality`.

    Attributes:
        difference: with its 95 % interval.
        low, high: the 90 % interval, which lies within the margin if and only if both one-sided tests pass.
        gain: the baseline's, on average.
        p: the larger of the two one-sided p.
        verdict: "supported", "contradicted", "inconclusive" or "not run".
        shown_from: the smallest share, to a hundredth, at which equality is shown; NaN above the largest that is tried.
    """

    difference: Interval
    low: float
    high: float
    gain: float
    p: float
    verdict: str
    shown_from: float


def equality(difference: pd.Series, gain: pd.Series, share: float = MARGIN) -> Equality:
    """Test that two arms differ by less than `share` of the baseline's gain, by two one-sided tests.

    H: -s g < d < s g,  d = ours - baseline,  g = baseline - start        (Schuirmann 1987, the margin estimated too)

    Each side is a t-test on one number a pair, d + s g and s g - d. Equality is supported if both means are above zero,
    p < .05 each. It is contradicted if the difference is shown to be larger than the margin: one of the two means is
    below zero, two-sided p < .05. A difference can be shown and yet be smaller than the margin. Where the baseline
    gains nothing there is no margin, and nothing is decided.

    Args:
        difference, gain: of pairs, with equal index.

    Example:
        >>> d, g = pd.Series([0.01, -0.02, 0.03, -0.01]), pd.Series([1.0, 1.1, 0.9, 1.2])
        >>> equality(d, g).verdict, equality(d + 1, g).verdict
        ('supported', 'contradicted')
    """
    gain = gain.reindex(difference.index)
    if not len(difference):
        nothing = math.nan
        return Equality(t_interval(difference), nothing, nothing, nothing, nothing, "not run", nothing)
    found, ends = estimate(difference), (math.nan, math.nan)
    if found.error > 0:
        half = found.half(2 * LEVEL)
        ends = (found.mean - half, found.mean + half)
    p, beyond = _one_sided(difference, gain, share) if gain.mean() > 0 else (math.nan, math.nan)
    verdict = "supported" if p < LEVEL else "contradicted" if beyond < LEVEL / 2 else "inconclusive"
    enough = [s for s in SHARES if p == p and _one_sided(difference, gain, s)[0] < LEVEL]
    return Equality(
        t_interval(difference), *ends, float(gain.mean()), p, verdict, min(enough, default=math.nan)
    )  # fmt: skip


def _one_sided(difference: pd.Series, gain: pd.Series, share: float) -> tuple[float, float]:
    """p of "within the margin", and p of "beyond it"; NaN where the pairs have no spread."""
    sides = [estimate(difference + share * gain), estimate(share * gain - difference)]
    if any(math.isnan(side.error) for side in sides):
        return math.nan, math.nan
    return max(_above(side) for side in sides), min(1 - _above(side) for side in sides)


def _above(side: Estimate) -> float:
    """One-sided p of the test that the mean is above zero."""
    return float(stats.t.sf(side.mean / side.error, side.df))


def equalities(results: Results, arms=(PAPER, SAME_PROMPTS), measures=(GOLD, SCORE)) -> dict[tuple, Equality]:
    """{(arm, measure): whether it equals GRPO}."""
    values = outcomes(results)
    return {
        (arm, measure): equality(gap(values, measure, arm), gap(values, measure, "grpo", "start"))
        for arm in arms
        for measure in measures
    }


def equality_text(found: dict[tuple, Equality], number: int = 36) -> str:
    """The claim of equality with its verdict, and the same question where no paper asks it.

    Args:
        found: of `equalities`; the claim is about the paper's arm and gold.
        number: of the claim.
    """
    (claim,) = (claim for claim in published.claims() if claim.number == number)
    printed = "; ".join(f"{n.row}: {n.value:g}" for r in claim.numbers for n in published.find(r))
    lines = [fill(f"{claim.title}: {claim.says}"), fill(printed, bullet="  published  ")]
    for (arm, measure), e in found.items():
        claimed = (arm, measure) == (PAPER, GOLD)
        part = f"{ARMS[arm].title} equals GRPO in {measure}, to within {MARGIN:.0%} of what GRPO gains."
        lines.append(fill(part, bullet="  part       " if claimed else "  asks       "))
        lines.append(fill(_measured(e), bullet="  measured   "))
        lines.append(fill(_judged(e), bullet="  verdict    " if claimed else "  answer     "))
    note = speaks(about(e.difference for e in found.values()))
    return "\n".join([*lines, *([fill(note)] if note else [])])


def _measured(e: Equality) -> str:
    if not e.difference.n:
        return "an arm was not run"
    mean = f"{e.difference.mean:+.3f}, GRPO's gain {e.gain:.3f}, margin ±{MARGIN * abs(e.gain):.3f}"
    if math.isnan(e.low):
        return f"{mean}, {e.difference.n} pair{'s' * (e.difference.n > 1)}, no interval"
    return (
        f"{mean}, 95 % interval [{e.difference.low:+.3f}, {e.difference.high:+.3f}], 90 % interval [{e.low:+.3f}, "
        f"{e.high:+.3f}], {e.difference.n} pairs, equality {p_text(e.p)}"
    )


def _judged(e: Equality) -> str:
    if e.verdict == "not run":
        return "not run"
    shown = "at no margin that was tried" if math.isnan(e.shown_from) else f"from a margin of {e.shown_from:.0%} on"
    word = {"supported": "equal, supported", "contradicted": "not equal, contradicted"}.get(e.verdict, "inconclusive")
    side = ""
    if e.difference.low > 0 or e.difference.high < 0:
        side = f"; the 95 % interval lies wholly {'above' if e.difference.mean > 0 else 'below'} zero"
    return f"{word} at this scale (equality is shown {shown}{side})"


# -- at equal KL -------------------------------------------------------------------------------


def at_crossing(kl, values, level: float) -> float:
    """The value at which a run first reaches a KL, linear between evaluations; NaN if it never does.

    Example:
        >>> at_crossing([0.0, 1.0, 3.0], [2.0, 4.0, 5.0], 2.0)  # half-way from 4 to 5
        4.5
    """
    kl, values = np.asarray(kl, dtype=float), np.asarray(values, dtype=float)
    there = np.flatnonzero(kl >= level)
    if not len(there):
        return math.nan
    i = int(there[0])
    if i == 0:
        return float(values[0])
    share = (level - kl[i - 1]) / (kl[i] - kl[i - 1])
    return float(values[i - 1] + share * (values[i] - values[i - 1]))


def curves(results: Results) -> pd.DataFrame:
    """The evaluations of samples on dev along each run: arm, seed, start, evaluation, progress, and the measures."""
    traced = results.traces.reindex(columns=results.traces.columns.union([f"dev_{name}" for name in SAMPLED]))
    points = traced.dropna(subset=["dev_kl"]).sort_values([*KEY, "update"]).reset_index(drop=True)
    found = points[[*KEY, "update", "progress"]].assign(evaluation=points.groupby(KEY).cumcount())
    found[GOLD], found[SCORE] = to_gold(points["dev_gold"]), points["dev_score"]
    found[LENGTH], found[KL] = points["dev_length"], points["dev_kl"]
    return found.assign(**{DENSITY: found[GOLD] / found[LENGTH]})


def at_equal_kl(results: Results, arms, measures=(GOLD, SCORE, LENGTH)) -> pd.DataFrame:
    """Some arms' measures where each run first reaches the KL that all of them reach, indexed by arm, seed and start.

    For each pair of seed and start the KL is the smallest, over the arms, of the largest KL along the run: a rule that
    looks at no reward. Pairs without a run of every arm are left out.

    Returns:
        the measures, KL (the common one), and progress (the consumed share of the horizon at which it was reached).
    """
    points = curves(results)
    points, rows = points[points["arm"].isin(arms)], {}
    for (seed, start), of in points.groupby(RUN):
        if set(of["arm"]) != set(arms):
            continue
        level = of.groupby("arm")[KL].max().min()
        for arm, run in of.groupby("arm"):
            found = {name: at_crossing(run[KL], run[name], level) for name in (*measures, "progress")}
            rows[arm, seed, start] = found | {KL: level}
    index = pd.MultiIndex.from_tuples(rows, names=KEY) if rows else pd.MultiIndex.from_arrays([[]] * 3, names=KEY)
    return pd.DataFrame(list(rows.values()), index=index, columns=[*measures, KL, "progress"])


def equal_kl_gaps(results: Results, measures=(GOLD, SCORE, LENGTH)) -> dict[str, pd.DataFrame]:
    """{arm: its paired differences from GRPO at equal KL}; each arm has a common KL with GRPO of its own."""
    arms = [arm for arm in arms_of(results.traces) if arm not in ("start", "grpo")]
    found = {}
    for arm in arms if "grpo" in set(results.traces["arm"]) else []:
        values = at_equal_kl(results, ("grpo", arm), measures)
        differences = pd.DataFrame({name: gap(values, name, arm) for name in measures})
        found[arm] = differences.assign(**{KL: values[KL].xs(arm, level="arm")})
    return found


def equal_kl_table(results: Results) -> pd.DataFrame:
    """Differences from GRPO at equal KL, and where in training each of the two reached it.

    A star marks a difference that is not zero after Holm's correction over the table.
    """
    rows, found = {}, equal_kl_gaps(results)
    for arm, gaps in found.items():
        progress = at_equal_kl(results, ("grpo", arm))["progress"].groupby("arm").mean()
        rows[f"{ARMS[arm].title} − {ARMS['grpo'].title}"] = {
            "common KL, nats": f"{gaps[KL].mean():.2f}",
            "reached at": f"{progress[arm]:.0%}, GRPO {progress['grpo']:.0%}",
        }
    shown = arm_tables.frame({}, {name: found[arm].drop(columns=KL) for name, arm in zip(rows, found, strict=True)})
    return shown.join(pd.DataFrame.from_dict(rows, orient="index")).rename_axis(columns=shown.columns.name)


def later(results: Results, arm: str, measure: str) -> pd.Series:
    """What a measure on dev gains from the middle of each run to its end, a number a run.

    A peak would be the highest of noisy points; the middle is fixed beforehand.
    """
    points = curves(results)

    def change(run: pd.DataFrame) -> float:
        return run[measure].iloc[-1] - run[measure].iloc[(run["progress"] - 0.5).abs().argmin()]

    return traces.each_run(points[points["arm"] == arm], change)


# -- claims ------------------------------------------------------------------------------------


def parts_of_length(strong: Results, weak: Results) -> list[Part]:
    """What claim 37 says: outputs are shorter than GRPO's; the paper's arm first, then that on GRPO's own prompts."""
    parts = []
    for results, model in ((strong, "strong"), (weak, "weak")):
        for arm in (PAPER, SAME_PROMPTS) if len(results.runs) else ():
            values = -gap(outcomes(results), LENGTH, arm)
            if len(values) or results is strong:
                says = (
                    f"{ARMS[arm].title} writes shorter outputs than GRPO, {model} reward model: GRPO's length less its."
                )
                parts.append(Part(says, values, 1, 2))
    return parts


def controls_of_table1(strong: Results) -> list[Part]:
    """Differences that the claims leave open: gold a token, and gold at equal KL."""
    values, equal, parts = outcomes(strong), equal_kl_gaps(strong), []
    for arm in (PAPER, SAME_PROMPTS):
        if arm in equal:
            title = ARMS[arm].title
            parts.append(Part(f"Gold a token at the end, {title} less GRPO.", gap(values, DENSITY, arm), 0, 4))
            parts.append(Part(f"Gold at equal KL, {title} less GRPO.", equal[arm][GOLD], 0))
    return parts


def parts_of_fig2(results: Results, weak: Results) -> list[Part]:
    """What claim 38 says of reward and KL: GRPO's are higher at the end of training."""
    parts = []
    for record, model in ((results, "strong"), (weak, "weak")):
        for arm in (PAPER, SAME_PROMPTS) if len(record.traces) else ():
            reward, kl = training_reward(record, arm), gap(outcomes(record), KL, arm)
            if len(reward) or record is results:
                who = f"than {ARMS[arm].title}'s, {model} reward model"
                parts += [
                    Part(f"GRPO's reward rises higher {who}: mean training reward of the last quarter, GRPO less it.",
                         -reward, 1),
                    Part(f"GRPO's KL to the start ends higher {who}: KL on test, GRPO less it.", -kl, 1),
                ]  # fmt: skip
    return parts


def controls_of_fig2(results: Results) -> list[Part]:
    """How much higher GRPO's KL is, as a ratio, and whether a nat of KL buys more of the trained reward."""
    values, equal, parts = outcomes(results), equal_kl_gaps(results), []
    for arm in (PAPER, SAME_PROMPTS):
        if arm in equal:
            logs = np.log(values[[KL]].clip(lower=1e-6))
            title = ARMS[arm].title
            parts += [
                Part(f"ln of the ratio of the two KLs at the end, GRPO over {title}.", -gap(logs, KL, arm), 0, 2),
                Part(f"The reward model's score at equal KL, {title} less GRPO.", equal[arm][SCORE], 0),
            ]
    return parts


def training_reward(results: Results, arm: str, baseline: str = "grpo") -> pd.Series:
    """Differences of the mean training reward over the last quarter of a run, paired by seed and start."""
    ours, theirs = (
        traces.quarter(traces.updates_of(results.traces, name), "reward", "last") for name in (arm, baseline)
    )
    return (ours - theirs).dropna()


# -- predictions -------------------------------------------------------------------------------


def of_table1(strong: Results, weak: Results) -> str:
    """The four predictions of rpp_table1_general_rlhf, answered."""
    return answered(
        (strong, ("start", "grpo", PAPER), partial(one_rollout, strong)),
        (strong, ("grpo",), partial(who_is_short, strong)),
        (strong, tuple(SQUARE), partial(where_the_kl_stands, strong)),
        (weak, ("grpo",), partial(too_much_reward, strong, weak)),
    )


def one_rollout(strong: Results) -> str:
    """Gold of REINFORCE++ with one rollout a prompt, as a share of what GRPO gains."""
    values = outcomes(strong)
    d, g = gap(values, GOLD, PAPER), gap(values, GOLD, "grpo", "start")
    e = equality(d, g)
    ends = "" if math.isnan(e.low) else f" [{e.low / e.gain:+.0%}, {e.high / e.gain:+.0%}] (90 %)"
    return (
        f"{ARMS[PAPER].title} ends {e.difference.text('+', 2)} from GRPO in gold. That is "
        f"{e.difference.mean / e.gain:+.0%}{ends} of the {e.gain:.2f} points that GRPO gains over its start. In "
        f"the reward model's score the two differ by {t_interval(gap(values, SCORE, PAPER)).text('+', 2)}."
    )


def who_is_short(strong: Results) -> str:
    """The arms by length, shortest first, and how far the start is from them."""
    mean = outcomes(strong)[LENGTH].groupby("arm").mean().sort_values()
    order = ", ".join(f"{ARMS[arm].title} {length:.2f}" for arm, length in mean.items())
    return f"Tokens an answer, the end included, shortest first: {order}. Order alone decides nothing."


def where_the_kl_stands(strong: Results) -> str:
    """What moving the KL from the loss into the reward does to the distance from the start, over both normalisers."""
    found = arm_tables.effects(outcomes(strong))
    placed, scaled = (found[name] for name in list(found)[:2])
    return (
        f"k1 in the reward instead of k3 in the loss changes the KL at the end by {_with_zero(placed[KL])} nats and "
        f"gold by {_with_zero(placed[GOLD])}. The global normaliser instead of the local one changes the KL by "
        f"{_with_zero(scaled[KL])} nats and gold by {_with_zero(scaled[GOLD])}. All at one β."
    )


def too_much_reward(strong: Results, weak: Results) -> str:
    """What GRPO's score and gold gain in the second half of training, under a strong and a weak reward model."""
    words = []
    for results, model in ((strong, "strong"), (weak, "weak")):
        if "grpo" in set(results.traces["arm"]):
            score, gold = (_with_zero(later(results, "grpo", measure)) for measure in (SCORE, GOLD))
            words.append(f"{model} reward model: score {score}, gold {gold}")
    return f"From the middle of training to its end GRPO's samples on dev change by: {'; '.join(words)}."


def of_fig2(results: Results, weak: Results) -> str:
    """The three predictions of rpp_fig2_training_dynamics, answered."""
    arms = ("grpo", PAPER)
    return answered(
        (results, arms, partial(how_high, results)),
        (results, arms, partial(how_far, results)),
        (results, arms, partial(what_a_nat_buys, results)),
    )


def how_high(results: Results) -> str:
    """Where the training reward begins and ends."""
    words = []
    for arm in traces.present(results, ("grpo", PAPER, SAME_PROMPTS)):
        updates = traces.updates_of(results.traces, arm)
        first, last = (traces.quarter(updates, "reward", which).mean() for which in ("first", "last"))
        words.append(f"{ARMS[arm].title} {first:.2f} to {last:.2f}")
    return (
        f"Mean training reward of the first and of the last quarter: {', '.join(words)}. In the last quarter "
        f"{ARMS[PAPER].title} differs from GRPO by {_with_zero(training_reward(results, PAPER))}."
    )


def how_far(results: Results) -> str:
    """The KL at the end, and the ratio of the two."""
    values = outcomes(results)
    mean = values[KL].groupby("arm").mean()
    ratio = t_interval(-gap(np.log(values[[KL]].clip(lower=1e-6)), KL, PAPER))
    between = "" if math.isnan(ratio.half) else f" [{math.exp(ratio.low):.2f}, {math.exp(ratio.high):.2f}]"
    return (
        f"KL to the start at the end, nats a sequence: GRPO {mean['grpo']:.2f}, {ARMS[PAPER].title} {mean[PAPER]:.2f}. "
        f"GRPO's is {math.exp(ratio.mean):.2f}{between} times the other's (geometric mean over pairs)."
    )


def what_a_nat_buys(results: Results) -> str:
    """Score and gold at equal KL."""
    gaps = equal_kl_gaps(results)[PAPER]
    return (
        f"At a KL that both reach ({gaps[KL].mean():.2f} nats on average) {ARMS[PAPER].title} differs from GRPO by "
        f"{_with_zero(gaps[SCORE])} in the reward model's score and by {_with_zero(gaps[GOLD])} in gold."
    )


def _with_zero(values: pd.Series) -> str:
    """A mean with its interval, and whether zero lies within."""
    found = t_interval(values)
    if math.isnan(found.half) or math.isnan(p_value(values)):
        return f"{found.mean:+.2f} (no interval)"
    side = "within" if found.low <= 0 <= found.high else "outside"
    return f"{found.text('+', 2)} (zero lies {side} the interval)"
