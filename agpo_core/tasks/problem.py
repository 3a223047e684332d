"""The interface of a task (problems in disjoint splits, the grade of a completion) and the type of its problems."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from agpo_core.grading import Graded

SPLITS = ("train", "dev", "test")


def check_split(split: str) -> None:
    """Raise ValueError if `split` is not the name of a split."""
    if split not in SPLITS:
        raise ValueError(f"split: unknown split {split!r}; use one of {', '.join(SPLITS)}")


@dataclass(frozen=True)
class Problem:
    """One question with its right answer; `tests` is empty unless the answer is a program."""

    task: str
    id: str
    prompt: str
    answer: str
    tests: tuple = ()


class Task(Protocol):
    """The interface that every task implements.

    Completions given to `grade` contain neither end-of-sequence nor padding tokens. A task whose policy may call a tool
    has a further attribute `tool`, a `tools.Tool`. Completions given to `grade` then contain all that the policy wrote,
    with its calls, but no observation (the tool's output).
    """

    name: str
    title: str
    stands_in_for: str

    def problems(self, split: str) -> list[Problem]:
        """The problems of "train", "dev" or "test"; the same list on every call and machine."""

    def grade(self, problem: Problem, completion: str) -> Graded:
        """Judge one completion, whatever its text; if it raises, the setting `failed_grading` says what follows."""
