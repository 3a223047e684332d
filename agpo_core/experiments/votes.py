"""What a majority vote adds to the final policies of AGPO Fig. 2: the pairs compared, and the notebook's sentences.

maj@k is the chance that a vote of k sampled answers is right (`metrics.majority_at_k`), as a mean over problems and
then over tasks. Voting gains on problems whose commonest answer is right, and loses on the others; `maj_loss` in the
record keeps the two apart.
"""

import math

import pandas as pd

from agpo_core.comparison import PLUS_MINUS, Interval, macro, over_tasks, paired, t_interval
from agpo_core.experiments import predictions
from agpo_core.experiments.grid import ARMS, arms_of
from agpo_core.experiments.records import VOTERS, Results
from agpo_core.experiments.verdicts import MEASURES, VOTE_GAIN, Pair, fill
from agpo_core.theory.voting import vote_chance

RIVAL, SPREAD = [0.5, 0.1], [0.15] * 4  # wrong answers of the two problems that the notebook predicts
NONE = "No run of these results kept its votes: set test_samples to 4 or more."


def voters(results: Results) -> list[int]:
    """The k whose maj@k these runs have."""
    return [k for k in VOTERS if f"maj_{k}" in results.runs and results.runs[f"maj_{k}"].notna().any()]


def values(results: Results) -> pd.DataFrame:
    """Each run's scores in points: greedy, maj@k, and what the largest vote gains and loses against one sample.

    maj@K - maj@1 = gains - loses; `loses` is the mean over problems of max(0, maj@1 - maj@K).
    """
    runs, ks = results.runs, voters(results)
    table = pd.DataFrame({"greedy": macro(runs), **{f"maj@{k}": MEASURES[f"maj@{k}"](runs) for k in ks}})
    if ks[1:]:
        loses = over_tasks(runs, "maj_loss")
        table[f"{ks[-1]} votes gain"] = table[f"maj@{ks[-1]}"] - table["maj@1"] + loses
        table[f"{ks[-1]} votes lose"] = loses
    return table


def by_task(results: Results) -> pd.DataFrame:
    """Each arm's mean maj@1 of a task, and what a vote of the largest k up to 16 scores above it, in points.

    Returns:
        A row an arm and task: arm, task, one, gain.
    """
    most = max((k for k in voters(results) if k <= 16), default=1)
    columns = {"one": "maj_1", "many": f"maj_{most}"}
    if most == 1:
        return pd.DataFrame(columns=["arm", "task", "one", "gain"])
    runs = results.runs.assign(order=[list(ARMS).index(arm) for arm in results.runs["arm"]])
    means = 100 * runs.groupby(["order", "arm", "task"], sort=True)[list(columns.values())].mean()
    table = means.set_axis(list(columns), axis=1).reset_index().drop(columns="order")
    return table.assign(gain=table["many"] - table["one"]).drop(columns="many")


def controls(results: Results) -> list[Pair]:
    """Differences about which the paper claims nothing, of the arms that were run."""
    pairs = [
        Pair("grpo", "start", asks="Does training shrink what a vote of sixteen gains?", measure=VOTE_GAIN),
        Pair("agpo", "grpo", asks="Does AGPO leave a vote of sixteen more to gain?", measure=VOTE_GAIN),
        Pair("grpo_ats", "grpo", asks="Does adaptive temperature alone leave more to gain?", measure=VOTE_GAIN),
        Pair("agpo", "grpo", asks="Does AGPO's vote of sixty-four score higher?", measure="maj@64"),
    ]
    there = set(results.runs["arm"])
    return [pair for pair in pairs if {pair.arm, pair.baseline} <= there]


# -- in words ------------------------------------------------------------------------------------


def of_fig2(results: Results) -> str:
    """The five predictions of agpo_fig2_majority_vote, answered."""
    if len(voters(results)) < 2:
        return NONE
    return predictions.answered(
        (results, [], against_one_rival),
        (results, [], against_several),
        (results, ["start"], lambda: before_training(results)),
        (results, ["start", "grpo"], lambda: sharpening(results)),
        (results, ["agpo", "grpo"], lambda: where_agpo_differs(results)),
    )


def against_one_rival() -> str:
    """The vote on a problem whose commonest answer is wrong."""
    return f"Less often: {_course(0.4, RIVAL)}. The commonest answer is wrong, and a larger vote finds it more surely."


