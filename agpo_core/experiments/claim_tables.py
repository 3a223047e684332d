"""Every claim of the papers with what is known of it here, as tables: for the notebook `claims`.

Everything is read from `published.claims()` and from the records, so that a new record changes the tables and no line
of code. `verdicts.answers` gives the same findings as sentences.

A claim's standing is one of STANDINGS:

    supported      every judged difference that it speaks of is supported; or it was computed, and holds
    contradicted   some judged difference is contradicted; or it was computed, and does not hold
    inconclusive   neither, and some difference was judged
    in part        something of it was measured or computed, and nothing of it is judged
    untested       nothing of the above: an experiment is to come, or it takes a GPU
"""

import math
from collections.abc import Callable

import pandas as pd

from agpo_core import paths
from agpo_core.comparison import LEVEL, Interval, macro, t_interval
from agpo_core.config import ConfigError
from agpo_core.experiments import published, records, report, throughput, time_to_target
from agpo_core.experiments.arm_tables import KEY
from agpo_core.experiments.grid import ARMS, arms_of
from agpo_core.experiments.published import MACRO, Claim
from agpo_core.experiments.records import Results
from agpo_core.experiments.verdicts import Pair, claimed, in_print, judge, p_text, verdict_of
from agpo_core.tasks.preferences import to_gold

STANDINGS = ("supported", "contradicted", "inconclusive", "in part", "untested")
COLUMNS = ["claim", "paper", "experiment", "pair", "measure", "part", "unit", "mean", "half", "n", "about", "p_holm",
           "family", "verdict", "needed"]  # fmt: skip
NOT_JUDGED = "not judged"


# -- measures that are shown, and not judged -----------------------------------------------------


def _column(name: str, scale: float = 1.0) -> Callable[[Results], dict[str, pd.Series]]:
    return lambda results: {"": scale * _by_run(results)[name]} if name in results.runs else {}


def _by_run(results: Results) -> pd.DataFrame:
    return results.runs.drop_duplicates(KEY).set_index(KEY)


def _gold(results: Results) -> dict[str, pd.Series]:
    return {name: to_gold(values) for name, values in _column("sampled_gold")(results).items()}


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


def _early(results: Results) -> dict[str, pd.Series]:
    """The score on the trained problems at the first evaluation after the start."""
    if "train" not in results.traces:
        return {}
    points = results.traces[results.traces["update"] > 0].dropna(subset=["train"]).sort_values("update")
    first = points.groupby(KEY)[["update", "train"]].first()
    return {f"after {first['update'].min():.0f} updates": 100 * first["train"]}


# measure of a published.Contrast: its unit, and what it is in a record: {part: a value a run}, {} where it has none
MEASURES: dict[str, tuple[str, Callable[[Results], dict[str, pd.Series]]]] = {
    "the score on each task": ("points", _tasks),
    "the score at each number of people": ("points", _tasks),
    "the hidden gold reward": ("points of gold", _gold),
    "the reward model's score": ("points of the model", _column("sampled_score")),
    "KL to the start": ("nats a sequence", _column("sampled_kl")),
    "length of the outputs": ("tokens", _column("sampled_length")),
    "pass@16 on other problems": ("points", _column("pass_16", 100.0)),
    "score on the thirty problems after few updates": ("points", _early),
    "seconds an update": ("s", _seconds),
    "tokens generated a second": ("tokens a second", _generated_a_second),
    "generated tokens to a target score on dev": ("tokens", _tokens_to_target),
    "memory": ("MiB", _column("memory_mb")),
}


# -- effects -------------------------------------------------------------------------------------


def effects(profile: str = "tiny") -> pd.DataFrame:
    """Every difference that a claim speaks of and a record has: those that are judged, then the others.

    Args:
        profile: whose records are read.
    Returns:
        A row a claim, experiment, pair and part of a measure: COLUMNS. `mean`, `half`, `n` and `about` are the paired
        difference (comparison.Interval) in `unit`; p_holm, family and needed are NaN where it is not judged.
    """
    rows = []
    for experiment in dict.fromkeys(name for claim in published.claims() for name in claim.experiments):
        record = records.load(experiment, profile)
        if record is not None:
            rows += _judged(experiment, record) + _measured(experiment, record)
    table = pd.DataFrame(rows, columns=COLUMNS)
    numbers = ["mean", "half", "p_holm", "family", "needed"]
    return table.astype(dict.fromkeys(numbers, float)).sort_values("claim", kind="stable", ignore_index=True)


def _judged(experiment: str, record: Results) -> list[tuple]:
    pairs = claimed(experiment, arms_of(record.runs))
    rows = judge(record.runs, pairs).itertuples()
    return [
        (claim.number, claim.paper, experiment, pair.title, MACRO, "", "points", row.mean, row.half, row.n, row.about,
         row.p_holm, row.family, row.verdict, row.needed)
        for pair, row in zip(pairs, rows, strict=True) for claim in pair.claims
    ]  # fmt: skip


def _measured(experiment: str, record: Results) -> list[tuple]:
    arms, rows = set(arms_of(record.runs)), []
    for claim in published.claims():
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


# -- as text -------------------------------------------------------------------------------------


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
    """What is known of a claim here, in a few phrases: differences, computations, what is to come, what takes a GPU."""
    phrases, of_claim = [], found[found["claim"] == claim.number]
    for (pair, measure), rows in of_claim.groupby(["pair", "measure"], sort=False):
        what = pair if measure == MACRO else f"{pair}, {measure}"
        places = []
        for experiment, of_one in rows.groupby("experiment", sort=False):
            differences = ", ".join(f"{row.part} {_difference(row)}".strip() for row in of_one.itertuples())
            places.append(f"{differences} {of_one['unit'].iloc[0]} in `{experiment}`")
        phrases.append(f"{what}: {'; '.join(places)}")
    if claim.tests:
        phrases.append({True: "computed: it holds", False: "computed: it fails", None: "computed in part"}[claim.holds])
    if claim.planned:
        phrases.append(f"to come: {claim.planned}")
    if claim.gpu:
        phrases.append(f"only on a GPU: {claim.gpu}")
    return phrases


def _difference(row) -> str:
    digits = 1 if math.isnan(row.mean) or abs(row.mean) >= 1 or row.unit == "points" else 2
    return Interval(row.mean, row.half, row.n).text("+", digits)


def one(number: int, found: pd.DataFrame) -> str:
    """One claim in full: what the paper says and prints, and what was measured, computed or is to come here."""
    claim = published.claims()[number - 1]
    lines = [claim.title, f"  says      {claim.says}"]
    for c in claim.contrasts:
        printed = in_print(c.arm, c.baseline)
        lines.append(f"  in print  {ARMS[c.arm].title} and {ARMS[c.baseline].title}: {printed}")
    for row in found[found["claim"] == number].itertuples():
        p = f", {p_text(row.p_holm)} (Holm over {row.family:.0f})" if not math.isnan(row.p_holm) else ""
        needed = f", {row.needed:.0f} pairs would be needed" if not math.isnan(row.needed) else ""
        what = "" if row.measure == MACRO else f", {row.measure} {row.part}".rstrip()
        lines.append(f"  {row.experiment}: {row.pair}{what}")
        lines.append(f"            {_difference(row)} {row.unit}, {row.n} pairs{p}: {row.verdict}{needed}")
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
        lines.append(f"claim {row.claim}, {row.pair} in {row.experiment}: {row.mean:+.1f} points, {pairs}, not {row.n}")
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
