"""Tasks: each gives problems in disjoint splits and grades completions.

A grade carries the reward and the *canonical answer*. Two completions vote for the same thing (AGPO Eq. 8) exactly
when their canonical answers are equal.
"""

from agpo_core.grading import Graded
from agpo_core.tasks.problem import SPLITS, Problem, Task, check_split
from agpo_core.tasks.registry import MICRO_TASKS, TASKS, WITH_PYTHON, get_task

__all__ = ["Graded", "MICRO_TASKS", "Problem", "SPLITS", "TASKS", "Task", "WITH_PYTHON", "check_split", "get_task"]
