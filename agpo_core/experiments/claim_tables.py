"""Every claim of the papers with what is known of it here, as tables: for the notebook `claims`.

Everything is read from `published.claims()` and from the records, so that a new record changes the tables and no line
of code. `answers` gives the same findings as sentences, `tallies` in a word.

A claim's standing is one of STANDINGS:

    supported      every judged difference that it speaks of is supported; or it was computed, and holds
    contradicted   some judged difference is contradicted; or it was computed, and does not hold
    inconclusive   neither, and some difference was judged
    in part        something of it was measured or computed, and nothing of it is judged
    untested       nothing of the above: an experiment is to come, or it takes a GPU
"""

import math
from collections.abc import Callable

import numpy as np
import pandas as pd

from agpo_core import paths
from agpo_core.comparison import LEVEL, Interval, macro, t_interval
from agpo_core.config import ConfigError
from agpo_core.experiments import (
    domains,
    knights_readings,
    learned_reward,
    published,
    records,
    report,
    small_data_readings,
    stability,
    throughput,
    time_to_target,
    trace_readings,
)
from agpo_core.experiments.arm_tables import KEY
from agpo_core.experiments.grid import ARMS, arms_of
from agpo_core.experiments.published import MACRO, Claim
from agpo_core.experiments.records import Results
from agpo_core.experiments.traces import Part, judge_parts
from agpo_core.experiments.verdicts import Pair, claimed, in_print, judge, p_text, verdict_of

STANDINGS = ("supported", "contradicted", "inconclusive", "in part", "untested")
COLUMNS = ["claim", "paper", "experiment", "pair", "measure", "part", "unit", "mean", "half", "n", "about", "p_holm",
           "family", "verdict", "needed"]  # fmt: skip
NOT_JUDGED = "not judged"
STATEMENT = "statement"  # in the place of a measure: what is judged is a sentence about runs


# -- measures that are shown, and not judged -----------------------------------------------------


def _column(name: str, scale: float = 1.0) -> Callable[[Results], dict[str, pd.Series]]:
    return lambda results: {"": scale * _by_run(results)[name]} if name in results.runs else {}


def _by_run(results: Results) -> pd.DataFrame:
    return results.runs.drop_duplicates(KEY).set_index(KEY)


def _saturation(results: Results) -> dict[str, pd.Series]:
    values = stability.per_run(results)
    return {"of tokens": values[stability.CLIPPED], "of updates": values[stability.AT_BOUND]}


def _log_variance(results: Results) -> dict[str, pd.Series]:
    return {"": np.log(_by_run(results)["grad_norm_variance"].astype(float))}


def _seconds(results: Results) -> dict[str, pd.Series]:
    runs = _by_run(results)
    trained = runs[runs["updates"] > 0]
    return {"": trained["seconds"] / trained["updates"]}


def _generated_a_second(results: Results) -> dict[str, pd.Series]:
    return {"": throughput.speeds(results)["generated"]}


def _tokens_to_target(results: Results) -> dict[str, pd.Series]:
    """At the target halfway from the starts to GRPO; runs that never reach it are left out."""
    seen = time_to_target.points(results.only(["start", "grpo", "agpo"]))
    found = time_to_target.times(seen, time_to_target.target(seen, time_to_target.RULE))
    return {"": found["generated"].dropna()}


def _tasks(results: Results) -> dict[str, pd.Series]:
    of_task = results.runs.groupby("task", sort=False)
    return {task: 100 * rows.set_index(KEY)["score"] for task, rows in of_task}


def _domain(domain: str, k: int) -> Callable[[Results], dict[str, pd.Series]]:
    return lambda results: {"": domains.scores(results)[domain, k]} if f"pass_{k}" in results.runs else {}


