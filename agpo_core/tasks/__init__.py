"""What is asked and how an answer is judged.

A task yields problems in disjoint splits and grades completions. A grade carries the reward and the
*canonical answer*: two completions vote for the same thing (AGPO Eq. 8) exactly when their
canonical answers are equal.
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Protocol

from agpo_core.grading import Graded

SPLITS = ("train", "dev", "test")


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

# The benchmarks that are also there with Python as a tool, under their name and "_python".
WITH_PYTHON = (
    "gsm8k", "math", "math500", "ocw", "sat_math", "sat_llemma", "mmlu_stem", "cmath", "gaokao_cloze", "gaokao_qa",
    "aime24", "aime25", "amc23", "hmmt24", "hmmt25", "cmimc24", "cmimc25", "orz", "dapo",
)  # fmt: skip

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
    "products": "micro_tools:Products",
    "preferences": "preferences:Preferences",
    "gsm8k": "gsm8k:Gsm8k",
    "word_problems": "word_problems:WordProblems",
    "code_contests": "code_contests:CodeContests",
    "math": "benchmarks:math",
    "math500": "benchmarks:math500",
    "ocw": "benchmarks:ocw",
    "sat_math": "benchmarks:sat_math",
    "sat_llemma": "benchmarks:sat_llemma",
    "mmlu_stem": "benchmarks:mmlu_stem",
    "cmath": "benchmarks:cmath",
    "gaokao_cloze": "benchmarks:gaokao_cloze",
    "gaokao_qa": "benchmarks:gaokao_qa",
    "aime24": "benchmarks:aime24",
    "aime25": "benchmarks:aime25",
    "amc23": "benchmarks:amc23",
    "hmmt24": "benchmarks:hmmt24",
    "hmmt25": "benchmarks:hmmt25",
    "cmimc24": "benchmarks:cmimc24",
    "cmimc25": "benchmarks:cmimc25",
    "arena_hard": "benchmarks:arena_hard",
    "arena_hard_v2": "benchmarks:arena_hard_v2",
    "orz": "benchmarks:orz",
    "dapo": "benchmarks:dapo",
    **{f"{name}_python": f"with_python:{name}" for name in WITH_PYTHON},
    "knights_and_knaves": "knights:KnightsAndKnaves",
    **{f"knights_and_knaves_{n}": f"knights:Released{n}" for n in range(2, 9)},
    **{f"knights_{n}": f"knights:Knights{n}" for n in range(2, 9)},
    **{f"knights_in_words_{n}": f"knights:InWords{n}" for n in range(2, 9)},
}


# Where the files of a module's tasks lie in a folder of several benchmarks' files; `benchmarks` has its own table.
FOLDERS = {"gsm8k": "gsm8k", "code_contests": "code_contests", "knights": "kk"}


def get_task(name: str, data_dir: str | Path | None = None, train_on_evaluation_sets: bool = False) -> Task:
    """The task called `name`.

    Args:
        name: a key of `TASKS`.
        data_dir: folder of the task's official files, or a folder of several benchmarks' files, each in its own; the
            procedural tasks need none and ignore it.
        train_on_evaluation_sets: give a benchmark that is for evaluation only a training split, out of its own.

    Raises:
        ValueError: the name is not known; the message lists those that are.
    """
    if name not in TASKS:
        raise ValueError(f"name: unknown task {name!r}; use one of {', '.join(sorted(TASKS))}")
    module, attribute = TASKS[name].split(":")
    if data_dir is not None and module in FOLDERS:
        own = Path(data_dir).expanduser() / FOLDERS[module]
        data_dir = own if own.is_dir() else data_dir
    task = getattr(import_module(f"{__name__}.{module}"), attribute)(data_dir=data_dir)
    return task.for_training() if train_on_evaluation_sets and getattr(task, "evaluation_only", False) else task
