"""Do differences between arms carry over from one family of models to others (AGPO Table 3)?

Every family has one supervised start here, so *family* and *start* are one: a difference between two families may as
well be a difference between two starts. A record with several starts of one family says how far those are apart.

A difference between arms is paired by seed within its family. A difference between two families is that of their
differences, again paired by seed: under one seed all starts see the same prompts.
"""

import math
from itertools import combinations

import pandas as pd

from agpo_core import comparison, paths, provenance
from agpo_core.comparison import (
    TIE,
    WITHIN,
    Interval,
    estimate,
    holm,
    macro,
    p_value,
    paired,
    prediction,
    t_interval,
)
from agpo_core.experiments import grid, records
from agpo_core.experiments.grid import ARMS, arms_of
from agpo_core.experiments.predictions import answered
from agpo_core.experiments.records import Results
from agpo_core.experiments.report import p_cell
from agpo_core.experiments.verdicts import Pair, fill, verdict_of
from agpo_core.tasks import get_task

TITLES = {"qwen2": "Qwen2", "llama": "Llama", "gemma2": "Gemma-2"}  # architecture -> the family, as the papers write it
ONE_FAMILY = "agpo_table1_main_results"  # the record with several starts of one family
SCORED = ("GSM8K", "MMLU_STEM")  # the benchmarks of AGPO Table 3
CELLS = ["arm", "baseline", "start", "mean", "half", "n", "about", "p_holm", "tests", "verdict"]
BETWEEN = ["arm", "one", "other", "mean", "half", "n", "p_holm", "tests"]


def title(start: str) -> str:
    """The family of a shipped start; the name of any other start."""
    made = provenance.read_json(paths.models() / "starts.json").get(start)
    return TITLES.get(made["architecture"], start) if made else start


def starts_of(runs: pd.DataFrame) -> list[str]:
    """The starts of a table of runs, a family each, in the order in which they were given."""
    return list(runs["start"].unique())


def adaptive(runs: pd.DataFrame) -> list[str]:
    """The arms whose difference from GRPO the paper's Table 3 shows, as far as they were run."""
    return [arm for arm in ("agpo_no_ats", "agpo") if arm in arms_of(runs)]


# -- differences -------------------------------------------------------------------------------


def gap(runs: pd.DataFrame, arm: str, start: str, baseline: str = "grpo") -> pd.Series:
    """The paired differences of an arm from the baseline on one start, a value a seed, in points."""
    gaps = paired(runs, arm, baseline)
    return gaps[gaps.index.get_level_values("start") == start]


def cells(runs: pd.DataFrame, pairs: list[Pair]) -> pd.DataFrame:
    """The difference of each pair of arms in each family, and its verdict; Holm's correction goes over all of them.

    Returns:
        A row a pair and start: CELLS. `mean`, `half`, `n`, `about` are comparison.Interval's; `tests` is how many were
        tested together.
    """
    keys = [(pair, start) for pair in pairs for start in starts_of(runs)]
    values = [gap(runs, pair.arm, start, pair.baseline) for pair, start in keys]
    adjusted = holm([p_value(of) for of in values])
    tests = int((~pd.isna(adjusted)).sum())
    rows = []
    for (pair, start), of, p in zip(keys, values, adjusted, strict=True):
        interval = t_interval(of, TIE)
        rows.append((pair.arm, pair.baseline, start, *interval, p, tests, verdict_of(pair, interval, p)))
    return pd.DataFrame(rows, columns=CELLS)


def contrast(runs: pd.DataFrame, arm: str, one: str, other: str, baseline: str = "grpo") -> pd.Series:
    """By how much an arm's difference from the baseline is larger on one start than on another, a value a seed.

    c_s = (arm - baseline on `one`)_s - (arm - baseline on `other`)_s
    """
    ours, theirs = (gap(runs, arm, start, baseline).droplevel("start") for start in (one, other))
    return (ours - theirs).dropna()


def between(runs: pd.DataFrame, arms: list[str], baseline: str = "grpo") -> pd.DataFrame:
    """Each arm's contrast between every two families, with Holm's p over all of them.

    Returns:
        A row an arm and two starts: BETWEEN; `mean`, `half`, `n` of the interval over seeds.
    """
    keys = [(arm, *two) for arm in arms for two in combinations(starts_of(runs), 2)]
    values = [contrast(runs, *key, baseline) for key in keys]
    adjusted = holm([p_value(of) for of in values])
    tests = int((~pd.isna(adjusted)).sum())
    rows = [(*key, *t_interval(of, TIE)[:3], p, tests) for key, of, p in zip(keys, values, adjusted, strict=True)]
    return pd.DataFrame(rows, columns=BETWEEN)


def over_families(runs: pd.DataFrame, arm: str, baseline: str = "grpo") -> Interval:
    """The mean of the families' own mean differences, with the interval over families: what other ones would give."""
    means = paired(runs, arm, baseline).groupby("start").mean()
    return t_interval(means.to_numpy(), TIE)


