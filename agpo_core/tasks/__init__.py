"""What is asked and how an answer is judged.

A task yields problems in disjoint splits and grades completions. A grade carries the reward and the
*canonical answer*: two completions vote for the same thing (AGPO Eq. 8) exactly when their
canonical answers are equal.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from importlib import import_module
from typing import Protocol

SPLITS = ("train", "dev", "test")


@dataclass(frozen=True)
class Problem:
    """One question. `tests` is empty except where the answer is a program."""

    task: str
    id: str
    prompt: str
    answer: str
    tests: tuple = ()


@dataclass(frozen=True)
class Graded:
    """A judged completion: its reward in [0, 1] and its vote key (None: no answer was found)."""

    reward: float
    answer: Hashable | None


class Task(Protocol):
    """What a task offers. Completions given to `grade` hold neither end-of-sequence nor padding."""

    name: str
    title: str
    stands_in_for: str

    def problems(self, split: str) -> list[Problem]:
        """The problems of "train", "dev" or "test"; the same list on every call and machine."""

    def grade(self, problem: Problem, completion: str) -> Graded:
        """Judge one completion. Never raises, whatever the completion holds."""


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

# name -> "module:class"; imported when asked for.
TASKS = {
    "steps": "micro:Steps",
    "equations": "micro:Equations",
    "quantities": "micro:Quantities",
    "choice_sums": "micro:ChoiceSums",
    "choice_facts": "micro:ChoiceFacts",
    "programs": "micro:Programs",
    "chinese_sums": "micro:ChineseSums",
    "cloze_equations": "micro:ClozeEquations",
    "choice_chinese": "micro:ChoiceChinese",
    "gsm8k": "gsm8k:Gsm8k",
    "word_problems": "word_problems:WordProblems",
    "code_contests": "code_contests:CodeContests",
}


def get_task(name: str, data_dir: str | None = None) -> Task:
    """The task called `name`.

    Args:
        name: a key of `TASKS`.
        data_dir: folder of the task's official files; the procedural tasks need none and ignore it.

    Raises:
        ValueError: the name is not known; the message lists those that are.
    """
    if name not in TASKS:
        raise ValueError(f"name: unknown task {name!r}; use one of {', '.join(sorted(TASKS))}")
    module, attribute = TASKS[name].split(":")
    return getattr(import_module(f"{__name__}.{module}"), attribute)(data_dir=data_dir)
