"""Checks on a folder of official files whether the grader finds the benchmarks' own answers.

Every gold is put into sentences that end in it, as a response would, and each sentence should be graded right. No gold
should be graded equal to the next record's gold if that is written differently.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from datetime import UTC, datetime

from agpo_core import grading
from agpo_core.tasks import Problem, Task, get_task
from agpo_core.tasks.benchmarks.listing import splits
from agpo_core.tasks.benchmarks.sources import Incomplete
from agpo_core.tasks.benchmarks.table import LISTED, Benchmark

BOX = r"Thus we get $\boxed{{{}}}$."
SENTENCES = {
    "en": ("So the answer is {}.", "Final Answer: The final answer is ${}$. I hope it is correct.", BOX),
    "zh": ("所以答案是{}。", "答案：{}", BOX),
}
ROLES = ("<think>hm</think><answer>{}</answer>", "Let me see.\nCONCLUSION:\n{}")


@dataclass(frozen=True)
class Checked:
    """The result of checking a split.

    Args:
        name, split, records: the benchmark, its split and the number of records.
        missed: (id, sentence) for each gold that is not found in a sentence.
        alike: (id, gold, next gold) for neighbours whose golds are written differently and graded equal.
    """

    name: str
    split: str
    records: int
    missed: tuple[tuple[str, str], ...]
    alike: tuple[tuple[str, str, str], ...]


def check(data_dir: str) -> list[Checked]:
    """The results for every split in the folder, of every benchmark that has right answers.

    Raises:
        FileNotFoundError: there is no such folder, or nothing in it.
        ValueError: a file is not in its official format.
    """
    found = []
    for benchmark in LISTED.values():
        if benchmark.kind == "prompt":
            continue
        for split in splits(benchmark):
            try:
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")  # of an incomplete split and of a machine without a sandbox
                    task = get_task(benchmark.name, data_dir)
                    problems = task.problems(split)
            except Incomplete:
                raise
            except FileNotFoundError:
                continue
            found.append(_check(benchmark, task, split, problems))
    if not found:
        raise FileNotFoundError(f"data_dir: {data_dir!r} has no benchmark; give a folder of official files")
    return found


def _check(benchmark: Benchmark, task: Task, split: str, problems: list[Problem]) -> Checked:
    sentences = ROLES if benchmark.kind == "roles" else SENTENCES[benchmark.language]
    profile = benchmark.profile or benchmark.name
    if benchmark.kind == "program":  # the gold is the output that a program should print
        golds = [(problem.id, output) for problem in problems for _, output in problem.tests]
        missed = tuple((name, output) for name, output in golds if not grading.equivalent(output, output, profile))
    else:
        golds = [(problem.id, problem.answer) for problem in problems]
        missed = tuple(
            (problem.id, sentence)
            for problem in problems
            for sentence in sentences
            if task.grade(problem, sentence.format(problem.answer)).reward != 1.0
        )
    alike = tuple(
        (name, gold, following)
        for (name, gold), (_, following) in zip(golds, golds[1:], strict=False)
        if gold != following and grading.equivalent(gold, following, profile)
    )
    return Checked(task.name, split, len(problems), missed, alike)


def record(data_dir: str) -> list[str]:
    """The lines of the table, which are also written to outputs/reference/golds.json with their provenance.

    Raises:
        ValueError: the code is not committed.
    """
    from agpo_core import paths, provenance

    commit, started = provenance.git_commit(), datetime.now(UTC)
    if len(commit) != 40:  # -dirty, or unknown
        raise ValueError(f"--record from commit {commit}: commit the code first")
    lines = table(data_dir)
    provenance.write_json(paths.reference() / "golds.json", provenance.measurement(commit, started) | {"table": lines})
    return lines


def table(data_dir: str) -> list[str]:
    """The lines of a Markdown table with the counts of each split and the ids of missed or equal golds."""
    found = check(data_dir)
    lines = [
        "| task | split | records | found in a sentence | equal to the next | which |",
        "|---|---|---:|---:|---:|---|",
    ]
    for one in found:
        ids = list(dict.fromkeys(name for name, _ in one.missed))
        which = [f"{name}: in {', '.join(s for n, s in one.missed if n == name)}" for name in ids]
        which += [f"{name}: `{gold}` and `{following}`" for name, gold, following in one.alike]
        if one.split == "test":
            which += [f"{name}, by its own words alone: {why}" for name, why in LISTED[one.name].not_by_rule.items()]
        cells = [f"`{one.name}`", one.split, f"{one.records:,}", f"{one.records - len(ids):,}", f"{len(one.alike)}"]
        lines.append(f"| {' | '.join([*cells, '; '.join(which)])} |")
    return lines