def against_several() -> str:
    """The vote on a problem whose wrong answers do not agree."""
    return (
        f"More often: {_course(0.4, SPREAD)}. A vote asks for the commonest answer, not for more than half of all "
        "answers: wrong answers that do not agree lose."
    )


def _course(right: float, wrong: list[float]) -> str:
    return ", ".join(f"{vote_chance(right, wrong, k):.0%} with {k} vote{'s' * (k > 1)}" for k in VOTERS)


def before_training(results: Results) -> str:
    """What a vote gains and loses with the supervised starts."""
    most, mean = voters(results)[-1], values(results).xs("start", level="arm").mean()
    return (
        f"One sample of a supervised start is right on {mean['maj@1']:.1f} % of the problems, a vote of {most} on "
        f"{mean[f'maj@{most}']:.1f} %. The problems on which the vote does better add {mean[f'{most} votes gain']:.1f} "
        f"points, and those on which it does worse take {mean[f'{most} votes lose']:.1f}."
    )


def sharpening(results: Results) -> str:
    """What training with GRPO does to maj@1, to the largest vote, and to the gap between them."""
    most, runs = voters(results)[-1], results.runs
    one, many = (paired(runs, "grpo", "start", MEASURES[f"maj@{k}"]) for k in (1, most))
    gap = t_interval(many - one)
    first = "maj@1" if gap.mean < 0 else f"maj@{most}"
    table = values(results)
    table["gap"] = table[f"maj@{most}"] - table["maj@1"]
    before, after = (table.xs(arm, level="arm")["gap"].mean() for arm in ("start", "grpo"))
    lost = [table.xs(arm, level="arm")[f"{most} votes lose"].mean() for arm in ("start", "grpo")]
    one, many = (t_interval(change).text("+") for change in (one, many))
    return (
        f"With GRPO maj@1 changes by {one} points and maj@{most} by {many}: {first} gains more. The gap between them "
        f"goes from {before:.1f} to {after:.1f} points, a change of {gap.text('+')} ({_zero(gap)}). "
        f"What voting loses goes from {lost[0]:.1f} to {lost[1]:.1f} points."
    )


def where_agpo_differs(results: Results) -> str:
    """AGPO less GRPO at each k, and the k at which they differ most."""
    gaps = {k: t_interval(paired(results.runs, "agpo", "grpo", MEASURES[f"maj@{k}"])) for k in voters(results)}
    if not all(gap.n for gap in gaps.values()):
        return "Not answered: no run of AGPO has the seed and the start of one of GRPO."
    most = max(gaps, key=lambda k: abs(gaps[k].mean))
    texts = ", ".join(f"{gap.text('+')} points with {k} ({_zero(gap)})" for k, gap in gaps.items())
    return f"AGPO less GRPO: {texts}. The difference is largest with {most} vote{'s' * (most > 1)}."


def reading(results: Results, judged: pd.DataFrame) -> str:
    """How the claims came out, how greedy answers compare with votes, and on how many tasks voting loses."""
    if len(voters(results)) < 2:
        return NONE
    claims, table, most = judged[judged["verdict"] != "no claim"], values(results), voters(results)[-1]
    counts = claims["verdict"].value_counts(sort=False)
    found = ", ".join(f"{count} {verdict}" for verdict, count in counts.items()) or "none"
    lines = [f"Of {len(claims)} claimed differences: {found}."]
    greedy = []
    for arm in arms_of(results.runs):
        of_arm = table.xs(arm, level="arm")
        gap = Interval(*t_interval(of_arm["greedy"] - of_arm[f"maj@{most}"])[:2], len(of_arm))
        half = "" if arm == "start" or math.isnan(gap.half) else f"{PLUS_MINUS}{gap.half:.1f}"
        greedy.append(f"{ARMS[arm].title} {gap.mean:+.1f}{half}")
    lines.append(f"The greedy answer less the vote of {most}, in points: {'; '.join(greedy)}.")
    tasks = by_task(results)
    losing = [
        f"{ARMS[arm].title} {(rows['gain'] < 0).sum()} of {len(rows)}" for arm, rows in tasks.groupby("arm", sort=False)
    ]
    lines.append(f"Tasks on which a vote of {min(most, 16)} scores below one sample: {'; '.join(losing)}.")
    return "\n".join(fill(line, bullet="- ") for line in lines)


def _zero(interval: Interval) -> str:
    if math.isnan(interval.half):
        return "no interval"
    return f"its interval {'excludes' if interval.low > 0 or interval.high < 0 else 'includes'} zero"