def one_family(results: Results) -> Results | None:
    """The record of several starts of one family under the same settings; None where there is none."""
    record = records.load(ONE_FAMILY, results.meta["profile"]) if results.meta else None
    if record is None:
        return None
    known = record.meta["params"]
    return None if grid.changes(results.meta["params"] | {"models": known["models"]}, known) else record


def another_start(record: Results, arm: str, baseline: str = "grpo") -> Interval:
    """Where the difference would lie on another start of the record's family: mean and 95 % prediction interval."""
    gaps = paired(record.runs, arm, baseline)
    if estimate(gaps, TIE).df < 1 or math.isnan(estimate(gaps, TIE).error):
        return Interval(gaps.mean(), math.nan, len(gaps))
    return Interval(gaps.mean(), prediction(gaps, [0.0]).half(), len(gaps))


# -- tables ------------------------------------------------------------------------------------


def scores(runs: pd.DataFrame, tasks: tuple[str, ...] = ()) -> pd.DataFrame:
    """Test score of every arm in every family, in %: the macro-average, or single tasks; mean ± interval over seeds."""
    rows = {}
    for arm in arms_of(runs):
        of_arm = runs[runs["arm"] == arm]
        row = {}
        for task in tasks or (None,):
            values = macro(of_arm).droplevel("arm")
            if task is not None:
                values = 100 * of_arm[of_arm["task"] == task].set_index(["seed", "start"])["score"]
            for start in starts_of(runs):
                of_start = values[values.index.get_level_values("start") == start]
                row[f"{f'{task}, '.replace('_', ' ') if task else ''}{title(start)}"] = t_interval(of_start).text()
        rows[ARMS[arm].title] = row
    return _frame(rows, _corner(runs))


def stand_ins(tasks: list[str]) -> tuple[str, ...]:
    """Those of some tasks that are, or stand in for, the two benchmarks of the paper's Table 3."""
    return tuple(name for name in tasks if get_task(name).stands_in_for in SCORED)


def levels(runs: pd.DataFrame) -> pd.DataFrame:
    """Where each family starts, what GRPO gains there, and which part of that gain each adaptive arm has.

    The share is the arm's gain over the start divided by GRPO's, of equal seed; mean ± interval over seeds.
    """
    rows = {}
    for start in starts_of(runs):
        of_start = runs[runs["start"] == start]
        before, gain = macro(of_start[of_start["arm"] == "start"]), paired(of_start, "grpo", "start")
        row = {
            "start, %": f"{before.mean():.1f}",
            "gain of GRPO": t_interval(gain).text("+"),
            "errors left by GRPO, %": t_interval(100 - macro(of_start[of_start["arm"] == "grpo"])).text(),
        }
        for arm in adaptive(runs):
            share = 100 * (paired(of_start, arm, "start") / gain).dropna()
            row[f"gain of {ARMS[arm].title}, % of GRPO's"] = t_interval(share).text(digits=0)
        rows[title(start)] = row
    return _frame(rows, _corner(runs))


def gaps_table(found: pd.DataFrame) -> pd.DataFrame:
    """The rows of `cells` as texts: a row a pair and family."""
    rows = {}
    for row in found.itertuples():
        interval = Interval(row.mean, row.half, row.n, row.about)
        rows[f"{ARMS[row.arm].title} − {ARMS[row.baseline].title}, {title(row.start)}"] = {
            "points": interval.text("+"), "pairs": str(row.n), f"p (Holm over {row.tests})": p_cell(row.p_holm),
            "verdict": row.verdict,
        }  # fmt: skip
    return _frame(rows, comparison.about(Interval(row.mean, row.half, row.n, row.about) for row in found.itertuples()))


def between_table(found: pd.DataFrame) -> pd.DataFrame:
    """The rows of `between` as texts: a row an arm and two families."""
    rows = {}
    for row in found.itertuples():
        rows[f"{ARMS[row.arm].title} − GRPO: {title(row.one)} − {title(row.other)}"] = {
            "points": Interval(row.mean, row.half, row.n).text("+"), "seeds": str(row.n),
            f"p (Holm over {row.tests})": p_cell(row.p_holm),
        }  # fmt: skip
    return _frame(rows, f"± over {WITHIN}" if found["half"].notna().any() else "")


def _corner(runs: pd.DataFrame) -> str:
    several = runs[runs["arm"] != "start"].groupby("start")["seed"].nunique().max() > 1
    return f"± over {WITHIN}" if several else ""


def _frame(rows: dict, corner: str) -> pd.DataFrame:
    return pd.DataFrame.from_dict(rows, orient="index").rename_axis(columns=corner or None)


# -- in words ----------------------------------------------------------------------------------


def of_table3(results: Results) -> str:
    """The four predictions of agpo_table3_cross_family, answered."""
    return answered(
        (results, ("start", "grpo"), lambda: apart_before_and_after(results.runs)),
        (results, ("grpo", "agpo"), lambda: sign_in_each_family(results.runs)),
        (results, ("grpo", "agpo"), lambda: families_against_each_other(results.runs)),
        (results, ("grpo", "agpo"), lambda: families_against_starts(results)),
    )


