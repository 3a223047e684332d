"""Verdicts: on a paper's claims, and on whether fresh runs agree with the recorded ones."""

import math
import textwrap
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import pandas as pd

from agpo_core.comparison import (
    LEVEL,
    MOST_PAIRS,
    TIE,
    Estimate,
    Interval,
    about,
    holm,
    macro,
    over_tasks,
    p_value,
    paired,
    pairs_needed,
    prediction,
    speaks,
    t_interval,
    within,
)
from agpo_core.experiments import published, records
from agpo_core.experiments.grid import ARMS, arms_of, changes
from agpo_core.experiments.published import MACRO
from agpo_core.experiments.records import DIGITS, Results

# Pairs of arms about which no paper claims anything, each with the question that the difference, first minus second,
# answers. Where an experiment judges a claim about a pair, the claim replaces the question.
CONTROLS = (
    ("agpo", "grpo_matched_updates", "Do the controllers help if the probe's tokens are not counted?"),
    ("agpo", "grpo_matched_compute", "Do the controllers help at equal compute, where a probe costs sampling alone?"),
    ("agpo_no_ats", "grpo_matched_updates", "Does the adaptive radius alone help at equal updates?"),
    ("grpo_ats", "grpo_matched_updates", "Does the adaptive temperature alone help at equal updates?"),
    ("grpo_ats", "agpo_no_ats", "Which of the two controllers does more?"),
    ("agpo", "grpo_narrow", "Does adaptation do more than a narrow fixed radius?"),
    ("grpo_narrow", "grpo", "Does the radius matter at all?"),
    ("agpo_relative_entropy", "agpo", "Does AGPO score higher with H/EMA(H) in place of H?"),
    ("agpo_relative_entropy", "grpo", "Does AGPO with H/EMA(H) score higher than GRPO?"),
    ("agpo_part_probe", "agpo", "Does a probe of a quarter of the prompts win back what AGPO's probe costs?"),
    ("agpo_part_probe", "grpo", "Do the controllers help with a probe of a quarter of the prompts?"),
    ("agpo_free_probe", "agpo", "Does a probe that costs no tokens win back what AGPO's probe costs?"),
    ("agpo_free_probe", "grpo", "Do the controllers help if their signals cost no tokens?"),
    ("agpo_global", "agpo", "Does global normalisation help AGPO?"),
    ("agpo_official_code", "agpo", "Does the released code do better than the paper's equations?"),
    ("dr_grpo", "grpo", "Does it matter that GRPO divides by the group's deviation and by an answer's length?"),
    ("rloo", "grpo", "Does it help to leave a rollout out of its own baseline?"),
    ("remax", "grpo", "Is one greedy answer a better baseline than the mean of a group?"),
    ("reinforce_pp_k", "grpo", "Does the normaliser matter, with the same prompts and group size?"),
    ("reinforce_pp_baseline", "grpo", "Is it better to divide by the batch's deviation than by each group's?"),
    ("reinforce_pp_baseline", "reinforce_pp_k", "Does subtracting the group's mean help REINFORCE++?"),
    ("reinforce_pp_baseline", "rloo", "Does normalising over the batch help, if the baseline is the group's?"),
    ("reinforce_pp_baseline", "ppo", "Does a group's mean do as well as a critic?"),
    ("reinforce_pp", "remax", "With one rollout per prompt, is the batch's mean as good as a greedy answer?"),
    ("grpo", "ppo", "Does a group baseline do as well as a critic?"),
    ("grpo", "adaptive_kl_ppo", "Does a group baseline do as well as a critic with an adaptive KL coefficient?"),
    ("grpo", "dpo", "Does training on the policy's own rollouts beat training on fixed preferences?"),
    ("ppo_critic", "ppo", "Does a critic with its own weights help?"),
)


def vote_gain(runs: pd.DataFrame) -> pd.Series:
    """What a vote of sixteen samples scores above a single one, in points: maj@16 - maj@1."""
    return over_tasks(runs, "maj_16") - over_tasks(runs, "maj_1")


