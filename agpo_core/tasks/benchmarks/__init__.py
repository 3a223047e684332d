"""Benchmarks and training sets in their official formats, from the hub or from a folder of the official files.

    table.py      the benchmarks as data: kind, profile, splits, files and hub ids, schemas
    sources.py    strict readers: rows with the place where each stands
    records.py    schemas: from a row to a record, or what is wrong with it
    loading.py    the one way from the table to records
    task.py       splits, prompts, grades
    few_shot.py   the official few-shot prompts
    listing.py    the command line's `list` and `show`

The same records come out of every source of a benchmark. GSM8K, CodeContests, and Knights and Knaves have modules of
their own.
"""

from functools import partial

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


def __getattr__(name: str):
    """What `tasks.TASKS` names: a benchmark's constructor, which takes `data_dir` alone."""
    if name in BENCHMARKS:
        return partial(BenchmarkTask, BENCHMARKS[name])
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
