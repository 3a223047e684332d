"""pass@1 and pass@k on the tasks that were trained on and on others, for RL from a base model (R++ Table 3).

A task is in domain if the runs trained on it, or on the training set that it belongs to, and else out of domain. The
score of a domain is the mean over its tasks, in points. pass@k of a problem is estimated from its samples
(`metrics.pass_at_k`).
"""

import math

import pandas as pd

from agpo_core.comparison import Interval, about, t_interval
from agpo_core.config import ConfigError
from agpo_core.experiments import predictions, published, report
from agpo_core.experiments.grid import ARMS, arms_of
from agpo_core.experiments.records import PASSES, Results
from agpo_core.experiments.traces import Part
from agpo_core.tasks.benchmarks.table import BENCHMARKS

KEY = ["arm", "seed", "start"]
IN, OUT = "in domain", "out of domain"
CLAIM = 42  # in published.claims
TRAINING_SET = {"math500": "math"}  # of test sets that have another name
COMPARED = ("reinforce_pp_k", "reinforce_pp_baseline")  # with GRPO


def check(params: dict) -> None:
    """Refuse settings that give no pass@k, or only one domain.

    Raises:
        ConfigError: the message says which setting to change.
    """
    if params.get("test_samples", 0) < PASSES[1]:
        raise ConfigError(f"test_samples must be at least {PASSES[1]}: pass@{PASSES[1]} is judged here.")
    if not all(_split(params["test_tasks"], params["tasks"]).values()):
        raise ConfigError("test_tasks must name a task that is trained on (tasks) and one that is not.")


def largest(runs: pd.DataFrame) -> int:
    """The largest k of the recorded pass@k; 1 where only pass@1 is recorded."""
    return max((k for k in PASSES if f"pass_{k}" in runs), default=1)


def domains(results: Results) -> dict[str, list[str]]:
    """{domain: the tested tasks in it}."""
    return _split(report.tasks_of(results.runs), results.meta["params"]["tasks"])


def _split(tested: list[str], trained: list[str]) -> dict[str, list[str]]:
    inside = [task for task in tested if TRAINING_SET.get(task, task) in trained]
    return {IN: inside, OUT: [task for task in tested if task not in inside]}


def scores(results: Results) -> pd.DataFrame:
    """pass@1 and pass@k of each run in each domain, in points.

    Returns:
        A row a run, indexed by KEY; a column a domain and k: ("in domain", 1) and so on.
    """
    runs, columns = results.runs, {}
    for domain, tasks in domains(results).items():
        for k in dict.fromkeys((1, largest(runs))):
            of_task = runs[runs["task"].isin(tasks)].pivot(index=KEY, columns="task", values=f"pass_{k}")
            columns[domain, k] = 100 * of_task.mean(axis=1)
    return pd.DataFrame(columns)


def gap(results: Results, arm: str, domain: str, k: int, baseline: str = "grpo") -> pd.Series:
    """Differences of a score, arm - baseline, of runs with equal seed and start; empty where an arm is missing.

    A start has no seed, and is paired by its name alone.
    """
    values = scores(results)[domain, k]
    ours, theirs = (values[values.index.get_level_values("arm") == name].droplevel("arm") for name in (arm, baseline))
    if baseline == "start":
        theirs = theirs.droplevel("seed").reindex(ours.index.get_level_values("start"))
        return (ours - theirs.to_numpy()).dropna()
    return (ours - theirs).dropna()


# -- tables ----------------------------------------------------------------------------------------


def titled(domain: str, k: int) -> str:
    return f"{domain}: pass@{k}"


def table(results: Results) -> pd.DataFrame:
    """pass@1 and pass@k of every arm in each domain, in points, with its t-interval."""
    found = scores(results)
    cells = {
        ARMS[arm].title: {titled(*column): _interval(values, arm) for column, values in found.xs(arm).items()}
        for arm in arms_of(results.runs)
    }
    return _frame(cells)