VOTE_GAIN = "maj@16 − maj@1"
# What `judge` can compare: a measure -> its points a run, indexed by arm, seed and start; empty where runs lack it
MEASURES: dict[str, Callable[[pd.DataFrame], pd.Series]] = {
    MACRO: macro,
    **{f"maj@{k}": partial(over_tasks, column=f"maj_{k}") for k in records.VOTERS},
    VOTE_GAIN: vote_gain,
}


@dataclass(frozen=True)
class Pair:
    """Two arms that are compared, and what is claimed about them.

    Attributes:
        arm, baseline: names in grid.ARMS.
        relation: "above" or "equal", as claimed; unused without a claim.
        claims: what the papers claim about these two arms; if empty, the difference is measured and not judged.
        asks: without a claim, the question that the difference answers.
        measure: what is compared, one of MEASURES.
    """

    arm: str
    baseline: str
    relation: str = "above"
    claims: tuple[published.Claim, ...] = ()
    asks: str = ""
    measure: str = MACRO

    @property
    def two(self) -> str:
        """The two arms and their relation, in words."""
        between = {"above": "above", "equal": "equal to"}[self.relation] if self.claims else "against"
        return f"{ARMS[self.arm].title} {between} {ARMS[self.baseline].title}"

    @property
    def title(self) -> str:
        return self.two if self.measure == MACRO else f"{self.two}, {self.measure}"


def claimed(experiment: str, arms) -> list[Pair]:
    """What the papers claim about MEASURES of an experiment's arms, in order of `published.claims`.

    Args:
        experiment: a claim is judged in the experiments that it names.
        arms: those that were run; a claim about another arm is left out.
    """
    found = {}
    for claim in published.claims():
        for c in claim.contrasts if experiment in claim.experiments else ():
            if c.measure in MEASURES and {c.arm, c.baseline} <= set(arms):
                found.setdefault((c.arm, c.baseline, c.relation, c.measure), []).append(claim)
    return [Pair(*key, tuple(claims), measure=measure) for (*key, measure), claims in found.items()]


def controls(experiment: str, arms) -> list[Pair]:
    """The pairs of CONTROLS whose arms were run, without pairs about which this experiment judges a claim."""
    judged = {frozenset((pair.arm, pair.baseline)) for pair in claimed(experiment, arms)}
    return [
        Pair(arm, baseline, asks=asks)
        for arm, baseline, asks in CONTROLS
        if {arm, baseline} <= set(arms) and frozenset((arm, baseline)) not in judged
    ]


def judge(runs: pd.DataFrame, pairs: list[Pair]) -> pd.DataFrame:
    """The paired difference of each pair, and a verdict where something is claimed.

    supported      the difference is above zero, Holm's p below .05
    contradicted   it is below zero, Holm's p below .05; for arms claimed to be equal, on either side of zero
    inconclusive   neither; `needed` pairs would give 80 % power for a difference of this size
    no claim       no paper says anything about the two
    not run        an arm is missing

    Holm's correction is made over the claims that could be tested, and separately over the pairs without a claim. A
    single difference, or differences that are all equal, cannot be tested. `needed` assumes the level .05 / family, the
    strictest at which Holm's procedure may test a claim.

    Returns:
        One row per pair: arm, baseline, mean, half, n, about (see comparison.Interval), p, p_holm, family (how many
        pairs were tested together, this one included), verdict, needed (NaN where there is no number to give).
    """
    gaps = [paired(runs, pair.arm, pair.baseline, MEASURES[pair.measure]) for pair in pairs]
    frame = pd.DataFrame({"p": [p_value(gap) for gap in gaps], "claim": [bool(pair.claims) for pair in pairs]})
    families = frame.groupby("claim")["p"]
    frame["p_holm"] = families.transform(lambda p: holm(p.astype(float)))
    frame["family"] = families.transform("count")
    rows = []
    for pair, gap, raw, adjusted, family in zip(pairs, gaps, frame["p"], frame["p_holm"], frame["family"], strict=True):
        interval = t_interval(gap, TIE)
        verdict, needed = verdict_of(pair, interval, adjusted), None
        if verdict == "inconclusive" and pair.relation == "above" and family:
            needed = pairs_needed(gap, LEVEL / family)
        rows.append((pair.arm, pair.baseline, *interval, raw, adjusted, family, verdict, needed))
    names = ["arm", "baseline", "mean", "half", "n", "about", "p", "p_holm", "family", "verdict", "needed"]
    return pd.DataFrame(rows, columns=names).astype({"needed": float})