# measure of a published.Contrast: its unit, and what it is in a record: {part: a value a run}, {} where it has none
MEASURES: dict[str, tuple[str, Callable[[Results], dict[str, pd.Series]]]] = {
    "the score on each task": ("points", _tasks),
    "pass@8 out of domain": ("points", _domain(domains.OUT, 8)),
    "pass@1 in domain": ("points", _domain(domains.IN, 1)),
    "clip saturation": ("points", _saturation),
    "variance of the gradient norm": ("in its logarithm", _log_variance),
    "seconds an update": ("s", _seconds),
    "tokens generated a second": ("tokens a second", _generated_a_second),
    "generated tokens to a target score on dev": ("tokens", _tokens_to_target),
    "memory": ("MiB", _column("memory_mb")),
}

RLHF = ("rpp_table1_general_rlhf", "rpp_table1_weak_reward")
# Claims whose verdict is on statements about runs, as their notebook makes them: the number of a claim -> the records
# that are read, the first of which the verdict is named after, and the function of their results.
STATEMENTS: dict[int, tuple[tuple[str, ...], Callable[..., list[Part]]]] = {
    18: (("agpo_fig3_kl_clip_traces",), trace_readings.parts_of_fig3),
    19: (("methods_overview", "agpo_fig3_kl_clip_traces"), trace_readings.parts_of_fig4),
    37: (RLHF, learned_reward.parts_of_length),
    38: (RLHF, learned_reward.parts_of_fig2),
    39: (("rpp_table2_small_data_overfitting",), small_data_readings.parts_of_table2),
    40: (("rpp_table2_small_data_overfitting",), small_data_readings.parts_of_fig3),
    41: (("rpp_fig4_knights_knaves",), knights_readings.parts),
}
EQUALITY = 36  # the claim that two arms are equal, to within a margin: see `learned_reward.equality`


# -- effects -------------------------------------------------------------------------------------


def effects(profile: str = "tiny") -> pd.DataFrame:
    """Every difference or statement that a claim makes and a record can answer: those that are judged, then the others.

    Args:
        profile: whose records are read.
    Returns:
        A row a claim, experiment, pair and part of a measure: COLUMNS. `mean`, `half`, `n` and `about` are the paired
        difference (comparison.Interval) in `unit`; p_holm, family and needed are NaN where it is not judged. A
        statement stands in the column `pair`, and has no unit.
    """
    rows = []
    for experiment in dict.fromkeys(name for claim in published.claims() for name in claim.experiments):
        record = records.load(experiment, profile)
        if record is not None:
            rows += _judged(experiment, record) + _measured(experiment, record)
    rows += _stated(profile) + _equal(profile)
    table = pd.DataFrame(rows, columns=COLUMNS)
    numbers = ["mean", "half", "p_holm", "family", "needed"]
    return table.astype(dict.fromkeys(numbers, float)).sort_values("claim", kind="stable", ignore_index=True)


def _judged(experiment: str, record: Results) -> list[tuple]:
    pairs = claimed(experiment, arms_of(record.runs))
    rows = judge(record.runs, pairs).itertuples()
    return [
        (claim.number, claim.paper, experiment, pair.two, pair.measure, "", "points", row.mean, row.half, row.n,
         row.about, row.p_holm, row.family, row.verdict, row.needed)
        for pair, row in zip(pairs, rows, strict=True) for claim in pair.claims
    ]  # fmt: skip


def _measured(experiment: str, record: Results) -> list[tuple]:
    arms, rows = set(arms_of(record.runs)), []
    for claim in published.claims():
        if claim.number in (EQUALITY, *STATEMENTS):
            continue
        for c in claim.contrasts if experiment in claim.experiments else ():
            if c.measure not in MEASURES or not {c.arm, c.baseline} <= arms:
                continue
            unit, read = MEASURES[c.measure]
            for part, values in read(record).items():
                gap = (values.xs(c.arm, level="arm") - values.xs(c.baseline, level="arm")).dropna()
                between = {"above": "above", "equal": "equal to"}[c.relation]
                pair = f"{ARMS[c.arm].title} {between} {ARMS[c.baseline].title}"
                rows.append((claim.number, claim.paper, experiment, pair, c.measure, part, unit, *t_interval(gap),
                             math.nan, math.nan, NOT_JUDGED, math.nan))  # fmt: skip
    return rows


