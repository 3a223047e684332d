"""Benchmarks and training sets in their official formats, from the hub or from a folder of the official files.

    table.py      the benchmarks as data: kind, profile, splits, files and hub ids, schemas
    sources.py    strict readers: rows with the place where each stands
    schemas.py    from a row to a record, or what is wrong with it
    loader.py     the one way from the table to records
    task.py       splits, prompts, grades
    few_shot.py   the official few-shot prompts
    listing.py    the command line's `list` and `show`

The same records come out of every source of a benchmark. CodeContests and Knights and Knaves, whose answers are
programs and roles, have modules of their own, and share the readers.
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
