"""Verdicts: on a paper's claims, and on whether fresh runs agree with the recorded ones."""

import math
import textwrap
from dataclasses import dataclass

import pandas as pd

from agpo_core.experiments import published
from agpo_core.experiments.comparison import (
    LEVEL,
    MOST_PAIRS,
    Interval,
    holm,
    macro,
    p_value,
    paired,
    pairs_needed,
    prediction_interval,
    t_interval,
)
from agpo_core.experiments.grid import ARMS, arms_of, changes
from agpo_core.experiments.records import DIGITS, Results


@dataclass(frozen=True)
class Claim:
    """That one arm scores above another.

    Attributes:
        arm, baseline: names in grid.ARMS.
        published: the two rows of the paper's table that say so; None: a control, not in the paper.
    """

    arm: str
    baseline: str
    published: tuple[str, str] | None = None

    @property
    def title(self) -> str:
        return f"{ARMS[self.arm].title} above {ARMS[self.baseline].title}"


def judge(runs: pd.DataFrame, claims: list[Claim]) -> pd.DataFrame:
    """A verdict on each claim.

    supported      the paired difference is above zero, Holm's p below .05
    contradicted   it is below zero, Holm's p below .05
    inconclusive   neither; `needed` pairs would give 80 % power for a difference of this size
    not run        an arm is missing

    Returns:
        A row a claim: title, mean, half, n, p, p_holm, verdict, needed (NaN: no number to name).
    """
    pairs = [paired(runs, claim.arm, claim.baseline) for claim in claims]
    p = [p_value(gaps) for gaps in pairs]
    rows = []
    for claim, gaps, raw, adjusted in zip(claims, pairs, p, holm(p), strict=True):
        interval = t_interval(gaps)
        verdict = _verdict(interval, adjusted)
        needed = pairs_needed(gaps) if verdict == "inconclusive" else None
        rows.append((claim.title, *interval, raw, adjusted, verdict, needed))
    names = ["claim", "mean", "half", "n", "p", "p_holm", "verdict", "needed"]
    return pd.DataFrame(rows, columns=names).astype({"needed": float})


def _verdict(difference: Interval, p_holm: float) -> str:
    if difference.n == 0:
        return "not run"
    if not p_holm < LEVEL:  # NaN too: one pair decides nothing
        return "inconclusive"
    return "supported" if difference.mean > 0 else "contradicted"


def verdicts(judged: pd.DataFrame, claims: list[Claim], table: str = "agpo_table1") -> str:
    """Each claim in four lines: itself, what the paper reports, what was measured, the verdict."""
    printed = published.wide(published.load(table))
    tested = int(judged["p_holm"].notna().sum())
    blocks = []
    for claim, row in zip(claims, judged.itertuples(), strict=True):
        lines = [
            claim.title,
            fill(_in_the_paper(claim, printed), bullet="  the paper  "),
            fill(_as_measured(row, tested), bullet="  measured   "),
            fill(_as_judged(row), bullet="  verdict    "),
        ]
        blocks.append("\n".join(lines))
    return "\n\n".join(blocks)


def fill(sentence: str, bullet: str = "") -> str:
    """A sentence wrapped to the width of a terminal, hanging from its bullet."""
    hang = " " * len(bullet)
    return textwrap.fill(sentence, width=98, initial_indent=bullet, subsequent_indent=hang)


def _in_the_paper(claim: Claim, printed: pd.DataFrame) -> str:
    if claim.published is None:
        return "does not report this control"
    ours, theirs = (printed.loc[name] for name in claim.published)
    gap = ours - theirs
    ahead, of = int((gap.drop("mean") > 0).sum()), len(gap) - 1
    return f"{gap['mean']:+.1f} points on average over its benchmarks, ahead on {ahead} of {of}"


def _as_measured(row, tested: int) -> str:
    if row.n == 0:
        return "an arm was not run"
    if math.isnan(row.half):
        return f"{row.mean:+.1f} points, one pair, no interval"
    p = f"p = {row.p_holm:.3f}" if row.p_holm >= 0.001 else "p < 0.001"
    return (
        f"{row.mean:+.1f} points, 95 % interval [{row.mean - row.half:+.1f}, "
        f"{row.mean + row.half:+.1f}], {row.n} pairs, {p} (Holm over {tested})"
    )


def _as_judged(row) -> str:
    if row.verdict == "not run":
        return "not run"
    if row.verdict != "inconclusive":
        return f"{row.verdict} at this scale"
    remark = ""
    if row.p < LEVEL:
        remark = "the interval alone leaves out zero, Holm's correction does not; "
    if row.n < 2:
        return "inconclusive at this scale: one pair cannot decide"
    needed = f"about {row.needed:.0f}"
    if math.isnan(row.needed):
        needed = f"more than {MOST_PAIRS}"
    return f"inconclusive at this scale: {remark}a difference of this size takes {needed} pairs for 80 % power"


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