def _stated(profile: str) -> list[tuple]:
    rows = []
    for number, (names, statements) in STATEMENTS.items():
        found = [records.load(name, profile) for name in names]
        if found[0] is None:
            continue
        paper = published.claims()[number - 1].paper
        parts = statements(*(record or Results() for record in found))
        for part, row in zip(parts, judge_parts(parts).itertuples(), strict=True):
            measured = (row.mean, row.half, row.n, row.about, row.p_holm, row.family, row.verdict, row.needed)
            rows.append((number, paper, names[0], part.says.rstrip("."), STATEMENT, "", "", *measured))
    return rows


def _equal(profile: str) -> list[tuple]:
    record = records.load(RLHF[0], profile)
    if record is None:
        return []
    arm, measure = learned_reward.PAPER, learned_reward.GOLD
    (found,) = learned_reward.equalities(record, (arm,), (measure,)).values()
    says = f"{ARMS[arm].title} equals GRPO in {measure}, to within {learned_reward.MARGIN:.0%} of what GRPO gains"
    measured = (*found.difference, found.p, 1, found.verdict, math.nan)
    return [(EQUALITY, "R++", RLHF[0], says, STATEMENT, "", "", *measured)]


def standing(claim: Claim, found: pd.DataFrame) -> str:
    """One of STANDINGS: where a claim stands.

    Args:
        found: `effects`, of this claim or of all.
    """
    verdicts = set(found.loc[found["claim"] == claim.number, "verdict"])
    judged = verdicts - {NOT_JUDGED, "not run"}
    if "contradicted" in judged or claim.holds is False:
        return "contradicted"
    if judged:
        return "supported" if judged == {"supported"} else "inconclusive"
    if claim.holds:
        return "supported"
    return "in part" if NOT_JUDGED in verdicts or claim.tests else "untested"


def standings(found: pd.DataFrame) -> pd.DataFrame:
    """Where every claim stands, and by what: runs, a computation, or nothing yet.

    Returns:
        A row a claim: claim, paper, standing, by ("runs", "computed" or "").
    """
    rows = []
    for claim in published.claims():
        runs = not found[found["claim"] == claim.number].empty
        by = "runs" if runs else "computed" if claim.tests else ""
        rows.append((claim.number, claim.paper, standing(claim, found), by))
    return pd.DataFrame(rows, columns=["claim", "paper", "standing", "by"])


def counts(stands: pd.DataFrame) -> pd.DataFrame:
    """How many claims stand where: a row a paper and one for both, a column a standing, and their sum."""
    table = pd.crosstab(stands["paper"], stands["standing"]).reindex(columns=STANDINGS, fill_value=0)
    table.loc["both"] = table.sum()
    return table.assign(claims=table.sum(axis=1)).rename_axis(index=None, columns=None)


def check(papers: list, shown: list, number: int) -> None:
    """Refuse a paper, a standing or a claim that there is not.

    Raises:
        ConfigError: the message names what there is.
    """
    known = {"papers": (papers, list(published.FILES)), "shown": (shown, list(STANDINGS))}
    for name, (given, there) in known.items():
        for value in given:
            if value not in there:
                raise ConfigError(f"{name}: {value!r} is none of {', '.join(there)}.")
    if not 1 <= number <= len(published.claims()):
        raise ConfigError(f"number must lie between 1 and {len(published.claims())}; got {number!r}.")


