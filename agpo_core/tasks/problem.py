"""What a task is: problems in disjoint splits, and the grade of a completion."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from agpo_core.grading import Graded

SPLITS = ("train", "dev", "test")


def check_split(split: str) -> None:
    """Refuse a split that no task has."""
    if split not in SPLITS:
        raise ValueError(f"split: unknown split {split!r}; use one of {', '.join(SPLITS)}")


@dataclass(frozen=True)
class Problem:
    """One question. `tests` is empty except where the answer is a program."""

    task: str
    id: str
    prompt: str
    answer: str
    tests: tuple = ()


class Task(Protocol):
    """What a task offers. Completions given to `grade` hold neither end-of-sequence nor padding.

    A task whose policy may call a tool has it as a further attribute, `tool`, a `tools.Tool`. Completions given to
    `grade` then hold what the policy wrote, its calls too, and no observation.
    """

    name: str
    title: str
    stands_in_for: str

    def problems(self, split: str) -> list[Problem]:
        """The problems of "train", "dev" or "test"; the same list on every call and machine."""

    def grade(self, problem: Problem, completion: str) -> Graded:
        """Judge one completion, whatever it holds; where this raises, `failed_grading` of a run says what follows."""
