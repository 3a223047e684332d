"""Verdicts: on a paper's claims, and on whether fresh runs agree with the recorded ones."""

import math
import textwrap
from dataclasses import dataclass

import pandas as pd

from agpo_core.experiments import published, records
from agpo_core.experiments.comparison import (
    LEVEL,
    MOST_PAIRS,
    Interval,
    have_spread,
    holm,
    macro,
    p_value,
    paired,
    pairs_needed,
    prediction_interval,
    t_interval,
)
from agpo_core.experiments.grid import ARMS, arms_of, changes
from agpo_core.experiments.published import MACRO
from agpo_core.experiments.records import DIGITS, Results


@dataclass(frozen=True)
class Pair:
    """Two arms that are compared, and what is claimed about them.

    Attributes:
        arm, baseline: names in grid.ARMS.
        relation: "above" or "equal", as claimed; without a claim it says nothing.
        claims: of a paper, about these two; none: the difference is measured, and nothing is judged.
    """

    arm: str
    baseline: str
    relation: str = "above"
    claims: tuple[published.Claim, ...] = ()

    @property
    def title(self) -> str:
        between = {"above": "above", "equal": "equal to"}[self.relation] if self.claims else "against"
        return f"{ARMS[self.arm].title} {between} {ARMS[self.baseline].title}"


def claimed(experiment: str, arms) -> list[Pair]:
    """What the papers claim about the macro-averages of an experiment's arms, in order of `published.claims`.

    Args:
        experiment: a claim is judged in the experiments that it names.
        arms: those that are there; a claim about another is left out.
    """
    found = {}
    for claim in published.claims():
        for c in claim.contrasts if experiment in claim.experiments else ():
            if c.measure == MACRO and {c.arm, c.baseline} <= set(arms):
                found.setdefault((c.arm, c.baseline, c.relation), []).append(claim)
    return [Pair(*key, tuple(claims)) for key, claims in found.items()]


def judge(runs: pd.DataFrame, pairs: list[Pair]) -> pd.DataFrame:
    """The paired difference of each pair, and a verdict where something is claimed.

    supported      the difference is above zero, Holm's p below .05
    contradicted   it is below zero, Holm's p below .05; of arms claimed to be equal, on either side
    inconclusive   neither; `needed` pairs would give 80 % power for a difference of this size
    no claim       no paper says anything about the two
    not run        an arm is missing

    Holm's correction is over the claims that could be tested. One difference, or equal ones, cannot.

    Returns:
        A row a pair: arm, baseline, mean, half, n, p, p_holm, verdict, needed (NaN: no number to name).
    """
    gaps = [paired(runs, pair.arm, pair.baseline) for pair in pairs]
    p = [p_value(gap) if pair.claims else math.nan for pair, gap in zip(pairs, gaps, strict=True)]
    rows = []
    for pair, gap, raw, adjusted in zip(pairs, gaps, p, holm(p), strict=True):
        interval = t_interval(gap)
        if not have_spread(gap):
            interval = interval._replace(half=math.nan)
        verdict = _verdict(pair, interval, adjusted)
        needed = pairs_needed(gap) if verdict == "inconclusive" and pair.relation == "above" else None
        rows.append((pair.arm, pair.baseline, *interval, raw, adjusted, verdict, needed))
    names = ["arm", "baseline", "mean", "half", "n", "p", "p_holm", "verdict", "needed"]
    return pd.DataFrame(rows, columns=names).astype({"needed": float})


def _verdict(pair: Pair, difference: Interval, p_holm: float) -> str:
    if not pair.claims:
        return "no claim"
    if difference.n == 0:
        return "not run"
    if not p_holm < LEVEL:  # NaN too: without a spread nothing is decided
        return "inconclusive"
    return "supported" if difference.mean > 0 and pair.relation == "above" else "contradicted"


def verdicts(judged: pd.DataFrame, pairs: list[Pair]) -> str:
    """Each pair in a few lines: the claim and its place, what the papers print, what was measured, the verdict."""
    tested = int(judged["p_holm"].notna().sum())
    blocks = []
    for pair, row in zip(pairs, judged.itertuples(), strict=True):
        said = [f"{claim.title}: {claim.says}" for claim in pair.claims] or ["none"]
        lines = [
            pair.title,
            *(fill(sentence, bullet="  claim      ") for sentence in said),
            fill(in_print(pair.arm, pair.baseline), bullet="  published  "),
            fill(_as_measured(row, tested), bullet="  measured   "),
        ]
        if pair.claims:
            lines.append(fill(_as_judged(pair, row), bullet="  verdict    "))
        blocks.append("\n".join(lines))
    return "\n\n".join(blocks)


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


def _as_measured(row, tested: int) -> str:
    if row.n == 0:
        return "an arm was not run"
    if math.isnan(row.half):
        which = "one pair" if row.n == 1 else f"equal in {row.n} pairs"
        return f"{row.mean:+.1f} points, {which}, no interval"
    text = (
        f"{row.mean:+.1f} points, 95 % interval [{row.mean - row.half:+.1f}, {row.mean + row.half:+.1f}], {row.n} pairs"
    )
    if row.verdict == "no claim":
        return text
    p = f"p = {row.p_holm:.3f}" if row.p_holm >= 0.001 else "p < 0.001"
    return f"{text}, {p} (Holm over {tested})"