def tallies(profile: str = "tiny") -> dict[int, list[str]]:
    """Each claim's verdict in a word, by what gave it: the recorded runs, a test, or both.

    Args:
        profile: whose records are read.
    Returns:
        {number of a claim: verdicts}: of runs "supported", "contradicted" or "inconclusive", and "mixed" where its
        pairs, statements or experiments differ; of tests "holds", "does not hold" or "in part". Empty: nothing judges
        it yet.
    """
    found = effects(profile)
    judged = found[~found["verdict"].isin([NOT_JUDGED, "not run"])]
    of_tests = {True: "holds", False: "does not hold", None: "in part"}
    tally = {}
    for claim in published.claims():
        of_runs = list(judged.loc[judged["claim"] == claim.number, "verdict"].unique())
        tally[claim.number] = [
            *(of_runs if len(of_runs) < 2 else ["mixed"]),
            *([of_tests[claim.holds]] if claim.tests else []),
        ]
    return tally


# -- as text -------------------------------------------------------------------------------------


def answers(profile: str = "tiny") -> dict[int, list[str]]:
    """What this repository knows of every claim: from tests, from the record; what is planned, and what takes a GPU.

    Args:
        profile: whose records are read.
    Returns:
        {number of a claim: sentences}.
    """
    found = effects(profile)
    words = {
        True: "holds, as a test shows",
        False: "does not hold, as a test shows",
        None: "answered in part by a test",
    }
    sentences = {}
    for claim in published.claims():
        rows = found[found["claim"] == claim.number]
        said = [words[claim.holds]] if claim.tests else []
        for row in rows[rows["verdict"] != NOT_JUDGED].itertuples():
            over = f" (over {row.about})" if row.about else ""
            what = _what(row.pair, row.measure)
            said.append(f"{row.verdict} in `{row.experiment}`: {what}, {_difference(row)}{over}")
        for experiment, others in rows[rows["verdict"] == NOT_JUDGED].groupby("experiment", sort=False):
            said.append(f"measured in `{experiment}`, not judged: {', '.join(others['measure'].unique())}")
        said += [f"planned: {claim.planned}"] * bool(claim.planned) + [f"only on a GPU: {claim.gpu}"] * bool(claim.gpu)
        sentences[claim.number] = said
    return sentences


def table(found: pd.DataFrame, paper: str, shown=STANDINGS) -> str:
    """Every claim in a row, in Markdown: its place, what the paper says, what is known of it here, verdict, notebook.

    Args:
        found: `effects`.
        paper: "AGPO" or "R++".
        shown: the standings that are shown.
    """
    rows = []
    for claim in published.claims():
        where = standing(claim, found)
        if claim.paper == paper and where in shown:
            here = "; ".join(known(claim, found))
            rows.append((claim.number, claim.place, claim.says, here, f"**{where}**", link(claim.notebook)))
    return report.markdown(pd.DataFrame(rows, columns=["#", "place", "the paper says", "here", "verdict", "notebook"]))


def known(claim: Claim, found: pd.DataFrame) -> list[str]:
    """What is known of a claim here, in a few phrases: verdicts on statements, differences, computations, the rest."""
    of_claim = found[found["claim"] == claim.number]
    said = of_claim["measure"] == STATEMENT
    phrases = [_counted(experiment, rows) for experiment, rows in of_claim[said].groupby("experiment", sort=False)]
    for (pair, measure), rows in of_claim[~said].groupby(["pair", "measure"], sort=False):
        places = []
        for experiment, of_one in rows.groupby("experiment", sort=False):
            differences = ", ".join(f"{row.part} {_difference(row)}".strip() for row in of_one.itertuples())
            places.append(f"{differences} {of_one['unit'].iloc[0]}".rstrip() + f" in `{experiment}`")
        what = _what(pair, measure)
        phrases.append(f"{what}: {'; '.join(places)}")
    if claim.tests:
        phrases.append({True: "computed: it holds", False: "computed: it fails", None: "computed in part"}[claim.holds])
    if claim.planned:
        phrases.append(f"to come: {claim.planned}")
    if claim.gpu:
        phrases.append(f"only on a GPU: {claim.gpu}")
    return phrases