def sharpening(results: Results) -> pd.DataFrame:
    """What RL changed since the start: pass@1, pass@k, and by how much k samples beat one, before and after.

    The last column of a domain is pass@k - pass@1, from the start to the end of the runs. It shrinks where RL makes
    answers surer that the start gave now and then.
    """
    cells, k = {}, largest(results.runs)
    for arm in [arm for arm in arms_of(results.runs) if arm != "start"]:
        row = {}
        for domain in (IN, OUT):
            for tries in (1, k):
                change = gap(results, arm, domain, tries, "start")
                row[f"{domain}: change of pass@{tries}"] = t_interval(change).text("+")
            found = scores(results)
            spread = (found[domain, k] - found[domain, 1]).groupby("arm").mean()
            row[f"{domain}: pass@{k} − pass@1"] = f"{spread.get('start', math.nan):.1f} → {spread[arm]:.1f}"
        cells[ARMS[arm].title] = row
    corner = about(t_interval(gap(results, arm, IN, 1, "start")) for arm in arms_of(results.runs) if arm != "start")
    return pd.DataFrame.from_dict(cells, orient="index").rename_axis(columns=corner or None)


def differences(results: Results) -> pd.DataFrame:
    """Paired differences from GRPO in each domain, as they are drawn.

    Returns:
        A row an arm, domain and k: arm, domain, k, mean, half, n, about.
    """
    there, rows = arms_of(results.runs), []
    for arm in [arm for arm in COMPARED if arm in there and "grpo" in there]:
        for domain, k in scores(results):
            rows.append((arm, domain, k, *t_interval(gap(results, arm, domain, k))))
    return pd.DataFrame(rows, columns=["arm", "domain", "k", "mean", "half", "n", "about"])


def _interval(values: pd.Series, arm: str) -> Interval:
    interval = t_interval(values)
    return interval._replace(half=math.nan, about="") if arm == "start" else interval  # all starts, not a sample


def _frame(cells: dict[str, dict[str, Interval]]) -> pd.DataFrame:
    rows = {row: {column: cell.text() for column, cell in of.items()} for row, of in cells.items()}
    corner = about(cell for of in cells.values() for cell in of.values())
    return pd.DataFrame.from_dict(rows, orient="index").rename_axis(columns=corner or None)


# -- the claim -------------------------------------------------------------------------------------


def parts(results: Results) -> list[Part]:
    """What claim 42 says, as two statements that can be judged: pass@k out of domain, pass@1 in domain."""
    k = largest(results.runs)
    return [
        Part(f"Out of domain REINFORCE++ (k > 1) scores higher than GRPO: the difference of pass@{k}, in points, is "
             "above zero.", gap(results, "reinforce_pp_k", OUT, k), 1, 1),
        Part("In domain it scores lower: the difference of pass@1, in points, is below zero.",
             gap(results, "reinforce_pp_k", IN, 1), -1, 1),
    ]  # fmt: skip


def controls(results: Results) -> list[Part]:
    """The other differences from GRPO, of which no paper claims anything: what Table 3 leaves out, and the baseline."""
    k, found = largest(results.runs), []
    for arm, measures in (
        ("reinforce_pp_k", ((OUT, 1), (IN, k))),
        ("reinforce_pp_baseline", ((OUT, k), (OUT, 1), (IN, k), (IN, 1))),
    ):
        for domain, tries in dict.fromkeys(measures):
            says = f"{ARMS[arm].title} less GRPO, {domain}, pass@{tries}, in points."
            found.append(Part(says, gap(results, arm, domain, tries), 0, 1))
    return found


# -- the paper's numbers ---------------------------------------------------------------------------


def in_print() -> pd.DataFrame:
    """The published table with what it leaves out: how large chance is with so many problems.

    A score is a share p of n problems. Its binomial standard error, sqrt(p (1 - p) / n), says how far it would scatter
    if other problems of their kind were asked. The one of a difference is for independent scores; both methods were
    asked the same problems, which makes it smaller by an unknown amount.

    Returns:
        A row a benchmark: problems, GRPO, REINFORCE++ and difference in points, the standard errors in points, and the
        difference in standard errors.
    """
    sizes = {b.stands_in_for: b.sizes.get("test") for b in BENCHMARKS.values()}
    printed, rows = published.table("R++ Table 3"), {}
    for column in printed:
        theirs, ours = printed.loc["GRPO", column], printed.loc["REINFORCE++ (k > 1)", column]
        n = sizes[column.partition(",")[0]]
        errors = [math.sqrt(p * (100 - p) / n) for p in (theirs, ours)]
        rows[column] = {
            "problems": n,
            "GRPO": theirs,
            "REINFORCE++": ours,
            "difference": ours - theirs,
            "s.e. of a score": max(errors),
            "s.e. of the difference": math.hypot(*errors),
            "difference / s.e.": (ours - theirs) / math.hypot(*errors),
        }
    return pd.DataFrame.from_dict(rows, orient="index")


