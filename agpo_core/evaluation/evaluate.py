"""Evaluates the policy during training, by greedy and sampled completions that the ranks share.

    python -m agpo_core.evaluation.evaluate --model MODEL --tasks gsm8k,math500 --k 4 --data-dir FOLDER

evaluates a model on benchmarks by their published protocols, and writes a line for each problem and a table (see
`evaluation_run`).
"""

from collections import Counter
from collections.abc import Hashable
from dataclasses import dataclass

import torch
from accelerate import Accelerator
from accelerate.utils import gather_object

from agpo_core.checks import check_answers
from agpo_core.config import ConfigError
from agpo_core.jobs.together import together
from agpo_core.rollouts.rollout import RolloutEngine, score
from agpo_core.tasks import Problem, Task


def first_problems(tasks: dict[str, Task], split: str, count: int | None) -> dict[str, list[Problem]]:
    """The first `count` problems of each task's split; None: all of them.

    Raises:
        ConfigError: a task has fewer problems than asked for.
    """
    problems = {}
    for name, task in tasks.items():
        available = task.problems(split)
        if count is not None and len(available) < count:
            raise ConfigError(
                f"task {name!r} has {len(available)} {split} problems, {count} were asked for: lower {split}_problems, "
                "or set it to null for all."
            )
        problems[name] = available[:count]
    return problems


@dataclass(frozen=True)
class Completed:
    """What the completions of some problems came to; equal on all ranks.

    Attributes:
        rewards: {task: rows, one for each problem, with a reward for each completion}.
        votes: {task: rows, one for each problem, as `votes` counts them}.
        tokens: generated, of all ranks.
        failures: a sentence for each completion, on any rank, whose grading failed.
    """

    rewards: dict[str, list[list[float]]]
    votes: dict[str, list[list[int]]]
    tokens: int
    failures: list[str]


def complete_and_grade(
    engine: RolloutEngine, tasks: dict[str, Task], problems: dict[str, list[Problem]], accelerator: Accelerator,
    samples: int = 1, tau: float = 0.0,
) -> Completed:  # fmt: skip
    """The rewards and the votes of each problem's completions.

    A sample depends on the seed and on the problem's place, not on the batch. A problem whose prompt leaves no room for
    an answer is not asked; its rewards are 0, and it has no votes.

    Args:
        engine: samples from the policy.
        tasks: {name: task}.
        problems: {task name: its problems}.
        accelerator: its ranks share the problems.
        samples: completions for each problem.
        tau: temperature, >= 0; 0 decodes greedily.
    Raises:
        GradingError: grading failed, and the configuration's `failed_grading` is "raise".
        OtherRankFailed: another rank raised.
    """
    every = [problem for several in problems.values() for problem in several]
    slots = range(len(every))[accelerator.process_index :: accelerator.num_processes]
    fits = engine.fits([every[i] for i in slots])
    found, tokens, failures = {i: ([0.0] * samples, [0]) for i in slots}, 0, []
    asked = [i for i, fit in zip(slots, fits, strict=True) if fit]
    size = max(1, engine.config.rollout_batch // samples)
    with together(accelerator):
        for start in range(0, len(asked), size):
            part = asked[start : start + size]
            prompts = engine.encode([every[i] for i in part], part)
            tau_P = torch.full((len(part),), tau, device=engine.device)
            rollouts = engine.sample(prompts, engine.open(prompts), samples, tau_P, "evaluation", 0)
            score(rollouts, tasks, engine.config.failed_grading)
            graded = (rollouts.grouped(values) for values in (rollouts.rewards_B.tolist(), rollouts.answers))
            for i, rewards_G, answers_G in zip(part, *graded, strict=True):
                found[i] = rewards_G, votes(answers_G, rewards_G)
            tokens += rollouts.tokens
            failures += rollouts.failures
    shares = gather_object([(list(found.values()), tokens, failures)])
    merged = [([], [])] * len(every)
    for rank, (share, *_) in enumerate(shares):
        merged[rank :: accelerator.num_processes] = share
    rows = iter(merged)
    by_task = {name: [next(rows) for _ in several] for name, several in problems.items()}
    return Completed(
        {name: [rewards_G for rewards_G, _ in rows] for name, rows in by_task.items()},
        {name: [counts for _, counts in rows] for name, rows in by_task.items()},
        sum(tokens for _, tokens, _ in shares),
        [failure for *_, of_rank in shares for failure in of_rank],
    )


def votes(answers: list[Hashable | None], rewards: list[float]) -> list[int]:
    """Count the votes of a problem's completions: first those for the right answer, then for each other, most first.

    The right answer is the commonest among completions of reward 1; without one it has 0 votes. A completion without an
    answer (None) does not vote, so the counts may add up to fewer than the completions.

    Example:
        >>> votes(["7", "8", None, "7", "9", "8", "8"], [1.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0])
        [2, 3, 1]
    """
    (answers,) = check_answers("answers", [answers])
    counts = Counter(answer for answer in answers if answer is not None)
    rights = Counter(a for a, reward in zip(answers, rewards, strict=True) if reward == 1 and a is not None)
    right = counts.pop(rights.most_common(1)[0][0]) if rights else 0
    return [right, *sorted(counts.values(), reverse=True)]


def counts_right(rows: list[list[float]]) -> list[int] | None:
    """The number of right completions (reward 1) of each problem; None if a reward lies outside [0, 1].

    Args:
        rows: a task's rows, one for each problem, with a reward for each completion.
    """
    if not all(0 <= reward <= 1 for row in rows for reward in row):
        return None
    return [sum(reward == 1 for reward in row) for row in rows]


if __name__ == "__main__":
    from agpo_core.evaluation.evaluation_run import main

    main()