def _counted(experiment: str, rows: pd.DataFrame) -> str:
    counts = rows["verdict"].value_counts()
    words = ", ".join(f"{counts[verdict]} {verdict}" for verdict in (*STANDINGS[:3], "not run") if verdict in counts)
    return f"{len(rows)} statement{'s' * (len(rows) > 1)} about runs in `{experiment}`: {words}"


def _what(pair: str, measure: str) -> str:
    return pair if measure in (MACRO, STATEMENT) else f"{pair}, {measure}"


def _difference(row) -> str:
    digits = 1 if math.isnan(row.mean) or abs(row.mean) >= 1 or row.unit == "points" else 2
    if row.measure == STATEMENT and row.half > 0:
        digits = max(digits, 1 - math.floor(math.log10(row.half)))  # two digits of the interval
    return Interval(row.mean, row.half, row.n).text("+", digits)


def one(number: int, found: pd.DataFrame) -> str:
    """One claim in full: what the paper says and prints, and what was measured, computed or is to come here."""
    claim = published.claims()[number - 1]
    lines = [claim.title, f"  says      {claim.says}"]
    for arm, baseline in dict.fromkeys((c.arm, c.baseline) for c in claim.contrasts):
        lines.append(f"  in print  {ARMS[arm].title} and {ARMS[baseline].title}: {in_print(arm, baseline)}")
    for row in found[found["claim"] == number].itertuples():
        p = f", {p_text(row.p_holm)} (Holm over {row.family:.0f})" if not math.isnan(row.p_holm) else ""
        needed = f", {row.needed:.0f} would be needed" if not math.isnan(row.needed) else ""
        pairs = "runs" if row.measure == STATEMENT else "pairs"
        lines.append(f"  {row.experiment}: {_what(row.pair, row.measure)} {row.part}".rstrip())
        difference = f"{_difference(row)} {row.unit}".rstrip()
        lines.append(f"            {difference}, {row.n} {pairs}{p}: {row.verdict}{needed}")
    lines += [f"  test      {name}" for name in claim.tests]
    lines += [f"  to come   {claim.planned}"] * bool(claim.planned) + [f"  GPU       {claim.gpu}"] * bool(claim.gpu)
    return "\n".join([*lines, f"  stands    {standing(claim, found)}"])


def faults(text: str) -> str:
    """What is wrong in one of the texts, a row each, in Markdown.

    Args:
        text: "AGPO" or "commentary".
    """
    rows = [(f.place, f.says, f.wrong, f.found) for f in published.faults() if f.text == text]
    return report.markdown(pd.DataFrame(rows, columns=["where", "it says", "what is wrong", "how it was found"]))


def link(notebook: str) -> str:
    """A link to a notebook that is there; the name of one that is to come."""
    there = (paths.notebooks() / f"{notebook}.ipynb").is_file()
    return f"[{notebook}]({notebook}.ipynb)" if there else f"{notebook} (to come)"


# -- in words ------------------------------------------------------------------------------------


def predicted(found: pd.DataFrame) -> list[str]:
    """The three questions of the notebook's *Predict* section, answered by number."""
    stands, judged = standings(found), found.dropna(subset=["p_holm"])
    of = stands["standing"].value_counts().reindex(STANDINGS, fill_value=0)
    by_runs = stands["claim"].isin(judged["claim"]).sum()
    answers = [
        f"Of {len(stands)} claims {by_runs} are judged by runs so far. Together with those that are computed "
        f"{of['supported']} are supported, {of['contradicted']} contradicted and {of['inconclusive']} inconclusive. Of "
        f"{of['in part']} a part was measured or computed and nothing judged; {of['untested']} are untested.",
    ]
    decided = stands[stands["standing"].isin(STANDINGS[:2])]
    shares = []
    for by, words in (("runs", "by runs"), ("computed", "by a computation")):
        part = decided.loc[decided["by"] == by, "standing"]
        shares.append(f"{words} {(part == 'supported').sum()} of {len(part)}")
    answers.append(f"Of the claims that are decided either way these are supported: {'; '.join(shares)}.")
    open_ones = judged[(judged["verdict"] == "inconclusive") & (judged["mean"].abs() > judged["half"])]
    pairs = "; ".join(dict.fromkeys(f"{row.pair} ({row.experiment})" for row in open_ones.itertuples()))
    answers.append(
        "Yes. Holm's correction asks more of a difference the more claims are tested beside it, and the interval is "
        f"not corrected. Here that is so for {len(open_ones)} of {len(judged)} differences{': ' * bool(pairs)}{pairs}."
    )
    return answers


