"""Evaluates the policy during training, by greedy and sampled completions that the ranks share.

    python -m agpo_core.evaluation.evaluate --model MODEL --tasks gsm8k,math500 --k 4 --data-dir FOLDER

evaluates a model on benchmarks by their published protocols, and writes a line for each problem and a table (see
`evaluation_run`).
"""

import torch
from accelerate import Accelerator
from accelerate.utils import gather_object

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


def complete_and_grade(
    engine: RolloutEngine, tasks: dict[str, Task], problems: dict[str, list[Problem]], accelerator: Accelerator,
    samples: int = 1, tau: float = 0.0, failures: list[str] | None = None,
) -> tuple[dict[str, list[list[float]]], int]:  # fmt: skip
    """The rewards of each problem's completions.

    A sample depends on the seed and on the problem's place, not on the batch. A problem whose prompt leaves no room for
    an answer is not asked; its rewards are 0.

    Args:
        engine: samples from the policy.
        tasks: {name: task}.
        problems: {task name: its problems}.
        accelerator: its ranks share the problems.
        samples: completions for each problem.
        tau: temperature, >= 0; 0 decodes greedily.
        failures: a list that receives a sentence for each completion, on any rank, whose grading failed.
    Returns:
        {task: rows, one for each problem, with a reward for each completion}, and the number of tokens generated; equal
        on all ranks.
    Raises:
        GradingError: grading failed, and the configuration's `failed_grading` is "raise".
        OtherRankFailed: another rank raised.
    """
    every = [problem for several in problems.values() for problem in several]
    slots = range(len(every))[accelerator.process_index :: accelerator.num_processes]
    fits = engine.fits([every[i] for i in slots])
    rewards, tokens, failed = {i: [0.0] * samples for i in slots}, 0, []
    asked = [i for i, fit in zip(slots, fits, strict=True) if fit]
    size = max(1, engine.config.rollout_batch // samples)
    with together(accelerator):
        for start in range(0, len(asked), size):
            part = asked[start : start + size]
            prompts = engine.encode([every[i] for i in part], part)
            tau_P = torch.full((len(part),), tau, device=engine.device)
            rollouts = engine.sample(prompts, engine.open(prompts), samples, tau_P, "evaluation", 0)
            score(rollouts, tasks, engine.config.failed_grading)
            rewards |= zip(part, rollouts.grouped(rollouts.rewards_B.tolist()), strict=True)
            tokens += rollouts.tokens
            failed += rollouts.failures
    shares = gather_object([(list(rewards.values()), tokens, failed)])
    merged = [None] * len(every)
    for rank, (share, _, of_rank) in enumerate(shares):
        merged[rank :: accelerator.num_processes] = share
        if failures is not None:
            failures += of_rank
    rows = iter(merged)
    by_task = {name: [next(rows) for _ in several] for name, several in problems.items()}
    return by_task, sum(tokens for _, tokens, _ in shares)


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
