"""Benchmarks with Python as a tool (R++ Table 4): `gsm8k_python` is `gsm8k` whose policy may run programs.

Questions, splits and grading rules are the benchmark's. The prompt also says how to run a program. Text inside a
program is no answer: programs are removed before a completion is graded.
"""

from __future__ import annotations

import re
from dataclasses import replace

from agpo_core.grading import Graded
from agpo_core.tasks.problem import Problem, Task
from agpo_core.tasks.tools import Python

INSTRUCTION = (
    "You can run Python on the way. Write a program between a line ```python and a line ```; what it prints is then "
    "shown to you, and you go on. Each program starts afresh: it knows nothing of the ones before it, so import and "
    "define all that it needs. State your answer, in the form asked for, outside the programs."
)
PROGRAM = re.compile(rf"{re.escape(Python.call_marks[0])}.*?({re.escape(Python.call_marks[1])}|\Z)", re.DOTALL)


class WithPython:
    """A task whose policy may run Python while it answers.

    Args:
        task: the benchmark; its problems keep their ids and answers.
    Raises:
        sandbox.SandboxRefused: the machine offers no sandbox.
    """

    def __init__(self, task: Task):
        self.task, self.tool = task, Python()
        self.name, self.title = f"{task.name}_python", f"{task.title}, with Python"
        self.stands_in_for = task.stands_in_for
        self.evaluation_only = getattr(task, "evaluation_only", False)

    def for_training(self) -> WithPython:
        """The same task with a training split, see `BenchmarkTask.for_training`."""
        return WithPython(self.task.for_training())

    def problems(self, split: str) -> list[Problem]:
        """The benchmark's problems, with `INSTRUCTION` after each prompt."""
        return [
            replace(problem, task=self.name, prompt=f"{problem.prompt}\n\n{INSTRUCTION}")
            for problem in self.task.problems(split)
        ]

    def grade(self, problem: Problem, completion: str) -> Graded:
        """The benchmark's grade of the text outside programs; a program that was not finished is removed too."""
        return self.task.grade(problem, PROGRAM.sub("", completion))