def verdict_of(pair: Pair, difference: Interval, p_holm: float) -> str:
    """The verdict on one difference, as `judge` gives it; p_holm is corrected already."""
    if not pair.claims:
        return "no claim"
    if difference.n == 0:
        return "not run"
    if not p_holm < LEVEL:  # NaN too: differences without a spread decide nothing
        return "inconclusive"
    return "supported" if difference.mean > 0 and pair.relation == "above" else "contradicted"


def verdicts(judged: pd.DataFrame, pairs: list[Pair]) -> str:
    """Each pair in a few lines: the claim and its place, what the papers print, what was measured, the verdict.

    A pair without a claim shows the question that it answers instead. The last line says what the intervals cover.
    """
    blocks = []
    for pair, row in zip(pairs, judged.itertuples(), strict=True):
        said = [f"{claim.title}: {claim.says}" for claim in pair.claims] or ["none"]
        lines = [
            pair.title,
            *(fill(sentence, bullet="  claim      ") for sentence in said),
            *([fill(pair.asks, bullet="  asks       ")] if pair.asks else []),
            fill(_in_print(pair), bullet="  published  "),
            fill(_as_measured(row), bullet="  measured   "),
        ]
        if pair.claims:
            lines.append(fill(_as_judged(pair, row), bullet="  verdict    "))
        blocks.append("\n".join(lines))
    note = speaks(about(intervals(judged)))
    return "\n\n".join([*blocks, *([fill(note)] if note else [])])


def intervals(judged: pd.DataFrame) -> list[Interval]:
    """The intervals in a table of `judge`, one per pair."""
    return [Interval(row.mean, row.half, row.n, row.about) for row in judged.itertuples()]


def fill(sentence: str, bullet: str = "") -> str:
    """A sentence wrapped to the width of a terminal, hanging from its bullet."""
    hang = " " * len(bullet)
    return textwrap.fill(sentence, width=98, initial_indent=bullet, subsequent_indent=hang)


def in_print(arm: str, baseline: str) -> str:
    """What the papers' tables say about two arms, in words."""
    parts = []
    for place, table in published.compared(arm, baseline).items():
        by = " (by the commentary)" if place.startswith("R++") else ""
        if len(table) == 1:
            numbers = f"{table['ours'].iloc[0]:g} against {table['theirs'].iloc[0]:g}"
        else:
            ahead = int((table["gap"] > 0).sum())
            numbers = f"{table['gap'].mean():+.2f} points on average, ahead on {ahead} of {len(table)} scores"
        parts.append(f"{place}{by}: {numbers}")
    return "; ".join(parts) or "no table of either paper scores both"


def _in_print(pair: Pair) -> str:
    """What the papers print about a pair: scores of both, or of another measure the numbers that its claims rest on."""
    if pair.measure == MACRO:
        return in_print(pair.arm, pair.baseline)
    rests = {n.reference: n for claim in pair.claims for name in claim.numbers for n in published.find(name)}
    return "; ".join(f"{reference.replace(' | ', ', ')}: {n.value:g}" for reference, n in rests.items()) or "no number"


def _as_measured(row) -> str:
    if row.n == 0:
        return "an arm was not run"
    if math.isnan(row.half):
        which = "one pair" if row.n == 1 else f"equal within each start in {row.n} pairs"
        return f"{row.mean:+.1f} points, {which}, no interval"
    low, high = row.mean - row.half, row.mean + row.half
    plural = "s" * (row.family > 1)
    family = f"{row.family} pair{plural} without a claim" if row.verdict == "no claim" else f"{row.family} test{plural}"
    interval = f"95 % interval [{low:+.1f}, {high:+.1f}]"
    return f"{row.mean:+.1f} points, {interval}, {row.n} pairs, {p_text(row.p_holm)} (Holm over {family})"