def apart_before_and_after(runs: pd.DataFrame) -> str:
    """How far the families' levels are apart before training and after GRPO."""
    means = {arm: macro(runs[runs["arm"] == arm]).groupby("start").mean() for arm in ("start", "grpo")}
    spans = {arm: f"{level.max() - level.min():.1f} points" for arm, level in means.items()}
    listed = {
        arm: ", ".join(f"{title(start)} {level[start]:.1f} %" for start in starts_of(runs))
        for arm, level in means.items()
    }
    ranked = [list(level.sort_values().index) for level in means.values()]
    order = "the same" if ranked[0] == ranked[1] else "another"
    return (
        f"Before training: {listed['start']}, {spans['start']} apart. After GRPO: {listed['grpo']}, {spans['grpo']} "
        f"apart, and in {order} order."
    )


def sign_in_each_family(runs: pd.DataFrame, arm: str = "agpo") -> str:
    """An arm's difference from GRPO in every family, and how many share a sign."""
    found = {start: t_interval(gap(runs, arm, start), TIE) for start in starts_of(runs)}
    texts = ", ".join(f"{title(start)} {interval.text('+')}" for start, interval in found.items())
    below, far = sum(interval.mean < 0 for interval in found.values()), max(found, key=lambda s: abs(found[s].mean))
    clear = sum(abs(interval.mean) > interval.half for interval in found.values())
    return (
        f"{ARMS[arm].title} differs from GRPO by {texts} points. It is below GRPO in {below} of {len(found)} families, "
        f"farthest from it on {title(far)}; {clear} of the intervals exclude zero."
    )


def families_against_each_other(runs: pd.DataFrame, arm: str = "agpo") -> str:
    """Whether the families' differences differ from each other."""
    found = between(runs, [arm])
    if found.empty:
        return "There is one family, so there is nothing to compare."
    texts = ", ".join(
        f"{title(row.one)} − {title(row.other)} {Interval(row.mean, row.half, row.n).text('+')}"
        for row in found.itertuples()
    )
    tested = found.dropna(subset=["half"])
    if tested.empty:
        return f"Only the contrast of two families would: {texts} points. One seed gives no interval."
    clear = int((tested["mean"].abs() > tested["half"]).sum())
    return (
        "No: one interval may exclude zero and another include it although the two families do not differ. Only the "
        f"interval of their contrast says whether they do: {texts} points. {clear} of {len(tested)} exclude zero; a "
        f"contrast below about {tested['half'].mean():.1f} points could not be told from none."
    )


def families_against_starts(results: Results, arm: str = "agpo") -> str:
    """How far families are apart, beside how far starts of one family are."""
    runs, record = results.runs, one_family(results)
    means = paired(runs, arm, "grpo").groupby("start").mean()
    text = f"The families' mean differences lie between {means.min():+.1f} and {means.max():+.1f} points."
    if record is None:
        return f"{text} There is no record of several starts of one family with these settings."
    several, reach = paired(record.runs, arm, "grpo"), another_start(record, arm)
    family = title(record.runs["start"].iloc[0])
    inside = [title(start) for start in starts_of(runs) if reach.low <= means[start] <= reach.high]
    return (
        f"{text} On {len(several)} starts of {family}, a seed each, they lie between {several.min():+.1f} and "
        f"{several.max():+.1f}, and another start of {family} would be expected between {reach.low:+.1f} and "
        f"{reach.high:+.1f}. Within that: {', '.join(inside) or 'none'}. What lies within it needs no difference of "
        "families to explain it."
    )


def reading(found: pd.DataFrame, runs: pd.DataFrame) -> str:
    """What the claim would need, what was found of it, and how far it reaches beyond these families."""
    if found.empty:
        return "No claim of the papers is about these arms."
    counts = found["verdict"].value_counts()
    shown = ", ".join(
        f"{counts[v]} {v}" for v in ("supported", "contradicted", "inconclusive", "not run") if v in counts
    )
    lines = [
        f"The claim needs a gain in every family. Of its {len(found)} differences, one a family and an arm: {shown}.",
        *(_of_arm(arm, found[found["arm"] == arm], runs) for arm in dict.fromkeys(found["arm"])),
    ]
    return "\n".join(fill(line, bullet="- ") for line in lines)


def _of_arm(arm: str, rows: pd.DataFrame, runs: pd.DataFrame) -> str:
    above, below = (int((sign * rows["mean"] > 0).sum()) for sign in (1, -1))
    clear = "" if set(rows["verdict"]) <= {"supported", "contradicted"} else ", not each of them shown"
    wide = over_families(runs, arm)
    beyond = "One family says nothing about others."
    if wide.n > 1:
        zero = "" if math.isnan(wide.half) else f", {'without' if abs(wide.mean) > wide.half else 'with'} zero inside"
        beyond = f"With the {wide.n} families as a sample of others: {wide.text('+')} points{zero}."
    counted = f"a gain in {above}, a deficit in {below}{clear}"
    return f"{ARMS[arm].title} against GRPO, of {len(rows)} families: {counted}. {beyond}"
