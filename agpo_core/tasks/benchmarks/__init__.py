"""Benchmarks and training sets in their official formats, from the hub or from a folder of the official files.

    table.py      the benchmarks as data: kind, profile, splits, files and hub ids, schemas
    sources.py    strict readers of files and hub: they give rows, each with its place
    schemas.py    turns a row into a record, or says what is wrong with the row
    loader.py     reads all records of a benchmark's split
    task.py       a benchmark as a task: splits, prompts, grades
    few_shot.py   the official few-shot prompts
    listing.py    the command line's `list` and `show`
    checking.py   the command line's `check`
    download.py   the command line's `download`

All sources of a benchmark give the same records. CodeContests and Knights and Knaves, whose answers are programs and
roles, have modules of their own and use the same readers.
"""

from agpo_core.tasks.benchmarks.few_shot import FewShot, few_shot_prompt
from agpo_core.tasks.benchmarks.table import BENCHMARKS, LISTED, Benchmark
from agpo_core.tasks.benchmarks.task import BenchmarkProblem, BenchmarkTask

__all__ = [
    "BENCHMARKS",
    "Benchmark",
    "BenchmarkProblem",
    "BenchmarkTask",
    "FewShot",
    "LISTED",
    "few_shot_prompt",
]