def p_text(p: float) -> str:
    """A p-value in words: three decimals, and more where three would hide on which side of LEVEL it lies."""
    if p < 0.001:
        return "p < 0.001"
    decimals = next((d for d in range(3, 9) if round(p, d) != LEVEL), 9)
    return f"p = {p:.{decimals}f}"


def _as_judged(pair: Pair, row) -> str:
    if row.verdict == "not run":
        return "not run"
    if row.verdict != "inconclusive":
        return f"{row.verdict} at this scale"
    if row.n < 2:
        return "inconclusive at this scale: one pair cannot decide"
    if math.isnan(row.p):
        return "inconclusive at this scale: the differences are equal, so there is no spread to test them by"
    remark = ""
    if row.p < LEVEL:
        remark = "the 95 % interval excludes zero, but the difference does not pass Holm's correction; "
    if pair.relation == "equal":
        return f"inconclusive at this scale: {remark}neither a difference nor equality is shown"
    needed = f"about {row.needed:.0f}"
    if math.isnan(row.needed):
        needed = f"more than {MOST_PAIRS}"
    level = f" at the level {LEVEL:g} / {row.family} (Holm's strictest)" if row.family > 1 else ""
    power = f"detecting a difference of this size with 80 % power takes {needed} pairs{level}"
    return f"inconclusive at this scale: {remark}{power}"


def agreement(runs: pd.DataFrame, record: pd.DataFrame) -> pd.DataFrame:
    """Compare each trained arm of fresh runs with the recorded runs. A run's partner has its seed and start.

    identical   every run that has a recorded partner has the partner's scores, at the record's digits
    paired      otherwise: the mean of fresh - recorded over the arm's runs with a partner. Its standard error is
                s / sqrt(n), s the standard deviation of such differences within arms, pooled over all arms that have
                some, with Σ (n_arm - 1) degrees of freedom: three seeds per arm are then enough for a test
    predicted   runs without a partner: their mean minus the mean that the record predicts for their starts
                (`comparison.prediction`). Runs that differ from their partners are treated in the same way where the
                paired differences have no spread: one pair per arm, or equal differences

    An arm agrees unless its p, corrected by Holm over all rows that are judged, is below .05.

    Args:
        runs, record: of the same settings.
    Returns:
        One row per arm and kind: arm, kind, n (runs), equal (how many of them have their partner's scores), mean
        (difference from the record, points), half (half-width of its interval at the level .05 / rows judged, points),
        p_holm, agrees (True, False, or None where nothing can be judged).
    """
    scores, recorded = _by_run(runs), _by_run(record)
    ours, theirs = macro(runs), macro(record)
    arms = [arm for arm in arms_of(runs) if arm != "start"]
    other = {key for key in scores if key in recorded and scores[key] != recorded[key]}
    gaps = (ours - theirs).dropna()
    gaps = gaps[gaps.index.get_level_values("arm").isin({arm for arm, _, _ in other} - {"start"})]
    term = within(gaps, gaps.index.get_level_values("arm"), TIE)
    rows = []
    for arm in arms:
        keys = [key for key in ours.index if key[0] == arm]
        new = [key for key in keys if key not in recorded]
        known, moved = len(keys) - len(new), [key for key in keys if key in other]
        found = Estimate(0.0, math.nan, 0)
        if moved and math.isnan(term.s):
            new += moved
            known -= len(moved)
        elif moved:
            found = Estimate(gaps.xs(arm, level="arm").mean(), term.s / math.sqrt(known), term.df)
        if known:
            kind = "identical" if math.isnan(found.error) else "paired"
            rows.append((arm, kind, known, sum(key not in other for key in keys if key in recorded), found))
        if new:
            expected = prediction(theirs[theirs.index.get_level_values("arm") == arm], ours.loc[new])
            gap = ours.loc[new].mean() - expected.mean
            rows.append((arm, "predicted", len(new), 0, Estimate(gap, expected.error, expected.df)))
    adjusted = holm([found.p for *_, found in rows])
    judged = max(sum(not math.isnan(p) for p in adjusted), 1)
    names = ["arm", "kind", "n", "equal", "mean", "half", "p_holm", "agrees"]
    return pd.DataFrame(
        [
            (*row, found.mean, found.half(LEVEL / judged), p, _agrees(row[1], p))
            for (*row, found), p in zip(rows, adjusted, strict=True)
        ],
        columns=names,
    )