# -- in words --------------------------------------------------------------------------------------


def even(pass_1: float, k: int) -> float:
    """The pass@k, in points, if every problem were solved with the chance pass@1: 1 - (1 - p)^k."""
    return 100 * (1 - (1 - pass_1 / 100) ** k)


def answers(results: Results) -> str:
    """The four predictions of rpp_table3_rl_from_zero, answered."""
    if results.runs.empty:
        return "Nothing was run, so there is nothing to answer."
    return predictions.answered(
        (results, ["start"], lambda: the_start(results)),
        (results, ["start", "grpo"], lambda: since_the_start(results, IN)),
        (results, ["start", "grpo"], lambda: since_the_start(results, OUT)),
        (results, ["grpo", "reinforce_pp_k"], lambda: the_claimed(results)),
    )


def the_start(results: Results) -> str:
    """How often the start is right with one sample and with k, beside problems that are all equally hard."""
    k, words = largest(results.runs), []
    for domain in (IN, OUT):
        one, many = (scores(results).loc["start"][domain, tries].mean() for tries in (1, k))
        words.append(
            f"{domain} {one:.1f} % of single samples are right, and of {k} samples at least one for {many:.1f} % of "
            f"the problems ({even(one, k):.1f} % if all were equally hard)"
        )
    return f"Of the starts: {'; '.join(words)}."


def since_the_start(results: Results, domain: str) -> str:
    """How pass@1 and pass@k of each arm changed since the start, and which of the two changed more."""
    k, words = largest(results.runs), []
    for arm in [arm for arm in arms_of(results.runs) if arm != "start"]:
        one, many = (t_interval(gap(results, arm, domain, tries, "start")) for tries in (1, k))
        words.append(f"{ARMS[arm].title} pass@1 {one.text('+')}, pass@{k} {many.text('+')}")
    return f"{domain.capitalize()}, in points since the start: {'; '.join(words)}."


def the_claimed(results: Results) -> str:
    """The two differences of claim 42, each with whether its interval leaves out zero."""
    words = []
    for domain, k in ((OUT, largest(results.runs)), (IN, 1)):
        found = t_interval(gap(results, "reinforce_pp_k", domain, k))
        sure = "no interval" if math.isnan(found.half) else "not told from zero"
        if abs(found.mean) > found.half:
            sure = "above zero" if found.mean > 0 else "below zero"
        words.append(f"{domain} pass@{k} {found.text('+')} ({sure})")
    return f"REINFORCE++ (k > 1) less GRPO, in points: {'; '.join(words)}."


def reading(results: Results) -> list[str]:
    """What RL did to the scores, in sentences whose words follow from the numbers."""
    lines, k = [], largest(results.runs)
    for domain in (IN, OUT):
        shrunk = {}
        for arm in [arm for arm in arms_of(results.runs) if arm != "start"]:
            narrower = t_interval(gap(results, arm, domain, k, "start") - gap(results, arm, domain, 1, "start"))
            sure = not abs(narrower.mean) <= narrower.half  # NaN: a single run decides nothing, and is told as it is
            shrunk[arm] = (
                "shrinks" if narrower.mean < 0 and sure else "grows" if narrower.mean > 0 and sure else "stays"
            )
        said = {
            word: [ARMS[arm].title for arm in shrunk if shrunk[arm] == word] for word in ("shrinks", "grows", "stays")
        }
        verbs = {"shrinks": "shrinks under", "grows": "grows under", "stays": "does not change measurably under"}
        words = "; ".join(f"{verbs[word]} {', '.join(names)}" for word, names in said.items() if names)
        lines.append(f"{domain.capitalize()} the distance of pass@{k} from pass@1 {words}.")
    return lines
