"""What runs on Knights and Knaves say of R++ Fig. 4: the lead over GRPO by number of people, and its trend."""

from __future__ import annotations

import math

import numpy as np
import pandas as pd
from scipy import stats

from agpo_core.comparison import Interval, about, holm, p_value, t_interval
from agpo_core.experiments.arm_tables import KEY
from agpo_core.experiments.grid import ARMS, arms_of
from agpo_core.experiments.predictions import answered
from agpo_core.experiments.records import Results
from agpo_core.experiments.report import p_cell
from agpo_core.experiments.traces import Part

RIVALS = ("reinforce_pp_k", "reinforce_pp_baseline")  # with global normalisation
SOME = 2.0  # %; where GRPO solves less than this on average, a lead has no room to show


def by_people(runs: pd.DataFrame) -> pd.DataFrame:
    """Greedy test scores in %: a row a run, indexed by arm, seed and start; a column a number of people."""
    scores = 100 * runs.pivot_table(index=KEY, columns="task", values="score")
    return scores.rename(columns=people_of).sort_index(axis=1).rename_axis(columns="people")


def people_of(task: str) -> int:
    """The number of people in a task's name: `knights_2` and `knights_and_knaves_2` give 2."""
    return int(task.rpartition("_")[2])


def leads(runs: pd.DataFrame, arm: str, baseline: str = "grpo") -> pd.DataFrame:
    """Differences of `by_people`, arm less baseline, of runs with equal seed and start; points.

    The supervised start is paired by start alone.
    """
    scores = by_people(runs)
    ours, theirs = (scores.xs(name, level="arm") for name in (arm, baseline))
    if baseline == "start":
        theirs = theirs.droplevel("seed")
        ours = ours[ours.index.get_level_values("start").isin(theirs.index)]
        return ours - theirs.reindex(ours.index.get_level_values("start")).to_numpy()
    return (ours - theirs).dropna()


def slopes(differences: pd.DataFrame) -> pd.Series:
    """The least-squares slope of each row over the number of people: points a person, one number a pair.

    slope = Σ_n (n - n̄) d_n / Σ_n (n - n̄)²,  n the columns

    Example:
        >>> slopes(pd.DataFrame([[0.0, 1.0, 2.0], [3.0, 3.0, 0.0]], columns=[2, 3, 4])).tolist()
        [1.0, -1.5]
    """
    people = differences.columns.to_numpy(dtype=float)
    centred = people - people.mean()
    return (differences * centred).sum(axis=1) / (centred**2).sum()


def page(differences: pd.DataFrame) -> float:
    """One-sided p of Page's test: do the columns rise in the order of their numbers? A pair is a block of ranks.

    Page (1963). It asks for a rising order and for no straight line. NaN with one pair or fewer than three columns.
    """
    if len(differences) < 2 or differences.shape[1] < 3:
        return math.nan
    return float(stats.page_trend_test(differences.to_numpy()).pvalue)


def solved(runs: pd.DataFrame) -> list[int]:
    """The numbers of people at which GRPO solves SOME % or more on average."""
    means = by_people(runs).xs("grpo", level="arm").mean()
    return means[means >= SOME].index.tolist()


# -- tables -------------------------------------------------------------------------------------


def scores_table(runs: pd.DataFrame) -> pd.DataFrame:
    """A row an arm, a column a number of people and their mean: test score in %, mean ± t-interval over runs."""
    scores, rows, shown = by_people(runs), {}, []
    for arm in arms_of(runs):
        of_arm = scores.xs(arm, level="arm")
        cells = {f"{people}": t_interval(of_arm[people]) for people in of_arm}
        cells["mean"] = t_interval(of_arm.mean(axis=1))
        if arm == "start":  # all starts, not a sample of them
            cells = {name: cell._replace(half=math.nan, about="") for name, cell in cells.items()}
        shown += cells.values()
        rows[ARMS[arm].title] = {name: cell.text() for name, cell in cells.items()} | {"runs": str(len(of_arm))}
    return pd.DataFrame.from_dict(rows, orient="index").rename_axis(columns=about(shown) or None)


def leads_table(runs: pd.DataFrame, baseline: str = "grpo") -> pd.DataFrame:
    """The lead over GRPO at each number of people, and over all of them: a row a number, two columns an arm.

    p is corrected by Holm over all single numbers of people and arms; their mean stands beside them uncorrected.
    """
    arms = [arm for arm in RIVALS if {arm, baseline} <= set(runs["arm"])]
    found = {arm: leads(runs, arm, baseline) for arm in arms}
    tested = {(arm, people): gap[people] for arm, gap in found.items() for people in gap}
    p = dict(zip(tested, holm([p_value(gap) for gap in tested.values()]), strict=True))
    rows, shown = {}, []
    for arm, gap in found.items():
        title = f"{ARMS[arm].title} − {ARMS[baseline].title}"
        for people in gap:
            shown.append(t_interval(gap[people]))
            row = rows.setdefault(f"{people}", {})
            row |= {title: shown[-1].text("+"), f"p of {ARMS[arm].title}": p_cell(p[arm, people])}
        mean = t_interval(gap.mean(axis=1))
        rows.setdefault("mean", {}).update({title: mean.text("+"), f"p of {ARMS[arm].title}": ""})
    return pd.DataFrame.from_dict(rows, orient="index").rename_axis(columns=about(shown) or None)