def _by_run(runs: pd.DataFrame) -> dict[tuple, dict[str, str]]:
    """Each run's scores at the digits of a record; its key is arm, seed, start."""
    return {
        key: {task: f"{score:.{DIGITS}g}" for task, score in zip(run["task"], run["score"], strict=True)}
        for key, run in runs.groupby(["arm", "seed", "start"])
    }


def _agrees(kind: str, p_holm: float) -> bool | None:
    if kind == "identical":
        return True
    return None if math.isnan(p_holm) else bool(p_holm >= LEVEL)


def agreement_text(results: Results, record: Results | None) -> str:
    """Whether fresh results agree with the record, in words, and which difference would have been detected."""
    if record is None:
        return "There is no record of this profile to compare with."
    if results.meta == record.meta:
        return "These are the recorded runs themselves."
    if changed := changes(results.meta["params"], record.meta["params"]):
        return f"Not compared with the record, which was made with other settings: {'; '.join(changed)}."
    table = agreement(results.runs, record.runs)
    total, same = int(table["n"].sum()), int(table["equal"].sum())
    lines = [f"{same} of {total} runs equal the recorded run of the same settings, seed and start."]
    ours, theirs = (found.meta.get("numerics_version") for found in (results, record))
    if ours != theirs:
        lines = [
            f"The record has numerics version {_listed(theirs)}, and these runs have {_listed(ours)}: no run is "
            "expected to equal its recorded run."
        ]
    lines += _how_judged(table)
    lines += [_as_agreed(row) for row in table[table["kind"] != "identical"].itertuples()]
    verdict = "Agrees with the record."
    if outside := table.loc[table["agrees"].eq(False), "arm"].nunique():
        verdict = (
            f"Disagrees with the record in {outside} of {table['arm'].nunique()} arms; "
            "by chance alone, some arm disagrees in one comparison of 20."
        )
    elif table["agrees"].isna().any():
        verdict = "Agreement with the record cannot be judged."
    return "\n".join([verdict, *(fill(line) for line in lines)])


def _listed(versions) -> str:
    return " and ".join(map(str, versions or ["unknown"]))


def _how_judged(table: pd.DataFrame) -> list[str]:
    """How the runs that are not identical were judged, and which difference would have been detected."""
    words = {
        "paired": "Runs that differ from the recorded run of their seed, as they may on another kind of machine, are "
        "judged by fresh − recorded, with a standard deviation pooled over arms",
        "predicted": "Other runs are compared with what the record predicts for as many seeds of their starts",
    }
    judged = table.dropna(subset=["half"])
    return [
        f"{text}; Holm over {len(judged)}. In every arm a difference above {part['half'].max():.1f} points would show."
        for kind, text in words.items()
        if not (part := judged[judged["kind"] == kind]).empty
    ]


def _as_agreed(row) -> str:
    title, runs = ARMS[row.arm].title, f"{row.n} {'pair' if row.kind == 'paired' else 'run'}{'s' * (row.n > 1)}"
    if row.agrees is None:
        return f"{title}: {runs}, too few recorded runs for a prediction."
    verdict = "agrees" if row.agrees else "differs"
    return f"{title}: {row.mean:+.1f} points from the record ({runs}), {p_text(row.p_holm)}: {verdict}."