def _as_judged(pair: Pair, row) -> str:
    if row.verdict == "not run":
        return "not run"
    if row.verdict != "inconclusive":
        return f"{row.verdict} at this scale"
    if row.n < 2:
        return "inconclusive at this scale: one pair cannot decide"
    if math.isnan(row.p):
        return "inconclusive at this scale: equal differences have no spread to judge them by"
    remark = ""
    if row.p < LEVEL:
        remark = "the interval alone leaves out zero, Holm's correction does not; "
    if pair.relation == "equal":
        return f"inconclusive at this scale: {remark}no difference is shown, nor that there is none"
    needed = f"about {row.needed:.0f}"
    if math.isnan(row.needed):
        needed = f"more than {MOST_PAIRS}"
    return f"inconclusive at this scale: {remark}a difference of this size takes {needed} pairs for 80 % power"


def answers(profile: str = "tiny") -> dict[int, list[str]]:
    """What is known here of every claim: from tests, from the record; what is to come, and what takes a GPU.

    Args:
        profile: whose records are read.
    Returns:
        {number of a claim: sentences}.
    """
    found = {claim.number: [] for claim in published.claims()}
    for claim in published.claims():
        if claim.tests:
            words = {True: "holds, by a test", False: "does not hold, by a test", None: "in part, by a test"}
            found[claim.number].append(words[claim.holds])
    for experiment in dict.fromkeys(name for claim in published.claims() for name in claim.experiments):
        record = records.load(experiment, profile)
        if record is None:
            continue
        arms = set(arms_of(record.runs))
        pairs = claimed(experiment, arms)
        for pair, row in zip(pairs, judge(record.runs, pairs).itertuples(), strict=True):
            difference = Interval(row.mean, row.half, row.n).text("+")
            for claim in pair.claims:
                found[claim.number].append(f"{row.verdict} in `{experiment}`: {pair.title}, {difference}")
        for claim in published.claims():
            others = [c for c in claim.contrasts if c.measure != MACRO and {c.arm, c.baseline} <= arms]
            if others and experiment in claim.experiments:
                measures = dict.fromkeys(c.measure for c in others)
                found[claim.number].append(f"measured in `{experiment}`, not judged: {', '.join(measures)}")
    for claim in published.claims():
        if claim.planned:
            found[claim.number].append(f"to come: {claim.planned}")
        if claim.gpu:
            found[claim.number].append(f"only on a GPU: {claim.gpu}")
    return found


def agreement(runs: pd.DataFrame, record: pd.DataFrame) -> pd.DataFrame:
    """Each trained arm of fresh runs against the recorded ones.

    Runs with a recorded hash (same settings, seed, start and numerics) are compared score by score,
    at the record's digits. The mean of the others, and of those that differ, is held against the
    record's 95 % prediction interval for the mean of so many new runs.

    Returns:
        A row an arm: runs, recorded (by hash), identical, fresh, mean (of the fresh), low, high,
        agrees ("identical", "within", "outside", "no interval").
    """
    theirs = {key: _scores(run) for key, run in record.groupby("hash")}
    rows = {}
    for arm in arms_of(runs):
        if arm == "start":
            continue
        of_arm = runs[runs["arm"] == arm]
        same = {key: _scores(run) == theirs.get(key) for key, run in of_arm.groupby("hash")}
        fresh = macro(of_arm[[not same[key] for key in of_arm["hash"]]])
        low, high = prediction_interval(macro(record[record["arm"] == arm]), max(len(fresh), 1))
        mean = fresh.mean()
        verdict = "within" if low <= mean <= high else "outside"
        if math.isnan(low):
            verdict = "no interval"
        if fresh.empty:
            verdict = "identical"
        known = sum(key in theirs for key in same)
        rows[arm] = (len(same), known, sum(same.values()), len(fresh), mean, low, high, verdict)
    names = ["runs", "recorded", "identical", "fresh", "mean", "low", "high", "agrees"]
    return pd.DataFrame.from_dict(rows, orient="index", columns=names)


def _scores(run: pd.DataFrame) -> dict[str, str]:
    return {task: f"{score:.{DIGITS}g}" for task, score in zip(run["task"], run["score"], strict=True)}


def agreement_text(results: Results, record: Results | None) -> str:
    """Whether fresh results agree with the record, in words."""
    if record is None:
        return "There is no record of this profile to agree with."
    if results.meta == record.meta:
        return "These are the recorded runs themselves."
    if changed := changes(results.meta["params"], record.meta["params"]):
        return f"No agreement is claimed: the record is of another experiment, with {'; '.join(changed)}."
    table = agreement(results.runs, record.runs)
    total, known, same = (int(table[name].sum()) for name in ("runs", "recorded", "identical"))
    lines = [f"{same} of {total} runs equal the recorded run of the same settings, seed and start."]
    ours, theirs = (found.meta.get("numerics_version") for found in (results, record))
    if ours != theirs:
        lines = [
            f"The record is of numerics version {_listed(theirs)}, these runs are of {_listed(ours)}: none is expected "
            "to equal its recorded run, and all are judged as fresh."
        ]
    if known > same:
        lines.append(f"{known - same} differ from theirs, as they may on another kind of machine.")
    for row in table[table["agrees"] != "identical"].itertuples():
        lines.append(f"{ARMS[row.Index].title}: {_as_predicted(row)}.")
    outside = int((table["agrees"] == "outside").sum())
    if outside:
        verdict = f"Disagrees with the record in {outside} of {len(table)} arms; by chance, one in 20."
    elif (table["agrees"] == "no interval").any():
        verdict = "Agreement with the record cannot be judged."
    else:
        verdict = "Agrees with the record."
    return "\n".join([verdict, *lines])


def _listed(versions) -> str:
    return " and ".join(map(str, versions or ["unknown"]))


def _as_predicted(row) -> str:
    if row.agrees == "no interval":
        return "too few recorded runs for a prediction interval"
    return (
        f"mean {row.mean:.1f} of {row.fresh} fresh run{'s' * (row.fresh > 1)}, {row.agrees} "
        f"the record's prediction interval [{row.low:.1f}, {row.high:.1f}]"
    )
