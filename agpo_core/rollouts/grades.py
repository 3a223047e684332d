"""Checked grades: the result of a task's `grade`, or a sentence that says what went wrong.

A reward is any finite real number. A policy must not be able to end its own training. A completion that makes its
grader fail therefore gets reward 0 and no answer, and the failure is counted. A run ends only if a grader cannot start,
or at the first failure if `failed_grading` is "raise".
"""

import math
import numbers
import reprlib
from collections.abc import Callable

import torch

from agpo_core.jobs.interrupts import Interrupted
from agpo_core.sandbox import SandboxRefused
from agpo_core.tasks import Graded, Problem

REWARD_MAX = 1.0e12  # Eq. 5 takes third powers of rewards in float32, which end at 3e38

_short = reprlib.Repr()
_short.maxstring = _short.maxother = 160  # characters of a text, or of the printed form of any other value


class GradingError(ValueError):
    """A completion could not be graded; the message names task, problem and completion."""


def graded(
    grade: Callable[[Problem, str], Graded], problem: Problem, completion: str, failed_grading: str = "zero"
) -> tuple[Graded, str | None]:
    """Grade one completion, or say how its grading failed.

    Everything that the grader raises counts as a failure, even a lack of memory or `SystemExit`; an interrupt does not.

    Args:
        grade: the task's function.
        problem: the problem that was asked.
        completion: the text to grade.
        failed_grading: "zero", or "raise".
    Returns:
        The grade, whose reward is a float; and None. If grading failed: a grade with reward 0 and no answer, and a
        sentence that says how it failed.
    Raises:
        GradingError: grading failed, and `failed_grading` is "raise".
        SandboxRefused: the grader cannot start.
        Interrupted: a signal came while it was grading.
    """
    try:
        found = _checked(grade(problem, completion))
        return found, None
    except (SandboxRefused, Interrupted):
        raise
    except _Fault as error:
        fault, cause = str(error), None
    except (Exception, SystemExit) as error:
        fault, cause = f"raised {_short.repr(error)}", error
    sentence = (
        f"grade() of task {problem.task!r} {fault} for problem {problem.id!r}, completion {_short.repr(completion)}"
    )
    if failed_grading == "raise":
        raise GradingError(f"{sentence}: mend the task's grade(), or set failed_grading to zero.") from cause
    return Graded(0.0, None), sentence


class _Fault(Exception):
    """The grader's result is not a grade."""


def _checked(found) -> Graded:
    if not (hasattr(found, "reward") and hasattr(found, "answer")):
        raise _Fault(f"gave {_short.repr(found)}, which is not a Graded,")
    reward = found.reward.item() if hasattr(found.reward, "item") else found.reward  # of numpy, of torch
    if not isinstance(reward, numbers.Real):
        raise _Fault(f"gave the reward {_short.repr(found.reward)}, a {type(found.reward).__name__},")
    reward = float(reward)
    if not math.isfinite(reward) or abs(reward) > REWARD_MAX:
        raise _Fault(f"gave the reward {reward!r}, which is not a finite number between ±{REWARD_MAX:g},")
    if isinstance(found.answer, torch.Tensor):
        raise _Fault("gave a tensor as answer, which never counts as equal to another answer,")
    try:
        hash(found.answer)
    except TypeError:
        raise _Fault(f"gave the answer {_short.repr(found.answer)}, which cannot be counted as a vote,") from None
    return Graded(reward, found.answer)