# -- the claim ----------------------------------------------------------------------------------


def parts(results: Results) -> list[Part]:
    """What claim 41 says of the recorded runs, as statements that can be judged: one trend."""
    if not {"reinforce_pp_k", "grpo"} <= set(results.runs["arm"]):
        return []
    lead = leads(results.runs, "reinforce_pp_k")
    span = f"{lead.columns.min()} to {lead.columns.max()} people"
    return [
        Part(f"The lead of {ARMS['reinforce_pp_k'].title} over GRPO grows: its slope over {span}, in points a person, "
             "is above zero.", slopes(lead), 1, 2)
    ]  # fmt: skip


def controls(results: Results) -> list[Part]:
    """Differences beside the claim: the other variant, the span on which anything is solved, and the mean lead."""
    found, runs = [], results.runs
    for arm in RIVALS:
        if not {arm, "grpo"} <= set(runs["arm"]):
            continue
        lead, title = leads(runs, arm), ARMS[arm].title
        if arm != "reinforce_pp_k":
            found.append(Part(f"Slope of the lead of {title} over all numbers of people, points a person.",
                              slopes(lead), 0, 2))  # fmt: skip
        span = solved(runs)
        if len(span) > 1 and span != lead.columns.tolist():
            found.append(Part(f"Slope of the lead of {title} over {span[0]} to {span[-1]} people, where GRPO solves "
                              f"{SOME:g} % or more, points a person.", slopes(lead[span]), 0, 2))  # fmt: skip
        found.append(Part(f"Mean lead of {title} over all numbers of people, points.", lead.mean(axis=1), 0, 2))
    return found


def page_text(results: Results) -> str:
    """Page's test for each rival, in a line."""
    found = {arm: page(leads(results.runs, arm)) for arm in RIVALS if {arm, "grpo"} <= set(results.runs["arm"])}
    words = [f"{ARMS[arm].title} p = {p:.3f}" for arm, p in found.items() if not math.isnan(p)]
    return f"Page's test for a rising lead, one-sided, uncorrected: {', '.join(words) or 'too few pairs'}."


# -- predictions --------------------------------------------------------------------------------


def of_fig4(results: Results) -> str:
    """The four predictions of rpp_fig4_knights_knaves, answered."""
    return answered(
        (results, ("start",), lambda: guessing(results)),
        (results, ("start", "grpo"), lambda: what_training_moves(results)),
        (results, ("grpo", "reinforce_pp_k"), lambda: the_trend(results)),
        (results, ("grpo", "reinforce_pp_k"), lambda: what_could_be_seen(results)),
    )


def guessing(results: Results) -> str:
    """The score of a guess that names everyone, beside the starts."""
    scores = by_people(results.runs).xs("start", level="arm").mean()
    words = ", ".join(f"{people} {100 / 2**people:.1f} % and {score:.1f} %" for people, score in scores.items())
    return f"A guess of every role is right with chance 1 / 2ⁿ. Guess and starts, by number of people: {words}."


def what_training_moves(results: Results) -> str:
    """GRPO's gain over its start, by number of people."""
    gain = leads(results.runs, "grpo", "start")
    on = {people_of(task) for task in results.meta["params"]["tasks"]}
    words = [
        f"{people}{' (trained on)' if people in on else ''} {interval.text('+')}{_star(interval)}"
        for people, interval in ((people, t_interval(gain[people])) for people in gain)
    ]
    return f"Gain of GRPO over its start in points: {', '.join(words)}. A star: the interval leaves out zero."


def the_trend(results: Results) -> str:
    """The lead at the fewest and the most people, and its slope."""
    lead = leads(results.runs, "reinforce_pp_k")
    few, many = (t_interval(lead[people]) for people in (lead.columns.min(), lead.columns.max()))
    slope = t_interval(slopes(lead))
    return (
        f"The lead of {ARMS['reinforce_pp_k'].title} is {few.text('+')} points at {lead.columns.min()} people and "
        f"{many.text('+')} at {lead.columns.max()}; its slope is {slope.text('+', 2)} points a person{_star(slope)}."
    )


def what_could_be_seen(results: Results) -> str:
    """The largest slope that the interval allows, as points over the whole span."""
    lead = leads(results.runs, "reinforce_pp_k")
    slope, span = t_interval(slopes(lead)), int(np.ptp(lead.columns.to_numpy()))
    if math.isnan(slope.half):
        return "One pair has no interval."
    return (
        f"The interval of the slope reaches from {slope.low:+.2f} to {slope.high:+.2f} points a person: over {span} "
        f"more people the lead may change by {span * slope.low:+.1f} to {span * slope.high:+.1f} points."
    )


def _star(interval: Interval) -> str:
    return " *" if interval.low > 0 or interval.high < 0 else ""