def only_on_gpu() -> list[str]:
    """What of the claims only a GPU can test, a line each."""
    return [f"claim {c.number:2} ({c.paper} {c.place}): {c.gpu}" for c in published.claims() if c.gpu]


def needed(found: pd.DataFrame) -> list[str]:
    """Of each inconclusive difference, how many pairs would decide it if it is as large as measured; one line each."""
    lines = []
    for row in found[found["verdict"] == "inconclusive"].itertuples():
        pairs = "more pairs than are worth naming" if math.isnan(row.needed) else f"about {row.needed:.0f} pairs"
        difference = f"{_difference(row)} {row.unit}".rstrip()
        what = _what(row.pair, row.measure)
        lines.append(f"claim {row.claim}, {what} in {row.experiment}: {difference}, {pairs}, not {row.n}")
    return lines


def sources(found: pd.DataFrame, profile: str = "tiny") -> pd.DataFrame:
    """The records that the effects come from: a row a record, with its commit, seeds, starts and date."""
    rows = {}
    for experiment in found["experiment"].unique():
        record = records.load(experiment, profile)
        trained = record.runs[record.runs["arm"] != "start"]
        rows[experiment] = {
            "runs": len(macro(trained)),
            "seeds": trained["seed"].nunique(),
            "starts": trained["start"].nunique(),
            "commit": ", ".join(commit[:8] for commit in record.meta["commit"]),
            "finished": str(record.meta["finished"])[:10],
        }
    return pd.DataFrame.from_dict(rows, orient="index")


# -- an exercise ---------------------------------------------------------------------------------


def verdict_number(low: float, high: float, p_holm: float, relation: str) -> int:
    """The verdict on a difference as a number: 1 supported, -1 contradicted, 0 inconclusive.

    Args:
        low, high: the ends of its 95 % interval.
        p_holm: its p, corrected.
        relation: "above" or "equal", as claimed.
    """
    pair = Pair("agpo", "grpo", relation, published.claims()[:1])
    verdict = verdict_of(pair, Interval((low + high) / 2, (high - low) / 2, 6), p_holm)
    return {"supported": 1, "contradicted": -1, "inconclusive": 0}[verdict]


CASES = [(0.5, 2.0, 0.010, "above"), (-3.0, -1.0, 0.001, "above"), (0.1, 1.9, 0.120, "above"),
         (1.0, 3.0, 0.001, "equal"), (-0.2, 0.3, 0.800, "equal")]  # fmt: skip


def _by_the_interval(low, high, p_holm, relation):
    return int(low > 0) - int(high < 0) if relation == "above" else verdict_number(low, high, p_holm, relation)


def _equal_because_not_shown(low, high, p_holm, relation):
    return 1 if relation == "equal" and p_holm >= LEVEL else verdict_number(low, high, p_holm, relation)


HOLM_MISTAKES = {
    "the factor falls by one with every step; m for all of them is Bonferroni's correction.": lambda ps: [
        min(len(ps) * p, 1.0) for p in ps
    ],
    "a corrected p is never smaller than one before it; keep the largest.": lambda ps: [
        min((len(ps) - sorted(ps).index(p)) * p, 1.0) for p in ps
    ],
}
MISTAKES = {
    "the interval leaves out zero, and is not corrected; the verdict goes by the corrected p.": _by_the_interval,
    "that no difference is shown does not support that there is none.": _equal_because_not_shown,
}
