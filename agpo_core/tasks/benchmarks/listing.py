"""The texts that the command line prints for `list` and `show`."""

from __future__ import annotations

import warnings
from pathlib import Path

from agpo_core import grading
from agpo_core.tasks import SPLITS, TASKS, get_task
from agpo_core.tasks.benchmarks.sources import Incomplete
from agpo_core.tasks.benchmarks.table import LISTED, Benchmark

NOT_HERE = "-"  # the number of records where there is no file; an official number is "?" where the release has none
COLUMNS = ("name", "language", "kind", "split", "records", "official", "source", "metric")


def rows(data_dir: str | None = None) -> list[tuple[str, ...]]:
    """A row for every split of every benchmark; records on the hub are not counted.

    Raises:
        FileNotFoundError: `data_dir` is not a folder, or has a part of the files of a split.
        ValueError: a file of `data_dir` is not in its official format.
    """
    if data_dir is not None and not Path(data_dir).expanduser().is_dir():
        raise FileNotFoundError(f"data_dir: no folder {str(data_dir)!r}; give one with the official files")
    found = []
    for benchmark in LISTED.values():
        for split in splits(benchmark):
            size = benchmark.sizes.get(split)
            official = "held out of train" if split not in benchmark.sizes else "?" if size is None else str(size)
            found.append(
                (
                    benchmark.name,
                    benchmark.language,
                    benchmark.kind,
                    split,
                    _count(lambda b=benchmark, s=split: get_task(b.name, data_dir).problems(s), data_dir),
                    official,
                    next((hub.id for hub in benchmark.hub.values()), "files alone"),
                    benchmark.metric,
                )
            )
    return found


def splits(benchmark: Benchmark) -> list[str]:
    """The splits that a benchmark's task has."""
    return [split for split in SPLITS if split in benchmark.sizes or (split == "dev" and "train" in benchmark.sizes)]


def _count(load, data_dir: str | None) -> str:
    if data_dir is None:
        return NOT_HERE
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of an incomplete split and of a machine without a sandbox
            return str(len(load()))
    except Incomplete:
        raise
    except FileNotFoundError:
        return NOT_HERE


def table(data_dir: str | None = None) -> str:
    """The rows in columns, then the names of the other tasks."""
    lines = [COLUMNS, *rows(data_dir)]
    widths = [max(len(line[i]) for line in lines) for i in range(len(COLUMNS))]
    text = ["  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip() for line in lines]
    others = ", ".join(name for name in TASKS if name not in LISTED)
    return "\n".join([*text, "", f"Tasks that need no file, or are a part of one above: {others}"])


def markdown() -> str:
    """The benchmarks with the sizes of their official splits, as a Markdown table for the documentation."""
    lines = [
        "| task | what it is | language | answers | train | dev | test | from the hub | reported |",
        "|---|---|---|---|---:|---:|---:|---|---|",
    ]
    for b in LISTED.values():
        counts = ["" if split not in b.sizes else str(b.sizes[split] or "?") for split in SPLITS]
        if not counts[1] and counts[0]:
            counts[1] = "of train"
        hub = ", ".join(dict.fromkeys(f"`{source.id}`" for source in b.hub.values())) or "files alone"
        cells = [f"`{b.name}`", b.title, b.language, b.kind, *counts, hub, b.metric]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def show(name: str, index: int, split: str = "test", data_dir: str | None = None) -> str:
    """A record as text: its prompt, and its answer as written and in canonical form.

    Raises:
        ValueError: there is no such task, split or record.
    """
    task = get_task(name, data_dir)
    problems = task.problems(split)
    problem = _at(index, problems, name, split)
    parts = [f"{name}, {split} record {index} of {len(problems)}: {problem.id}", "-- prompt --", problem.prompt]
    if problem.tests:
        given, expected = problem.tests[0]
        if not isinstance(given, str):  # in a micro-task, variables and their values
            given = ", ".join(f"{variable} = {value}" for variable, value in given)
        parts += [f"-- {len(problem.tests)} tests; the first: input --", given, "-- output --", str(expected)]
    elif problem.answer:
        parts += ["-- answer --", problem.answer, "-- canonical answer --", str(_canonical(task, problem))]
    else:
        parts.append("-- no right answer: prompts alone --")
    if reason := name in LISTED and LISTED[name].not_by_rule.get(problem.id):
        parts.append(f"-- no rule can grade this record: {reason} --")
    return "\n".join(part.rstrip("\n") for part in parts)


def _at(index: int, records: list, name: str, split: str):
    if not 0 <= index < len(records):
        raise ValueError(f"index: {name} has {len(records)} {split} records; use 0 to {len(records) - 1}")
    return records[index]


def _canonical(task, problem):
    if task.name in LISTED:
        return grading.canonical(problem.answer, LISTED[task.name].profile)
    return task.grade(problem, problem.answer).answer
