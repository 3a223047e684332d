"""All tasks by name, and `get_task`, which makes one."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

from agpo_core.tasks.benchmarks import BENCHMARKS, BenchmarkTask
from agpo_core.tasks.code_contests import CodeContests
from agpo_core.tasks.knights import PEOPLE, Knights, KnightsAndKnaves, KnightsInWords
from agpo_core.tasks.micro import (
    ChineseSums,
    ChoiceChinese,
    ChoiceFacts,
    ChoiceSums,
    ClozeEquations,
    Equations,
    Programs,
    Quantities,
    Steps,
)
from agpo_core.tasks.micro_tools import Products
from agpo_core.tasks.preferences import Preferences
from agpo_core.tasks.problem import Task
from agpo_core.tasks.with_python import WithPython
from agpo_core.tasks.word_problems import WordProblems

# The nine micro-tasks, in the order of the paper's benchmarks (AGPO Table 1).
MICRO_TASKS = (
    "steps",
    "equations",
    "quantities",
    "choice_sums",
    "choice_facts",
    "programs",
    "chinese_sums",
    "cloze_equations",
    "choice_chinese",
)

# Benchmarks that also exist with Python as a tool; "_python" is added to their name.
WITH_PYTHON = (
    "gsm8k", "math", "math500", "ocw", "sat_math", "sat_llemma", "mmlu_stem", "cmath", "gaokao_cloze", "gaokao_qa",
    "aime24", "aime25", "amc23", "hmmt24", "hmmt25", "cmimc24", "cmimc25", "orz", "dapo",
)  # fmt: skip


def _with_python(name: str, data_dir: str | Path | None) -> WithPython:
    return WithPython(BenchmarkTask(BENCHMARKS[name], data_dir))


# Task name -> a function that makes the task from the folder of its official files, or from None.
TASKS: dict[str, Callable[[str | Path | None], Task]] = {
    "steps": Steps,
    "equations": Equations,
    "quantities": Quantities,
    "choice_sums": ChoiceSums,
    "choice_facts": ChoiceFacts,
    "programs": Programs,
    "chinese_sums": ChineseSums,
    "cloze_equations": ClozeEquations,
    "choice_chinese": ChoiceChinese,
    "products": Products,
    "preferences": Preferences,
    "word_problems": WordProblems,
    **{name: partial(BenchmarkTask, benchmark) for name, benchmark in BENCHMARKS.items()},
    "code_contests": CodeContests,
    **{f"{name}_python": partial(_with_python, name) for name in WITH_PYTHON},
    "knights_and_knaves": partial(KnightsAndKnaves, None),
    **{f"knights_and_knaves_{people}": partial(KnightsAndKnaves, people) for people in PEOPLE},
    **{f"knights_{people}": partial(Knights, people) for people in PEOPLE},
    **{f"knights_in_words_{people}": partial(KnightsInWords, people) for people in PEOPLE},
}


def get_task(name: str, data_dir: str | Path | None = None, train_on_evaluation_sets: bool = False) -> Task:
    """The task called `name`.

    Args:
        name: a key of `TASKS`.
        data_dir: folder of the task's official files, or a folder that has a folder for each of several benchmarks;
            None reads the hub. Procedural tasks ignore it.
        train_on_evaluation_sets: whether a benchmark that is for evaluation only gets a training split, taken from its
            own records.

    Raises:
        ValueError: the name is unknown; the message lists the known names.
    """
    if name not in TASKS:
        raise ValueError(f"name: unknown task {name!r}; use one of {', '.join(sorted(TASKS))}")
    task = TASKS[name](data_dir)
    return task.for_training() if train_on_evaluation_sets and getattr(task, "evaluation_only", False) else task
